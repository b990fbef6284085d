"""Features by name, numbers or text, as columns that are opened when they are needed."""

import math
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.hashing import TextHasher


@dataclass(frozen=True)
class Bucket:
    """What a column of hashed text goes by; equal to no name of a feature."""

    number: int


class Columns:
    """The columns of a model, by the names of the features.

    A number lies in the column of its feature. A text adds its sign to the column of its
    bucket, which it shares with other texts, also of other features (`TextHasher`). Reading
    an example opens no column: `admit` does, once the example was learned.
    """

    def __init__(self, n_buckets: int) -> None:
        self.keys: list[Hashable] = []  # names of features, and buckets, by column
        self.places: dict[Hashable, int] = {}
        self._hasher = TextHasher(n_buckets)
        # How an example of so many features, all of them numbers, becomes a row: its values by
        # column, in this format. -1 while there are not two columns.
        self._size = -1
        self._values: Callable[[Any], tuple[Any, ...]] = tuple
        self._format = ""

    def __len__(self) -> int:
        return len(self.keys)

    def admit(self, keys: Iterable[Hashable]) -> None:
        """Open columns, behind those that are there."""
        for key in keys:
            self.places[key] = len(self.keys)
            self.keys.append(key)
        if len(self.keys) > 1:  # for one key it would return no tuple
            self._size = len(self.keys)
            self._values = itemgetter(*self.keys)
            self._format = f"{self._size}d"

    def row(self, x: Mapping[Any, Any]) -> tuple[Array, Sequence[Hashable]]:
        """Return an example by column, and the keys, in order, of columns not there yet."""
        if type(x) is dict and len(x) == self._size:
            row: Any = np.empty(self._size)
            try:  # the way of nearly all examples; it takes numbers, not text
                struct.pack_into(self._format, row, 0, *self._values(x))
                return row, ()
            except Exception:  # another feature, a gap, text, or what no number can be made of
                pass  # is looked at below, value by value
        if not isinstance(x, Mapping):
            raise InvalidInputError(f"x must be a dictionary of features, got {x!r}")
        cells = [
            (name, value) if type(value) is float else self._cell(name, value)
            for name, value in x.items()
        ]
        new = sorted({key for key, _ in cells if key not in self.places}, key=_order)
        places = self._with(new)
        values = [0.0] * max(1, len(places))
        for key, value in cells:
            values[places[key]] += value
        return np.array(values), [_plain(key) for key in new]

    def rows(self, frame: nw.DataFrame[Any]) -> tuple[Array, Sequence[Hashable], int]:
        """Return a data frame by column, the keys of columns not there yet, in order, and how
        many of those the first row needs.

        They are in the order in which `row`, one row after the other, would ask for them.
        """
        whole: dict[Hashable, Any] = {}
        cells: list[tuple[int, Hashable, float]] = []
        for name, series in zip(frame.columns, frame.iter_columns(), strict=True):
            if series.dtype.is_numeric() or series.dtype == nw.Boolean:
                whole[name] = series.cast(nw.Float64).to_numpy()
                continue
            gaps = series.is_null().to_list()
            for t, (value, gap) in enumerate(zip(series.to_list(), gaps, strict=True)):
                cells.append((t, *self._cell(name, None if gap else value)))
        first = dict.fromkeys(whole, 0)  # the row that needs a column first
        for t, key, _ in cells:
            first[key] = min(t, first.get(key, t))
        new = [key for key in first if key not in self.places]
        new.sort(key=lambda key: (first[key], _order(key)))
        places = self._with(new)
        rows = np.zeros((len(frame), max(1, len(places))))
        for key, values in whole.items():
            rows[:, places[key]] = values
        for t, key, value in cells:
            rows[t, places[key]] += value
        return rows, [_plain(key) for key in new], sum(first[key] == 0 for key in new)

    def known(self, rows: Array) -> Array:
        """Return rows, or one row, without the columns that are not there yet."""
        known = np.zeros((*rows.shape[:-1], max(1, len(self.keys))))
        known[..., : len(self.keys)] = rows[..., : len(self.keys)]
        return known

    def _with(self, new: Sequence[Hashable]) -> dict[Hashable, int]:
        if not new:
            return self.places
        return self.places | {key: len(self.keys) + i for i, key in enumerate(new)}

    def _cell(self, name: Hashable, value: Any) -> tuple[Hashable, float]:
        """Return in which column a value counts, and how much."""
        if isinstance(value, str):
            bucket, sign = self._hasher.place(name, str.__str__(value))
            return Bucket(bucket), sign
        return name, _number(name, value)


def _number(name: Hashable, value: Any) -> float:
    """Return the value of a feature as a float; NaN if it is missing."""
    if value is None:
        return math.nan
    try:
        if isinstance(value, complex | np.complexfloating):
            raise TypeError
        return math.fsum([value])  # `float` would take bytes for numbers
    except OverflowError:
        raise InvalidInputError(f"feature {name!r} is an integer too large for a float") from None
    except Exception:
        raise InvalidInputError(f"feature {name!r} is {value!r}, not a number or text") from None


def _order(key: Hashable) -> tuple[str, str]:
    """Return what sorts new keys, so that their order does not depend on that of the example.

    They may be of types that do not compare, or only in part, as sets do.
    """
    if key != key:
        raise InvalidInputError(f"a feature cannot be called {key!r}")
    plain = _plain(key)
    return type(plain).__qualname__, repr(plain)


def _plain(key: Hashable) -> Hashable:
    """Return a name that NumPy made as the equal one of Python."""
    return key.item() if isinstance(key, np.str_ | np.number | np.bool_) else key
