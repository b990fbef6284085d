"""A folder in which models live, learn and outlast whatever happens to the process."""
