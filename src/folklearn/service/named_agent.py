"""An agent that decides by names: of what it knows, and of what it can do."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from folklearn.arrays import Array
from folklearn.bandits.agent import Decision
from folklearn.bandits.rewards import RewardAgent, auto
from folklearn.errors import InvalidInputError
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.utils import listed

NUMBER = "number"


class NamedAgent(Serializable):
    """`folklearn.bandits.auto` for contexts that are dictionaries and actions that have names.

    AgentState are known by the number that the caller gives them.

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
        default: float | None = None,
        seed: int = 0,
    ) -> None:
        self.actions, self.default, self.seed = list(actions), default, seed
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

    def act(self, number: int, context: Mapping[str, Any]) -> Decision:
        """Choose an action, and wait for its reward under the caller's number."""
        decision = self.agent.act(self.read(context))
        self._numbers[number] = decision.id
        if len(self._numbers) > self.agent.max_pending:  # the agent has let go of the oldest
            del self._numbers[next(iter(self._numbers))]
        return decision

    def learn(self, number: int, reward: float) -> None:
        """Learn the reward of a decision."""
        if number not in self._numbers:
            raise InvalidInputError("nothing waits for this reward any more")
        own = self._numbers[number]
        action = self.agent.find(own).action
        self.agent.learn(own, reward)
        del self._numbers[number]
        self._n_rewards[action] += 1
        self._rewards[action] += reward

    def expire(self, number: int) -> None:
        """Wait no longer: learn the default reward, or drop the decision."""
        if number in self._numbers:
            self.agent.expire(self._numbers.pop(number))

    def table(self) -> list[tuple[str, int, float | None]]:
        """Return of every action how many rewards came, and their average."""
        pairs = zip(self.actions, self._n_rewards.tolist(), self._rewards.tolist(), strict=True)
        return [(name, n, total / n if n else None) for name, n, total in pairs]

    @property
    def n_bytes(self) -> int:
        """About how much memory the agent takes, with the decisions that wait."""
        n_actions, n_numbers = len(self.actions), len(self._places)
        waiting = len(self._numbers) * self.n_bytes_of_decision
        return 8 * n_actions * (n_numbers + 1) ** 2 + waiting

    @property
    def n_bytes_of_decision(self) -> int:
        """About how much memory a decision takes while it waits."""
        return 1_000 + 8 * (len(self.actions) + len(self._places))

    def read(self, context: Mapping[str, Any]) -> Array:
        """Return a context as the agent sees it, or refuse it."""
        x = np.zeros(len(self._places))
        unknown = context.keys() - self.context.keys()
        if unknown:
            raise InvalidInputError(
                f"{listed(sorted(unknown))} is not in the context of this model, which is: "
                f"{listed(list(self.context))}"
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
    def _made(cls, **words: Any) -> Self:
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
