"""Bytes of files and pipes: decompressed, as UTF-8, cut into chunks of whole lines.

Whatever a pipe delivers is handed on at once: no step waits for a full buffer.
"""

import codecs
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cached_property
from itertools import chain
from typing import Any, BinaryIO, Generic, NamedTuple, Self, TypeVar

from folklearn.errors import InvalidInputError, spell_argument
from folklearn.kernels.text import last_record_end
from folklearn.utils import import_optional

Path = str | os.PathLike[str]
T = TypeVar("T")

_FIRST_READ_BYTES, _READ_BYTES = 2**18, 2**22  # the first read of a file, and the later ones
_DECOMPRESSED_BYTES = 2**16  # at a time
_MAX_LINE_BYTES = 2**24
_MAX_PEEKED_BYTES = 2**27  # of a stream, kept while the first row is looked for
_MAGIC_BYTES = 8  # tell the compression
_ENCODING_BYTES = 1024  # tell the encoding, and whether it is text
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_READABLE = "CSV, JSON lines, svmlight, VW text, Parquet and Arrow can be read"
_PACKED = b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"PK\x03\x04"  # bzip2, xz, 7-Zip; zip and Excel
_BINARY = re.compile(rb"^\x89|[\0-\x08\x0e-\x1a]")  # PNG and HDF5, or a control character

# What cannot be decoded becomes a byte that UTF-8 never has, which marks its line as bad.
codecs.register_error("folklearn.bad_byte", lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


class Chunk(NamedTuple):
    """Whole lines, the last one with its end, and the number of the first."""

    data: bytes
    line: int

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line without its end)."""
        return enumerate(self.data[:-1].split(b"\n"), self.line)


class Peekable(Generic[T]):
    """An iterator that is read once; what was read by `looking` is yielded again by the next."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items, self._seen = iter(items), list[T]()

    def read(self, looking: bool = False) -> Iterator[T]:
        seen = tuple(self._seen)
        if not looking:
            self._seen = []
        yield from seen
        for item in self._items:
            if looking:
                self._seen.append(item)
            yield item


class IteratorIO(io.RawIOBase):
    """Pieces of bytes as a file; a read returns at most one piece."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or memoryview(next(self._pieces, b""))
        n = min(len(data), len(buffer))
        buffer[:n], self._rest = data[:n], data[n:]
        return n


class ByteSource:
    """A file, or a stream (`is_live`) that is read once as it comes."""

    def __init__(self, origin: Path | BinaryIO, name: str, encoding: str | None = None) -> None:
        self.name, self.encoding = name, encoding
        self.notes: list[str] = []
        self.path = origin if isinstance(origin, (str, os.PathLike)) else None
        try:  # what is no regular file is a named pipe, or that of a shell
            self.is_live = self.path is None or not stat.S_ISREG(os.stat(self.path).st_mode)
        except OSError as error:
            raise self._read_error(error) from None
        self._origin: Any = origin
        self._first_piece = b""  # of a file, so that it is not opened for every look
        # The bytes as they are stored; of a stream those that come.
        self.raw = Peekable(self._read_pieces()).read if self.is_live else self._read_pieces
        self._codec: str | None = ""  # None for UTF-8, "" before the first piece
        try:
            "".encode(encoding or "utf-8")
            codecs.getincrementaldecoder(encoding or "utf-8")
        except LookupError:
            raise InvalidInputError(
                f"there is no encoding {encoding!r}; frequent ones are utf-8, cp1252, latin-1, "
                "utf-16"
            ) from None

    def buffer(self) -> Self:
        """Read a stream into memory, so that it can be read again; a file stays where it is."""
        if self.is_live:
            pieces = [*self.raw()]
            self.is_live, self.path = False, None
            self.raw = lambda looking=False: iter(pieces)
        return self

    @cached_property
    def first_bytes(self) -> bytes:
        return _peek(self.raw(looking=True), _MAGIC_BYTES)[0]

    def first_line(self, comment: str = "") -> str:
        """Return the first line that is neither blank nor a comment, without consuming it."""
        for chunk in self.chunks(looking=True):
            for line in chunk.data.decode(errors="replace").split("\n"):
                if line.strip() and not (comment and line.strip().startswith(comment)):
                    return line.strip("\r")
        return ""

    def _read_pieces(self, looking: bool = False) -> Iterator[bytes]:
        n_read = len(self._first_piece) if looking else 0
        if n_read:
            yield self._first_piece
        try:
            with (
                nullcontext(self._origin) if self.path is None else open(self.path, "rb", 0) as file
            ):
                if n_read:  # no pipe, which cannot be sought
                    file.seek(n_read)
                # `read1` returns what is there instead of waiting for as much as was asked for.
                read: Callable[[int], bytes] = getattr(file, "read1", file.read)
                while piece := read(_READ_BYTES if n_read else _FIRST_READ_BYTES):
                    if not self.is_live:
                        self._first_piece = self._first_piece if n_read else piece
                        n_read += len(piece)
                    yield piece
        except OSError as error:
            raise self._read_error(error) from None

    def _read_error(self, error: OSError) -> InvalidInputError:
        reason = (error.strerror or str(error)).lower()
        return InvalidInputError(f"{self.name} cannot be read: {reason}")

    def chunks(self, delimiter: str = "", looking: bool = False) -> Iterator[Chunk]:
        """Yield chunks of whole lines, or, with the delimiter of CSV, of whole records.

        What was read by `looking` at a stream is yielded again by the next call.
        """
        line, n_read, waiting, mark = 1, 0, bytearray(), codecs.BOM_UTF8
        for piece in self._decode(looking):
            n_read += len(piece)
            if looking and self.is_live and n_read > _MAX_PEEKED_BYTES:
                raise InvalidInputError(f"{self.name} begins without a row; is it text?")
            waiting += piece
            is_long = len(waiting) > _MAX_LINE_BYTES
            if b"\n" not in piece and not is_long:
                continue
            data, mark = bytes(waiting).removeprefix(mark), b""
            end = last_record_end(data, delimiter)
            if not end and is_long:
                end = data.find(b"\n") + 1
                if not end:
                    raise InvalidInputError(f"line {line} of {self.name} is too long; is it text?")
            if end:
                yield Chunk(data[:end], line)
                line += data.count(b"\n", 0, end)
            waiting = bytearray(data[end:])
        data = bytes(waiting).removeprefix(mark)
        if data and not data.endswith(b"\n"):
            data += b"\n"
        while data:  # where a quote is left open, one line is bad and the next begins anew
            end = last_record_end(data, delimiter) or data.find(b"\n") + 1
            yield Chunk(data[:end], line)
            line += data.count(b"\n", 0, end)
            data = data[end:]

    def _decode(self, looking: bool = False) -> Iterator[bytes]:
        pieces = self.raw(looking)
        if self.first_bytes.startswith((_GZIP, _ZSTD)):
            pieces = self._decompress(_peek(pieces, _MAGIC_BYTES)[1])  # gzip reads 2 bytes first
        if self._codec == "":
            start, pieces = _peek(pieces, _ENCODING_BYTES)
            self._codec = self._detect_codec(start)
        if self._codec is not None:
            texts = codecs.iterdecode(pieces, self._codec, "folklearn.bad_byte")
            pieces = (text.encode("utf-8", "surrogateescape") for text in texts)
        return pieces

    def _detect_codec(self, start: bytes) -> str | None:
        """Return the codec of text that begins so, None for UTF-8; raise if it is no text."""
        if self.first_bytes.startswith(_PACKED):
            raise InvalidInputError(
                f"{self.name} is an archive or a workbook: unpack it, or save the sheet as CSV"
            )
        if self.encoding is not None:
            name = codecs.lookup(self.encoding).name
            return None if name in ("utf-8", "utf-8-sig", "ascii") else self.encoding
        has_mark = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if has_mark or (start[1:4:2] == b"\0\0" and 0 not in start[0:4:2]):
            codec = "utf-16" if has_mark else "utf-16-le"
            self.notes.append(f"encoding {codec}")
            return codec
        if start[8:10] == b'{"' and b"\0" in start[:8]:
            raise InvalidInputError(f"{self.name} is a saved model, or the like, and not rows")
        if _BINARY.search(start.partition(b"\n")[0]):
            argument = spell_argument("encoding={!r}", "utf-16")
            raise InvalidInputError(
                f"{self.name} is binary, or text in another encoding, such as {argument}: "
                f"{_READABLE}"
            )
        return None

    def _decompress(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what is packed: of a file in large pieces, also what lies before damage."""
        packed, how = IteratorIO(pieces), "gzipped"
        read: Callable[[int], bytes] = gzip.GzipFile(fileobj=packed).read1
        if self.first_bytes.startswith(_ZSTD):
            pyarrow = import_optional("pyarrow", f"{self.name} is packed with zstd, which needs")
            stream, how = pyarrow.PythonFile(packed, mode="r"), "packed with zstd"
            read = pyarrow.CompressedInputStream(stream, "zstd").read
        text, error = bytearray(), None
        try:
            while piece := read(_DECOMPRESSED_BYTES):
                text += piece
                if self.is_live or len(text) >= _READ_BYTES:
                    yield bytes(text)
                    text.clear()
        except (OSError, EOFError, zlib.error) as caught:
            error = caught
        if text:
            yield bytes(text)
        if error is not None:
            raise InvalidInputError(f"{self.name} is {how}, and damaged or cut off: {error}")


def _peek(pieces: Iterator[bytes], n: int) -> tuple[bytes, Iterator[bytes]]:
    """Return the first n bytes, fewer if a line or everything ends before, and all pieces."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= n or b"\n" in start:
            break
    return start[:n], chain([start] if start else [], pieces)
