"""Penalised maximum likelihood for sparse rows and many classes, by dual coordinate ascent."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array, logit_losses, softmax
from folklearn.batch.penalised import MAX_PASSES, PenalisedFit, search_ridges
from folklearn.kernels import linear_models
from folklearn.kernels.hash_index import Columns
from folklearn.sparse import Contexts, Indices, SparseRows, StackedRows
from folklearn.validation import Rows

POWERS = (0.0, 0.125, 0.25)  # of a column's sum of squares, by which it is divided
FIRST_RIDGE = 0.03  # for contexts of norm about 1
_MAX_SEARCH_PASSES = 15
# Share of the objective that may be missing, in the search and at the end.
_SEARCH_TOLERANCE, _FINAL_TOLERANCE = 1e-2, 1e-4
_MIN_ROWS_TO_HOLD_OUT = 12
_MIN_ROWS_FOR_ONE_FOLD = 3000  # from which one fold is enough to choose by
_N_FOLDS, _N_HELD_OUT_FOLDS = 6, 3
_MAX_EQUAL_MASS_RATIO = 10.0  # of sums of squares: columns count as equally frequent
_CONSTANT_VALUE = 0.3  # of the constant column, where rows are of norm 1
_MULTIPLICATIONS_PER_CHUNK = 1e8  # between two chances to be interrupted
_LOG_EXP_MULTIPLICATIONS = 10.0  # that a logarithm and an exponential cost


@dataclass(eq=False)
class ColumnModel:
    """Weights (n, K) of the columns (n,) that occurred, in order; all others have none."""

    columns: NDArray[np.int64]
    weights: Array
    ridge: float = math.nan  #: chosen for them, as is the power, see `fit_sparse`
    power: float = math.nan
    held_out: float = math.nan  #: average loss of rows left out; NaN if there were too few

    def __post_init__(self) -> None:
        self._index = Columns.of(self.columns)

    def weights_at(self, columns: Indices) -> Array:
        """Return the weights (n, K) of columns (n,), 0 of those that did not occur."""
        places, W = self._index.find(columns), np.zeros((len(columns), self.weights.shape[1]))
        W[places >= 0] = self.weights[places[places >= 0]]
        return W

    def predict(self, X: Contexts) -> Array:
        """Return the probabilities (T, K) of rows (T, d)."""
        if not isinstance(X, SparseRows):
            return softmax(X[:, self.columns] @ self.weights)
        bases, X = X.bases, (X.on_top() if isinstance(X, StackedRows) else X).compact()
        indices = self._index.find(X.indices)
        values = np.where(indices >= 0, X.values, 0.0)
        Z = np.zeros((len(X), self.weights.shape[1]))
        if len(self.weights):
            rows = np.arange(len(X))
            linear_models.logits_of(X.indptr, np.maximum(indices, 0), values, rows, self.weights, Z)
        return softmax(Z + bases if len(bases) else Z)


def fit_sparse(
    rows: Rows, n_classes: int, *, constant: int = -1, most_passes: int = MAX_PASSES, seed: int = 0
) -> ColumnModel:
    r"""Return the penalised fit to sparse rows, its penalty chosen on rows that are held out.

    .. math:: \arg\min_W \sum_j \lambda\, s_j^{2a} |W_j|^2 + \sum_t w_t\, \ell(W x_t, y_t),
        \qquad s_j = \sum_t w_t x_{tj}^2

    by dual coordinate ascent (`kernels.linear_models`): the order of the rows is random in each
    pass. The power a is 0, a plain ridge; or 1/8 or 1/4, where rare columns are penalised less
    than frequent ones (at 1/4 it is the metric of AdaGrad). For each, smaller ridges are tried as
    long as they help, or else larger ones, each fit from its neighbour; a larger power only if the
    one before helped. The rows left out are one part in six, three of these one after the other if
    there are few rows.

    A heuristic: nothing is proven of the loss at new rows. A pass takes 4 K flops a value that is
    not 0; there are three to ten for each of about fifteen ridges. Memory: 24 K bytes a row and
    column that occurred. Of `StackedRows` the words are fitted, on top of the logits of these rows.

    `constant` is the column of the constant, which is not penalised as others are; `most_passes`
    is for each fit, `seed` of the rows left out and of the order.
    """
    rows = rows.of(np.flatnonzero(rows.weights > 0.0))
    rng = np.random.default_rng(seed)
    problem = _Problem(rows, n_classes, constant)
    T = len(rows.X)
    ridge = FIRST_RIDGE * float(rows.weights.mean()) if T else FIRST_RIDGE
    best, power = PenalisedFit(problem.Y, ridge, math.nan), POWERS[0]
    if T >= _MIN_ROWS_TO_HOLD_OUT:
        best, power = _search_penalty(problem, ridge, min(most_passes, _MAX_SEARCH_PASSES), rng)
    scaled = problem.scale_columns(power)
    final = _Fit(problem, np.arange(T), best.W)
    final.solve(scaled, best.ridge, most_passes, _FINAL_TOLERANCE, rng)
    weights = final.W * scaled.scales[:, None]
    return ColumnModel(problem.columns, weights, best.ridge, power, best.held_out)


def _search_penalty(
    problem: "_Problem", ridge: float, max_passes: int, rng: np.random.Generator
) -> tuple[PenalisedFit, float]:
    """Return the best trial, with dual points (T, K) of the training rows, and its power."""
    fold_of_row = rng.permutation(len(problem.Y)) % _N_FOLDS
    n_folds = 1 if len(problem.Y) >= _MIN_ROWS_FOR_ONE_FOLD else _N_HELD_OUT_FOLDS
    folds = [
        (_Fit(problem, np.flatnonzero(fold_of_row != fold), problem.Y), fold_of_row == fold)
        for fold in range(n_folds)
    ]

    def search(power: float, ridge: float) -> PenalisedFit:
        scaled = problem.scale_columns(power)

        def evaluate(ridge: float, _: PenalisedFit | None) -> PenalisedFit:
            totals, Q = np.zeros(2), problem.Y.copy()
            for fit, is_held_out in folds:
                fit.solve(scaled, ridge, max_passes, _SEARCH_TOLERANCE, rng)
                totals += problem.loss(scaled, fit.W, np.flatnonzero(is_held_out))
                Q[fit.rows] = fit.Q[fit.rows]
            loss, weight = totals.tolist()
            return PenalisedFit(Q, ridge, loss / weight if math.isfinite(loss) else math.inf)

        return search_ridges(evaluate, evaluate(ridge, None), patience=1)

    best, best_power = search(POWERS[0], ridge), POWERS[0]
    for power in POWERS[1:] if problem.has_rare_columns else ():
        trial = search(power, best.ridge)
        if not trial.held_out < best.held_out:
            break
        best, best_power = trial, power
    return best, best_power


class _ScaledRows(NamedTuple):
    values: Array  # of all rows, columns divided by a power of their mass
    squares: Array  # squared norms (T,)
    scales: Array  # factors of the columns


class _Problem:
    def __init__(self, rows: Rows, n_classes: int, constant: int) -> None:
        self.rows, self.bases = rows, rows.X.bases
        X: SparseRows = rows.X.on_top() if isinstance(rows.X, StackedRows) else rows.X.compact()
        self.indptr = X.indptr
        columns, indices = np.unique(X.indices, return_inverse=True)
        self.columns = columns.astype(np.int64)
        self.indices = indices.astype(np.int32)
        self._values = X.values
        self.Y: Array = rows.soft
        if not len(rows.soft):
            self.Y = np.zeros((len(X), n_classes))
            self.Y[np.arange(len(X)), rows.labels] = 1.0
        self._total = float(rows.weights.sum())
        w = np.repeat(rows.weights, np.diff(self.indptr))
        mass = np.bincount(self.indices, w * self._values**2, len(columns))
        self._mass = np.maximum(mass, np.finfo(float).tiny)  # a column may hold zeros
        self._constant = np.flatnonzero(columns == constant)
        mass = np.delete(self._mass, self._constant)
        self.has_rare_columns = bool(mass.size and mass.max() > _MAX_EQUAL_MASS_RATIO * mass.min())

    def scale_columns(self, power: float) -> _ScaledRows:
        """Divide columns by a power of their mass, and bring the norm of rows to about 1."""
        scales = self._mass**-power
        scales[self._constant] = 0.0
        mean = float(scales**2 @ self._mass) / self._total if self._total else 0.0
        if mean > 0.0:
            scales /= math.sqrt(mean)
        scales[self._constant] = _CONSTANT_VALUE / np.sqrt(self._mass[self._constant] / self._total)
        values = self._values * scales[self.indices]
        norms = SparseRows(self.indptr, self.indices, values, len(scales)).norms()
        return _ScaledRows(values, norms**2, scales)

    def loss(self, scaled: _ScaledRows, W: Array, which: NDArray[np.int64]) -> tuple[float, float]:
        Z = np.empty((len(which), W.shape[1]))
        linear_models.logits_of(self.indptr, self.indices, scaled.values, which, W, Z)
        if len(self.bases):
            Z += self.bases[which]
        soft = self.rows.soft[which] if len(self.rows.soft) else self.rows.soft
        losses = logit_losses(Z, self.rows.labels[which], soft)
        return float(self.rows.weights[which] @ losses), float(self.rows.weights[which].sum())


class _Fit:
    """A fit to the training rows `rows`, found from the fit of the penalty before."""

    def __init__(self, problem: _Problem, rows: NDArray[np.int64], Q: Array) -> None:
        self._problem, self.rows, self.Q = problem, rows, Q.copy()
        self.W: Array = np.zeros((len(problem.columns), Q.shape[1]))
        self._ridge, self._values = 0.0, np.empty(0)  # for which W belongs to Q

    def solve(
        self,
        scaled: _ScaledRows,
        ridge: float,
        max_passes: int,
        tolerance: float,
        rng: np.random.Generator,
    ) -> None:
        problem, W, Q = self._problem, self.W, self.Q
        values, squares, _ = scaled
        X = problem.indptr, problem.indices, values
        targets = problem.Y, problem.rows.weights
        if values is self._values and ridge < self._ridge:
            # The same model; with the same points it would grow as the ridge shrinks.
            Q += (1.0 - ridge / self._ridge) * (problem.Y - Q)
        else:
            linear_models.weights_of(*X, *targets, Q, ridge, W)
        self._ridge, self._values = ridge, values
        per_row = Q.shape[1] * (len(values) / max(len(Q), 1) + _LOG_EXP_MULTIPLICATIONS)
        chunk = max(1, int(_MULTIPLICATIONS_PER_CHUNK / per_row))
        for _ in range(max_passes):
            order = rng.permutation(self.rows)
            loss, gap = 0.0, 0.0
            for start in range(0, len(order), chunk):
                rows = order[start : start + chunk]
                chunk_loss, chunk_gap = linear_models.ascend(
                    *X, squares, problem.bases, *targets, rows, Q, W, ridge
                )
                loss, gap = loss + chunk_loss, gap + chunk_gap
            if gap <= tolerance * (loss + ridge * float(np.vdot(W, W))):
                break
