"""Rows as people have them: columns, labels and their scaling around one learner."""

from folklearn import registry

__all__ = registry.names_of("model")
__getattr__ = registry.finder("model")
