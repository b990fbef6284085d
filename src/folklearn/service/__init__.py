"""Durable HTTP service: event journal, models, snapshots."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folklearn.service.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Import the client lazily: the command line must do without the extra."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from folklearn.service.client import Client

    return Client
