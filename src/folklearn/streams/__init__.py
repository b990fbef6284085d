"""Examples from files and other sources, scaled on line and learned block by block."""
