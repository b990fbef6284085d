"""The loss of all rows by passes over them, and the best model of a norm in hindsight.

`best_in_class` is about the class of the paper, models of row norm at most B, by spectral projected
gradients (Birgin, Martinez and Raydan 2000): a step along the gradient, its length from how the
gradient changed, back into the class, shortened until it is below the largest of recent losses.
"""

import functools
import math
import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import TINY, Array, Labels
from folklearn.evidence.passes import Passes, RowChunk, backtrack_factor, passes_over
from folklearn.kernels import evidence as kernels
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, ROUNDS, WEIGHT
from folklearn.kernels.hash_index import Columns
from folklearn.kernels.on_torch.expand import find_residuals
from folklearn.kernels.quadratic import Quadratic, merge_totals
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.sparse import SparseRows
from folklearn.validation import Rows

Report = Callable[["Pass"], None]

_MAX_PASSES = 2000
_MAX_IDLE_PASSES = 40  # without a smaller gap: what is left is rounding
_N_RECENT_LOSSES = 10  # a new loss must be below the largest of these
_SUFFICIENT_DECREASE = 1e-4
_MIN_STEP_LENGTH, _MAX_STEP_LENGTH = 1e-10, 1e10
_BATCH_LOGITS = 2**16  # of dense rows, which should stay in the cache
_SPARSE_BATCH_LOGITS = 2**22
_SCANNED_CHUNK_ROWS = 2**16  # of the pass that looks for columns
_CHUNK_FLOPS = 2**23  # multiply-adds: some ten milliseconds
_MIN_VALUES_PER_COLUMN = 16  # of a chunk: to add sums up must take far less time
_ROW_VALUES = 8  # values that take as long as a row without any


class Pass(NamedTuple):
    """The state of a search after a pass, numbered from 1."""

    number: int
    loss: float  #: total, with the penalty if there is one, of the model of this pass, rounded up
    at_least: float  #: no model of the class has less; the best of all passes
    gap: float  #: the least loss of a model so far, less `at_least`


@dataclass(frozen=True)
class BestLinearModel:
    """The best model W (K, d) of row norms at most B, up to a proven gap, after some passes."""

    W: Array
    loss: float  #: total (weighted) log loss of W, in nats, rounded up
    at_least: float  #: no model of the class has a total loss below
    B: float
    n_passes: int
    converged: bool  #: whether the gap came below the tolerance

    @property
    def gap(self) -> float:
        """Proven distance of ``loss`` from the least loss in the class, rounding included."""
        return self.loss - self.at_least


def predict_residuals(
    Z: Array, labels: Labels, soft: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """Return softmax (K, m) of logits, residuals w (p - y), and losses (m,); Z is overwritten.

    Exponentials of 1 are counted, and the others added up without them: a loss of 1e-20 has all its
    digits.
    """
    rows = np.arange(Z.shape[1])
    Z -= Z.max(axis=0)
    label_logits: Array = np.einsum("tk,kt->t", soft, Z) if len(soft) else Z[labels, rows]
    P = np.exp(Z, out=Z)
    ones = P == 1.0
    P -= ones
    others = P.sum(axis=0) + (ones.sum(axis=0) - 1.0)
    P += ones
    P /= 1.0 + others
    residuals = P - soft.T if len(soft) else P.copy()
    if not len(soft):
        residuals[labels, rows] -= 1.0
    residuals *= weights
    return P, residuals, np.log1p(others) - label_logits


@dataclass(frozen=True)
class LossAndGradient:
    """The loss of a model (K, d) on rows, its gradient, and the totals of the planes there."""

    W: Array
    loss: float
    G: Array
    totals: Array

    @classmethod
    def of(cls, rows: Rows, W: Array) -> "LossAndGradient":
        """Return those of some rows, whose X is an array of NumPy or of SciPy."""
        X, labels, soft, weights = rows
        is_dense = isinstance(X, np.ndarray)
        norms = validation.norms(X) if is_dense else np.sqrt(X.power(2).sum(axis=1))
        Z = W @ X.T if is_dense else np.ascontiguousarray((X @ W.T).T)
        P, residuals, losses = predict_residuals(Z, labels, soft, weights)
        totals = np.zeros(N_TOTALS)
        totals[CONSTANT] = -weights @ (P * np.log(np.maximum(P, TINY))).sum(axis=0)
        totals[[WEIGHT, REACH]] = weights.sum(), weights @ norms
        totals[[DEPTH, ROUNDS]] = len(weights)
        G = residuals @ X if is_dense else np.asarray((X.T @ residuals.T).T)
        return cls(W, float(weights @ losses), G, totals)

    @property
    def loss_at_most(self) -> float:
        """The loss of W, rounded up: its true loss is not above."""
        return kernels.loss_at_most(self.loss, self.totals, self.W)

    def __add__(self, other: "LossAndGradient") -> "LossAndGradient":
        totals = merge_totals(self.totals, other.totals)
        return LossAndGradient(self.W, self.loss + other.loss, self.G + other.G, totals)


@dataclass(frozen=True)
class _ColumnScan:
    columns: NDArray[np.int64]  # that occur in rows
    n_rows: int
    n_values: int

    @classmethod
    def of(cls, chunk: RowChunk) -> "_ColumnScan":
        Xs = [SparseRows.of(rows.X).compact() for rows in chunk.batches]
        columns = np.unique(np.concatenate([np.empty(0, np.int64), *(X.indices for X in Xs)]))
        return cls(columns, sum(map(len, Xs)), sum(X.nnz for X in Xs))

    def __add__(self, other: "_ColumnScan") -> "_ColumnScan":
        columns = np.union1d(self.columns, other.columns)
        return _ColumnScan(columns, self.n_rows + other.n_rows, self.n_values + other.n_values)


class TotalLoss:
    """The loss of all rows as a function of models (K, n) of the columns (n,) that occur in them.

    These are all d columns, unless matrices of K d squared would not fit.
    """

    def __init__(self, passes: Passes, *, n_features: int, n_classes: int) -> None:
        self.n_features, self.n_classes, self._passes = n_features, n_classes, passes
        self.is_wide = select_backend(n_features, n_classes, passes.device) != PAIRS
        self.columns, self.n_passes = np.arange(n_features), 0
        self._places: Columns | None = None
        row_cost = float(n_features)
        if self.is_wide:
            scan = passes.total(_SCANNED_CHUNK_ROWS, _ColumnScan.of)
            self.columns, self.n_passes = scan.columns, 1
            self._places = Columns.of(scan.columns)
            row_cost = scan.n_values / max(scan.n_rows, 1) + _ROW_VALUES
        chunk_cost = max(_CHUNK_FLOPS / n_classes, _MIN_VALUES_PER_COLUMN * len(self.columns))
        self.chunk_rows = math.ceil(chunk_cost / row_cost)

    def narrow(self, W: Array) -> Array:
        """Return a model (K, d) as one of the columns that occur."""
        return np.ascontiguousarray(W[:, self.columns])

    def widen(self, W: Array) -> Array:
        """Return a model of the columns that occur as (K, d)."""
        wide = np.zeros((self.n_classes, self.n_features))
        wide[:, self.columns] = W
        return wide

    def at(self, W: Array) -> LossAndGradient:
        """Read all rows: their loss at W, and its gradient."""
        self.n_passes += 1
        device = self._passes.device
        if device is None or self.is_wide:
            return self.total(lambda rows: LossAndGradient.of(rows, W), _nothing(W))
        on_device, sums = device.put(W), _nothing(W)
        for _, rows in self._passes.on_device(len(W)):
            loss, G, totals = find_residuals(device, rows, on_device)
            sums += LossAndGradient(W, loss, G, totals)
        return sums

    def expand(self, W: Array) -> Quadratic:
        """Read all rows: their loss to second order at W."""
        self.n_passes += 1
        return self._passes.expand(W).quadratic

    def total(self, sum_rows: Callable[[Rows], Any], nothing: Any) -> Any:
        """Return the sum over all rows, whose X is an array of NumPy or of SciPy."""
        logits = _SPARSE_BATCH_LOGITS if self.is_wide else _BATCH_LOGITS
        n, places = max(64, logits // self.n_classes), self._places

        def sum_chunk(chunk: RowChunk) -> Any:  # of these alone: it travels, and passes do not
            sums = [
                sum_rows(_select_columns(rows.part(start, start + n), places))
                for rows in chunk.batches
                for start in range(0, len(rows.X), n)
            ]
            return functools.reduce(operator.add, sums) if sums else nothing

        return self._passes.total(self.chunk_rows, sum_chunk)


def _select_columns(rows: Rows, columns: Columns | None) -> Rows:
    """Return rows of certain columns as an array of SciPy, or of all as one of NumPy."""
    if columns is None:
        X = rows.X.dense() if isinstance(rows.X, SparseRows) else rows.X
        return rows._replace(X=X)
    X = SparseRows.of(rows.X).compact()
    places = columns.find(X.indices)
    return rows._replace(X=SparseRows(X.indptr, places, X.values, columns.n).array())


def _nothing(W: Array) -> LossAndGradient:
    return LossAndGradient(W, 0.0, np.zeros_like(W), np.zeros(N_TOTALS))


def _project_into_class(W: Array, B: float) -> Array:
    lengths = np.sqrt((W**2).sum(axis=1, keepdims=True))
    return W * (B / np.maximum(lengths, B))


def best_in_class(
    X: Any,
    y: ArrayLike,
    *,
    B: float,
    n_classes: int,
    weight: ArrayLike | None = None,
    tol: float = 1e-8,
    most_passes: int = _MAX_PASSES,
    n_jobs: int = 1,
    device: str | None = None,
) -> BestLinearModel:
    """Minimise the total log loss over linear models of row norm at most B, the paper's class.

    For models of any norm see `logistic_regression`. Tens to hundreds of passes of O(K d) a row.

    Guarantee: ``at_least`` of the result is at most the loss of every model of the class and its
    ``loss`` at least that of W, in floating point too. The gap between them comes below ``tol``
    times (1 + loss) unless rounding or the number of passes is in the way; ``converged`` says so.

    Parameters
    ----------
    X, y, weight : as in `Folklore.run`; y is (T,) classes or (T, K) soft labels.
    B : largest row norm, positive.
    n_classes : K, at least 2.
    tol, most_passes : relative tolerance of the gap, positive; passes over the rows, at most.
    n_jobs : threads that share the sums over rows, -1 for all cores; the same result to the last
        bit.
    device : where the sums are made: "cpu", the default, or a device of PyTorch such as "cuda".

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    >>> best = best_in_class(X, y, B=5.0, n_classes=2)
    >>> best.converged, best.gap < 1e-5, bool(best.loss < 200 * np.log(2))
    (True, True, True)
    """
    X, B, tol = validation.table(X), validation.positive("B", B), validation.positive("tol", tol)
    sizes = {"n_features": X.shape[1], "n_classes": validation.count("n_classes", n_classes, 2)}
    loss = TotalLoss(passes_over(X, y, weight, **sizes, n_jobs=n_jobs, device=device), **sizes)
    return _descend(loss, B, tol, most_passes)


def _descend(loss: TotalLoss, B: float, tol: float, most_passes: int) -> BestLinearModel:
    here = loss.at(np.zeros((loss.n_classes, len(loss.columns))))
    recent = deque([here.loss], _N_RECENT_LOSSES)
    steepest = validation.longest_row(here.G)
    length = B / steepest if steepest > 0.0 else 1.0
    best, at_least, gap, n_idle = here, -math.inf, math.inf, 0
    while True:
        norms = np.sqrt((here.G**2).sum(axis=1))
        at_least = max(at_least, kernels.lower_bound_of_planes(here.totals, norms, here.G.size, B))
        best = min(best, here, key=lambda at: at.loss)
        before, gap = gap, best.loss_at_most - at_least
        n_idle = 0 if gap < before else n_idle + 1
        converged = gap <= tol * (1.0 + best.loss_at_most)
        step = _project_into_class(here.W - length * here.G, B) - here.W
        slope, fraction = float((step * here.G).sum()), 1.0
        if converged or n_idle >= _MAX_IDLE_PASSES or not slope < 0.0:
            break
        after = None
        while after is None and loss.n_passes < most_passes and fraction >= _MIN_STEP_LENGTH:
            tried = loss.at(here.W + fraction * step)
            if tried.loss <= max(recent) + _SUFFICIENT_DECREASE * fraction * slope:
                after = tried
            else:
                fraction *= backtrack_factor(fraction * slope, tried.loss - here.loss)
        if after is None or not math.isfinite(after.loss):
            break
        moved = after.W - here.W
        curvature = float((moved * (after.G - here.G)).sum())
        length = float((moved * moved).sum()) / curvature if curvature > 0 else _MAX_STEP_LENGTH
        length = min(max(length, _MIN_STEP_LENGTH), _MAX_STEP_LENGTH)
        here = after
        recent.append(here.loss)
    W, n_passes = loss.widen(best.W), loss.n_passes
    return BestLinearModel(W, best.loss_at_most, at_least, B, n_passes, converged)
