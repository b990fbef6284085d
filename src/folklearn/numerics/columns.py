"""Columns that occurred: an open hash table from the number of a column to its place.

However wide rows may be, state is kept for the columns that occurred, in order of appearance.
Keys are columns + 1, and 0 where there is none; at most half of them are taken, so that a
search is short.
"""

import numpy as np
from numpy.typing import NDArray

from folklearn.numerics.compile import kernel
from folklearn.sparse import Indices

_LEAST = 1024  # keys


@kernel
def _first(column, n_keys):
    """Return where the search for a column begins; n_keys is a power of 2."""
    # Shifts alone (Marsaglia 2003): a product would overflow, which plain Python complains of.
    mixed = np.uint64(column)
    mixed ^= mixed >> np.uint64(12)
    mixed ^= mixed << np.uint64(25)
    mixed ^= mixed >> np.uint64(27)
    return np.int64(mixed & np.uint64(n_keys - 1))


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
def find(keys, places, indices, found):
    """Write the places of columns, -1 for those that never occurred."""
    n_keys = keys.shape[0]
    for a in range(indices.shape[0]):
        column = np.int64(indices[a]) + 1
        at = _first(column, n_keys)
        while keys[at] != 0 and keys[at] != column:
            at = (at + 1) & (n_keys - 1)
        found[a] = places[at] if keys[at] != 0 else -1


@kernel
def enter(keys, places, columns, n, indices, found):
    """Write the places of columns, entering new ones after the first n; return how many now.

    There must be room: keys for twice as many, and `columns` for all.
    """
    n_keys = keys.shape[0]
    for a in range(indices.shape[0]):
        column = np.int64(indices[a]) + 1
        at = _first(column, n_keys)
        while keys[at] != 0 and keys[at] != column:
            at = (at + 1) & (n_keys - 1)
        if keys[at] == 0:
            keys[at] = column
            places[at] = n
            columns[n] = column - 1
            n += 1
        found[a] = places[at]
    return n


class Columns:
    """The columns that occurred, and their places; `n` of them."""

    def __init__(self) -> None:
        self.n = 0
        self._keys = np.zeros(_LEAST, np.int64)
        self._places = np.empty(_LEAST, np.int64)
        self._columns = np.empty(_LEAST // 2, np.int64)

    @classmethod
    def of(cls, columns: NDArray[np.int64]) -> "Columns":
        """Return these columns, each at its place."""
        own = cls()
        own.enter(columns)
        return own

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns (n,) in order of appearance."""
        return self._columns[: self.n]

    @property
    def room(self) -> int:
        """How many columns there is room for."""
        return len(self._columns)

    @property
    def table(self) -> tuple[NDArray[np.int64], ...]:
        """Keys, places and columns, for kernels that call `find` and `enter`."""
        return self._keys, self._places, self._columns

    @property
    def n_bytes(self) -> int:
        """The memory that the table takes."""
        return self._keys.nbytes + self._places.nbytes + self._columns.nbytes

    def make_room(self, n: int) -> None:
        """Make room for n columns in all."""
        if n <= self.room:
            return
        size = len(self._keys)
        while size // 2 < n:
            size *= 2
        before = self.columns.copy()
        self._keys = np.zeros(size, np.int64)
        self._places = np.empty(size, np.int64)
        self._columns = np.empty(size // 2, np.int64)
        enter(self._keys, self._places, self._columns, 0, before, np.empty(len(before), np.int64))

    def find(self, indices: Indices) -> NDArray[np.int64]:
        """Return the places of columns, -1 for those that never occurred."""
        found = np.empty(len(indices), np.int64)
        find(self._keys, self._places, indices, found)
        return found

    def enter(self, indices: Indices) -> NDArray[np.int64]:
        """Return the places of columns; new ones are entered."""
        self.make_room(self.n + len(indices))
        found = np.empty(len(indices), np.int64)
        self.n = int(enter(self._keys, self._places, self._columns, self.n, indices, found))
        return found
