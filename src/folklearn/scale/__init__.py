"""Past one core and one machine: many runs at once, a pure fold, and sums that merge."""

from folklearn import registry

__all__ = registry.names_of("scale")
__getattr__ = registry.finder("scale")
