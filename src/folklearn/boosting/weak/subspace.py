"""A learner of this library that sees only some of the features."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, registry
from folklearn.boosting.weak.probabilistic import Probabilistic
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import Learner
from folklearn.persist import Record

Array = NDArray[np.float64]


class Subspace:
    r"""A learner that sees a few columns of x and a constant 1.

    Use it to make weak learners that differ: `random_subspaces` draws the columns. It
    predicts and learns as the learner inside does, with :math:`(x_J, 1)` for x.

    Parameters
    ----------
    learner : any learner, with ``n_features`` one more than the number of columns.
    columns : the columns J of x, different, each 0..d-1.
    n_features : number of features d of x.

    Examples
    --------
    >>> from folklearn import Folklore
    >>> from folklearn.boosting import Subspace
    >>> model = Subspace(Folklore(n_features=3, n_classes=2), [0, 4], n_features=5)
    >>> model.predict([1.0, 2.0, 3.0, 4.0, 5.0])
    array([0.5, 0.5])
    """

    def __init__(self, learner: Learner, columns: Sequence[int], n_features: int) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self.columns = [problem.count("a column", column, 0) for column in columns]
        if len(set(self.columns)) < len(self.columns) or max(self.columns, default=0) >= n_features:
            raise InvalidInputError(
                f"columns are {self.columns}; expected different ones, each 0 to {n_features - 1}"
            )
        if learner.n_features != len(self.columns) + 1:
            raise InvalidInputError(
                f"the learner has n_features={learner.n_features}; expected "
                f"{len(self.columns) + 1}: the columns and a constant"
            )
        self.learner = learner
        self.n_classes = learner.n_classes
        self._places = np.array(self.columns, dtype=np.int64)

    def _part(self, x: ArrayLike) -> Array:
        x = problem.usable_context(x, self.n_features)
        part = np.ones(len(self.columns) + 1)
        part[:-1] = x[self._places]
        return part

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities (K,) of a context (d,)."""
        return self.learner.predict(self._part(x))

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example; return its log loss, predicted before learning."""
        return self.learner.update(self._part(x), y, weight=weight)

    def to_record(self) -> Record:
        """Return the full state as a record."""
        entry, arrays = persist.nest("learner", self.learner.to_record())
        config = {"columns": self.columns, "n_features": self.n_features, "learner": entry}
        return Record("Subspace", config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a learner from its record."""
        words = record.config
        try:
            inner = registry.revive(persist.unnest("learner", words["learner"], record.arrays))
            return cls(inner, words["columns"], words["n_features"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, StateFileError):
                raise
            raise StateFileError(f"a Subspace state is unusable: {error}") from None

    def __repr__(self) -> str:
        return f"Subspace({self.learner!r}, {self.columns}, {self.n_features})"


def random_subspaces(
    make: Callable[[int], Learner], n_features: int, *, n_columns: int | None = None
) -> Callable[[int, np.random.Generator], Probabilistic]:
    """Return a factory of weak learners, each on its own random columns.

    Parameters
    ----------
    make : function of a number of features that makes a learner of this library.
    n_features : number of features d of x.
    n_columns : how many columns each sees, by default the square root of d, rounded up.

    Examples
    --------
    >>> from folklearn import Folklore
    >>> from folklearn.boosting import AdaBoostOLMpp, random_subspaces
    >>> weak = random_subspaces(lambda d: Folklore(n_features=d, n_classes=3), 9)
    >>> model = AdaBoostOLMpp(9, 3, n_learners=4, weak_learner=weak)
    >>> [len(learner.model.columns) for learner in model.learners]
    [3, 3, 3, 3]
    """
    n_features = problem.count("n_features", n_features, 1)
    n = math.isqrt(n_features - 1) + 1 if n_columns is None else n_columns
    if problem.count("n_columns", n, 1) > n_features:
        raise InvalidInputError(f"n_columns={n} is more than the n_features={n_features}")

    def factory(index: int, rng: np.random.Generator) -> Probabilistic:
        columns = np.sort(rng.choice(n_features, size=n, replace=False))
        return Probabilistic(Subspace(make(n + 1), columns.tolist(), n_features))

    return factory
