"""Past one core and one machine: many runs at once, and sums over many files."""

from folklearn import registry

__all__ = registry.names_of("scale")
__getattr__ = registry.finder("scale")
