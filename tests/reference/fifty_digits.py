"""Evidence and the loss of a linear model in 50-digit arithmetic: the judge of rounding.

Every float is taken as the exact number it is. Matrices are lists of mpmath numbers; nothing
here is fast, so K d should stay below ten.
"""

from collections.abc import Callable
from typing import NamedTuple

import mpmath as mp
import numpy as np

from .evidence import centred, labels_as_rows
from .loss import Array

DIGITS = 60  # ten of them for the linear solves
VANISHES = -345.0  # below this logit, relative to the largest, a class has probability 0


class Row(NamedTuple):
    """x, y, w as exact numbers; the expansion point a and its p = softmax(a); gamma."""

    x: list
    y: list
    w: mp.mpf
    a: list
    p: list
    gamma: mp.mpf


class Smooth(NamedTuple):
    """What `least` needs of a convex function: (value, gradient, Hessian) at w, (K d)."""

    n_classes: int
    n_features: int
    at: Callable[[mp.matrix], tuple[mp.mpf, mp.matrix, mp.matrix]]


def exact(values: Array) -> list:
    return [mp.mpf(float(v)) for v in values]


def rows(
    X: Array,
    y: Array,
    n_classes: int,
    *,
    at: Array | None = None,
    gamma: Array,
    weight: Array | None = None,
    Z: Array | None = None,
) -> list[Row]:
    """The rows, expanded at the floats a = Z - max Z, Z = X at' as NumPy rounds it."""
    K = n_classes
    Z = X @ (np.zeros((K, X.shape[1])) if at is None else at).T if Z is None else Z
    weight = np.ones(len(X)) if weight is None else weight
    out = []
    for x, label, a, g, w in zip(X, labels_as_rows(y, K), centred(Z), gamma, weight, strict=True):
        with mp.workdps(DIGITS):
            e = [mp.exp(mp.mpf(float(v))) if v >= VANISHES else mp.mpf(0) for v in a]
            p = [v / mp.fsum(e) for v in e]
            out.append(Row(exact(x), exact(label), mp.mpf(float(w)), exact(a), p, mp.mpf(float(g))))
    return out


def evidence(rows: list[Row]) -> Smooth:
    """The exact sum of the surrogates, collected once."""
    K, d = len(rows[0].y), len(rows[0].x)
    with mp.workdps(DIGITS):
        A, g, c = mp.matrix(K * d), mp.matrix(K * d, 1), mp.mpf(0)
        for row in rows:
            kept = [i for i in range(K) if row.p[i] > 0]
            mean = mp.fsum(row.p[i] * row.a[i] for i in kept)
            spread = mp.fsum(row.p[i] * (row.a[i] - mean) ** 2 for i in kept)
            entropy = -mp.fsum(row.p[i] * mp.log(row.p[i]) for i in kept)
            c += row.w * (entropy + row.gamma * spread)
            for i in range(K):
                pull = row.p[i] - row.y[i]
                if row.p[i] > 0:
                    pull -= 2 * row.gamma * row.p[i] * (row.a[i] - mean)
                for a in range(d):
                    g[i * d + a] += row.w * pull * row.x[a]
            _add_hessian(A, row.w * row.gamma, row.p, row.x)

    def at(w: mp.matrix) -> tuple[mp.mpf, mp.matrix, mp.matrix]:
        Aw = A * w
        return c + _dot(g, w) + _dot(w, Aw), g + 2 * Aw, 2 * A

    return Smooth(K, d, at)


def loss(rows: list[Row]) -> Smooth:
    """The total loss of a model on the same rows; where they were expanded does not matter."""
    K, d = len(rows[0].y), len(rows[0].x)

    def at(w: mp.matrix) -> tuple[mp.mpf, mp.matrix, mp.matrix]:
        value, g, H = mp.mpf(0), mp.matrix(K * d, 1), mp.matrix(K * d)
        for row in rows:
            z = [mp.fsum(w[i * d + a] * row.x[a] for a in range(d)) for i in range(K)]
            top = max(z)
            e = [mp.exp(v - top) for v in z]
            whole = mp.fsum(e)
            p = [v / whole for v in e]
            given = mp.fsum(y * v for y, v in zip(row.y, z, strict=True))
            value += row.w * (top + mp.log(whole) - given)
            for i in range(K):
                for a in range(d):
                    g[i * d + a] += row.w * (p[i] - row.y[i]) * row.x[a]
            _add_hessian(H, row.w, p, row.x)
        return value, g, H

    return Smooth(K, d, at)


def value(f: Smooth, W: Array) -> mp.mpf:
    """f at the float matrix W."""
    with mp.workdps(DIGITS):
        return f.at(mp.matrix(exact(np.asarray(W).ravel())))[0]


def least(f: Smooth, B: float, *, tol: float = 1e-30, max_steps: int = 80) -> tuple[mp.mpf, mp.mpf]:
    """(value, gap): the least value over the class is between value - gap and value.

    A primal-dual interior-point method that ends when the gap is at most tol (1 + |f|).
    """
    with mp.workdps(DIGITS):
        K, d = f.n_classes, f.n_features
        radius = mp.mpf(float(B))
        w = mp.matrix(K * d, 1)
        now, g, H = f.at(w)
        mu = _gap(w, g, radius, K, d) / K
        multipliers = [mu / radius**2] * K
        for _ in range(max_steps):
            gap = _gap(w, g, radius, K, d)
            if gap <= tol * (1 + abs(now)):
                break
            slack = _slack(w, radius, K, d)
            full, curved = g.copy(), H.copy()
            for k in range(K):
                for a in range(k * d, (k + 1) * d):
                    full[a] += 2 * mu / slack[k] * w[a]
                    curved[a, a] += 2 * multipliers[k]
                    for b in range(k * d, (k + 1) * d):
                        curved[a, b] += 4 * multipliers[k] / slack[k] * w[a] * w[b]
            step = mp.cholesky_solve(curved, -full)
            slope = _dot(full, step)
            length = mp.mpf(1)
            barrier = now - mu * mp.fsum(mp.log(s) for s in slack)
            while True:
                moved = w + length * step
                room = _slack(moved, radius, K, d)
                if min(r / s for r, s in zip(room, slack, strict=True)) > mp.mpf("0.001"):
                    after, g_after, H_after = f.at(moved)
                    reached = after - mu * mp.fsum(mp.log(s) for s in room)
                    if reached <= barrier + length * slope / 10000 + mp.mpf(10) ** -45 * (
                        1 + abs(barrier)
                    ):
                        break
                length /= 2
            for k in range(K):
                turn = 2 * _dot(w[k * d : (k + 1) * d], step[k * d : (k + 1) * d])
                wanted = (mu + multipliers[k] * turn) / slack[k]
                change = wanted - multipliers[k]
                multipliers[k] += min(1, _share(multipliers[k], change)) * change
                low, high = mu / (10**10 * room[k]), mu * 10**10 / room[k]
                multipliers[k] = min(max(multipliers[k], low), high)
            w, now, g, H = moved, after, g_after, H_after
            if length > 0.1 and -slope <= 10 * K * mu:
                mu = mu / 30
        return now, _gap(w, g, radius, K, d)


def _share(multiplier: mp.mpf, change: mp.mpf) -> mp.mpf:
    return -mp.mpf("0.995") * multiplier / change if change < 0 else mp.mpf(1)


def _gap(w: mp.matrix, g: mp.matrix, B: mp.mpf, K: int, d: int) -> mp.mpf:
    """<g, W> + B sum_k |g_k|, at least f(W) less the least value."""
    norms = (mp.sqrt(mp.fsum(g[k * d + a] ** 2 for a in range(d))) for k in range(K))
    return _dot(g, w) + B * mp.fsum(norms)


def _slack(w: mp.matrix, B: mp.mpf, K: int, d: int) -> list:
    return [B**2 - mp.fsum(w[k * d + a] ** 2 for a in range(d)) for k in range(K)]


def _dot(u: mp.matrix, v: mp.matrix) -> mp.mpf:
    return mp.fsum(a * b for a, b in zip(u, v, strict=True))


def _add_hessian(H: mp.matrix, factor: mp.mpf, p: list, x: list) -> None:
    """H += factor (diag p - pp') (x) xx', the diagonal without cancellation."""
    K, d = len(p), len(x)
    for i in range(K):
        for j in range(K):
            M = -p[i] * p[j] if i != j else p[i] * mp.fsum(p[r] for r in range(K) if r != i)
            if M != 0:
                for a in range(d):
                    for b in range(d):
                        H[i * d + a, j * d + b] += factor * M * x[a] * x[b]
