"""What one label teaches: the quadratic surrogate of a round, in k coordinates.

At the expansion point u (p = softmax(Q u), M = Q'(diag p - pp')Q = rho rho') the loss is
replaced by its quadratic lower bound with curvature gamma. Seen through the context, the
state is the quadratic with mean -q/2 and inverse curvature C, so the update is k-sized:

    e = w Q'(p - y)                     gradient of the loss
    r = e - 2 gamma w M u               gradient of the surrogate at the origin
    Gamma = V V' = rho (I/(gamma w) + rho'C rho)^-1 rho'
    a = r - Gamma (q + C r)

and the n-sized state follows by theta += P a, S -= (P V)(P V)'.
The paper's Algorithm 1 prints r = e; without the second term regret is linear.
"""

import math

from folklearn.kernels.compile import fast_inner_kernel, inner_kernel, shared_kernel
from folklearn.kernels.fixed_point import cholesky
from folklearn.kernels.simplex import factor_times, factor_transpose_times, reduce_classes

_ROUNDING = 2e-15  # of a sum of k products, relative to the sum of their sizes
_MAX_SHRINKAGE = 1e9  # of S along x in one round; digits beyond that are cancelled
_MAX_NOISE = 1e-3  # of gamma w C; more would be visible in the pivots


@inner_kernel
def log_loss(z, log_total, label, soft):
    """Return logsumexp(z) - <y, z>; label < 0 means that soft (K,) holds y."""
    if label >= 0:
        return log_total - z[label]
    score = 0.0
    for i in range(z.shape[0]):
        score += soft[i] * z[i]
    return log_total - score


@shared_kernel(
    "Tuple((f8, i8))(i8, vector, f8, f8, vector, vector, vector, vector, vector, matrix, vector, "
    "f8, f8, matrix, vector, matrix, matrix)",
    fast=True,
)
def expand_surrogate(
    label, soft, weight, gamma, u, p, g, scale, tail, C, q, noise_C, noise_q, V, a, N, vectors
):
    """Write V (by columns, so as V' in C order) and a for one round with its label.

    N is (k, k) scratch and vectors (6, K). Return (bracket, n_lost). The bracket is
    w l(u, y) minus the growth of the surrogate minimum, delta_t/4 in the certificate, plus
    an allowance for rounding; it holds for any expansion point u, solved exactly or not.
    noise_C and noise_q say how well C and q are known; the allowance covers them to first
    order. n_lost is 0 unless rounding destroys the state: C is noise at this curvature, or a
    pivot of I + gamma w rho'C rho so large that S loses its digits; where a pivot is below 1, C
    being negative, or nothing finite could be learned, V and a are 0 and nothing is learned.
    """
    k = u.shape[0]
    curvature = gamma * weight
    difference = vectors[0]
    e, r, away, b = vectors[1, :k], vectors[2, :k], vectors[3, :k], vectors[4, :k]
    inverse = vectors[5, :k]

    for i in range(k + 1):
        difference[i] = p[i] - (soft[i] if label < 0 else 0.0)
    if label >= 0:
        difference[label] -= 1.0
    reduce_classes(difference, e)
    factor_transpose_times(g, scale, tail, u, b)
    factor_times(g, scale, tail, b, b)
    for i in range(k):
        e[i] *= weight
        r[i] = e[i] - 2.0 * curvature * b[i]

    _whitened(curvature, g, scale, tail, C, V, N, difference)
    n_lost = 1 if curvature * noise_C > _MAX_NOISE else 0
    largest = 1.0
    for i in range(k):
        largest = max(largest, N[i, i])
    n_lost += largest > _MAX_SHRINKAGE
    if cholesky(N, inverse, 1.0, 0.0) > 0:
        V[:] = 0.0
        a[:] = 0.0
        return 0.0, 1
    _inverse_rows(N, inverse, V)
    root = math.sqrt(curvature)
    for c in range(k):
        row = V[c, : c + 1]
        factor_times(g[: c + 1], scale[: c + 1], tail[: c + 1], row, row)
        for j in range(c + 1):
            row[j] *= root

    bracket = 0.0
    size = 0.0
    for i in range(k):
        total_e = 0.0
        total_r = 0.0
        for j in range(k):
            total_e += C[i, j] * e[j]
            total_r += C[i, j] * r[j]
        b[i] = q[i] + total_r
        a[i] = r[i]
        beta = -2.0 * u[i] - q[i]
        bracket += e[i] * (total_e - 2.0 * beta)
        size += abs(e[i]) * (abs(total_e) + 2.0 * abs(beta))
        away[i] = beta - total_e
    for c in range(k):
        along_b = 0.0
        along_away = 0.0
        blur = 0.0
        for j in range(c + 1):
            along_b += V[c, j] * b[j]
            along_away += V[c, j] * away[j]
            blur += abs(V[c, j] * away[j])
        certain = max(0.0, abs(along_away) - _ROUNDING * (k + 8) * blur)
        bracket -= certain * certain
        size += certain * certain
        for j in range(c + 1):
            a[j] -= along_b * V[c, j]
            e[j] += along_away * V[c, j]  # the derivative of the bracket in C and q
    slope = 0.0
    for i in range(k):
        slope += abs(e[i])
    allowance = _ROUNDING * (k + 8) * largest * size + slope * (slope * noise_C + 2.0 * noise_q)
    total = 0.0
    for c in range(k):
        total += abs(a[c])
    if not math.isfinite(
        bracket + allowance + total
    ):  # lost to rounding: learn nothing, and say so
        V[:] = 0.0
        a[:] = 0.0
        return 0.0, 1
    return 0.25 * (bracket + allowance), n_lost


@fast_inner_kernel
def _whitened(curvature, g, scale, tail, C, T, N, prefix):
    """Write the lower triangle of I + curvature rho'C rho into N in O(k^2); T is scratch."""
    k = g.shape[0]
    for i in range(k):
        factor_transpose_times(g, scale, tail, C[i], T[i])
        prefix[i] = 0.0
    for i in range(k):
        for j in range(k):
            N[i, j] = curvature * (scale[i] * T[i, j] + tail[i] * prefix[j])
            prefix[j] += g[i] * T[i, j]
        N[i, i] += 1.0


@fast_inner_kernel
def _inverse_rows(L, inverse, out):
    """Write the lower triangle of L^-1 into out; inverse holds 1/diagonal of L."""
    for i in range(L.shape[0]):
        row = out[i]
        for j in range(i):
            row[j] = 0.0
        for m in range(i):
            factor = L[i, m]
            for j in range(m + 1):
                row[j] -= factor * out[m, j]
        for j in range(i):
            row[j] *= inverse[i]
        row[i] = inverse[i]
