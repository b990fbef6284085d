"""How much memory there is."""

import os


def bytes_present() -> int | None:
    """Return how much memory this machine has, or None if it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
