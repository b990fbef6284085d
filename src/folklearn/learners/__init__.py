"""Learners: the contract in `base`, then one algorithm per file."""

from folklearn import registry

__all__ = registry.names_of("learners")
__getattr__ = registry.finder("learners")
