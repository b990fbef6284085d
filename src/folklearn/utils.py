"""What messages share, packages that come with an extra, and the memory of this machine."""

import importlib
import math
import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from folklearn.errors import FolklearnError

_MOST_NAMES_LISTED = 12


def count_of(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def join_names(names: Sequence[str]) -> str:
    """Return names for a message: quoted where they could be misread, and not too many."""
    first = names[:_MOST_NAMES_LISTED]
    shown = [n if n and n.isprintable() and not set(n) & set(" ,'\"") else repr(n) for n in first]
    if len(names) > _MOST_NAMES_LISTED:
        shown.append(f"and {len(names) - _MOST_NAMES_LISTED} more")
    return ", ".join(shown)


def closest_name(name: str, names: Sequence[str]) -> str | None:
    by_letters = {each.casefold(): each for each in reversed(names)}
    matches = get_close_matches(name.casefold(), by_letters, n=1, cutoff=0.8)
    return by_letters[matches[0]] if matches else None


def import_optional(package: str, sentence: str, extra: str = "cli") -> Any:
    """Return a package, or raise with a sentence that its name completes, and how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise FolklearnError(
            f"{sentence} {package.partition('.')[0]}: pip install 'folklearn[{extra}]'"
        ) from None


def bytes_present() -> float:
    """Return how much memory this machine has, infinity if it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return math.inf
