"""Logs of decisions: contexts, actions, propensities and rewards."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Interactions:
    """Decisions in order: contexts, actions, propensities and rewards.

    Make one from logged data of any origin to evaluate policies on it (`off_policy`), or read
    one (`read_log`). The actions are the same K in every decision, or each decision brings its
    own, described by features.

    Attributes
    ----------
    X : contexts, (T, d). Without `n_actions`: for each decision a matrix with one row per action
        that could be played; they are kept one below the other, see `offered`.
    actions : what was played, (T,), numbered from 0 in each decision.
    propensities : the probability with which each was played at the time, (T,), above 0.
    rewards : what each earned, (T,), from 0 to 1; True and False are 1 and 0.
    n_actions : number of actions K, at least 2; it need not be seen from the log.
    feature_names : what the columns of X are called, () for numbers.
    action_names : what the K actions are called, () for numbers.
    offsets : (T + 1,) where the actions of each decision begin in a list of all pairs of a
        decision and an action.

    Examples
    --------
    >>> log = Interactions([[1.0], [2.0]], [0, 2], [0.5, 0.1], [True, False], n_actions=3)
    >>> log.n_rounds, log.mean_reward, log.mistakes.tolist()
    (2, 0.5, [0, 1])
    >>> menus = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.5, 0.0], [0.0, 0.5]]]
    >>> log = Interactions(menus, [0, 2], [0.5, 0.1], [0.25, 1.0])
    >>> log.offered(1).tolist(), log.offsets.tolist()
    ([[1.0, 1.0], [0.5, 0.0], [0.0, 0.5]], [0, 2, 5])
    """

    X: Array
    actions: Labels
    propensities: Array
    rewards: Array
    n_actions: int | None = None
    feature_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    offsets: Labels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.n_actions is None:
            X, sizes = _stack_menus(self.X)
        else:
            X = _check_rows("X", self.X, "one row of features per decision")
            sizes = np.full(len(X), validation.count("n_actions", self.n_actions, 2))
        X.flags.writeable = False
        T = len(sizes)
        checked = {
            "X": X,
            "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            "actions": _check_actions(self.actions, sizes),
            "propensities": _check_propensities(self.propensities, T),
            "rewards": _check_rewards(self.rewards, T),
            "feature_names": _check_names("feature_names", self.feature_names, X.shape[1]),
            "action_names": _check_names("action_names", self.action_names, self.n_actions or 0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def n_rounds(self) -> int:
        """The number of decisions."""
        return len(self.actions)

    @property
    def pairs(self) -> Labels:
        """The place of each played action in a list of all pairs, (T,)."""
        return self.offsets[:-1] + self.actions

    def offered(self, t: int) -> Array:
        """Return the features of what could be played in a decision: (d,), or a row per action."""
        rows = t if self.n_actions is not None else slice(self.offsets[t], self.offsets[t + 1])
        features: Array = self.X[rows]
        return features

    def sums(self, values: Array) -> Array:
        """Return the sum over the actions of each decision, (T,), of one value per pair."""
        totals: Array = np.add.reduceat(values, self.offsets[:-1]) if self.n_rounds else np.empty(0)
        return totals

    def __getitem__(self, which: slice) -> "Interactions":
        """Return the decisions of a slice."""
        rounds = range(self.n_rounds)[which]
        X: Any = self.X[which]
        if self.n_actions is None:
            X = [self.offered(t) for t in rounds] or self.X[:0]
        return Interactions(
            X,
            self.actions[which],
            self.propensities[which],
            self.rewards[which],
            self.n_actions,
            self.feature_names,
            self.action_names,
        )

    def blocks(self, n_blocks: int) -> Iterator[tuple[int, int]]:
        """Yield where consecutive blocks of about equal size begin and end, empty ones left out."""
        edges = [self.n_rounds * block // n_blocks for block in range(n_blocks + 1)]
        for start, stop in pairwise(edges):
            if start < stop:
                yield start, stop

    @property
    def mean_reward(self) -> float:
        """What an action earned on average."""
        return _mean(self.rewards)

    @property
    def mistakes(self) -> Labels:
        """How many actions had earned less than 1 after each decision, (T,)."""
        curve: Labels = np.cumsum(self.rewards < 1.0, dtype=np.int64)
        return curve

    @property
    def error_rate(self) -> float:
        """The share of actions that earned less than 1: that were wrong."""
        return _mean(self.rewards < 1.0)


def _mean(scores: Any) -> float:
    if not len(scores):
        raise InvalidInputError("nothing to score: there is no decision in this log")
    return float(np.mean(scores))


def _check_rows(name: str, rows: ArrayLike, expected: str) -> Array:
    X = validation.numbers(name, rows)
    if X.ndim != 2 or not X.shape[1]:
        raise InvalidInputError(f"{name} has shape {X.shape}; expected {expected}")
    checked, _ = validation.contexts(X, X.shape[1])
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
    array = _check_length("actions", np.asarray(actions), len(sizes))
    if array.dtype.kind not in "iu" and len(sizes):
        raise InvalidInputError(f"actions must be integers, got dtype {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= sizes))
    if outside.size:
        row = outside[0]
        raise InvalidInputError(f"actions[{row}] is {array[row]}; expected 0 to {sizes[row] - 1}")
    actions_checked: Labels = array.astype(np.int64)
    return actions_checked


def _check_propensities(propensities: ArrayLike, T: int) -> Array:
    array: Array = _check_length(
        "propensities", validation.numbers("propensities", propensities), T
    )
    bad = np.flatnonzero(~((array > 0.0) & (array <= 1.0)))
    if bad.size:
        raise InvalidInputError(
            f"propensities[{bad[0]}] is {array[bad[0]]:.9g}; expected the probability with which "
            "the action was played, above 0 and at most 1"
        )
    return array


def _check_rewards(rewards: ArrayLike, T: int) -> Array:
    array: Array = _check_length("rewards", validation.numbers("rewards", rewards), T)
    bad = np.flatnonzero(~((array >= 0.0) & (array <= 1.0)))
    if bad.size:
        raise InvalidInputError(
            f"rewards[{bad[0]}] is {array[bad[0]]:.9g}; expected a number from 0 to 1, or whether "
            "the action was right"
        )
    return array


def _check_length(name: str, array: Any, T: int) -> Any:
    if array.shape != (T,):
        raise InvalidInputError(
            f"{name} has shape {array.shape}; expected one entry per decision: ({T},)"
        )
    return array


def _check_names(name: str, names: Iterable[str], expected: int) -> tuple[str, ...]:
    listed = tuple(names)
    if listed and len(listed) != expected:
        raise InvalidInputError(f"{name} has {len(listed)} entries; expected {expected}")
    return listed
