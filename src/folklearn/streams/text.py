"""Text files, plain or gzipped, line by line."""

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from folklearn.errors import InvalidInputError

_GZIP = b"\x1f\x8b"

Path = str | os.PathLike[str]


@contextmanager
def opened(
    path: Path, name: str, *, newline: str | None = None, errors: str = "strict"
) -> Iterator[TextIO]:
    """Yield a file open for reading; whether it is gzipped is seen from its first bytes."""
    try:
        if is_gzipped(path):
            with gzip.open(
                path, "rt", encoding="utf-8-sig", errors=errors, newline=newline
            ) as file:
                yield file
        else:
            with open(path, encoding="utf-8-sig", errors=errors, newline=newline) as file:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInputError(
            f"{name} is gzipped, and damaged or cut off ({error}); pack it again"
        ) from None


def is_gzipped(path: Path) -> bool:
    """Tell whether a file starts as gzipped files do."""
    with open(path, "rb") as file:
        return file.read(len(_GZIP)) == _GZIP


def lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of every line that is not blank, without its end."""
    number = 0
    with opened(path, name) as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\n")
        except UnicodeDecodeError:
            raise InvalidInputError(f"{name} is not UTF-8 text near line {number + 1}") from None


def number(text: str) -> float | None:
    """Return a number, or None; underscores are part of one for Python only.

    >>> number("1e3"), number("1_000"), number("one")
    (1000.0, None, None)
    """
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def fault(text: str, limit: float = math.inf) -> str:
    """Return what is wrong with the text of a feature's value, or nothing.

    >>> fault("2.5"), fault("two")
    ('', "'two' is not a number")
    """
    if not text:
        return "the cell is empty; fill in or drop missing values first"
    value = number(text)
    if value is None and number(text.replace(",", ".", 1)) is not None:
        return f"{text!r} is not a number; decimals have a point, not a comma"
    if value is None:
        return f"{text!r} is not a number"
    if not abs(value) < math.inf:
        return f"{text!r} is not finite; fill in or drop missing values first"
    if abs(value) > limit:
        return f"{text!r} is too large to compute with; scale the feature"
    return ""
