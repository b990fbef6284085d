"""Parquet files, and Arrow's own: IPC files and streams, Feather. By the extra ``df``.

Numbers, truth values and text are features, as the schema says; null and NaN are missing, and so
is text that is empty or says nan, NA, N/A or null; a label only if it is null, empty or nan. Read
batch by batch: what is held at once is a batch of an Arrow file, or a row group of a Parquet
file as it is stored. Messages count rows from 1. The index that pandas stores is no feature.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams import scanned
from folklearn.streams.scanned import Example, FileTable
from folklearn.streams.table import Layout
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path, declare, is_missing, named

PARQUET, FILE, STREAM, OLD_FEATHER = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"

_BATCH = 4096
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class ArrowSource:
    """A Parquet file, an Arrow file or an Arrow stream, told apart by their first bytes."""

    unit = "row"
    sparse = False
    note = ""

    def __init__(self, path: Path | Tape, name: str | None = None) -> None:
        self.path = path
        self.name = name or named(path)
        self.n_waiting = 0  # rows of the batch at hand that were not yet yielded
        self._arrow = _pyarrow()
        self._reader: Any = None  # of a tape, which is opened once
        if isinstance(path, Tape):
            self._magic = path.look(len(FILE))
        else:
            with open(path, "rb") as file:
                self._magic = file.read(len(FILE))
        if self._magic.startswith(OLD_FEATHER):
            raise InvalidInputError(
                f"{self.name} is Feather of version 1; write it as version 2, or as Parquet"
            )
        if not self._magic.startswith((PARQUET, FILE, STREAM)):
            raise InvalidInputError(f"{self.name} is neither a Parquet nor an Arrow file")

    def header(self) -> tuple[str, ...]:
        """Return the names of all columns, the target included."""
        with self._readable():
            found = tuple(self._schema().names)
        names = tuple(name for name in found if not _PANDAS_INDEX.fullmatch(name))
        for place, name in enumerate(names):
            if not name.strip():
                raise InvalidInputError(f"column {place + 1} of {self.name} has no name; name it")
            if name in names[:place]:
                raise InvalidInputError(f"{self.name} has two columns named {name!r}")
        return names

    def kinds(self, columns: Sequence[str]) -> Iterator[Sequence[bool | None]]:
        """Yield once whether the columns hold text: the schema knows."""
        with self._readable():
            schema = self._schema()
        yield [self._is_text(schema.field(column).type) for column in columns]

    def examples(self, layout: Layout, target: str | None) -> Iterator[Example]:
        """Yield every row, checked."""
        wanted = [*layout.columns, *([target] if target is not None else [])]
        if not set(wanted) <= set(self.header()):
            raise InvalidInputError(f"{self.name} does not have the columns it had before")
        with self._readable():
            schema = self._schema()
        for column in layout.numeric:
            advice = "only numbers and text can be features"
            if self._is_text(schema.field(column).type):
                advice = declare(column)
            self._refuse_unless(self._is_number, schema, column, advice)
        for column in layout.text:
            self._refuse_unless(self._is_label, schema, column, "it cannot be read as text")
        if target is not None:
            self._refuse_unless(self._is_label, schema, target, "labels are text or numbers")
        start = 0
        for batch in self._batches(wanted):
            with self._readable():
                X = np.empty((batch.num_rows, len(layout.numeric)))
                for place, column in enumerate(layout.numeric):
                    X[:, place] = self._numbers(batch, column)
                texts = [self._texts(batch, column) for column in layout.text]
                labels = batch.column(target).to_pylist() if target is not None else None
            self._refuse_too_large(X, layout.numeric, start)
            gaps = np.isnan(X)
            for place, numbers in enumerate(X):
                row = start + place + 1
                label = self._label(labels[place], row, target) if labels is not None else None
                own = [column[place] for column in texts]
                missing = [layout.numeric[j] for j in np.flatnonzero(gaps[place])]
                missing += [c for c, text in zip(layout.text, own, strict=True) if text is None]
                self.n_waiting = len(X) - place - 1
                yield Example(row, numbers, label, texts=own, missing=missing)
            start += len(X)

    def _schema(self) -> Any:
        if self._magic.startswith(PARQUET):
            import pyarrow.parquet as pq

            return pq.read_schema(self.path)
        with self._opened() as reader:
            return reader.schema

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Yield a reader of Arrow's own formats."""
        ipc = self._arrow.ipc
        if isinstance(self.path, Tape):
            if self._reader is None:
                self._reader = ipc.open_stream(self._arrow.PythonFile(self.path, mode="r"))
            yield self._reader
            return
        open_it = ipc.open_file if self._magic.startswith(FILE) else ipc.open_stream
        with self._arrow.memory_map(os.fspath(self.path)) as file, open_it(file) as reader:
            yield reader

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield record batches of these columns, none of more than `_BATCH` rows."""
        with self._readable():
            if self._magic.startswith(PARQUET):
                import pyarrow.parquet as pq

                with pq.ParquetFile(self.path, pre_buffer=False) as file:
                    yield from file.iter_batches(_BATCH, columns=columns, use_threads=False)
                return
            with self._opened() as reader:
                is_file = self._magic.startswith(FILE)
                batches = (
                    map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
                )
                for batch in batches:
                    for start in range(0, batch.num_rows, _BATCH):
                        yield batch.select(columns).slice(start, _BATCH)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn what pyarrow raises for damaged files into a sentence."""
        try:
            yield
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(f"{self.name} cannot be read: {reason}") from None

    def _refuse_unless(self, test: Any, schema: Any, column: str, rule: str) -> None:
        kind = schema.field(column).type
        if not test(kind):
            raise InvalidInputError(f"column {column!r} of {self.name} holds {kind}: {rule}")

    def _is_number(self, kind: Any) -> bool:
        types = self._arrow.types
        tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        return types.is_null(kind) or any(test(kind) for test in tests)

    def _is_text(self, kind: Any) -> bool:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        tests = (types.is_string, types.is_large_string, types.is_string_view)
        return any(test(kind) for test in tests)

    def _is_label(self, kind: Any) -> bool:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        tests = (types.is_integer, types.is_boolean, types.is_floating)
        return self._is_text(kind) or any(test(kind) for test in tests)

    def _numbers(self, batch: Any, column: str) -> NDArray[np.float64]:
        cells = batch.column(column)
        if self._arrow.types.is_boolean(cells.type):
            cells = cells.cast(self._arrow.int8())
        # Rounding a large integer is what reading it as text would do too.
        cells = cells.cast(self._arrow.float64(), safe=False)
        numbers: NDArray[np.float64] = cells.to_numpy(zero_copy_only=False)
        return numbers

    def _texts(self, batch: Any, column: str) -> list[str | None]:
        cells = batch.column(column).to_pylist()
        texts = map(_written, cells)
        return [None if is_missing(text) else text for text in texts]

    def _refuse_too_large(self, X: NDArray[np.float64], columns: Sequence[str], start: int) -> None:
        filled = np.nan_to_num(X, nan=0.0, posinf=np.inf, neginf=-np.inf)  # missing is no fault
        with np.errstate(all="ignore"):
            usable = np.abs(filled).sum(axis=1) <= MAX_NORM
        if usable.all():
            return
        place = int(np.argmin(usable))
        limit = MAX_NORM / len(columns)
        column = int(np.argmin(np.abs(filled[place]) <= limit))
        value = float(filled[place, column])
        problem = "too large to compute with; scale the feature"
        if not np.isfinite(value):
            problem = "not finite; leave missing values out"
        raise InvalidInputError(
            f"row {start + place + 1} of {self.name}, column {columns[column]!r}: {value!r} is "
            f"{problem}"
        )

    def _label(self, value: Any, row: int, target: str | None) -> str:
        label = _written(value)
        if not label:
            raise InvalidInputError(
                f"row {row} of {self.name}, column {target!r}: the label is missing"
            )
        return label


def _written(value: Any) -> str:
    """Return a value as text, nothing for one that is missing."""
    if value is None or value != value:
        return ""
    text = str(value).strip()
    if text.lower() == "nan":
        return ""
    return text.lower() if isinstance(value, bool) else text


def scan(path: Path, target: str, name: str | None = None) -> FileTable:
    """Read a whole file once: find its columns and labels, and check every value."""
    return scanned.scan(ArrowSource(path, name), target)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise FolklearnError(
            "Parquet and Arrow files need pyarrow, which comes with the extra: "
            "pip install 'folklearn[df]'"
        ) from None
    return pyarrow
