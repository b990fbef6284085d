"""Examples from files and other sources, scaled on line and learned block by block."""

from folklearn import registry

__all__ = registry.names_of("streams")
__getattr__ = registry.finder("streams")
