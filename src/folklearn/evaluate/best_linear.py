"""The best linear model in hindsight and its proof, by a few passes over all rows.

Newton's method over the class; where matrices of K d squared do not fit, spectral projected
gradients (Birgin, Martinez and Raydan 2000): a step along the gradient, its length from how the
gradient changed (Barzilai and Borwein), back into the class, shortened until the loss is below the
largest of the last few. One or two passes over the rows a step.
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
from folklearn.evidence.evidence import Evidence, LowerBound
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.passes import Passes, RowChunk, backtrack_factor, passes_over
from folklearn.kernels.blas import threads_for
from folklearn.kernels.evidence import (
    CONSTANT,
    DEPTH,
    MIN_TOTAL_WEIGHT,
    N_TOTALS,
    REACH,
    ROUNDS,
    WEIGHT,
)
from folklearn.kernels.hash_index import Columns
from folklearn.kernels.lower_bound import TOLERANCE, loss_at_most, minimise, project_into_class
from folklearn.kernels.quadratic import merge_totals
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.sparse import SparseRows
from folklearn.validation import Rows

Report = Callable[["Pass"], None]

MAX_PASSES = 50
MAX_WIDE_PASSES = 500  # of first order, each cheaper by far
_MAX_IDLE_PASSES, _MAX_IDLE_WIDE_PASSES = 8, 40  # without a smaller gap: what is left is rounding
_STEP_TOLERANCE = 1e-6  # of the gap: a proof with little curvature magnifies errors of a step;
_MIN_STEP_TOLERANCE = 1e-13  # in nats per unit of weight, below which is rounding

_NEARLY_CERTAIN = 1e-3  # sum of the other classes' exponentials, relative to the largest one
# Of projected gradients.
_N_RECENT_LOSSES = 10  # a new loss must be below the largest of these
_SUFFICIENT_DECREASE = 1e-4
_MIN_STEP_LENGTH, _MAX_STEP_LENGTH = 1e-10, 1e10
_BATCH_LOGITS = 2**22
_SCANNED_CHUNK_ROWS = 2**16  # of the pass that looks for columns
_CHUNK_FLOPS = 2**23  # multiply-adds: some ten milliseconds
_MIN_VALUES_PER_COLUMN = 16  # of a chunk: to add sums up must take far less time
_ROW_VALUES = 8  # values that take as long as a row without any


class Pass(NamedTuple):
    """The state of a search after a pass, numbered from 1."""

    number: int
    loss: float  # total, of the model at which this pass expanded the rows, rounded up
    at_least: float  # no model of the class has a total loss below; the best of all passes
    gap: float  # the least loss of a model so far, less `at_least`


@dataclass(frozen=True)
class BestLinearModel:
    """The best model W (K, d) of row norms at most B, up to a proven gap, after some passes.

    Attributes
    ----------
    loss : total (weighted) log loss of W, in nats, rounded up: its true loss is not above.
    evidence : the evidence with the highest lower bound, all rows expanded at one model.
    at_least : that lower bound: no model of the class has a total loss below.
    converged : whether the gap came below the tolerance.
    """

    W: Array
    loss: float
    evidence: LowerBound
    at_least: float
    B: float
    n_passes: int
    converged: bool

    @property
    def gap(self) -> float:
        """Proven distance of ``loss`` from the least loss in the class, rounding included."""
        return self.loss - self.at_least


def refine(
    passes: Passes,
    *,
    n_features: int,
    n_classes: int,
    B: float,
    at: ArrayLike | None = None,
    tol: float = 1e-6,
    most_passes: int | None = None,
    report: Report | None = None,
) -> BestLinearModel:
    r"""Find the best model of the class and prove it, reading all rows a few times over.

    Use it where rows are too many for memory, or where evidence of one pass is not tight
    enough; `best_in_class` is for arrays. Each pass expands every row at its model W, twice:

    .. math::
        \hat E_\gamma(V) \le L(V) \text{ in the class,} \qquad
        \hat E_{1/2}(V) = L(V) + O(\|V - W\|^3)

    The minimum of the first is a proof; the minimiser of the second over the class is the next W,
    or a shorter step if its loss is not lower. The gap of the proof is of second order in the
    distance of W from the best model, so near it every pass about squares the gap.

    A pass takes (K d)^2 flops a row and two minima some twenty systems of K d equations;
    memory 4 (K d)^2 bytes. Where that does not fit (`select_backend`), it is projected gradients
    and evidence of first order: tens to hundreds of passes of O(K) a value that is not 0.

    Guarantee: ``at_least`` of the result is at most the loss of every model of the class, and its
    ``loss`` at least that of its W, in floating point too, whether or not it converged. That it
    converges is observed, not proven.

    Parameters
    ----------
    passes : all rows, see `passes_over`.
    n_features, n_classes, B : the class.
    at : model (K, d) to begin with, by default 0.
    tol : of the gap, relative to 1 + loss. Below about 1e-10 rounding is in the way, and sooner
        where the sum of w B |x| is far above the loss: 1e-13 of it stays in the gap, or more.
    most_passes : at least 1, by default 50 (500 of first order); it also ends when the gap does not
        become smaller any more.
    report : called with a `Pass` after each.
    """
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, tol = validation.positive("B", B), validation.positive("tol", tol)
    W = validation.model("at", at, K, d)
    is_wide = select_backend(d, K, passes.device) != PAIRS
    default = MAX_WIDE_PASSES if is_wide else MAX_PASSES
    most = default if most_passes is None else validation.count("most_passes", most_passes, 1)
    search = _Search(B, tol, _MAX_IDLE_WIDE_PASSES if is_wide else _MAX_IDLE_PASSES, report)
    return (_descend if is_wide else _take_newton_steps)(passes, W, search, most)


class _Search:
    """The best model and the best proof so far."""

    def __init__(self, B: float, tol: float, max_idle: int, report: Report | None) -> None:
        self.B, self._tol, self._max_idle, self._report = B, tol, max_idle, report
        self.W, self.loss, self.loss_at_most = np.empty((0, 0)), np.inf, np.inf
        self.evidence: LowerBound | None = None
        self.at_least, self.gap = -np.inf, np.inf
        self._n_idle = 0

    def add(
        self, number: int, W: Array, loss: float, loss_at_most: float, evidence: LowerBound,
        lower_bound: float,
    ) -> bool:  # fmt: skip
        """Take in the model and the proof of a pass; return whether the model is the best."""
        is_first = self.evidence is None
        if is_first or lower_bound > self.at_least:
            self.evidence, self.at_least = evidence, lower_bound
        is_best = is_first or loss < self.loss
        if is_best:
            self.W, self.loss, self.loss_at_most = W, loss, loss_at_most
        gap_before, self.gap = self.gap, self.loss_at_most - self.at_least
        self._n_idle = 0 if is_first or self.gap < gap_before else self._n_idle + 1
        if self._report is not None:
            self._report(Pass(number, loss_at_most, self.at_least, self.gap))
        return is_best

    @property
    def has_converged(self) -> bool:
        return self.gap <= self._tol * (1.0 + self.loss_at_most)

    @property
    def has_ended(self) -> bool:
        return self.has_converged or self._n_idle >= self._max_idle

    def result(self, W: Array, n_passes: int) -> BestLinearModel:
        assert self.evidence is not None
        proof = self.evidence, self.at_least, self.B
        return BestLinearModel(W, self.loss_at_most, *proof, n_passes, self.has_converged)


def _take_newton_steps(passes: Passes, W: Array, search: _Search, most: int) -> BestLinearModel:
    B, W = search.B, project_into_class(W, search.B)
    step, slope, length = np.zeros_like(W), 0.0, 1.0
    near_proof: Array | None = None  # multipliers of the last proof,
    near_step: Array | None = None  # and of the last step
    for number in range(1, most + 1):
        expansion = passes.expand(W, (B,))
        proof = Evidence.of(expansion.sums[1], B=B, first_classes=len(W))
        lower_bound, _, near_proof = proof.minimise(near_proof)
        rise = expansion.loss - search.loss
        losses = expansion.loss, expansion.loss_at_most
        is_best = search.add(number, W, *losses, proof, lower_bound)
        if search.has_ended:
            break
        if is_best:
            quadratic = expansion.sums[0]  # the loss to second order
            weight = max(float(quadratic.totals[WEIGHT]), MIN_TOTAL_WEIGHT)
            enough = max(_STEP_TOLERANCE * search.gap / weight, _MIN_STEP_TOLERANCE)
            with threads_for(W.size):
                _, target, near_step = minimise(quadratic, B, min(enough, TOLERANCE), near_step)
            step, length = target - W, 1.0
            slope = float((expansion.gradient() * step).sum())
        else:
            length *= backtrack_factor(slope * length, rise)
        W = search.W + length * step
    return search.result(search.W, number)


def _descend(passes: Passes, W: Array, search: _Search, most: int) -> BestLinearModel:
    """Find and prove the best model by projected gradients."""
    K, d = W.shape
    loss = WideLoss(passes, n_features=d, n_classes=K)
    here, n_passes = loss.at(project_into_class(loss.narrow(W), search.B)), 2  # one for columns
    recent = deque([here.loss], _N_RECENT_LOSSES)
    steepest = validation.longest_row(here.G)
    length = search.B / steepest if steepest > 0.0 else 1.0
    while True:
        evidence = loss.evidence(here, search.B)
        losses = here.loss, here.loss_at_most
        search.add(n_passes, here.W, *losses, evidence, evidence.lower_bound())
        step = project_into_class(here.W - length * here.G, search.B) - here.W
        slope, fraction = float((step * here.G).sum()), 1.0
        if search.has_ended or not slope < 0.0:
            break
        after = None
        while after is None and n_passes < most and fraction >= _MIN_STEP_LENGTH:
            tried, n_passes = loss.at(here.W + fraction * step), n_passes + 1
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
    return search.result(loss.widen(search.W), n_passes)


def predict_residuals(
    Z: Array, labels: Labels, soft: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """Return softmax (K, m) of logits, residuals w (p - y), and losses (m,); Z is overwritten.

    Classes come first: sums over a short last axis are slow. Where one class is nearly certain,
    the others are added up without it: a loss of 1e-20 has all its digits.
    """
    rows = np.arange(Z.shape[1])
    Z -= Z.max(axis=0)
    label_logits: Array = np.einsum("tk,kt->t", soft, Z) if len(soft) else Z[labels, rows]
    P = np.exp(Z, out=Z)
    sums = P.sum(axis=0)
    others = sums - 1.0
    certain = np.flatnonzero(others < _NEARLY_CERTAIN)
    small = P[:, certain]
    small[small.argmax(axis=0), rows[: len(certain)]] = 0.0
    others[certain] = small.sum(axis=0)
    P /= sums
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
    def of(cls, rows: Rows, W: Array, *, has_planes: bool = True) -> "LossAndGradient":
        """Return those of some rows, whose X is an array of NumPy or of SciPy."""
        X, norms, labels, soft, weights = rows
        is_dense = isinstance(X, np.ndarray)
        Z = W @ X.T if is_dense else np.ascontiguousarray((X @ W.T).T)
        P, residuals, losses = predict_residuals(Z, labels, soft, weights)
        totals = np.zeros(N_TOTALS)
        if has_planes:
            totals[CONSTANT] = -weights @ (P * np.log(np.maximum(P, TINY))).sum(axis=0)
            totals[[WEIGHT, REACH]] = weights.sum(), weights @ norms
            totals[[DEPTH, ROUNDS]] = len(weights)
        G = residuals @ X if is_dense else np.asarray((X.T @ residuals.T).T)
        return cls(W, float(weights @ losses), G, totals)

    @property
    def loss_at_most(self) -> float:
        """The loss of W, rounded up: its true loss is not above."""
        return loss_at_most(self.loss, self.totals, self.W)

    def __add__(self, other: "LossAndGradient") -> "LossAndGradient":
        """Return both sets of rows, at the same model."""
        totals = merge_totals(self.totals, other.totals)
        return LossAndGradient(self.W, self.loss + other.loss, self.G + other.G, totals)


@dataclass(frozen=True)
class _ColumnScan:
    """The columns that occur in rows, how many rows there are, and how many values."""

    columns: NDArray[np.int64]
    n_rows: int
    n_values: int

    @classmethod
    def of(cls, chunk: RowChunk) -> "_ColumnScan":
        columns, n_rows, n_values = [np.empty(0, np.int64)], 0, 0
        for rows in chunk.batches:
            X = SparseRows.of(rows.X).compact()
            columns.append(np.unique(X.indices))
            n_rows, n_values = n_rows + len(X), n_values + X.nnz
        return cls(np.unique(np.concatenate(columns)), n_rows, n_values)

    def __add__(self, other: "_ColumnScan") -> "_ColumnScan":
        columns = np.union1d(self.columns, other.columns)
        return _ColumnScan(columns, self.n_rows + other.n_rows, self.n_values + other.n_values)


class WideLoss:
    """The loss of all rows, over the columns (n,) that occur in them; models are (K, n) here."""

    def __init__(self, passes: Passes, *, n_features: int, n_classes: int) -> None:
        self.n_features, self.n_classes, self._passes = n_features, n_classes, passes
        scan = passes.total(_SCANNED_CHUNK_ROWS, _ColumnScan.of)
        self.columns = scan.columns
        self._places = Columns.of(scan.columns)
        row_cost = scan.n_values / max(scan.n_rows, 1) + _ROW_VALUES
        chunk_cost = max(_CHUNK_FLOPS / n_classes, _MIN_VALUES_PER_COLUMN * len(scan.columns))
        self._chunk_rows = math.ceil(chunk_cost / row_cost)

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
        return self._passes.total(self._chunk_rows, lambda chunk: self._sum_chunk(chunk, W))

    def _sum_chunk(self, chunk: RowChunk, W: Array) -> LossAndGradient:
        sums = []
        size = max(1, _BATCH_LOGITS // self.n_classes)
        for rows in chunk.batches:
            for start in range(0, len(rows.X), size):
                batch = rows.part(start, start + size)
                X = SparseRows.of(batch.X).compact()
                places = self._places.find(X.indices)
                narrow = SparseRows(X.indptr, places, X.values, len(self.columns)).array()
                sums.append(LossAndGradient.of(batch._replace(X=narrow), W))
        nothing = LossAndGradient(W, 0.0, np.zeros_like(W), np.zeros(N_TOTALS))
        return functools.reduce(operator.add, sums) if sums else nothing

    def evidence(self, at: LossAndGradient, B: float) -> LinearEvidence:
        """Return the evidence of all rows, with planes that touch at this model."""
        sizes = {"n_features": self.n_features, "first_classes": self.n_classes}
        G = np.ascontiguousarray(at.G.T)
        return LinearEvidence.of(self.columns, G, at.totals, **sizes, B=B)


def best_in_class(
    X: Any,
    y: ArrayLike,
    *,
    B: float,
    n_classes: int,
    weight: ArrayLike | None = None,
    tol: float = 1e-8,
    n_jobs: int = 1,
    device: str | None = None,
) -> BestLinearModel:
    """Minimise the total log loss over linear models of row norm at most B.

    The passes of `refine` over rows in memory: Newton's method with the class as it is, mostly 3
    to 10 steps of T (K d)^2 multiply-adds, each with a lower bound that proves how near the model
    is. For problems too wide for that: first order, and a gap that may stay above the tolerance.

    Guarantee: ``at_least`` of the result is at most the loss of every model of the class and its
    ``loss`` at least that of W, in floating point too. The gap between them comes below ``tol``
    times (1 + loss) unless rounding is in the way; ``converged`` says so.

    Parameters
    ----------
    X, y, weight : as in `Folklore.run`; y is (T,) classes or (T, K) soft labels.
    B : largest row norm, positive.
    n_classes : K, at least 2.
    tol : relative tolerance of the gap, positive.
    n_jobs : threads that share the sums over rows, -1 for all cores; the same result to the last
        bit. From 1000 coordinates d K on BLAS shares them out itself.
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
    X = validation.table(X)
    sizes = {"n_features": X.shape[1], "n_classes": validation.count("n_classes", n_classes, 2)}
    passes = passes_over(X, y, weight, **sizes, n_jobs=n_jobs, device=device)
    return refine(passes, **sizes, B=B, tol=tol)
