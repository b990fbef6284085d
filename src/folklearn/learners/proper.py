"""What the proper learners share: they play softmax(W x) for a member W of the class.

Online gradient descent and the online Newton step differ in how they move W.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.kernels.first_order import predict_linear, predict_linear_rows
from folklearn.learners.base import Learner
from folklearn.progress import Report
from folklearn.validation import Rows


class ProperLearner(Learner):
    """Rounds that move W; a learner brings `_learn`, `_learn_chunk`, the arrays of its state."""

    PARAMS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "B", "R")
    _chunk: int  # rounds between two chances to report progress or to be interrupted

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * d

    def __init__(self, n_features: int, n_classes: int, B: float, R: float) -> None:
        self._size(n_features, n_classes)
        self.B = validation.positive("B", B)
        self.R = validation.positive("R", R)
        self._W: Array = np.zeros((self.n_classes, self.n_features))

    @abstractmethod
    def _learn_chunk(self, rows: Rows, P: Array, losses: Array) -> None:
        """Predict every row into P and learn it."""

    def _predict(self, x: Array) -> Array:
        p = np.empty(self.n_classes)
        if not predict_linear(self._W, x, validation.MAX_NORM, p):
            validation.check_context(x)
        return p

    def _predict_rows(self, X: Array, norms: Array) -> Array:
        P = np.empty((len(X), self.n_classes))
        predict_linear_rows(self._W, X, P)
        return P

    def _run(self, rows: Rows, report: Report | None) -> Array:
        T = len(rows.X)
        P, losses = np.empty((T, self.n_classes)), np.empty(T)
        for start in range(0, T, self._chunk):
            stop = min(start + self._chunk, T)
            self._learn_chunk(rows.part(start, stop), P[start:stop], losses[start:stop])
            if report is not None:
                report(stop)
        return P

    def coef(self) -> Array:
        """Return the weights W (K, d) that the next prediction uses."""
        return self._W.copy()
