"""Do probabilities mean what they say? The curve, and one number for it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evaluate.probabilities import checked_rows, label_mass


@dataclass(frozen=True)
class CalibrationCurve:
    """Observed frequency against stated probability, in bins of equal width that hold rounds.

    Attributes
    ----------
    predicted : mean probability stated in each bin.
    observed : how often it came true there.
    share : the bin's share of all rounds, by weight; sums to 1.
    """

    predicted: Array
    observed: Array
    share: Array

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |observed - predicted| over rounds."""
        return float(self.share @ np.abs(self.observed - self.predicted))


def calibration_curve(
    P: ArrayLike,
    y: ArrayLike,
    *,
    label: int | None = None,
    n_bins: int = 15,
    weight: ArrayLike | None = None,
) -> CalibrationCurve:
    """Bin the probabilities P (T, K) and compare each bin with what happened.

    By default the probability of the most likely class (the lowest on ties) against how
    often it was right, whose `error` is the usual expected calibration error; with `label`,
    the probability of that class against how often it occurred. A soft label counts with
    the probability it gives.

    Examples
    --------
    >>> curve = calibration_curve([[0.8, 0.2]] * 10, [0] * 7 + [1] * 3)
    >>> curve.predicted, curve.observed, round(curve.error, 6)
    (array([0.8]), array([0.7]), 0.1)
    """
    P = validation.numbers("P", P)
    if P.ndim != 2:
        raise InvalidInputError(f"P has shape {P.shape}; expected (number of rounds, classes)")
    T, K = P.shape
    P = checked_rows(P, T, K)
    labels, soft = validation.labels(y, T, K)
    weights = validation.weights(weight, T)
    n_bins = validation.count("n_bins", n_bins, 1)
    if label is None:
        stated, came_true = P.max(axis=1, initial=0.0), label_mass(P, labels, soft)
    else:
        label, _ = validation.label(label, K)
        stated = P[:, label]
        came_true = soft[:, label] if len(soft) else (labels == label).astype(np.float64)
    return _binned(stated, came_true, weights, n_bins)


def _binned(stated: Array, came_true: Array, weights: Array, n_bins: int) -> CalibrationCurve:
    total = float(weights.sum())
    if not total > 0.0:
        raise InvalidInputError("nothing to score: there is no round of positive weight")
    bins = np.minimum((stated * n_bins).astype(np.int64), n_bins - 1)
    mass = np.bincount(bins, weights, n_bins)
    used = mass > 0.0
    predicted = np.bincount(bins, weights * stated, n_bins)[used] / mass[used]
    observed = np.bincount(bins, weights * came_true, n_bins)[used] / mass[used]
    return CalibrationCurve(predicted, observed, mass[used] / total)
