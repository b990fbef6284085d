"""Text, plain or gzipped, line by line: of a file, or of a stream that can be read only once."""

import gzip
import math
import os
import select
import shlex
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

from folklearn.errors import InvalidInputError

Path = str | os.PathLike[str]

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # for zlib: the largest, with a header as gzip writes it
_CHUNK = 2**16
_START = 16  # bytes that tell one format from another
_BOM = b"\xef\xbb\xbf"
_MISSING = frozenset(("", "nan", "na", "n/a", "null"))


class Lines(Protocol):
    """Lines of text, each with its end."""

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the lines from here on."""


class Tape:
    """A stream of bytes that is read once, as it comes, and whose beginning is read again.

    Format and header are found out by looking at the first bytes and lines. Everything that
    was read is kept for the next look, until `play` begins: from then on nothing is kept.

    Parameters
    ----------
    file : open for reading bytes.
    name : what messages call it.
    """

    closed = False  # what readers of binary formats ask

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._file = file
        self._head = b""  # raw bytes that wait
        self._start: bytes | None = None  # the first bytes, once they do not wait any more
        self._seen: deque[bytes] = deque()  # lines that were looked at
        self._lines: deque[bytes] = deque()  # complete lines that wait
        self._rest = b""  # a line that has only begun
        self._unpack: Callable[[bytes], bytes] | None = None
        self._begun = self._ended = self._playing = False

    def look(self, n: int) -> bytes:
        """Return the first n bytes, 16 at most; fewer if a line ends before, or everything."""
        if self._start is not None:
            return self._start[:n]
        while len(self._head) < n and b"\n" not in self._head:
            more = self._read()
            if not more:
                break
            self._head += more
        return self._head[:n]

    def read(self, n: int = -1) -> bytes:
        """Return the next n bytes, fewer only at the end; for readers of binary formats."""
        self._keep_start()
        parts: list[bytes] = []
        missing = n
        while missing != 0:
            part = self._head or self._read()
            if not part:
                break
            part, self._head = (part, b"") if n < 0 else (part[:missing], part[missing:])
            parts.append(part)
            missing -= len(part) if n > 0 else 0
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: the file is not ours to close."""

    def play(self) -> None:
        """Let the next pass be the last one: what it has read is forgotten."""
        self._playing = True

    @property
    def ready(self) -> bool:
        """Whether the next line can be had without waiting for whoever writes it."""
        while not (self._seen or self._lines or self._ended):
            if not self.can_read:
                return False
            self._fill()
        return True

    def lines(self, errors: str = "strict") -> Iterator[str]:
        """Yield the lines, each ended by a newline: from the first, or, playing, the next."""
        if not self._playing:
            for line in tuple(self._seen):
                yield line.decode("utf-8", errors)
        while True:
            if self._playing and self._seen:
                line = self._seen.popleft()
            elif self._lines:
                line = self._lines.popleft()
                if not self._playing:
                    self._seen.append(line)
            elif self._ended:
                return
            else:
                self._fill()
                continue
            yield line.decode("utf-8", errors)

    def _fill(self) -> None:
        """Read once more, and cut what came into lines."""
        if self._unpack is None:
            packed = self.look(len(_GZIP)) == _GZIP
            self._unpack = _Gunzip(self.name) if packed else bytes
        self._keep_start()
        raw, self._head = self._head or self._read(), b""
        self._ended = not raw
        text = self._rest + self._unpack(raw)
        # A carriage return may be half of a line's end; the other half comes with the next.
        half = b"\r" if text.endswith(b"\r") and not self._ended else b""
        text = text.removesuffix(half).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *complete, last = text.split(b"\n")
        complete = [line + b"\n" for line in complete]
        self._rest = last + half
        if self._ended and self._rest:
            complete.append(self._rest)
        if complete and not self._begun:
            complete[0], self._begun = complete[0].removeprefix(_BOM), True
        self._lines.extend(complete)

    def _keep_start(self) -> None:
        if self._start is None:
            self._start = self._head[:_START]

    def _read(self) -> bytes:
        # What is there, and not the wait for as much as was asked for.
        read: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
        return read(_CHUNK)

    @property
    def can_read(self) -> bool:
        """Whether to read is not to wait; if nobody can tell, it may be."""
        if self._head:
            return True
        try:
            number = self._file.fileno()
        except OSError:
            return True  # in memory
        try:
            return bool(select.select([number], [], [], 0.0)[0])
        except (OSError, ValueError):
            return False


class _Gunzip:
    """Unpacks as gzip does: several packed files may follow each other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    def __call__(self, data: bytes) -> bytes:
        if not data and not self._member.eof:
            raise _damaged(self._name, "it ends too early")
        parts = []
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding
                self._member = zlib.decompressobj(_GZIP_WINDOW) if data else self._member
            try:
                parts.append(self._member.decompress(data))
            except zlib.error as error:
                raise _damaged(self._name, error) from None
            data = self._member.unused_data if data else b""
        return b"".join(parts)


@contextmanager
def opened(
    path: Path | Tape, name: str, *, newline: str | None = None, errors: str = "strict"
) -> Iterator[Lines]:
    """Yield the lines of a file; whether it is gzipped is seen from its first bytes."""
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
        raise _damaged(name, error) from None


def play(path: Path | Tape) -> None:
    """Say that the next pass is the last one, which matters to a tape alone."""
    if isinstance(path, Tape):
        path.play()


def named(path: Path | Tape) -> str:
    """Return what messages call a file that nobody named."""
    return path.name if isinstance(path, Tape) else os.fspath(path)


def declare(column: str) -> str:
    """Return what to do about text in a column of numbers.

    >>> declare("zip code")
    "if the column holds text, declare it: --text 'zip code'"
    """
    return f"if the column holds text, declare it: --text {shlex.quote(column)}"


def _damaged(name: str, error: object) -> InvalidInputError:
    return InvalidInputError(f"{name} is gzipped, and damaged or cut off ({error}); pack it again")


def is_gzipped(path: Path) -> bool:
    """Tell whether a file starts as gzipped files do."""
    with open(path, "rb") as file:
        return file.read(len(_GZIP)) == _GZIP


def lines(path: Path | Tape, name: str) -> Iterator[tuple[int, str]]:
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
