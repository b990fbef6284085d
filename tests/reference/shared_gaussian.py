"""Logistic regression with one covariance for all classes, dense, from its definition.

    z' = argmin  w l(z', y) + |z' - z|^2 / (2 s),    z = Wx,  s = x'Px,  p' = softmax(z'),
    W -= w (p' - y) (Px)',    P^-1 += w sum_k p'_k (1 - p'_k) / sqrt(2 K) x x'.

With a leak P goes back to its prior after every 32nd round,

    P <- k P + (1 - k) I / (2 ridge R^2),    k = (1 - leak)^32.

The inverse of P is kept, and inverted when it is needed.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .class_blocks import implicit_step
from .loss import Array, as_distribution, log_loss

ROUNDS_PER_LEAK = 32


class DenseSharedGaussian:
    """The learner with its matrix written out.

    Attributes
    ----------
    W : means (K, d).
    precision : P^-1 (d, d).
    loss, n_rounds : weighted sum of the losses, and the number of rounds.
    """

    def __init__(
        self, n_features: int, n_classes: int, ridge: float, leak: float = 0.0, R: float = 1.0
    ) -> None:
        self.W = np.zeros((n_classes, n_features))
        self.prior, self.leak = 1 / (2 * ridge * R**2), leak
        self.precision = np.eye(n_features) / self.prior
        self.loss, self.n_rounds = 0.0, 0

    def predict(self, x: Array) -> Array:
        return np.asarray(softmax(self.W @ x))

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss, not multiplied by the weight."""
        z, K = self.W @ x, len(self.W)
        given, loss = as_distribution(y, K), log_loss(z, y)
        self.loss += weight * loss
        self.n_rounds += 1
        u = np.linalg.solve(self.precision, x)
        if weight > 0 and u @ x > 0:
            p = softmax(implicit_step(z, np.full(K, u @ x), given, weight))
            self.W -= weight * np.outer(p - given, u)
            self.precision += weight * float((p * (1 - p)).sum()) / np.sqrt(2 * K) * np.outer(x, x)
        if self.leak > 0 and self.n_rounds % ROUNDS_PER_LEAK == 0:
            keep = (1 - self.leak) ** ROUNDS_PER_LEAK
            prior = self.prior * np.eye(len(x))
            self.precision = np.linalg.inv(keep * self.covariance() + (1 - keep) * prior)
        return loss

    def covariance(self) -> Array:
        """P (d, d)."""
        return np.asarray(np.linalg.inv(self.precision))

    def grow(self, n_features: int, n_classes: int) -> None:
        """Make room for features that were 0 so far, and for classes that were not there."""
        K, d = self.W.shape
        W, precision = np.zeros((n_classes, n_features)), np.eye(n_features) / self.prior
        W[:K, :d], precision[:d, :d] = self.W, self.precision
        self.W, self.precision = W, precision
