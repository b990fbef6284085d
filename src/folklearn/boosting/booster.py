"""What every booster does with its N weak learners.

A round is one pass over them: each is asked for a label under its own costs, and its label
moves the scores. After the pass each learns, and then the booster does.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.boosting.contract import WeakLearner, WeakLearners, ask, make_learners, teach
from folklearn.boosting.hedge import Prefixes
from folklearn.errors import InvalidInputError
from folklearn.learners.base import Learner, Report
from folklearn.validation import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One pass over the learners: costs and label of each, scores (N+1, K) from s = 0 on."""

    x: Array
    costs: list[Array]
    labels: Labels
    scores: Array


class Booster(Learner):
    """The verbs; an algorithm brings its costs, how a label moves scores, and how it learns.

    A subclass validates its parameters, calls `_start`, and implements `_cost`, `_advance`
    and `_absorb`; what it keeps is declared, see `Serializable`. Labels are hard.
    """

    CHILDREN = ("weak_learner",)
    COUNTERS = ("_n_rounds",)
    n_learners: int
    seed: int

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        return validation.sizes(words)[1]  # a number of every class, in the weak learners

    def _start(
        self,
        n_features: int,
        n_classes: int,
        n_learners: int,
        weak_learner: WeakLearners | None,
        seed: int,
        scale: float = 1.0,
    ) -> None:
        self._size(n_features, n_classes)
        self.n_learners = validation.count("n_learners", n_learners, 1)
        self.seed = validation.count("seed", seed, 0)
        self.learners = make_learners(weak_learner, self.n_learners, self.n_classes, self.seed)
        self._prefixes = Prefixes(self.n_learners, scale)
        self._round: Round | None = None

    def _cost(self, i: int, s: Array) -> Array:
        """Return the costs (K, K) of learner i, given the scores before it."""
        raise NotImplementedError

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        """Write the scores after learner i said `label`."""
        raise NotImplementedError

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        """Learn from a round, when every weak learner has; `n_rounds` does not count it yet."""
        raise NotImplementedError

    def _leader(self) -> int:
        """Return the prefix 1..N whose label is the booster's."""
        return self._prefixes.draw(self.seed, self.n_rounds)

    def _see(self, x: Array) -> Round:
        """Ask every learner about x, unless this was the last question and nothing was learned."""
        if self._round is not None and np.array_equal(self._round.x, x):
            return self._round
        # All learners are shown the same arrays: none may write into them.
        x = x.copy()
        x.flags.writeable = False
        scores = np.zeros((self.n_learners + 1, self.n_classes))
        seen = Round(x, [], np.empty(self.n_learners, np.int64), scores)
        for i in range(self.n_learners):
            cost = self._cost(i, seen.scores[i])
            cost.flags.writeable = False
            label = ask(self.learners, i, seen.x, cost)
            self._advance(i, seen.scores[i], label, seen.scores[i + 1])
            seen.costs.append(cost)
            seen.labels[i] = label
        self._round = seen
        return seen

    @property
    def weak_learner(self) -> tuple[WeakLearner, ...]:
        """The weak learners, as the constructor takes them."""
        return self.learners

    def _predict(self, x: Array) -> Array:
        return self._prefixes.mixture(self._see(validation.usable(x)).scores)

    def predict_label(self, x: ArrayLike) -> Any:
        """Return the label of the prefix that is followed: (d,) in, int out; (T, d) in, (T,) out.

        Where a booster hedges, the prefix is drawn once a round from ``hedge_weights``, by
        the seed and the number of rounds learned: asking, once or often, never changes what
        comes after.
        """
        leader = self._leader()
        x = validation.numbers("x", x)
        if x.ndim == 2:
            X = validation.contexts(x, self.n_features)[0]
            labels = [int(np.argmax(self._see(row).scores[leader])) for row in X]
            return np.array(labels, dtype=np.int64)
        x = validation.usable_context(x, self.n_features)
        return int(np.argmax(self._see(x).scores[leader]))

    def prefix_labels(self, x: ArrayLike) -> Labels:
        """Return the label (N,) of every prefix for one context; ties go to the lowest class."""
        x = validation.usable_context(x, self.n_features)
        labels: Labels = self._see(x).scores[1:].argmax(axis=1)
        return labels

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        """Learn one example of a class 0..K-1 and return its loss.

        The weight multiplies the costs that the weak learners learn from, and the losses of
        regressions and prefixes; a round of weight 0 is counted and teaches nothing. If a weak
        learner fails, the booster is unchanged, and the `WeakLearnerError` names the learners
        that had already learned.
        """
        if label < 0:
            raise InvalidInputError(_HARD_ONLY)
        seen = self._see(validation.usable(x))
        self._round = None  # as soon as one learner moves, the pass is out of date
        if weight > 0.0:
            teach(self.learners, seen.x, seen.costs, label, weight)
        self._absorb(seen, label, weight)
        loss = self._prefixes.learn(seen.scores, label, weight)
        self._n_rounds += 1
        return loss

    def _run(self, rows: Rows, report: Report) -> Array:
        if len(rows.soft):
            raise InvalidInputError(_HARD_ONLY)
        return super()._run(rows, report)

    @property
    def hedge_weights(self) -> Array:
        """The probability with which `predict_label` follows each prefix, (N,)."""
        return self._prefixes.hedge_weights

    @property
    def mixture_weights(self) -> Array:
        """The weight of each prefix in `predict`, (N,)."""
        return self._prefixes.mixture_weights

    @property
    def n_mistakes(self) -> Array:
        """The (weighted) mistakes of each prefix, (N,)."""
        return self._prefixes.mistakes.copy()

    def _parts(self) -> dict[str, NDArray[Any]]:
        prefixes = {"losses": self._prefixes.losses, "mistakes": self._prefixes.mistakes}
        return prefixes | super()._parts()


_HARD_ONLY = "boosting learns from hard labels 0..K-1 only: draw a class from a soft label first"
