"""Actions with features of their own: a list of rows for each decision, one regression for all."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import Decision, Names, action_name
from folklearn.bandits.rewards import RegressionAgent, check_is_regression
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.base import Learner
from folklearn.learners.folklore import SecondOrderLearner
from folklearn.serialization import Record


class ListAgent(RegressionAgent):
    r"""Play one of a list of actions, described by rows, for a reward in [0, 1].

    Use it where actions have features, or change with every decision: articles, offers, routes.
    A row holds the features of the action, of the context, and products of both. For few actions
    that are always available `RewardAgent` learns each by itself.

    One regression predicts the reward of a row, and rows are played as `RewardAgent` plays its
    actions. With `ids` an action also has an offset of its own, one more feature that is 1 for
    this action alone. One column of the offsets is always free, for new actions; it becomes that
    of an action with its first reward, and the action that was rewarded longest ago gives up its
    column: its offset is forgotten. Time of a decision: the prediction of its rows, one update.

    Guarantee: that of `RewardAgent`; an offset that takes the column of another raises it.

    Parameters
    ----------
    regression : a learner of two classes over n_features + offsets features; used, not copied.
    n_actions : how many rows a decision usually has, at least 2; it only sets gamma.
    offsets : columns for offsets, one more than actions that have one; 0 for none, or at least 2
        and a second-order learner, like `folklearn.Folklore`.
    options : as `RewardAgent` has them.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Folklore
    >>> from folklearn.bandits import ListAgent
    >>> agent = ListAgent(Folklore(n_features=3, n_classes=2))
    >>> for rows in np.random.default_rng(0).normal(size=(1000, 5, 3)) / 2:
    ...     decision = agent.act(rows)
    ...     agent.learn(decision, rows[decision.action, 0] == rows[:, 0].max())
    >>> agent.expected_rewards(np.eye(3)).argmax()
    np.int64(0)
    """

    LISTS_ACTIONS = True
    PARAMS = ("n_actions", "offsets", *RegressionAgent.PARAMS)
    CHILDREN = ("regression",)

    def __init__(
        self, regression: Learner, *, n_actions: int = 10, offsets: int = 0, **options: Any
    ) -> None:
        check_is_regression(regression)
        self.regression = regression
        self.offsets = validation.count("offsets", offsets, 0)
        if self.offsets == 1:
            raise InvalidInputError(
                "offsets must be 0 or at least 2: one column is for new actions"
            )
        if regression.n_features <= self.offsets:
            raise InvalidInputError(
                f"{regression!r} takes {regression.n_features} features, {self.offsets} of them "
                "offsets: construct it with n_features + offsets"
            )
        if self.offsets and not isinstance(regression, SecondOrderLearner):
            raise InvalidInputError(
                f"offsets need a learner that can forget one, like Folklore; got {regression!r}"
            )
        self._offset_columns: dict[str | int, int] = {}  # the action rewarded last comes last
        n_actions = validation.count("n_actions", n_actions, 2)
        super().__init__((regression,), regression.n_features - self.offsets, n_actions, **options)

    def act(self, x: ArrayLike, ids: Names = None) -> Decision:
        """Choose one of the rows (m, d) of a decision; its reward goes to `learn`, any time later.

        `ids` are the names of the actions (m,), strings or integers, if they have offsets. The
        decision says which was chosen, by its row and by its name.
        """
        rows, names = self._check_list(x, ids)
        self._expire_old()
        return self._decide(rows.copy(), self._see(self._with_offsets(rows, names)), names)

    def policy(self, x: ArrayLike, ids: Names = None) -> Array:
        """Return the probabilities (m,) with which `act` would choose among rows (m, d)."""
        return self._play(self._see(self._with_offsets(*self._check_list(x, ids))))

    def expected_rewards(self, x: ArrayLike, ids: Names = None) -> Array:
        """Return the expected reward (m,) of every row (m, d)."""
        return 1.0 - self._losses_of(self._with_offsets(*self._check_list(x, ids)))

    def learn_logged(
        self, x: ArrayLike, action: int, propensity: float, outcome: Any, ids: Names = None
    ) -> None:
        """Learn one interaction of another policy: its rows, action, propensity and reward."""
        rows, names = self._check_list(x, ids)
        decision = self._logged_decision(rows, action, propensity, len(rows), names)
        self._absorb(decision, validation.NO_SOFT, self._outcome(outcome))

    def _check_list(self, x: ArrayLike, ids: Any) -> tuple[Array, Names]:
        rows, _ = validation.contexts(x, self.n_features)
        if not len(rows):
            raise InvalidInputError("x has no row: there is no action to choose from")
        if ids is None:
            return rows, None
        is_list = isinstance(ids, Iterable) and not isinstance(ids, str)
        names = [action_name(name) for name in ids] if is_list else []
        if len(names) != len(rows) or len(set(names)) < len(names):
            raise InvalidInputError(f"ids must name each of the {len(rows)} rows of x, each once")
        if not self.offsets:
            raise InvalidInputError("ids are for offsets: construct the agent with offsets above 0")
        return rows, names

    def _with_offsets(self, rows: Array, names: Names) -> Array:
        if not self.offsets:
            return rows
        wide = np.zeros((len(rows), self.n_features + self.offsets))
        wide[:, : self.n_features] = rows
        if names is not None:
            free = self._free_column
            columns = [self._offset_columns.get(name, free) for name in names]
            wide[np.arange(len(rows)), self.n_features + np.array(columns)] = 1.0
        return wide

    def _losses_of(self, x: Array) -> Array:
        return np.array([float(self.regression._predict(row)[0]) for row in x])

    def _teach(self, decision: Decision, soft: Array) -> None:
        name = decision.name
        row = decision.x[decision.action, None].copy()
        wide = self._with_offsets(row, None if name is None else [name])[0]
        self.regression._learn(wide, -1, soft, 1.0)
        if name is None:
            return
        self._offset_columns[name] = self._offset_columns.pop(name, self._free_column)
        if len(self._offset_columns) == self.offsets:
            longest_ago = self._offset_columns.pop(next(iter(self._offset_columns)))
            assert isinstance(self.regression, SecondOrderLearner)
            self.regression.renew(self.n_features + longest_ago)

    @property
    def _free_column(self) -> int:
        return min(set(range(self.offsets)) - set(self._offset_columns.values()))

    def to_record(self) -> Record:
        record = super().to_record()
        record.config["offset_columns"] = [[*item] for item in self._offset_columns.items()]
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        try:
            columns = {
                action_name(name): validation.count("a column", column, 0, self.offsets - 1)
                for name, column in record.word("offset_columns")
            }
        except (TypeError, ValueError, InvalidInputError):
            raise StateFileError("the columns of offsets are damaged") from None
        if len(set(columns.values())) < len(columns) or len(columns) >= max(1, self.offsets):
            raise StateFileError("the columns of offsets are damaged")
        self._offset_columns = columns
