"""The predictors: each takes a sample and new rows, and returns probabilities and guarantees."""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from folklearn import Folklore
from folklearn.batch import OnlineToBatch

from .worlds import B, D, K, Labels, Rows, judge, sample

WEAK = 0.01  # a ridge too weak for small samples
STRENGTHS = tuple(10.0**power for power in (-1, 0, 1, 2, 3))  # C, for cross-validation
FLOOR = 1e-9  # for a class that a scikit-learn model has never seen
Method = Callable[[Rows, Labels, Rows, int], tuple[Rows, float | None]]


def _online(n_checkpoints: int) -> Method:
    def method(X: Rows, y: Labels, new: Rows, seed: int) -> tuple[Rows, float | None]:
        learner = Folklore(n_features=D, n_classes=K, B=B)
        model = OnlineToBatch(learner, n_checkpoints=n_checkpoints, seed=seed).fit(X, y)
        return model.predict(new), model.guarantee()

    return method


def _last(passes: int) -> Method:
    def method(X: Rows, y: Labels, new: Rows, seed: int) -> tuple[Rows, float | None]:
        learner, rng = Folklore(n_features=D, n_classes=K, B=B), np.random.default_rng(seed)
        learner.run(X, y)
        for _ in range(passes - 1):
            order = rng.permutation(len(X))
            learner.run(X[order], y[order])
        return learner.predict(new), None

    return method


def _regression(C: float | None) -> Method:
    def method(X: Rows, y: Labels, new: Rows, seed: int) -> tuple[Rows, float | None]:
        strength = C if C is not None else _tuned(X, y, seed)
        return _predictions(X, y, new, strength), None

    return method


def _predictions(X: Rows, y: Labels, new: Rows, C: float) -> Rows:
    P = np.zeros((len(new), K))
    if len(set(y)) == 1:
        P[:, y[0]] = 1.0
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(C=C, fit_intercept=False, max_iter=1000).fit(X, y)
        P[:, model.classes_] = model.predict_proba(new)
    P = np.maximum(P, FLOOR)
    return P / P.sum(axis=1, keepdims=True)


def _tuned(X: Rows, y: Labels, seed: int) -> float:
    """The C of least log loss in five folds."""
    losses = np.zeros(len(STRENGTHS))
    for train, test in KFold(5, shuffle=True, random_state=seed).split(X):
        for place, C in enumerate(STRENGTHS):
            P = _predictions(X[train], y[train], X[test], C)
            losses[place] -= np.log(P[np.arange(len(test)), y[test]]).sum()
    return STRENGTHS[int(np.argmin(losses))]


METHODS: dict[str, Method] = {
    "FOLKLORE, random stopping": _online(1),
    "FOLKLORE, 10 averaged": _online(10),
    "FOLKLORE, last": _last(1),
    "FOLKLORE, last of 3 passes": _last(3),
    "LogisticRegression, C = 1": _regression(1.0),
    "LogisticRegression, C = 50": _regression(0.5 / WEAK),
    "LogisticRegression, C by 5 folds": _regression(None),
}
ONLINE = tuple(name for name in METHODS if name.startswith("FOLKLORE"))


def measure(
    world: str, name: str, T: int, seed: int, n_reference: int, n_test: int
) -> dict[str, float | None]:
    """The excess risk of one method on one sample, and what it guarantees."""
    test = judge(world, n_reference, n_test)
    X, y = sample(world, seed, T)
    predicted, guarantee = METHODS[name](X, y, test.X, seed)
    return {"excess": test.excess(predicted), "guarantee": guarantee}
