"""The best linear model in hindsight where matrices of K d squared do not fit: first order.

Spectral projected gradients (Birgin, Martinez and Raydan 2000): a step along the gradient, its
length from how the gradient changed (Barzilai and Borwein), back into the class, shortened
until the loss is below the largest of the last few. One or two passes over the rows a step.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array, logit_losses, softmax
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.map_reduce import RowChunk
from folklearn.evidence.passes import Passes
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, ROUNDS, WEIGHT
from folklearn.kernels.hash_index import Columns
from folklearn.kernels.lower_bound import loss_at_most
from folklearn.kernels.quadratic import merge_totals
from folklearn.sparse import SparseRows

_N_RECENT_LOSSES = 10  # a new loss must be below the largest of these
_SUFFICIENT_DECREASE = 1e-4
_MIN_STEP_LENGTH, _MAX_STEP_LENGTH = 1e-10, 1e10
_BATCH_LOGITS = 2**22
_SCANNED_CHUNK_ROWS = 2**16  # of the pass that looks for columns
_CHUNK_FLOPS = 2**23  # multiply-adds: some ten milliseconds
_MIN_VALUES_PER_COLUMN = 16  # of a chunk: to add sums up must take far less time
_ROW_VALUES = 8  # values that take as long as a row without any


@dataclass(frozen=True)
class LossAndGradient:
    """The loss of a model (n, K) on rows, its gradient, and the totals of the planes there."""

    W: Array
    loss: float
    G: Array
    totals: Array

    @property
    def loss_at_most(self) -> float:
        """The loss of W, rounded up: its true loss is not above."""
        return loss_at_most(self.loss, self.totals, self.W.T)

    def __add__(self, other: "LossAndGradient") -> "LossAndGradient":
        """Return both sets of rows, at the same model."""
        totals = merge_totals(self.totals, other.totals)
        return LossAndGradient(self.W, self.loss + other.loss, self.G + other.G, totals)


@dataclass(frozen=True)
class _Columns:
    """The columns that occur in rows, how many rows there are, and how many values."""

    columns: NDArray[np.int64]
    n_rows: int
    n_values: int

    @classmethod
    def of(cls, chunk: RowChunk) -> "_Columns":
        columns, n_rows, n_values = [np.empty(0, np.int64)], 0, 0
        for rows in chunk.batches:
            X = SparseRows.of_any(rows.X).compact()
            columns.append(np.unique(X.indices))
            n_rows, n_values = n_rows + len(X), n_values + X.nnz
        return cls(np.unique(np.concatenate(columns)), n_rows, n_values)

    def __add__(self, other: "_Columns") -> "_Columns":
        columns = np.union1d(self.columns, other.columns)
        return _Columns(columns, self.n_rows + other.n_rows, self.n_values + other.n_values)


class WideLoss:
    """The loss of all rows, over the columns that occur in them; models are (n, K) here."""

    def __init__(self, passes: Passes, *, n_features: int, n_classes: int) -> None:
        self.n_features, self.n_classes, self._passes = n_features, n_classes, passes
        scan = passes.total(_SCANNED_CHUNK_ROWS, _Columns.of)
        self._columns = Columns.of(scan.columns)
        met = scan.n_values / max(scan.n_rows, 1) + _ROW_VALUES
        least = max(_CHUNK_FLOPS / n_classes, _MIN_VALUES_PER_COLUMN * self._columns.n)
        self._chunk_rows = math.ceil(least / met)

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns (n,) that occur."""
        return self._columns.columns

    def narrow(self, W: Array) -> Array:
        """Return a model (K, d) as one of the columns that occur."""
        return np.ascontiguousarray(W[:, self._columns.columns].T)

    def widen(self, W: Array) -> Array:
        """Return a model of the columns that occur as (K, d)."""
        wide = np.zeros((self.n_classes, self.n_features))
        wide[:, self._columns.columns] = W.T
        return wide

    def at(self, W: Array) -> LossAndGradient:
        """Read all rows: their loss at W, and its gradient."""
        return self._passes.total(self._chunk_rows, lambda chunk: self._sum_chunk(chunk, W))

    def _sum_chunk(self, chunk: RowChunk, W: Array) -> LossAndGradient:
        loss, G, totals = 0.0, np.zeros_like(W), np.zeros(N_TOTALS)
        size = max(1, _BATCH_LOGITS // self.n_classes)
        for rows in chunk.batches:
            for start in range(0, len(rows.X), size):
                batch = rows.part(start, start + size)
                X = self._narrow_rows(SparseRows.of_any(batch.X).compact())
                Z = X @ W
                loss += float(batch.weights @ logit_losses(Z, batch.labels, batch.soft))
                P = softmax(Z)
                logs = np.log(np.maximum(P, np.finfo(float).tiny))
                totals[CONSTANT] -= batch.weights @ (P * logs).sum(axis=1)
                totals[WEIGHT] += batch.weights.sum()
                totals[REACH] += batch.weights @ batch.norms
                totals[[DEPTH, ROUNDS]] += len(P)
                if len(batch.soft):
                    P -= batch.soft
                else:
                    P[np.arange(len(P)), batch.labels] -= 1.0
                G += X.T @ (P * batch.weights[:, None])
        return LossAndGradient(W, loss, G, totals)

    def _narrow_rows(self, X: SparseRows) -> Any:
        """Return rows as a SciPy array of the columns that occur."""
        places = self._columns.find(X.indices)
        return SparseRows(X.indptr, places, X.values, self._columns.n).array()

    def evidence(self, at: LossAndGradient, B: float) -> LinearEvidence:
        """Return the evidence of all rows, with planes that touch at this model."""
        return LinearEvidence.of(
            self._columns.columns,
            at.G,
            at.totals,
            n_features=self.n_features,
            B=B,
            first_classes=self.n_classes,
        )


class Descent:
    """The search for the best model of row norm at most B; every `step` is one new model.

    n_passes : passes so far, with the one that looked for columns.
    """

    def __init__(self, loss: WideLoss, W: Array, B: float, most_passes: int) -> None:
        self._loss, self.B, self._most = loss, B, most_passes
        self.here = loss.at(_into_class(W, B))
        self.n_passes = 2
        steepest = _lengths(self.here.G).max()
        self._length = B / steepest if steepest > 0.0 else 1.0
        self._recent = deque([self.here.loss], _N_RECENT_LOSSES)

    def step(self) -> bool:
        """Take a step; return whether there was one to take."""
        W, loss, G = self.here.W, self.here.loss, self.here.G
        towards = _into_class(W - self._length * G, self.B) - W
        slope = float((towards * G).sum())
        if not slope < 0.0:
            return False
        fraction, accepted = 1.0, None
        while accepted is None:
            if self.n_passes >= self._most or fraction < _MIN_STEP_LENGTH:
                return False
            tried = self._loss.at(W + fraction * towards)
            self.n_passes += 1
            rise = tried.loss - loss - fraction * slope
            if tried.loss <= max(self._recent) + _SUFFICIENT_DECREASE * fraction * slope:
                accepted = tried
            else:
                lowest = -0.5 * fraction**2 * slope / rise
                fraction = min(max(lowest, 0.1 * fraction), 0.5 * fraction)
        moved, turned = accepted.W - W, accepted.G - G
        curved = float((moved * turned).sum())
        square = float((moved * moved).sum())
        length = square / curved if curved > 0 else _MAX_STEP_LENGTH
        self._length = min(max(length, _MIN_STEP_LENGTH), _MAX_STEP_LENGTH)
        self.here = accepted
        self._recent.append(accepted.loss)
        return math.isfinite(accepted.loss)


def _lengths(W: Array) -> Array:
    """Return the norms (K,) of the classes of a model (n, K)."""
    lengths: Array = np.sqrt((W**2).sum(axis=0))
    return lengths


def _into_class(W: Array, B: float) -> Array:
    inside: Array = W * (B / np.maximum(_lengths(W), B))
    return inside
