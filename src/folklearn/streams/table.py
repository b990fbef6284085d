"""What every source of examples offers: named columns, labels as text, blocks of rows."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError
from folklearn.model.hashing import DEFAULT_BUCKETS, TextHasher

Texts = Sequence[str | None]  # None is missing


@dataclass(frozen=True)
class Layout:
    """How columns become inputs: the numbers in their order, then the buckets of all text.

    Parameters
    ----------
    columns : names of all features.
    text : those of them that hold text.
    n_buckets : number of inputs that all text together becomes, if there is any.
    guessed : those of the columns of numbers of which no value was seen when that was decided.
    """

    columns: tuple[str, ...]
    text: tuple[str, ...] = ()
    n_buckets: int = DEFAULT_BUCKETS
    guessed: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[str, ...]:
        """The columns of numbers."""
        return tuple(column for column in self.columns if column not in self.text)

    @property
    def n_inputs(self) -> int:
        """The number of inputs."""
        buckets = self.n_buckets if self.text else 0
        return len(self.columns) - len(self.text) + buckets

    def inputs(
        self, numbers: Sequence[Sequence[float] | NDArray[np.float64]], texts: Sequence[Texts]
    ) -> NDArray[np.float64]:
        """Return the inputs (T, n_inputs) of T rows: their numbers, and their texts if any."""
        X = np.array(numbers, dtype=np.float64).reshape(len(numbers), len(self.numeric))
        if not self.text:
            return X
        by_column = zip(*texts, strict=True) if texts else [()] * len(self.text)
        hasher = TextHasher(self.n_buckets)
        return np.hstack([X, hasher.columns(dict(zip(self.text, by_column, strict=True)))])


class LaidOut:
    """What has columns that become inputs; they may grow more."""

    _layout: Layout

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the features."""
        return self._layout.columns

    @property
    def text(self) -> tuple[str, ...]:
        """Those of the features that hold text."""
        return self._layout.text

    @property
    def n_inputs(self) -> int:
        """The number of columns of X."""
        return self._layout.n_inputs


class Block(NamedTuple):
    """Rows that were read: X (T, d), class numbers y (T,) and weights (T,), None if all are 1.

    X are inputs (see `Layout`), a number that is missing being NaN. A row whose label was not
    asked for has the class number -1.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    weight: NDArray[np.float64] | None


class Weights(NamedTuple):
    """What is known of the weights of a table in which not all of them are 1."""

    total: float
    largest: float
    first_line: int  # of a weight that is not 1


class Table(Protocol):
    """Rows of numbers and text with a class label each, read in order, as often as needed."""

    @property
    def name(self) -> str:
        """What messages call this table."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the features."""

    @property
    def text(self) -> tuple[str, ...]:
        """Those of the columns that hold text, which is hashed."""

    @property
    def n_inputs(self) -> int:
        """The number of columns of X: the columns of numbers, and the buckets of the text."""

    @property
    def missing(self) -> Mapping[str, int]:
        """For every column that has gaps, the number of them."""

    @property
    def target(self) -> str:
        """The name of the column that holds the labels."""

    @property
    def first_lines(self) -> Mapping[str, int]:
        """For every label that occurs, the line where it occurs first."""

    @property
    def n_rows(self) -> int:
        """The number of examples."""

    @property
    def weights(self) -> Weights | None:
        """The weights of the examples, or None if all of them are 1."""

    @property
    def sparse(self) -> bool:
        """Whether a row names only what is not 0, so that a column may never occur."""

    @property
    def unit(self) -> str:
        """What `first_lines` counts: lines, or rows."""

    @property
    def note(self) -> str:
        """What was found out about the file and deserves to be said, or nothing."""

    def blocks(
        self, columns: Sequence[str], labels: Sequence[str], sizes: Iterable[int]
    ) -> Iterator[Block]:
        """Yield blocks of `sizes` rows each, until the rows end.

        X holds the given columns in the given order, text last and hashed; y is the position
        in `labels`.
        """


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels: by value if all of them are numbers, else as text.

    >>> in_order(["10", "9", "-1"]), in_order(["10", "9", "b"])
    (('-1', '9', '10'), ('10', '9', 'b'))
    """
    labels = list(labels)
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return tuple(sorted(labels))
    if not all(map(math.isfinite, values)):
        return tuple(sorted(labels))
    return tuple(label for _, label in sorted(zip(values, labels, strict=True)))


def classes(table: Table) -> tuple[str, ...]:
    """Return the labels of a table in order; a table of fewer than two is refused."""
    labels = in_order(table.first_lines)
    if len(labels) < 2:
        raise InvalidInputError(
            f"column {table.target!r} of {table.name} has only the label {labels[0]!r}; "
            "learning needs at least two classes"
        )
    return labels
