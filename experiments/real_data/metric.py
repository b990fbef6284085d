"""The one metric: progressive log loss, strict, with one floor for everybody.

Every player hands over `given`: for each round the probability that it gave, before seeing
it, to the label that came. Nothing is skipped; nonsense (NaN) counts as zero.
"""

import numpy as np
from numpy.typing import NDArray

FLOOR = 1e-15
SUM_TOLERANCE = 1e-4  # VW computes in single precision

Given = NDArray[np.float64]


def log_loss(given: Given) -> float:
    """Return the mean log loss in nats per example."""
    return float(-np.log(np.fmax(given, FLOOR)).mean())


def given_to_labels(P: NDArray[np.float64], y: NDArray[np.int64]) -> Given:
    """Return P[t, y[t]], after checking that the rows of P are distributions."""
    with np.errstate(invalid="ignore"):
        if np.any(np.abs(P.sum(axis=1) - 1.0) > SUM_TOLERANCE):
            raise ValueError("predictions that do not sum to 1 cannot be scored")
    return P[np.arange(len(y)), y]
