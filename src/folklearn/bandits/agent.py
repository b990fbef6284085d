"""What every bandit agent offers: act on a context, learn what came of the action.

An agent sees a context, plays one of K actions and is told, at once or much later, only the
outcome of that action: whether it was right, or what reward it brought. Everything that an
outcome needs when it arrives is kept with its own decision: the context, the action, the
*propensity* with which that action was played, and what the agent saw when it decided. Nothing
of a later decision is ever used.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.exploration import draw
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.serialization import Record, Serializable, generator_from, generator_state

MAX_PENDING = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One action of an agent, to be handed back to `learn` when its outcome is known.

    Attributes
    ----------
    id : number of the decision, 0, 1, 2, ...; it is enough to report an outcome later.
    action : the action that was played, 0..K-1.
    propensity : probability with which this action was played, given all that was known.
    x : the context (d,), or the rows (K, d) of the actions, read-only.
    name : what the caller calls that action, if actions have names.
    """

    id: int
    action: int
    propensity: float
    x: Array = field(repr=False)
    name: str | int | None = None

    def _is(self, other: "Decision") -> bool:
        return self is other or (
            (self.id, self.action, self.propensity, self.name)
            == (other.id, other.action, other.propensity, other.name)
            and np.array_equal(self.x, other.x)
        )


Waiting = tuple[Decision, Array]  # a decision, and what was seen
Names = Sequence[str | int] | None


class Agent(Serializable):
    """The verbs; an agent brings what it sees, how it plays, and how it learns.

    One agent is for one thread at a time.

    A subclass validates its parameters, calls `_start`, and implements `_see`, `_play` and
    `_absorb`; what it keeps is declared, see `Serializable`. An outcome is whether
    the action was right, unless `_outcome` says otherwise.

    Attributes
    ----------
    n_features, n_classes : sizes of the problem, d and K; a class is an action.
    learns_labels : whether it is told true classes, by `learn_label`, instead of outcomes.
    """

    COUNTERS: ClassVar[tuple[str, ...]] = ("n_decisions", "n_outcomes", "n_dropped")
    n_features: int
    n_classes: int
    learns_labels: bool = False

    def _start(
        self,
        seed: int | np.random.Generator,
        max_pending: int,
        default: Any = None,
        wait: int | None = None,
    ) -> None:
        """Begin; decisions whose outcome does not come within `wait` others get the default."""
        self._rng = validation.generator(seed)
        self.max_pending = validation.count("max_pending", max_pending, 1)
        self.wait = None if wait is None else validation.count("wait", wait, 1)
        self._default = None if default is None else self._outcome(default)
        self.n_decisions = 0
        self.n_outcomes = 0
        self.n_dropped = 0
        self.n_expired = 0
        # Ordered, because a plain dict is slow to find its oldest key after many deletions.
        self._pending: OrderedDict[int, Waiting] = OrderedDict()

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

    def _absorb(self, decision: Decision, seen: Array, outcome: Any) -> None:
        """Learn an outcome; everything unchanged if it raises."""
        raise NotImplementedError

    def _outcome(self, value: Any) -> Any:
        """Return an outcome as `_absorb` takes it, or refuse it."""
        if isinstance(value, bool | int | float | np.bool_ | np.number) and value in (0, 1):
            return bool(value)
        raise InvalidInputError(
            f"correct must be True or False, got {value!r}: was the action right or not?"
        )

    def policy(self, x: ArrayLike) -> Array:
        """Return the probabilities with which `act` would choose: (d,) in, (K,) out.

        Rows of a matrix (T, d) are all answered from the current state, as (T, K). Nothing
        is drawn, and nothing becomes pending.
        """
        x = validation.numbers("x", x)
        if x.ndim == 2:
            X = validation.contexts(x, self.n_features)[0]
            P = np.array([self._play(self._see(row)) for row in X])
            return P.reshape(len(X), self.n_classes)
        return self._play(self._see(validation.usable_context(x, self.n_features)))

    def act(self, x: ArrayLike) -> Decision:
        """Choose an action for a context; its outcome goes to `learn`, at any later time.

        Acting never learns, but for decisions that expire: those older than ``wait`` decisions,
        and the oldest where ``max_pending`` wait (`expire`).
        """
        own = validation.usable_context(x, self.n_features).copy()
        self._expire_old()
        return self._decide(own, self._see(own))

    def _decide(self, x: Array, seen: Array, names: Names = None) -> Decision:
        """Draw an action for a context of our own, and wait for its outcome."""
        x.flags.writeable = False
        action, propensity = self._choose(seen)
        name = None if names is None else names[action]
        # Probabilities are sums, which may round to above 1.
        decision = Decision(self.n_decisions, action, min(propensity, 1.0), x, name)
        self._pending[decision.id] = (decision, seen)
        self.n_decisions += 1
        return decision

    def _expire_old(self) -> None:
        """Make room for one more decision, and let go of what has waited long enough."""
        first = -1 if self.wait is None else self.n_decisions - self.wait
        while self._pending:
            oldest = next(iter(self._pending))
            if len(self._pending) < self.max_pending and oldest >= first:
                return
            self.expire(oldest)

    def learn_label(self, decision: Decision | int, y: Any) -> None:
        """Learn the true class of a decision, if ``learns_labels``; others refuse."""
        raise InvalidInputError(
            "this agent learns from outcomes, not from classes: call learn(decision, correct)"
        )

    def learn(self, decision: Decision | int, outcome: Any) -> None:
        """Learn the outcome of a decision, or of the decision of this id.

        It is whether the action was right, or, for agents of rewards, a number from 0 to 1.
        Outcomes may arrive late and in any order, each at most once.
        """
        outcome = self._outcome(outcome)
        own, seen = self._find(decision)
        self._absorb(own, seen, outcome)
        self._settle(own)

    def learn_logged(self, x: ArrayLike, action: int, propensity: float, outcome: Any) -> None:
        """Learn one interaction of another policy: its context, action, propensity, outcome.

        For starting with a log instead of from nothing. Estimates stay unbiased if the
        propensity is the probability with which that policy played the action.
        """
        x = validation.usable_context(x, self.n_features)
        decision = self._logged(x, action, propensity, self.n_classes)
        self._absorb(decision, self._see(x), self._outcome(outcome))

    def _logged(
        self, x: Array, action: Any, propensity: Any, K: int, names: Names = None
    ) -> Decision:
        """Return a decision of another policy among K actions, checked."""
        action = validation.count("action", action, 0)
        if action >= K:
            raise InvalidInputError(f"action is {action}; expected 0 to {K - 1}")
        if validation.fraction("propensity", propensity, 1.0) == 0.0:
            raise InvalidInputError("propensity must be above 0: the action was played")
        name = None if names is None else names[action]
        return Decision(-1, action, float(propensity), x, name)

    def drop(self, decision: Decision | int) -> None:
        """Stop waiting for the outcome of a decision; it counts in ``n_dropped``."""
        del self._pending[self._find(decision)[0].id]
        self.n_dropped += 1

    def expire(self, decision: Decision | int) -> None:
        """Stop waiting: learn the default outcome, or drop the decision if there is none."""
        if self._default is None:
            self.drop(decision)
            return
        self.learn(decision, self._default)
        self.n_expired += 1

    def find(self, decision: Decision | int) -> Decision:
        """Return a decision that waits for its outcome, by its id."""
        return self._find(decision)[0]

    def _find(self, decision: Decision | int) -> Waiting:
        """Return a pending decision and what was seen; refuse any other."""
        given = decision.id if isinstance(decision, Decision) else decision
        number = validation.count("the id of a decision", given, 0)
        if number not in self._pending:
            if number >= self.n_decisions:
                raise InvalidInputError(f"decision {number} was not made by this agent")
            raise InvalidInputError(
                f"decision {number} does not wait for an outcome: it was reported already"
                f"{self._or_gone()}"
            )
        own, seen = self._pending[number]
        if isinstance(decision, Decision) and not own._is(decision):
            raise InvalidInputError(
                f"decision {number} is not the one that this agent made under that id: hand an "
                "outcome to the agent that acted"
            )
        return own, seen

    def _or_gone(self) -> str:
        """Return why else a decision may not wait."""
        dropped = ", or it was dropped (by you, wait or max_pending)" if self.n_dropped else ""
        return dropped + (", or it expired and got the default" if self.n_expired else "")

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
            decisions = self.pending
            columns = {
                "id": np.array([decision.id for decision in decisions], np.int64),
                "action": np.array([decision.action for decision in decisions], np.int64),
                "propensity": np.array([decision.propensity for decision in decisions]),
                **self._packed(waiting),
            }
            record.arrays.update({f"pending.{part}": array for part, array in columns.items()})
        return record

    def _packed(self, waiting: list[Waiting]) -> dict[str, NDArray[Any]]:
        """Return the contexts of decisions that wait, and what was seen, as arrays."""
        return {
            "x": np.array([decision.x for decision, _ in waiting]),
            "seen": np.array([seen for _, seen in waiting]),
        }

    def _unpacked(self, record: Record, T: int) -> list[tuple[Array, Array, int]]:
        """Return x, what was seen, and how many actions there were, from what was packed."""
        X = record.part("pending.x", (T, self.n_features))
        seen = record.part("pending.seen", (T, self._n_seen))
        rows = [validation.usable_context(x, self.n_features).copy() for x in X]
        return [(x, own.copy(), self.n_classes) for x, own in zip(rows, seen, strict=True)]

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        for part, own in self._parts().items():
            if not np.isfinite(own).all():
                raise StateFileError(f"{part} of a {record.kind} state is not finite")
        self.max_pending = record.count("max_pending", 1)
        self._rng = generator_from(record.word("generator"))
        try:
            self._pending = self._read_pending(record)
        except InvalidInputError as error:
            raise StateFileError(f"a decision that waits is damaged: {error}") from None

    def _read_pending(self, record: Record) -> OrderedDict[int, Waiting]:
        T = self.n_decisions - self.n_outcomes - self.n_dropped
        if not T and not any(name.startswith("pending.") for name in record.arrays):
            return OrderedDict()
        if not 0 <= T <= self.max_pending:
            raise StateFileError(f"{T} decisions wait, and max_pending={self.max_pending}")
        ids = record.part("pending.id", (T,), np.int64)
        actions = record.part("pending.action", (T,), np.int64)
        propensities = record.part("pending.propensity", (T,))
        in_order = (np.diff(ids, prepend=-1) > 0).all() and (ids < self.n_decisions).all()
        likely = ((propensities > 0.0) & (propensities <= 1.0)).all()
        names = self._pending_names(record, T)
        pending: OrderedDict[int, Waiting] = OrderedDict()
        sound = bool(in_order and likely)
        for t, (x, seen, K) in enumerate(self._unpacked(record, T)):
            sound &= bool(0 <= actions[t] < K and np.isfinite(seen).all())
            x.flags.writeable = False
            own = Decision(int(ids[t]), int(actions[t]), float(propensities[t]), x, names[t])
            pending[own.id] = (own, seen)
        if not sound:
            raise StateFileError("the decisions that wait for their outcome are damaged")
        return pending

    def _pending_names(self, record: Record, T: int) -> list[str | int | None]:
        """Return the names of the actions that wait: there are none."""
        return [None] * T
