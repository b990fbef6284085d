"""Packages that come with an extra, loaded when they are needed."""

import importlib
from typing import Any

from folklearn.errors import FolklearnError


def needed(package: str, sentence: str, extra: str = "cli") -> Any:
    """Return a package, or raise with a sentence that its name completes, and how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise FolklearnError(
            f"{sentence} {package.partition('.')[0]}, which comes with the extra: "
            f"pip install 'folklearn[{extra}]'"
        ) from None
