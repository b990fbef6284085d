"""Class numbers in the order in which classes appear."""

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError


def numbered(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array, Labels]:
    """Return labels (T,), soft ones (T, K), and the number of classes known after each.

    So many are known before. A new class must have the next number; a soft label may bring
    several, which are known from the first row that gives them, or a later class, probability.
    """
    return (_soft if np.ndim(y) == 2 else _hard)(y, n_rounds, n_classes)


def _hard(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array, Labels]:
    y, none = validation.labels(y, n_rounds, n_classes + n_rounds + 1)
    known = np.maximum.accumulate(np.concatenate([[n_classes - 1], y]))
    gaps = np.flatnonzero(y > known[:-1] + 1)
    if gaps.size:
        row = gaps[0]
        raise InvalidInputError(
            f"y[{row}] is {y[row]}, but only {known[row] + 1} classes were known then: a new "
            f"class has the next number, {known[row] + 1}"
        )
    return y, none, known[1:] + 1


def _soft(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array, Labels]:
    """Check soft labels; those of one class alone say nothing."""
    width = max(n_classes, np.shape(y)[1])
    if width < 2:
        raise InvalidInputError(
            f"soft labels need two known classes, and there are {n_classes}: declare them first"
        )
    none, soft = validation.labels(y, n_rounds, width)
    behind = np.argmax(soft[:, ::-1] > 0.0, axis=1)  # classes without probability at the end
    known = np.maximum.accumulate(np.maximum(width - behind, n_classes))
    return none, soft, known
