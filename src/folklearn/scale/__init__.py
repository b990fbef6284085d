"""Past one core and one machine: a pure fold, and Spark."""

from folklearn import registry

__all__ = registry.names_of("scale")
__getattr__ = registry.finder("scale")
