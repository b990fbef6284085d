"""Sparse rows made comparable without making them dense."""

from typing import Any

import numpy as np

from folklearn import problem
from folklearn.errors import InvalidInputError
from folklearn.persist import Saved
from folklearn.sparse import SparseRows, is_sparse

_CONSTANT = 0.3  # beside rows of norm 1: larger ones slow the words down


class SparseScaler(Saved):
    """Divide every row by its norm and append a constant; what is 0 stays 0.

    For words, counts, hashed features: rows that are long because a text is long say no more
    than short ones. Nothing is centred, nothing is remembered of earlier rows, and the number of
    features costs nothing. A missing value (NaN) counts as 0.

    Parameters
    ----------
    n_features : number of raw features d, at least 1.
    scale : False leaves the values as they are.
    intercept : append the constant 0.3 (1 without `scale`); the output then has d + 1 columns.

    Examples
    --------
    >>> scaler = SparseScaler(n_features=4)
    >>> scaler.transform([[0.0, 3.0, 0.0, 4.0]]).dense()
    array([[0. , 0.6, 0. , 0.8, 0.3]])
    """

    WORDS = ("n_features", "scale", "intercept")
    COUNTS = ("_first",)

    def __init__(self, *, n_features: int, scale: bool = True, intercept: bool = True) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self.scale, self.intercept = bool(scale), bool(intercept)
        self._first = self.n_features  # features that come later lie behind the constant

    @property
    def n_columns(self) -> int:
        """The number of columns of the output."""
        return self.n_features + int(self.intercept)

    @property
    def place(self) -> int:
        """The column of the constant, if there is one; features that came late lie behind it."""
        return self._first

    def grow(self, n_features: int) -> None:
        """Make room for features that were 0 in every row so far; they come last."""
        self.n_features = problem.count("n_features", n_features, self.n_features)

    def transform(self, X: Any) -> SparseRows:
        """Return rows (T, d), sparse or dense, or one row as a pair (indices, values), scaled."""
        own = self.rows_of(X, self.n_features)
        norms = problem.rows_of_contexts(own, self.n_features)[1]
        if self.scale:
            factors = np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0.0)
            values = own.values * np.repeat(factors, np.diff(own.indptr))
            own = SparseRows(own.indptr, own.indices, values, self.n_features)
        return self._with_constant(own) if self.intercept else own

    @staticmethod
    def rows_of(X: Any, n_features: int = 1) -> SparseRows:
        """Return raw rows as sparse ones that begin at 0, with 0 for what is missing.

        One row that is given as a pair has at least `n_features`.
        """
        if problem.is_sparse_context(X):
            largest = int(np.max(X[0], initial=-1)) if np.size(X[0]) else -1
            indices, values = problem.sparse_context(X, max(n_features, largest + 1))
            X = SparseRows(
                np.array([0, len(indices)]), indices, values, max(n_features, largest + 1)
            )
        elif not is_sparse(X):
            X = problem.numbers("X", X)
            if X.ndim != 2:
                raise InvalidInputError(
                    f"X has shape {X.shape}; expected (number of rounds, n_features)"
                )
            X = SparseRows.of(X)
        elif not isinstance(X, SparseRows):
            X = problem.sparse_rows(X)
        own: SparseRows = X.compact()
        gaps = np.isnan(own.values)
        if not gaps.any():
            return own
        filled = np.where(gaps, 0.0, own.values)
        return SparseRows.of(SparseRows(own.indptr, own.indices, filled, own.shape[1]).array())

    def _with_constant(self, X: SparseRows) -> SparseRows:
        """Insert the constant behind the first features of every row."""
        T = len(X)
        late = X.indices >= self._first
        rows = np.repeat(np.arange(T), np.diff(X.indptr))
        places = np.arange(X.nnz) + rows + late
        n_late = np.bincount(rows[late], minlength=T)
        constants = X.indptr[1:] + np.arange(T) - n_late
        indices = np.empty(X.nnz + T, X.indices.dtype)
        values = np.empty(X.nnz + T)
        indices[places], values[places] = X.indices + late, X.values
        indices[constants], values[constants] = self._first, _CONSTANT if self.scale else 1.0
        return SparseRows(X.indptr + np.arange(T + 1), indices, values, self.n_columns)
