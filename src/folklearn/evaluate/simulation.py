"""Agents on rows whose rewards are known: the log of what they would have done."""

from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Labels
from folklearn.bandits.agent import Agent
from folklearn.bandits.lists import ListAgent
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.progress import Progress, report_progress

_REPORT_EVERY = 1000  # decisions


def interact(agent: Agent, X: Any, y: Any, *, progress: Progress = False) -> Interactions:
    """Simulate an agent on rows with known rewards; it learns only the reward of its action.

    All rows are checked before the first decision. The agent goes on from where it stands; one with
    ``feedback="full"`` learns the label.

    Parameters
    ----------
    agent : what acts and learns.
    X : contexts (T, d); for a `ListAgent` a matrix per decision, with a row per action.
    y : labels (T,), integers from 0 to K - 1: the action that earns 1, others earn 0. Or what every
        action would earn, (T, K), from 0 to 1; for a `ListAgent` the same for each decision.
    progress : True for a bar, or a function of the number of decisions so far.

    Examples
    --------
    >>> from folklearn.baselines import Banditron
    >>> from folklearn.synthetic import separable
    >>> X, y = separable(0, 3000, d=3, K=3)
    >>> log = interact(Banditron(n_features=3, n_classes=3), X, y)
    >>> log.n_rounds, bool(log.error_rate < 0.2)
    (3000, True)
    """
    contexts, labels, R = _check_stream(agent, X, y)
    T, decisions = len(contexts), []
    rewards = np.empty(T)
    with report_progress(progress, T, "acting") as report:
        for t, x in enumerate(contexts):
            decision = agent.act(x)
            rewards[t] = reward = float(R[t][decision.action])
            try:
                agent.learn(decision, int(labels[t]) if agent.learns_labels else reward)
            except FolklearnError as error:
                raise FolklearnError(
                    f"the outcome of row {t} of X was refused: {error}; the agent has learned the "
                    "outcomes before it"
                ) from error
            decisions.append(decision)
            if (t + 1) % _REPORT_EVERY == 0 or t + 1 == T:
                report(t + 1)
    actions = np.array([decision.action for decision in decisions], np.int64)
    propensities = np.array([decision.propensity for decision in decisions])
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
