"""Weak learners: anything with probabilities becomes one, told its costs by a wrapper."""
