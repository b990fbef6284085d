"""What every booster does with its N weak learners.

A round is one pass over them: each is asked for a label under its own costs, and its label
moves the scores. After the pass each learns, and then the booster does.
"""

import os
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, registry
from folklearn.boosting.contract import WeakLearners, ask, make_learners, saved, teach
from folklearn.boosting.hedge import Prefixes
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import Progress
from folklearn.persist import Record
from folklearn.progress import reporter

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One pass over the learners: costs and label of each, scores (N+1, K) from s = 0 on."""

    x: Array
    costs: list[Array]
    labels: NDArray[np.int64]
    scores: Array


class Booster:
    """The verbs; an algorithm brings its costs, how a label moves scores, and how it learns.

    A subclass validates its parameters, calls `_start`, and implements `_cost`, `_advance`
    and `_absorb`; `WORDS` are its constructor's parameters but for the weak learners, each an
    attribute, and `PARTS` the arrays of its state, in private attributes.
    """

    WORDS: ClassVar[tuple[str, ...]]
    PARTS: ClassVar[tuple[str, ...]] = ()
    n_features: int
    n_classes: int
    n_learners: int
    seed: int

    def _start(
        self,
        n_features: int,
        n_classes: int,
        n_learners: int,
        weak_learner: WeakLearners | None,
        seed: int,
        scale: float = 1.0,
    ) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self.n_classes = problem.count("n_classes", n_classes, 2)
        self.n_learners = problem.count("n_learners", n_learners, 1)
        self.seed = problem.count("seed", seed, 0)
        self.n_rounds = 0
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

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out.

        They are the Bayes mixture of the prefixes. Rows of a matrix are all predicted from
        the current state.
        """
        x = problem.numbers("x", x)
        if x.ndim == 2:
            X = problem.contexts(x, self.n_features)[0]
            P = np.empty((len(X), self.n_classes))
            for row, p in zip(X, P, strict=True):
                p[:] = self._prefixes.mixture(self._see(row).scores)
            return P
        x = problem.usable_context(x, self.n_features)
        return self._prefixes.mixture(self._see(x).scores)

    def predict_label(self, x: ArrayLike) -> Any:
        """Return the label of the prefix that is followed: (d,) in, int out; (T, d) in, (T,) out.

        Where a booster hedges, the prefix is drawn once a round from ``hedge_weights``, by
        the seed and the number of rounds learned: asking, once or often, never changes what
        comes after.
        """
        leader = self._leader()
        x = problem.numbers("x", x)
        if x.ndim == 2:
            X = problem.contexts(x, self.n_features)[0]
            labels = [int(np.argmax(self._see(row).scores[leader])) for row in X]
            return np.array(labels, dtype=np.int64)
        x = problem.usable_context(x, self.n_features)
        return int(np.argmax(self._see(x).scores[leader]))

    def prefix_labels(self, x: ArrayLike) -> NDArray[np.int64]:
        """Return the label (N,) of every prefix for one context; ties go to the lowest class."""
        x = problem.usable_context(x, self.n_features)
        labels: NDArray[np.int64] = self._see(x).scores[1:].argmax(axis=1)
        return labels

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example and return its log loss -ln p[y], predicted before learning.

        y is a class 0..K-1. The weight multiplies the costs that the weak learners learn
        from, and the losses of regressions and prefixes; a round of weight 0 is counted and
        teaches nothing. If a weak learner fails, the booster is unchanged, and the
        `WeakLearnerError` names the learners that had already learned.
        """
        x = problem.usable_context(x, self.n_features)
        label, _ = problem.label(y, self.n_classes)
        if label < 0:
            raise InvalidInputError(_HARD_ONLY)
        return self._learn(x, label, problem.weight(weight))

    def _learn(self, x: Array, y: int, weight: float) -> float:
        seen = self._see(x)
        self._round = None  # as soon as one learner moves, the pass is out of date
        if weight > 0.0:
            teach(self.learners, seen.x, seen.costs, y, weight)
        self._absorb(seen, y, weight)
        loss = self._prefixes.learn(seen.scores, y, weight)
        self.n_rounds += 1
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
        round; `progress` is True for a bar or a function of the number of rounds done.
        """
        X, _ = problem.contexts(X, self.n_features)
        labels, soft = problem.labels(y, len(X), self.n_classes)
        if len(soft):
            raise InvalidInputError(_HARD_ONLY)
        weights = problem.weights(weight, len(X))
        P = np.empty((len(X), self.n_classes))
        with reporter(progress, len(X), "learning") as report:
            for t, x in enumerate(X):
                P[t] = self._prefixes.mixture(self._see(x).scores)
                self._learn(x, int(labels[t]), float(weights[t]))
                if report is not None:
                    report(t + 1)
        return P

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

    def to_record(self) -> Record:
        """Return the full state as a record; every weak learner must be able to save itself."""
        arrays: dict[str, NDArray[Any]] = {
            "losses": self._prefixes.losses.copy(),
            "mistakes": self._prefixes.mistakes.copy(),
        }
        arrays |= {part: getattr(self, f"_{part}").copy() for part in self.PARTS}
        entries = []
        for i, record in enumerate(saved(self.learners)):
            entry, own = persist.nest(f"learner{i}", record)
            entries.append(entry)
            arrays |= own
        config = {word: getattr(self, word) for word in self.WORDS}
        config |= {"n_rounds": self.n_rounds, "learners": entries}
        return Record(type(self).__name__, config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a booster that goes on exactly where the recorded one stopped."""
        name = cls.__name__
        words = dict(record.config)
        try:
            n_rounds = problem.count("n_rounds", words.pop("n_rounds"), 0)
            words["weak_learner"] = [
                registry.revive(persist.unnest(f"learner{i}", entry, record.arrays))
                for i, entry in enumerate(words.pop("learners"))
            ]
            booster = cls(**words)
        except KeyError as error:
            raise StateFileError(f"a {name} state needs {error.args[0]}") from None
        except (TypeError, ValueError) as error:
            raise StateFileError(f"a {name} state has a bad configuration: {error}") from None
        booster.n_rounds = n_rounds
        state = {"losses": booster._prefixes.losses, "mistakes": booster._prefixes.mistakes}
        state |= {part: getattr(booster, f"_{part}") for part in cls.PARTS}
        for part, own in state.items():
            own[...] = record.part(part, own.shape, own.dtype)
        return booster

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        words = ", ".join(f"{word}={getattr(self, word)!r}" for word in self.WORDS)
        return f"{type(self).__name__}({words})"


_HARD_ONLY = "boosting learns from hard labels 0..K-1 only: draw a class from a soft label first"
