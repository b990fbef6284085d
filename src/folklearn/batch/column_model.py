"""A linear model that knows only the columns that occurred, however wide rows are."""

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array, softmax
from folklearn.kernels.dual_ascent import logits_of
from folklearn.kernels.hash_index import Columns
from folklearn.sparse import Contexts, SparseRows


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
