"""Actions with features of their own: a list of rows for each decision, one regression for all."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Decision, Names, Waiting
from folklearn.bandits.rewards import STRENGTH, RegressionAgent, check_is_regression
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.base import Learner
from folklearn.learners.second_order import SecondOrderLearner
from folklearn.serialization import Record

Name = str | int


class ListAgent(RegressionAgent):
    r"""Play one of a list of actions, described by rows, for a reward in [0, 1].

    Use it where actions have features, or are other ones each time: articles, offers, routes.
    Put into a row whatever says something about this action in this context, products of both
    included. For few actions that are always there `RewardAgent` learns each by itself.

    One regression predicts the reward of a row, and the rows of a decision are played as
    `RewardAgent` plays its actions. With `ids` an action also has an offset of its own, one more
    feature that is 1 for this action alone. Of the places for offsets one is always empty, which is
    where a new action is seen, and stays when it is rewarded first; then the action that was
    rewarded longest ago makes room. Its offset is forgotten, while the weights of the rows keep
    what was learned with it.

    Time of a decision: the prediction of its rows, and one update.

    Guarantee: that of `RewardAgent`, with one certificate for the one regression; an offset that
    takes the place of another makes it dearer.

    Parameters
    ----------
    regression : a learner of two classes over n_features + offsets features; used, not copied.
    n_actions : how many rows a decision usually has, at least 2; it only sets gamma.
    offsets : places for offsets, one more than actions are remembered; 0 for none, or at least 2
        and a second-order learner, like `folklearn.Folklore`.
    exploration, strength, default_reward, wait, seed, max_pending : as `RewardAgent` has them.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Folklore
    >>> from folklearn.bandits import ListAgent
    >>> rng = np.random.default_rng(0)
    >>> agent = ListAgent(Folklore(n_features=3, n_classes=2))
    >>> total = 0.0
    >>> for t in range(1000):
    ...     rows = rng.normal(size=(rng.integers(2, 6), 3)) / 2
    ...     decision = agent.act(rows)
    ...     reward = rows[decision.action, 0] == rows[:, 0].max()
    ...     agent.learn(decision, reward)
    ...     total += reward
    >>> bool(total > 800)
    True
    """

    PARAMS = ("n_actions", "offsets", *RegressionAgent.PARAMS)
    CHILDREN = ("regression",)

    def __init__(
        self,
        regression: Learner,
        *,
        n_actions: int = 10,
        offsets: int = 0,
        exploration: str = "fastcb",
        strength: float | str = STRENGTH,
        default_reward: float | None = None,
        wait: int | None = None,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        check_is_regression(regression)
        self.regression = regression
        self.n_actions = self.n_classes = validation.count("n_actions", n_actions, 2)
        self.offsets = validation.count("offsets", offsets, 0)
        if self.offsets == 1:
            raise InvalidInputError("offsets must be 0, or at least 2: one place is for newcomers")
        self.n_features = regression.n_features - self.offsets
        if self.n_features < 1:
            raise InvalidInputError(
                f"{regression!r} takes {regression.n_features} features, {self.offsets} of them "
                "offsets: construct it with n_features + offsets"
            )
        if self.offsets and not isinstance(regression, SecondOrderLearner):
            raise InvalidInputError(
                f"offsets need a learner that can forget one, like Folklore; got {regression!r}"
            )
        self._places: dict[Name, int] = {}  # of offsets; who was rewarded last comes last
        self._begin(exploration, strength, default_reward, wait, seed, max_pending)

    def _regressions(self) -> Sequence[Learner]:
        return (self.regression,)

    def act(self, x: ArrayLike, ids: Names = None) -> Decision:
        """Choose one of the rows (m, d) of a decision; its reward goes to `learn`, any time later.

        `ids` are the names of the actions (m,), strings or integers, if they have offsets. The
        decision says which was chosen, by its row and by its name.
        """
        rows, names = self._listed(x, ids)
        self._expire_old()
        return self._decide(rows.copy(), self._see(self._with_offsets(rows, names)), names)

    def policy(self, x: ArrayLike, ids: Names = None) -> Array:
        """Return the probabilities (m,) with which `act` would choose among rows (m, d)."""
        return self._play(self._see(self._with_offsets(*self._listed(x, ids))))

    def expected_rewards(self, x: ArrayLike, ids: Names = None) -> Array:
        """Return the expected reward (m,) of every row (m, d)."""
        return 1.0 - self._losses_of(self._with_offsets(*self._listed(x, ids)))

    def learn_logged(
        self,
        x: ArrayLike,
        action: int,
        propensity: float,
        outcome: Any,
        ids: Names = None,
    ) -> None:
        """Learn one interaction of another policy: its rows, action, propensity and reward."""
        rows, names = self._listed(x, ids)
        decision = self._logged(rows, action, propensity, len(rows), names)
        self._absorb(decision, validation.NO_SOFT, self._outcome(outcome))

    def _listed(self, x: ArrayLike, ids: Any) -> tuple[Array, Names]:
        """Return the rows of a decision and the names of its actions, checked."""
        rows, _ = validation.contexts(x, self.n_features)
        if not len(rows):
            raise InvalidInputError("x has no row: there is no action to choose from")
        if ids is None:
            return rows, None
        several = isinstance(ids, Iterable) and not isinstance(ids, str)
        names = [_name(one) for one in ids] if several else []
        if len(names) != len(rows) or len(set(names)) < len(names):
            raise InvalidInputError(f"ids must name each of the {len(rows)} rows of x, each once")
        if not self.offsets:
            raise InvalidInputError("ids are for offsets: construct the agent with offsets above 0")
        return rows, names

    def _with_offsets(self, rows: Array, names: Names) -> Array:
        """Return rows (m, d + offsets)."""
        if not self.offsets:
            return rows
        wide = np.zeros((len(rows), self.n_features + self.offsets))
        wide[:, : self.n_features] = rows
        if names is not None:
            empty = self._empty
            places = [self._places.get(name, empty) for name in names]
            wide[np.arange(len(rows)), self.n_features + np.array(places)] = 1.0
        return wide

    def _losses_of(self, x: Array) -> Array:
        return np.array([float(self.regression._predict(row)[0]) for row in x])

    def _teach(self, decision: Decision, soft: Array) -> None:
        name = decision.name
        row = decision.x[decision.action, None].copy()
        wide = self._with_offsets(row, None if name is None else [name])[0]
        self.regression._learn(wide, -1, soft, 1.0)
        if name is not None:
            self._places[name] = self._places.pop(name, self._empty)
            if len(self._places) == self.offsets:
                self._forget(next(iter(self._places)))

    @property
    def _empty(self) -> int:
        """The place of newcomers, of which nothing is known."""
        return min(set(range(self.offsets)) - set(self._places.values()))

    def _forget(self, name: Name) -> None:
        place = self._places.pop(name)
        assert isinstance(self.regression, SecondOrderLearner)
        self.regression.renew(self.n_features + place)

    def to_record(self) -> Record:
        """Return the full state as a record: offsets and names of what waits included."""
        record = super().to_record()
        record.config["places"] = [[name, place] for name, place in self._places.items()]
        record.config["pending_names"] = [decision.name for decision in self.pending]
        return record

    def _packed(self, waiting: list[Waiting]) -> dict[str, NDArray[Any]]:
        return {
            "n_rows": np.array([len(decision.x) for decision, _ in waiting], np.int64),
            "x": np.concatenate([decision.x for decision, _ in waiting]),
            "seen": np.concatenate([seen for _, seen in waiting]),
        }

    def _unpacked(self, record: Record, T: int) -> list[tuple[Array, Array, int]]:
        sizes = record.part("pending.n_rows", (T,), np.int64)
        if not (sizes >= 1).all():
            raise StateFileError("a decision that waits has no row")
        X = record.part("pending.x", (int(sizes.sum()), self.n_features))
        seen = record.part("pending.seen", (int(sizes.sum()) + T,))
        stops = np.cumsum(sizes)
        validation.contexts(X, self.n_features)
        return [
            (X[stop - m : stop].copy(), seen[stop - m + t : stop + t + 1].copy(), int(m))
            for t, (m, stop) in enumerate(zip(sizes, stops, strict=True))
        ]

    def _pending_names(self, record: Record, T: int) -> list[Name | None]:
        names = record.word("pending_names")
        if not isinstance(names, list) or len(names) != T:
            raise StateFileError(f"{T} decisions wait: pending_names must name their actions")
        return [None if name is None else _name(name) for name in names]

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        try:
            places = {
                _name(name): validation.count("a place", at, 0)
                for name, at in record.word("places")
            }
        except (TypeError, ValueError, InvalidInputError):
            raise StateFileError("the places of offsets are damaged") from None
        taken = set(places.values())
        if len(taken) < len(places) or (taken and not taken < set(range(self.offsets))):
            raise StateFileError("the places of offsets are damaged")
        self._places = places


def _name(value: Any) -> Name:
    """Return the name of an action: a string, or an integer."""
    if isinstance(value, str):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInputError(
            f"the id of an action must be a string or an integer, got {value!r}"
        ) from None
