"""Evidence of second order: sums of quadratics that lie below the losses.

A row x with weight w, expanded at logits z (p = softmax(z)) with curvature gamma, leaves

    w [H(p) + gamma Var_p(z)]  +  <W x, w (p - y - 2 gamma p (z - <p, z>))>
    +  sum over i < j of  w gamma p_i p_j ((W x)_i - (W x)_j)^2,

because v'(diag p - pp')v = sum p_i p_j (v_i - v_j)^2. So a sum of rows is a constant, a
matrix G (K, d), and one symmetric matrix S_ij (d, d) for every pair of classes. Only lower
triangles are kept, S (pairs, d(d+1)/2), pairs i < j in lexicographic order: a block of rows
is then one matrix product of the pairs' coefficients with the products of features.

With a valid gamma (`curvature`) the quadratic lies below the loss of every model of the
class, wherever z is; with gamma = 1/2 it is the loss to second order at z. The constant does
not depend on the label. docs/theory/evidence.md has the proofs, rounding included.
"""

import math

import numpy as np

from folklearn.kernels.blas import PLAIN, TRANSPOSED, gemm, syrk_add
from folklearn.kernels.compile import inline_kernel, kernel, shared_kernel
from folklearn.kernels.curvature import gamma_star_below, valid_curvature

# Totals of rows besides S and G, by position. CONSTANT is c above; WEIGHT and REACH
# are the sums of w and of w |x|, DEPTH the most additions that an entry has been through:
# from these follows how much rounding there can be.
N_TOTALS = 5
CONSTANT, WEIGHT, REACH, DEPTH, ROUNDS = range(N_TOTALS)

MIN_TOTAL_WEIGHT = 1e-100  # far below, squares underflow and rounding is not relative
SHRUNK = 1.0 - 1e-8  # of gamma: pays for rounding, and for models outside by 1e-9 of B
ABSENT = -345.0  # a logit so far below the largest counts as minus infinity
EXACT_UP_TO = 20.0  # logit differences for which the constant for two classes is used

_BLOCK_PRODUCTS = 1 << 16  # products of features of a block of rows, about
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 16, 256
_MAX_COEFFICIENTS = 1 << 17  # of pairs, that are held at once
_MAX_BATCH_ROWS = 4096  # of a call: Python takes its time for each, and no other thread can
_MIN_FEATURES_TO_UPDATE_PAIRS = 160  # from which on a rank update per pair is cheaper than packing
_MIN_UPDATED_ROWS, _MIN_PACKED_ROWS = 128, 32  # at a time


@kernel
def n_pairs(K):
    """Return the number of pairs of classes."""
    return K * (K - 1) // 2


@kernel
def n_products(d):
    """Return the number of products of two features."""
    return d * (d + 1) // 2


@kernel
def block_rows(d):
    """Return how many rows are added at once."""
    return min(max(_BLOCK_PRODUCTS // n_products(d), _MIN_BLOCK_ROWS), _MAX_BLOCK_ROWS)


@kernel
def rows_at_once(pairs, d):
    """Return the number of rows of one call, for sums over `pairs`."""
    return max(block_rows(d), min(_MAX_BATCH_ROWS, _MAX_COEFFICIENTS // pairs))


@kernel
def scratch_size(d, rows):
    """Return the size of the scratch that `add_products` needs for `rows` rows."""
    return rows * d + d * d if d >= _MIN_FEATURES_TO_UPDATE_PAIRS else rows * n_products(d)


@kernel
def scratch_for(d, rows):
    """Return the scratch with which `add_products` is fastest, for `rows` rows or more."""
    is_wide = d >= _MIN_FEATURES_TO_UPDATE_PAIRS
    fastest = max(block_rows(d), _MIN_UPDATED_ROWS if is_wide else _MIN_PACKED_ROWS)
    return np.empty(scratch_size(d, min(fastest, max(rows, 1))))


@shared_kernel("f8(vector, f8)")
def certain_curvature(a, reach):
    """Return a gamma valid at logits a, whose largest is 0, in floating point too."""
    if a.shape[0] == 2 and abs(a[0] - a[1]) > EXACT_UP_TO:
        return SHRUNK * gamma_star_below(reach)
    return SHRUNK * valid_curvature(a, reach)


@inline_kernel
def expand_row(z, label, soft, weight, length, B, coefficients, residual, totals):
    """Expand one row at logits z: write its pairs (P,) and its part of G per unit of x (K,).

    B bounds the class that the quadratic lies below; B = 0 is no class: gamma = 1/2. z is
    overwritten by the point of expansion, whose largest entry is 0 and which is exact:
    whatever rounding made z, the row is expanded at this z.
    """
    K = z.shape[0]
    top = z[0]
    for i in range(1, K):
        top = max(top, z[i])
    total = 0.0
    for i in range(K):
        z[i] -= top
        residual[i] = math.exp(z[i]) if z[i] >= ABSENT else 0.0
        total += residual[i]
    mean = 0.0
    for i in range(K):
        residual[i] /= total
        mean += residual[i] * z[i]
    gamma = 0.5 if B == 0.0 else certain_curvature(z, 2.0 * B * length)
    variance = 0.0
    pair = 0
    for i in range(K):
        away = z[i] - mean
        variance += residual[i] * away * away
        scaled = weight * gamma * residual[i]
        for j in range(i + 1, K):
            coefficients[pair] = scaled * residual[j]
            pair += 1
    for i in range(K):
        y = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        p = residual[i]
        residual[i] = weight * ((p - y) - 2.0 * gamma * p * (z[i] - mean))
    totals[CONSTANT] += weight * ((math.log(total) - mean) + gamma * variance)
    totals[WEIGHT] += weight
    totals[REACH] += weight * length
    totals[DEPTH] += 1.0
    totals[ROUNDS] += 1.0


@shared_kernel("void(matrix, integers, matrix, vector, vector, f8, matrix, matrix, vector)")
def expand_rows(Z, labels, soft, weights, norms, B, coefficients, residuals, totals):
    """Expand every row; coefficients (m, P) and residuals (m, K) are written."""
    no_label = np.empty(0)
    for t in range(Z.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        expand_row(
            Z[t], labels[t], y, weights[t], norms[t], B, coefficients[t], residuals[t], totals
        )


@inline_kernel
def _pack(X, packed):
    """Write the products x_a x_b, b <= a, of every row into packed (m, d(d+1)/2)."""
    m, d = X.shape
    for t in range(m):
        x, row = X[t], packed[t]
        at = 0
        for a in range(d):
            factor = x[a]
            for b in range(a + 1):
                row[at + b] = factor * x[b]
            at += a + 1


@shared_kernel("void(vector, f8[:], matrix, matrix, matrix)")
def _add_square(S, coefficients, X, scaled, square):
    """S (D,) += the lower triangle of X' diag(coefficients) X."""
    m, d = X.shape
    for t in range(m):
        root = math.sqrt(coefficients[t])
        for j in range(d):
            scaled[t, j] = root * X[t, j]
    square[:] = 0.0
    syrk_add(PLAIN, d, m, scaled, 0, d, square, 0, d)
    at = 0
    for a in range(d):
        for b in range(a + 1):
            S[at + b] += square[a, b]
        at += a + 1


@shared_kernel("void(matrix, matrix, matrix, vector)")
def add_products(S, coefficients, X, scratch):
    """S (P, D) += coefficients' (products of features), for rows X (m, d).

    As many rows at a time as there is scratch for.
    """
    m, d = X.shape
    P, D = S.shape
    if d >= _MIN_FEATURES_TO_UPDATE_PAIRS:
        square = scratch[: d * d].reshape(d, d)
        rest = scratch[d * d :]
        rows = max(rest.size // d, 1)
        for start in range(0, m, rows):
            x = X[start : start + rows]
            scaled = rest[: x.size].reshape(x.shape)
            for pair in range(P):
                _add_square(S[pair], coefficients[start : start + rows, pair], x, scaled, square)
        return
    rows = max(scratch.size // D, 1)
    for start in range(0, m, rows):
        x = X[start : start + rows]
        n = x.shape[0]
        packed = scratch[: n * D].reshape(n, D)
        _pack(x, packed)
        gemm(
            PLAIN, TRANSPOSED, D, P, n, 1.0, packed, 0, D, coefficients, start * P, P, 1.0, S, 0, D
        )  # fmt: skip


@kernel
def add_residuals(G, residuals, X):
    """G (K, d) += residuals' X."""
    m, d = X.shape
    K = G.shape[0]
    gemm(PLAIN, TRANSPOSED, d, K, m, 1.0, X, 0, d, residuals, 0, K, 1.0, G, 0, d)


@kernel
def add_rows(S, G, totals, Z, X, labels, soft, weights, norms, B, scratch):
    """Add rows X (m, d), expanded at logits Z (m, K), which are overwritten."""
    m, K = Z.shape
    coefficients = np.empty((m, S.shape[0]))
    residuals = np.empty((m, K))
    expand_rows(Z, labels, soft, weights, norms, B, coefficients, residuals, totals)
    add_products(S, coefficients, X, scratch)
    add_residuals(G, residuals, X)
