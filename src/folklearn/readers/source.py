"""Bytes of files and pipes: unpacked, as UTF-8, and cut into chunks of whole lines."""

import codecs
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from folklearn.errors import FolklearnError, InvalidInputError

Path = str | os.PathLike[str]

_FIRST, _PIECE = 2**18, 2**22  # bytes read at a time: for a look, and of a file
_LONGEST = 2**24  # bytes of a line; more is no line but something else
_GZIP_WINDOW = 31  # for zlib: the largest, with a header as gzip writes it
_MAGIC = 8  # bytes that tell how a file is packed or encoded
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PACKED = {
    b"BZh": "packed with bzip2; unpack it first: bunzip2",
    b"\xfd7zXZ": "packed with xz; unpack it first: unxz",
    b"PK\x03\x04": "a zip archive or an Excel workbook; unpack it, or save the sheet as CSV",
}
_MARKS = {  # UTF-32 first: its mark begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# What cannot be decoded becomes a byte that UTF-8 never has: its line is then found to be bad.
codecs.register_error("folklearn.bad_byte", lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


class Chunk(NamedTuple):
    """Whole lines, the last one with its end, and the number of the first."""

    data: bytes
    line: int

    def row_text(self, line: int) -> str:
        """Return the text of a line by its number in the file."""
        found = self.data.split(b"\n", line - self.line + 1)[line - self.line]
        return found.decode(errors="replace").rstrip("\r")


class Source:
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
        self.path: Path | None = None
        self._size = self._n_read = 0
        self._stream: Any = origin
        if isinstance(origin, (str, os.PathLike)):
            self._stream = None
            try:
                state = os.stat(origin)
                if not stat.S_ISREG(state.st_mode):  # a named pipe, or that of a shell
                    self._stream = open(origin, "rb")  # noqa: SIM115
            except OSError as error:
                raise _not_opened(name, error) from None
            self.path, self._size = origin, state.st_size
        self.is_live = self._stream is not None
        self._kept: list[bytes] = []  # of a stream: what was looked at
        self._begun: Iterator[bytes] | None = None  # raw bytes, of which the first were seen
        self._coming: Iterator[bytes] | None = None
        if encoding is not None:
            _refuse_unknown(encoding)

    @property
    def fraction(self) -> float | None:
        """How much of a file has been read in the current pass."""
        return self._n_read / self._size if self._size and not self.is_live else None

    def first_bytes(self) -> bytes:
        """Return the first bytes as they are stored; they come again."""
        start, pieces = beginning(self.raw(), _MAGIC)
        if self._stream is not None:
            self._begun = pieces
        return start

    def first_line(self, comment: str = "") -> str:
        """Return the first line of text that is not blank nor a comment; it comes again."""
        for chunk in self.chunks(looking=True):
            for line in chunk.data.decode(errors="replace").split("\n"):
                if line.strip() and not (comment and line.strip().startswith(comment)):
                    return line.strip("\r")
        return ""

    def raw(self) -> Iterator[bytes]:
        """Yield the bytes as they are stored, of a stream those that come."""
        if self._begun is not None:
            yield from self._begun
            return
        if self._stream is not None:
            # What is there, and not the wait for as much as was asked for.
            read: Callable[[int], bytes] = getattr(self._stream, "read1", self._stream.read)
            while piece := read(_FIRST):
                yield piece
            return
        assert self.path is not None
        self._n_read = 0
        try:
            with open(self.path, "rb", buffering=0) as file:
                while piece := file.read(_PIECE if self._n_read else _FIRST):
                    self._n_read += len(piece)
                    yield piece
        except OSError as error:
            raise _not_opened(self.name, error) from None

    def pieces(self, looking: bool = False) -> Iterator[bytes]:
        """Yield the text from its beginning as UTF-8, lines ending with a line feed.

        Of a stream, who is `looking` leaves everything for the next one.
        """
        if self._stream is None:
            yield from self._text()
            return
        self._coming = self._coming or self._text()
        yield from tuple(self._kept)
        if not looking:
            self._kept = []
        for piece in self._coming:
            if looking:
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

    def _text(self) -> Iterator[bytes]:
        start, raw = beginning(self.raw(), _MAGIC)
        for magic, problem in _PACKED.items():
            if start.startswith(magic):
                raise InvalidInputError(f"{self.name} is {problem}")
        if start.startswith(_GZIP):
            raw = _gunzipped(raw, self.name)
        elif start.startswith(_ZSTD):
            raw = _from_zstd(raw, self.name)
        return _with_line_feeds(self._decoded(raw))

    def _decoded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        start, pieces = beginning(pieces, _MAGIC)
        encoding = self.encoding or next(
            (found for mark, found in _MARKS.items() if start.startswith(mark)), None
        )
        if encoding is None and start[1:4:2] == b"\0\0" and 0 not in start[0:4:2]:
            encoding = "utf-16-le"
        if encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
            return _without_mark(pieces)
        if self.encoding is None and f"encoding {encoding}" not in self.notes:
            self.notes.append(f"encoding {encoding}")
        return _recoded(pieces, encoding)


def beginning(pieces: Iterator[bytes], n: int) -> tuple[bytes, Iterator[bytes]]:
    """Return the first n bytes, fewer if a line or everything ends before, and all pieces."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= n or b"\n" in start:
            break
    return start[:n], _chained(start, pieces)


def _chained(start: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    if start:
        yield start
    yield from pieces


def _last_line_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _gunzipped(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Unpack as gzip does: several packed files may follow each other."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for data in pieces:
            has_more = True
            while has_more:
                if member.eof:
                    data = data.lstrip(b"\0")  # padding
                    if not data:
                        break
                    member = zlib.decompressobj(_GZIP_WINDOW)
                text = member.decompress(data, _PIECE)
                data = member.unused_data if member.eof else member.unconsumed_tail
                has_more = bool(data) or len(text) == _PIECE
                if text:
                    yield text
        if not member.eof:
            raise zlib.error("it ends too early")
    except zlib.error as error:
        raise InvalidInputError(
            f"{name} is gzipped, and damaged or cut off ({error}); pack it again"
        ) from None


def _from_zstd(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    pyarrow = needed("pyarrow", f"{name} is packed with zstd, which needs")
    try:
        packed = pyarrow.PythonFile(File(pieces, is_patient=False), mode="r")
        with pyarrow.CompressedInputStream(packed, "zstd") as file:
            while text := file.read(_FIRST):
                yield text
    except OSError as error:
        raise InvalidInputError(
            f"{name} is packed with zstd, and damaged or cut off ({error}); pack it again"
        ) from None


class File:
    """Pieces as a file, for those who need one.

    Parameters
    ----------
    pieces : the bytes.
    is_patient : whether to wait for as many bytes as are asked for, and not only for some.
    """

    closed = False

    def __init__(self, pieces: Iterator[bytes], *, is_patient: bool) -> None:
        self._pieces, self._is_patient, self._rest = pieces, is_patient, b""

    def read(self, n: int = -1) -> bytes:
        """Return the next n bytes, all of them if negative; nothing at the end."""
        parts = [self._rest or next(self._pieces, b"")]
        n_found = len(parts[0])
        while parts[-1] and (n < 0 or (self._is_patient and n_found < n)):
            parts.append(next(self._pieces, b""))
            n_found += len(parts[-1])
        data = b"".join(parts)
        if n < 0:
            n = len(data)
        self._rest = data[n:]
        return data[:n]

    def close(self) -> None:
        """Do nothing."""


def _without_mark(pieces: Iterator[bytes]) -> Iterator[bytes]:
    start, pieces = beginning(pieces, len(codecs.BOM_UTF8))
    for piece in pieces:
        yield piece.removeprefix(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else piece
        start = b""


def _recoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("folklearn.bad_byte")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def _with_line_feeds(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Let every line end with a line feed, as it does unless only carriage returns end lines."""
    returns: bool | None = None  # whether those end lines; the first end of a line tells
    held = b""
    for piece in pieces:
        text, held = held + piece, b""
        if returns is None:
            end = re.search(rb"\r.?|\n", text, re.DOTALL)
            if end and end[0] == b"\r":  # it may be half of an end of a line
                text, held = text[:-1], b"\r"
            elif end:
                returns = end[0] not in (b"\n", b"\r\n")
        if text:
            yield text.replace(b"\r", b"\n") if returns else text
    if held:
        yield b"\n"


def _refuse_unknown(encoding: str) -> None:
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except LookupError:
        raise InvalidInputError(
            f"there is no encoding {encoding!r}; frequent ones are utf-8, cp1252, latin-1, utf-16"
        ) from None


def _not_opened(name: str, error: OSError) -> InvalidInputError:
    reason = (error.strerror or str(error)).lower()
    return InvalidInputError(f"{name} cannot be read: {reason}")


def needed(package: str, sentence: str, extra: str = "cli") -> Any:
    """Return an optional package, or raise with the sentence and how to get it."""
    try:
        return __import__(package, fromlist=["_"])
    except ImportError:
        raise FolklearnError(
            f"{sentence} {package.partition('.')[0]}, which comes with the extra: "
            f"pip install 'folklearn[{extra}]'"
        ) from None
