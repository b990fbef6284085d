"""Any data with known rewards as a bandit stream: an agent plays it and is told what it earned."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.lists import ListAgent
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.learners.base import Progress
from folklearn.progress import reporter

_REPORT_EVERY = 1000


def interact(
    agent: Agent, X: Any, y: Any, *, delay: int = 0, progress: Progress = False
) -> Interactions:
    """Play an agent on rows whose rewards are known, telling it only what its own action earned.

    On labelled rows an action earns 1 if it is the label, and else 0. The outcome of a decision
    is told after `delay` further decisions, those still open at the end after the last one. All
    rows are checked before the first decision. The agent goes on from where it stands. One with
    ``feedback="full"`` is told the label.

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
    contexts, labels, R = _stream(agent, X, y)
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
    with reporter(progress, T, "acting") as report:
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


def _stream(agent: Agent, X: Any, y: Any) -> tuple[Any, Labels, Any]:
    """Return contexts, labels if they were given, and what every action earns, all checked."""
    if isinstance(agent, ListAgent):
        menus = [validation.contexts(rows, agent.n_features)[0] for rows in X]
        R = [validation.numbers("y", own) for own in y]
        if [own.shape for own in R] != [(len(rows),) for rows in menus] or not _from_0_to_1(R):
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
    if rewards.shape != expected or not _from_0_to_1(rewards):
        raise InvalidInputError(
            f"y must be a label per row of X, or what every action earns, from 0 to 1: {expected}"
        )
    if agent.learns_labels:
        raise InvalidInputError("this agent learns labels; give it a class per row, not rewards")
    return X, np.empty(0, np.int64), rewards


def _from_0_to_1(rewards: Iterable[Array]) -> bool:
    return all(((own >= 0.0) & (own <= 1.0)).all() for own in rewards)
