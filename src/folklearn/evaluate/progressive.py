"""Scores of predictions made before their labels were seen, of a learner or of anybody."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import Exact
from folklearn.evaluate.calibration import CalibrationCurve, calibration_curve
from folklearn.evaluate.hindsight import linear_losses
from folklearn.evaluate.probabilities import checked_rows, label_mass
from folklearn.learners.base import Learner, Progress

FLOOR = 1e-15


@dataclass(frozen=True, eq=False)
class Scores:
    """What predictions were worth, in nats and in shares; averages are over the weights.

    Attributes
    ----------
    P : (T, K), row t predicted before label t was seen.
    y : the labels, (T,) classes or (T, K) soft labels.
    weight : (T,).
    losses : (T,), -ln of what the label was given, unweighted; at most -ln `floor`.
    floor : the least probability that was counted.
    n_floored : rounds in which the label was given less than `floor`.
    comparator_losses : (T,), of the linear model to compare with, or None.
    """

    P: Array
    y: NDArray[np.int64] | Array
    weight: Array
    losses: Array
    floor: float
    n_floored: int
    comparator_losses: Array | None = None

    def __repr__(self) -> str:
        return (
            f"Scores({self.n_rounds} rounds, log loss {self.log_loss:.4g}, "
            f"error {self.error_rate:.3g})"
        )

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return len(self.P)

    @property
    def loss(self) -> float:
        """The total (weighted) log loss."""
        return float(self._weighted(self.losses).sum())

    @property
    def log_loss(self) -> float:
        """The average log loss."""
        return self._average(self.losses)

    @cached_property
    def error_rate(self) -> float:
        """How often the most likely class (the lowest on ties) was wrong."""
        return self._average(1.0 - label_mass(self.P, *self._labels))

    @cached_property
    def brier(self) -> float:
        """The average of sum_k (p_k - y_k)^2, between 0 and 2."""
        labels, soft = self._labels
        if len(soft):
            return self._average(((self.P - soft) ** 2).sum(axis=1))
        # |p|^2 - 2 p_y + 1, without making the one-hot labels.
        given = self.P[np.arange(self.n_rounds), labels]
        return self._average((self.P**2).sum(axis=1) - 2.0 * given + 1.0)

    def calibration(self, *, label: int | None = None, n_bins: int = 15) -> CalibrationCurve:
        """Return the calibration curve of the most likely class, or of one class."""
        return calibration_curve(self.P, self.y, label=label, n_bins=n_bins, weight=self.weight)

    @cached_property
    def calibration_error(self) -> float:
        """The expected calibration error over 15 bins."""
        return self.calibration().error

    @cached_property
    def loss_curve(self) -> Array:
        """The total (weighted) loss after each round, (T,)."""
        curve: Array = np.cumsum(self._weighted(self.losses))
        return curve

    @cached_property
    def regret_curve(self) -> Array:
        """The total loss beyond the comparator's after each round, (T,)."""
        if self.comparator_losses is None:
            raise InvalidInputError("a regret curve needs a comparator: pass comparator=W")
        curve: Array = np.cumsum(self._weighted(self.losses - self.comparator_losses))
        return curve

    @property
    def regret(self) -> float:
        """The total loss beyond the comparator's."""
        return float(self.regret_curve[-1]) if self.n_rounds else 0.0

    @property
    def _labels(self) -> tuple[NDArray[np.int64], Array]:
        return validation.labels(self.y, self.n_rounds, self.P.shape[1])

    def _weighted(self, values: Array) -> Array:
        # A round of weight 0 does not count, even if its loss is infinite.
        return self.weight * np.where(self.weight > 0.0, values, 0.0)

    def _average(self, values: Array) -> float:
        total = float(self.weight.sum())
        if not total > 0.0:
            raise InvalidInputError("nothing to score: there is no round of positive weight")
        return float(self._weighted(values).sum()) / total


def score(
    P: ArrayLike,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    floor: float = FLOOR,
    comparator_losses: ArrayLike | None = None,
) -> Scores:
    """Score probability rows P (T, K), whoever made them, strictly.

    Every round counts: the label costs -ln of what it was given, and a probability below
    `floor` counts as `floor`, so that one round costs at most 34.5 nats by default. Rows
    must be non-negative and sum to 1 within 1e-6; they are used as they are.

    Examples
    --------
    >>> scores = score([[0.5, 0.5], [1.0, 0.0]], [0, 1])
    >>> [round(float(loss), 3) for loss in scores.losses], scores.n_floored, scores.error_rate
    ([0.693, 34.539], 1, 0.5)
    """
    P = validation.numbers("P", P)
    if P.ndim != 2:
        raise InvalidInputError(f"P has shape {P.shape}; expected (number of rounds, classes)")
    T, K = P.shape
    P = checked_rows(P, T, K)
    labels, soft = validation.labels(y, T, K)
    weights = validation.weights(weight, T)
    if not 0.0 <= floor < 1.0:
        raise InvalidInputError(f"floor must be a number from 0 to below 1, got {floor!r}")
    return Scores(
        P=P,
        y=soft if len(soft) else labels,
        weight=weights,
        losses=log_losses(P, labels, soft, floor),
        floor=float(floor),
        n_floored=_n_floored(P, labels, soft, floor),
        comparator_losses=_comparator_losses(comparator_losses, T),
    )


def progressive(
    learner: Learner,
    X: Any,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    comparator: ArrayLike | Exact | None = None,
    floor: float = FLOOR,
    progress: Progress = False,
) -> Scores:
    """Run a learner over a stream, predicting each round before learning it, and score it.

    `comparator` is a linear model W (K, d), or what `best_in_class` returned, for the regret
    curve. The learner goes on from where it stands, and has learned the stream afterwards.

    Examples
    --------
    >>> from folklearn import Folklore
    >>> from folklearn.evaluate.hindsight import best_in_class
    >>> from folklearn import synthetic
    >>> X, y = synthetic.stochastic(0, 300, d=3, K=2)
    >>> best = best_in_class(X, y, B=10.0, n_classes=2)
    >>> learner = Folklore(n_features=3, n_classes=2)
    >>> scores = progressive(learner, X, y, comparator=best)
    >>> scores.regret < learner.certificate(best.W).regret_bound
    True
    """
    losses = None
    if comparator is not None:
        W = comparator.W if isinstance(comparator, Exact) else comparator
        expected = (learner.n_classes, learner.n_features)
        if np.shape(W) != expected:
            raise InvalidInputError(f"comparator has shape {np.shape(W)}; expected {expected}")
        losses = linear_losses(X, y, W)
    P = learner.run(X, y, weight=weight, progress=progress)
    return score(P, y, weight=weight, floor=floor, comparator_losses=losses)


def _n_floored(P: Array, labels: NDArray[np.int64], soft: Array, floor: float) -> int:
    if len(soft):
        return int(((soft > 0.0) & (P - floor < 0.0)).any(axis=1).sum())
    return int((P[np.arange(len(P)), labels] < floor).sum())


def _comparator_losses(losses: ArrayLike | None, T: int) -> Array | None:
    if losses is None:
        return None
    array = validation.numbers("comparator_losses", losses)
    if array.shape != (T,):
        raise InvalidInputError(f"comparator_losses has shape {array.shape}; expected ({T},)")
    return array
