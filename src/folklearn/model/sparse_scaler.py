"""Wide rows made comparable without making them dense: words, hashed categories, numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRows, concatenate, index_type

SPACE = 2**40  # places that belong to one column of the data; a hash or an index lies within
_MOST_SLOTS = 2**22 - 1  # `SparseSgd` has 2^62 places
_CONSTANT = 0.3  # beside rows of norm 1: larger ones slow the words down


@dataclass(frozen=True)
class SparseInput:
    """Raw rows of a wide model: every column of the data has a slot, counted from 1.

    numbers : (T, m), NaN where missing, and `slots` (m,) of them.
    parts : for every other slot what is not 0 there, by its place within the column.
    """

    numbers: Array
    slots: tuple[int, ...]
    parts: dict[int, SparseRows]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: Any) -> "SparseInput":
        parts = {slot: rows[which] for slot, rows in self.parts.items()}
        return SparseInput(self.numbers[which], self.slots, parts)

    @classmethod
    def joined(cls, parts: Sequence["SparseInput"]) -> "SparseInput":
        """Return the rows of several one after the other; a slot that one lacks is empty there."""
        widest = max(parts, key=lambda part: len(part.slots))
        numbers = np.full((sum(map(len, parts)), len(widest.slots)), np.nan)
        start = 0
        for part in parts:
            numbers[start : start + len(part), : len(part.slots)] = part.numbers
            start += len(part)
        found = {}
        for slot in sorted({slot for part in parts for slot in part.parts}):
            width = max(part.parts[slot].shape[1] for part in parts if slot in part.parts)
            rows = [
                part.parts[slot] if slot in part.parts else _empty(len(part), width)
                for part in parts
            ]
            found[slot] = concatenate(rows)
        return cls(numbers, widest.slots, found)

    def of_slots(self, n_slots: int) -> "SparseInput":
        """Return the rows without the columns behind the first so many."""
        if max([*self.slots, *self.parts], default=0) <= n_slots:
            return self
        known = [j for j, slot in enumerate(self.slots) if slot <= n_slots]
        parts = {slot: rows for slot, rows in self.parts.items() if slot <= n_slots}
        return SparseInput(self.numbers[:, known], tuple(self.slots[j] for j in known), parts)

    def values_by_place(self, n_places: int) -> Array:
        """Return (T, n_places): the numbers, and 1 where any other column has a value."""
        values = np.zeros((len(self), n_places))
        values[:, [slot - 1 for slot in self.slots]] = self.numbers
        for slot, rows in self.parts.items():
            values[:, slot - 1] = np.diff(rows.indptr) > 0
        return values

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        found: dict[str, NDArray[Any]] = {"numbers": self.numbers, "slots": np.array(self.slots)}
        for slot, rows in self.parts.items():
            found |= rows.arrays(f"part.{slot}.")
        return found

    @classmethod
    def of_arrays(cls, arrays: dict[str, Any]) -> "SparseInput":
        """Return what `arrays` gave."""
        slots = sorted({int(name.split(".")[1]) for name in arrays if name.startswith("part.")})
        parts = {slot: SparseRows.of_arrays(arrays, f"part.{slot}.") for slot in slots}
        return cls(arrays["numbers"], tuple(arrays["slots"].astype(int).tolist()), parts)

    def has_sizes(self, n_rows: int, n_slots: int) -> bool:
        """Tell whether these are `n_rows` rows of at most `n_slots` columns of the data."""
        slots = [*self.slots, *self.parts]
        validation.contexts(self.numbers, len(self.slots), gaps=True)
        sizes = {len(self.numbers), *map(len, self.parts.values())}
        widest = max([rows.shape[1] for rows in self.parts.values()], default=0)
        known = len(set(slots)) == len(slots) and all(1 <= slot <= n_slots for slot in slots)
        return sizes == {n_rows} and known and widest <= SPACE

    @classmethod
    def of_rows(cls, X: SparseRows) -> "SparseInput":
        """Return rows that are all there is: one column of the data."""
        return cls(np.empty((len(X), 0)), (), {1: X})


class SparseScaler(Serializable):
    r"""Give every column of the data the same length, and append a constant; what is 0 stays 0.

    Words, hashed categories and sparse features are divided by their norm in the row: a text that
    is long says no more than a short one. Numbers are standardised as by `OnlineScaler`, at unit
    length. With c columns all of it is divided by :math:`\sqrt c`, so that a row has a norm of
    about 1. The width costs nothing: slot s of the output begins at s 2^40, and the constant is
    the first place. A missing value is 0.

    Parameters
    ----------
    n_slots : number of columns of the data, numbers included.
    n_numbers : number of those that hold numbers.
    scale : False leaves the values as they are.
    intercept : whether the constant, 0.3 (1 without `scale`), is there.

    Examples
    --------
    >>> from folklearn.sparse import SparseRows
    >>> scaler = SparseScaler(n_slots=1)
    >>> Z = scaler.transform(SparseInput.of_rows(SparseRows.of([[0.0, 3.0, 0.0, 4.0]])))
    >>> (Z.row(0).indices - SPACE).tolist()[1:], Z.row(0).values
    ([1, 3], array([0.3, 0.6, 0.8]))
    """

    PARAMS = ("n_slots", "n_numbers", "scale", "intercept")

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        return validation.count("n_numbers", words["n_numbers"], 0)

    def __init__(
        self, *, n_slots: int, n_numbers: int = 0, scale: bool = True, intercept: bool = True
    ) -> None:
        self.n_slots = validation.count("n_slots", n_slots, 1, _MOST_SLOTS)
        self.n_numbers = validation.count("n_numbers", n_numbers, 0, self.n_slots)
        self.scale, self.intercept = bool(scale), bool(intercept)
        self._numbers: OnlineScaler | None = None
        self._grow_numbers(self.n_numbers)

    @property
    def n_columns(self) -> int:
        """The number of columns of the output."""
        return (self.n_slots + 1) * SPACE

    @property
    def place(self) -> int:
        """The column of the constant, if there is one."""
        return 0

    @property
    def constant(self) -> float:
        """The value of the constant."""
        return _CONSTANT if self.scale else 1.0

    @property
    def unit(self) -> float:
        """The length that every column of the data has."""
        return 1.0 / float(np.sqrt(self.n_slots)) if self.scale else 1.0

    def grow(self, n_slots: int, n_numbers: int) -> None:
        """Make room for columns that were missing in every row so far."""
        self.n_slots = validation.count("n_slots", n_slots, self.n_slots)
        self._grow_numbers(validation.count("n_numbers", n_numbers, self.n_numbers))

    def _grow_numbers(self, n_numbers: int) -> None:
        self.n_numbers = n_numbers
        if self._numbers is not None:
            self._numbers.grow(n_numbers)
        elif n_numbers:
            self._numbers = OnlineScaler(
                n_features=n_numbers, scale=self.scale, intercept=False, gaps=True
            )

    def transform(self, X: SparseInput) -> SparseRows:
        """Return rows scaled as if each came next; nothing is remembered."""
        return self._assembled(X, learn=False)

    def learn_transform(self, X: SparseInput) -> SparseRows:
        """Take in the numbers of row after row, and return the rows scaled."""
        return self._assembled(X, learn=True)

    learn_checked = learn_transform

    def _assembled(self, X: SparseInput, learn: bool) -> SparseRows:
        numbers = np.zeros((len(X), len(X.slots)))
        if self._numbers is not None and X.slots:
            scaler = self._numbers
            Z = scaler.learn_transform(X.numbers) if learn else scaler.transform(X.numbers)
            # The scaler divides by the root of the numbers it began with.
            numbers = Z * (self.unit / scaler.unit)
        constant = self.constant if self.intercept else None
        return assemble(X, numbers, self.unit if self.scale else None, constant, self.n_columns)

    def to_record(self) -> Record:
        """Return the full state as a record."""
        record = super().to_record()
        if self._numbers is not None:
            put_inside(record, "numbers", self._numbers)
        return record

    def _restore(self, record: Record) -> None:
        if self.n_numbers:
            self._numbers = record.inner("numbers", OnlineScaler)


def assemble(
    X: SparseInput, numbers: Array, share: float | None, constant: float | None, n_columns: int
) -> SparseRows:
    """Put the slots of raw rows side by side, in order of their places.

    `numbers` (T, m) stand for those of X. Other parts are brought to the length `share` in every
    row, None leaves them as they are; the constant, if there is one, is the first place.
    """
    parts = {slot: _of_length(rows, share) for slot, rows in X.parts.items()}
    for j, slot in enumerate(X.slots):
        parts[slot] = _column(numbers[:, j])
    if constant is not None:
        parts[0] = _column(np.full(len(X), constant))
    return _side_by_side([(slot, parts[slot]) for slot in sorted(parts)], len(X), n_columns)


def _of_length(rows: SparseRows, share: float | None) -> SparseRows:
    own = rows.compact()
    if share is None:
        return own
    norms = own.norms()
    factors = share * np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0.0)
    values = own.values * np.repeat(factors, np.diff(own.indptr))
    return SparseRows(own.indptr, own.indices, values, own.shape[1])


def _empty(n_rows: int, width: int) -> SparseRows:
    none: NDArray[Any] = np.empty(0, index_type(width))
    return SparseRows(np.zeros(n_rows + 1, np.int64), none, np.empty(0), width)


def _column(values: Array) -> SparseRows:
    """Return what is not 0 of a column of numbers, as rows of width 1."""
    there = values != 0.0
    indptr = np.concatenate([[0], np.cumsum(there)])
    return SparseRows(indptr, np.zeros(indptr[-1], np.int32), values[there], 1)


def _side_by_side(parts: list[tuple[int, SparseRows]], n_rows: int, n_columns: int) -> SparseRows:
    """Return rows that hold, one behind the other, what the slots hold."""
    counts = np.array([np.diff(rows.indptr) for _, rows in parts]).reshape(len(parts), n_rows)
    indptr = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    starts = indptr[:-1] + np.cumsum(counts, axis=0) - counts
    indices: NDArray[Any] = np.empty(indptr[-1], index_type(n_columns))
    values = np.empty(indptr[-1])
    for (slot, rows), start, count in zip(parts, starts, counts, strict=True):
        places = np.repeat(start - rows.indptr[:-1], count) + np.arange(rows.nnz)
        indices[places] = rows.indices + np.int64(slot) * SPACE
        values[places] = rows.values
    return SparseRows(indptr, indices, values, n_columns)
