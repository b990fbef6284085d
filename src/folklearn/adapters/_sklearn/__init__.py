"""What the scikit-learn adapter makes of rows, data frames and labels; private to it."""
