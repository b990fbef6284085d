"""Sums of quadratics that approximate losses, and of planes that lie below them.

A row x with weight w, to second order at logits z (p = softmax(z)), leaves up to a constant

    <W x, w (p - y - p (z - <p, z>))>  +  1/2 sum over i < j of  w p_i p_j ((W x)_i - (W x)_j)^2,

because v'(diag p - pp')v = sum p_i p_j (v_i - v_j)^2. So a sum of rows is a matrix G (K, d) and
one symmetric matrix S_ij (d, d) for every pair of classes. Only lower triangles are kept,
S (pairs, d(d+1)/2), pairs i < j in lexicographic order: a block of rows is then one matrix
product of the pairs' coefficients with the products of features.

A plane lies below the loss of every W, for every distribution p (Fenchel's inequality):

    loss of W at (x, y)  >=  H(p) + <W x, p - y>.

A sum of planes is a constant and a matrix G, needs no pairs and touches only the columns of x.
docs/theory/evidence.md has the proofs, rounding included.
"""

import math

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.blas import PLAIN, TRANSPOSED, gemm, syrk
from folklearn.kernels.compile import inner_kernel, kernel, shared_kernel

# Totals of rows besides S and G, by position. CONSTANT is c above; WEIGHT and REACH
# are the sums of w and of w |x|, DEPTH the most additions that an entry has been through:
# from these follows how much rounding there can be.
N_TOTALS = 5
CONSTANT, WEIGHT, REACH, DEPTH, ROUNDS = range(N_TOTALS)

MIN_TOTAL_WEIGHT = 1e-100  # far below, squares underflow and rounding is not relative
ABSENT = -345.0  # a logit so far below the largest counts as minus infinity

_UNIT = 1.01 * 2.0**-53  # with room for terms of second order
_BLOCK_PRODUCTS = 1 << 16  # products of features of a block of rows, about
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 16, 256
_MAX_COEFFICIENTS = 1 << 17  # of pairs, that are held at once
_MAX_BATCH_ROWS = 4096  # of a call: Python takes its time for each, and no other thread can
_MIN_FEATURES_TO_UPDATE_PAIRS = 160  # from which on a rank update per pair is cheaper than packing
_MIN_UPDATED_ROWS, _MIN_PACKED_ROWS = 128, 32  # at a time


@inner_kernel
def n_pairs(K):
    """Return the number of pairs of classes."""
    return K * (K - 1) // 2


@inner_kernel
def n_products(d):
    """Return the number of products of two features."""
    return d * (d + 1) // 2


@inner_kernel
def block_rows(d):
    """Return how many rows are added at once."""
    return min(max(_BLOCK_PRODUCTS // (d * (d + 1) // 2), _MIN_BLOCK_ROWS), _MAX_BLOCK_ROWS)


def rows_at_once(pairs: int, d: int) -> int:
    """Return the number of rows of one call, for sums over `pairs`."""
    return max(int(block_rows(d)), min(_MAX_BATCH_ROWS, _MAX_COEFFICIENTS // pairs))


@inner_kernel
def count_row(totals, height, weight, length):
    """Count a row of norm `length` that adds `height` to the constant, per unit of weight."""
    totals[CONSTANT] += weight * height
    totals[WEIGHT] += weight
    totals[REACH] += weight * length
    totals[DEPTH] += 1.0
    totals[ROUNDS] += 1.0


@inner_kernel
def expand_row(z, label, soft, weight, coefficients, residual):
    """Expand one row at logits z: write its pairs (P,) and its part of G per unit of x (K,).

    z is overwritten: its largest entry becomes 0.
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
    pair = 0
    for i in range(K):
        scaled = 0.5 * weight * residual[i]
        for j in range(i + 1, K):
            coefficients[pair] = scaled * residual[j]
            pair += 1
    for i in range(K):
        y = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        p = residual[i]
        residual[i] = weight * ((p - y) - p * (z[i] - mean))


@shared_kernel("void(matrix, integers, matrix, vector, matrix, matrix)")
def expand_rows(Z, labels, soft, weights, coefficients, residuals):
    """Write coefficients (m, P) and residuals (m, K) of every row."""
    no_label = np.empty(0)
    for t in range(Z.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        expand_row(Z[t], labels[t], y, weights[t], coefficients[t], residuals[t])


@shared_kernel("void(matrix, matrix, matrix)")
def add_products(S, coefficients, X):
    """S (P, D) += coefficients' (products of features), for rows X (m, d)."""
    m, d = X.shape
    P, D = S.shape
    if d >= _MIN_FEATURES_TO_UPDATE_PAIRS:
        _add_squares(S, coefficients, X)
        return
    rows = max(min(max(block_rows(d), _MIN_PACKED_ROWS), m), 1)
    packed = np.empty((rows, D))
    for start in range(0, m, rows):
        n = min(rows, m - start)
        for t in range(n):
            x, row = X[start + t], packed[t]
            at = 0
            for a in range(d):
                factor = x[a]
                for b in range(a + 1):
                    row[at + b] = factor * x[b]
                at += a + 1
        gemm(
            PLAIN, TRANSPOSED, D, P, n, 1.0, packed, 0, D, coefficients, start * P, P, 1.0, S, 0, D
        )  # fmt: skip


@shared_kernel("void(matrix, matrix, matrix)")
def _add_squares(S, coefficients, X):
    """Add the lower triangle of X' diag(c) X for every pair: for many features faster."""
    m, d = X.shape
    rows = max(min(max(block_rows(d), _MIN_UPDATED_ROWS), m), 1)
    scaled, square = np.empty((rows, d)), np.empty((d, d))
    for start in range(0, m, rows):
        n = min(rows, m - start)
        for pair in range(S.shape[0]):
            for t in range(n):
                root = math.sqrt(coefficients[start + t, pair])
                for j in range(d):
                    scaled[t, j] = root * X[start + t, j]
            square[:] = 0.0
            syrk(PLAIN, d, n, 1.0, scaled, 0, d, square, 0, d)
            at = 0
            for a in range(d):
                for b in range(a + 1):
                    S[pair, at + b] += square[a, b]
                at += a + 1


@kernel
def add_residuals(G, residuals, X):
    """G (K, d) += residuals' X."""
    m, d = X.shape
    K = G.shape[0]
    gemm(PLAIN, TRANSPOSED, d, K, m, 1.0, X, 0, d, residuals, 0, K, 1.0, G, 0, d)


@kernel
def add_tangent(p, label, soft, weight, length, residual, totals):
    """Count a row whose plane touches at p (K,); write w (p - y), for G, into residual."""
    entropy = 0.0
    for i in range(p.shape[0]):
        y = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        residual[i] = weight * (p[i] - y)
        if p[i] > 0.0:
            entropy -= p[i] * math.log(p[i])
    count_row(totals, entropy, weight, length)


@kernel
def add_planes(G, totals, P, indptr, places, values, labels, soft, weights, norms):
    """Add rows whose planes touch at P (m, K); G (columns, K) is met at `places`."""
    K = P.shape[1]
    residual = np.empty(K)
    no_label = np.empty(0)
    for t in range(P.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        add_tangent(P[t], labels[t], y, weights[t], norms[t], residual, totals)
        for a in range(indptr[t], indptr[t + 1]):
            row = G[places[a]]
            for k in range(K):
                row[k] += values[a] * residual[k]


def relative_rounding(depth: float, K: int, n_columns: int) -> float:
    """Return the relative rounding of sums of `depth` additions.

    p may be off by K + 20 units in the last place, and a norm adds up `n_columns` terms.
    """
    return float(_UNIT * (depth + K * K + n_columns + 60.0))


def loss_at_most(loss: float, totals: Array, W: Array) -> float:
    """Return an upper bound on the total loss of W (K, d) that was computed from its logits."""
    K, d = W.shape
    longest = math.sqrt(float((W**2).sum(axis=1).max()))
    of_sum = (2.0 * totals[DEPTH] + 2.0 * K + 60.0) * loss
    of_logits = 2.0 * (d + 4.0) * longest * totals[REACH]
    return float(loss + _UNIT * (of_sum + of_logits))


def _constant(totals: Array, K: int, kappa: float) -> float:
    room = (1.0 + math.log(K)) ** 2 * totals[WEIGHT] + abs(totals[CONSTANT])
    return float(totals[CONSTANT] - kappa * room)


def lower_bound_of_planes(totals: Array, pulls: Array, n_columns: int, B: float) -> float:
    """Return a lower bound for all models of row norm at most B; `pulls` (K,) are norms of G."""
    if not totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0
    K = len(pulls)
    kappa = relative_rounding(totals[DEPTH], K, n_columns)
    reach = K * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
    pull = float(pulls.sum()) * (1.0 + kappa) + kappa * reach
    return max(0.0, _constant(totals, K, kappa) - B * pull * (1.0 + 1e-15 * K))


def penalised_lower_bound(totals: Array, G: Array, tau: Array) -> float:
    """Return a lower bound on loss plus penalty 1/2 sum tau_j W_ij^2 of every model, of any norm.

    G is (columns, K). No loss is negative: a share of the planes lies below it too.
    """
    if not totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0
    n_columns, K = G.shape
    kappa = relative_rounding(totals[DEPTH], K, n_columns * K)
    rounding = kappa * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
    bent = 0.5 * float((((np.abs(G) + rounding) ** 2).sum(axis=1) / tau).sum()) * (1.0 + kappa)
    c = max(0.0, _constant(totals, K, kappa))
    return c - bent if 2.0 * bent <= c else c * (c / (4.0 * bent)) * (1.0 - 1e-15)


def value_of_planes(totals: Array, G: Array, W: Array, longest: float) -> float:
    """Return a lower bound on the loss of one model; G and W are (columns, K)."""
    if not totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0
    n_columns, K = len(G), int(G.shape[1])
    kappa = relative_rounding(totals[DEPTH], K, n_columns * K)
    products = G * W
    reach = K * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
    room = kappa * (float(np.abs(products).sum()) + reach * longest) * (1.0 + 1e-15 * K)
    return max(0.0, _constant(totals, K, kappa) + float(products.sum()) - room)
