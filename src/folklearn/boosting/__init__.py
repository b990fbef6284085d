"""Online multiclass boosting: many weak learners, one strong one."""

from folklearn import registry

__all__ = registry.names_of("boosting")
__getattr__ = registry.finder("boosting")
