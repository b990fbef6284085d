"""What the proper learners share: they play softmax(W x) for a member W of the class.

Online gradient descent and the online Newton step differ in how they move W.
"""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.rounds import Labels, Report, RoundLearner, Rows
from folklearn.numerics.first_order import predict_linear, predict_linear_rows
from folklearn.persist import Record

Array = NDArray[np.float64]


class ProperLearner(RoundLearner):
    """Rounds that move W; a learner brings `_learn`, `_learn_chunk`, the arrays of its state."""

    WORDS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "B", "R")
    PARTS: ClassVar[tuple[str, ...]]  # the arrays of the state, in private attributes
    _chunk: int  # rounds between two chances to report progress or to be interrupted

    def __init__(self, n_features: int, n_classes: int, B: float, R: float) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self.n_classes = problem.count("n_classes", n_classes, 2)
        self.B = problem.positive("B", B)
        self.R = problem.positive("R", R)
        self._shape = (self.n_features,)
        self._W: Array = np.zeros((self.n_classes, self.n_features))

    def _learn_chunk(
        self, X: Array, labels: Labels, soft: Array, weights: Array, P: Array, losses: Array
    ) -> None:
        """Predict every row of X into P and learn it."""
        raise NotImplementedError

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out."""
        if not problem.is_context(x, self._shape):
            x = problem.numbers("x", x)
            if x.ndim == 2:
                X = problem.contexts(x, self.n_features)[0]
                P = np.empty((len(X), self.n_classes))
                predict_linear_rows(self._W, X, P)
                return P
            x = problem.context(x, self.n_features)
        p = np.empty(self.n_classes)
        if not predict_linear(self._W, x, problem.MAX_NORM, p):
            problem.refuse_context(x)
        return p

    def _learn_rows(self, rows: Rows, report: Report) -> Array:
        T = len(rows.X)
        P, losses = np.empty((T, self.n_classes)), np.empty(T)
        for start in range(0, T, self._chunk):
            stop = min(start + self._chunk, T)
            X, _, labels, soft, weights = rows.part(start, stop)
            self._learn_chunk(X, labels, soft, weights, P[start:stop], losses[start:stop])
            if report is not None:
                report(stop)
        return P

    def coef(self) -> Array:
        """Return the weights W (K, d) that the next prediction uses."""
        return self._W.copy()

    def to_record(self) -> Record:
        """Return the full state as a record."""
        config = {word: getattr(self, word) for word in self.WORDS}
        arrays = {part: getattr(self, f"_{part}").copy() for part in self.PARTS}
        return Record(type(self).__name__, config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a learner from its record."""
        name = cls.__name__
        try:
            model = cls(**record.config)
        except (TypeError, InvalidInputError) as error:
            raise StateFileError(f"a {name} state has a bad configuration: {error}") from None
        for part in cls.PARTS:
            own: Array = getattr(model, f"_{part}")
            own[:] = record.part(part, own.shape)
        return model
