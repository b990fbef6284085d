"""Sources that hold columns: Parquet and Arrow (IPC, Feather), data frames.

Columns are read as the schema says, durations as numbers of seconds; columns of other types than
numbers, text and dates, and the index that pandas stores, are left out.
"""

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import DATE_KINDS, MAX_ABS_VALUE, Kind, Kinds
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.source import ByteSource, IteratorIO
from folklearn.readers.table import (
    Column,
    DropGaps,
    Faults,
    TextColumn,
    convert_values,
    decode_column,
)
from folklearn.utils import import_optional

MAGIC = PARQUET, FILE, STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"

_BATCH_ROWS = 8192
_TICKS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class ArrowReader(Reader):
    """A Parquet file, an Arrow file or stream; files from a pipe are kept in memory."""

    unit = "row"

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source.name)
        self._arrow = import_optional("pyarrow", "Parquet and Arrow files need")
        magic = source.first_bytes
        self.format = "parquet" if magic.startswith(PARQUET) else "arrow"
        if not magic.startswith(MAGIC):
            raise InvalidInputError(f"{self.name} is neither a Parquet nor an Arrow file")
        self._source, self._is_stream = source, magic.startswith(STREAM)
        self.is_live = source.is_live and self._is_stream
        self.can_reread = not self.is_live
        is_piped = source.is_live or source.path is None
        # The end of a file is read first.
        self._data = b"".join(source.raw()) if is_piped and not self._is_stream else None
        with self._catch_damage(), self._open(looking=True) as file:
            schema = file.schema_arrow if self.format == "parquet" else file.schema
            if self.format == "parquet":
                self.n_rows = file.metadata.num_rows
        self.check_column_count(len(schema))
        names: dict[str, None] = {}
        for number, field in enumerate(schema, start=1):
            if field.name in names:
                raise InvalidInputError(f"{self.name} has two columns {field.name!r}; rename one")
            if not field.name.strip() and number > 1:
                raise InvalidInputError(f"column {number} of {self.name} has no name; name it")
            if kind_of_type(field.type) is None:
                self.left_out[field.name] = str(field.type)
            elif not _PANDAS_INDEX.fullmatch(field.name):
                names[field.name] = None
        self.names = tuple(names)

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        wanted = dict.fromkeys(self.names) if kinds is None else kinds
        row, n_rows = 1, self.limit_rows(_BATCH_ROWS)
        with self._catch_damage(), self._open(looking) as file:
            batches = file
            if self.format == "parquet":
                batches = file.iter_batches(n_rows, columns=[*wanted], use_threads=True)
            elif not self._is_stream:
                batches = map(file.get_batch, range(file.num_record_batches))
            for batch in batches:
                for start in range(0, batch.num_rows, n_rows):
                    piece = batch.slice(start, n_rows)
                    converted = {
                        name: convert_arrow(
                            piece.column(name), kind, drop=partial(self.missing.drop, name)
                        )
                        for name, kind in wanted.items()
                    }
                    yield self.assemble_rows(converted, np.arange(row, row + piece.num_rows))
                    row += piece.num_rows

    def _open(self, looking: bool) -> Any:
        if self._is_stream:
            file = io.BufferedReader(IteratorIO(self._source.raw(looking)))
            return self._arrow.ipc.open_stream(self._arrow.PythonFile(file, mode="r"))
        if self._data is not None:
            file = self._arrow.BufferReader(self._data)
        else:
            file = self._arrow.OSFile(os.fspath(self._source.path or ""))
        if self.format == "parquet":
            from pyarrow.parquet import ParquetFile

            return ParquetFile(file, pre_buffer=False)
        return self._arrow.ipc.open_file(file)

    @contextmanager
    def _catch_damage(self) -> Iterator[None]:
        try:
            yield
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(f"{self.name} cannot be read: {reason}") from None


@lru_cache(maxsize=256)
def kind_of_type(type: Any) -> Kind | None:
    """Return the kind of column for an Arrow type; None if it cannot be read."""
    from pyarrow import types

    if types.is_dictionary(type):
        return None if kind_of_type(type.value_type) is None else "text"
    if types.is_string(type) or types.is_large_string(type) or types.is_string_view(type):
        return "text"
    if types.is_timestamp(type) or types.is_date(type):
        return "date"
    numbers = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_duration,
        types.is_null,
    )  # fmt: skip
    return "number" if any(test(type) for test in numbers) else None


def convert_arrow(
    array: Any, kind: Kind | None = None, decimal: str = ".", drop: DropGaps | None = None
) -> tuple[Column, Faults]:
    """Return an Arrow array as a column of a kind, that of its type if None, and the faults."""
    import pyarrow as pa
    import pyarrow.compute

    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if pa.types.is_duration(array.type):
        ticks = array.cast(pa.int64()).cast(pa.float64(), safe=False)
        array = pa.compute.divide(ticks, _TICKS_PER_SECOND[array.type.unit])
    natural = kind_of_type(array.type) or "text"
    if kind is None:
        return convert_arrow(array, natural)[0], {}
    if pa.types.is_null(array.type):
        return convert_values([None] * len(array), kind)
    if kind == natural == "number":
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        # Rounding a large integer is what reading it as text would do too.
        numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        if np.fmax.reduce(np.abs(numbers), initial=0.0) <= MAX_ABS_VALUE:
            return numbers, {}
        return convert_values(numbers.tolist(), kind)
    if kind in DATE_KINDS and natural == "date":
        moments = array.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
        return moments.astype("datetime64[us]"), {}
    if not pa.types.is_dictionary(array.type):
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        array = array.dictionary_encode()
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    values = array.dictionary.to_pylist()
    if kind == "text":
        return TextColumn.of(values, codes), {}
    return decode_column(codes, values, kind, decimal, drop)


def is_frame(source: Any) -> bool:
    """Return whether something may be a data frame, without importing a package to find out."""
    has_columns = hasattr(source, "__len__") and hasattr(source, "columns")
    is_column = hasattr(source, "to_frame")  # a Series of pandas or polars
    return has_columns or (hasattr(source, "__arrow_c_stream__") and not is_column)


class FrameReader(Reader):
    """The rows of a data frame of pandas, polars or Arrow, in chunks."""

    format = "frame"
    unit = "row"
    has_objects = True

    def __init__(self, frame: Any) -> None:
        super().__init__("the data frame")
        nw = import_optional("narwhals.stable.v2", "data frames need", "df")
        import_optional("pyarrow", "data frames need", "df")
        try:
            self._frame = nw.from_native(frame, eager_only=True)
            columns = self._frame.columns
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InvalidInputError(f"{self.name} cannot be read: {reason}") from None
        self.check_column_count(len(columns))
        self.n_rows = len(self._frame)
        self._frame_names = {str(column): column for column in columns}
        if len(self._frame_names) < len(columns):
            raise InvalidInputError(f"{self.name} has two columns of the same name; rename one")
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
            first = self._frame[:_BATCH_ROWS].get_column(self._frame_names[name]).to_list()
            if not convert_values(first)[1]:
                return True
        self.left_out[name] = str(dtype)
        return False

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        wanted: Mapping[str, Kind | None] = dict.fromkeys(self.names) if kinds is None else kinds
        n_rows, size = len(self._frame), self.limit_rows(_BATCH_ROWS)
        for start in range(0, n_rows, size):
            rows = self._frame[start : start + size]
            numbers = np.arange(start + 1, start + 1 + len(rows))
            converted = {name: self._convert(rows, name, kind) for name, kind in wanted.items()}
            yield self.assemble_rows(converted, numbers)

    def _convert(self, rows: Any, name: str, kind: Kind | None) -> tuple[Column, Faults]:
        series = rows.get_column(self._frame_names[name])
        if kind == "object":
            gaps = series.is_null().to_list()
            values = [None if g else v for v, g in zip(series.to_list(), gaps, strict=True)]
            return convert_values(values, kind)
        array = None
        with suppress(TypeError, ValueError, OverflowError):  # what only Python holds together
            array = series.to_arrow()
        if array is None or kind_of_type(array.type) is None:
            return convert_values(series.to_list(), kind, drop=partial(self.missing.drop, name))
        return convert_arrow(array, kind, drop=partial(self.missing.drop, name))
