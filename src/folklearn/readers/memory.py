"""Readers of rows in memory: tables, mappings, and data frames of pandas, polars or Arrow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.arrow import convert_arrow, kind_of_type
from folklearn.readers.convert import Kind
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.table import (
    Column,
    Faults,
    Table,
    TextColumn,
    as_text_column,
    convert_values,
    decode_column,
    find_faults,
    kind_of_column,
)
from folklearn.utils import import_optional

_CHUNK_ROWS = 8192
_CHUNK_RECORDS = 1000


class TableReader(Reader):
    """A table as a reader.

    Parameters
    ----------
    table : the rows.
    name : what messages call them.
    """

    format = "frame"
    unit = "row"

    def __init__(self, table: Table, name: str = "the rows") -> None:
        super().__init__(name)
        self._table = table
        self.n_rows = len(table)
        self.names = tuple(table.columns)
        self._origin: Reader | None = None

    @classmethod
    def buffer(cls, reader: Reader) -> Reader:
        """Return a reader that can be read again: a pipe is read into memory."""
        if reader.can_reread:
            return reader
        kinds = {name: kind_of_column(column) for name, column in reader.head().columns.items()}
        buffered = cls(Table.concat(list(reader.read(kinds))), reader.name)
        buffered.format, buffered.unit, buffered.decimal = (
            reader.format,
            reader.unit,
            reader.decimal,
        )
        buffered.notes, buffered._origin = reader.notes, reader
        return buffered

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return the names of features that a table has by number."""
        if self._origin is not None:
            return self._origin.feature_names(indices)
        return super().feature_names(indices)

    def _parse(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        for start in range(0, len(self._table), _CHUNK_ROWS):
            rows = self._table.take(slice(start, start + _CHUNK_ROWS))
            wanted = {
                name: None if kinds is None else kinds[name]
                for name in rows.columns
                if kinds is None or name in kinds
            }
            self.fraction = start / len(self._table)
            convert = partial(self._convert, rows.columns)
            yield self.convert_columns(wanted, rows.lines, convert, features=rows.features)
        self.fraction = 1.0

    def _convert(
        self, columns: Mapping[str, Column], name: str, kind: Kind | None
    ) -> tuple[Column, Faults]:
        column = columns[name]
        if kind == "number" and isinstance(column, np.ndarray) and column.dtype.kind == "f":
            return column, find_faults(np.asarray(column, np.float64))
        if kind is None or kind == kind_of_column(column):
            return column, {}
        if kind == "text":
            return as_text_column(column), {}
        if isinstance(column, TextColumn):
            return decode_column(column.codes.astype("int64"), column.values, kind, self.decimal)
        return convert_values(column.tolist(), kind)


class RowsReader(Reader):
    """Mappings of column names to values, from a sequence or an iterator.

    Parameters
    ----------
    rows : the mappings. A list or tuple can be read again, an iterator only once.
    name : what messages call them.
    """

    format = "rows"
    unit = "row"
    _has_late_columns = True

    def __init__(self, rows: Iterable[Mapping[str, Any]], name: str = "the rows") -> None:
        super().__init__(name)
        self.can_reread = isinstance(rows, Sequence)
        self.n_rows = len(rows) if isinstance(rows, Sequence) else None
        self._rows = rows if isinstance(rows, Sequence) else iter(rows)
        self._peeked: list[Mapping[str, Any]] = []  # of an iterator, to be read again
        self.names = tuple(self.head().columns)

    def _parse(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        rows = self._records(looking)
        row = 1
        while records := list(islice(rows, _CHUNK_RECORDS)):
            yield self.convert_records(records, np.arange(row, row + len(records)), kinds)
            row += len(records)
            self.fraction = row / self.n_rows if self.n_rows else None

    def _records(self, looking: bool) -> Iterator[Mapping[str, Any]]:
        peeked = tuple(self._peeked)
        if not looking:
            self._peeked = []
        yield from peeked
        for row in self._rows:
            if looking and not self.can_reread:
                self._peeked.append(row)
            yield row


def is_frame(source: Any) -> bool:
    """Return whether something may be a data frame, without importing a package to find out."""
    return (hasattr(source, "columns") and hasattr(source, "__len__")) or hasattr(
        source, "__arrow_c_stream__"
    )


class FrameReader(Reader):
    """The rows of a data frame.

    Strings, categories and enums are text; numbers and truth values are numbers, durations too, in
    seconds; dates are dates. Columns of other types are left out, and named in the notes.
    """

    format = "frame"
    unit = "row"

    def __init__(self, frame: Any, name: str = "the data frame") -> None:
        super().__init__(name)
        nw = import_optional("narwhals.stable.v2", "data frames need", "df")
        import_optional("pyarrow", "data frames need", "df")
        try:
            self._frame = nw.from_native(frame, eager_only=True)
            columns = self._frame.columns
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InvalidInputError(f"{name} cannot be read: {reason}") from None
        self.check_column_count(len(columns))
        self.n_rows = len(self._frame)
        self._frame_names = {str(column): column for column in columns}
        if len(self._frame_names) < len(columns):
            raise InvalidInputError(f"{name} has two columns of the same name; rename one")
        self.names = tuple(name for name in self._frame_names if self._is_readable(name, nw))

    def _is_readable(self, name: str, nw: Any) -> bool:
        dtype = self._frame.schema[self._frame_names[name]]
        simple = (
            nw.Boolean, nw.String, nw.Categorical, nw.Enum, nw.Date, nw.Datetime, nw.Duration,
            nw.Decimal,
        )  # fmt: skip
        if dtype.is_numeric() or isinstance(dtype, simple):
            return True
        if isinstance(dtype, nw.Object):  # what pandas has for text among other things
            first = self._frame[:_CHUNK_ROWS].get_column(self._frame_names[name]).to_list()
            if not convert_values(first)[1]:
                return True
        self.leave_out(name, str(dtype))
        return False

    def _parse(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        wanted: Mapping[str, Kind | None] = dict.fromkeys(self.names) if kinds is None else kinds
        n_rows, size = len(self._frame), self.limit_rows(_CHUNK_ROWS)
        for start in range(0, n_rows, size):
            rows = self._frame[start : start + size]
            self.fraction = start / n_rows
            numbers = np.arange(start + 1, start + 1 + len(rows))
            yield self.convert_columns(wanted, numbers, partial(self._convert, rows))
        self.fraction = 1.0

    def _convert(self, rows: Any, name: str, kind: Kind | None) -> tuple[Column, Faults]:
        series = rows.get_column(self._frame_names[name])
        try:
            array = series.to_arrow()
        except (TypeError, ValueError, OverflowError):  # what only Python holds together
            return convert_values(series.to_list(), kind)
        if kind_of_type(array.type) is None:
            return convert_values(series.to_list(), kind)
        return convert_arrow(array, kind)
