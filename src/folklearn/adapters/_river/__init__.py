"""What the River adapter makes of features and labels that appear at any time; private to it."""
