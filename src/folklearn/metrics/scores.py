"""Scores of arrays of predictions: checked probabilities, losses, calibration, regret."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels, log_losses
from folklearn.errors import InvalidInputError
from folklearn.learners.base import Learner
from folklearn.progress import Progress

ROW_SUM_TOLERANCE = 1e-6
_N_BINS = 15  # of a calibration curve
MIN_PROBABILITY = 1e-15  # a smaller probability of a label is clipped to it


def check_probabilities(P: ArrayLike, *shape: int) -> Array:
    """Return P of a shape (T, K), or (K,), if all rows are distributions; else raise."""
    name = "p" if len(shape) == 1 else "P"
    P = validation.numbers(name, P)
    if P.shape != shape:
        raise InvalidInputError(f"{name} has shape {P.shape}; expected probabilities, {shape}")
    check_rows(P.reshape(-1, shape[-1]), "p" if P.ndim == 1 else "row {} of P")
    return P


def check_rows(P: Array, where: str) -> None:
    """Raise for the first row that is not non-negative with sum 1 within `ROW_SUM_TOLERANCE`."""
    in_range: NDArray[np.bool_] = (P >= 0.0) & (ROW_SUM_TOLERANCE >= P - 1.0)  # not NaN
    sums = np.where(in_range, P, np.nan).sum(axis=1)
    bad = np.flatnonzero(~(np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE))
    if not bad.size:
        return
    row = bad[0]
    fault = f"sums to {sums[row]:.9g}; probabilities must sum to 1 within {ROW_SUM_TOLERANCE:g}"
    if np.isnan(sums[row]):
        column = int(np.argmin(in_range[row]))
        p = P[row, column]
        fault = f"gives class {column} the probability {p:g}; expected a number from 0 to 1"
    raise InvalidInputError(f"{where.format(row)} {fault}")


def label_mass(P: Array, labels: Labels, soft: Array) -> Array:
    """Return how much of the label lies on the most likely class, (T,): 1 or 0 if hard."""
    predicted = P.argmax(axis=1)
    return soft[np.arange(len(P)), predicted] if len(soft) else 1.0 * (predicted == labels)


@dataclass(frozen=True)
class CalibrationCurve:
    """Observed frequency against predicted probability, in the bins that hold rounds."""

    predicted: Array  #: mean probability of each bin
    observed: Array  #: how often the prediction was right there
    count: Array  #: weight of the rounds

    @classmethod
    def of_bins(cls, mass: Any, predicted: Any, observed: Any) -> "CalibrationCurve":
        """Make it from totals of bins (n,): weight, and weighted sums of both probabilities."""
        used = mass > 0.0
        return cls(predicted[used] / mass[used], observed[used] / mass[used], mass[used])

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |observed - predicted|; NaN of no rounds."""
        if not len(self.count):
            return math.nan
        distances = np.abs(self.observed - self.predicted)
        return float(self.count @ distances) / float(self.count.sum())


@dataclass(frozen=True, eq=False)
class Scores:
    """Losses and scores of predictions; averages are over the weights."""

    P: Array  #: (T, K), row t predicted before label t was seen
    labels: Labels  #: (T,) classes, -1 if they are soft
    soft: Array  #: (T, K) soft labels, no rows without
    weight: Array  #: (T,)
    losses: Array  #: (T,), -ln of the probability of the label, unweighted; at most 34.5

    def __repr__(self) -> str:
        averages = f"log loss {self.log_loss:.4g}, error {self.error_rate:.3g}"
        return f"Scores({self.n_rounds} rounds, {averages})"

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return len(self.P)

    @property
    def loss(self) -> float:
        """The total (weighted) log loss."""
        return float(self._weigh(self.losses).sum())

    @cached_property
    def log_loss(self) -> float:
        """The average log loss."""
        return self._average(self.losses)

    @cached_property
    def error_rate(self) -> float:
        """How often the most likely class (the lowest on ties) was wrong."""
        return self._average(1.0 - label_mass(self.P, self.labels, self.soft))

    @cached_property
    def brier(self) -> float:
        """The average of sum_k (p_k - y_k)^2, between 0 and 2."""
        targets = self.soft if len(self.soft) else np.eye(self.P.shape[1])[self.labels]
        return self._average(((self.P - targets) ** 2).sum(axis=1))

    def calibration(self) -> CalibrationCurve:
        """Compare the probability of the most likely class with how often it was right, in 15 bins.

        >>> curve = score([[0.8, 0.2]] * 10, [0] * 7 + [1] * 3).calibration()
        >>> curve.predicted, curve.observed, round(curve.error, 6)
        (array([0.8]), array([0.7]), 0.1)
        """
        weights, predicted = self.weight, self.P.max(axis=1, initial=0.0)
        _check_weight(weights)
        bins = np.minimum((predicted * _N_BINS).astype(np.int64), _N_BINS - 1)
        hits = weights * label_mass(self.P, self.labels, self.soft)
        totals = weights, weights * predicted, hits
        return CalibrationCurve.of_bins(*(np.bincount(bins, total, _N_BINS) for total in totals))

    @cached_property
    def calibration_error(self) -> float:
        """The expected calibration error."""
        return self.calibration().error

    def _weigh(self, values: Array) -> Array:
        # A round of weight 0 does not count, even if its loss is infinite.
        return self.weight * np.where(self.weight > 0.0, values, 0.0)

    def _average(self, values: Array) -> float:
        _check_weight(self.weight)
        return float(self._weigh(values).sum()) / float(self.weight.sum())


def score(P: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None) -> Scores:
    """Score probability rows P (T, K) of any origin, strictly.

    A label costs -ln of its probability, at most 34.5 nats. Rows must be non-negative and sum to 1
    within 1e-6; they are used as they are.

    Examples
    --------
    >>> scores = score([[0.5, 0.5], [1.0, 0.0]], [0, 1])
    >>> [round(float(loss), 3) for loss in scores.losses], scores.error_rate
    ([0.693, 34.539], 0.5)
    """
    P = validation.numbers("P", P)
    if P.ndim != 2:
        raise InvalidInputError(f"P has shape {P.shape}; expected (number of rounds, classes)")
    P = check_probabilities(P, *P.shape)
    labels, soft = validation.labels(y, *P.shape)
    weights = validation.weights(weight, len(P))
    return Scores(P, labels, soft, weights, log_losses(P, labels, soft, MIN_PROBABILITY))


def progressive(
    learner: Learner,
    X: Any,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    progress: Progress = False,
) -> Scores:
    """Run a learner over a stream, predicting each round before learning it, and score it.

    The learner continues from its present state, and has learned the stream afterwards.

    Examples
    --------
    >>> from folklearn import Folklore, best_in_class, synthetic
    >>> X, y = synthetic.stochastic(0, 300, d=3, K=2)
    >>> best = best_in_class(X, y, B=10.0, n_classes=2)
    >>> learner = Folklore(n_features=3, n_classes=2)
    >>> scores = progressive(learner, X, y)
    >>> scores.loss - best.loss < learner.certificate(best.W).regret_bound
    True
    """
    return score(learner.run(X, y, weight=weight, progress=progress), y, weight=weight)


def _check_weight(weights: Array) -> None:
    if not float(weights.sum()) > 0.0:
        raise InvalidInputError("nothing to score: there is no round of positive weight")
