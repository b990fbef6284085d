"""Agents on rows whose rewards are known: the log of what they would have done."""

from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Labels
from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.lists import ListAgent
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.progress import Progress, report_progress

_REPORT_EVERY = 1000  # decisions


def interact(
    agent: Agent, X: Any, y: Any, *, delay: int = 0, progress: Progress = False
) -> Interactions:
    """Simulate an agent on rows with known rewards; it learns only the reward of its action.

    All rows are checked before the first decision. The agent goes on from where it stands; one with
    ``feedback="full"`` learns the label.

    Parameters
    ----------
    agent : what acts and learns.
    X : contexts (T, d); for a `ListAgent` a matrix per decision, with a row per action.
    y : labels (T,), integers from 0 to K - 1: the action that earns 1, others earn 0. Or what every
        action would earn, (T, K), from 0 to 1; for a `ListAgent` the same for each decision.
    delay : further decisions between an action and its outcome, at least 0; what is open at the end
        comes after the last one.
    progress : True for a bar, or a function of the number of decisions so far.

    Examples
    --------
    >>> from folklearn.baselines import Banditron
    >>> from folklearn.synthetic import separable
    >>> X, y = separable(0, 3000, d=3, K=3)
    >>> log = interact(Banditron(n_features=3, n_classes=3), X, y)
    >>> log.n_rounds, bool(log.error_rate < 0.2)
    (3000, True)
    >>> late = interact(Banditron(n_features=3, n_classes=3), X, y, delay=1000)
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

    def learn_outcome(row: int) -> None:
        try:
            reward = float(R[row][decisions[row].action])
            agent.learn(decisions[row], int(labels[row]) if agent.learns_labels else reward)
        except FolklearnError as error:
            raise FolklearnError(
                f"the outcome of row {row} of X was refused: {error}; the agent has learned the "
                "outcomes before it"
            ) from error

    decisions: list[Decision] = []
    with report_progress(progress, T, "acting") as report:
        for t, x in enumerate(contexts):
            decisions.append(agent.act(x))
            if t >= delay:
                learn_outcome(t - delay)
            if (t + 1) % _REPORT_EVERY == 0 or t + 1 == T:
                report(t + 1)
        for row in range(max(0, T - delay), T):
            learn_outcome(row)
    actions = np.array([decision.action for decision in decisions], np.int64)
    propensities = np.array([decision.propensity for decision in decisions])
    rewards = np.array([R[t][k] for t, k in enumerate(actions)], np.float64)
    n_actions = None if isinstance(agent, ListAgent) else agent.n_classes
    return Interactions(contexts, actions, propensities, rewards, n_actions)


def _check_stream(agent: Agent, X: Any, y: Any) -> tuple[Any, Labels, Any]:
    """Return contexts, labels if they were given, and what every action earns, all checked."""
    no_labels = np.empty(0, np.int64)
    if isinstance(agent, ListAgent):
        menus = [validation.contexts(rows, agent.n_features)[0] for rows in X]
        expected = "what each of its actions earns, from 0 to 1"
        if len(y) != len(menus):
            raise InvalidInputError(f"y must say for every decision {expected}")
        R = [
            validation.numbers_within(f"y[{t}]", earned, (len(menus[t]),), 0.0, 1.0, expected)
            for t, earned in enumerate(y)
        ]
        return menus, no_labels, R
    X, _ = validation.contexts(X, agent.n_features)
    shape = (len(X), agent.n_classes)
    if np.ndim(y) != 2:
        labels, _ = validation.labels(y, *shape)
        return X, labels, np.eye(agent.n_classes)[labels]
    if agent.learns_labels:
        raise InvalidInputError("this agent learns labels; give it a class per row, not rewards")
    expected = "a label per row of X, or what every action earns, from 0 to 1"
    return X, no_labels, validation.numbers_within("y", y, shape, 0.0, 1.0, expected)
