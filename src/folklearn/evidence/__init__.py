"""How good predictions were: scores, the best model in hindsight, and proofs about both."""

from folklearn import registry

__all__ = registry.names_of("evidence")
__getattr__ = registry.finder("evidence")
