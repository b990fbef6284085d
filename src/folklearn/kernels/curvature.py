"""The curvature constant of the quadratic surrogate: how large gamma may be.

The surrogate  l(z_t) + <z - z_t, p_t - y> + gamma |z - z_t|^2_{diag p_t - p_t p_t'}  must
lie below the loss at the logits z of every linear model in the class. Three constants do
that, and the largest one gives the least regret:

- `gamma_star(L)`, L = 2 B|x| + ln(K-1): the best constant that depends on L alone;
- `self_concordant(D)`, D = 2 B|x| + max z_t - min z_t: wins when ln(K-1) is large;
- `binary_exact(m, L)`, L = 2 B|x|, m the logit difference: exact for two classes.

The paper's 1/(BR + ln(K)/2) is up to twice too large; see docs/theory/folklore.md.
"""

import math

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.compile import inner_kernel, shared_kernel
from folklearn.kernels.simplex import softplus

STEP = 0.01  # table nodes are L = expm1(i * step): 1/gamma* is off by at most 2e-5 relative
_N_NODES = 3001  # the last node is near 1e13
SAFE = 1.0 - 1e-11  # so that rounding never lifts a constant above the truth
SMALL = 1e-3  # distance below which a ratio cancels, and its series is taken
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def _ratio(m: Array, L: Array) -> Array:
    """The Bregman divergence of softplus from m to L over its quadratic part at m < L."""
    gap = L - m
    c = 1.0 / (1.0 + np.exp(m))  # 1 - sigmoid(m)
    numerator = c * gap + np.log1p(c * np.expm1(-gap))
    return numerator / ((1.0 - c) * c * gap**2)


def gamma_star(L: Array | float) -> Array:
    """Return the largest valid curvature for logit reach L, by direct minimisation.

    gamma*(L) = min over 0 <= m < L of
        [softplus(L) - softplus(m) - s(m)(L - m)] / [s(m)(1 - s(m))(L - m)^2].
    """
    L = np.atleast_1d(np.asarray(L, dtype=np.float64))
    series = 0.5 - L**2 / 36.0  # below the true value; the ratio itself cancels for small L
    reach = np.maximum(L, 0.1)
    span = np.minimum(reach - 0.01, 5.0 + 2.0 * np.log1p(reach))
    grid = np.linspace(0.0, 1.0, 65)
    best = np.argmin(_ratio(span[:, None] * grid, reach[:, None]), axis=1)
    low = span * grid[np.maximum(best - 1, 0)]
    high = span * grid[np.minimum(best + 1, 64)]
    for _ in range(60):  # golden section on all entries at once
        left = high - _GOLDEN * (high - low)
        right = low + _GOLDEN * (high - low)
        go_left = _ratio(left, reach) < _ratio(right, reach)
        low, high = np.where(go_left, low, left), np.where(go_left, right, high)
    minimum = _ratio(0.5 * (low + high), reach)
    return np.where(L < 0.1, series, minimum)


# 1/gamma* is convex with slope at most 1, so its chords lie above it and extrapolating
# with slope 1 does too: interpolated values of gamma never exceed gamma*.
NODES = np.expm1(STEP * np.arange(_N_NODES))
INVERSES = 1.0 / (SAFE * gamma_star(NODES))


@inner_kernel
def gamma_star_below(L):
    """Return a value at most gamma*(L), and at least 0.9999 of it, from the table."""
    i = int(math.log1p(L) / STEP)
    if i >= _N_NODES - 1:
        return 1.0 / (INVERSES[-1] + (L - NODES[-1]))
    slope = (INVERSES[i + 1] - INVERSES[i]) / (NODES[i + 1] - NODES[i])
    return 1.0 / (INVERSES[i] + slope * (L - NODES[i]))


@inner_kernel
def self_concordant(D):
    """Return (exp(-D) - 1 + D) / D^2."""
    if D < SMALL:
        return 0.5 - D / 6.0
    return SAFE * (math.expm1(-D) + D) / (D * D)


@inner_kernel
def _binary_ratio(m, gap):
    """The ratio of `gamma_star` at expansion point m >= 0 and far point m + gap."""
    c = math.exp(-softplus(m))  # 1 - sigmoid(m)
    if abs(gap) < SMALL:
        third, fourth = 2.0 * c - 1.0, 1.0 - 6.0 * (1.0 - c) * c  # derivatives over s'(m)
        return 0.5 + third * gap / 6.0 + fourth * gap * gap / 24.0 - 1e-10
    if c < 1e-300:  # the limit; beyond 700 the value only has to be large
        return (math.expm1(min(-gap, 700.0)) + gap) / (gap * gap)
    if gap > 0.0:
        numerator = c * gap + math.log1p(c * math.expm1(-gap))
    else:
        numerator = softplus(-m - gap) - softplus(-m) + c * gap
    return numerator / ((1.0 - c) * c * gap * gap)


@shared_kernel("f8(f8, f8)")
def binary_exact(m, L):
    """Return the largest valid curvature for two classes, at most 1/2.

    The ratio averages a unimodal curvature twice, so its minimum over |l| <= L is at L or -L. It
    exceeds 1/2 only for m outside the reach; the closed-form bounds rely on 1/2.
    """
    m = abs(m)
    return min(SAFE * min(_binary_ratio(m, L - m), _binary_ratio(m, -L - m)), 0.5)


@shared_kernel("f8(vector, f8)")
def valid_curvature(z, reach):
    """Return the largest known valid gamma at logits z (K,), for reach = 2 B|x|."""
    K = z.shape[0]
    if K == 2:
        return binary_exact(z[0] - z[1], reach)
    low = z[0]
    high = z[0]
    for i in range(1, K):
        low = min(low, z[i])
        high = max(high, z[i])
    return max(gamma_star_below(reach + math.log(K - 1.0)), self_concordant(reach + high - low))
