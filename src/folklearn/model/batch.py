"""Rows that are kept: batches before scaling, the last rows as they came; places of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import StateFileError
from folklearn.model.roles import place_of
from folklearn.readers.convert import format_cell
from folklearn.readers.table import Column, Table, TextColumn, is_missing, table_from_records
from folklearn.scaler import SPACE, SPACE_BITS
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRows, concatenate

Key = tuple[str, str]  # a column of the data, or a cross of two, and a part of it

MOST_OWN = 100  # categories of a column that have a place of their own,
SHARED = 28  # and places that all further ones share
_MAX_ROWS = 256  # of a `RowBuffer`
_MAX_VALUES = 2**16  # of numbers and texts together: wide rows are kept in smaller number
_NO_PREDICTIONS, _NONE = np.empty((0, 0)), np.empty(0, np.int64)


@dataclass(frozen=True)
class SparseInput:
    """Raw rows that stay sparse: every column of the data has a slot, counted from 1.

    numbers : (T, m), NaN where missing, and `slots` (m,) of them, ascending.
    cells : (T, (number of slots + 1) 2^40) every value in its column: those of slot s begin at
        s 2^40. A number, and the constant in column 0, has a 1 here.
    dense : (T, d) the columns other than words, as of a table without words; None for no such view.
    words : the slots (n,) of what is sparse alone, ascending, where there is one.
    """

    numbers: Array
    slots: tuple[int, ...]
    cells: SparseRows
    dense: Array | None = None
    words: tuple[int, ...] = ()

    @classmethod
    def of_parts(
        cls, numbers: Array, slots: Sequence[int], parts: Mapping[int, SparseRows]
    ) -> "SparseInput":
        """Put the slots side by side: those of numbers, and what is not 0 in all others."""
        T, n_slots = len(numbers), max([0, *slots, *parts])
        ones = SparseRows(np.arange(T + 1), np.zeros(T, np.int32), np.ones(T), 1)
        for rows in parts.values():
            validation.check_contexts(rows)
        compact = {slot: rows.compact() for slot, rows in parts.items()}
        ordered = sorted(({0: ones} | dict.fromkeys(slots, ones) | compact).items())
        rows_of_cells = [np.repeat(np.arange(T), np.diff(rows.indptr)) for _, rows in ordered]
        order = np.argsort(np.concatenate(rows_of_cells), kind="stable")
        indices = np.concatenate([rows.indices + np.int64(slot) * SPACE for slot, rows in ordered])
        values = np.concatenate([rows.values for _, rows in ordered])
        indptr = np.sum([rows.indptr for _, rows in ordered], axis=0)
        cells = SparseRows(indptr, indices[order], values[order], (n_slots + 1) * SPACE)
        return cls(numbers, tuple(slots), cells)

    @classmethod
    def of_rows(cls, X: SparseRows) -> "SparseInput":
        """Return rows that are all there is: one column of the data."""
        return cls.of_parts(np.empty((len(X), 0)), (), {1: X})

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: Any) -> "SparseInput":
        dense = None if self.dense is None else self.dense[which]
        return replace(self, numbers=self.numbers[which], cells=self.cells[which], dense=dense)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of columns of the data."""
        return len(self.cells), self.cells.shape[1] // SPACE - 1

    @classmethod
    def concat(cls, batches: Sequence["SparseInput"]) -> "SparseInput":
        """Return the rows of several one after the other; a slot that one lacks is empty there."""
        slots = max((batch.slots for batch in batches), key=len)
        numbers = [
            np.pad(b.numbers, ((0, 0), (0, len(slots) - len(b.slots))), constant_values=np.nan)
            for b in batches
        ]
        cells = concatenate([batch.cells for batch in batches])
        width = max(batch.cells.shape[1] for batch in batches)
        cells = SparseRows(cells.indptr, cells.indices, cells.values, width)
        joined = cls(np.concatenate(numbers), slots, cells)
        views = [batch.dense for batch in batches if batch.dense is not None]
        if not views:
            return joined
        n_places = min(view.shape[1] for view in views)
        dense = np.concatenate([view[:, :n_places] for view in views])
        return replace(joined, dense=dense, words=max((b.words for b in batches), key=len))

    def of_slots(self, n_slots: int, n_places: int | None = None) -> "SparseInput":
        """Return the rows without columns behind the first `n_slots`, or dense ones `n_places`."""
        dense = None if self.dense is None else self.dense[:, :n_places]
        words = tuple(slot for slot in self.words if slot <= n_slots)
        if self.shape[1] <= n_slots:
            return replace(self, dense=dense, words=words)
        width = (n_slots + 1) * SPACE
        slots = tuple(slot for slot in self.slots if slot <= n_slots)
        cells = self.cells.compact()
        cells = _keep_cells(cells, cells.values, cells.indices < width, width)
        return SparseInput(self.numbers[:, : len(slots)], slots, cells, dense, words)

    @property
    def sparse(self) -> "SparseInput":
        """All columns, sparse alone."""
        return replace(self, dense=None, words=())

    def values_by_place(self, n_places: int) -> Array:
        """Return (T, n_places): the numbers, and 1 where any other column has a value."""
        cells, values = self.cells.compact(), np.zeros((len(self), 1 + n_places))
        values[np.repeat(np.arange(len(self)), np.diff(cells.indptr)), cells.indices // SPACE] = 1.0
        values[:, self.slots] = self.numbers
        return values[:, 1:]

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"numbers": self.numbers, "slots": np.array(self.slots, np.int64)}
        if self.dense is not None:
            arrays |= {"dense": self.dense, "words": np.array(self.words, np.int64)}
        return arrays | self.cells.arrays("cells.")

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "SparseInput":
        slots, words = (tuple(arrays.get(n, _NONE).tolist()) for n in ("slots", "words"))
        cells = SparseRows.of_arrays(arrays, "cells.")
        return cls(arrays["numbers"], slots, cells, arrays.get("dense"), words)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays().values())

    def has_sizes(self, n_rows: int, n_slots: int) -> bool:
        """Tell whether these are `n_rows` rows of at most `n_slots` columns of the data."""
        validation.contexts(self.numbers, len(self.slots), gaps=True)
        are_slots = all(a < b for a, b in zip((0, *self.slots), self.slots, strict=False))
        fits = max(self.slots, default=0) <= self.shape[1] <= n_slots
        if self.dense is not None:
            validation.contexts(self.dense, self.dense.shape[-1], gaps=True)
            fits = fits and len(self.dense) == n_rows
        are_words = set(self.words) <= {*range(1, self.shape[1] + 1)}
        fits = fits and are_slots and are_words
        return fits and len(self.numbers) == len(self.cells) == n_rows

    def scale_cells(
        self, numbers: Array, length: float | None, constant: float | None, n_columns: int
    ) -> SparseRows:
        """Return the rows (T, n_columns) with scaled `numbers` (T, m) and a constant, if any.

        The values of every other slot have the norm `length` in each row, None leaves them.
        """
        cells = self.cells.compact()
        slots, values = cells.indices >> SPACE_BITS, cells.values.copy()
        if length is not None and len(values):
            is_first = np.diff(slots, prepend=-1) != 0  # of its slot in its row
            is_first[cells.indptr[:-1]] = True
            starts = np.flatnonzero(is_first)
            norms = np.sqrt(np.add.reduceat(values**2, starts))
            factors = length * np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0.0)
            values *= np.repeat(factors, np.diff(starts, append=len(values)))
        if self.slots:
            column_of_slot = np.full(self.shape[1] + 1, -1)
            column_of_slot[list(self.slots)] = np.arange(len(self.slots))
            columns = column_of_slot[slots]
            at = np.flatnonzero(columns >= 0)
            rows = np.searchsorted(cells.indptr, at, side="right") - 1
            values[at] = numbers[rows, columns[at]]
        values[cells.indptr[:-1]] = 0.0 if constant is None else constant
        return _keep_cells(cells, values, values != 0.0, n_columns)


def _keep_cells(
    cells: SparseRows, values: Array, is_kept: NDArray[np.bool_], n_columns: int
) -> SparseRows:
    if is_kept.all():
        return SparseRows(cells.indptr, cells.indices, values, n_columns)
    indptr = np.concatenate([[0], np.cumsum(is_kept)])[cells.indptr]
    return SparseRows(indptr, cells.indices[is_kept], values[is_kept], n_columns)


class RawBatch(NamedTuple):
    """Rows before scaling.

    X : (T, d), or a `SparseInput`.
    Y : (T, K) targets: soft labels, or 1 for the class.
    weights : (T,).
    P : (T, K) predictions, or (T, 0) where they are not needed.
    """

    X: Any
    Y: Array
    weights: Array
    P: Array

    @classmethod
    def of(
        cls, X: Any, labels: Labels, soft: Array, weights: Array, P: Array = _NO_PREDICTIONS
    ) -> "RawBatch":
        """Copy rows with labels (T,), or soft labels (T, K) where `soft` has rows."""
        P = P.copy() if len(P) else np.empty((len(weights), 0))
        X = X.copy() if isinstance(X, np.ndarray) else X[:]
        Y = soft.copy()
        if not len(soft):
            Y = np.zeros((len(labels), int(labels.max(initial=0)) + 1))
            Y[np.arange(len(labels)), labels] = 1.0
        return cls(X, Y, weights.copy(), P)

    def take(self, rows: Any) -> "RawBatch":
        return RawBatch(*(array[rows] for array in (self.X, self.Y, self.weights, self.P)))

    def resize(self, n_features: int, n_classes: int, numeric: Sequence[bool] = ()) -> "RawBatch":
        """Return the rows with this many raw features and classes.

        Features that came later are NaN where `numeric` (d,), or beyond it, and 0 elsewhere.
        """
        X, Y, weights, P = self
        if isinstance(X, SparseInput):
            X = X.of_slots(n_features)
        elif X.shape[1] != n_features:
            values, X = X[:, :n_features], np.full((len(X), n_features), np.nan)
            X[:, np.flatnonzero(~np.asarray(numeric[:n_features], bool))] = 0.0
            X[:, : values.shape[1]] = values
        P = _set_width(P, n_classes) if P.shape[1] else P
        return RawBatch(X, _set_width(Y, n_classes), weights, P)

    @classmethod
    def concat(cls, batches: Sequence["RawBatch"], numeric: Sequence[bool] = ()) -> "RawBatch":
        if len(batches) == 1:
            return batches[0]
        n_classes = max(max(batch.Y.shape[1], batch.P.shape[1]) for batch in batches)
        sparse = isinstance(batches[0].X, SparseInput)
        widths = [batch.X.shape[1] for batch in batches]
        sized = [batch.resize(max(widths), n_classes, numeric) for batch in batches]
        Xs, Ys, weights, Ps = zip(*sized, strict=True)
        Ps = tuple(_set_width(P, max(each.shape[1] for each in Ps)) for P in Ps)  # 0 if unknown
        X = SparseInput.concat(Xs) if sparse else np.concatenate(Xs)
        return cls(X, *map(np.concatenate, (Ys, weights, Ps)))

    def arrays(self, prefix: str = "") -> dict[str, Any]:
        named = self._asdict()
        if isinstance(self.X, SparseInput):
            named |= named.pop("X").arrays()
        return {prefix + name: array for name, array in named.items()}

    @classmethod
    def of_record(
        cls, record: Record, prefix: str, *, n_features: int, n_classes: int, sparse: bool
    ) -> "RawBatch | None":
        """Return the rows that `arrays` gave, of at most these sizes; None if there are none."""
        arrays = record.arrays
        named = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        if not named:
            return None
        X: Any = SparseInput.of_arrays(named) if sparse else named["X"]
        Y, weights, P = named["Y"], named["weights"], named["P"]
        fits = Y.ndim == P.ndim == 2 and {len(X), len(Y), len(P)} == {len(weights)}
        if sparse:
            fits = fits and X.has_sizes(len(weights), n_features)
        else:
            fits = fits and validation.contexts(X, X.shape[-1], gaps=True).shape[1] <= n_features
        if not fits or max(Y.shape[1], P.shape[1]) > max(1, n_classes):
            raise StateFileError(
                f"the rows {prefix!r} of a {record.kind} state do not fit its sizes"
            )
        validation.labels(Y, *Y.shape)
        return cls(X, Y, validation.weights(weights, len(weights)), P)


class BatchBuffer:
    """Batches and single dense rows in the order in which they came."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._batches: list[RawBatch] = []
        self._rows: list[tuple[Array, int, float]] = []  # behind the batches, of one width

    def add(self, batch: RawBatch) -> None:
        """Keep a batch, which must share nothing with arrays of the caller."""
        if self._rows:
            self._collect_rows()
        self._batches.append(batch)
        self.n_rows += len(batch.weights)

    def add_row(self, x: Array, label: Any, weight: float) -> None:
        """Keep one dense row (d,), which must not change any more; its label may be soft (K,)."""
        if type(label) is not int:
            return self.add(RawBatch.of(x[None], _NONE, label[None], np.array([weight])))
        if self._rows and self._rows[0][0].size != x.size:
            self._collect_rows()
        self._rows.append((x, label, weight))
        self.n_rows += 1
        return None

    def _collect_rows(self) -> None:
        if self._rows:
            X, labels, weights = map(np.array, zip(*self._rows, strict=True))
            self._batches.append(RawBatch.of(X, labels, _NO_PREDICTIONS, weights))
            self._rows = []

    def batch(self, numeric: Sequence[bool] = ()) -> RawBatch | None:
        """Return all rows as one batch, None if there are none; see `RawBatch.resize`."""
        self._collect_rows()
        if not self._batches:
            return None
        self._batches = [RawBatch.concat(self._batches, numeric)]
        return self._batches[0]

    @property
    def n_bytes(self) -> int:
        self._collect_rows()
        return sum(array.nbytes for batch in self._batches for array in batch)


def _set_width(table: Array, width: int) -> Array:
    if table.shape[1] == width:
        return table
    return np.pad(table[:, :width], ((0, 0), (0, max(0, width - table.shape[1]))))


class RowBuffer(Serializable):
    """A few hundred rows, the newest ones, with the numbers of their (most likely) classes."""

    def __init__(self) -> None:
        self._tables: list[tuple[Table, Labels]] = []
        self._rows: list[tuple[Mapping[Any, Any], int]] = []  # behind the tables
        self._most = _MAX_ROWS

    def add_row(self, x: Mapping[Any, Any], label: int) -> None:
        self._rows.append((x, label))
        self._most = _MAX_ROWS
        if len(self._rows) >= 2 * _MAX_ROWS:
            self._tables, self._rows = [], self._rows[-_MAX_ROWS:]

    def add(self, table: Table, labels: Labels) -> None:
        """Keep the end of a table."""
        width, features = len(table.columns), table.features
        if features is not None:
            n_values = features.nnz if isinstance(features, SparseRows) else features.size
            width += n_values // max(1, len(features))
        self._most = max(1, min(_MAX_ROWS, _MAX_VALUES // max(1, width)))
        last = np.arange(max(0, len(table) - self._most), len(table))  # copies the rows
        if self._rows:
            self._collect_rows()
        self._tables.append((table.take(last), labels[last]))
        while sum(len(later) for later, _ in self._tables[1:]) >= self._most:
            self._tables.pop(0)

    def _collect_rows(self) -> None:
        """Make a table of mappings, in which gaps do not decide of what kind a column is."""
        if not self._rows:
            return
        rows = [
            {str(name): value for name, value in row.items() if format_cell(value) is not None}
            for row, _ in self._rows
        ]
        table = table_from_records(rows, range(1, len(rows) + 1))
        self._tables.append((table, np.array([label for _, label in self._rows])))
        self._rows = []

    def rows(self) -> tuple[Table, Labels]:
        """Return the last rows as one table, and their classes, however they came."""
        self._collect_rows()
        tables = [table for table, _ in self._tables]
        labels = np.concatenate([np.empty(0, np.int64), *(labels for _, labels in self._tables)])
        last = slice(max(0, len(labels) - self._most), len(labels))
        table = Table.concat(tables).take(last)
        columns = {
            name: TextColumn.of(column.to_list()) if isinstance(column, TextColumn) else column
            for name, column in sorted(table.columns.items())
            if not is_missing(column).all()
        }
        return Table(columns, np.arange(1, len(table) + 1), table.features), labels[last]

    @property
    def n_bytes(self) -> int:
        n_bytes = sum(sum(map(getsizeof, (*row, *row.values()))) for row, _ in self._rows)
        for table, _ in self._tables:
            n_bytes += 8 * len(table) * len(table.columns)
            for column in table.columns.values():
                if isinstance(column, TextColumn):
                    n_bytes += sum(map(getsizeof, column.values))
            if isinstance(table.features, SparseRows):
                n_bytes += 16 * table.features.nnz
            elif table.features is not None:
                n_bytes += table.features.nbytes
        return n_bytes

    def to_record(self) -> Record:
        table, labels = self.rows()
        record = Record("RowBuffer", {"columns": [], "most": self._most}, {"labels": labels})
        for i, (name, column) in enumerate(table.columns.items()):
            kind: Any = list(column.values) if isinstance(column, TextColumn) else None
            array: Any = column.codes if isinstance(column, TextColumn) else column
            if array.dtype.kind == "M":
                array, kind = array.astype(np.int64), "date"
            record.config["columns"].append([name, kind])
            record.arrays[f"column{i}"] = array
        if isinstance(table.features, SparseRows):
            record.arrays.update(table.features.arrays("features."))
        elif table.features is not None:
            record.arrays["matrix"] = table.features
        return record

    def _restore(self, record: Record) -> None:
        self._most = record.count("most", 1)
        labels = record.part("labels", (None,), np.int64, least=0)
        T, columns = len(labels), dict[str, Column]()
        features: Any = None
        for i, (name, kind) in enumerate(record.word("columns")):
            columns[str(name)] = _read_column(record, f"column{i}", T, kind)
        if "matrix" in record.arrays:
            features = record.part("matrix", (T, None), gaps=True)
        elif "features.indptr" in record.arrays:
            features = SparseRows.of_arrays(record.arrays, "features.")
            if len(features) != T:
                raise StateFileError("recent rows have other features than labels")
        self._tables = [(Table(columns, np.arange(1, T + 1), features), labels)] if T else []

    def __getstate__(self) -> dict[str, Any]:
        self._collect_rows()  # so that the bytes do not depend on what was read before
        return self.__dict__


def _read_column(record: Record, name: str, n_rows: int, kind: Any) -> Column:
    if kind == "date":
        return record.part(name, (n_rows,), np.int64).astype("datetime64[us]")
    if kind is None:
        return record.part(name, (n_rows,), gaps=True)
    codes = record.part(name, (n_rows,), np.int32, least=-1, most=len(kind) - 1)
    if not all(isinstance(text, str) for text in kind):
        raise StateFileError(f"{name} of recent rows has values that are no text")
    return TextColumn(codes, tuple(kind))


class PlaceFinder:
    """The places of keys while rows are encoded: known ones, and new ones behind them."""

    def __init__(self, known: Mapping[Key, int], n_own: Mapping[str, int]) -> None:
        self._known, self._n_own = known, dict(n_own)
        self.new: dict[Key, tuple[int, int]] = {}  # their places, and the rows that need them first

    def find(self, key: Key, row: int = 0) -> int:
        place = self._known.get(key)
        if place is None:
            place, _ = self.new.setdefault(key, (len(self._known) + len(self.new), row))
        return place

    def find_number(self, key: Key, values: Array) -> int | None:
        """Return the place of numbers, None if they have none and are all missing."""
        first = int(np.isnan(values).argmin()) if len(values) else 0
        is_present = key in self._known or (len(values) and not np.isnan(values[first]))
        return self.find(key, first) if is_present else None

    def find_category(self, source: str, category: str, row: int) -> int:
        key = (source, category)
        if key not in self._known and key not in self.new:
            n_own = self._n_own.get(source, 0)
            if n_own >= MOST_OWN or category.startswith("#"):
                return self.find((source, shared_part(category)), row)
            self._n_own[source] = n_own + 1
        return self.find(key, row)

    def order_keys(self) -> tuple[list[Key], Any, int]:
        """Return new keys as rows need them, the order of all places if it changes, `n_first`."""
        n, rows = len(self._known), [row for _, row in self.new.values()]
        keys = sorted(self.new, key=lambda key: self.new[key][1])
        order = None if rows == sorted(rows) else [*range(n), *(self.new[key][0] for key in keys)]
        return keys, order, n + rows.count(0)


def shared_part(category: str) -> str:
    return f"#{place_of(category) % SHARED}"
