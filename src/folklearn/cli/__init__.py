"""The command line: one file per command, and the helpers they share."""
