"""Evidence of first order: lower bounds for linear models of any width."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.evidence.evidence import Evidence, LowerBound
from folklearn.evidence.passes import ONE_THREAD, MapReduce
from folklearn.kernels.evidence import (
    CONSTANT,
    N_TOTALS,
    add_planes,
    lower_bound_of_planes,
    value_of_planes,
)
from folklearn.kernels.hash_index import Columns
from folklearn.kernels.lower_bound import Minimum, plane
from folklearn.kernels.quadratic import merge_totals
from folklearn.serialization import Record
from folklearn.sparse import SparseRows, check_columns
from folklearn.validation import Rows

_BATCH_LOGITS = 2**20


class LinearEvidence(LowerBound):
    r"""A sum of planes, each below the loss of its row for every linear model.

    Use it where `Evidence`, which has a matrix for every pair of classes, does not fit: wide and
    sparse rows, many classes. It is added up in the same way, and every B can be asked about,
    also afterwards (up to `largest_B`, if some of it is taken from `Evidence`).

    .. math::
        c + \langle G, W\rangle \le \sum_t w_t\, \ell(W x_t, y_t), \qquad
        \min_{\|w_i\| \le B} = c - B \sum_i \|G_i\|

    with :math:`c = \sum w H(p)` and :math:`G = \sum w (p - y) x^\top`, p the prediction of the
    model ``at``. Any is sound. The bound is tight only where G is nearly 0 or the class is
    small: at the best model of the class it is its loss, and what is missing grows in
    proportion to the distance from it, where that of `Evidence` grows with its square.

    Time O(K) a row and value that is not 0; memory 8 K bytes for every column that occurred.

    Guarantee: `lower_bound` is at most the total loss of every model of row norm at most B, in
    floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    B : largest row norm of the models of `lower_bound` by default, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import random_array
    >>> from folklearn import LinearEvidence
    >>> X = random_array((500, 10**6), density=2e-5, format="csr", rng=np.random.default_rng(0))
    >>> y = np.arange(500) % 3
    >>> evidence = LinearEvidence(n_features=10**6, n_classes=3, B=0.1)
    >>> evidence.add(X, y)  # at the model that predicts 1/3, 1/3, 1/3
    >>> evidence.n_rounds, bool(0.9 < evidence.lower_bound() / (500 * np.log(3)) < 1.0)
    (500, True)
    """

    UNBOUNDED = ("limit",)

    def __init__(self, *, n_features: int, n_classes: int, B: float = 10.0) -> None:
        super().__init__(n_features=n_features, n_classes=n_classes, B=B)
        self._totals = np.zeros(N_TOTALS)
        self._columns = Columns()
        self._rows: Array = np.zeros((self._columns.room, self.n_classes))  # G, a row per column
        self._limit: Array = np.array([math.inf])  # B that all planes hold for

    @classmethod
    def of(
        cls, columns: NDArray[np.int64], G: Array, totals: Array, *, n_features: int, B: float,
        first_classes: int, limit: float = math.inf,
    ) -> Self:  # fmt: skip
        """Return evidence of a sum G (n, K) by the columns (n,) that occurred, and totals."""
        evidence = cls(n_features=n_features, n_classes=G.shape[1], B=B)
        evidence._add_columns(columns, G)
        evidence._totals[:] = totals
        evidence._limit[:] = limit
        evidence._first_classes = first_classes
        return evidence

    @classmethod
    def tangent_to(cls, evidence: Evidence) -> Self:
        """Return the plane that touches evidence of second order near its minimum.

        It lies below the same losses, for models of the class of that evidence.
        """
        constant, G = plane(evidence._sums, evidence.minimise().W, evidence.B)
        totals = evidence._totals.copy()
        totals[CONSTANT] = constant
        return cls.of(
            np.arange(evidence.n_features),
            np.ascontiguousarray(G.T),
            totals,
            n_features=evidence.n_features,
            B=evidence.B,
            first_classes=evidence._first_classes,
            limit=evidence.B,
        )

    @property
    def largest_B(self) -> float:
        """The largest row norm of models that this evidence covers: infinity mostly."""
        return float(self._limit[0])

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
        if len(self._rows) < index.room:
            larger = np.zeros((index.room, self.n_classes))
            larger[: len(self._rows)] = self._rows
            self._rows = larger
        self._columns = index
        return index.enter(columns)

    def _parts(self) -> dict[str, NDArray[Any]]:
        return {
            "columns": self.columns,
            "G": self.G,
            "limit": self._limit,
            "totals": self._totals,
        }

    def _add(self, rows: Rows, W: Array | None, engine: MapReduce = ONE_THREAD) -> None:
        size = max(1, _BATCH_LOGITS // self.n_classes)
        fits_one_batch = len(rows.X) <= size
        added = self if fits_one_batch else self._empty()
        for start in range(0, len(rows.X), size):
            batch = rows.part(start, start + size)
            Z = np.zeros((len(batch.X), self.n_classes)) if W is None else batch.X @ W.T
            added._add_planes(batch, softmax(Z))
        if not fits_one_batch:
            both = self + added
            self._columns, self._rows, self._totals = both._columns, both._rows, both._totals

    def _add_planes(self, rows: Rows, P: Array) -> None:
        """Add checked rows whose planes touch at P (T, K), any distributions."""
        X, norms, labels, soft, weights = rows
        X = SparseRows.of(X).compact()
        places = self._rows_of(X.indices)
        add_planes(
            self._rows, self._totals, P, X.indptr, places, X.values, labels, soft, weights, norms
        )

    def _sum(self, other: Self) -> Self:
        both = self._empty()
        both._add_columns(self.columns, self.G)
        both._add_columns(other.columns, other.G)
        both._limit = np.minimum(self._limit, other._limit)
        both._totals = merge_totals(self._totals, other._totals)
        return both

    def _multiply(self, factor: float) -> Self:
        scaled = self._empty()
        scaled._add_columns(self.columns, factor * self.G)
        scaled._limit[:] = self._limit
        return scaled

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return the same evidence about models of more features and classes, which come last."""
        larger = self._empty(n_features, n_classes)
        larger._add_columns(self.columns, self.G)
        larger._limit[:], larger._totals[:] = self._limit, self._totals
        return larger

    def minimise(self, *, B: float | None = None) -> Minimum:
        """Return `lower_bound`, the model (K, d) at which it is reached, and norms (K,) of G."""
        covered, _ = self._covered_class(None, B)
        norms = self._norms()
        W = np.zeros((self.n_classes, self.n_features))
        W[:, self.columns] = -covered * (self.G / np.maximum(norms, np.finfo(float).tiny)).T
        return Minimum(self.lower_bound(B=covered), W, norms)

    def lower_bound(self, *, B: float | None = None) -> float:
        """Return a lower bound on the total loss of every model of row norm at most B."""
        covered, _ = self._covered_class(None, B)
        n_columns = self._columns.n
        return lower_bound_of_planes(self._totals, self._norms(), n_columns, covered)

    def _norms(self) -> Array:
        """Return the norms (K,) of G for each class."""
        norms: Array = np.sqrt((self.G**2).sum(axis=0))
        return norms

    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d)."""
        self._covered_class(W, None)
        W = validation.model("W", W, self.n_classes, self.n_features)
        longest = float(np.sqrt((W**2).sum(axis=1)).max())
        return value_of_planes(self._totals, self.G, W[:, self.columns].T, longest)

    def _restore(self, record: Record) -> None:
        columns = record.part("columns", (None,), np.int64)
        G = record.part("G", (len(columns), self.n_classes))
        check_columns(columns, self.n_features)
        self._add_columns(columns, G)
        super()._restore(record)
