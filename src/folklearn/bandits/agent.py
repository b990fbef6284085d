"""What every bandit agent offers: act on a context, learn whether the action was right.

An agent sees a context, plays one of K actions and is told, at once or much later, only
whether that action was correct. Everything that an outcome needs when it arrives is kept
with its own decision: the context, the action, the *propensity* with which that action was
played, and what the agent saw when it decided. Nothing of a later decision is ever used.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.arrays import Array
from folklearn.bandits.exploration import draw
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.persist import Record, Saved, generator_from, generator_state

MAX_PENDING = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One action of an agent, to be handed back to `learn` when its outcome is known.

    Attributes
    ----------
    id : number of the decision, 0, 1, 2, ...; it is enough to report an outcome later.
    action : the class that was played, 0..K-1.
    propensity : probability with which this action was played, given all that was known.
    x : the context (d,), read-only.
    """

    id: int
    action: int
    propensity: float
    x: Array = field(repr=False)

    def _is(self, other: "Decision") -> bool:
        return self is other or (
            (self.id, self.action, self.propensity) == (other.id, other.action, other.propensity)
            and np.array_equal(self.x, other.x)
        )


class Agent(Saved):
    """The verbs; an agent brings what it sees, how it plays, and how it learns.

    One agent is for one thread at a time.

    A subclass validates its parameters, calls `_start`, and implements `_see`, `_play` and
    `_absorb`; what it keeps is declared, see `folklearn.persist.Saved`.

    Attributes
    ----------
    n_features, n_classes : sizes of the problem, d and K; a class is an action.
    learns_labels : whether it is told true classes, by `learn_label`, instead of outcomes.
    """

    COUNTS = ("n_decisions", "n_outcomes", "n_dropped")
    n_features: int
    n_classes: int
    learns_labels: bool = False

    def _start(self, seed: int | np.random.Generator, max_pending: int) -> None:
        self._rng = problem.generator(seed)
        self.max_pending = problem.count("max_pending", max_pending, 1)
        self.n_decisions = 0
        self.n_outcomes = 0
        self.n_dropped = 0
        # Ordered, because a plain dict is slow to find its oldest key after many deletions.
        self._pending: OrderedDict[int, tuple[Decision, Array]] = OrderedDict()

    @property
    def _n_seen(self) -> int:
        """How many numbers `_see` returns."""
        return self.n_classes

    def _see(self, x: Array) -> Array:
        """Return what the present state makes of x (d,): the numbers kept with a decision."""
        raise NotImplementedError

    def _play(self, seen: Array) -> Array:
        """Return the probabilities (K,) of the actions, given what was seen."""
        raise NotImplementedError

    def _choose(self, seen: Array) -> tuple[int, float]:
        """Draw an action; return it and its propensity."""
        P = self._play(seen)
        action = draw(self._rng, P)
        return action, float(P[action])

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        """Learn an outcome; everything unchanged if it raises."""
        raise NotImplementedError

    def policy(self, x: ArrayLike) -> Array:
        """Return the probabilities with which `act` would choose: (d,) in, (K,) out.

        Rows of a matrix (T, d) are all answered from the current state, as (T, K). Nothing
        is drawn, and nothing becomes pending.
        """
        x = problem.numbers("x", x)
        if x.ndim == 2:
            X = problem.contexts(x, self.n_features)[0]
            P = np.array([self._play(self._see(row)) for row in X])
            return P.reshape(len(X), self.n_classes)
        return self._play(self._see(problem.usable_context(x, self.n_features)))

    def act(self, x: ArrayLike) -> Decision:
        """Choose an action for a context; its outcome goes to `learn`, at any later time.

        Acting never learns. Beyond ``max_pending`` decisions without an outcome the oldest
        is dropped and counted in ``n_dropped``.
        """
        x = problem.usable_context(x, self.n_features).copy()
        seen = self._see(x)
        x.flags.writeable = False
        action, propensity = self._choose(seen)
        # Probabilities are sums, which may round to above 1.
        decision = Decision(self.n_decisions, action, min(propensity, 1.0), x)
        self._pending[decision.id] = (decision, seen)
        self.n_decisions += 1
        if len(self._pending) > self.max_pending:
            self._pending.popitem(last=False)
            self.n_dropped += 1
        return decision

    def learn_label(self, decision: Decision | int, y: Any) -> None:
        """Learn the true class of a decision, if ``learns_labels``; others refuse."""
        raise InvalidInputError(
            "this agent learns from outcomes, not from classes: call learn(decision, correct)"
        )

    def learn(self, decision: Decision | int, correct: Any) -> None:
        """Learn whether the action of a decision, or of the decision of this id, was right.

        Outcomes may arrive late and in any order, each at most once.
        """
        correct = _outcome(correct)
        own, seen = self._find(decision)
        self._absorb(own, seen, correct)
        self._settle(own)

    def learn_logged(self, x: ArrayLike, action: int, propensity: float, correct: Any) -> None:
        """Learn one interaction of another policy: its context, action, propensity, outcome.

        For starting with a log instead of from nothing. Estimates stay unbiased if the
        propensity is the probability with which that policy played the action.
        """
        x = problem.usable_context(x, self.n_features)
        action, _ = problem.label(action, self.n_classes)
        if action < 0:
            raise InvalidInputError("action must be one class 0..K-1")
        if problem.fraction("propensity", propensity, 1.0) == 0.0:
            raise InvalidInputError("propensity must be above 0: the action was played")
        decision = Decision(-1, action, float(propensity), x)
        self._absorb(decision, self._see(x), _outcome(correct))

    def drop(self, decision: Decision | int) -> None:
        """Stop waiting for the outcome of a decision; it counts in ``n_dropped``."""
        del self._pending[self._find(decision)[0].id]
        self.n_dropped += 1

    def _find(self, decision: Decision | int) -> tuple[Decision, Array]:
        """Return a pending decision and what was seen; refuse any other."""
        given = decision.id if isinstance(decision, Decision) else decision
        number = problem.count("the id of a decision", given, 0)
        if number not in self._pending:
            if number >= self.n_decisions:
                raise InvalidInputError(f"decision {number} was not made by this agent")
            reason = (
                f", or it was dropped: at most max_pending={self.max_pending} wait for theirs"
                if self.n_dropped
                else ""
            )
            raise InvalidInputError(
                f"decision {number} does not wait for an outcome: it was reported already{reason}"
            )
        own, seen = self._pending[number]
        if isinstance(decision, Decision) and not own._is(decision):
            raise InvalidInputError(
                f"decision {number} is not the one that this agent made under that id: hand an "
                "outcome to the agent that acted"
            )
        return own, seen

    def _settle(self, decision: Decision) -> None:
        del self._pending[decision.id]
        self.n_outcomes += 1

    @property
    def pending(self) -> tuple[Decision, ...]:
        """The decisions that wait for their outcome, oldest first."""
        return tuple(decision for decision, _ in self._pending.values())

    def to_record(self) -> Record:
        """Return the full state as a record: pending decisions and the generator included."""
        record = super().to_record()
        record.config["max_pending"] = self.max_pending
        record.config["generator"] = generator_state(self._rng)
        waiting = list(self._pending.values())
        if waiting:
            record.arrays.update(
                {
                    "pending.id": np.array([decision.id for decision, _ in waiting], np.int64),
                    "pending.action": np.array(
                        [decision.action for decision, _ in waiting], np.int64
                    ),
                    "pending.propensity": np.array(
                        [decision.propensity for decision, _ in waiting]
                    ),
                    "pending.x": np.array([decision.x for decision, _ in waiting]),
                    "pending.seen": np.array([seen for _, seen in waiting]),
                }
            )
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        for part, own in self._parts().items():
            if not np.isfinite(own).all():
                raise StateFileError(f"{part} of a {record.kind} state is not finite")
        self.max_pending = record.count("max_pending", 1)
        self._rng = generator_from(record.word("generator"))
        try:
            self._pending = self._read_pending(record.arrays)
        except InvalidInputError as error:
            raise StateFileError(f"a decision that waits is damaged: {error}") from None

    def _read_pending(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> OrderedDict[int, tuple[Decision, Array]]:
        columns = {name: array for name, array in arrays.items() if name.startswith("pending.")}
        T = self.n_decisions - self.n_outcomes - self.n_dropped
        if not T and not columns:
            return OrderedDict()
        floats, integers = np.dtype(np.float64), np.dtype(np.int64)
        expected = {
            "id": (integers, (T,)),
            "action": (integers, (T,)),
            "propensity": (floats, (T,)),
            "x": (floats, (T, self.n_features)),
            "seen": (floats, (T, self._n_seen)),
        }
        for part, (dtype, shape) in expected.items():
            array = columns.get(f"pending.{part}")
            if array is None or array.dtype != dtype or array.shape != shape:
                raise StateFileError(
                    f"{T} decisions wait for their outcome: {part} must be {dtype} of {shape}"
                )
        ids, actions, propensities, X, seen = (columns[f"pending.{part}"] for part in expected)
        in_order = (np.diff(ids, prepend=-1) > 0).all() and (ids < self.n_decisions).all()
        usable = ((actions >= 0) & (actions < self.n_classes)).all()
        likely = ((propensities > 0.0) & (propensities <= 1.0)).all()
        if not (in_order and usable and likely and np.isfinite(seen).all()):
            raise StateFileError("the decisions that wait for their outcome are damaged")
        if self.max_pending < T:
            raise StateFileError(f"{T} decisions wait, more than max_pending={self.max_pending}")
        pending = OrderedDict()
        for t in range(T):
            x = problem.usable_context(X[t], self.n_features).copy()
            x.flags.writeable = False
            decision = Decision(int(ids[t]), int(actions[t]), float(propensities[t]), x)
            pending[decision.id] = (decision, seen[t].copy())
        return pending


def _outcome(correct: Any) -> bool:
    if isinstance(correct, bool | np.bool_):
        return bool(correct)
    if isinstance(correct, int | float | np.integer | np.floating) and correct in (0, 1):
        return bool(correct)
    raise InvalidInputError(
        f"correct must be True or False, got {correct!r}: was the action right or not?"
    )
