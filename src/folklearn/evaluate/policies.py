"""Policies to be judged by a log: what they would play, and those that are learned from it."""

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.reward_model import RewardModel
from folklearn.metrics.scores import ROW_SUM_TOLERANCE, check_rows


@dataclass(frozen=True)
class Learned:
    """A policy that is learned from the log itself and judged by it without cheating.

    The log is cut into consecutive blocks. Each is played by what `learn` made of all blocks
    before it; the first has none before it and is not judged. So the value is that of the
    policies that the log would have led to on the way, and a little below what the whole of it
    would.

    Parameters
    ----------
    learn : takes the log so far (`Interactions`) and returns a policy in any form that
        `off_policy` takes.
    n_blocks : at least 2.
    """

    learn: Callable[[Interactions], Any]
    n_blocks: int = 10


def uniform(log: Interactions) -> Callable[[Array], Array]:
    """Return the policy that plays all actions of a decision with the same probability."""
    K = log.n_actions
    if K is None:
        return lambda rows: np.full(len(rows), 1.0 / len(rows))
    return lambda X: np.full((len(X), K), 1.0 / K)


def best_constant(log: Interactions) -> Callable[[Array], Array]:
    """Return the policy that always plays the action that earned most in a log.

    For the same actions in all decisions; earned is the mean reward, each weighted by the inverse
    of its propensity.
    """
    if log.n_actions is None:
        raise InvalidInputError(
            "each decision of this log has actions of its own, so that none can always be played"
        )
    w = 1.0 / log.propensities
    weights = np.bincount(log.actions, w, log.n_actions)
    earned = np.bincount(log.actions, w * log.rewards, log.n_actions)
    best = np.argmax(np.divide(earned, weights, out=np.zeros_like(earned), where=weights > 0.0))
    one_hot = np.eye(log.n_actions)[best]
    return lambda X: np.tile(one_hot, (len(X), 1))


def greedy(log: Interactions) -> Callable[[Array], Array]:
    """Return the policy that plays what is expected to earn most by a reward model of a log."""
    model = RewardModel(log)
    model.learn(log)

    def play(X: Array) -> Array:
        q = model.expected(X)
        chosen: Array = np.eye(q.shape[-1])[q.argmax(axis=-1)]
        return chosen

    return play


def probabilities(log: Interactions, policy: Any) -> Array:
    """Return what a policy gives to every pair of a decision and an action, (N,), checked."""
    play = _player(policy)
    if log.n_actions is None:
        return _of_menus(log, policy if play is None else play)
    P = validation.numbers("policy", policy if play is None else play(log.X))
    expected = (log.n_rounds, log.n_actions)
    if P.shape != expected:
        raise InvalidInputError(
            f"policy has shape {P.shape}; expected the probabilities of all actions in every "
            f"round: {expected}"
        )
    check_rows(P, "row {} of policy", ROW_SUM_TOLERANCE)
    return P.ravel()


@runtime_checkable
class _Acts(Protocol):
    def policy(self, X: Array) -> ArrayLike: ...


@runtime_checkable
class _Predicts(Protocol):
    def predict(self, X: Array) -> ArrayLike: ...


def _player(policy: Any) -> Callable[[Array], ArrayLike] | None:
    """Return the function that makes probabilities, None if they are given."""
    if isinstance(policy, _Acts):
        return policy.policy
    if isinstance(policy, _Predicts):
        return policy.predict
    return policy if callable(policy) else None


def _of_menus(log: Interactions, policy: Any) -> Array:
    n_given = len(policy) if isinstance(policy, Sized) else 0
    if not callable(policy) and n_given != log.n_rounds:
        raise InvalidInputError(
            f"policy has {n_given} entries; expected the probabilities of the actions of each "
            f"of {log.n_rounds} decisions"
        )
    parts: list[Array] = [np.empty(0)]
    for t in range(log.n_rounds):
        rows = log.offered(t)
        p = validation.numbers("policy", policy(rows) if callable(policy) else policy[t])
        if p.shape != (len(rows),):
            raise InvalidInputError(
                f"policy has shape {p.shape} in decision {t}; expected ({len(rows)},), a "
                "probability for each of its actions"
            )
        check_rows(p[None, :], f"decision {t} of policy", ROW_SUM_TOLERANCE)
        parts.append(p)
    return np.concatenate(parts)


def learned_probabilities(log: Interactions, policy: Learned) -> tuple[int, Array]:
    """Return the first decision that is judged, and what is given to every pair from there on."""
    n_blocks = validation.count("n_blocks", policy.n_blocks, 2)
    (_, first), *others = log.blocks(n_blocks)
    parts = [probabilities(log[start:stop], policy.learn(log[:start])) for start, stop in others]
    return first, np.concatenate(parts)
