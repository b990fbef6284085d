"""Probability rows that anybody may have made: checked at the edge, scored strictly."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError

ROW_SUM_TOLERANCE = 1e-6


def checked_rows(P: ArrayLike, n_rounds: int, n_classes: int) -> Array:
    """Return P (T, K) if every row is a distribution; else name the first that is not."""
    P = validation.numbers("P", P)
    if P.shape != (n_rounds, n_classes):
        raise InvalidInputError(
            f"P has shape {P.shape}; expected one row of probabilities per round: "
            f"{(n_rounds, n_classes)}"
        )
    check_rows(P, "row {} of P", ROW_SUM_TOLERANCE)
    return P


def checked_row(p: ArrayLike, n_classes: int) -> Array:
    """Return p (K,) if it is a distribution."""
    p = validation.numbers("p", p)
    if p.shape != (n_classes,):
        raise InvalidInputError(f"p has shape {p.shape}; expected (n_classes={n_classes},)")
    check_rows(p[None, :], "p", ROW_SUM_TOLERANCE)
    return p


def check_rows(P: Array, where: str, tolerance: float) -> None:
    """Raise for the first row that is not non-negative with sum 1 within `tolerance`."""
    in_range: NDArray[np.bool_] = (P >= 0.0) & (tolerance >= P - 1.0)  # false for NaN too
    good: NDArray[np.bool_] = np.all(in_range, axis=1)
    sums = np.where(in_range, P, 0.0).sum(axis=1)
    bad = np.flatnonzero(~(good & (np.abs(sums - 1.0) <= tolerance)))
    if not bad.size:
        return
    row = bad[0]
    name = where.format(row)
    if not good[row]:
        column = int(np.flatnonzero(~in_range[row])[0])
        raise InvalidInputError(
            f"{name} gives class {column} the probability {P[row, column]:g}; "
            "expected a number from 0 to 1"
        )
    raise InvalidInputError(
        f"{name} sums to {sums[row]:.9g}; probabilities must sum to 1 within {tolerance:g}"
    )


def label_mass(P: Array, labels: Labels, soft: Array) -> Array:
    """Return how much of the label lies on the most likely class, (T,): 1 or 0 if hard."""
    predicted = P.argmax(axis=1)
    if len(soft):
        mass: Array = soft[np.arange(len(P)), predicted]
        return mass
    right: Array = (predicted == labels).astype(np.float64)
    return right
