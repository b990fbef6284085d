"""An agent whose contexts are dictionaries and whose actions have names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self
from uuid import UUID

import numpy as np

from folklearn.arrays import Array
from folklearn.bandits.rewards import RewardAgent, auto
from folklearn.errors import InvalidInputError
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.service.events import Answer, DecisionEvent, DerivedAnswer, ExpiryEvent, RewardEvent
from folklearn.service.journal import Entry
from folklearn.utils import join_names

FindEntry = Callable[[UUID], Entry]  # the event with which an id was issued
NUMBER = "number"


class NamedAgent(Serializable):
    """`folklearn.bandits.auto` for contexts that are dictionaries and actions that have names.

    The state of a model of the service: it changes by events, and by nothing else. A decision is
    known by the number of its event.

    Parameters
    ----------
    actions : their names, at least two.
    context : by name, "number" or the list of the values of a category.
    default : the reward of a decision that expires; without one it is dropped.
    seed : of the draws.
    """

    PARAMS = ("actions", "context", "default", "seed")
    ARRAYS = ("n_rewards", "rewards")

    def __init__(
        self,
        actions: Sequence[str],
        context: Mapping[str, str | Sequence[str]],
        *,
        default: Any = None,
        seed: int = 0,
    ) -> None:
        self.actions, self.default, self.seed = list(actions), default, seed
        if not (default is None or isinstance(default, int | float)):
            raise InvalidInputError(
                f"the default of an agent is a reward from 0 to 1, got {default!r}"
            )
        if len(set(self.actions)) < len(self.actions):
            raise InvalidInputError("two actions have the same name")
        self.context: dict[str, str | list[str]] = {
            name: kind if isinstance(kind, str) else list(kind) for name, kind in context.items()
        }
        if not self.context:
            raise InvalidInputError(
                'a decision needs a context: name what is known, such as {"age": "number", '
                '"country": ["DE", "PE"]}'
            )
        for name, kind in context.items():
            if isinstance(kind, str) and kind != NUMBER:
                raise InvalidInputError(
                    f'the context {name!r} is "number", or the list of its values; got {kind!r}'
                )
        self._places: dict[tuple[str, str], int] = {}
        for name, kind in self.context.items():
            for value in [""] if kind == NUMBER else kind:
                self._places[name, value] = len(self._places)
        self.agent: RewardAgent = auto(
            n_features=len(self._places),
            n_actions=len(self.actions),
            default_reward=default,
            seed=seed,
        )
        self._numbers: dict[int, int] = {}  # of decisions that wait, by the caller's
        self._n_rewards = np.zeros(len(self.actions), np.int64)
        self._rewards = np.zeros(len(self.actions))  # in all, by action

    def apply(self, entry: Entry, find: FindEntry) -> Answer:
        """Apply an event; raise FolklearnError, and change nothing, if it cannot be."""
        match entry.event:
            case DecisionEvent(context=context):
                decision = self.agent.act(self.encode_context(context))
                self._numbers[entry.seq] = decision.id
                if len(self._numbers) > self.agent.max_pending:  # it has dropped the oldest
                    del self._numbers[next(iter(self._numbers))]
                action = self.actions[decision.action]
                body = {"action": action, "propensity": decision.propensity}
                return Answer(200, {"id": str(entry.id), "event": entry.seq, **body})
            case RewardEvent(id=id, reward=reward):
                self._learn(find(id).seq, reward)
                return DerivedAnswer(200, {"event": entry.seq, "learned": 1})
            case ExpiryEvent(ids=ids):
                for number in [find(id).seq for id in ids]:
                    if number in self._numbers:
                        self.agent.expire(self._numbers.pop(number))
        return Answer(200, {"event": entry.seq})

    def _learn(self, number: int, reward: float) -> None:
        if number not in self._numbers:
            raise InvalidInputError("nothing waits for this reward any more")
        decision = self._numbers[number]
        action = self.agent.find(decision).action
        self.agent.learn(decision, reward)
        del self._numbers[number]
        self._n_rewards[action] += 1
        self._rewards[action] += reward

    def copy_to_predict(self) -> None:
        """Return nothing: a decision changes the agent."""

    def numbers(self) -> dict[str, Any]:
        """Return decisions, rewards learned and their average."""
        n = int(self._n_rewards.sum())
        total = sum(n * mean for _, n, mean in self.table() if mean is not None)
        return {
            "kind": "agent",
            "rows": self.agent.n_outcomes,
            "decisions": self.agent.n_decisions,
            "actions": len(self.actions),
            "loss": None,
            "error": None,
            "reward": total / n if n else None,
        }

    def table(self) -> list[tuple[str, int, float | None]]:
        """Return (action, number of rewards, their average) of every action."""
        pairs = zip(self.actions, self._n_rewards.tolist(), self._rewards.tolist(), strict=True)
        return [(name, n, total / n if n else None) for name, n, total in pairs]

    @property
    def n_bytes(self) -> int:
        """Approximate memory, with the decisions that wait."""
        n_actions, n_numbers = len(self.actions), len(self._places)
        waiting = len(self._numbers) * self.n_bytes_of_decision
        return 8 * n_actions * (n_numbers + 1) ** 2 + waiting

    @property
    def n_bytes_of_decision(self) -> int:
        """Approximate memory of a decision while it waits."""
        return 1_000 + 8 * (len(self.actions) + len(self._places))

    def encode_context(self, context: Mapping[str, Any]) -> Array:
        """Return the features of a context; raise if it is none of this agent."""
        x = np.zeros(len(self._places))
        unknown = context.keys() - self.context.keys()
        if unknown:
            raise InvalidInputError(
                f"{join_names(sorted(unknown))} is not in the context of this model, which is: "
                f"{join_names(list(self.context))}"
            )
        for name, kind in self.context.items():
            value = context.get(name)
            if kind == NUMBER:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise InvalidInputError(f"{name!r} must be a number, got {value!r}")
                x[self._places[name, ""]] = value
            elif isinstance(value, str) and (name, value) in self._places:
                x[self._places[name, value]] = 1.0
        return x

    def _word(self, word: str) -> Any:
        # The order says which feature is which, and the keys of JSON are sorted.
        return list(self.context.items()) if word == "context" else super()._word(word)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        return cls(**{**words, "context": dict(words["context"])})

    def to_record(self) -> Record:
        """Return everything as a record."""
        record = super().to_record()
        put_inside(record, "agent", self.agent)
        pairs = np.array(list(self._numbers.items()), np.int64).reshape(-1, 2)
        record.arrays["numbers"] = pairs
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self.agent = record.inner("agent")
        self._numbers = dict(record.part("numbers", (None, 2), np.int64).tolist())
