"""The simplex: softmax, the Helmert basis, and the covariance of one draw from p.

Every function here costs O(K). The Helmert basis Q (K, k) is never formed: its column
j = 1..k is 1 in the first j rows and -j in row j+1, divided by sqrt(j(j+1)), so products
with Q and its transpose are running sums.

The multinomial covariance in that basis is M = Q'(diag p - pp')Q. Eliminating classes in
the order 1, 2, ... gives the closed factor of Tanabe and Sagae (1992), with columns
c_i (e_{i+1} - sum_{r<=i} (p_r/s_i) e_r), s_i = p_1 + ... + p_i, c_i^2 = p_{i+1} s_i/s_{i+1}.
In the Helmert basis this factor is upper triangular and semiseparable:

    M = rho rho',   rho = diag(scale) + strict upper triangle of (g tail'),
    g = Q'p,   scale_i = c_i sqrt((i+1)/i),   tail_i = c_i/s_i.

It has no subtraction that could make M indefinite when probabilities saturate, and a
product with rho or its transpose costs O(k) instead of O(k^2).
"""

import math

import numpy as np
from numba import carray

from folklearn.arrays import Array
from folklearn.kernels.blas import address
from folklearn.kernels.compile import helper_kernel, inner_kernel, kernel, shared_kernel


def helmert(n_classes: int) -> Array:
    """Return the Helmert basis Q (K, K-1) as a dense matrix, for use outside hot loops."""
    Q = np.zeros((n_classes, n_classes - 1))
    for j in range(1, n_classes):
        Q[:j, j - 1] = 1.0
        Q[j, j - 1] = -j
        Q[:, j - 1] /= math.sqrt(j * (j + 1))
    return Q


@kernel
def softmax(z, p):
    """Shift z so that its largest entry is 0, write softmax(z) into p, return logsumexp(z).

    Without the shift a loss logsumexp(z) - z_y would lose its digits when logits are huge.
    """
    K = z.shape[0]
    top = z[0]
    for i in range(1, K):
        top = max(top, z[i])
    total = 0.0
    for i in range(K):
        z[i] -= top
        p[i] = math.exp(z[i])
        total += p[i]
    for i in range(K):
        p[i] /= total
    return math.log(total)


@inner_kernel
def softplus(t):
    """Return ln(1 + e^t), which neither overflows nor cancels."""
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


@kernel
def sigmoid(t):
    """Return 1/(1 + e^-t) with all its digits, however small."""
    return math.exp(-softplus(-t))


@inner_kernel
def reduce_classes(v, out):
    """Write Q'v (k,) into out, for v (K,)."""
    prefix = 0.0
    for j in range(1, v.shape[0]):
        prefix += v[j - 1]
        out[j - 1] = (prefix - j * v[j]) / math.sqrt(j * (j + 1.0))


@inner_kernel
def expand_classes(u, out):
    """Write Q u (K,) into out, for u (k,)."""
    suffix = 0.0
    for r in range(out.shape[0] - 1, 0, -1):
        entry = u[r - 1] / math.sqrt(r * (r + 1.0))
        out[r] = suffix - r * entry
        suffix += entry
    out[0] = suffix


@inner_kernel
def expanded_diagonal(C, out):
    """Write the diagonal of Q C Q' (K,) into out, for symmetric C (k, k), in O(k^2)."""
    k = C.shape[0]
    inner = 0.0  # sum over j, l >= r of C_jl / (root_j root_l)
    for r in range(k, 0, -1):
        root = math.sqrt(r * (r + 1.0))
        cross = 0.0
        for j in range(r + 1, k + 1):
            cross += C[r - 1, j - 1] / math.sqrt(j * (j + 1.0))
        cross /= root
        diagonal = C[r - 1, r - 1] / (root * root)
        out[r] = inner - 2.0 * r * cross + r * r * diagonal
        inner += 2.0 * cross + diagonal
    out[0] = inner


@inner_kernel
def multinomial_factor(p, g, scale, tail):
    """Write g = Q'p and the two diagonals of the factor rho of M (see the module text)."""
    prefix = 0.0
    for i in range(1, p.shape[0]):
        prefix += p[i - 1]
        total = prefix + p[i]
        g[i - 1] = (prefix - i * p[i]) / math.sqrt(i * (i + 1.0))
        if prefix > 0.0 and total > 0.0:
            share = math.sqrt(p[i] / total)
            scale[i - 1] = share * math.sqrt(prefix * ((i + 1.0) / i))
            tail[i - 1] = share / math.sqrt(prefix)
        else:
            scale[i - 1] = 0.0
            tail[i - 1] = 0.0


@inner_kernel
def factor_times(n, g, scale, tail, v, out):
    """Write the first n entries of rho v, of which v has no others; out may be v."""
    suffix = 0.0
    for j in range(n - 1, -1, -1):
        entry = v[j]
        out[j] = scale[j] * entry + g[j] * suffix
        suffix += tail[j] * entry


@inner_kernel
def factor_transpose_times(n, g, scale, tail, v, out):
    """Write the first n entries of rho'v; out may be v."""
    prefix = 0.0
    for i in range(n):
        entry = v[i]
        out[i] = scale[i] * entry + tail[i] * prefix
        prefix += g[i] * entry


_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the last bits
_LEAST = -700.0
# 1/n! for n = 13 ... 2: the series is exact to 1e-17 for |r| <= ln(2)/2.
_C13, _C12, _C11, _C10 = 1 / 6227020800, 1 / 479001600, 1 / 39916800, 1 / 3628800
_C9, _C8, _C7, _C6, _C5 = 1 / 362880, 1 / 40320, 1 / 5040, 1 / 720, 1 / 120
_C4, _C3, _C2 = 1 / 24, 1 / 6, 1 / 2


@shared_kernel("void(vector, vector, integers)")
def exp_all(x, out, powers):
    """Write exp(x) into out, for x at most 0; out may be x. powers is int64 scratch.

    exp x = 2^k exp r, k = round(x / ln 2), in loops that become vector instructions. Within 2 units
    in the last place; below -700 it is exp(-700). What a proof rests on calls `math.exp`.
    """
    n = x.shape[0]
    scales = carray(address(powers, 0), (n,), np.float64)  # `view` is slow to compile
    for i in range(n):
        here = x[i] if x[i] > _LEAST else _LEAST
        scales[i] = here * _LOG2_E + _MAGIC
    for i in range(n):
        here = x[i] if x[i] > _LEAST else _LEAST
        k = scales[i] - _MAGIC
        r = (here - k * _LN2_HIGH) - k * _LN2_LOW
        high = ((_C13 * r + _C12) * r + _C11) * r + _C10
        middle = (((high * r + _C9) * r + _C8) * r + _C7) * r + _C6
        low = (((middle * r + _C5) * r + _C4) * r + _C3) * r + _C2
        out[i] = 1.0 + (r + r * r * low)
    for i in range(n):
        powers[i] = (powers[i] + 1023) << 52
    for i in range(n):
        out[i] *= scales[i]


@helper_kernel
def softmax_each(z, K, p, powers):
    """Shift every K logits so that the largest is 0; write their softmax, as `exp_all` does."""
    n = z.shape[0]
    for first in range(0, n, K):
        top = z[first]
        for c in range(first + 1, first + K):
            top = z[c] if z[c] > top else top
        for c in range(first, first + K):
            z[c] -= top
    exp_all(z, p, powers)
    for first in range(0, n, K):
        total = 0.0
        for c in range(first, first + K):
            total += p[c]
        scale = 1.0 / total
        for c in range(first, first + K):
            p[c] *= scale
