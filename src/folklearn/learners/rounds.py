"""What the compiled learners share: the checks around one round and around many, and files."""

import os
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem
from folklearn.learners.contract import Progress
from folklearn.persist import Record
from folklearn.progress import reporter

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Report = Callable[[int], None] | None  # told the number of rounds done


class Rows(NamedTuple):
    """Checked examples: X (T, d), its row norms (T,), labels and weights.

    Labels are classes (T,), or all -1 where `soft` (T, K) has rows.
    """

    X: Array
    norms: Array
    labels: Labels
    soft: Array
    weights: Array

    def part(self, start: int, stop: int) -> "Rows":
        """Return the examples from `start` to before `stop`."""
        rows = slice(start, stop)  # of no soft labels that is none
        X, norms, labels, soft, weights = self
        return Rows(X[rows], norms[rows], labels[rows], soft[rows], weights[rows])


class RoundLearner:
    """The verbs `update`, `run` and `save`; a learner brings `_learn` and `_learn_rows`.

    One model is for one thread at a time, predictions included: a prediction may be kept for
    the update that follows it.
    """

    WORDS: ClassVar[tuple[str, ...]]  # the constructor's parameters, each an attribute
    n_features: int
    n_classes: int
    _shape: tuple[int, ...]  # of a context

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        """Learn one example and return its loss; NaN if the norm of x is unusable."""
        raise NotImplementedError

    def _learn_rows(self, rows: Rows, report: Report) -> Array:
        """Predict, then learn, checked rows; return the predictions."""
        raise NotImplementedError

    def to_record(self) -> Record:
        """Return the full state as a record."""
        raise NotImplementedError

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example and return its log loss -ln p[y], predicted before learning.

        y is a class 0..K-1 or a point of the simplex (K,). The example counts `weight` times;
        the returned loss is unweighted. A label may arrive long after `predict(x)`: the round
        is then predicted again from the present state, and that prediction is the one that
        loss and certificate count.
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

        Equal to the loop over `predict` and `update`, at the speed of compiled blocks. Every
        row is checked before the first round. y is (T,) classes or (T, K) soft labels;
        `progress` is True for a bar or a function of the number of rounds done.
        """
        X, norms = problem.contexts(X, self.n_features)
        labels, soft = problem.labels(y, len(X), self.n_classes)
        rows = Rows(X, norms, labels, soft, problem.weights(weight, len(X)))
        with reporter(progress, len(X), "learning") as report:
            return self._learn_rows(rows, report)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        words = ", ".join(f"{word}={getattr(self, word)!r}" for word in self.WORDS)
        return f"{type(self).__name__}({words})"
