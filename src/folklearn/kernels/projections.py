"""Projections onto the class: the product over classes of balls of radius B.

In the Euclidean norm every row is shortened on its own. In the norm of a matrix A the rows
are coupled, and the nearest point is found by projected gradient descent with momentum.
"""

import math

from folklearn.kernels.compile import fast_kernel, kernel

_STILL = 2e-15  # of B; a step this small moves nothing but rounding
_STILL_STEPS = 3
_ROUNDING = 1e-14  # of an optimality gap, relative to its largest terms
_MAX_STEPS = 20_000


@fast_kernel
def length(v):
    """Return |v|, also where the squares overflow; NaN if v is not finite."""
    total = 0.0
    for j in range(v.shape[0]):
        total += v[j] * v[j]
    if total < math.inf:
        return math.sqrt(total)
    top = 0.0
    for j in range(v.shape[0]):
        top = max(top, abs(v[j]))
    total = 0.0
    for j in range(v.shape[0]):
        total += (v[j] / top) ** 2
    return top * math.sqrt(total)


@kernel
def project_rows(W, B):
    """Shorten every row of W (K, d) to norm at most B; return how many were longer."""
    n_outside = 0
    for k in range(W.shape[0]):
        row = W[k]
        size = length(row)
        if size > B:
            n_outside += 1
            factor = B / size
            for j in range(row.shape[0]):
                row[j] *= factor
    return n_outside


@kernel
def optimality_gap(W, gradient, B):
    """Return <g, W> + B sum_k |g_k|, at least f(W) - min f over the class for convex f.

    More than that, it is the largest of <g, W - U> over the class, which is what an inexact
    projection adds to the regret of a projected method.
    """
    gap = 0.0
    for k in range(W.shape[0]):
        gap += B * length(gradient[k])
        for j in range(W.shape[1]):
            gap += gradient[k, j] * W[k, j]
    return gap


@fast_kernel
def multiply(A, v, out):
    """Write A v into out, for A (n, n) and v (n,)."""
    for i in range(A.shape[0]):
        row = A[i]
        total = 0.0
        for j in range(A.shape[1]):
            total += row[j] * v[j]
        out[i] = total


@fast_kernel
def largest_row_sum(A):
    """Return the largest sum of absolute values of a row, at least the largest eigenvalue."""
    top = 0.0
    for i in range(A.shape[0]):
        row = A[i]
        total = 0.0
        for j in range(A.shape[1]):
            total += abs(row[j])
        top = max(top, total)
    return top


@kernel
def _gradient(W, origin, step, A, away, g):
    """Write A(W - V) into g, V = origin - step; away (n,) is scratch."""
    K, d = W.shape
    for k in range(K):
        for j in range(d):
            away[k * d + j] = (W[k, j] - origin[k, j]) + step[k, j]
    multiply(A, away, g.reshape(K * d))


@kernel
def project(origin, step, A, largest, B, tolerance, W, work):
    """Write the member of the class that is nearest to V = origin - step in the norm of A.

    A is (K d, K d), symmetric, with eigenvalues from 1 to at most `largest`; W, origin and
    step are (K, d), and work is (4, K, d). V is never rounded to one number: with a tiny
    step, origin - step has lost the digits that say how far W may be from it.

    Gradient descent with the constant momentum for strongly convex functions, until W has
    stopped moving and the gap of f(W) = |W - V|^2_A / 2 is at most `tolerance`, or what
    rounding leaves of it. (A gap of 1e-10 alone leaves an error near 1e-5 in W.)
    Return (gap, solved); W is in the class and the gap is true even if not solved.
    """
    K, d = W.shape
    for k in range(K):
        for j in range(d):
            W[k, j] = origin[k, j] - step[k, j]
    if project_rows(W, B) == 0:
        return 0.0, True
    largest = min(largest, largest_row_sum(A))
    root = math.sqrt(largest)
    momentum = (root - 1.0) / (root + 1.0)
    tolerance = max(tolerance, _ROUNDING * largest * K * B * B)
    ahead, previous, g, away = work[0], work[1], work[2], work[3].reshape(K * d)
    ahead[:] = W
    still = 0
    for _ in range(min(_MAX_STEPS, 100 + int(80.0 * root))):
        _gradient(ahead, origin, step, A, away, g)
        previous[:] = W
        for k in range(K):
            for j in range(d):
                W[k, j] = ahead[k, j] - g[k, j] / largest
        project_rows(W, B)
        move = 0.0
        for k in range(K):
            for j in range(d):
                change = W[k, j] - previous[k, j]
                ahead[k, j] = W[k, j] + momentum * change
                move = max(move, abs(change))
        still = still + 1 if move <= _STILL * B else 0
        if still == _STILL_STEPS:
            _gradient(W, origin, step, A, away, g)
            gap = optimality_gap(W, g, B)
            if gap <= tolerance:
                return max(gap, 0.0), True
            still = 0
    _gradient(W, origin, step, A, away, g)
    gap = optimality_gap(W, g, B)
    return max(gap, 0.0), gap <= tolerance
