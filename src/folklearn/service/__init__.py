"""Durable HTTP service: event journal, models, snapshots."""

from folklearn import registry

__all__ = registry.names_of("service")
__getattr__ = registry.finder("service")
