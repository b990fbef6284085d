"""Streams for tests and experiments, made from a seed."""

from folklearn import registry

__all__ = registry.names_of("synthetic")
__getattr__ = registry.finder("synthetic")
