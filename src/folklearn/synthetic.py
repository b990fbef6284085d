"""Seeded synthetic streams, from well specified to adversarial, and the digits.

Every generator is called as ``stream(seed, T, *, d, K, R=1.0, ...)`` and returns contexts X
(T, d), rows of norm at most R, and labels y (T,) in 0..K-1. The same arguments give the same
bytes. `OBLIVIOUS` holds them by name; `against` needs a learner to play against.

>>> X, y = stochastic(0, 100, d=3, K=4)
>>> X.shape, y.shape, int(y.max())
((100, 3), (100,), 3)
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels

if TYPE_CHECKING:  # streams load faster without the learners
    from folklearn.learners.base import Learner

__all__ = [
    "OBLIVIOUS", "Stream", "against", "contexts", "digits", "drifting", "hard_for_proper",
    "pure_noise", "rare_flip", "separable", "stochastic",
]  # fmt: skip

Stream = tuple[Array, Labels]

DIGITS_NAME, DIGITS_TARGET = "scikit-learn's digits", "digit"
_RADIUS_SHRINKAGE = 1.0 - 1e-12  # so that rounding puts no row outside the ball


def stochastic(seed: int, T: int, *, d: int, K: int, R: float = 1.0, B: float = 5.0) -> Stream:
    """y ~ softmax(W x), one W with row norms B: the well-specified model."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    return X, _draw_labels(rng, X @ _random_predictor(rng, K, d, validation.positive("B", B)).T)


def separable(seed: int, T: int, *, d: int, K: int, R: float = 1.0) -> Stream:
    """y = argmax W x: the loss of the best model goes to 0 as its norm grows."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    return X, np.argmax(X @ _random_predictor(rng, K, d, 1.0).T, axis=1)


def pure_noise(seed: int, T: int, *, d: int, K: int, R: float = 1.0) -> Stream:
    """Labels uniform and independent of the contexts: there is nothing to learn."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    return X, rng.integers(K, size=T)


def rare_flip(seed: int, T: int, *, d: int, K: int, R: float = 1.0, rate: float = 0.01) -> Stream:
    """Separable, but a fraction `rate` of the labels is replaced by another class."""
    rate = validation.fraction("rate", rate, 1.0)
    X, y = separable(seed, T, d=d, K=K, R=R)
    rng = np.random.default_rng([seed, 1])  # not the generator that made the labels
    others = (y + rng.integers(1, K, size=T)) % K
    return X, np.where(rng.random(T) < rate, others, y)


def drifting(
    seed: int, T: int, *, d: int, K: int, R: float = 1.0, B: float = 5.0, turns: float = 1.0
) -> Stream:
    """y ~ softmax(W_t x), W_t turning from one predictor to another and round, `turns` times."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    B = validation.positive("B", B)
    first, second = _random_predictor(rng, K, d, B), _random_predictor(rng, K, d, B)
    angle = 2.0 * np.pi * turns * np.arange(T)[:, None] / T
    return X, _draw_labels(rng, np.cos(angle) * (X @ first.T) + np.sin(angle) * (X @ second.T))


def hard_for_proper(
    seed: int, T: int, *, d: int = 1, K: int = 2, R: float = 1.0, B: float = 10.0
) -> Stream:
    r"""Labels that cost every proper learner of row norm B a power of B and T, not ln T.

    One dimension, two classes (further features are 0, further classes do not occur). With
    D = 2BR, the largest difference of logits, a round is independently

    * rare, with probability :math:`p = 2 (T D^2)^{-1/3}`, at most 1/4: x = R, label 1;
    * common otherwise: x = 2pR / (1 - p), label 0.

    The *expected* loss of a model whose logits differ by :math:`\theta x / R` is flat on 0..D, but
    the number of rare rounds deviates by :math:`\sqrt{Tp}`: the best model in hindsight gains of
    the order :math:`D^{2/3} T^{1/3}` while T is below about :math:`e^D`.

    References
    ----------
    Hazan, Koren and Levy (2014), "Logistic Regression: Tight Bounds for Stochastic and
    Online Optimization", the one-dimensional lower bound; the constants here are our own.
    """
    T, d, K = validation.count("T", T, 1), validation.count("d", d, 1), validation.count("K", K, 2)
    R, B = validation.positive("R", R), validation.positive("B", B)
    p = min(0.25, 2.0 * (T * (2.0 * B * R) ** 2) ** (-1.0 / 3.0))
    rare = np.random.default_rng(seed).random(T) < p
    X = np.zeros((T, d))
    X[:, 0] = np.where(rare, R, 2.0 * p / (1.0 - p) * R)
    return X, rare.astype(np.int64)


OBLIVIOUS: dict[str, Callable[..., Stream]] = {
    stream.__name__: stream
    for stream in (stochastic, separable, pure_noise, rare_flip, drifting, hard_for_proper)
}


def against(learner: "Learner", X: ArrayLike) -> Labels:
    """Play X against a learner, which learns as it goes; return the labels (T,).

    Every label is the class that the learner holds least likely, the lowest on ties.

    >>> from folklearn import Folklore
    >>> learner = Folklore(n_features=2, n_classes=2)
    >>> y = against(learner, contexts(0, 50, d=2))
    >>> bool(learner.certificate().loss > 50 * np.log(2))
    True
    """
    X = validation.contexts(X, learner.n_features)
    labels = np.empty(len(X), dtype=np.int64)
    for t, x in enumerate(X):
        labels[t] = np.argmin(learner.predict(x))
        learner.update(x, int(labels[t]))
    return labels


def contexts(seed: int, T: int, *, d: int, R: float = 1.0) -> Array:
    """Return X (T, d), rows uniform in the ball of radius R."""
    return _draw_contexts(seed, T, d, 2, R)[1]


def _draw_contexts(
    seed: Any, T: int, d: int, K: int, R: float
) -> tuple[np.random.Generator, Array]:
    T, d, R = validation.count("T", T, 1), validation.count("d", d, 1), validation.positive("R", R)
    validation.count("K", K, 2)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((T, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return rng, X * (_RADIUS_SHRINKAGE * R * rng.random((T, 1)) ** (1.0 / d))


def _random_predictor(rng: np.random.Generator, K: int, d: int, B: float) -> Array:
    W = rng.standard_normal((K, d))
    return W * (B / np.linalg.norm(W, axis=1, keepdims=True))


def _draw_labels(rng: np.random.Generator, Z: Array) -> Labels:
    # The Gumbel trick: one label per row of logits.
    return np.argmax(Z + rng.gumbel(size=Z.shape), axis=1)


def digits() -> list[dict[str, Any]]:
    """Return 1797 images of 8 × 8 pixels, and the digit that each shows, in a fixed random order.

    >>> rows = digits()
    >>> len(rows), rows[0]["pixel_3_3"], rows[0]["digit"]
    (1797, 3.0, '6')
    """
    # Here, because this import takes longer than everything else in the package.
    from sklearn.datasets import load_digits

    images, shown = load_digits(return_X_y=True)
    # The stored order goes through the writers one by one; a stream should not.
    order = np.random.default_rng(0).permutation(len(shown))
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    return [
        {**dict(zip(names, images[i].tolist(), strict=True)), DIGITS_TARGET: str(shown[i])}
        for i in order
    ]
