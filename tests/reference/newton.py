"""The round's own problem of FOLKLORE and of GAF: a quadratic plus one loss, by Newton's method."""

import numpy as np
from scipy.special import softmax

from .loss import Array, covariance, log_loss


def least_with_loss(A: Array, z: Array, x: Array, target: Array, weight: float) -> Array:
    """argmin over v (K d,) of <v, A v> + weight l(z + V x, target), V = v as (K, d)."""
    K, d = z.size, x.size

    def value(v: Array) -> float:
        return float(v @ A @ v) + weight * log_loss(z + v.reshape(K, d) @ x, target)

    v, previous = np.zeros(K * d), np.inf
    for _ in range(1000):
        p = softmax(z + v.reshape(K, d) @ x)
        terms = np.array([2 * A @ v, weight * np.kron(p - target, x)])
        gradient = terms.sum(axis=0)
        size = float(np.linalg.norm(gradient))
        # Newton converges quadratically: once close, no more progress means rounding. Where the
        # minimum is v = 0 the terms are themselves rounding, that of p - target.
        close = 1e-8 * np.linalg.norm(terms)
        rounding = 1e-14 * weight * np.linalg.norm(p + target) * np.linalg.norm(x)
        if size <= max(close, rounding) and size >= previous / 2:
            return v
        previous = size
        hessian = 2 * A + weight * np.kron(covariance(p), np.outer(x, x))
        step = -np.linalg.solve(hessian, gradient)
        now = value(v)
        t, slope, slack = 1.0, float(gradient @ step), 1e-14 * (1 + abs(now))
        while value(v + t * step) > now + 1e-4 * t * slope + slack:
            t /= 2
        v = v + t * step
    raise RuntimeError("Newton's method did not converge in 1000 steps")
