"""Open any source of rows; first bytes, name or first line of a file give its format."""

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
from folklearn.readers.jsonl import JsonReader
from folklearn.readers.memory import FrameReader, RowsReader, is_frame
from folklearn.readers.reader import Reader
from folklearn.readers.source import ByteSource
from folklearn.readers.sparse_text import SvmlightReader, VwReader

_LINE_READERS: dict[str, Callable[[ByteSource], Reader]] = {
    "jsonlines": JsonReader,
    "svmlight": SvmlightReader,
    "vw": VwReader,
}

_MAGIC = {
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
_COMPRESSED = (".gz", ".zst", ".zstd")
# A label and a weight at most, then a bar after a space or a tag.
_VW_LINE = re.compile(r" *([^\s|,;]+ +){0,2}('[^\s|]*)? *\|")
_SVMLIGHT_LINE = re.compile(r"\s*[^\s:,;|#]+(\s+qid:\d+)?(\s+\d+:[^\s:,;]+)+\s*(#.*)?", re.ASCII)


def open_reader(
    source: Any,
    *,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> Reader:
    """Return a reader of a file, a stream, a data frame or mappings.

    Rows with named columns may have 100,000 of them; svmlight and VW text have no such limit.

    Parameters
    ----------
    source : path of a file, "-" for standard input, an object open for reading bytes, a data
        frame of pandas, polars or Arrow, an iterable of mappings, or a reader.
    format : "csv", "jsonlines", "svmlight", "vw", "parquet" or "arrow", or how the name of a file
        of it ends, such as "jsonl"; detected if None.
    delimiter : what separates the cells of CSV; detected if None.
    encoding : of text; if None, by a byte order mark, else UTF-8.
    decimal : "." or ",", the decimal mark of CSV; detected if None.

    Examples
    --------
    >>> import io
    >>> reader = open_reader(io.BytesIO(b"size;kind\\n30,5;cat\\n70;dog\\n"))
    >>> reader.names, reader.notes
    (('size', 'kind'), ['separated by semicolons', 'decimal comma'])
    >>> [table.columns["size"].tolist() for table in reader.read({"size": "number"})]
    [[30.5, 70.0]]
    """
    if isinstance(source, Reader):
        return source
    if isinstance(source, (str, os.PathLike)) or hasattr(source, "read"):
        return _open_bytes(open_source(source, encoding), format, delimiter, decimal)
    if is_frame(source):
        return FrameReader(source)
    if isinstance(source, Iterable) and not isinstance(source, (Mapping, np.ndarray)):
        return RowsReader(source)
    raise InvalidInputError(
        "rows come from a file, a data frame or a list of dictionaries, not from "
        f"{type(source).__name__}; arrays: learn_many(X, y)"
    )


def open_source(origin: Any, encoding: str | None = None) -> ByteSource:
    """Return the bytes of a path, of "-" for standard input, or of an open object."""
    if isinstance(origin, str) and origin == "-":
        return ByteSource(sys.stdin.buffer, "standard input", encoding)
    if isinstance(origin, (str, os.PathLike)):
        return ByteSource(origin, os.fspath(origin), encoding)
    name = getattr(origin, "name", None)
    return ByteSource(origin, name if isinstance(name, str) else "the stream", encoding)


def _open_bytes(
    source: ByteSource, format: str | None, delimiter: str | None, decimal: str | None
) -> Reader:
    if format is not None and format not in _BY_ENDING:
        raise FolklearnError(f"there is no format {format!r}; choose one of: {', '.join(FORMATS)}")
    magic = source.first_bytes()
    known = _BY_ENDING[format] if format else _detect_format(source, magic)
    if known in ("parquet", "arrow"):
        return ArrowReader(source, magic)
    if known == "csv":
        return CsvReader(source, delimiter=delimiter, decimal=decimal)
    return _LINE_READERS[known](source)


def _detect_format(source: ByteSource, magic: bytes) -> str:
    for first, format in _MAGIC.items():
        if magic.startswith(first):
            return format
    name = source.name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    if format_of_name := _BY_ENDING.get(name.rpartition(".")[2]):
        return format_of_name
    line = source.first_line("#")
    if line.startswith("{"):
        return "jsonlines"
    if _VW_LINE.match(line):
        return "vw"
    return "svmlight" if _SVMLIGHT_LINE.fullmatch(line) else "csv"
