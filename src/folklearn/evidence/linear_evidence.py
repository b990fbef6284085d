"""Evidence of first order: lower bounds for linear models of any width."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.evidence.evidence import Evidence
from folklearn.evidence.lower_bound import LowerBound
from folklearn.kernels import evidence as kernels
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, WEIGHT
from folklearn.kernels.hash_index import Columns
from folklearn.kernels.quadratic import merge_totals
from folklearn.serialization import Record
from folklearn.sparse import SparseRows, check_columns
from folklearn.validation import Rows

_LEAST_SHARE = 1e-6  # of predictions that are uniform, where they are balanced
_MAX_IMBALANCE, _MAX_BALANCE_STEPS = 0.01, 100


class LinearEvidence(LowerBound):
    r"""A sum of planes, each below the loss of its row for every linear model.

    Use it where `Evidence`, which has a matrix for every pair of classes, does not fit: wide and
    sparse rows, many classes. It is added up in the same way.

    .. math::
        c + \langle G, W\rangle \le \sum_t w_t\, \ell(W x_t, y_t), \qquad
        \min_W \{c + \langle G, W\rangle + \tfrac12 \|W\|_\tau^2\} = c - \tfrac12 \sum_{kj}
        G_{kj}^2 / \tau_j

    with :math:`c = \sum w H(p)` and :math:`G = \sum w (p - y) x^\top`, p any prediction of the row.
    The bound is tight only where G is nearly 0: at predictions of the best model it is the
    loss of that one, and what is missing grows with their distance.

    Time O(K) a row and value that is not 0; memory 8 K bytes for every column that occurred.

    Guarantee: `lower_bound` is at most the total loss plus penalty of every linear model, in
    floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    C, constant : of the penalty, as of `Evidence`.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import random_array
    >>> from folklearn import LinearEvidence
    >>> X = random_array((500, 10**6), density=2e-5, format="csr", rng=np.random.default_rng(0))
    >>> y = np.arange(500) % 3
    >>> evidence = LinearEvidence(n_features=10**6, n_classes=3, C=0.01)
    >>> evidence.add(X, y)  # at predictions of 1/3, 1/3, 1/3
    >>> evidence.n_rounds, bool(0.9 < evidence.lower_bound() / (500 * np.log(3)) < 1.0)
    (500, True)
    """

    def __init__(
        self, *, n_features: int, n_classes: int, C: float = 1.0, constant: int | None = None
    ) -> None:
        super().__init__(n_features=n_features, n_classes=n_classes, C=C, constant=constant)
        self._totals = np.zeros(N_TOTALS)
        self._columns = Columns()
        self._rows: Array = np.zeros((self._columns.room, self.n_classes))  # G, a row per column

    @classmethod
    def of(
        cls, columns: NDArray[np.int64], G: Array, totals: Array, *, n_features: int,
        C: float = 1.0, constant: int | None = None,
    ) -> Self:  # fmt: skip
        """Return evidence of a sum G (n, K) by the columns (n,) that occurred, and totals."""
        evidence = cls(n_features=n_features, n_classes=G.shape[1], C=C, constant=constant)
        evidence._add_columns(columns, G)
        evidence._totals[:] = totals
        return evidence

    @classmethod
    def tangent_to(cls, evidence: Evidence) -> Self:
        """Return the plane that touches evidence of second order near its minimum."""
        _, W = evidence.minimise()
        tangent = evidence._tangent(W, evidence._share(W))
        products = tangent.slope * W
        K, d = W.shape
        totals = evidence._all_totals()
        kappa = kernels.relative_rounding(totals[DEPTH], K, K * d)
        away = float((tangent.rounding * np.abs(W).sum(axis=1)).sum())
        away += float(kappa * np.abs(products).sum())
        totals[CONSTANT] = tangent.value - float(products.sum()) - away
        # What the slope may be off by is counted as the rounding of longer rows.
        totals[REACH] = max(totals[REACH], float(tangent.rounding.max()) / (2.0 * kappa))
        sizes: dict[str, Any] = {"C": evidence.C, "constant": evidence.constant}
        G = np.ascontiguousarray(tangent.slope.T)
        return cls.of(np.arange(d), G, totals, n_features=d, **sizes)

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns (n,) that occurred."""
        return self._columns.columns

    @property
    def G(self) -> Array:
        """The sum G (n, K), a row for each of `columns`."""
        return self._rows[: self._columns.n]

    def _add_columns(self, columns: NDArray[np.int64], G: Array) -> None:
        rows = self._rows_of(columns)
        self._rows[rows, : G.shape[1]] += G

    def _rows_of(self, columns: Any) -> NDArray[np.int64]:
        """Return the rows of G for columns, new ones for columns that had not occurred."""
        index = self._columns.with_room(self._columns.n_with(columns))
        if (n_more := index.room - len(self._rows)) > 0:
            self._rows = np.pad(self._rows, ((0, n_more), (0, 0)))
        self._columns = index
        return index.enter(columns)

    def _parts(self) -> dict[str, NDArray[Any]]:
        return {"columns": self.columns, "G": self.G, "totals": self._totals}

    def add(
        self, X: Any, y: ArrayLike, *, weight: ArrayLike | None = None, at: ArrayLike | None = None
    ) -> None:
        """Add rows as `Evidence.add` does, whose planes touch at the predictions of W (K, d).

        Any model is sound, and a good one tight; by default it is 0, which predicts 1/K.
        """
        rows = Rows.checked(X, y, weight, **self._sizes)
        if at is None:
            return self._add(rows)
        W = validation.model("at", at, self.n_classes, self.n_features)
        return self._add_planes(rows, softmax(rows.X @ W.T))

    def _add(self, rows: Rows) -> None:
        self._add_planes(rows, np.full((len(rows.X), self.n_classes), 1.0 / self.n_classes))

    def _add_planes(self, rows: Rows, P: Array) -> None:
        """Add checked rows whose planes touch at P (T, K), any distributions."""
        X = SparseRows.of(rows.X).compact()
        places = self._rows_of(X.indices)
        kernels.add_planes(
            self._rows,
            self._totals,
            P,
            X.indptr,
            places,
            X.values,
            rows.labels,
            rows.soft,
            rows.weights,
            validation.norms(rows.X),
        )

    def _add_balanced(self, rows: Rows, P: Array) -> None:
        """Add rows with soft labels, whose planes touch near P (T, K).

        Predictions are multiplied by a factor for each class, such that the slope along the
        constant, which is hardly penalised, is about 0.
        """
        K, weights, slope = self.n_classes, rows.weights, np.zeros(self.n_classes)
        if self.constant is not None:
            slope = self.G[self.columns == self.constant].sum(axis=0)
        total = float(weights.sum())
        wanted = np.maximum(weights @ rows.soft - slope, 1e-9 * total)
        P = (1.0 - _LEAST_SHARE) * P + _LEAST_SHARE / K
        P /= P.sum(axis=1, keepdims=True)
        for _ in range(_MAX_BALANCE_STEPS if total > 0.0 and self.constant is not None else 0):
            sums = weights @ P
            if np.abs(sums - wanted).max() <= _MAX_IMBALANCE:
                break
            P *= wanted / sums
            P /= P.sum(axis=1, keepdims=True)
        self._add_planes(rows, P)

    def _sum(self, other: Self) -> Self:
        both = self.grown()
        both._add_columns(other.columns, other.G)
        both._totals = merge_totals(self._totals, other._totals)
        return both

    def __mul__(self, factor: float) -> Self:
        factor = validation.fraction("factor", factor, 1.0)
        scaled = self.grown()
        scaled._rows *= factor
        scaled._totals[[CONSTANT, WEIGHT, REACH]] *= factor
        scaled._totals[DEPTH] += 1.0
        return scaled

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        larger = self._empty(n_features, n_classes)
        larger._add_columns(self.columns, self.G)
        larger._totals[:] = self._totals
        return larger

    def lower_bound(self) -> float:
        return kernels.penalised_lower_bound(self._totals, self.G, self._penalties_of(self.columns))

    def value(self, W: ArrayLike) -> float:
        W = validation.model("W", W, self.n_classes, self.n_features)
        longest = validation.longest_row(W)
        return kernels.value_of_planes(self._totals, self.G, W[:, self.columns].T, longest)

    def _restore(self, record: Record) -> None:
        columns = record.part("columns", (None,), np.int64)
        G = record.part("G", (len(columns), self.n_classes))
        check_columns(columns, self.n_features)
        self._add_columns(columns, G)
        super()._restore(record)
