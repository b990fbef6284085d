"""One way in: whatever holds rows becomes a reader.

The format of a file is told by its first bytes, its name, or its first line.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers import arrow
from folklearn.readers.arrow import ArrowReader
from folklearn.readers.csv import CsvReader
from folklearn.readers.frames import FrameReader, is_frame
from folklearn.readers.jsonl import JsonReader
from folklearn.readers.reader import Reader
from folklearn.readers.records import RowsReader
from folklearn.readers.source import ByteSource
from folklearn.readers.svmlight import SvmlightReader
from folklearn.readers.vw import VwReader

_BY_LINES: dict[str, Callable[[ByteSource], Reader]] = {
    "jsonlines": JsonReader,
    "svmlight": SvmlightReader,
    "vw": VwReader,
}

_FIRST_BYTES = {
    arrow.PARQUET: "parquet",
    arrow.FILE: "arrow",
    arrow.STREAM: "arrow",
    arrow.OLD_FEATHER: "arrow",
}
_ENDINGS = {
    "csv": ("csv", "tsv", "tab"),
    "jsonlines": ("jsonlines", "jsonl", "ndjson", "json"),
    "svmlight": ("svm", "svmlight", "libsvm"),
    "vw": ("vw",),
    "parquet": ("parquet", "pq"),
    "arrow": ("arrow", "feather", "ipc", "arrows"),
}
FORMATS = tuple(_ENDINGS)
_BY_ENDING = {ending: format for format, endings in _ENDINGS.items() for ending in endings}
_PACKED = (".gz", ".zst", ".zstd")
# A label and a weight at most, then a bar after a space or a tag.
_LIKE_VW = re.compile(r" *([^\s|,;]+ +){0,2}('[^\s|]*)? *\|")
_LIKE_SVMLIGHT = re.compile(r"\s*[^\s:,;|#]+(\s+qid:\d+)?(\s+\d+:[^\s:,;]+)+\s*(#.*)?", re.ASCII)


def open_reader(
    source: Any,
    *,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> Reader:
    """Return a reader of whatever holds rows.

    Rows with named columns may have 100,000 of them; svmlight and VW text have no such limit.

    Parameters
    ----------
    source : path of a file, "-" for standard input, something open for reading bytes, a data
        frame of pandas, polars or Arrow, an iterable of mappings, or a reader.
    format : "csv", "jsonlines", "svmlight", "vw", "parquet" or "arrow", or how the name of a file
        of it ends, such as "jsonl"; found out if None.
    delimiter : what separates the cells of CSV; found out if None.
    encoding : of text; found out if None, which is UTF-8 unless the file says otherwise.
    decimal : "." or ",", what the numbers of CSV have before their decimals; found out if None.

    Examples
    --------
    >>> import io
    >>> reader = open_reader(io.BytesIO(b"size;kind\\n30,5;cat\\n70;dog\\n"))
    >>> reader.names, reader.notes
    (('size', 'kind'), ['separated by semicolons', 'decimal comma'])
    >>> [block.columns["size"].tolist() for block in reader.read({"size": "number"})]
    [[30.5, 70.0]]
    """
    if isinstance(source, Reader):
        return source
    if isinstance(source, (str, os.PathLike)) or hasattr(source, "read"):
        return _of_bytes(open_source(source, encoding), format, delimiter, decimal)
    if is_frame(source):
        return FrameReader(source)
    if isinstance(source, Iterable) and not isinstance(source, (Mapping, np.ndarray)):
        return RowsReader(source)
    raise InvalidInputError(
        "rows come from a file, a data frame or a list of dictionaries, not from "
        f"{type(source).__name__}; arrays: learn_many(X, y)"
    )


def open_source(origin: Any, encoding: str | None = None) -> ByteSource:
    """Return the bytes of a path, of "-" for standard input, or of something open for reading."""
    if isinstance(origin, str) and origin == "-":
        return ByteSource(sys.stdin.buffer, "standard input", encoding)
    if isinstance(origin, (str, os.PathLike)):
        return ByteSource(origin, os.fspath(origin), encoding)
    name = getattr(origin, "name", None)
    return ByteSource(origin, name if isinstance(name, str) else "the stream", encoding)


def _of_bytes(
    source: ByteSource, format: str | None, delimiter: str | None, decimal: str | None
) -> Reader:
    if format is not None and format not in _BY_ENDING:
        raise FolklearnError(f"there is no format {format!r}; choose one of: {', '.join(FORMATS)}")
    magic = source.first_bytes()
    found = _BY_ENDING[format] if format else _format_of(source, magic)
    if found in ("parquet", "arrow"):
        return ArrowReader(source, magic)
    if found == "csv":
        return CsvReader(source, delimiter=delimiter, decimal=decimal)
    return _BY_LINES[found](source)


def _format_of(source: ByteSource, magic: bytes) -> str:
    """Return the format of a file; one of which nothing is known is CSV."""
    for first, format in _FIRST_BYTES.items():
        if magic.startswith(first):
            return format
    name = source.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return _BY_ENDING.get(name.rpartition(".")[2]) or _like(source.first_line("#"))


def _like(line: str) -> str:
    """Return the format of which this may be the first line."""
    if line.startswith("{"):
        return "jsonlines"
    if _LIKE_VW.match(line):
        return "vw"
    return "svmlight" if _LIKE_SVMLIGHT.fullmatch(line) else "csv"
