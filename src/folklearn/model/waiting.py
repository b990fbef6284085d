"""Rows that were predicted, and whose labels will be told later."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.serialization import Record, Serializable


class Asked(NamedTuple):
    """A row, what was predicted for the classes known then, and for one that was not."""

    x: dict[str, Any]
    p: Array
    unseen: float


class Waiting(Serializable):
    """Rows by number, in the order in which they were asked for."""

    COUNTERS = ("_n_asked",)

    def __init__(self) -> None:
        self._n_asked = 0
        self._rows: dict[int, Asked] = {}

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the rows that wait."""
        return tuple(self._rows)

    def add(self, row: Asked) -> int:
        """Keep a row; return its number."""
        self._n_asked += 1
        self._rows[self._n_asked] = row
        return self._n_asked

    def find(self, number: int) -> Asked:
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
        self._rows = {int(n): Asked(dict(x), np.array(p), u) for n, x, p, u in record.word("rows")}


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
