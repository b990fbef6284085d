"""Fit all scaled rows of a model once more, together."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from folklearn import memory
from folklearn.arrays import Array
from folklearn.batch.column_model import ColumnModel
from folklearn.batch.penalised import FIRST_RIDGE, penalised
from folklearn.batch.wide_fit import wide_fit
from folklearn.learners.base import Learner
from folklearn.learners.panel import PanelLearner
from folklearn.passes import Passes, ScaledPasses
from folklearn.problem import Rows
from folklearn.progress import LOGGER
from folklearn.sparse import SparseRows, concatenated

_BYTES_OF_A_VALUE = 40  # of a row, in its copies
_COPIES = 4  # of numbers for every row and class, that `wide_fit` takes
_FREE = 10.0  # what the constant is multiplied by where it should not be penalised

Scaled = Callable[[], Iterable[Rows]]  # the rows, anew for every pass


def refit_dense(
    passes: Passes, learner: Learner, constant: int | None, *, most_passes: int, seed: int
) -> Array:
    """Return weights (K, columns), penalised; the column of the constant hardly is."""
    columns = np.ones(learner.n_features)
    if constant is not None:
        columns[constant] = _FREE
    led = learner.leader() if isinstance(learner, PanelLearner) else None
    ridge, W = led or (FIRST_RIDGE, np.zeros((learner.n_classes, learner.n_features)))
    freed = ScaledPasses(passes, columns)
    fit = penalised(freed, W / columns, ridge=ridge, most_passes=most_passes, seed=seed)
    return fit.W * columns


def refit_wide(
    scaled: Scaled,
    learner: Learner,
    constant: int | None,
    *,
    most_passes: int,
    seed: int,
) -> ColumnModel | None:
    """Return weights of the columns that occur, or None if the rows do not fit in memory."""
    parts: list[Rows] = []
    needed, present, n_classes = 0, memory.bytes_present() or math.inf, learner.n_classes
    for rows in scaled():
        Z = SparseRows.of_any(rows.X)
        parts.append(rows._replace(X=Z))
        needed += _COPIES * 8 * len(Z) * n_classes + _BYTES_OF_A_VALUE * Z.nnz
        if needed > present / 2:
            LOGGER.warning(
                "all rows together do not fit in memory: the model that learned on line "
                "predicts, and no fit to all rows is made"
            )
            return None
    Xs, norms, labels, soft, weights = zip(*parts, strict=True)
    whole = Rows(concatenated(Xs), *map(np.concatenate, (norms, labels, soft, weights)))
    place = -1 if constant is None else constant
    fit = wide_fit(whole, n_classes, constant=place, most_passes=most_passes, seed=seed)
    return ColumnModel(fit.columns, fit.weights)
