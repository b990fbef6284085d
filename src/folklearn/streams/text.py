"""Text, plain or gzipped, line by line: of a file, or of a stream that can be read only once."""

import gzip
import math
import os
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from folklearn.errors import InvalidInputError
from folklearn.streams.tape import GZIP, Tape, damaged

Path = str | os.PathLike[str]

_MISSING = frozenset(("", "nan", "na", "n/a", "null"))


class Lines(Protocol):
    """Lines of text, each with its end."""

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the lines from here on."""


@contextmanager
def opened(
    path: Path | Tape, name: str, *, newline: str | None = None, errors: str = "strict"
) -> Iterator[Lines]:
    """Yield the lines of a file; whether it is gzipped is seen from its first bytes.

    The lines of a tape keep their ends as they came, as if `newline` were empty.
    """
    if isinstance(path, Tape):
        yield path.lines(errors)
        return
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
        raise damaged(name, error) from None


def play(path: Path | Tape) -> None:
    """Say that the next pass is the last one, which matters to a tape alone."""
    if isinstance(path, Tape):
        path.play()


def named(path: Path | Tape) -> str:
    """Return what messages call a file that nobody named."""
    return path.name if isinstance(path, Tape) else os.fspath(path)


def declare(column: str, guessed: bool = False) -> str:
    """Return what to do about text in a column of numbers, which may be a guess.

    >>> declare("zip code")
    "if the column holds text, declare it: --text 'zip code'"
    """
    advice = f"if the column holds text, declare it: --text {shlex.quote(column)}"
    if guessed:
        return f"missing in the first row, it became a column of numbers; {advice}"
    return advice


def is_gzipped(path: Path) -> bool:
    """Tell whether a file starts as gzipped files do."""
    with open(path, "rb") as file:
        return file.read(len(GZIP)) == GZIP


def lines(path: Path | Tape, name: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of every line that is not blank, without its end."""
    number = 0
    with opened(path, name) as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
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


def is_missing(text: str) -> bool:
    """Tell whether a cell without its spaces says that there is no value.

    >>> [cell for cell in ("", "NaN", "n/a", "0", "none") if is_missing(cell)]
    ['', 'NaN', 'n/a']
    """
    return len(text) < 5 and text.lower() in _MISSING


def is_text(text: str) -> bool:
    """Tell whether a value is text; a number with a decimal comma is a number, and a fault.

    >>> [cell for cell in ("2.5", "2,5", "inf", "two", "1_000") if is_text(cell)]
    ['two', '1_000']
    """
    return number(text) is None and number(text.replace(",", ".", 1)) is None


def fault(text: str, limit: float = math.inf) -> str:
    """Return what is wrong with the text of a feature's value, or nothing.

    >>> fault("2.5"), fault("two")
    ('', "'two' is not a number")
    """
    if not text:
        return "the cell is empty"
    value = number(text)
    if value is None and not is_text(text):
        return f"{text!r} is not a number; decimals have a point, not a comma"
    if value is None:
        return f"{text!r} is not a number"
    if not abs(value) < math.inf:
        return f"{text!r} is not finite; leave missing values out"
    if abs(value) > limit:
        return f"{text!r} is too large to compute with; scale the feature"
    return ""
