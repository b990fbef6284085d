"""A learner of this library that sees only some of the features."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.boosting.weak.probabilistic import Probabilistic
from folklearn.errors import InvalidInputError
from folklearn.learners.base import Learner, check_is_learner


class Subspace(Learner):
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
    >>> model = Subspace(Folklore(n_features=3, n_classes=2), columns=[0, 4], n_features=5)
    >>> model.predict([1.0, 2.0, 3.0, 4.0, 5.0])
    array([0.5, 0.5])
    """

    PARAMS = ("columns", "n_features")
    CHILDREN = ("learner",)

    def __init__(self, learner: Learner, *, columns: Sequence[int], n_features: int) -> None:
        check_is_learner("the learner", learner)
        self._size(n_features, learner.n_classes)
        self.columns = [validation.count("a column", column, 0) for column in columns]
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
        self.max_weight = learner.max_weight
        self._places = np.array(self.columns, dtype=np.int64)

    def _own_columns(self, x: Array) -> Array:
        part = np.ones(len(self.columns) + 1)
        part[:-1] = validation.usable(x)[self._places]
        return part

    def _predict(self, x: Array) -> Array:
        return self.learner._predict(self._own_columns(x))

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        return self.learner._learn(self._own_columns(x), label, soft, weight)

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return self.learner.n_rounds

    @property
    def n_bytes(self) -> int:
        """The memory of the learner inside."""
        return self.learner.n_bytes

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the learner inside takes with so many classes."""
        return self.learner.expected_bytes(self.learner.n_features, n_classes)


def random_subspaces(
    make: Callable[[int], Learner], *, n_features: int, n_columns: int | None = None
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
    >>> weak = random_subspaces(lambda d: Folklore(n_features=d, n_classes=3), n_features=9)
    >>> model = AdaBoostOLMpp(n_features=9, n_classes=3, n_learners=4, weak_learner=weak)
    >>> [len(learner.model.columns) for learner in model.learners]
    [3, 3, 3, 3]
    """
    n_features = validation.count("n_features", n_features, 1)
    n = math.isqrt(n_features - 1) + 1 if n_columns is None else n_columns
    if validation.count("n_columns", n, 1) > n_features:
        raise InvalidInputError(f"n_columns={n} is more than the n_features={n_features}")

    def factory(index: int, rng: np.random.Generator) -> Probabilistic:
        columns = np.sort(rng.choice(n_features, size=n, replace=False))
        return Probabilistic(Subspace(make(n + 1), columns=columns.tolist(), n_features=n_features))

    return factory
