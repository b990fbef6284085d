"""Baselines: algorithms that exist to be compared with; nothing in the package imports them."""

from folklearn import registry

__all__ = registry.names_of("baselines")
__getattr__ = registry.finder("baselines")
