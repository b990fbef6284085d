"""What the proper learners share: they play softmax(W x) for a member W of the class.

Online gradient descent and the online Newton step differ in how they move W; the verbs
around that are here, once.
"""

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, progress
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import Progress
from folklearn.numerics.first_order import predict_linear, predict_linear_rows
from folklearn.persist import Record

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class ProperLearner:
    """The verbs; a learner brings `_learn`, `_learn_rows` and the arrays of its state."""

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

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        """Learn one example and return its loss; NaN if the norm of x is unusable."""
        raise NotImplementedError

    def _learn_rows(
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

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example and return its log loss -ln p[y], predicted before learning.

        y is a class 0..K-1 or a point of the simplex (K,). The weight multiplies the
        gradient; the returned loss is unweighted.
        """
        if not problem.is_context(x, self._shape):
            x = problem.context(x, self.n_features)
        label, soft = problem.label(y, self.n_classes)
        if type(weight) is not float or weight != 1.0:
            weight = problem.weight(weight)
        loss = self._learn(x, label, soft, weight)
        if loss != loss:
            problem.refuse_context(x)
        return loss

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> Array:
        """Predict, then learn, row by row; return the predictions (T, K).

        Equal to the loop over `predict` and `update`. Every row is checked before the first
        round. y is (T,) classes or (T, K) soft labels; `progress` is True for a bar or a
        function of the number of rounds done.
        """
        return self._run(X, y, weight, progress)[0]

    def _run(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None, show: Progress
    ) -> tuple[Array, Array]:
        X = problem.contexts(X, self.n_features)[0]
        labels, soft = problem.labels(y, len(X), self.n_classes)
        weights = problem.weights(weight, len(X))
        P = np.empty((len(X), self.n_classes))
        losses = np.empty(len(X))
        with progress.reporter(show, len(X), "learning") as report:
            for start in range(0, len(X), self._chunk):
                rows = slice(start, min(start + self._chunk, len(X)))
                some = soft[rows] if len(soft) else soft
                self._learn_rows(X[rows], labels[rows], some, weights[rows], P[rows], losses[rows])
                if report is not None:
                    report(rows.stop)
        return P, losses

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        words = ", ".join(f"{word}={getattr(self, word)!r}" for word in self.WORDS)
        return f"{type(self).__name__}({words})"
