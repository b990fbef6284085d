"""Any classification data as a bandit stream, and the log of what an agent did on it."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.arrays import Array, Labels
from folklearn.bandits.agent import Agent, Decision
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.learners.base import Progress
from folklearn.progress import reporter

_REPORT_EVERY = 1000


@dataclass(frozen=True, eq=False)
class Interactions:
    """What was seen, played and found, one entry per decision, in order of decision.

    Make one from logged data of any origin to evaluate policies on it (`off_policy`).

    Attributes
    ----------
    X : contexts, (T, d).
    actions : the classes that were played, (T,), from 0 to K - 1.
    propensities : the probability with which each was played at the time, (T,), above 0.
    correct : whether each was right, (T,).
    n_classes : number of actions K, at least 2; it need not be seen from the log.

    Examples
    --------
    >>> log = Interactions([[1.0], [2.0]], [0, 2], [0.5, 0.1], [True, False], n_classes=3)
    >>> log.n_rounds, log.error_rate, log.mistakes.tolist()
    (2, 0.5, [0, 1])
    """

    X: Array
    actions: Labels
    propensities: Array
    correct: NDArray[np.bool_]
    n_classes: int

    def __post_init__(self) -> None:
        X = problem.numbers("X", self.X)
        if X.ndim != 2 or not X.shape[1]:
            raise InvalidInputError(
                f"X has shape {X.shape}; expected one row of features per decision"
            )
        X = problem.contexts(X, X.shape[1])[0].copy()  # the log must not follow the caller's array
        X.flags.writeable = False
        T, K = len(X), problem.count("n_classes", self.n_classes, 2)
        checked = {
            "X": X,
            "actions": _actions(self.actions, T, K),
            "propensities": _propensities(self.propensities, T),
            "correct": _outcomes(self.correct, T),
            "n_classes": K,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def n_rounds(self) -> int:
        """The number of decisions."""
        return len(self.X)

    @property
    def mistakes(self) -> Labels:
        """How many actions had been wrong after each decision, (T,)."""
        curve: Labels = np.cumsum(~self.correct, dtype=np.int64)
        return curve

    @property
    def error_rate(self) -> float:
        """The share of actions that were wrong."""
        if not self.n_rounds:
            raise InvalidInputError("nothing to score: there is no decision in this log")
        return float(np.mean(~self.correct))


def interact(
    agent: Agent, X: ArrayLike, y: ArrayLike, *, delay: int = 0, progress: Progress = False
) -> Interactions:
    """Play an agent on labelled rows, telling it only whether each action was right.

    The outcome of a decision is told after `delay` further decisions, those still open at
    the end after the last one. All rows are checked before the first decision. The agent
    goes on from where it stands. One with ``feedback="full"`` is told the label.

    Parameters
    ----------
    agent : what acts and learns.
    X : contexts (T, d).
    y : labels (T,), integers from 0 to K - 1; the agent never sees them.
    delay : decisions between an action and its outcome, at least 0.
    progress : True for a bar, or a function of the number of decisions so far.

    Examples
    --------
    >>> from folklearn.bandits import Banditron
    >>> from folklearn.synthetic import syn_sep
    >>> X, y = syn_sep(0, 3000, d=80, K=3)
    >>> log = interact(Banditron(n_features=80, n_classes=3), X, y)
    >>> log.n_rounds, bool(log.error_rate < 0.1)
    (3000, True)
    >>> late = interact(Banditron(n_features=80, n_classes=3), X, y, delay=100)
    >>> bool(log.mistakes[-1] < late.mistakes[-1])
    True
    """
    X, _ = problem.contexts(X, agent.n_features)
    labels, soft = problem.labels(y, len(X), agent.n_classes)
    if len(soft):
        raise InvalidInputError("y has soft labels; an action is right or wrong: give classes")
    delay = problem.count("delay", delay, 0)
    waiting = len(agent.pending) + min(delay + 1, len(X))
    if waiting > agent.max_pending:
        raise InvalidInputError(
            f"{waiting} decisions would wait for their outcome and the agent keeps "
            f"max_pending={agent.max_pending}: shorten the delay or raise max_pending"
        )
    first = agent.n_decisions

    def tell(decision: Decision, label: int) -> None:
        try:
            if agent.learns_labels:
                agent.learn_label(decision, label)
            else:
                agent.learn(decision, decision.action == label)
        except FolklearnError as error:
            row = decision.id - first
            raise FolklearnError(
                f"the outcome of row {row} of X was refused: {error}; the agent has learned the "
                "outcomes before it"
            ) from error

    actions: Labels = np.empty(len(X), dtype=np.int64)
    propensities: Array = np.empty(len(X))
    open_: deque[tuple[Decision, int]] = deque()
    with reporter(progress, len(X), "acting") as report:
        for t, label in enumerate(labels.tolist()):
            decision = agent.act(X[t])
            actions[t] = decision.action
            propensities[t] = decision.propensity
            open_.append((decision, label))
            if len(open_) > delay:
                tell(*open_.popleft())
            if (t + 1) % _REPORT_EVERY == 0 or t + 1 == len(X):
                report(t + 1)
        while open_:
            tell(*open_.popleft())
    return Interactions(X, actions, propensities, actions == labels, agent.n_classes)


def _actions(actions: ArrayLike, T: int, K: int) -> Labels:
    array = np.asarray(actions)
    if array.shape != (T,):
        raise InvalidInputError(
            f"actions has shape {array.shape}; expected one action per row of X: ({T},)"
        )
    if array.dtype.kind not in "iu" and T:
        raise InvalidInputError(f"actions must be integers, got dtype {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= K))
    if outside.size:
        row = outside[0]
        raise InvalidInputError(f"actions[{row}] is {array[row]}; expected 0 to {K - 1}")
    return array.astype(np.int64)


def _propensities(propensities: ArrayLike, T: int) -> Array:
    array = problem.numbers("propensities", propensities)
    if array.shape != (T,):
        raise InvalidInputError(
            f"propensities has shape {array.shape}; expected one number per row of X: ({T},)"
        )
    bad = np.flatnonzero(~((array > 0.0) & (array <= 1.0)))
    if bad.size:
        raise InvalidInputError(
            f"propensities[{bad[0]}] is {array[bad[0]]:g}; expected the probability with which "
            "the action was played, above 0 and at most 1"
        )
    return array


def _outcomes(correct: ArrayLike, T: int) -> NDArray[np.bool_]:
    array = np.asarray(correct)
    if array.shape != (T,):
        raise InvalidInputError(
            f"correct has shape {array.shape}; expected one outcome per row of X: ({T},)"
        )
    if T and (array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all()):
        raise InvalidInputError("correct must hold True or False: was the action right or not?")
    return array.astype(np.bool_)
