"""Rows as people have them, from files, pipes, data frames and Python, as blocks of columns."""

from folklearn import registry

__all__ = registry.names_of("readers")
__getattr__ = registry.finder("readers")
