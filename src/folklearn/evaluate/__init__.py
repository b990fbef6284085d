"""How good predictions were: scores, the best model in hindsight, and proofs about both."""
