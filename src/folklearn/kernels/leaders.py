"""What moves the leaders of a panel: rows enter sums of evidence, modes are refreshed from them.

`ExpertState.settle` says when. The arrays of a panel, memo and plan, are those of
`folklearn.kernels.experts`.
"""

import numpy as np
from numba import carray

from folklearn.kernels import experts as panel
from folklearn.kernels.blas import PLAIN, TRANSPOSED, address, gemm
from folklearn.kernels.compile import helper_kernel, inner_kernel, kernel, shared_kernel
from folklearn.kernels.evidence import add_products, block_rows, expand_rows
from folklearn.kernels.newton import factor_ridge, new_matrix, walk

STEPS_OF_NEWTON = 2
CLEARLY = 1.0 - 1e-9  # of a loss: rounding does not decide which leader is best
_IDLE, _SELDOM = 1e-2, 4  # a leader of less weight is refreshed every fourth time


@inner_kernel
def _rows_of(memo, plan, section, first, stop):
    """Return X, Y and weights of the rows kept from a section on: recent, or kept."""
    m, d, K = stop - first, plan[panel.FEATURES], plan[panel.CLASSES]
    of_weights = plan[section + 2 * panel.N_ENTRIES]
    return (
        carray(address(memo, plan[section] + first * d), (m, d), np.float64),
        carray(address(memo, plan[section + panel.N_ENTRIES] + first * K), (m, K), np.float64),
        carray(address(memo, of_weights + first), (m,), np.float64),
    )


@inner_kernel
def _sum_of(memo, plan, s):
    pairs, products = plan[panel.S_AT + 2], plan[panel.S_AT + 3]
    K, d = plan[panel.CLASSES], plan[panel.FEATURES]
    return (
        carray(
            address(memo, plan[panel.S_AT] + s * pairs * products), (pairs, products), np.float64
        ),
        carray(address(memo, plan[panel.G_AT] + s * K * d), (K, d), np.float64),
    )


@helper_kernel
def _mode(memo, plan, e):
    d, K = plan[panel.FEATURES], plan[panel.CLASSES]
    mode, width = new_matrix(K, d), plan[panel.W_AT + 2] * K
    for i in range(K):
        for j in range(d):
            mode[i, j] = memo[plan[panel.W_AT] + j * width + e * K + i]
    return mode


@shared_kernel("void(matrix, matrix, matrix, matrix, matrix, vector)")
def add_expanded(S, G, W, X, Y, weights):
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
        expand_rows(Z, labels, Y[start:stop], weights[start:stop], coefficients, residuals)
        add_products(S, coefficients, X[start:stop])
        gemm(PLAIN, TRANSPOSED, d, K, m, 1.0, X, start * d, d, residuals, 0, K, 1.0, G, 0, d)


@kernel
def flush(memo, plan):
    """Let the rows that wait enter the sum, expanded at the mode of the best ridge."""
    if plan[panel.POSITION] > plan[panel.FLUSHED]:
        X, Y, weights = _rows_of(
            memo, plan, panel.RECENT_X_AT, plan[panel.FLUSHED], plan[panel.POSITION]
        )
        S, G = _sum_of(memo, plan, 0)
        add_expanded(S, G, _mode(memo, plan, plan[panel.BEST]), X, Y, weights)
        plan[panel.FLUSHED] = plan[panel.POSITION]


@inner_kernel
def skip_refresh(share, plan, e):
    """Tell whether a mode is left out of a refresh, because it has next to no weight."""
    idle = share < _IDLE and e != plan[panel.BEST] and e < plan[panel.RIDGES]
    return idle and plan[panel.REFRESHES] % _SELDOM != 0


@shared_kernel("void(vector, integers, i8, i8, i8, i8, matrix, matrix, vector)")
def _move_modes(memo, plan, s, first_mode, stop_mode, at, X, Y, weights):
    """Move modes to where their ridges, a sum and rows put them; the rows curve as at one mode."""
    K = plan[panel.CLASSES]
    n = (K - 1) * plan[panel.FEATURES]
    S, G = _sum_of(memo, plan, s)
    width = plan[panel.W_AT + 2] * K
    curved, unused, H = S.copy(), new_matrix(K, plan[panel.FEATURES]), new_matrix(n, n)
    add_expanded(curved, unused, _mode(memo, plan, at), X, Y, weights)
    entered = S if plan[panel.T] > X.shape[0] else S[:0]
    for e in range(first_mode, stop_mode):
        ridge = memo[plan[panel.RIDGES_AT] + e]
        share = memo[plan[panel.WEIGHTS_AT] + e]
        if skip_refresh(share, plan, e) or not factor_ridge(curved, ridge, K, H):
            continue
        W = _mode(memo, plan, e)
        walk(entered, G, ridge, H, X, Y, weights, STEPS_OF_NEWTON, W)
        for i in range(K):
            for j in range(W.shape[1]):
                memo[plan[panel.W_AT] + j * width + e * K + i] = W[i, j]


@kernel
def refresh(memo, plan):
    """Move the modes of all ridges to where everything seen puts them."""
    losses, best = plan[panel.LOSSES_AT], 0
    for e in range(1, plan[panel.RIDGES]):
        best = e if memo[losses + e] < CLEARLY * memo[losses + best] else best
    plan[panel.BEST] = best
    plan[panel.REFRESHES] += 1
    X, Y, weights = _rows_of(memo, plan, panel.KEPT_X_AT, 0, plan[panel.N_KEPT])
    _move_modes(memo, plan, 0, 0, plan[panel.RIDGES], best, X, Y, weights)


@kernel
def refresh_forgetting(memo, plan, f):
    """Discount the sum of a leader that forgets, and learn the rows of the last period."""
    s, e = (1 if plan[panel.RIDGES] > 0 else 0) + f, plan[panel.RIDGES] + f
    at = plan[panel.FORGETTING_AT] + 2 * f
    period, keep = memo[at + panel.PERIOD], memo[at + panel.KEEP]
    S, G = _sum_of(memo, plan, s)
    stop = plan[panel.POSITION]
    X, Y, weights = _rows_of(memo, plan, panel.RECENT_X_AT, stop - int(period), stop)
    S *= keep
    G *= keep
    _move_modes(memo, plan, s, e, e + 1, e, X, Y, weights)
    add_expanded(S, G, _mode(memo, plan, e), X, Y, weights)
