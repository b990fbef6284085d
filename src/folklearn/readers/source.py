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
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from folklearn.errors import InvalidInputError, spell_argument
from folklearn.utils import import_optional

Path = str | os.PathLike[str]

_FIRST_READ_BYTES, _READ_BYTES = 2**18, 2**22  # the first read of a file, and the later ones
_DECOMPRESSED_BYTES = 2**16  # at a time
_MAX_LINE_BYTES = 2**24
_MAX_PEEKED_BYTES = 2**27  # of a stream, kept while the first row is looked for
_MAGIC_BYTES = 8  # tell the compression
_ENCODING_BYTES = 1024  # tell the encoding, and whether it is text
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_READABLE = "CSV, JSON lines, svmlight, VW text, Parquet and Arrow can be read"
_FOREIGN_FORMATS = {
    b"BZh": "packed with bzip2; unpack it first: bunzip2",
    b"\xfd7zXZ": "packed with xz; unpack it first: unxz",
    b"7z\xbc\xaf": "packed with 7-Zip; unpack it first",
    b"PK\x03\x04": "a zip archive or an Excel workbook; unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "a file of Microsoft Office; save the sheet as CSV",
    b"\x93NUMPY": f"an array of NumPy; load it in Python: {_READABLE}",
    b"SQLite": f"a database of SQLite; export the table as CSV: {_READABLE}",
    b"\x89HDF": f"an HDF5 file; load it in Python: {_READABLE}",
    b"%PDF": f"a PDF document: {_READABLE}",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), f"a picture: {_READABLE}"),
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        f"a pickle; load it in Python: {_READABLE}",
    ),
}
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a]")
_FIRST_LINE_END = re.compile(rb"\r.?|\n", re.DOTALL)
_MARKS = {  # UTF-32 first: its mark begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# What cannot be decoded becomes a byte that UTF-8 never has, which marks its line as bad.
codecs.register_error("folklearn.bad_byte", lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


class Chunk(NamedTuple):
    """Whole lines, the last one with its end, and the number of the first."""

    data: bytes
    line: int

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line without its end)."""
        return enumerate(self.data[:-1].split(b"\n"), self.line)

    def cut(self, n_lines: int) -> Iterator["Chunk"]:
        """Yield chunks of n_lines lines; the last may be shorter."""
        newlines = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        ends = newlines[n_lines - 1 :: n_lines] + 1
        start, line = 0, self.line
        for end in (*ends.tolist(), len(self.data)):
            if end > start:
                yield Chunk(self.data[start:end], line)
                start, line = end, line + n_lines


class IteratorIO(io.RawIOBase):
    """Pieces of bytes as a file; a read returns at most one piece."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what is there; 0 at the end."""
        data = self._rest or next(self._pieces, b"")
        n = min(len(data), len(buffer))
        buffer[:n], self._rest = data[:n], data[n:]
        return n


class ByteSource:
    """A file, or a stream that is read once as it comes.

    Parameters
    ----------
    origin : path of a file, or an object open for reading bytes.
    name : what messages call it.
    encoding : of its text; if None, by a byte order mark at the beginning, else UTF-8.
    """

    def __init__(self, origin: Path | BinaryIO, name: str, encoding: str | None = None) -> None:
        self.name, self.encoding = name, encoding
        self.notes: list[str] = []
        self.path = origin if isinstance(origin, (str, os.PathLike)) else None
        self.is_live = True
        self._stream: Any = origin
        self._size = self._n_read = 0
        if self.path is not None:
            try:
                state = os.stat(self.path)
            except OSError as error:
                raise self._read_error(error) from None
            self.is_live = not stat.S_ISREG(state.st_mode)  # a named pipe, or that of a shell
            self._size = state.st_size
        self._peeked: list[bytes] = []  # text of a stream, to be read again
        self._first_piece = b""  # of a file, so that it is not opened for every look
        self._raw: Iterator[bytes] | None = None  # of a stream whose first bytes were seen
        self._text: Iterator[bytes] | None = None  # of a stream that was begun
        if encoding is not None:
            _check_encoding(encoding)

    @property
    def fraction(self) -> float | None:
        """Share of a file that has been read in the current pass."""
        return self._n_read / self._size if self._size and not self.is_live else None

    def first_bytes(self) -> bytes:
        """Return the first bytes as they are stored, without consuming them."""
        start, pieces = _peek(self.raw(looking=True), _MAGIC_BYTES)
        if self.is_live:
            self._raw = pieces
        return start

    def first_line(self, comment: str = "") -> str:
        """Return the first line that is neither blank nor a comment, without consuming it."""
        for chunk in self.chunks(looking=True):
            for line in chunk.data.decode(errors="replace").split("\n"):
                if line.strip() and not (comment and line.strip().startswith(comment)):
                    return line.strip("\r")
        return ""

    def raw(self, looking: bool = False) -> Iterator[bytes]:
        """Yield the bytes as they are stored; of a stream those that come.

        A file is not opened again for its first piece if it is only `looking`.
        """
        try:
            if self._raw is not None:
                yield from self._raw
            elif self.path is None:
                # `read1` returns what is there instead of waiting for as much as was asked for.
                read: Callable[[int], bytes] = getattr(self._stream, "read1", self._stream.read)
                while piece := read(_FIRST_READ_BYTES):
                    yield piece
            else:
                self._n_read = len(self._first_piece) if looking else 0
                if self._n_read:
                    yield self._first_piece
                with open(self.path, "rb", buffering=0) as file:
                    if self._n_read:  # no pipe, which cannot be sought
                        file.seek(self._n_read)
                    while piece := file.read(_READ_BYTES if self._n_read else _FIRST_READ_BYTES):
                        self._first_piece = self._first_piece if self._n_read else piece
                        self._n_read += len(piece)
                        yield piece
        except OSError as error:
            raise self._read_error(error) from None

    def chunks(
        self, last_end: Callable[[bytes], int] | None = None, looking: bool = False
    ) -> Iterator[Chunk]:
        """Yield chunks of whole records; `last_end` returns where the last record of a text ends.

        What was read by `looking` at a stream is yielded again by the next call.
        """
        last_end = last_end or _last_line_end
        line, waiting, n_waiting = 1, list[bytes](), 0
        pieces = self._stream_text(looking) if self.is_live else self._decode(looking)
        for piece in pieces:
            waiting.append(piece)
            n_waiting += len(piece)
            is_long = n_waiting > _MAX_LINE_BYTES
            if b"\n" not in piece and not is_long:
                continue
            data = b"".join(waiting)
            end = last_end(data)
            if not end and is_long:
                end = data.find(b"\n") + 1
                if not end:
                    raise InvalidInputError(
                        f"line {line} of {self.name} is longer than {_MAX_LINE_BYTES >> 20} MB; "
                        "is it text?"
                    )
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

    def _stream_text(self, looking: bool) -> Iterator[bytes]:
        """Yield the text of a stream; by `looking` it is kept for the next call."""
        self._text = self._text or self._decode()
        peeked = tuple(self._peeked)
        if not looking:
            self._peeked = []
        yield from peeked
        n_bytes = sum(map(len, peeked))
        for piece in self._text:
            if looking:
                n_bytes += len(piece)
                if n_bytes > _MAX_PEEKED_BYTES:
                    raise InvalidInputError(
                        f"the first {_MAX_PEEKED_BYTES >> 20} MB of {self.name} have no row that "
                        "can be read; is it text?"
                    )
                self._peeked.append(piece)
            yield piece

    def _decode(self, looking: bool = False) -> Iterator[bytes]:
        """Yield the text as UTF-8 without a mark, lines ending with a line feed."""
        start, pieces = _peek(self._decompress(self.raw(looking)), _ENCODING_BYTES)
        encoding = self.encoding or _detect_encoding(start, self.name)
        if encoding != self.encoding and f"encoding {encoding}" not in self.notes:
            self.notes.append(f"encoding {encoding}")
        if encoding is not None and codecs.lookup(encoding).name not in (
            "utf-8",
            "utf-8-sig",
            "ascii",
        ):
            pieces = _to_utf8(pieces, encoding)
        elif start.startswith(codecs.BOM_UTF8):
            pieces = chain([next(pieces).removeprefix(codecs.BOM_UTF8)], pieces)
        is_return: bool | None = None  # whether a carriage return ends lines: the first end tells
        held = b""
        for piece in pieces:
            text, held = held + piece, b""
            if is_return is None:
                end = _FIRST_LINE_END.search(text)
                if end and end[0] == b"\r":  # it may be half of an end of a line
                    text, held = text[:-1], b"\r"
                elif end:
                    is_return = end[0] not in (b"\n", b"\r\n")
            if text:
                yield text.replace(b"\r", b"\n") if is_return else text
        if held:
            yield b"\n"

    def _decompress(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        start, pieces = _peek(pieces, _MAGIC_BYTES)
        for magic, problem in _FOREIGN_FORMATS.items():
            if start.startswith(magic):
                raise InvalidInputError(f"{self.name} is {problem}")
        if not start.startswith((_GZIP, _ZSTD)):
            return pieces
        if start.startswith(_GZIP):
            return self._read_all(gzip.GzipFile(fileobj=IteratorIO(pieces)).read1, "gzipped")
        pyarrow = import_optional("pyarrow", f"{self.name} is packed with zstd, which needs")
        packed = pyarrow.PythonFile(IteratorIO(pieces), mode="r")
        return self._read_all(
            pyarrow.CompressedInputStream(packed, "zstd").read, "packed with zstd"
        )

    def _read_all(self, read: Callable[[int], bytes], packed: str) -> Iterator[bytes]:
        """Yield what a decompressor returns: of a file in large pieces, also before damage."""
        waiting, n_waiting = list[bytes](), 0
        error: Exception | None = None
        try:
            while text := read(_DECOMPRESSED_BYTES):
                waiting.append(text)
                n_waiting += len(text)
                if self.is_live or n_waiting >= _READ_BYTES:
                    yield b"".join(waiting)
                    waiting, n_waiting = [], 0
        except (OSError, EOFError, zlib.error) as caught:
            error = caught
        if waiting:
            yield b"".join(waiting)
        if error is not None:
            raise InvalidInputError(
                f"{self.name} is {packed}, and damaged or cut off ({error}); pack it again"
            )

    def _read_error(self, error: OSError) -> InvalidInputError:
        reason = (error.strerror or str(error)).lower()
        return InvalidInputError(f"{self.name} cannot be read: {reason}")


def _peek(pieces: Iterator[bytes], n: int) -> tuple[bytes, Iterator[bytes]]:
    """Return the first n bytes, fewer if a line or everything ends before, and all pieces."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= n or b"\n" in start:
            break
    return start[:n], chain([start] if start else [], pieces)


def _detect_encoding(start: bytes, name: str) -> str | None:
    """Return the encoding that the first bytes tell, None for UTF-8; raise if they are no text."""
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    if start[1:4:2] == b"\0\0" and 0 not in start[0:4:2]:
        return "utf-16-le"
    if start[8:10] == b'{"' and b"\0" in start[:8]:
        raise InvalidInputError(f"{name} is a saved model, or the like, and not rows")
    if _CONTROL.search(start.partition(b"\n")[0]):
        argument = spell_argument("encoding={!r}", "utf-16")
        raise InvalidInputError(
            f"{name} is binary, or text in another encoding, such as {argument}: {_READABLE}"
        )
    return None


def _to_utf8(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("folklearn.bad_byte")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def _last_line_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except LookupError:
        raise InvalidInputError(
            f"there is no encoding {encoding!r}; frequent ones are utf-8, cp1252, latin-1, utf-16"
        ) from None
