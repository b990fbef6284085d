"""A folder in which models live, learn and outlast whatever happens to the process."""

from folklearn.service.client import Client

__all__ = ["Client"]
