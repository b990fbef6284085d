"""Open any source of rows; first bytes, name or first line of a file give its format."""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from folklearn import validation
from folklearn.errors import FolklearnError, InvalidInputError, warn_of_data
from folklearn.readers.columnar import MAGIC, PARQUET, ArrowReader, FrameReader, is_frame
from folklearn.readers.csv import CsvReader
from folklearn.readers.reader import Reader
from folklearn.readers.records import JsonReader, RowsReader
from folklearn.readers.source import ByteSource
from folklearn.readers.sparse_text import SvmlightReader, VwReader
from folklearn.readers.table import MissingValues, Table, kind_of_column, table_from_records
from folklearn.sparse import is_sparse

# Of every format its reader, and how names of files of it end.
_READERS: dict[str, tuple[Callable[..., Reader], tuple[str, ...]]] = {
    "csv": (CsvReader, ("csv", "tsv", "tab")),
    "jsonlines": (JsonReader, ("jsonlines", "jsonl", "ndjson", "json")),
    "svmlight": (SvmlightReader, ("svm", "svmlight", "libsvm")),
    "vw": (VwReader, ("vw",)),
    "parquet": (ArrowReader, ("parquet", "pq")),
    "arrow": (ArrowReader, ("arrow", "feather", "ipc", "arrows")),
}
FORMATS = tuple(_READERS)
_BY_ENDING = {ending: format for format, (_, endings) in _READERS.items() for ending in endings}
_MAX_COLUMNS_NAMED = 6  # of those that are left out
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
    missing: Any = None,
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
    missing : texts and numbers that stand for a missing value, besides the usual ones.

    Examples
    --------
    >>> import io
    >>> reader = open_reader(io.BytesIO(b"size;kind\\n30,5;cat\\n70;dog\\n"))
    >>> reader.names, reader.notes
    (('size', 'kind'), ['separated by semicolons', 'decimal comma'])
    >>> [table.columns["size"].tolist() for table in reader.read({"size": "number"})]
    [[30.5, 70.0]]
    """
    reader = _make_reader(source, format, encoding, delimiter=delimiter, decimal=decimal)
    if missing is not None:
        reader.missing = MissingValues(missing)
    return reader


def _make_reader(source: Any, format: str | None, encoding: str | None, **of_csv: Any) -> Reader:
    if isinstance(source, Reader):
        return source
    if isinstance(source, (str, os.PathLike, ByteSource)) or hasattr(source, "read"):
        if format is not None and format not in _BY_ENDING:
            raise FolklearnError(f"there is no format {format!r}, only: {', '.join(FORMATS)}")
        stored = source if isinstance(source, ByteSource) else open_source(source, encoding)
        format = _BY_ENDING[format] if format else _detect_format(stored)
        return _READERS[format][0](stored, **(of_csv if format == "csv" else {}))
    if is_frame(source):
        return FrameReader(source)
    is_lazy = hasattr(source, "to_frame") or hasattr(source, "collect")  # a Series, a LazyFrame
    if is_lazy or not isinstance(source, Iterable) or isinstance(source, (Mapping, np.ndarray)):
        raise InvalidInputError(
            "rows come from a file, a data frame or a list of dictionaries, not from "
            f"{type(source).__name__}; one row is [row], a series series.to_frame(), a lazy frame "
            "frame.collect(), and arrays are for learn_many(X, y)"
        )
    return RowsReader(source)


def open_source(origin: Any, encoding: str | None = None) -> ByteSource:
    """Return the bytes of a path, of "-" for standard input, or of an open object."""
    if isinstance(origin, str) and origin == "-":
        return ByteSource(sys.stdin.buffer, "standard input", encoding)
    if isinstance(origin, (str, os.PathLike)):
        return ByteSource(origin, os.fspath(origin), encoding)
    name = getattr(origin, "name", None)
    return ByteSource(origin, name if isinstance(name, str) else "the stream", encoding)


def _detect_format(source: ByteSource) -> str:
    if source.first_bytes.startswith(MAGIC):
        return "parquet" if source.first_bytes.startswith(PARQUET) else "arrow"
    name = re.sub(r"\.(gz|zst|zstd)$", "", source.name.lower())
    if format_of_name := _BY_ENDING.get(name.rpartition(".")[2]):
        return format_of_name
    line = source.first_line("#")
    if line.startswith("{"):
        return "jsonlines"
    if _VW_LINE.match(line):
        return "vw"
    return "svmlight" if _SVMLIGHT_LINE.fullmatch(line) else "csv"


def as_table(rows: Any, ignored: Collection[str] = ()) -> Table:
    """Return rows that are at hand as one table: a frame, dictionaries, a matrix, a table.

    Warns of columns that cannot be read, but for those that are `ignored`.
    """
    if isinstance(rows, Table):
        return rows
    if is_sparse(rows) or isinstance(rows, np.ndarray):
        X = validation.table(rows)
        return Table({}, np.arange(1, len(X) + 1), X)
    if isinstance(rows, Sequence):
        return table_from_records(rows, range(1, len(rows) + 1))
    reader = open_reader(rows)
    warn_of_unreadable(reader, ignored)
    kinds = {name: kind_of_column(column) for name, column in reader.head().columns.items()}
    return Table.concat(list(reader.read(kinds)))


def warn_of_unreadable(reader: Reader, ignored: Collection[str]) -> None:
    left_out = [f"{name!r} ({t})" for name, t in reader.left_out.items() if name not in ignored]
    if left_out:
        n_more = len(left_out) - _MAX_COLUMNS_NAMED
        more = f" and {n_more} more" * (n_more > 0)
        warn_of_data(
            f"left out of {reader.name}, because only numbers, text, dates and durations can be "
            f"read: {', '.join(left_out[:_MAX_COLUMNS_NAMED])}{more}"
        )
