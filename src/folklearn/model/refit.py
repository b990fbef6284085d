"""Fit all scaled rows of a model once more, together."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from folklearn import memory, validation
from folklearn.arrays import Array
from folklearn.batch.penalised import FIRST_RIDGE, fit_penalised
from folklearn.batch.sparse_fit import ColumnModel, fit_sparse
from folklearn.errors import warn_of_data
from folklearn.evidence.passes import Passes
from folklearn.learners.base import Learner
from folklearn.learners.experts import ExpertLearner
from folklearn.sparse import SparseRows, concatenate
from folklearn.validation import Rows

_BYTES_OF_A_VALUE = 40  # of a row, in its copies
_COPIES = 4  # of numbers for every row and class, that `fit_sparse` takes
_SHARE_OF_MEMORY = 0.25  # that scaled rows may take
_FREE = 10.0  # what the constant is multiplied by where it should not be penalised

Scaled = Callable[[], Iterable[Rows]]  # the rows, anew for every pass


def freed(rows: Rows, constant: int | None) -> Rows:
    """Return dense rows with a constant so large that the penalty hardly counts for it."""
    if constant is None:
        return rows
    Z = rows.X.copy()
    Z[:, constant] *= _FREE
    return rows._replace(X=Z, norms=validation.norms(Z))


def refit_dense(
    passes: Passes, learner: Learner, constant: int | None, *, most_passes: int, seed: int
) -> Array:
    """Return weights (K, columns), penalised; the column of the constant hardly is.

    The rows are those that `freed` returns.
    """
    columns = np.ones(learner.n_features)
    if constant is not None:
        columns[constant] = _FREE
    led = learner.leader() if isinstance(learner, ExpertLearner) else None
    ridge, W = led or (FIRST_RIDGE, np.zeros((learner.n_classes, learner.n_features)))
    fit = fit_penalised(passes, W / columns, ridge=ridge, most_passes=most_passes, seed=seed)
    return fit.W * columns


def at_hand(rows: Scaled) -> Scaled:
    """Return the same rows, scaled once for all passes if there is memory for them."""
    kept, left = [], _SHARE_OF_MEMORY * (memory.bytes_present() or math.inf)
    for block in rows():
        kept.append(block)
        left -= sum(part.nbytes for part in block)
        if left < 0.0:
            return rows
    return lambda: kept


def refit_wide(
    scaled: Scaled, learner: Learner, constant: int | None, *, most_passes: int, seed: int
) -> ColumnModel | None:
    """Return weights of the columns that occur, or None if the rows do not fit in memory."""
    parts: list[Rows] = []
    needed, present, n_classes = 0, memory.bytes_present() or math.inf, learner.n_classes
    for rows in scaled():
        Z = SparseRows.of_any(rows.X)
        parts.append(rows._replace(X=Z))
        needed += _COPIES * 8 * len(Z) * n_classes + _BYTES_OF_A_VALUE * Z.nnz
        if needed > present / 2:
            warn_of_data(
                "all rows together do not fit in memory: the model that learned on line "
                "predicts, and no fit to all rows is made"
            )
            return None
    Xs, norms, labels, soft, weights = zip(*parts, strict=True)
    whole = Rows(concatenate(Xs), *map(np.concatenate, (norms, labels, soft, weights)))
    place = -1 if constant is None else constant
    fit = fit_sparse(whole, n_classes, constant=place, most_passes=most_passes, seed=seed)
    return ColumnModel(fit.columns, fit.weights)
