"""The loss of a linear model in 50-digit arithmetic: the judge of rounding.

Every float is taken as the exact number it is. Nothing here is fast, so K d should stay below ten.
"""

import mpmath as mp
import numpy as np

from .evidence import labels_as_rows
from .loss import Array

DIGITS = 60  # ten of them for the linear solves


def exact(values: Array) -> list:
    """The numbers of an array, row by row."""
    return [mp.mpf(float(v)) for v in np.asarray(values).ravel()]


def total_loss(W: Array, X: Array, y: Array, weight: Array) -> mp.mpf:
    """The loss of the floats W (K, d), labels (T,) or (T, K)."""
    with mp.workdps(DIGITS):
        return _at(mp.matrix(exact(W)), _rows(X, y, len(W), weight), len(W))[0]


def penalty(W: Array, tau: Array) -> mp.mpf:
    """Half the sum of tau_j W_kj^2."""
    with mp.workdps(DIGITS):
        return mp.fsum(t * w**2 for t, w in zip(exact(tau) * len(W), exact(W), strict=True)) / 2


def least_penalised(X: Array, y: Array, weight: Array, tau: Array, W: Array) -> mp.mpf:
    """The least loss plus penalty, from above: what Newton's method has reached from W (K, d)."""
    K = len(W)
    with mp.workdps(DIGITS):
        rows, w = _rows(X, y, K, weight), mp.matrix(exact(W))
        ridge = exact(tau) * K

        def at(w: mp.matrix) -> tuple[mp.mpf, mp.matrix, mp.matrix]:
            value, g, H = _at(w, rows, K)
            for i, t in enumerate(ridge):
                value += t * w[i] ** 2 / 2
                g[i] += t * w[i]
                H[i, i] += t
            return value, g, H

        now, g, H = at(w)
        for _ in range(60):
            step = mp.cholesky_solve(H, -g)
            slope, length = mp.fsum(a * b for a, b in zip(g, step, strict=True)), mp.mpf(1)
            if -slope <= mp.mpf(10) ** -30 * (1 + now):
                break
            while (after := at(w + length * step))[0] > now + length * slope / 10000:
                length /= 2
            w, (now, g, H) = w + length * step, after
        return now


def _rows(X: Array, y: Array, K: int, weight: Array) -> list[tuple[list, list, mp.mpf]]:
    triples = zip(X, labels_as_rows(y, K), weight, strict=True)
    return [(exact(x), exact(label), mp.mpf(float(w))) for x, label, w in triples]


def _at(w: mp.matrix, rows: list, K: int) -> tuple[mp.mpf, mp.matrix, mp.matrix]:
    """Loss, gradient and Hessian at w (K d), class by class."""
    n = len(w)
    d = n // K
    value, g, H = mp.mpf(0), mp.matrix(n, 1), mp.matrix(n)
    for x, y, weight in rows:
        z = [mp.fsum(w[i * d + a] * x[a] for a in range(d)) for i in range(K)]
        e = [mp.exp(v - max(z)) for v in z]
        total = mp.fsum(e)
        p = [v / total for v in e]
        value += weight * (max(z) + mp.log(total) - mp.fsum(map(mp.fmul, y, z)))
        for i in range(K):
            for a in range(d):
                g[i * d + a] += weight * (p[i] - y[i]) * x[a]
            for j in range(K):
                M = weight * p[i] * ((1 - p[i]) if i == j else -p[j])
                for a in range(d):
                    for b in range(d):
                        H[i * d + a, j * d + b] += M * x[a] * x[b]
    return value, g, H
