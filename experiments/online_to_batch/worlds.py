"""Where rows come from: two distributions with known conditional probabilities."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from folklearn import best_in_class

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

D, K = 5, 3
B = 10.0  # of the class; the well-specified world has row norms 5
WELL, MISSPECIFIED = "well-specified", "misspecified"
WORLDS = (WELL, MISSPECIFIED)
_REFERENCE, _TEST = 1, 2  # generators beside those of the samples


@dataclass(frozen=True, eq=False)
class Judge:
    """New rows with their true probabilities, and what the best model and Bayes lose there."""

    X: Rows
    P: Rows
    best: Rows  # loss of every row under the best linear model
    bayes: Rows

    def excess(self, predicted: Rows) -> float:
        """The mean loss of predictions for the first rows, over that of the best model."""
        n = len(predicted)
        return float((expected_losses(self.P[:n], predicted) - self.best[:n]).mean())


def probabilities(world: str, X: Rows) -> Rows:
    """p(y | x): one softmax model, or two, on either side of a hyperplane."""
    rng = np.random.default_rng(2024)
    W, other = (_predictor(rng, 5.0) for _ in range(2))
    Z = X @ W.T
    if world == MISSPECIFIED:
        Z = np.where(X[:, :1] > 0.0, Z, X @ other.T)
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def sample(world: str, seed: int, T: int) -> tuple[Rows, Labels]:
    """T independent rows with labels; a longer sample begins with the shorter one."""
    X = _contexts(np.random.default_rng([seed, 3]), T)
    drawn = np.random.default_rng([seed, 4]).random((T, 1))
    y = (drawn > np.cumsum(probabilities(world, X), axis=1)).sum(axis=1)
    return X, np.minimum(y, K - 1)


@lru_cache(maxsize=2)
def judge(world: str, n_reference: int, n_test: int) -> Judge:
    """The best model of the class on other rows, with true probabilities as soft labels."""
    X = _contexts(np.random.default_rng(_REFERENCE), n_reference)
    W = best_in_class(X, probabilities(world, X), B=B, n_classes=K).W
    X = _contexts(np.random.default_rng(_TEST), n_test)
    P = probabilities(world, X)
    Z = np.exp(X @ W.T)
    best = expected_losses(P, Z / Z.sum(axis=1, keepdims=True))
    return Judge(X, P, best, expected_losses(P, P))


def expected_losses(P: Rows, predicted: Rows) -> Rows:
    """The log loss of every row, its label averaged over the truth."""
    return -(P * np.log(predicted)).sum(axis=1)


def _contexts(rng: np.random.Generator, T: int) -> Rows:
    """Uniform in the unit ball; row by row, so that longer samples extend shorter ones."""
    drawn = rng.normal(size=(T, D + 2))  # d + 2 Gaussians on the sphere: d of them fill the ball
    return (1.0 - 1e-12) * drawn[:, :D] / np.linalg.norm(drawn, axis=1, keepdims=True)


def _predictor(rng: np.random.Generator, norm: float) -> Rows:
    W = rng.normal(size=(K, D))
    return norm * W / np.linalg.norm(W, axis=1, keepdims=True)
