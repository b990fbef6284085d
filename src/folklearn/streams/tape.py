"""Streams that can be read only once, as they come: standard input, a pipe."""

import select
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO

from folklearn.errors import InvalidInputError

GZIP = b"\x1f\x8b"  # how packed files begin
_GZIP_WINDOW = 31  # for zlib: the largest, with a header as gzip writes it
_CHUNK = 2**16
_START = 16  # bytes that tell one format from another
_BOM = b"\xef\xbb\xbf"


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
        self._n_full = 0  # of all lines that wait, those that are not blank
        self._rest: list[bytes] = []  # pieces of a line that has only begun
        self._half = b""  # a carriage return, which may be half of a line's end
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
        """Whether the next line that is not blank, or the end, can be had without waiting."""
        while not (self._n_full or self._ended):
            if not self.can_read:
                return False
            self._fill()
        return True

    def lines(self, errors: str = "strict") -> Iterator[str]:
        """Yield the lines, each with its end as it came: from the first, or, playing, the next."""
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
            if self._playing and line.strip():
                self._n_full -= 1
            yield line.decode("utf-8", errors)

    def _fill(self) -> None:
        """Read once more, and cut what came into lines."""
        if self._unpack is None:
            packed = self.look(len(GZIP)) == GZIP
            self._unpack = _Gunzip(self.name) if packed else bytes
        self._keep_start()
        raw, self._head = self._head or self._read(), b""
        self._ended = not raw
        text = self._half + self._unpack(raw)
        # The other half of a line's end may come with the next bytes.
        self._half = b"\r" if text.endswith(b"\r") and not self._ended else b""
        for piece in text.removesuffix(self._half).splitlines(keepends=True):
            self._rest.append(piece)
            if piece.endswith((b"\n", b"\r")):
                self._add_line()
        if self._ended and self._rest:
            self._add_line()

    def _add_line(self) -> None:
        """Let the line that has begun be complete; it is joined only now, however long."""
        line = b"".join(self._rest)
        self._rest.clear()
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        self._n_full += bool(line.strip())
        self._lines.append(line)

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
            raise damaged(self._name, "it ends too early")
        parts = []
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding
                self._member = zlib.decompressobj(_GZIP_WINDOW) if data else self._member
            try:
                parts.append(self._member.decompress(data))
            except zlib.error as error:
                raise damaged(self._name, error) from None
            data = self._member.unused_data if data else b""
        return b"".join(parts)


def damaged(name: str, error: object) -> InvalidInputError:
    """Return the error of a packed file that cannot be unpacked."""
    return InvalidInputError(f"{name} is gzipped, and damaged or cut off ({error}); pack it again")
