"""Policies to evaluate on a log, models of rewards, and logs of simulated agents."""

from collections import deque
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.lists import ListAgent
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.learners.folklore import Folklore
from folklearn.metrics.scores import ROW_SUM_TOLERANCE, check_rows
from folklearn.progress import Progress, report_progress

_PRIOR_REWARD = 0.5  # before the first one


class RewardModel:
    """Rewards as probabilities: a `Folklore` per action, or one over the features of actions.

    Contexts are standardised, and a constant is added. What was never played is expected to earn
    what all that was learned earned on average.

    Parameters
    ----------
    like : a log of decisions as they will come, whose contexts say how to standardise; nothing
        else of it is used.
    """

    def __init__(self, like: Interactions) -> None:
        self.n_actions = like.n_actions
        empty = not len(like.X)
        self._mean = np.zeros(like.X.shape[1]) if empty else like.X.mean(axis=0)
        spread = np.zeros(like.X.shape[1]) if empty else like.X.std(axis=0)
        # A column that is constant but for rounding must not be blown up.
        self._scale = np.where(spread > 1e-9 * (1.0 + np.abs(self._mean)), spread, 1.0)
        self._models: dict[int, Folklore] = {}
        self._total, self._count = 0.0, 0

    def learn(self, log: Interactions) -> None:
        """Learn what was played and what it earned."""
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
        """Return the expected rewards: (T, K) of contexts (T, d), or (m,) of actions (m, d)."""
        Z = self._standardise(X)
        n_models = 1 if self.n_actions is None else self.n_actions
        q = np.full((len(X), n_models), self._total / self._count if self._count else _PRIOR_REWARD)
        for k, model in self._models.items():
            q[:, k] = model.predict(Z)[:, 1]
        return q[:, 0] if self.n_actions is None else q

    def _standardise(self, X: Array) -> Array:
        return np.column_stack([(X - self._mean) / self._scale, np.ones(len(X))])


def reward_model(log: Interactions, *, n_blocks: int = 10) -> Array:
    """Return q (T, K), what each action would have earned as a model expects it.

    Of a log with features of actions, one number per pair of a decision and an action, (N,).

    The log is cut into consecutive blocks, and a block is predicted from the earlier ones only.
    So q_t is known before action t is drawn, and the mean of the doubly robust term over that
    draw is exactly the policy's value in round t, even if the agent adapted to everything before.
    A model that saw later rounds would depend on action t, through the agent that learned from
    it, and bias the estimate. (Contexts are standardised by all of them: they are taken not to
    depend on actions.)

    One binary `Folklore` per action, on the contexts and a constant, learns the rounds in which
    that action was played; with features of actions there is one for all. An action that has not
    been played yet is expected to earn what the others did, 0.5 in the first block: any constant
    is unbiased.

    Examples
    --------
    >>> from folklearn import interact
    >>> from folklearn.baselines import Banditron
    >>> from folklearn import synthetic
    >>> X, y = synthetic.separable(0, 2000, d=3, K=2)
    >>> q = reward_model(interact(Banditron(n_features=3, n_classes=2, exploration=0.2), X, y))
    >>> q[0].tolist(), bool((q[200:].argmax(axis=1) == y[200:]).mean() > 0.9)
    ([0.5, 0.5], True)
    """
    model = RewardModel(log)
    predictions: list[Any] = [np.empty((0,) if log.n_actions is None else (0, log.n_actions))]
    for start, stop in log.blocks(validation.count("n_blocks", n_blocks, 1)):
        block = log[start:stop]
        predictions.append(model.predict(block.X))
        model.learn(block)
    return np.concatenate(predictions)


@dataclass(frozen=True)
class LearnedPolicy:
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
        q = model.predict(X)
        chosen: Array = np.eye(q.shape[-1])[q.argmax(axis=-1)]
        return chosen

    return play


def probabilities(log: Interactions, policy: Any) -> Array:
    """Return what a policy gives to every pair of a decision and an action, (N,), checked."""
    play = _as_function(policy)
    if log.n_actions is None:
        return _menu_probabilities(log, policy if play is None else play)
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


def _as_function(policy: Any) -> Callable[[Array], ArrayLike] | None:
    """Return the function that makes probabilities, None if they are given."""
    if isinstance(policy, _Acts):
        return policy.policy
    if isinstance(policy, _Predicts):
        return policy.predict
    return policy if callable(policy) else None


def _menu_probabilities(log: Interactions, policy: Any) -> Array:
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


def probabilities_while_learning(log: Interactions, policy: LearnedPolicy) -> tuple[int, Array]:
    """Return the first decision that is judged, and what is given to every pair from there on."""
    n_blocks = validation.count("n_blocks", policy.n_blocks, 2)
    (_, first), *others = log.blocks(n_blocks)
    parts = [probabilities(log[start:stop], policy.learn(log[:start])) for start, stop in others]
    return first, np.concatenate(parts)


_REPORT_EVERY = 1000


def interact(
    agent: Agent, X: Any, y: Any, *, delay: int = 0, progress: Progress = False
) -> Interactions:
    """Simulate an agent on rows with known rewards; it learns only the reward of its action.

    On labelled rows an action earns 1 if it is the label, and else 0. The outcome of a decision
    comes after `delay` further decisions, those still open at the end after the last one. All
    rows are checked before the first decision. The agent goes on from where it stands. One with
    ``feedback="full"`` learns the label.

    Parameters
    ----------
    agent : what acts and learns.
    X : contexts (T, d); for a `ListAgent` a matrix per decision, with a row per action.
    y : labels (T,), integers from 0 to K - 1, or what every action would earn, (T, K), from 0 to
        1; for a `ListAgent` what the actions of each decision would earn. The agent never sees
        them.
    delay : decisions between an action and its outcome, at least 0.
    progress : True for a bar, or a function of the number of decisions so far.

    Examples
    --------
    >>> from folklearn.baselines import Banditron
    >>> from folklearn.synthetic import syn_sep
    >>> X, y = syn_sep(0, 3000, d=80, K=3)
    >>> log = interact(Banditron(n_features=80, n_classes=3), X, y)
    >>> log.n_rounds, bool(log.error_rate < 0.1)
    (3000, True)
    >>> late = interact(Banditron(n_features=80, n_classes=3), X, y, delay=100)
    >>> bool(log.mistakes[-1] < late.mistakes[-1])
    True
    """
    contexts, labels, R = _check_stream(agent, X, y)
    T = len(contexts)
    delay = validation.count("delay", delay, 0)
    waiting = len(agent.pending) + min(delay + 1, T)
    if waiting > agent.max_pending:
        raise InvalidInputError(
            f"{waiting} decisions would wait for their outcome and the agent keeps "
            f"max_pending={agent.max_pending}: shorten the delay or raise max_pending"
        )
    if agent.wait is not None and agent.wait < min(delay, T - 1):
        raise InvalidInputError(
            f"the agent gives up on an outcome after wait={agent.wait} decisions, and the delay is "
            f"{delay}: shorten the delay or raise wait"
        )

    def tell(decision: Decision, row: int) -> None:
        try:
            if agent.learns_labels:
                agent.learn_label(decision, int(labels[row]))
            else:
                agent.learn(decision, float(R[row][decision.action]))
        except FolklearnError as error:
            raise FolklearnError(
                f"the outcome of row {row} of X was refused: {error}; the agent has learned the "
                "outcomes before it"
            ) from error

    actions: Labels = np.empty(T, dtype=np.int64)
    propensities: Array = np.empty(T)
    rewards: Array = np.empty(T)
    open_: deque[tuple[Decision, int]] = deque()
    with report_progress(progress, T, "acting") as report:
        for t, x in enumerate(contexts):
            decision = agent.act(x)
            actions[t] = decision.action
            propensities[t] = decision.propensity
            rewards[t] = R[t][decision.action]
            open_.append((decision, t))
            if len(open_) > delay:
                tell(*open_.popleft())
            if (t + 1) % _REPORT_EVERY == 0 or t + 1 == T:
                report(t + 1)
        while open_:
            tell(*open_.popleft())
    n_actions = None if isinstance(agent, ListAgent) else agent.n_classes
    return Interactions(contexts, actions, propensities, rewards, n_actions)


def _check_stream(agent: Agent, X: Any, y: Any) -> tuple[Any, Labels, Any]:
    """Return contexts, labels if they were given, and what every action earns, all checked."""
    if isinstance(agent, ListAgent):
        menus = [validation.contexts(rows, agent.n_features)[0] for rows in X]
        R = [validation.numbers("y", earned) for earned in y]
        shapes = [(len(rows),) for rows in menus]
        if [earned.shape for earned in R] != shapes or not _are_from_0_to_1(R):
            raise InvalidInputError(
                "y must say for every decision what each of its actions earns, from 0 to 1"
            )
        return menus, np.empty(0, np.int64), R
    X, _ = validation.contexts(X, agent.n_features)
    expected = (len(X), agent.n_classes)
    if np.ndim(y) != 2:
        labels, _ = validation.labels(y, *expected)
        return X, labels, np.eye(agent.n_classes)[labels]
    rewards = validation.numbers("y", y)
    if rewards.shape != expected or not _are_from_0_to_1(rewards):
        raise InvalidInputError(
            f"y must be a label per row of X, or what every action earns, from 0 to 1: {expected}"
        )
    if agent.learns_labels:
        raise InvalidInputError("this agent learns labels; give it a class per row, not rewards")
    return X, np.empty(0, np.int64), rewards


def _are_from_0_to_1(rewards: Iterable[Array]) -> bool:
    return all(((array >= 0.0) & (array <= 1.0)).all() for array in rewards)
