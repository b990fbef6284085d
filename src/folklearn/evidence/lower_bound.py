"""Lower bounds on the losses of all linear models: what sums over rows have in common."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.kernels.evidence import ROUNDS, WEIGHT
from folklearn.serialization import Serializable
from folklearn.validation import Rows

CONSTANT_PENALTY = 1e-4  # of the weights of a constant column: next to none
UNIT = 2.0**-52  # two roundings to nearest


class LowerBound(Serializable, ABC):
    """A sum over rows that lies below the total loss of every linear model.

    `Evidence` and `LinearEvidence` differ in what they sum: quadratics or planes.
    """

    PARAMS = ("n_features", "n_classes", "C", "constant")
    _totals: Array

    def __init__(
        self, *, n_features: int, n_classes: int, C: float = 1.0, constant: int | None = None
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.C = validation.positive("C", C)
        self.constant = constant
        if constant is not None:
            self.constant = validation.count("constant", constant, 0, self.n_features - 1)

    @property
    def penalties(self) -> Array:
        """Penalties (d,): a model costs half the sum of these times the squares of its weights."""
        return self._penalties_of(np.arange(self.n_features))

    def _penalties_of(self, columns: NDArray[np.int64]) -> Array:
        tau = np.full(len(columns), penalty_of(self.C, self.n_classes))
        if self.constant is not None:
            tau[columns == self.constant] *= CONSTANT_PENALTY
        return tau

    def add(self, X: Any, y: ArrayLike, *, weight: ArrayLike | None = None) -> None:
        """Add rows X (T, d), dense or sparse, with labels (T,) or soft labels (T, K)."""
        self._add(Rows.checked(X, y, weight, **self._sizes))

    @property
    def _sizes(self) -> dict[str, int]:
        return {"n_features": self.n_features, "n_classes": self.n_classes}

    @abstractmethod
    def _add(self, rows: Rows) -> None: ...

    @abstractmethod
    def lower_bound(self) -> float:
        """Return a lower bound on the total loss plus penalty of every linear model."""

    @abstractmethod
    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss, without penalty, of one model W (K, d)."""

    @abstractmethod
    def _sum(self, other: Self) -> Self: ...

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        problem, other_problem = ([getattr(x, word) for word in self.PARAMS] for x in (self, other))
        if problem != other_problem:
            raise InvalidInputError(
                "evidence is added up only for the same problem and penalty: "
                f"{', '.join(self.PARAMS)} are {problem} and {other_problem}; see `grown`"
            )
        return self._sum(other)

    @abstractmethod
    def __mul__(self, factor: float) -> Self:
        """Return the evidence with all weights multiplied by a factor from 0 to 1."""

    def __rmul__(self, factor: float) -> Self:
        return self * factor

    def _empty(self, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return evidence of no rows, of the same or of larger sizes."""
        d, K = self.n_features, self.n_classes
        return type(self)(
            n_features=validation.count("n_features", n_features or d, d),
            n_classes=validation.count("n_classes", n_classes or K, K),
            C=self.C,
            constant=self.constant,
        )

    @abstractmethod
    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return the same evidence about models of more features and classes, which come last.

        New features are as if they had been 0 so far. The bounds are then about losses over all
        classes, which are not smaller than those over the classes that there were.
        """

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
        return sum(array.nbytes for array in self._parts().values())

    def certificate(self, loss: float, W: ArrayLike | None = None) -> Certificate:
        """Return what is proven of predictions whose total loss on these rows is `loss`.

        For every linear model, its penalty counted; or for one W (K, d), without a penalty.
        """
        least = self.lower_bound() if W is None else self.value(W)
        bound = round_loss_up(loss, self.n_rounds) - least
        if W is not None:
            return Certificate(loss, bound, self.n_rounds)
        penalty = penalty_of(self.C, self.n_classes)
        return Certificate(loss, bound, self.n_rounds, C=self.C, penalty=penalty)


def penalty_of(C: float, n_classes: int) -> float:
    """Return what half the squares of the weights of a model are multiplied by."""
    return (2.0 if n_classes == 2 else 1.0) / C


def round_loss_up(loss: float, n_rounds: int) -> float:
    """Return an upper bound on a total loss that was computed as a sum of `n_rounds` terms."""
    return loss + abs(loss) * UNIT * (n_rounds + 2)


class Tangent(NamedTuple):
    """An affine function below the loss of every model: its value at W and its slope (K, d).

    The value is rounded down; an entry of row k of the slope is off by at most rounding (K,).
    """

    W: Array
    value: float
    slope: Array
    rounding: Array

    def least(self, tau: Array) -> float:
        """Return a lower bound on the function plus penalty, over all models (5)."""
        left = np.abs(self.slope + tau * self.W) + self.rounding[:, None]
        bent = 0.5 * float((left**2 / tau).sum())
        penalty = 0.5 * float((tau * self.W**2).sum())
        # Sums of squares are off by this share, and u |left W| is at most u (bent + penalty).
        share = (self.W.size + 8.0) * UNIT
        return self.value + penalty * (1.0 - share) - bent * (1.0 + share)
