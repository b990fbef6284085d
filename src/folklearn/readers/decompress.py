"""Bytes of text as they come, unpacked and recoded: every piece is handed on at once."""

import codecs
import re
import zlib
from collections.abc import Iterator

from folklearn.errors import InvalidInputError, spell_argument
from folklearn.utils import import_optional

MAGIC = 8  # bytes that tell how a file is packed,
LOOK = 1024  # and those that tell whether it is text, and in which encoding

_AT_A_TIME = 2**22  # bytes that are unpacked at a time, however well they were packed
_GZIP_WINDOW = 31  # for zlib: the largest, with a header as gzip writes it
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_READABLE = "CSV, JSON lines, svmlight, VW text, Parquet and Arrow can be read"
_NO_TEXT = {
    b"BZh": "packed with bzip2; unpack it first: bunzip2",
    b"\xfd7zXZ": "packed with xz; unpack it first: unxz",
    b"7z\xbc\xaf": "packed with 7-Zip; unpack it first",
    b"PK\x03\x04": "a zip archive or an Excel workbook; unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "a file of Microsoft Office; save the sheet as CSV",
    b"\x93NUMPY": f"an array of NumPy; load it in Python: {_READABLE}",
    **{
        bytes([0x80, protocol]): f"a pickle; load it in Python: {_READABLE}"
        for protocol in range(2, 6)
    },
    b"SQLite": f"a database of SQLite; export the table as CSV: {_READABLE}",
    b"\x89HDF": f"an HDF5 file; load it in Python: {_READABLE}",
    b"%PDF": f"a PDF document: {_READABLE}",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), f"a picture: {_READABLE}"),
}
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a]")
_MARKS = {  # UTF-32 first: its mark begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# What cannot be decoded becomes a byte that UTF-8 never has: its line is then found to be bad.
codecs.register_error("folklearn.bad_byte", lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


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


def unpacked(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Return bytes that may be packed as they were before."""
    start, pieces = beginning(pieces, MAGIC)
    for magic, problem in _NO_TEXT.items():
        if start.startswith(magic):
            raise InvalidInputError(f"{name} is {problem}")
    if start.startswith(_GZIP):
        return _gunzipped(pieces, name)
    return _from_zstd(pieces, name) if start.startswith(_ZSTD) else pieces


def encoding_of(start: bytes, name: str) -> str | None:
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


def as_utf8(pieces: Iterator[bytes], encoding: str | None) -> Iterator[bytes]:
    """Return text in another encoding as UTF-8 without a mark at the beginning."""
    if encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
        return _without_mark(pieces)
    return _recoded(pieces, encoding)


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
                text = member.decompress(data, _AT_A_TIME)
                data = member.unused_data if member.eof else member.unconsumed_tail
                has_more = bool(data) or len(text) == _AT_A_TIME
                if text:
                    yield text
        if not member.eof:
            raise zlib.error("it ends too early")
    except zlib.error as error:
        raise InvalidInputError(
            f"{name} is gzipped, and damaged or cut off ({error}); pack it again"
        ) from None


def _from_zstd(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    pyarrow = import_optional("pyarrow", f"{name} is packed with zstd, which needs")
    try:
        packed = pyarrow.PythonFile(IteratorIO(pieces, is_patient=False), mode="r")
        with pyarrow.CompressedInputStream(packed, "zstd") as file:
            while text := file.read(2**16):
                yield text
    except OSError as error:
        raise InvalidInputError(
            f"{name} is packed with zstd, and damaged or cut off ({error}); pack it again"
        ) from None


class IteratorIO:
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


def with_line_feeds(pieces: Iterator[bytes]) -> Iterator[bytes]:
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


def check_encoding(encoding: str) -> None:
    """Raise for an encoding that nobody knows, or that is not one of text."""
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except LookupError:
        raise InvalidInputError(
            f"there is no encoding {encoding!r}; frequent ones are utf-8, cp1252, latin-1, utf-16"
        ) from None
