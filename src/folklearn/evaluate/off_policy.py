"""Agents played on labelled rows, and the values of other policies estimated from their logs."""

import math
from collections.abc import Callable, Sized
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import Agent
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.learners.folklore import Folklore
from folklearn.metrics.scores import check_rows

_MIN_PROPENSITY = 1e-100  # squares of the weights stay finite


def interact(agent: Agent, X: Any, y: Any) -> Interactions:
    """Simulate an agent on rows with known rewards; it learns only the reward of its action.

    All rows are checked before the first decision. The agent goes on from where it stands.

    Parameters
    ----------
    X, y : contexts (T, d), and the actions (T,) that earn 1, others earn 0; or what every action
        would earn, (T, K), from 0 to 1.

    Examples
    --------
    >>> from folklearn.baselines import Banditron
    >>> from folklearn.synthetic import separable
    >>> X, y = separable(0, 3000, d=3, K=3)
    >>> log = interact(Banditron(n_features=3, n_classes=3), X, y)
    >>> log.n_rounds, bool(log.error_rate < 0.2)
    (3000, True)
    """
    X = validation.contexts(X, agent.n_features)
    shape = T, K = len(X), agent.n_classes
    if np.ndim(y) == 2:
        expected = "a label per row of X, or what every action earns, from 0 to 1"
        R = validation.numbers_within("y", y, shape, 0.0, 1.0, expected)
    else:
        R = np.eye(K)[validation.labels(y, *shape)[0]]
    actions, propensities, rewards = np.empty(T, np.int64), np.empty(T), np.empty(T)
    for t, x in enumerate(X):
        decision = agent.act(x)
        actions[t], propensities[t] = decision.action, decision.propensity
        rewards[t] = R[t, decision.action]
        try:
            agent.learn(decision, float(rewards[t]))
        except FolklearnError as error:
            raise FolklearnError(
                f"the outcome of row {t} of X was refused: {error}; the agent has learned the "
                "outcomes before it"
            ) from error
    return Interactions(X, actions, propensities, rewards, K)


@dataclass(frozen=True)
class Estimate:
    """The estimated mean reward of a policy, and how far to trust it.

    The effective size is Kish's :math:`(\\sum w)^2 / \\sum w^2` of the importance weights: how many
    rounds played by the policy itself the log is worth. Below some 30, or a small part of the
    rounds, a few outcomes decide, and the interval is too short.
    """

    value: float  #: not clipped: it may fall outside 0..1, and outside the interval
    low: float  #: confidence interval, clipped to 0..1; all of 0..1 if it lies outside
    high: float
    std_error: float
    effective_size: float
    n_rounds: int
    confidence: float


def off_policy(
    log: Interactions, policy: Any, *, rewards: ArrayLike | None = None, confidence: float = 0.95
) -> Estimate:
    r"""Estimate what a policy would have earned on average in the rounds of a log.

    With the policy's probabilities :math:`\pi_t` in round t, the action :math:`a_t` that was
    played, its propensity :math:`p_t` and reward :math:`r_t`, the weight :math:`w_t = \pi_t(a_t) /
    p_t`, and a model q of what an action earns, the doubly robust value is the mean of

    .. math:: \sum_k \pi_t(k)\, q_t(k) + w_t (r_t - q_t(a_t))

    which is unbiased whatever q is, and the less variable the better q is. With q = 0 it is that of
    inverse propensity scores.

    Unbiased is over the draws of the actions, also if the agent learned as it went: if propensities
    are those of the draws, every action of the policy could have been drawn, which no log can show,
    and the policy was *not learned from this log* (for that: `LearnedPolicy`). The interval is
    normal, the standard error enlarged by 1 / `Estimate.effective_size`: look at that first.

    Parameters
    ----------
    policy : action probabilities (T, K); or what makes them from the contexts (T, d): an agent,
        by its `policy`; a learner, by its `predict`; a function. If actions have features, (m,) of
        each decision, or what makes them from its rows (m, d). Or `LearnedPolicy`.
    rewards : q (T, K) from 0 to 1, or (N,) if actions have features. What is for round t must not
        depend on action t, nor on what came of it. By default `reward_model(log)`.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Banditron
    >>> X, y = synthetic.separable(0, 2000, d=3, K=2)
    >>> log = interact(Banditron(n_features=3, n_classes=2, exploration=0.5), X, y)
    >>> estimate = off_policy(log, np.eye(2)[y])  # always right
    >>> bool(estimate.low < 1.0 <= estimate.high)
    True

    References
    ----------
    Dudík, Langford and Li (2011); inverse propensity scores: Horvitz and Thompson (1952).
    """
    confidence = validation.probability("confidence", confidence)
    q = _expected_rewards(log, rewards)
    if isinstance(policy, LearnedPolicy):
        _check_length(log, 3)
        (_, first), *blocks = log.blocks(validation.count("n_blocks", policy.n_blocks, 2))
        P = np.concatenate(
            [_probabilities(log[start:stop], policy.learn(log[:start])) for start, stop in blocks]
        )
        log, q = log[first:], q[log.offsets[first] :]
    else:
        P = _probabilities(log, policy)
    return _weigh_outcomes(log, P, q, confidence)


def _expected_rewards(log: Interactions, rewards: ArrayLike | None) -> Array:
    """Return q of all pairs of a decision and an action, (N,), checked."""
    _check_length(log, 2)
    least = float(log.propensities.min())
    if least < _MIN_PROPENSITY:
        raise InvalidInputError(
            f"the log has a propensity of {least:g}; below {_MIN_PROPENSITY:g} the weights "
            "overflow: no action of that probability is ever drawn"
        )
    if rewards is None:
        return reward_model(log).ravel()
    shape = (log.offsets[-1],) if log.n_actions is None else (log.n_rounds, log.n_actions)
    expected = "a number from 0 to 1 for each action"
    return validation.numbers_within("rewards", rewards, shape, 0.0, 1.0, expected).ravel()


def _weigh_outcomes(log: Interactions, P: Array, q: Array, confidence: float) -> Estimate:
    w = P[log.pairs] / log.propensities
    if not w.any():
        raise InvalidInputError(
            "the policy gives no probability to any action of the log, which therefore says "
            "nothing about it"
        )
    expected = np.add.reduceat(P * q, log.offsets[:-1])  # summed over the actions of a decision
    terms = expected + w * (log.rewards - q[log.pairs])
    relative = w / float(w.max())  # so that no square overflows
    size = float(relative.sum() ** 2 / np.sum(relative**2))
    value, std_error = float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(len(terms))
    # What one more outcome could change: without it, equal outcomes would look like certainty.
    half = NormalDist().inv_cdf(0.5 + 0.5 * confidence) * math.hypot(std_error, 1.0 / size)
    low, high = max(value - half, 0.0), min(value + half, 1.0)
    if low > high:  # all of it outside: it says nothing
        low, high = 0.0, 1.0
    return Estimate(value, low, high, std_error, size, log.n_rounds, confidence)


def _check_length(log: Interactions, least: int) -> None:
    if (n := log.n_rounds) < least:
        raise InvalidInputError(f"an interval needs at least {least} rounds; the log has {n}")


def _probabilities(log: Interactions, policy: Any) -> Array:
    """Return what a policy gives to every pair of a decision and an action, (N,), checked."""
    play = getattr(policy, "policy", None) or getattr(policy, "predict", None) or policy
    if log.n_actions is not None:
        shape = log.n_rounds, log.n_actions
        return _check_policy(play(log.X) if callable(play) else play, shape, "row {} of policy")
    n_entries = len(play) if isinstance(play, Sized) else 0
    if not callable(play) and n_entries != log.n_rounds:
        raise InvalidInputError(
            f"policy has {n_entries} entries; expected the probabilities of the actions of each "
            f"of {log.n_rounds} decisions"
        )
    menus: list[Array] = [np.empty(0)]
    for t in range(log.n_rounds):
        rows = log.menu(t)
        p = play(rows) if callable(play) else play[t]
        menus.append(_check_policy(p, (len(rows),), f"decision {t} of policy", f" in decision {t}"))
    return np.concatenate(menus)


def _check_policy(P: Any, shape: tuple[int, ...], row: str, place: str = "") -> Array:
    P = validation.numbers("policy", P)
    if P.shape != shape:
        raise InvalidInputError(
            f"policy has shape {P.shape}{place}; expected {shape}, a probability for each action"
        )
    check_rows(np.atleast_2d(P), row)
    return P.ravel()


class _RewardModel:
    """Rewards as probabilities: a `Folklore` per action, or one over the features of actions."""

    def __init__(self, like: Interactions) -> None:
        self.n_actions = like.n_actions
        X = like.X if len(like.X) else np.zeros((1, like.X.shape[1]))
        self._mean, spread = X.mean(axis=0), X.std(axis=0)
        # A column that is constant but for rounding must not be blown up.
        self._scale = np.where(spread > 1e-9 * (1.0 + np.abs(self._mean)), spread, 1.0)
        self._models: dict[int, Folklore] = {}
        self._total, self._count = 0.0, 0

    def learn(self, log: Interactions) -> None:
        shared = self.n_actions is None
        Z = self._standardise(log.X[log.pairs] if shared else log.X)
        who = np.zeros(log.n_rounds, np.int64) if shared else log.actions
        soft = np.column_stack([1.0 - log.rewards, log.rewards])
        for k in np.unique(who).tolist():
            if k not in self._models:
                self._models[k] = Folklore(n_features=Z.shape[1], n_classes=2)
            self._models[k].run(Z[who == k], soft[who == k])
        self._total += float(log.rewards.sum())
        self._count += log.n_rounds

    def predict(self, X: Array) -> Array:
        Z = self._standardise(X)
        n_models = 1 if self.n_actions is None else self.n_actions
        q = np.full((len(X), n_models), self._total / self._count if self._count else 0.5)
        for k, model in self._models.items():
            q[:, k] = model.predict(Z)[:, 1]
        return q[:, 0] if self.n_actions is None else q

    def _standardise(self, X: Array) -> Array:
        return np.column_stack([(X - self._mean) / self._scale, np.ones(len(X))])


def reward_model(log: Interactions, *, n_blocks: int = 10) -> Array:
    """Return q (T, K), what each action would have earned as a model expects it.

    With features of actions it is one number per pair of a decision and an action, (N,). A block
    of the log is predicted from those before it: q_t is known before action t is drawn, and the
    doubly robust term unbiased even if the agent adapted. (Contexts are standardised by all of
    them: they are taken not to depend on actions.)
    """
    model = _RewardModel(log)
    predictions: list[Any] = [np.empty((0,) if log.n_actions is None else (0, log.n_actions))]
    for start, stop in log.blocks(validation.count("n_blocks", n_blocks, 1)):
        block = log[start:stop]
        predictions.append(model.predict(block.X))
        model.learn(block)
    return np.concatenate(predictions)


@dataclass(frozen=True)
class LearnedPolicy:
    """A policy that is learned from the log itself and judged by it without cheating.

    The log is cut into `n_blocks` consecutive blocks, at least 2. Each is played by the policy, in
    any form that `off_policy` takes, that `learn` made of all blocks before it: the first is not
    judged.
    """

    learn: Callable[[Interactions], Any]
    n_blocks: int = 10


def greedy(log: Interactions) -> Callable[[Array], Array]:
    """Return the policy that plays what is expected to earn most by a reward model of a log."""
    model = _RewardModel(log)
    model.learn(log)

    def play(X: Array) -> Array:
        q = model.predict(X)
        return np.eye(q.shape[-1])[q.argmax(axis=-1)]

    return play
