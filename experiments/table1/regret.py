"""Regret against the best model of the class in hindsight, on streams of three tempers.

* stochastic: the model is right, y ~ softmax(W x) with row norms B.
* adversarial: every label is the class that the learner holds least likely.
* hard for proper: one dimension, two classes; expected loss flat in every proper choice
  (`folklearn.synthetic.hard_for_proper`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.table1.algorithms import ALGORITHMS, R
from folklearn import synthetic
from tests.reference.hindsight import best_in_class

STOCHASTIC, ADVERSARIAL, HARD = "stochastic", "adversarial", "hard for proper"
Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """One learner on one stream; regret is taken after each of the horizons."""

    part: str  # "T" or "B": the variable that this run is about
    algorithm: str
    stream: str
    d: int
    K: int
    B: float
    seed: int
    horizons: tuple[int, ...]


def play(task: Task) -> dict[str, Any]:
    """Play one task. The hard stream depends on T and is played afresh for every horizon.

    On the others one run serves all horizons, for no learner is told T.
    """
    if task.stream == HARD:
        outcomes = [_play_once(task, (T,)) for T in task.horizons]
        merged = {key: [o[key][0] for o in outcomes] for key in ("regret", "best", "gap")}
        return vars(task) | merged | {"warm_up": None}
    return vars(task) | _play_once(task, task.horizons)


def _play_once(task: Task, horizons: tuple[int, ...]) -> dict[str, Any]:
    learner = ALGORITHMS[task.algorithm].make(task.d, task.K, task.B)
    T, y = horizons[-1], None
    if task.stream == STOCHASTIC:
        X, y = synthetic.stochastic(task.seed, T, d=task.d, K=task.K, R=R, B=task.B)
    elif task.stream == HARD:
        X, y = synthetic.hard_for_proper(task.seed, T, d=task.d, K=task.K, R=R, B=task.B)
    else:
        X = synthetic.contexts(task.seed, T, d=task.d, R=R)
    losses, labels = _rounds(learner, X, y)
    found = [best_in_class(X[:t], labels[:t], task.B, task.K) for t in horizons]
    W = found[-1][0]
    return {
        "regret": [float(losses[:t].sum() - f[1]) for t, f in zip(horizons, found, strict=True)],
        "best": [f[1] for f in found],
        "gap": [f[2] for f in found],
        "warm_up": _warm_up(losses, X, labels, W) if task.stream == STOCHASTIC else None,
    }


def _rounds(learner: Any, X: Array, y: Labels | None) -> tuple[Array, Labels]:
    """Return losses and labels; without labels, the learner's least likely class each time."""
    losses, labels = np.empty(len(X)), np.empty(len(X), dtype=np.int64)
    for t, x in enumerate(X):
        labels[t] = np.argmin(learner.predict(x)) if y is None else y[t]
        losses[t] = learner.update(x, int(labels[t]))
    return losses, labels


def _warm_up(losses: Array, X: Array, labels: Labels, W: Array) -> int | None:
    """Rounds until, in total, half of what W gains on the uniform prediction is gained too.

    None if that has not happened by the end: the learner has hardly moved.
    """
    Z = X @ W.T
    best = np.logaddexp.reduce(Z, axis=1) - Z[np.arange(len(Z)), labels]
    behind = np.cumsum(losses - best) > 0.5 * np.cumsum(np.log(len(W)) - best)
    last = int(np.flatnonzero(behind)[-1]) + 1 if behind.any() else 0
    return None if last == len(X) else last + 1
