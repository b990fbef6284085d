"""What evidence of either order shares: sums over rows that lie below the losses of models."""

import math
import os
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import serialization, validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.certificate import Certificate, scope_of_growth
from folklearn.evidence.map_reduce import Engine
from folklearn.kernels.evidence import DEPTH, N_TOTALS, ROUNDS, WEIGHT
from folklearn.serialization import Record, Serializable
from folklearn.validation import Rows

_ROUNDING_UP = 2.0**-52  # relative, for every term of a sum of losses


class LowerBound(Serializable, ABC):
    """A sum over rows; a kind of evidence brings where it is kept, and its least value."""

    PARAMS = ("n_features", "n_classes", "B")
    COUNTERS = ("_first_classes",)

    def __init__(self, *, n_features: int, n_classes: int, B: float = 10.0) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.B = validation.positive("B", B)
        self._first_classes = self.n_classes
        self._totals: Array = np.zeros(N_TOTALS)

    def add(
        self,
        X: Any,
        y: ArrayLike,
        *,
        at: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        n_jobs: int = 1,
    ) -> None:
        """Add rows X (T, d) with labels (T,) or soft labels (T, K), expanded at model ``at``.

        X may be a sparse array of SciPy; ``at`` is W (K, d), by default 0. Many rows at once are
        shared by `n_jobs` threads, -1 for as many as there are cores, with the same sums to the
        last bit on one machine and build (`Tangents` are added by one: to merge their columns would
        take longer). Everything is checked before anything is added, and all rows are, or none.
        """
        engine = Engine.chosen(n_jobs)
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        rows = Rows.checked(X, y, weight, **sizes)
        W = None if at is None else validation.model("at", at, self.n_classes, self.n_features)
        self._add(rows, W, engine)

    @abstractmethod
    def _add(self, rows: Rows, W: Array | None, engine: Engine) -> None:
        """Add checked rows, expanded at W, or at 0; all of them or none."""

    @abstractmethod
    def least(self, *, B: float | None = None) -> tuple[float, Array]:
        """Return the floor, and the model (K, d) of the class at which it is nearly reached."""

    @abstractmethod
    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d) of the class."""

    @abstractmethod
    def _sum(self, other: Self) -> Self:
        """Return a new sum of both, but for totals."""

    def __add__(self, other: Self) -> Self:
        """Return the evidence of both sets of rows."""
        if type(other) is not type(self):
            return NotImplemented
        sizes = (self.n_features, self.n_classes, self.B)
        theirs = (other.n_features, other.n_classes, other.B)
        if sizes != theirs:
            raise InvalidInputError(
                "evidence is added up only for the same problem and class: "
                f"(n_features, n_classes, B) is {sizes} and {theirs}; see `grown`"
            )
        both = self._sum(other)
        both._first_classes = self._first_classes if self.n_rounds else other._first_classes
        if other.n_rounds:
            both._first_classes = min(both._first_classes, other._first_classes)
        both._totals = merged(self._totals, other._totals)
        return both

    @abstractmethod
    def _scaled(self, factor: float) -> Self:
        """Return a new sum with everything multiplied, but for totals."""

    def __mul__(self, factor: float) -> Self:
        """Return the evidence with all weights multiplied by a factor from 0 to 1."""
        factor = validation.fraction("factor", factor, 1.0)
        scaled = self._scaled(factor)
        scaled._first_classes = self._first_classes
        scaled._totals = factor * self._totals
        scaled._totals[DEPTH] = self._totals[DEPTH] + 1.0
        scaled._totals[ROUNDS] = self._totals[ROUNDS]
        return scaled

    __rmul__ = __mul__

    def _like(self) -> Self:
        """Return a sum of no rows for the same problem."""
        return type(self)(n_features=self.n_features, n_classes=self.n_classes, B=self.B)

    def _larger(self, n_features: int | None, n_classes: int | None) -> Self:
        """Return a sum for a larger problem that holds nothing but totals."""
        larger = type(self)(
            n_features=validation.count(
                "n_features", n_features or self.n_features, self.n_features
            ),
            n_classes=validation.count("n_classes", n_classes or self.n_classes, self.n_classes),
            B=self.B,
        )
        larger._first_classes = self._first_classes
        larger._totals[:] = self._totals
        return larger

    @property
    def n_rounds(self) -> int:
        """The number of rows."""
        return int(self._totals[ROUNDS])

    @property
    def total_weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self._totals[WEIGHT])

    @property
    def n_bytes(self) -> int:
        """The memory that the sums take."""
        return sum(part.nbytes for part in self._parts().values())

    def floor(self, *, B: float | None = None) -> float:
        """Return a number that no model of row norm at most B has a total loss below."""
        return self.least(B=B)[0]

    def certificate(
        self, loss: float, W: ArrayLike | None = None, *, B: float | None = None
    ) -> Certificate:
        """Return what this evidence says about predictions whose total loss on its rows is `loss`.

        For every model of row norm at most B, by default the largest that this evidence
        covers; or for one W (K, d), which is never looser.
        """
        covered, _ = self._covered(W, B)
        least = self.floor(B=covered) if W is None else self.value(W)
        return Certificate(
            loss=loss,
            regret_bound=rounded_up(loss, self.n_rounds) - least,
            B=covered,
            n_rounds=self.n_rounds,
            scope=scope_of_growth(self._first_classes, self.n_classes),
        )

    @property
    def largest_B(self) -> float:
        """The largest row norm of models that this evidence covers."""
        return self.B

    def _covered(self, W: ArrayLike | None, B: float | None) -> tuple[float, float]:
        """Return the B of the class that is asked about, or that W belongs to, and W's square."""
        asked = self.B if W is None and B is None else B
        sizes = self.n_classes, self.n_features
        covered, square = validation.comparators(W, asked, self.largest_B, *sizes)
        if math.isinf(covered) and W is not None:
            covered = max(self.B, validation.longest_row(W))
        return covered, square

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        if not 2 <= self._first_classes <= self.n_classes:
            raise StateFileError(f"a state of {record.kind} has a bad number of first classes")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        found = serialization.load(path)
        if not isinstance(found, cls):
            raise StateFileError(
                f"{os.fspath(path)} holds a {type(found).__name__}: see folklearn.load"
            )
        return found

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_features={self.n_features}, n_classes={self.n_classes}, "
            f"B={self.B:g}; {self.n_rounds} rounds)"
        )


def merged(one: Array, other: Array) -> Array:
    """Return the totals (..., N_TOTALS) of two sets of rows whose sums were added."""
    both = one + other
    both[..., DEPTH] = np.maximum(one[..., DEPTH], other[..., DEPTH]) + 1.0
    return both


def rounded_up(loss: float, n_rounds: int) -> float:
    """Return a total loss that the sum of so many, each rounded, is certainly not above."""
    return loss + abs(loss) * _ROUNDING_UP * (n_rounds + 2)
