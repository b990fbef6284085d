"""One algorithm per file, all on one contract."""
