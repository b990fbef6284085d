"""Columns that occurred: an open hash table from the number of a column to its place.

However wide rows may be, state is kept for the columns that occurred, in order of appearance.
Keys are columns + 1, and 0 where there is none; at most half of them are taken, so that a
search is short.
"""

import numpy as np
from numpy.typing import NDArray

from folklearn.kernels.compile import kernel
from folklearn.sparse import Indices

_MIN_KEYS = 1024  # a power of 2


@kernel
def in_order(indices, values, n_features):
    """Tell whether a row is as `SparseRow` says: places in order, each once, no value 0."""
    before = -1
    for a in range(indices.shape[0]):
        if indices[a] <= before or values[a] == 0.0:
            return False
        before = indices[a]
    return before < n_features


@kernel
def _search(keys, column):
    """Return where the key of a column is, or would be."""
    # Shifts alone (Marsaglia 2003): a product would overflow, which plain Python complains of.
    mixed = np.uint64(column + 1)
    mixed ^= mixed >> np.uint64(12)
    mixed ^= mixed << np.uint64(25)
    mixed ^= mixed >> np.uint64(27)
    at = np.int64(mixed & np.uint64(keys.shape[0] - 1))  # the number of keys is a power of 2
    while keys[at] != 0 and keys[at] != column + 1:
        at = (at + 1) & (keys.shape[0] - 1)
    return at


@kernel
def find(keys, places, indices, positions):
    """Write the places of columns, -1 for those that never occurred."""
    for a in range(indices.shape[0]):
        at = _search(keys, np.int64(indices[a]))
        positions[a] = places[at] if keys[at] != 0 else -1


@kernel
def enter(keys, places, columns, count, indices, positions):
    """Write the places of columns, entering new ones, for which there must be room."""
    for a in range(indices.shape[0]):
        column = np.int64(indices[a])
        at = _search(keys, column)
        if keys[at] == 0:
            columns[count[0]] = column
            places[at] = count[0]
            keys[at] = column + 1
            count[0] += 1
        positions[a] = places[at]


class Columns:
    """The columns that occurred, and their places; `n` of them."""

    def __init__(self, room: int = _MIN_KEYS // 2) -> None:
        size = max(_MIN_KEYS, 2 ** (2 * room - 1).bit_length())
        self._keys = np.zeros(size, np.int64)
        self._places = np.empty(size, np.int64)
        self._columns = np.empty(size // 2, np.int64)
        self._count = np.zeros(1, np.int64)

    @classmethod
    def of(cls, columns: NDArray[np.int64], room: int = 0) -> "Columns":
        """Return these columns, each at its place, and `room` for more."""
        entered = cls(max(room, len(columns)))
        enter(*entered.table, columns, np.empty(len(columns), np.int64))
        return entered

    @property
    def n(self) -> int:
        return int(self._count[0])

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns (n,) in order of appearance."""
        return self._columns[: self.n]

    @property
    def room(self) -> int:
        return len(self._columns)

    @property
    def table(self) -> tuple[NDArray[np.int64], ...]:
        """Keys, places, columns and their number, for kernels that call `find` and `enter`."""
        return self._keys, self._places, self._columns, self._count

    @property
    def n_bytes(self) -> int:
        return self._keys.nbytes + self._places.nbytes + self._columns.nbytes

    def with_room(self, n: int) -> "Columns":
        """Return the same columns with room for n in all; this one, if it has."""
        return self if n <= self.room else Columns.of(self.columns, n)

    def n_with(self, indices: Indices) -> int:
        return self.n + len(np.unique(indices[self.find(indices) < 0]))

    def find(self, indices: Indices) -> NDArray[np.int64]:
        """Return the places of columns, -1 for those that never occurred."""
        positions = np.empty(len(indices), np.int64)
        find(self._keys, self._places, indices, positions)
        return positions

    def enter(self, indices: Indices) -> NDArray[np.int64]:
        """Return the places of columns; new ones are entered, and room is made for them."""
        if self.n + len(indices) > self.room:
            vars(self).update(vars(self.with_room(self.n_with(indices))))
        positions = np.empty(len(indices), np.int64)
        enter(*self.table, indices, positions)
        return positions
