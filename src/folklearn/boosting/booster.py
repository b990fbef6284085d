"""Boosters: the base class, and the interface of weak learners.

A round is one pass over the N weak learners: each predicts a label under its own costs, and its
label moves the scores. After the pass each learns, and after all of them the booster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.boosting.weak_learners import hoeffding_trees
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.kernels import boosting as kernels
from folklearn.learners.base import Learner


@runtime_checkable
class WeakLearner(Protocol):
    """A cost-sensitive learner: C (K, K) holds the cost C[y, k] of predicting k if y is true."""

    def predict(self, x: Array, C: Array) -> int:
        """Return a label 0..K-1 of small expected cost; nothing is learned."""

    def update(self, x: Array, C: Array, y: int) -> Any:
        """Learn that y was true; the size of C[y] is the importance of the example."""


WeakLearners = Callable[[int, np.random.Generator], WeakLearner] | Sequence[WeakLearner]


def make_learners(
    weak_learner: Any, n_learners: int, n_classes: int, seed: int
) -> tuple[WeakLearner, ...]:
    """Return N weak learners from a sequence, or from a factory with a generator for each."""
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
    first_index: dict[int, int] = {}
    for i, learner in enumerate(learners):
        if not isinstance(learner, WeakLearner) or isinstance(learner, type):
            raise InvalidInputError(
                f"weak learner {i}, {learner!r}, needs predict(x, C) and update(x, C, y)"
            )
        j = first_index.setdefault(id(learner), i)
        if j < i:
            raise InvalidInputError(
                f"weak learners {j} and {i} are the same object, {learner!r}: every one must "
                "learn on its own"
            )
    return learners


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One pass over the learners: costs and label of each, scores (N+1, K) from s = 0 on."""

    x: Array
    costs: list[Array]
    labels: Labels
    scores: Array


class Booster(Learner):
    r"""Base of the boosters, over the prefixes 1..N: prefix i is the vote of i weak learners.

    Hedge follows prefix i with probability proportional to :math:`e^{-M_i}`, its mistakes so
    far, and is wrong at most :math:`4 \min_i M_i + 2.05 \ln(N/\delta)` times with probability
    :math:`1 - \delta`. The Bayes mixture weighs it by :math:`e^{-L_i}`, its log loss so far,
    and loses at most :math:`\min_i L_i + \ln N`; both for sample weights of at most 1.

    A subclass implements `_cost`, `_advance` and `_absorb`. Labels are hard. The weight of an
    example multiplies the costs that the weak learners learn from, and the losses of prefixes. If a
    weak learner fails, the booster is unchanged.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d and K.
    n_learners : number of weak learners N.
    weak_learner : function of (index, generator) that makes a `WeakLearner`, or a sequence
        of N of them, which the booster takes over. By default River's Hoeffding trees with
        grace_period=20 and delta=0.1, which need the extra ``folklearn[river]``.
    seed : of the generators that the weak learners are made with, and of Hedge.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "n_learners", "seed")
    CHILDREN = ("weak_learner",)
    COUNTERS = ("_n_rounds",)
    ARRAYS: ClassVar[tuple[str, ...]] = ("losses", "mistakes")
    FEWEST_NUMBERS = staticmethod(lambda d, K: K)  # in the weak learners

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        n_learners: int = 20,
        weak_learner: WeakLearners | None = None,
        seed: int = 0,
    ) -> None:
        self._size(n_features, n_classes)
        self.n_learners = validation.count("n_learners", n_learners, 1)
        self.seed = validation.count("seed", seed, 0)
        self.learners = make_learners(weak_learner, self.n_learners, self.n_classes, self.seed)
        self.weak_learner = self.learners  # as the constructor takes them
        self._losses: Array = np.zeros(self.n_learners)
        self._mistakes: Array = np.zeros(self.n_learners)
        self._round: Round | None = None

    def _cost(self, i: int, s: Array) -> Array:
        """Return the costs (K, K) of learner i, given the scores before it."""
        raise NotImplementedError

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        """Write the scores after learner i predicted `label`."""
        raise NotImplementedError

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        raise NotImplementedError

    def _see(self, x: Array) -> Round:
        if self._round is not None and np.array_equal(self._round.x, x):
            return self._round
        # All learners are shown the same arrays: none may write into them.
        x = x.copy()
        x.flags.writeable = False
        scores = np.zeros((self.n_learners + 1, self.n_classes))
        seen = Round(x, [], np.empty(self.n_learners, np.int64), scores)
        for i in range(self.n_learners):
            cost = self._cost(i, scores[i])
            cost.flags.writeable = False
            label = self._predict_weak(i, x, cost)
            self._advance(i, scores[i], label, scores[i + 1])
            seen.costs.append(cost)
            seen.labels[i] = label
        self._round = seen
        return seen

    def _predict_weak(self, i: int, x: Array, C: Array) -> int:
        learner = self.learners[i]
        try:
            answer = learner.predict(x, C)
        except Exception as error:
            raise FolklearnError(
                f"weak learner {i}, {learner!r}, failed to predict: {error!r}; nothing was changed"
            ) from error
        label = int(answer) if isinstance(answer, bool) else answer
        try:
            return validation.count("the label", label, 0, self.n_classes - 1)
        except InvalidInputError:
            raise FolklearnError(
                f"weak learner {i}, {learner!r}, predicted {answer!r}; expected a class 0 to "
                f"{self.n_classes - 1}; nothing was changed"
            ) from None

    def _update_weak(self, seen: Round, y: int, weight: float) -> None:
        for i, (learner, cost) in enumerate(zip(self.learners, seen.costs, strict=True)):
            try:
                learner.update(seen.x, cost if weight == 1.0 else weight * cost, y)
            except Exception as error:
                learned = ", ".join(map(str, range(i))) if i else "none"
                raise FolklearnError(
                    f"weak learner {i}, {learner!r}, failed to learn: {error!r}; the booster is "
                    f"unchanged; weak learners that had already learned the example: {learned}"
                ) from error

    def _predict(self, x: Array) -> Array:
        scores = self._see(validation.usable(x)).scores
        return kernels.mix_prefixes(scores, self._losses)

    def predict_label(self, x: ArrayLike) -> Any:
        """Return the label of the prefix that is followed: (d,) in, int out; (T, d) in, (T,) out.

        It is drawn from ``hedge_weights`` by the seed and the number of rounds learned: to predict
        again changes nothing.
        """
        leader = draw_prefix(self.hedge_weights, self.seed, self.n_rounds) - 1
        x = validation.numbers("x", x)
        if x.ndim != 2:
            return int(self.prefix_labels(x)[leader])
        X = validation.contexts(x, self.n_features)
        return np.array([self.prefix_labels(row)[leader] for row in X], dtype=np.int64)

    def prefix_labels(self, x: ArrayLike) -> Labels:
        """Return the label (N,) of every prefix for one context; ties go to the lowest class."""
        x = validation.usable_context(x, self.n_features)
        return self._see(x).scores[1:].argmax(axis=1)

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        if label < 0:
            raise InvalidInputError(
                "boosting learns from hard labels 0..K-1 only: draw a class from a soft label first"
            )
        seen = self._see(validation.usable(x))
        self._round = None  # as soon as one learner moves, the pass is out of date
        if weight > 0.0:
            self._update_weak(seen, label, weight)
        self._absorb(seen, label, weight)
        loss: float = kernels.score_prefixes(
            seen.scores, label, weight, self._losses, self._mistakes
        )
        self._n_rounds += 1
        return loss

    @property
    def hedge_weights(self) -> Array:
        """The probability with which `predict_label` follows each prefix, (N,)."""
        return kernels.softmin(self._mistakes)


def draw_prefix(weights: Array, seed: int, n_rounds: int) -> int:
    """Return a prefix 1..N, drawn with these probabilities (N,)."""
    return 1 + int(np.random.default_rng((seed, n_rounds)).choice(len(weights), p=weights))
