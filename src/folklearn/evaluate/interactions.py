"""Logs of decisions: contexts, actions, propensities and rewards."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError

_PROPENSITY = "the probability with which the action was played, above 0 and at most 1"
_REWARD = "a number from 0 to 1, or whether the action was right"


@dataclass(frozen=True, eq=False)
class Interactions:
    """Decisions in order: contexts, actions, propensities and rewards.

    For `off_policy`. The actions are the same K in every decision, X (T, d)
    its contexts; or, without `n_actions`, each decision brings its own, and X a matrix for each of
    them with one row per action that could be played, see `menu`.

    Examples
    --------
    >>> log = Interactions([[1.0], [2.0]], [0, 2], [0.5, 0.1], [True, False], n_actions=3)
    >>> log.n_rounds, log.mean_reward
    (2, 0.5)
    >>> menus = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.5, 0.0], [0.0, 0.5]]]
    >>> log = Interactions(menus, [0, 2], [0.5, 0.1], [0.25, 1.0])
    >>> log.menu(1).tolist(), log.offsets.tolist()
    ([[1.0, 1.0], [0.5, 0.0], [0.0, 0.5]], [0, 2, 5])
    """

    X: Array
    actions: Labels  #: (T,) what was played, numbered from 0 in each decision
    propensities: Array  #: (T,) the probability with which each was played at the time, above 0
    rewards: Array  #: (T,) what each earned, from 0 to 1
    n_actions: int | None = None  #: K, at least 2
    offsets: Labels = field(init=False, repr=False)  #: (T + 1,) of decisions in a list of all pairs

    def __post_init__(self) -> None:
        if self.n_actions is None:
            X, sizes = _stack_menus(self.X)
        else:
            X = _check_rows("X", self.X, "one row of features per decision")
            sizes = np.full(len(X), validation.count("n_actions", self.n_actions, 2))
        X.flags.writeable = False
        within, least = validation.numbers_within, np.nextafter(0.0, 1.0)
        shape = (len(sizes),)
        self.__dict__.update(  # it is frozen for others
            X=X,
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            actions=_check_actions(self.actions, sizes),
            propensities=within("propensities", self.propensities, shape, least, 1.0, _PROPENSITY),
            rewards=within("rewards", self.rewards, shape, 0.0, 1.0, _REWARD),
        )

    @property
    def n_rounds(self) -> int:
        """The number of decisions."""
        return len(self.actions)

    @property
    def pairs(self) -> Labels:
        """The place of each played action in a list of all pairs, (T,)."""
        return self.offsets[:-1] + self.actions

    def menu(self, t: int) -> Array:
        """Return the features of what could be played in a decision: (d,), or a row per action."""
        rows = t if self.n_actions is not None else slice(self.offsets[t], self.offsets[t + 1])
        return self.X[rows]

    def __getitem__(self, which: slice) -> "Interactions":
        X: Any = self.X[which]
        if self.n_actions is None:
            X = [self.menu(t) for t in range(self.n_rounds)[which]] or self.X[:0]
        names = "actions", "propensities", "rewards"
        columns = {name: getattr(self, name)[which] for name in names}
        return replace(self, X=X, **columns)

    def blocks(self, n_blocks: int) -> list[tuple[int, int]]:
        """Return where consecutive blocks of about equal size begin and end, without empty ones."""
        edges = [self.n_rounds * block // n_blocks for block in range(n_blocks + 1)]
        return [(start, stop) for start, stop in pairwise(edges) if start < stop]

    @property
    def mean_reward(self) -> float:
        """What an action earned on average."""
        return self._mean(self.rewards)

    @property
    def error_rate(self) -> float:
        """The share of actions that earned less than 1: that were wrong."""
        return self._mean(self.rewards < 1.0)

    def _mean(self, scores: Any) -> float:
        if not self.n_rounds:
            raise InvalidInputError("nothing to score: there is no decision in this log")
        return float(np.mean(scores))


def _check_rows(name: str, rows: ArrayLike, expected: str) -> Array:
    X = validation.numbers(name, rows)
    if X.ndim != 2 or not X.shape[1]:
        raise InvalidInputError(f"{name} has shape {X.shape}; expected {expected}")
    checked = validation.contexts(X, X.shape[1])
    return checked.copy()  # the log must not follow the caller's array


def _stack_menus(X: Any) -> tuple[Array, Labels]:
    """Return the rows of all decisions one below the other, and how many each has."""
    expected = (
        "a matrix with a row for every action; for the same actions in all decisions give "
        "n_actions and one row per decision"
    )
    menus = [_check_rows(f"X[{t}]", rows, expected) for t, rows in enumerate(X)]
    for t, rows in enumerate(menus):
        if not len(rows) or rows.shape[1] != menus[0].shape[1]:
            raise InvalidInputError(
                f"X[{t}] has shape {rows.shape}; expected at least one action, with the "
                f"{menus[0].shape[1]} features that those of X[0] have"
            )
    stacked = np.concatenate(menus) if menus else np.empty((0, max(1, np.shape(X)[-1])))
    return stacked, np.array([len(rows) for rows in menus], np.int64)


def _check_actions(actions: ArrayLike, sizes: Labels) -> Labels:
    array = np.asarray(actions)
    if array.shape != sizes.shape:
        raise InvalidInputError(
            f"actions has shape {array.shape}; expected one entry per decision: {sizes.shape}"
        )
    if array.dtype.kind not in "iu" and len(sizes):
        raise InvalidInputError(f"actions must be integers, got dtype {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= sizes))
    if outside.size:
        row = outside[0]
        raise InvalidInputError(f"actions[{row}] is {array[row]}; expected 0 to {sizes[row] - 1}")
    return array.astype(np.int64)
