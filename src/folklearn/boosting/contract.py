"""What a weak learner must offer, and how a booster deals with one that fails.

Nothing is learned before every weak learner has answered, and the booster itself moves only
after every one of them has learned.
"""

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from folklearn.arrays import Array
from folklearn.boosting.weak.river import hoeffding_trees
from folklearn.errors import FolklearnError, InvalidInputError


@runtime_checkable
class WeakLearner(Protocol):
    """A learner that is told its costs: C (K, K), C[y, k] for saying k if y is true."""

    def predict(self, x: Array, C: Array) -> int:
        """Return a label 0..K-1 whose cost promises to be small; nothing is learned."""

    def update(self, x: Array, C: Array, y: int) -> Any:
        """Learn that y was true; how much it matters is in the size of C[y]."""


WeakLearners = Callable[[int, np.random.Generator], WeakLearner] | Sequence[WeakLearner]


class WeakLearnerError(FolklearnError):
    """A weak learner failed; the booster is as it was before.

    Attributes
    ----------
    learner : index of the one that failed.
    learned : indices of those that had already learned the round.
    """

    def __init__(self, message: str, learner: int, learned: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.learner = learner
        self.learned = tuple(learned)


def make_learners(
    weak_learner: Any, n_learners: int, n_classes: int, seed: int
) -> tuple[WeakLearner, ...]:
    """Return N weak learners: those given, or made with a generator each from the seed."""
    if weak_learner is None:
        weak_learner = hoeffding_trees(n_classes=n_classes)
    if isinstance(weak_learner, Sequence):
        learners = tuple(weak_learner)
    elif callable(weak_learner) and not isinstance(weak_learner, type):
        streams = np.random.SeedSequence(seed).spawn(n_learners)
        learners = tuple(
            weak_learner(i, np.random.default_rng(stream)) for i, stream in enumerate(streams)
        )
    else:
        raise InvalidInputError(
            f"weak_learner is {weak_learner!r}; expected a function of (index, generator) that "
            "makes one, or a sequence of them"
        )
    if len(learners) != n_learners:
        raise InvalidInputError(
            f"{len(learners)} weak learners were given for n_learners={n_learners}"
        )
    for i, learner in enumerate(learners):
        if not isinstance(learner, WeakLearner) or isinstance(learner, type):
            raise InvalidInputError(
                f"weak learner {i} is {learner!r}; it needs predict(x, C) and update(x, C, y)"
            )
        if not _takes_costs(learner):
            raise InvalidInputError(
                f"weak learner {i}, {learner!r}, is told no costs: wrap it, Probabilistic(...)"
            )
        for j, other in enumerate(learners[:i]):
            if learner is other:
                raise InvalidInputError(
                    f"weak learners {j} and {i} are the same object, {learner!r}: every one must "
                    "learn on its own"
                )
    return learners


def _takes_costs(learner: WeakLearner) -> bool:
    """Whether `predict` can be called with a context and costs, as far as can be seen."""
    try:
        inspect.signature(learner.predict).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # no signature to look at
        return True
    return True


def ask(learners: Sequence[WeakLearner], i: int, x: Array, C: Array) -> int:
    """Return the label of learner i; refuse what is none."""
    try:
        answer = learners[i].predict(x, C)
    except Exception as error:
        raise WeakLearnerError(
            f"weak learner {i}, {learners[i]!r}, failed to predict: {error!r}; nothing was changed",
            i,
        ) from error
    try:
        label = operator.index(answer)
    except TypeError:
        label = -1
    if not 0 <= label < len(C):
        raise WeakLearnerError(
            f"weak learner {i}, {learners[i]!r}, predicted {answer!r}; expected a class 0 to "
            f"{len(C) - 1}; nothing was changed",
            i,
        )
    return label


def teach(
    learners: Sequence[WeakLearner], x: Array, costs: Sequence[Array], y: int, weight: float
) -> None:
    """Let every learner learn the example under its own costs, times the weight."""
    for i, learner in enumerate(learners):
        C = costs[i] if weight == 1.0 else weight * costs[i]
        try:
            learner.update(x, C, y)
        except Exception as error:
            learned = ", ".join(map(str, range(i))) if i else "none"
            raise WeakLearnerError(
                f"weak learner {i}, {learner!r}, failed to learn: {error!r}; the booster is "
                f"unchanged; weak learners that had already learned the example: {learned}",
                i,
                range(i),
            ) from error
