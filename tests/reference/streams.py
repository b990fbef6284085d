"""Small seeded streams: each returns X (T, d), rows of norm at most R, and labels y (T,)."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .loss import Array

Labels = NDArray[np.int64]
Stream = tuple[Array, Labels]


class Learner(Protocol):
    def predict(self, x: Array) -> Array: ...

    def update(self, x: Array, y: int) -> Any: ...


def contexts(rng: np.random.Generator, T: int, d: int, R: float) -> Array:
    """Uniform in the ball of radius R."""
    X = rng.standard_normal((T, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    # Just inside, so that rounding cannot put a row outside.
    return X * (R * (1 - 1e-12) * rng.random((T, 1)) ** (1 / d))


def predictor(rng: np.random.Generator, K: int, d: int, B: float) -> Array:
    """A random W with every row of norm B."""
    W = rng.standard_normal((K, d))
    return W * (B / np.linalg.norm(W, axis=1, keepdims=True))


def _draw(rng: np.random.Generator, Z: Array) -> Labels:
    """One label per row of logits, by the Gumbel trick."""
    return np.argmax(Z + rng.gumbel(size=Z.shape), axis=1)


def stochastic(seed: int, T: int, d: int, K: int, B: float = 5.0, R: float = 1.0) -> Stream:
    """The well-specified model: y ~ softmax(W x), W fixed with row norms B."""
    rng = np.random.default_rng(seed)
    X = contexts(rng, T, d, R)
    return X, _draw(rng, X @ predictor(rng, K, d, B).T)


def separable(seed: int, T: int, d: int, K: int, R: float = 1.0) -> Stream:
    """y = argmax W x: the best loss goes to 0 as the norm bound grows."""
    rng = np.random.default_rng(seed)
    X = contexts(rng, T, d, R)
    return X, np.argmax(X @ predictor(rng, K, d, 1.0).T, axis=1)


def pure_noise(seed: int, T: int, d: int, K: int, R: float = 1.0) -> Stream:
    """Labels uniform and independent of the contexts: nothing to learn."""
    rng = np.random.default_rng(seed)
    return contexts(rng, T, d, R), rng.integers(K, size=T)


def drifting(
    seed: int, T: int, d: int, K: int, B: float = 5.0, R: float = 1.0, turns: float = 1.0
) -> Stream:
    """y ~ softmax(W_t x), W_t turning from one random predictor towards another and round."""
    rng = np.random.default_rng(seed)
    X = contexts(rng, T, d, R)
    start, other = predictor(rng, K, d, B), predictor(rng, K, d, B)
    angle = 2 * np.pi * turns * np.arange(T) / T
    Z = np.cos(angle)[:, None] * (X @ start.T) + np.sin(angle)[:, None] * (X @ other.T)
    return X, _draw(rng, Z)


def soft_labels(seed: int, y: Labels, K: int, mix: float = 0.5) -> Array:
    """(T, K) points of the simplex: each hard label mixed with a random distribution."""
    rng = np.random.default_rng(seed)
    noise = softmax(2 * rng.standard_normal((len(y), K)), axis=1)
    return (1 - mix) * np.eye(K)[y] + mix * noise


def play_adversarial(model: Learner, X: Array) -> Labels:
    """Run the model on X, every label its least likely class (lowest index on ties)."""
    labels = np.empty(len(X), dtype=np.int64)
    for t, x in enumerate(X):
        labels[t] = np.argmin(model.predict(x))
        model.update(x, int(labels[t]))
    return labels
