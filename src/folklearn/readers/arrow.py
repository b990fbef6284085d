"""Parquet and Arrow (IPC files and streams, Feather), and Arrow arrays as columns.

Numbers, truth values, text, categories and dates are read as the schema says, durations as numbers
of seconds; columns of other types are left out, and named in the notes. Read batch by batch.
Messages count rows from 1. The index that pandas stores is no column.
"""

import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import DATE_KINDS, Kind
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.source import ByteSource, IteratorIO
from folklearn.readers.table import Column, Faults, convert_values, decode_column, find_faults
from folklearn.utils import import_optional

PARQUET, FILE, STREAM, OLD_FEATHER = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"

_BATCH_ROWS = 8192
_TICKS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class ArrowReader(Reader):
    """A Parquet file, an Arrow file or an Arrow stream, recognised by their first bytes.

    Parquet and Arrow files from a pipe are stored in a temporary file.
    """

    unit = "row"

    def __init__(self, source: ByteSource, magic: bytes) -> None:
        super().__init__(source.name)
        self._arrow = import_optional("pyarrow", "Parquet and Arrow files need")
        self.format = "parquet" if magic.startswith(PARQUET) else "arrow"
        if magic.startswith(OLD_FEATHER):
            raise InvalidInputError(
                f"{self.name} is Feather of version 1; write it as version 2, or as Parquet"
            )
        if not magic.startswith((PARQUET, FILE, STREAM)):
            raise InvalidInputError(f"{self.name} is neither a Parquet nor an Arrow file")
        self._magic = magic
        self.is_live = source.is_live and magic.startswith(STREAM)
        self.can_reread = not self.is_live
        self._copy = _copy_to_file(source) if source.is_live and not self.is_live else None
        self._file: Any = source.path
        if self.is_live:
            self._file = io.BufferedReader(IteratorIO(source.raw()))
        elif self._copy is not None:
            self._file = self._copy.name
        self._stream: Any = None  # of a pipe: the only reader of it
        self._peeked: list[Any] = []  # of a pipe: batches to be read again
        with self._catch_damage(), self._open() as opened:
            schema = opened.schema_arrow if self.format == "parquet" else opened.schema
            if self.format == "parquet":
                self.n_rows = opened.metadata.num_rows
        self._name_columns(schema)

    def _name_columns(self, schema: Any) -> None:
        self.check_column_count(len(schema))
        names: dict[str, None] = {}
        for number, field in enumerate(schema, start=1):
            if _PANDAS_INDEX.fullmatch(field.name):
                continue
            if field.name in names:
                raise InvalidInputError(
                    f"{self.name} has two columns named {field.name!r}; rename one"
                )
            if not field.name.strip() and number > 1:
                raise InvalidInputError(f"column {number} of {self.name} has no name; name it")
            if kind_of_type(field.type) is None:
                self.leave_out(field.name, str(field.type))
                continue
            names[field.name] = None
        self.names = tuple(names)

    def _parse(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        wanted = dict.fromkeys(self.names) if kinds is None else kinds
        row = 1
        with self._catch_damage():
            for batch in self._batches([*wanted], looking):
                numbers = np.arange(row, row + batch.num_rows)
                yield self.convert_columns(wanted, numbers, partial(_convert, batch))
                row += batch.num_rows
                self.fraction = min(1.0, row / self.n_rows) if self.n_rows else None

    @contextmanager
    def _open(self) -> Iterator[Any]:
        if self._stream is not None:
            yield self._stream
            return
        if self.format == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(self._file, pre_buffer=False) as file:
                yield file
            return
        ipc = import_optional("pyarrow.ipc", "Arrow files need")
        if self.is_live:
            self._stream = ipc.open_stream(self._arrow.PythonFile(self._file, mode="r"))
            yield self._stream
            return
        opens = ipc.open_file if self._magic.startswith(FILE) else ipc.open_stream
        with self._arrow.OSFile(os.fspath(self._file)) as file, opens(file) as reader:
            yield reader

    def _batches(self, columns: list[str], looking: bool) -> Iterator[Any]:
        n_rows = self.limit_rows(_BATCH_ROWS)
        with self._open() as opened:
            if self.format == "parquet":
                yield from opened.iter_batches(n_rows, columns=columns, use_threads=True)
                return
            for batch in self._ipc_batches(opened, looking):
                for start in range(0, batch.num_rows, n_rows):
                    yield batch.slice(start, n_rows)

    def _ipc_batches(self, opened: Any, looking: bool) -> Iterator[Any]:
        if self._magic.startswith(FILE):
            yield from map(opened.get_batch, range(opened.num_record_batches))
            return
        yield from tuple(self._peeked)
        if not looking:
            self._peeked = []
        for batch in opened:
            if looking and self.is_live:
                self._peeked.append(batch)
            yield batch

    @contextmanager
    def _catch_damage(self) -> Iterator[None]:
        try:
            yield
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(f"{self.name} cannot be read: {reason}") from None


def _convert(batch: Any, name: str, kind: Kind | None) -> tuple[Column, Faults]:
    return convert_arrow(batch.column(name), kind)


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
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_duration
    )  # fmt: skip
    is_number = types.is_null(type) or any(test(type) for test in numbers)
    return "number" if is_number else None


def convert_arrow(
    array: Any, kind: Kind | None = None, decimal: str = "."
) -> tuple[Column, Faults]:
    """Return an Arrow array as a column of a kind, that of its type if None, and the faults."""
    import pyarrow as pa
    import pyarrow.compute

    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks == 1:
            array = array.chunk(0)
        else:
            chunks = array.unify_dictionaries().chunks
            array = pa.concat_arrays(chunks) if chunks else pa.array([], array.type)
    if pa.types.is_duration(array.type):
        ticks = array.cast(pa.int64()).cast(pa.float64(), safe=False)
        array = pa.compute.divide(ticks, _TICKS_PER_SECOND[array.type.unit])
    type_kind = kind_of_type(array.type)
    if kind is None:
        return convert_arrow(array, type_kind or "text")[0], {}
    if pa.types.is_null(array.type):
        return convert_values([None] * len(array), kind)
    if kind == type_kind == "number":
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        # Rounding a large integer is what reading it as text would do too.
        numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers, find_faults(numbers)
    if type_kind == "date" and kind in DATE_KINDS:
        moments = array.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
        return moments.astype("datetime64[us]"), {}
    if not pa.types.is_dictionary(array.type):
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        array = array.dictionary_encode()
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return decode_column(codes, array.dictionary.to_pylist(), kind, decimal)


def _copy_to_file(source: ByteSource) -> Any:
    """Return a temporary file with all bytes of a stream; it is deleted with the object."""
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115
    for piece in source.raw():
        file.write(piece)
    file.flush()
    return file
