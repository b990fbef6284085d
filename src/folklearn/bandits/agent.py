"""The interface of bandit agents: act on a context, learn the outcome of the action.

What an outcome needs is kept with its decision; nothing of a later decision is used.
"""

import operator
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.kernels.exploration import draw_action
from folklearn.serialization import Record, Serializable, generator_from, generator_state

MAX_PENDING = 100_000
_MIN_PROPENSITY = np.nextafter(0.0, 1.0)  # an action that was played had some


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One action of an agent, to be handed back to `learn` when its outcome is known."""

    id: Any  #: its number, or a name of yours; it is enough to report an outcome later
    action: Any  #: that was played, 0..K-1, or its name (`folklearn.DecisionModel`)
    propensity: float  #: probability with which it was played, given all that was known
    x: Any = field(repr=False)  #: the context (d,), read-only; or the row as it came

    def is_like(self, other: "Decision") -> bool:
        """Return whether this is the other one, or what it was before it was saved."""
        has_same_context = isinstance(self.x, dict) or np.array_equal(self.x, other.x)
        return self is other or (repr(self) == repr(other) and has_same_context)


class DecisionMaker(Serializable):
    """Base of what learns later what came of its decisions, which wait for that or expire."""

    max_pending = MAX_PENDING  # decisions that may wait; beyond, the oldest expires

    def _start(
        self, seed: int | np.random.Generator, default: Any = None, wait: int | None = None
    ) -> None:
        self._rng = validation.generator(seed)
        self.wait = None if wait is None else validation.count("wait", wait, 1)
        self._default: Any = None if default is None else self._outcome(default)
        self.n_decisions = self.n_dropped = self.n_expired = 0
        # Ordered, because a plain dict is slow to find its oldest key after many deletions.
        self._pending: OrderedDict[Any, Any] = OrderedDict()  # tuples, each with its decision first

    def _outcome(self, value: Any) -> Any:
        """Return an outcome as it is learned, checked."""
        raise NotImplementedError

    def _find(self, decision: Any) -> Any:
        """Return what waits under a decision or its id, or raise."""
        named = decision.id if isinstance(decision, Decision) else decision
        id = action_name(named, "the id of a decision")
        waiting = None if isinstance(named, bool) else self._pending.get(id)
        # One that was made before loading is the same, one of another model is not.
        if waiting is None or (named is not decision and not decision.is_like(waiting[0])):
            raise InvalidInputError(
                f"no decision waits under the id {id!r}: it was not made here, has its outcome, "
                "expired or was dropped"
            )
        return waiting

    def _learn_default(self, decision: Any) -> None:
        raise NotImplementedError

    def _number_of(self, pending: Any) -> int:
        return int(pending[0].id)

    def _expire_old(self) -> None:
        first = -1 if self.wait is None else self.n_decisions - self.wait
        while self._pending:
            id, oldest = next(iter(self._pending.items()))
            if len(self._pending) < self.max_pending and self._number_of(oldest) >= first:
                return
            self.expire(id)

    def drop(self, decision: Any) -> None:
        """Stop waiting for what comes of a decision; it counts in ``n_dropped``."""
        del self._pending[self._find(decision)[0].id]
        self.n_dropped += 1

    def expire(self, decision: Any) -> None:
        """Stop waiting: learn the default, or drop the decision if there is none."""
        if self._default is None:
            return self.drop(decision)
        self._learn_default(decision)
        self.n_expired += 1
        return None

    @property
    def pending(self) -> tuple[Decision, ...]:
        """The decisions that wait for what comes of them, oldest first."""
        return tuple(decision for decision, *_ in self._pending.values())


class Agent(DecisionMaker):
    """Base of the agents; each is for one thread at a time.

    A subclass validates its parameters, calls `_start`, and implements `_see`, `_play` and
    `_absorb`. An outcome is whether the action was right, unless `_outcome` says otherwise.
    """

    COUNTERS: ClassVar[tuple[str, ...]] = ("n_decisions", "n_outcomes", "n_dropped")
    N_SEEN_BEYOND_ACTIONS: ClassVar[int] = 0  # numbers that `_see` returns beyond one an action
    n_features: int
    n_classes: int  # a class is an action
    n_outcomes = 0

    def _see(self, x: Array) -> Array:
        """Return what the present state makes of x (d,): the numbers kept with a decision."""
        raise NotImplementedError

    def _play(self, seen: Array) -> Array:
        """Return the probabilities (K,) of the actions, given what was seen."""
        raise NotImplementedError

    def _choose(self, seen: Array) -> tuple[int, float]:
        P = self._play(seen)
        action = int(draw_action(P, self._rng.random()))
        return action, float(P[action])

    def _absorb(self, decision: Decision, seen: Array, outcome: Any) -> None:
        """Learn an outcome; everything unchanged if it raises."""
        raise NotImplementedError

    def _outcome(self, value: Any) -> Any:
        if isinstance(value, bool | int | float | np.bool_ | np.number) and value in (0, 1):
            return bool(value)
        raise InvalidInputError(
            f"correct must be True or False, got {value!r}: was the action right or not?"
        )

    def policy(self, x: ArrayLike) -> Array:
        """Return the probabilities with which `act` would choose: (d,) or (T, d) in, (K,) out."""
        x = validation.numbers("x", x)
        if x.ndim == 2:
            X = validation.contexts(x, self.n_features)
            P = np.array([self._play(self._see(row)) for row in X])
            return P.reshape(len(X), self.n_classes)
        return self._play(self._see(validation.usable_context(x, self.n_features)))

    def act(self, x: ArrayLike) -> Decision:
        """Choose an action for a context; its outcome goes to `learn`, at any later time.

        Acting never learns, but where decisions `expire`.
        """
        context = validation.usable_context(x, self.n_features).copy()
        self._expire_old()
        seen = self._see(context)
        context.flags.writeable = False
        action, propensity = self._choose(seen)
        # Probabilities are sums, which may round to above 1.
        decision = Decision(self.n_decisions, action, min(propensity, 1.0), context)
        self._pending[decision.id] = (decision, seen)
        self.n_decisions += 1
        return decision

    def learn(self, decision: Decision | int, outcome: Any) -> None:
        """Learn the outcome of a decision, or of the decision of this id, once, in any order.

        It is whether the action was right; for agents of rewards, a number from 0 to 1.
        """
        value = self._outcome(outcome)
        waiting, seen = self._find(decision)
        self._absorb(waiting, seen, value)
        del self._pending[waiting.id]
        self.n_outcomes += 1

    def learn_logged(self, x: ArrayLike, action: int, propensity: float, outcome: Any) -> None:
        """Learn one interaction of another policy: its context, action, propensity, outcome.

        For starting with a log instead of from nothing. Estimates stay unbiased if the
        propensity is the probability with which that policy played the action.
        """
        x = validation.usable_context(x, self.n_features)
        action = validation.count("action", action, 0, self.n_classes - 1)
        if validation.fraction("propensity", propensity, 1.0) == 0.0:
            raise InvalidInputError("propensity must be above 0: the action was played")
        decision = Decision(-1, action, float(propensity), x)
        self._absorb(decision, self._see(x), self._outcome(outcome))

    def _learn_default(self, decision: Decision | int) -> None:
        self.learn(decision, self._default)

    def to_record(self) -> Record:
        """Return the full state as a record, pending decisions and the generator included."""
        record = super().to_record()
        decisions = self.pending
        record.config["max_pending"] = self.max_pending
        record.config["generator"] = generator_state(self._rng)
        arrays = {
            "id": np.array([decision.id for decision in decisions], np.int64),
            "action": np.array([decision.action for decision in decisions], np.int64),
            "propensity": np.array([decision.propensity for decision in decisions], np.float64),
            "x": np.array([d.x for d in decisions], np.float64).reshape(-1, self.n_features),
            "seen": np.concatenate([np.empty(0), *(seen for _, seen in self._pending.values())]),
        }
        record.arrays.update({f"pending.{name}": array for name, array in arrays.items()})
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self.max_pending = record.count("max_pending", 1)
        self._rng = generator_from(record.word("generator"))
        T, d = self.n_decisions - self.n_outcomes - self.n_dropped, self.n_features
        if not 0 <= T <= self.max_pending:
            raise StateFileError(f"{T} decisions wait, and max_pending={self.max_pending}")
        ids = record.part("pending.id", (T,), np.int64, least=0, most=self.n_decisions - 1)
        X = validation.contexts(record.part("pending.x", (T, d)), d)
        actions = record.part("pending.action", (T,), np.int64, least=0, most=self.n_classes - 1)
        propensities = record.part("pending.propensity", (T,), least=_MIN_PROPENSITY, most=1.0)
        n_seen = self.n_classes + self.N_SEEN_BEYOND_ACTIONS
        seen = record.part("pending.seen", (T * n_seen,)).reshape(T, n_seen)
        if not (np.diff(ids) > 0).all():
            raise StateFileError("the decisions that wait for their outcome are damaged")
        for t, (id, action) in enumerate(zip(ids.tolist(), actions.tolist(), strict=True)):
            x = X[t].copy()
            x.flags.writeable = False
            decision = Decision(id, action, float(propensities[t]), x)
            self._pending[id] = (decision, seen[t].copy())


def action_name(value: Any, what: str = "the id of an action") -> str | int:
    """Check the name of an action or of something else, a string or an integer."""
    if isinstance(value, str):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInputError(f"{what} must be a string or an integer, got {value!r}") from None


def choose_exploration(
    exploration: float | None, horizon: int | None, default: float, theory: Callable[[int], float]
) -> float:
    """Return the exploration from a number, the theory's for a horizon, or the default."""
    if horizon is None:
        wanted = default if exploration is None else exploration
        return validation.fraction("exploration", wanted, 1.0)
    if exploration is not None:
        raise InvalidInputError("give exploration or horizon, not both: one sets the other")
    return min(1.0, theory(validation.count("horizon", horizon, 1)))
