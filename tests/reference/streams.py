"""Small seeded streams: each returns X (T, d), rows of norm at most R, and labels y (T,)."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
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


def words(
    seed: int, T: int, d: int = 100_000, K: int = 8, n: int = 40, own: float = 0.4
) -> tuple[Any, Labels]:
    """Sparse rows (SciPy) of up to n words, each once, by Zipf's law, divided by their norm.

    A part `own` of the words is drawn from frequencies of the class, the others from those of all.
    """
    rng = np.random.default_rng(seed)
    common = 1.0 / (np.arange(d) + 10.0)
    tilt = 1.5 * rng.normal(size=(K, d)) * (rng.random((K, d)) < 0.3)
    y = rng.integers(K, size=T)
    chance, by_class = rng.random((T, n)), rng.random((T, n)) < own
    places = np.searchsorted(np.cumsum(common) / common.sum(), chance)
    for k in range(K):
        frequencies = common * np.exp(tilt[k])
        drawn = np.searchsorted(np.cumsum(frequencies) / frequencies.sum(), chance)
        places = np.where(by_class & (y == k)[:, None], drawn, places)
    starts = np.arange(0, T * n + 1, n)
    X = csr_array((np.ones(T * n), places.clip(0, d - 1).ravel(), starts), shape=(T, d))
    X.sum_duplicates()
    lengths = np.diff(X.indptr)
    X.data = 1.0 / np.sqrt(np.repeat(lengths, lengths))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, y
