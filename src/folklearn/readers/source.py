"""Bytes of files and pipes: unpacked, as UTF-8, and cut into chunks of whole lines."""

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.decompress import (
    LOOK,
    MAGIC,
    as_utf8,
    beginning,
    check_encoding,
    encoding_of,
    unpacked,
    with_line_feeds,
)

Path = str | os.PathLike[str]

_FIRST, _PIECE = 2**18, 2**22  # bytes read at a time: for a look, and of a file
_LONGEST = 2**24  # bytes of a line; more is no line but something else
_MOST_LOOKED_AT = 2**27  # bytes of a stream that are kept while the first row is looked for


class Chunk(NamedTuple):
    """Whole lines, the last one with its end, and the number of the first."""

    data: bytes
    line: int

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line without its end)."""
        return enumerate(self.data[:-1].split(b"\n"), self.line)

    def cut(self, n_lines: int) -> Iterator["Chunk"]:
        """Yield the lines in chunks of so many."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))[
            n_lines - 1 :: n_lines
        ]
        start, line = 0, self.line
        for end in (*(ends + 1).tolist(), len(self.data)):
            if end > start:
                yield Chunk(self.data[start:end], line)
                start, line = end, line + n_lines


class ByteSource:
    """A file, or a stream that is read once as it comes.

    Parameters
    ----------
    origin : path of a file, or something open for reading bytes.
    name : what messages call it.
    encoding : of its text; found out if None: by a mark at the beginning, else UTF-8.
    """

    def __init__(self, origin: Path | BinaryIO, name: str, encoding: str | None = None) -> None:
        self.name, self.encoding = name, encoding
        self.notes: list[str] = []
        self.path = origin if isinstance(origin, (str, os.PathLike)) else None
        self.is_live = True
        self._stream: Any = None
        self._size = self._n_read = 0
        if self.path is None:
            self._stream = origin
        else:
            try:
                state = os.stat(self.path)
            except OSError as error:
                raise _not_opened(name, error) from None
            self.is_live = not stat.S_ISREG(state.st_mode)  # a named pipe, or that of a shell
            self._size = state.st_size
        self._kept: list[bytes] = []  # of a stream: what was looked at
        self._start = b""  # of a file: the first piece, for those who only look
        self._begun: Iterator[bytes] | None = None  # raw bytes, of which the first were seen
        self._coming: Iterator[bytes] | None = None
        if encoding is not None:
            check_encoding(encoding)

    @property
    def fraction(self) -> float | None:
        """How much of a file has been read in the current pass."""
        return self._n_read / self._size if self._size and not self.is_live else None

    def first_bytes(self) -> bytes:
        """Return the first bytes as they are stored; they come again."""
        start, pieces = beginning(self.raw(looking=True), MAGIC)
        if self.is_live:
            self._begun = pieces
        return start

    def first_line(self, comment: str = "") -> str:
        """Return the first line of text that is not blank nor a comment; it comes again."""
        for chunk in self.chunks(looking=True):
            for line in chunk.data.decode(errors="replace").split("\n"):
                if line.strip() and not (comment and line.strip().startswith(comment)):
                    return line.strip("\r")
        return ""

    def raw(self, looking: bool = False) -> Iterator[bytes]:
        """Yield the bytes as they are stored, of a stream those that come.

        Who is `looking` at a file gets its beginning without opening it every time.
        """
        try:
            if self._begun is not None:
                yield from self._begun
            elif self._stream is not None:
                # What is there, and not the wait for as much as was asked for.
                read: Callable[[int], bytes] = getattr(self._stream, "read1", self._stream.read)
                while piece := read(_FIRST):
                    yield piece
            elif self.path is not None:
                self._n_read = len(self._start) if looking else 0
                if self._n_read:
                    yield self._start
                with open(self.path, "rb", buffering=0) as file:
                    if self._n_read:  # no pipe, which cannot be sought
                        file.seek(self._n_read)
                    while piece := file.read(_PIECE if self._n_read else _FIRST):
                        self._start = self._start if self._n_read else piece
                        self._n_read += len(piece)
                        yield piece
        except OSError as error:
            raise _not_opened(self.name, error) from None

    def pieces(self, looking: bool = False) -> Iterator[bytes]:
        """Yield the text from its beginning as UTF-8, lines ending with a line feed.

        Of a stream, who is `looking` leaves everything for the next one.
        """
        if not self.is_live:
            yield from self._text(looking)
            return
        self._coming = self._coming or self._text()
        yield from tuple(self._kept)
        if not looking:
            self._kept = []
        n_kept = sum(map(len, self._kept))
        for piece in self._coming:
            if looking:
                n_kept += len(piece)
                if n_kept > _MOST_LOOKED_AT:
                    raise InvalidInputError(
                        f"the first {_MOST_LOOKED_AT >> 20} MB of {self.name} have no row that can "
                        "be read; is it text?"
                    )
                self._kept.append(piece)
            yield piece

    def chunks(
        self, last_end: Callable[[bytes], int] | None = None, looking: bool = False
    ) -> Iterator[Chunk]:
        """Yield chunks of whole records; `last_end` finds where the last record in a text ends."""
        last_end = last_end or _last_line_end
        line, waiting, n_waiting = 1, list[bytes](), 0
        for piece in self.pieces(looking):
            waiting.append(piece)
            n_waiting += len(piece)
            is_long = n_waiting > _LONGEST
            if b"\n" not in piece and not is_long:
                continue
            data = b"".join(waiting)
            end = last_end(data)
            if not end and is_long:
                end = self._first_line_end(data, line)
            if end:
                yield Chunk(data[:end], line)
                line += data.count(b"\n", 0, end)
            waiting, n_waiting = [data[end:]], len(data) - end
        data = b"".join(waiting)
        if data and not data.endswith(b"\n"):
            data += b"\n"
        while data:  # where a quote is left open, one line is bad and the next begins anew
            end = last_end(data) or data.find(b"\n") + 1
            yield Chunk(data[:end], line)
            line += data.count(b"\n", 0, end)
            data = data[end:]

    def _first_line_end(self, data: bytes, line: int) -> int:
        end = data.find(b"\n") + 1
        if not end:
            raise InvalidInputError(
                f"line {line} of {self.name} is longer than {_LONGEST >> 20} MB; is it text?"
            )
        return end

    def _text(self, looking: bool = False) -> Iterator[bytes]:
        start, pieces = beginning(unpacked(self.raw(looking), self.name), LOOK)
        encoding = self.encoding or encoding_of(start, self.name)
        if encoding != self.encoding and f"encoding {encoding}" not in self.notes:
            self.notes.append(f"encoding {encoding}")
        return with_line_feeds(as_utf8(pieces, encoding))


def _last_line_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _not_opened(name: str, error: OSError) -> InvalidInputError:
    reason = (error.strerror or str(error)).lower()
    return InvalidInputError(f"{name} cannot be read: {reason}")
