"""Records of CSV in a text: where they end, and whether pyarrow reads them as we do."""

import codecs
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from folklearn.kernels.csv_text import ends_of
from folklearn.readers.source import Chunk
from folklearn.readers.text import is_text

_BLANK_LINE = re.compile(rb"(?:^|\n)[ \t]+\r?\n")  # but not empty


def last_record_end(data: bytes, delimiter: str) -> int:
    """Return where the last record of a text ends that is whole, 0 if none is."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    ends, _ = ends_of(data, delimiter)
    return int(ends[-1]) if len(ends) else 0


def cut(chunk: Chunk, delimiter: str, size: int) -> Iterator[Chunk]:
    """Yield a chunk in parts of whole records, of about as many bytes as `size`."""
    rest, line = chunk.data, chunk.line
    while rest:
        end = last_record_end(rest[:size], delimiter) or len(rest)
        yield Chunk(rest[:end], line)
        line += rest.count(b"\n", 0, end)
        rest = rest[end:]


def records(chunk: Chunk, delimiter: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line where it starts, record with its end); the last may have an open quote."""
    line, start = chunk.line, 0
    for end in (*ends_of(chunk.data, delimiter)[0].tolist(), len(chunk.data)):
        record = chunk.data[start:end]
        if record:
            yield line, record
        start = end
        line += record.count(b"\n")


def is_blank(record: bytes, delimiter: str) -> bool:
    """Tell whether a record is a blank line."""
    return not record.strip(b" \t\r\n".replace(delimiter.encode(), b""))


def is_regular(data: bytes, delimiter: str, is_narrow: bool) -> bool:
    """Tell whether pyarrow reads a text as we do."""
    # To find is ten times faster than to count.
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return False
    if not is_text(data):
        return False
    if data.startswith(codecs.BOM_UTF8):  # which pyarrow would take for no text
        return False
    if is_narrow and _BLANK_LINE.search(data):
        return False
    return b'"' not in data or bool(ends_of(data, delimiter)[1])


def lines_of(chunk: Chunk, n_rows: int, delimiter: str) -> NDArray[np.int64] | None:
    """Return the line of every row; None if there are other records than rows."""
    data = chunk.data
    if data.count(b"\n") == n_rows:
        return np.arange(chunk.line, chunk.line + n_rows)
    lines = [line for line, record in records(chunk, delimiter) if not is_blank(record, delimiter)]
    return np.array(lines, np.int64) if len(lines) == n_rows else None
