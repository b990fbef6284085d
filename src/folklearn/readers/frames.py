"""Data frames of pandas, polars or Arrow, by narwhals."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.readers.arrow import convert_arrow, kind_of_type, part_of_columns
from folklearn.readers.convert import Kind
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.records import Faults, convert_values
from folklearn.readers.table import Column
from folklearn.utils import import_optional

_AT_A_TIME = 8192  # rows


def is_frame(source: Any) -> bool:
    """Tell whether something may be a data frame, without loading what would know."""
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
        self._own = {str(column): column for column in columns}
        if len(self._own) < len(columns):
            raise InvalidInputError(f"{name} has two columns of the same name; rename one")
        self.names = tuple(name for name in self._own if self._can_read(name, nw))

    def _can_read(self, name: str, nw: Any) -> bool:
        kind = self._frame.schema[self._own[name]]
        simple = (
            nw.Boolean, nw.String, nw.Categorical, nw.Enum, nw.Date, nw.Datetime, nw.Duration,
            nw.Decimal,
        )  # fmt: skip
        if kind.is_numeric() or isinstance(kind, simple):
            return True
        if isinstance(kind, nw.Object):  # what pandas has for text among other things
            first = self._frame[:_AT_A_TIME].get_column(self._own[name]).to_list()
            if not convert_values(first)[1]:
                return True
        self.leave_out(name, str(kind))
        return False

    def _parts(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        wanted: Mapping[str, Kind | None] = dict.fromkeys(self.names) if kinds is None else kinds
        n_rows, size = len(self._frame), self.rows_at_once(_AT_A_TIME)
        for start in range(0, n_rows, size):
            rows = self._frame[start : start + size]
            self.fraction = start / n_rows
            yield part_of_columns(self, partial(self._column, rows), wanted, start + 1, len(rows))
        self.fraction = 1.0

    def _column(self, rows: Any, name: str, kind: Kind | None) -> tuple[Column, Faults]:
        series = rows.get_column(self._own[name])
        try:
            array = series.to_arrow()
        except (TypeError, ValueError, OverflowError):  # what only Python holds together
            return convert_values(series.to_list(), kind)
        if kind_of_type(array.type) is None:
            return convert_values(series.to_list(), kind)
        return convert_arrow(array, kind)
