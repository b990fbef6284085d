"""What moves the leaders of a panel: rows enter sums of evidence, modes are refreshed from them.

`ExpertState.settle` says when. The arrays of a panel, memo and plan, are those of
`folklearn.kernels.experts`.
"""

import numpy as np
from numba import carray

from folklearn.kernels.blas import PLAIN, TRANSPOSED, address, gemm
from folklearn.kernels.compile import helper_kernel, inner_kernel, kernel, shared_kernel
from folklearn.kernels.evidence import N_TOTALS, add_products, block_rows, expand_rows
from folklearn.kernels.experts import (
    BEST,
    CERTIFIED,
    CLASSES,
    CLASSES_AT,
    FEATURES,
    FLUSHED,
    FORGETTING_AT,
    G_AT,
    KEEP,
    KEPT_X_AT,
    LOSSES_AT,
    N_ENTRIES,
    N_KEPT,
    N_PROVEN,
    PERIOD,
    POSITION,
    RECENT_X_AT,
    REFRESHES,
    RIDGES,
    RIDGES_AT,
    S_AT,
    TOTALS_AT,
    W_AT,
    WEIGHTS_AT,
)
from folklearn.kernels.newton import factor_ridge, new_matrix, walk

STEPS_OF_NEWTON = 2
_STEERING = 2.0  # the most that the ridge of a certificate changes at one refresh
_LEAST_RIDGE, _MOST_RIDGE = 1e-6, 1e6
_IDLE, _SELDOM = 1e-3, 4  # a leader of less weight is refreshed every fourth time


@inner_kernel
def _rows_of(memo, plan, section, first, stop):
    """Return X, Y, weights and norms of the rows kept from a section on: recent, or kept."""
    m, d, K = stop - first, plan[FEATURES], plan[CLASSES]
    of_weights, of_norms = plan[section + 2 * N_ENTRIES], plan[section + 3 * N_ENTRIES]
    return (
        carray(address(memo, plan[section] + first * d), (m, d), np.float64),
        carray(address(memo, plan[section + N_ENTRIES] + first * K), (m, K), np.float64),
        carray(address(memo, of_weights + first), (m,), np.float64),
        carray(address(memo, of_norms + first), (m,), np.float64),
    )


@inner_kernel
def _sum_of(memo, plan, s):
    """Return S, G and totals of a sum."""
    pairs, products = plan[S_AT + 2], plan[S_AT + 3]
    K, d = plan[CLASSES], plan[FEATURES]
    return (
        carray(address(memo, plan[S_AT] + s * pairs * products), (pairs, products), np.float64),
        carray(address(memo, plan[G_AT] + s * K * d), (K, d), np.float64),
        carray(address(memo, plan[TOTALS_AT] + s * N_TOTALS), (N_TOTALS,), np.float64),
    )


@helper_kernel
def _mode(memo, plan, e):
    """Return the weights (K, d) of a linear expert."""
    d, K = plan[FEATURES], plan[CLASSES]
    mode, width = new_matrix(K, d), plan[W_AT + 2] * K
    for i in range(K):
        for j in range(d):
            mode[i, j] = memo[plan[W_AT] + j * width + e * K + i]
    return mode


@shared_kernel("void(matrix, matrix, vector, matrix, matrix, matrix, vector, vector, f8)")
def add_expanded(S, G, totals, W, X, Y, weights, norms, B):
    """Add rows expanded at the model W, in blocks."""
    d, K = X.shape[1], W.shape[0]
    block = block_rows(d)
    labels = np.empty(block, np.int64)
    for t in range(block):
        labels[t] = -1
    for start in range(0, X.shape[0], block):
        stop = min(start + block, X.shape[0])
        m = stop - start
        Z, residuals, coefficients = new_matrix(m, K), new_matrix(m, K), new_matrix(m, S.shape[0])
        gemm(TRANSPOSED, PLAIN, K, m, d, 1.0, W, 0, d, X, start * d, d, 0.0, Z, 0, K)
        expand_rows(
            Z, labels, Y[start:stop], weights[start:stop], norms[start:stop], B,
            coefficients, residuals, totals,
        )  # fmt: skip
        add_products(S, coefficients, X[start:stop])
        gemm(PLAIN, TRANSPOSED, d, K, m, 1.0, X, start * d, d, residuals, 0, K, 1.0, G, 0, d)


@inner_kernel
def _add_to_sums(memo, plan, section, first, stop, first_sum):
    """Let rows enter the sums from `first_sum` on, each expanded at its mode."""
    X, Y, weights, norms = _rows_of(memo, plan, section, first, stop)
    n_sums = 1 + plan[CERTIFIED] if plan[RIDGES] + plan[CERTIFIED] > 0 else 0
    for s in range(first_sum, n_sums):
        B = 0.0 if s == 0 else memo[plan[CLASSES_AT] + s - 1]
        W = _mode(memo, plan, plan[BEST] if s == 0 else plan[RIDGES] + s - 1)
        S, G, totals = _sum_of(memo, plan, s)
        add_expanded(S, G, totals, W, X, Y, weights, norms, B)


@kernel
def flush(memo, plan):
    """Let the rows that wait enter the sums; since they came the modes have not moved."""
    if plan[POSITION] > plan[FLUSHED]:
        _add_to_sums(memo, plan, RECENT_X_AT, plan[FLUSHED], plan[POSITION], 0)
        plan[FLUSHED] = plan[POSITION]


@kernel
def prove_kept(memo, plan):
    """Let the kept rows enter the sums of certified classes.

    The leaders go on with the kept rows as rows. A class that comes later was not there, so a
    proof must not count it; but a model that knows it had better not predict it for them.
    """
    _add_to_sums(memo, plan, KEPT_X_AT, plan[N_PROVEN], plan[N_KEPT], 1)
    plan[N_PROVEN] = plan[N_KEPT]


@inner_kernel
def skip_refresh(share, plan, e):
    """Tell whether a mode is left out of a refresh, because it has next to no weight."""
    idle = share < _IDLE and e != plan[BEST] and e < plan[RIDGES]
    return idle and plan[REFRESHES] % _SELDOM != 0


@inner_kernel
def next_certificate_ridge(ridge, ratio):
    """Return the next ridge of a certificate, so that W comes to lie near the class of B.

    The ratio is that of |W|_F^2 to K B^2.
    """
    ratio = min(max(ratio, 1.0 / _STEERING), _STEERING)
    return min(max(ridge * ratio, _LEAST_RIDGE), _MOST_RIDGE)


@shared_kernel("void(vector, integers, i8, i8, i8, i8, matrix, matrix, vector, vector)")
def _move_modes(memo, plan, s, first_mode, stop_mode, at, X, Y, weights, norms):
    """Move modes to where their ridges, a sum and rows put them; the rows curve as at one mode."""
    K = plan[CLASSES]
    n = (K - 1) * plan[FEATURES]
    S, G, _ = _sum_of(memo, plan, s)
    width = plan[W_AT + 2] * K
    curved, unused, H = S.copy(), new_matrix(K, plan[FEATURES]), new_matrix(n, n)
    add_expanded(
        curved, unused, np.empty(N_TOTALS), _mode(memo, plan, at), X, Y, weights, norms, 0.0
    )
    for e in range(first_mode, stop_mode):
        ridge = memo[plan[RIDGES_AT] + e]
        share = memo[plan[WEIGHTS_AT] + e]
        if skip_refresh(share, plan, e) or not factor_ridge(curved, ridge, K, H):
            continue
        W = _mode(memo, plan, e)
        walk(S, G, ridge, H, X, Y, weights, STEPS_OF_NEWTON, W)
        square = 0.0
        for i in range(K):
            for j in range(W.shape[1]):
                square += W[i, j] * W[i, j]
                memo[plan[W_AT] + j * width + e * K + i] = W[i, j]
        if plan[RIDGES] <= e < plan[RIDGES] + plan[CERTIFIED]:
            B = memo[plan[CLASSES_AT] + e - plan[RIDGES]]
            memo[plan[RIDGES_AT] + e] = next_certificate_ridge(ridge, square / (K * B * B))


@kernel
def refresh(memo, plan):
    """Move the modes of all ridges to where everything seen puts them."""
    losses, n_modes = plan[LOSSES_AT], plan[RIDGES] + plan[CERTIFIED]
    best = 0
    for e in range(1, n_modes):
        best = e if memo[losses + e] < memo[losses + best] else best
    plan[BEST] = best
    plan[REFRESHES] += 1
    X, Y, weights, norms = _rows_of(memo, plan, KEPT_X_AT, 0, plan[N_KEPT])
    _move_modes(memo, plan, 0, 0, n_modes, best, X, Y, weights, norms)


@kernel
def refresh_forgetting(memo, plan, f):
    """Discount the sum of a leader that forgets, and learn the rows of the last period."""
    n_modes = plan[RIDGES] + plan[CERTIFIED]
    s, e = (1 + plan[CERTIFIED] if n_modes > 0 else 0) + f, n_modes + f
    at = plan[FORGETTING_AT] + 2 * f
    period, keep = memo[at + PERIOD], memo[at + KEEP]
    S, G, totals = _sum_of(memo, plan, s)
    stop = plan[POSITION]
    X, Y, weights, norms = _rows_of(memo, plan, RECENT_X_AT, stop - int(period), stop)
    S *= keep
    G *= keep
    totals *= keep
    _move_modes(memo, plan, s, e, e + 1, e, X, Y, weights, norms)
    add_expanded(S, G, totals, _mode(memo, plan, e), X, Y, weights, norms, 0.0)
