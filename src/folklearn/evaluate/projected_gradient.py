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
from folklearn.evidence.evidence import merged
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.map_reduce import RowChunk
from folklearn.evidence.passes import Passes
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, ROUNDS, WEIGHT
from folklearn.kernels.hash_index import Columns
from folklearn.kernels.lower_bound import loss_at_most
from folklearn.sparse import SparseRows

_REMEMBERED = 10  # losses that a new one must be below the largest of
_SUFFICIENT = 1e-4
_SHORTEST, _LONGEST = 1e-10, 1e10
_BLOCK = 2**22  # logits at a time
_MANY = 2**16  # rows at a time whose columns are looked for
_LEAF = 2**23  # multiply-adds of a chunk: some ten milliseconds
_MERGED = 16  # values to be met for every column: to add sums up must take far less time
_A_ROW = 8  # values that a row takes as long as, beside its own


@dataclass(frozen=True)
class LossAndGradient:
    """Rows at one model: its loss, the gradient (n, K), and the totals of their planes."""

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
        totals = merged(self.totals, other.totals)
        return LossAndGradient(self.W, self.loss + other.loss, self.G + other.G, totals)


@dataclass(frozen=True)
class _Seen:
    """The columns that occur in rows, how many rows there are, and how many values."""

    columns: NDArray[np.int64]
    n_rows: int
    n_values: int

    @classmethod
    def of(cls, chunk: RowChunk) -> "_Seen":
        columns, n_rows, n_values = [np.empty(0, np.int64)], 0, 0
        for rows in chunk.batches:
            X = SparseRows.of_any(rows.X).compact()
            columns.append(np.unique(X.indices))
            n_rows, n_values = n_rows + len(X), n_values + X.nnz
        return cls(np.unique(np.concatenate(columns)), n_rows, n_values)

    def __add__(self, other: "_Seen") -> "_Seen":
        columns = np.union1d(self.columns, other.columns)
        return _Seen(columns, self.n_rows + other.n_rows, self.n_values + other.n_values)


class WideLoss:
    """The loss of all rows, over the columns that occur in them; models are (n, K) here."""

    def __init__(self, passes: Passes, *, n_features: int, n_classes: int) -> None:
        self.n_features, self.n_classes, self._passes = n_features, n_classes, passes
        seen = passes.total(_MANY, _Seen.of)
        self._columns = Columns.of(seen.columns)
        met = seen.n_values / max(seen.n_rows, 1) + _A_ROW
        least = max(_LEAF / n_classes, _MERGED * self._columns.n)
        self._chunk_rows = math.ceil(least / met)

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns (n,) that occur."""
        return self._columns.columns

    def narrow(self, W: Array) -> Array:
        """Return a model (K, d) as one of the columns that occur."""
        return np.ascontiguousarray(W[:, self._columns.columns].T)

    def widened(self, W: Array) -> Array:
        """Return a model of the columns that occur as (K, d)."""
        wide = np.zeros((self.n_classes, self.n_features))
        wide[:, self._columns.columns] = W.T
        return wide

    def at(self, W: Array) -> LossAndGradient:
        """Read all rows: their loss at W, and its gradient."""
        return self._passes.total(self._chunk_rows, lambda chunk: self._touched(chunk, W))

    def _touched(self, chunk: RowChunk, W: Array) -> LossAndGradient:
        loss, G, totals = 0.0, np.zeros_like(W), np.zeros(N_TOTALS)
        size = max(1, _BLOCK // self.n_classes)
        for rows in chunk.batches:
            for start in range(0, len(rows.X), size):
                part = rows.part(start, start + size)
                X = self._narrowed(SparseRows.of_any(part.X).compact())
                Z = X @ W
                loss += float(part.weights @ logit_losses(Z, part.labels, part.soft))
                P = softmax(Z)
                logs = np.log(np.maximum(P, np.finfo(float).tiny))
                totals[CONSTANT] -= part.weights @ (P * logs).sum(axis=1)
                totals[WEIGHT] += part.weights.sum()
                totals[REACH] += part.weights @ part.norms
                totals[[DEPTH, ROUNDS]] += len(P)
                if len(part.soft):
                    P -= part.soft
                else:
                    P[np.arange(len(P)), part.labels] -= 1.0
                G += X.T @ (P * part.weights[:, None])
        return LossAndGradient(W, loss, G, totals)

    def _narrowed(self, X: SparseRows) -> Any:
        """Return rows as a SciPy array of the columns that occur."""
        places = self._columns.find(X.indices)
        return SparseRows(X.indptr, places, X.values, self._columns.n).array()

    def evidence(self, touched: LossAndGradient, B: float) -> LinearEvidence:
        """Return the evidence of all rows, their planes where `touched` is."""
        return LinearEvidence.of(
            self._columns.columns,
            touched.G,
            touched.totals,
            n_features=self.n_features,
            B=B,
            first_classes=self.n_classes,
        )


class Descent:
    """The search for the best model of row norm at most B; every `step` is one new model.

    n_passes : that were made, the one included that looked for columns.
    """

    def __init__(self, loss: WideLoss, W: Array, B: float, most_passes: int) -> None:
        self._loss, self.B, self._most = loss, B, most_passes
        self.here = loss.at(_into_class(W, B))
        self.n_passes = 2
        steepest = _lengths(self.here.G).max()
        self._length = B / steepest if steepest > 0.0 else 1.0
        self._recent = deque([self.here.loss], _REMEMBERED)

    def step(self) -> bool:
        """Go one step; tell whether there was one to go."""
        W, loss, G = self.here.W, self.here.loss, self.here.G
        towards = _into_class(W - self._length * G, self.B) - W
        slope = float((towards * G).sum())
        if not slope < 0.0:
            return False
        fraction, there = 1.0, None
        while there is None:
            if self.n_passes >= self._most or fraction < _SHORTEST:
                return False
            tried = self._loss.at(W + fraction * towards)
            self.n_passes += 1
            rise = tried.loss - loss - fraction * slope
            if tried.loss <= max(self._recent) + _SUFFICIENT * fraction * slope:
                there = tried
            else:
                lowest = -0.5 * fraction**2 * slope / rise
                fraction = min(max(lowest, 0.1 * fraction), 0.5 * fraction)
        moved, turned = there.W - W, there.G - G
        curved = float((moved * turned).sum())
        square = float((moved * moved).sum())
        self._length = min(max(square / curved, _SHORTEST), _LONGEST) if curved > 0 else _LONGEST
        self.here = there
        self._recent.append(there.loss)
        return math.isfinite(there.loss)


def _lengths(W: Array) -> Array:
    """Return the norms (K,) of the classes of a model (n, K)."""
    lengths: Array = np.sqrt((W**2).sum(axis=0))
    return lengths


def _into_class(W: Array, B: float) -> Array:
    inside: Array = W * (B / np.maximum(_lengths(W), B))
    return inside
