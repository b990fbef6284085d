"""The curvature constants by brute force.

Everything is a minimum of one ratio. With f = softplus, s = sigmoid,

    ratio(m, l) = [f(l) - f(m) - s(m) (l - m)] / [s(m) (1 - s(m)) (l - m)^2],

the largest gamma for which the binary surrogate expanded at logit m stays below the loss at
logit l. It is 1/2 at l = m.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax

from .loss import Array, as_distribution, covariance, log_loss

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2  # from [-1, 1] to [0, 1]
CEILING = 700.0  # log of the largest ratio returned


def softplus(v: Array) -> Array:
    return np.maximum(v, 0.0) + np.log1p(np.exp(-np.abs(v)))


def log_slope(v: Array) -> Array:
    """log s(v)(1 - s(v))."""
    return -np.abs(v) - 2 * np.log1p(np.exp(-np.abs(v)))


def _near(m: Array, step: Array) -> Array:
    """ratio(m, m + step) as the integral over [0, 1] of (1 - t) s'(m + t step) / s'(m).

    Taylor's remainder: all terms are positive, so nothing cancels as the step goes to 0.
    """
    v = m[:, None] + NODES * step[:, None]
    return np.exp(log_slope(v) - log_slope(m)[:, None]) @ (WEIGHTS * (1 - NODES))


def _far(m: Array, step: Array) -> Array:
    """The definition for step >= 1, in logs, each range of m in a form that does not cancel."""
    log_numerator = np.empty_like(m)

    # f(l) - f(m) = step + log(s + c e^-step), regrouped around c = 1 - s. Beyond m = 40 the
    # numerator is proportional to c = e^-m to the last digit, and c may underflow.
    up = m >= 0
    c, h = expit(-np.minimum(m[up], 40.0)), step[up]
    log_numerator[up] = np.log(c * h + np.log1p(c * np.expm1(-h))) - np.maximum(m[up] - 40.0, 0)

    # f(l) - f(m) = log(c + s e^step), regrouped around s; s e^step may over- or underflow.
    log_growth = step - softplus(-m)
    tiny = ~up & (log_growth < -36)
    middle = ~up & (np.abs(log_growth) <= 36)
    huge = ~up & (log_growth > 36)
    s, h, g = expit(np.maximum(m, -700.0)), step, log_growth
    log_numerator[tiny] = g[tiny] + np.log1p(-(1 + h[tiny]) * np.exp(-h[tiny]))
    log_numerator[middle] = np.log(np.log1p(np.exp(g[middle]) - s[middle]) - s[middle] * h[middle])
    log_numerator[huge] = np.log(g[huge] - s[huge] * h[huge])

    return np.exp(np.minimum(log_numerator - log_slope(m) - 2 * np.log(step), CEILING))


def ratio(m: ArrayLike, ell: ArrayLike) -> Array:
    """ratio(m, l) elementwise, within 1e-12 relative, and e^700 where it is larger than that."""
    m, ell = np.broadcast_arrays(np.asarray(m, dtype=float), np.asarray(ell, dtype=float))
    step = np.abs(ell - m)
    # softplus(v) - v/2 is even and the ratio ignores linear terms: l < m mirrors to l > m.
    m = np.where(ell < m, -m, m)
    out = np.empty(m.shape)
    near = step < 1.0
    out[near] = _near(m[near], step[near])
    out[~near] = _far(m[~near], step[~near])
    return out


def _grid_minimum(f: Callable[[Array], Array], grid: Array) -> float:
    """Global minimum of f: the best grid point, then a bounded search between its neighbours."""
    values = f(grid)
    i = int(np.argmin(values))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
    fine = minimize_scalar(
        lambda v: float(f(np.array([v]))[0]),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9 * (high - low)},
    )
    return min(float(values[i]), float(fine.fun))


def gamma_star(L: float) -> float:
    """gamma*(L) = min over 0 <= m < L of ratio(m, L); L = 2 B ||x|| + ln(K - 1)."""
    if L <= 0:
        return 0.5
    # The minimiser grows like log L, so a grid in proportion to L alone would miss it.
    grid = np.union1d(np.linspace(0, L, 1001), np.linspace(0, min(L, 20.0), 1001))
    return _grid_minimum(lambda m: ratio(m, L), grid)


def self_concordant(D: float) -> float:
    """(e^-D - 1 + D) / D^2, D bounding the spread of z - z_t; 1/2 at D = 0."""
    if D < 1.0:  # the same number as the integral of (1 - t) e^(-tD), which does not cancel
        return float(np.exp(-D * NODES) @ (WEIGHTS * (1 - NODES)))
    return float((D + np.expm1(-D)) / D**2)


def gamma_binary(m: float, L: float) -> float:
    """Exact constant of a K = 2 round: min over |l| <= L of ratio(m, l), m = z_1 - z_2.

    Above 1/2 when |m| > L.
    """
    if L <= 0:
        return float(ratio(m, 0.0))
    return _grid_minimum(lambda ell: ratio(m, ell), np.linspace(-L, L, 2001))


def round_gamma(z: Array, x_norm: float, B: float) -> float:
    """The largest of the constants valid for a round with logits z and ||x|| = x_norm."""
    z = np.asarray(z, dtype=float)
    reach = 2 * B * x_norm
    choices = [
        gamma_star(reach + np.log(z.size - 1)),
        self_concordant(reach + float(np.ptp(z))),
    ]
    if z.size == 2:
        choices.append(gamma_binary(float(z[0] - z[1]), reach))
    return max(choices)


def surrogate_gap(z: Array, z_t: Array, y: ArrayLike, gamma: float) -> float:
    """loss(z) - surrogate(z), the surrogate being

        l(z_t, y) + <z - z_t, p_t - y> + gamma ||z - z_t||^2 in the norm of diag p_t - p_t p_t^T;

    gamma is valid iff this is non-negative for every z of the comparator class.
    """
    z, z_t = np.asarray(z, dtype=float), np.asarray(z_t, dtype=float)
    p = softmax(z_t)
    step = z - z_t
    surrogate = (
        log_loss(z_t, y)
        + step @ (p - as_distribution(y, z.size))
        + gamma * step @ covariance(p) @ step
    )
    return log_loss(z, y) - float(surrogate)
