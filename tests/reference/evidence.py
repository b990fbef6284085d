"""Sums of evidence from their definitions: dense quadratics in all K d coordinates.

Expanded at logits z, a row's loss to second order (gamma = 1/2) is

    w [l(z, y) + <W x - z, p - y> + gamma |W x - z|^2 in the norm of diag p - p p'],

p = softmax(z). Vectors of length K d are W row by row, so that the vector of p (x) x is
np.kron(p, x).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .loss import Array, as_distribution, covariance, log_loss


def labels_as_rows(y: ArrayLike, n_classes: int) -> Array:
    """(T, K), hard labels as unit vectors."""
    rows = [as_distribution(label, n_classes) for label in np.asarray(y)]
    return np.array(rows).reshape(-1, n_classes)


@dataclass(frozen=True)
class Quadratic:
    """c + <g, W> + <W, A W>, in the coordinates W.ravel()."""

    A: Array
    g: Array
    c: float
    n_classes: int

    def value(self, W: Array) -> float:
        w = W.ravel()
        return float(self.c + self.g @ w + w @ self.A @ w)

    def gradient(self, W: Array) -> Array:
        return (self.g + 2 * self.A @ W.ravel()).reshape(W.shape)

    def __add__(self, other: "Quadratic") -> "Quadratic":
        return Quadratic(self.A + other.A, self.g + other.g, self.c + other.c, self.n_classes)

    def __mul__(self, factor: float) -> "Quadratic":
        return Quadratic(factor * self.A, factor * self.g, factor * self.c, self.n_classes)


def quadratic(
    X: Array,
    y: ArrayLike,
    n_classes: int,
    *,
    at: Array | None = None,
    gamma: float = 0.5,
    weight: Array | None = None,
) -> Quadratic:
    """The sum of rows expanded at the model `at` (zeros), collected around W = 0."""
    K, d = n_classes, X.shape[1]
    Y = labels_as_rows(y, K)
    Z = X @ (np.zeros((K, d)) if at is None else at).T
    Z -= Z.max(axis=1, keepdims=True)  # only differences matter, and rounding hates a shift
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    A, g, c = np.zeros((K * d, K * d)), np.zeros(K * d), 0.0
    for x, label, z, w in zip(X, Y, Z, weight, strict=True):
        p, loss = softmax(z), log_loss(z, label)
        M = covariance(p)
        A += w * gamma * np.kron(M, np.outer(x, x))
        g += w * np.kron(p - label - 2 * gamma * (M @ z), x)
        c += w * (loss - z @ (p - label) + gamma * (z @ M @ z))
    return Quadratic(A, g, c, K)


@dataclass(frozen=True)
class Sums:
    """Planes and quadratics of rows as docs/theory/evidence.md collects them, around W = 0."""

    c0: float
    G0: Array  # (K, d)
    c1: float
    G1: Array
    S: Array  # (K, K, d, d) of pairs

    @classmethod
    def of(cls, X: Array, Y: Array, weight: Array, W: Array, r: Array) -> "Sums":
        """Rows expanded at W with curvatures r (T, K)."""
        K, d = W.shape
        c0, G0, c1, G1, S = 0.0, np.zeros((K, d)), 0.0, np.zeros((K, d)), np.zeros((K, K, d, d))
        for x, y, w, rr in zip(X, Y, weight, r, strict=True):
            z = W @ x
            p, away = softmax(z), z - rr @ z / rr.sum()
            c0 -= w * float(p @ np.log(p))
            G0 += w * np.outer(p - y, x)
            c1 += 0.25 * w * float(rr @ away**2)
            G1 -= 0.5 * w * np.outer(rr * away, x)
            S += np.multiply.outer(0.25 * w * np.outer(rr, rr) / rr.sum(), np.outer(x, x))
        return cls(c0, G0, c1, G1, S)

    def tangent(self, W: Array, s: float) -> tuple[float, Array]:
        """Value and slope (K, d) at W of the tangents at s of the way to it."""
        apart = W[:, None] - W
        along = np.einsum("ijab,ijb->ija", self.S, apart)
        bent = self.c1 + float((self.G1 * W).sum()) + 0.5 * float((apart * along).sum())
        value = self.c0 + float((self.G0 * W).sum()) + (2 * s - s * s) * bent
        return value, self.G0 + s * (self.G1 + 2.0 * along.sum(axis=1))

    def allowances(self, W: Array, N_w: float, N_x: float, depth: float) -> tuple[float, Array]:
        """e and e_i (K,) of Theorem 4."""
        K, d = W.shape
        t, apart = np.log(K), np.linalg.norm(W[:, None] - W, axis=2)
        kappa = 1.01 * 2.0**-53 * (depth + K**2 + K * d + 60)
        traces = np.trace(self.S, axis1=2, axis2=3)
        e = (1 + t) ** 2 * N_w + abs(self.c0) + self.c1
        e += 2 * K * (2 + 3 * t) * N_x * np.linalg.norm(W, axis=1).max()
        e += 0.5 * float((traces * apart**2).sum())
        e_i = 2 * (2 + 3 * t) * N_x + 2 * (traces * apart).sum(axis=1)
        return kappa * e, kappa * e_i
