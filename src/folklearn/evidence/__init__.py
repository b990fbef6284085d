"""Proofs about the losses of all linear models, from sums over rows."""

from folklearn import registry

__all__ = registry.names_of("evidence")
__getattr__ = registry.finder("evidence")
