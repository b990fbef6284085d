"""Penalised maximum likelihood for wide rows and many classes, without a matrix of all pairs."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array, logit_losses, softmax
from folklearn.kernels import dual_ascent
from folklearn.kernels.dual_ascent import logits_of
from folklearn.kernels.hash_index import Columns
from folklearn.sparse import Contexts, SparseRows
from folklearn.validation import Rows

MOST_PASSES = 50  # for one ridge
POWERS = (0.0, 0.125, 0.25)  # of a column's sum of squares, by which it is divided
FIRST_RIDGE = 0.03  # for contexts of norm about 1
_STEP = math.sqrt(10.0)  # from ridge to ridge
_MOST_RIDGES = 12  # for one power
_LEAST, _MOST = 1e-15, 1e15  # ridge
_MOST_PASSES_OF_A_SEARCH = 15
_ROUGHLY, _NEARLY = 1e-2, 1e-4  # of the objective, that may be missing
_FEWEST = 12  # rows below which nothing is held out
_MANY = 3000  # rows from which one fold is enough to choose by
_N_PARTS, _N_FOLDS = 6, 3  # of the rows, and how many of these are left out in turn
_SAME = 10.0  # ratio of sums of squares up to which columns count as equally frequent
_CONSTANT = 0.3  # that the constant should be where rows are of norm 1
_CHUNK = 1e8  # multiplications between two chances to be interrupted
_LOG_AND_EXP = 10.0  # what these cost, in multiplications


class WideFit(NamedTuple):
    """A linear model of the columns that occurred.

    Attributes
    ----------
    columns : (n,), in order.
    weights : (n, K), of these; all others are 0.
    ridge, power : chosen for them, see `wide_fit`.
    held_out : average loss of the rows that were left out; NaN if there were too few.
    """

    columns: NDArray[np.int64]
    weights: Array
    ridge: float
    power: float
    held_out: float


def wide_fit(
    rows: Rows, n_classes: int, *, constant: int = -1, most_passes: int = MOST_PASSES, seed: int = 0
) -> WideFit:
    r"""Return the penalised fit to sparse rows, its penalty chosen on rows that are held out.

    .. math:: \arg\min_W \sum_j \lambda\, s_j^{2a} |W_j|^2 + \sum_t w_t\, \ell(W x_t, y_t),
        \qquad s_j = \sum_t w_t x_{tj}^2

    by dual coordinate ascent (`kernels.dual_ascent`): the order of the rows is random in each
    pass. The power a is 0, a plain ridge; or 1/8 or 1/4, where rare columns are penalised less
    than frequent ones (at 1/4 it is the metric of AdaGrad). For each, smaller ridges are tried as
    long as they help, or else larger ones, each fit from its neighbour; a larger power only if the
    one before helped. The rows left out are one part in six, three of these one after the other if
    there are few rows.

    A heuristic: nothing is proven of the loss at new rows. A pass takes 4 K flops a value that is
    not 0, and a logarithm and an exponential for each class; there are three to ten for each of
    about fifteen ridges. One thread does it: every row begins where the one before left the
    weights. Memory: 8 K bytes a row and column that occurred, three times, and 12 bytes a value.

    Parameters
    ----------
    rows : all of them, sparse; those without weight are left out.
    constant : the column of the constant, if there is one, which is not to be penalised as
        others are.
    most_passes : for each fit.
    seed : of the rows left out and of the order.
    """
    rows = rows.of(np.flatnonzero(rows.weights > 0.0))
    rng = np.random.default_rng(seed)
    problem = _Problem(rows, n_classes, constant)
    T = len(rows.X)
    ridge = FIRST_RIDGE * float(rows.weights.mean()) if T else FIRST_RIDGE
    best = _Tried(math.nan, ridge, POWERS[0], problem.Y)
    if T >= _FEWEST:
        best = _Search(problem, most_passes, rng).best(ridge)
    scaled = problem.scaled(best.power)
    final = _Fit(problem, np.arange(T), best.Q)
    final.solve(scaled, best.ridge, most_passes, _NEARLY, rng)
    weights = final.W * scaled.scales[:, None]
    return WideFit(problem.columns, weights, best.ridge, best.power, best.held_out)


class _Scaled(NamedTuple):
    """The values of all rows for one power, their squared norms (T,), and what columns became."""

    values: Array
    squares: Array
    scales: Array


class _Problem:
    """All rows, by the columns that occurred."""

    def __init__(self, rows: Rows, n_classes: int, constant: int) -> None:
        X: SparseRows = rows.X.compact()
        self.rows = rows
        self.indptr = X.indptr
        columns, places = np.unique(X.indices, return_inverse=True)
        self.columns = columns.astype(np.int64)
        self.indices = places.astype(np.int32)
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
        others = np.delete(self._mass, self._constant)
        self.varied = bool(others.size and others.max() > _SAME * others.min())

    def scaled(self, power: float) -> _Scaled:
        """Divide columns by a power of their mass, and bring the norm of rows to about 1."""
        scales = self._mass**-power
        scales[self._constant] = 0.0
        mean = float(scales**2 @ self._mass) / self._total if self._total else 0.0
        if mean > 0.0:
            scales /= math.sqrt(mean)
        scales[self._constant] = _CONSTANT / np.sqrt(self._mass[self._constant] / self._total)
        values = self._values * scales[self.indices]
        norms = SparseRows(self.indptr, self.indices, values, len(scales)).norms()
        return _Scaled(values, norms**2, scales)

    def loss(self, scaled: _Scaled, W: Array, which: NDArray[np.int64]) -> float:
        """Return the total loss of some rows."""
        Z = np.empty((len(which), W.shape[1]))
        dual_ascent.logits_of(self.indptr, self.indices, scaled.values, which, W, Z)
        some = self.rows.soft[which] if len(self.rows.soft) else self.rows.soft
        losses = logit_losses(Z, self.rows.labels[which], some)
        return float(self.rows.weights[which] @ losses)


class _Fit:
    """A fit to some rows, each found from the one before."""

    def __init__(self, problem: _Problem, own: NDArray[np.int64], Q: Array) -> None:
        self._problem, self.own, self.Q = problem, own, Q.copy()
        self.W: Array = np.zeros((len(problem.columns), Q.shape[1]))
        self._ridge, self._scaled = 0.0, np.empty(0)  # for which W belongs to Q

    def solve(
        self, scaled: _Scaled, ridge: float, most: int, tolerance: float, rng: np.random.Generator
    ) -> None:
        """Find the fit for a ridge, but for a part of the objective."""
        problem, W, Q = self._problem, self.W, self.Q
        values, squares, _ = scaled
        rows = problem.indptr, problem.indices, values
        given = problem.Y, problem.rows.weights
        if values is self._scaled and ridge < self._ridge:
            # The same model; with the same points it would grow as the ridge shrinks.
            Q += (1.0 - ridge / self._ridge) * (problem.Y - Q)
        else:
            dual_ascent.weights_of(*rows, *given, Q, ridge, W)
        self._ridge, self._scaled = ridge, values
        met = Q.shape[1] * (len(values) / max(len(Q), 1) + _LOG_AND_EXP)
        chunk = max(1, int(_CHUNK / met))
        for _ in range(most):
            order = rng.permutation(self.own)
            loss, gap = 0.0, 0.0
            for start in range(0, len(order), chunk):
                own = order[start : start + chunk]
                lost, missing = dual_ascent.ascend(*rows, squares, *given, own, Q, W, ridge)
                loss, gap = loss + lost, gap + missing
            if gap <= tolerance * (loss + ridge * float(np.vdot(W, W))):
                break


class _Tried(NamedTuple):
    """A penalty, what rows that were left out lost with it, and the points of the others."""

    held_out: float
    ridge: float
    power: float
    Q: Array


class _Search:
    """Fits of several penalties to the same rows, and their loss on those left out."""

    def __init__(self, problem: _Problem, most_passes: int, rng: np.random.Generator) -> None:
        T = len(problem.Y)
        self._problem, self._rng = problem, rng
        self._most = min(most_passes, _MOST_PASSES_OF_A_SEARCH)
        part = rng.permutation(T) % _N_PARTS
        folds = range(1 if T >= _MANY else _N_FOLDS)
        self._fits = [_Fit(problem, np.flatnonzero(part != fold), problem.Y) for fold in folds]
        self._news = [np.flatnonzero(part == fold) for fold in folds]

    def best(self, ridge: float) -> _Tried:
        """Return the best penalty."""
        best = self._of_power(POWERS[0], ridge)
        for power in POWERS[1:] if self._problem.varied else ():
            tried = self._of_power(power, best.ridge)
            if not tried.held_out < best.held_out:
                break
            best = tried
        return best

    def _of_power(self, power: float, ridge: float) -> _Tried:
        """Return the best ridge for one power."""
        scaled = self._problem.scaled(power)
        first = best = self._at(scaled, ridge, power)
        for factor in (1.0 / _STEP, _STEP):
            for n in range(1, _MOST_RIDGES):
                if not _LEAST <= first.ridge * factor**n <= _MOST:
                    break
                tried = self._at(scaled, first.ridge * factor**n, power)
                if not tried.held_out < best.held_out:
                    break
                best = tried
            if best is not first:
                break
        return best

    def _at(self, scaled: _Scaled, ridge: float, power: float) -> _Tried:
        """Return what a penalty does."""
        loss, weight, Q = 0.0, 0.0, self._problem.Y.copy()
        for fit, new in zip(self._fits, self._news, strict=True):
            fit.solve(scaled, ridge, self._most, _ROUGHLY, self._rng)
            loss += self._problem.loss(scaled, fit.W, new)
            weight += float(self._problem.rows.weights[new].sum())
            Q[fit.own] = fit.Q[fit.own]
        return _Tried(loss / weight if math.isfinite(loss) else math.inf, ridge, power, Q)


class ColumnModel:
    """Weights (n, K) of the columns (n,); all others have none."""

    def __init__(self, columns: NDArray[np.int64], weights: Array) -> None:
        self.columns, self.weights = columns, weights
        self._places = Columns.of(columns)

    def predict(self, X: Contexts) -> Array:
        """Return the probabilities (T, K) of rows (T, d)."""
        if not isinstance(X, SparseRows):
            return softmax(X[:, self.columns] @ self.weights)
        X = X.compact()
        places = self._places.find(X.indices)
        values = np.where(places >= 0, X.values, 0.0)
        Z = np.zeros((len(X), self.weights.shape[1]))
        if len(self.weights):
            every = np.arange(len(X))
            logits_of(X.indptr, np.maximum(places, 0), values, every, self.weights, Z)
        return softmax(Z)
