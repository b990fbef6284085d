"""Metrics of predictions: accumulated over a stream (`Metrics`), and of arrays (`score`)."""

from folklearn import registry

__all__ = registry.names_of("metrics")
__getattr__ = registry.finder("metrics")
