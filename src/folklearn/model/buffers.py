"""The last rows of a stream as they came: what explanations are tried on."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.readers.convert import format_cell
from folklearn.readers.table import Column, Table, TextColumn, is_missing, table_from_records
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRows

_MOST_ROWS = 256
_MOST_VALUES = 2**16  # of numbers and texts together: wide rows are kept in smaller number


class RowBuffer(Serializable):
    """A few hundred rows, the newest ones, with the numbers of their classes.

    Rows are given as a block, or as one mapping; they are put together when they are asked for.
    Rows with soft labels are kept with their most likely class.
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[Any, Any, int]] = deque()  # rows, classes, how many
        self._n_rows = 0
        self._most = _MOST_ROWS

    def add_row(self, x: Any, label: int) -> None:
        """Keep one mapping."""
        self._pieces.append((x, (label,), 1))
        self._n_rows += 1
        self._most = _MOST_ROWS
        if self._n_rows > 2 * _MOST_ROWS:
            self._forget(_MOST_ROWS)

    def add(self, block: Table, labels: Sequence[int]) -> None:
        """Keep the end of a block."""
        width = max(1, len(block.columns) + _width(block.features))
        self._most = most = max(1, min(_MOST_ROWS, _MOST_VALUES // width))
        own = np.arange(max(0, len(block) - most), len(block))  # copies: nobody's array stays alive
        self._pieces.append((block.take(own), np.asarray(labels)[own], len(own)))
        self._n_rows += len(own)
        self._forget(most)

    def _forget(self, most: int) -> None:
        while self._pieces and self._n_rows - self._pieces[0][2] >= most:
            self._n_rows -= self._pieces.popleft()[2]

    def rows(self) -> tuple[Table, Any]:
        """Return the last rows as one block, and their classes, in whatever pieces they came."""
        blocks: list[Table] = []
        waiting: list[Any] = []
        for rows, _, _ in self._pieces:
            if isinstance(rows, Table):
                if waiting:
                    blocks.append(_block(waiting))
                    waiting = []
                blocks.append(rows)
            else:
                waiting.append(rows)
        if waiting:
            blocks.append(_block(waiting))
        labels = [np.asarray(labels, np.int64) for _, labels, _ in self._pieces]
        if not labels:
            return Table({}, np.empty(0, np.int64)), np.empty(0, np.int64)
        own = slice(max(0, self._n_rows - self._most), self._n_rows)
        block = Table.concat(blocks).take(own)
        columns = {
            name: TextColumn.of(column.to_list()) if isinstance(column, TextColumn) else column
            for name, column in sorted(block.columns.items())
            if not is_missing(column).all()
        }
        n_rows = own.stop - own.start
        return Table(columns, np.arange(1, n_rows + 1), block.features), np.concatenate(labels)[own]

    @property
    def n_bytes(self) -> int:
        """About how much memory the rows take."""
        total: int = 0
        for rows, _, _ in self._pieces:
            if not isinstance(rows, Table):
                total += sum(map(getsizeof, rows)) + sum(map(getsizeof, rows.values()))
                continue
            for column in rows.columns.values():
                if isinstance(column, TextColumn):
                    total += column.codes.nbytes + sum(map(getsizeof, column.values))
                else:
                    total += column.nbytes
            if isinstance(rows.features, SparseRows):
                total += sum(array.nbytes for array in rows.features.arrays("").values())
            elif rows.features is not None:
                total += rows.features.nbytes
        return total

    def to_record(self) -> Record:
        """Return everything as a record."""
        block, labels = self.rows()
        record = Record("RowBuffer", {"columns": [], "most": self._most}, {"labels": labels})
        for i, (name, column) in enumerate(block.columns.items()):
            array: Any = column.codes if isinstance(column, TextColumn) else column
            says: Any = list(column.values) if isinstance(column, TextColumn) else None
            if array.dtype.kind == "M":
                array, says = array.astype(np.int64), "date"
            record.config["columns"].append([name, says])
            record.arrays[f"column{i}"] = array
        if isinstance(block.features, SparseRows):
            record.arrays.update(block.features.arrays("features."))
        elif block.features is not None:
            record.arrays["matrix"] = block.features
        return record

    @classmethod
    def from_record(cls, record: Record) -> "RowBuffer":
        """Rebuild what was recorded."""
        recent = cls()
        recent._most = record.count("most", 1)
        labels = record.part("labels", (None,), np.int64, least=0)
        columns: dict[str, Column] = {}
        for i, (name, says) in enumerate(record.word("columns")):
            columns[str(name)] = _column(record, f"column{i}", len(labels), says)
        features: Any = None
        if "matrix" in record.arrays:
            features = record.part("matrix", (len(labels), None), gaps=True)
        if "features.indptr" in record.arrays:
            features = SparseRows.of_arrays(record.arrays, "features.")
            if len(features) != len(labels):
                raise StateFileError("recent rows have other features than labels")
        if len(labels):
            block = Table(columns, np.arange(1, len(labels) + 1), features)
            recent._pieces.append((block, labels, len(labels)))
            recent._n_rows = len(labels)
        return recent


def _column(record: Record, name: str, n_rows: int, says: Any) -> Column:
    """Return a column that was recorded: dates, texts by their codes, or numbers."""
    if says == "date":
        return record.part(name, (n_rows,), np.int64).astype("datetime64[us]")
    if says is None:
        return record.part(name, (n_rows,), gaps=True)
    codes = record.part(name, (n_rows,), np.int32, least=-1, most=len(says) - 1)
    if not all(isinstance(text, str) for text in says):
        raise StateFileError(f"{name} of recent rows has values that are no text")
    return TextColumn(codes, tuple(says))


def _block(rows: Sequence[Mapping[Any, Any]]) -> Table:
    """Return mappings as a block, in which gaps do not decide what kind a column is."""
    there = [
        {str(name): value for name, value in row.items() if format_cell(value) is not None}
        for row in rows
    ]
    return table_from_records(there, range(1, len(there) + 1))


def _width(features: Any) -> int:
    if features is None:
        return 0
    if isinstance(features, SparseRows):
        return features.nnz // max(1, len(features))
    return int(features.shape[1])


class PendingPrediction(NamedTuple):
    """A row, what was predicted for the classes known then, and for one that was not."""

    x: dict[str, Any]
    p: Array
    unseen: float


class PendingPredictions(Serializable):
    """Rows by number, in the order in which they were asked for."""

    COUNTERS = ("_n_asked",)

    def __init__(self) -> None:
        self._n_asked = 0
        self._rows: dict[int, PendingPrediction] = {}

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the rows that wait."""
        return tuple(self._rows)

    def add(self, row: PendingPrediction) -> int:
        """Keep a row; return its number."""
        self._n_asked += 1
        self._rows[self._n_asked] = row
        return self._n_asked

    def find(self, number: int) -> PendingPrediction:
        """Return a row that waits."""
        if validation.count("the number of a row", number, 1) not in self._rows:
            raise InvalidInputError(
                f"no row waits under the number {number!r}: it was never asked for, or told already"
            )
        return self._rows[number]

    def drop(self, number: int) -> None:
        """Wait for a row no longer."""
        del self._rows[number]

    def to_record(self) -> Record:
        """Return everything as a record; values of other kinds than JSON's become text."""
        record = super().to_record()
        record.config["rows"] = [
            [n, {name: _plain(value) for name, value in x.items()}, p.tolist(), unseen]
            for n, (x, p, unseen) in self._rows.items()
        ]
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._rows = {
            int(n): PendingPrediction(dict(x), np.array(p), u) for n, x, p, u in record.word("rows")
        }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    try:
        if bool(value != value):  # pandas' NaT
            return None
    except TypeError:  # its NA, which does not compare
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
