"""The K-dimensional equation of every round: u = h - pull C Q' softmax(Q u).

With pull C = J J' and u = h - J v it is the stationarity of the strongly convex
f(v) = |v|^2/2 + logsumexp(Q(h - J v)); no inverse of C is needed, and C may be singular.
Newton's method on f, Hessian I + (rho'J)'(rho'J): rho from `simplex` is upper and J lower
triangular, so rho'J is lower triangular and costs O(k^2) to form.
"""

import math

from folklearn.kernels.compile import fast_inner_kernel, inline_kernel, shared_kernel
from folklearn.kernels.simplex import expand_classes, multinomial_factor, reduce_classes, softmax

MAX_STEPS = 500
_SMALL_STEP = 1e-6  # logits; Newton squares the error, so after such a step it is near 1e-12
_SAFE_STEP = 0.2  # squared length; the Hessian changes by less than a factor 2 along it


@fast_inner_kernel
def cholesky(A, inverse, floor, tolerance):
    """Factor A = LL' in place, surviving rounding; write 1/diagonal of L into inverse.

    Reads the lower triangle. Leaves L below and L' above the diagonal: rows of both are
    contiguous, which is what every loop here and in the callers runs over.
    Pivots below `floor` are raised to it. Columns whose pivot is at most `tolerance` times
    the diagonal are set to zero: a semidefinite A loses its null directions.
    Return the number of pivots that lay below the floor by more than rounding.
    """
    n_raised = 0
    for i in range(A.shape[0]):
        row = A[i]
        diagonal = row[i]
        for j in range(i):
            entry = row[j] * inverse[j]
            above = A[j]
            row[j] = entry
            above[i] = entry
            for m in range(j + 1, i + 1):
                row[m] -= entry * above[m]
        pivot = row[i]
        if pivot < floor:
            n_raised += pivot < floor - 1e-6
            pivot = floor
        row[i] = math.sqrt(pivot) if pivot > tolerance * diagonal else 0.0
        inverse[i] = 1.0 / row[i] if row[i] > 0.0 else 0.0
    return n_raised


@shared_kernel(
    "Tuple((f8, i8))(vector, f8, matrix, vector, vector, vector, vector, vector, vector, "
    "matrix, matrix, matrix)",
    fast=True,
)
def solve_fixed_point(h, pull, C, u, z, p, g, scale, tail, J, H, work):
    """Solve for u; leave z = Q u, p = softmax(z) and the factor of M there.

    J and H are (k, k) scratch, work is (6, K). Return (logsumexp(z), Newton steps); as many
    as MAX_STEPS mean that u is not the solution.
    """
    k = h.shape[0]
    v, dv, du = work[0, :k], work[1, :k], work[2, :k]
    trial, prefix, inverse = work[3, :k], work[4, :k], work[5, :k]
    for i in range(k):
        for j in range(i + 1):
            J[i, j] = pull * C[i, j]
        u[i] = h[i]
        v[i] = 0.0
    cholesky(J, inverse, 0.0, 1e-14 * k)
    step = 0
    while True:
        expand_classes(u, z)
        log_total = softmax(z, p)
        multinomial_factor(p, g, scale, tail)
        if step == MAX_STEPS:
            return log_total, step
        _newton_system(J, g, scale, tail, H, prefix, trial)
        cholesky(H, inverse, 1.0, 0.0)

        decrement = 0.0  # gradient' Hessian^-1 gradient
        for i in range(k):
            gradient = v[i]
            for j in range(i, k):
                gradient -= J[i, j] * g[j]
            for j in range(i):
                gradient += H[i, j] * dv[j]
            dv[i] = -gradient * inverse[i]
            decrement += dv[i] * dv[i]
        for i in range(k - 1, -1, -1):
            total = dv[i]
            for j in range(i + 1, k):
                total -= H[i, j] * dv[j]
            dv[i] = total * inverse[i]
        size = 0.0
        length = 0.0
        for i in range(k):
            total = 0.0
            for j in range(i + 1):
                total -= J[i, j] * dv[j]
            du[i] = total
            size += total * total
            length += v[i] * v[i]

        if not size < math.inf:  # lost to rounding; this iterate is as good as any
            return log_total, MAX_STEPS
        step += 1
        converged = size <= _SMALL_STEP**2 or decrement <= 1e-20 * (1.0 + length)
        t = 1.0
        if not converged and size > _SAFE_STEP:
            t = _line_search(u, v, du, dv, decrement, z, p, trial)
        for i in range(k):
            u[i] += t * du[i]
            v[i] += t * dv[i]
        if converged:
            expand_classes(u, z)
            log_total = softmax(z, p)
            multinomial_factor(p, g, scale, tail)
            return log_total, step


@inline_kernel
def _newton_system(J, g, scale, tail, H, prefix, row):
    """Write the lower triangle of I + (rho'J)'(rho'J) into H; prefix and row are scratch."""
    k = g.shape[0]
    for i in range(k):
        for j in range(i):
            H[i, j] = 0.0
        H[i, i] = 1.0
        prefix[i] = 0.0
    for m in range(k):
        for j in range(m + 1):
            row[j] = scale[m] * J[m, j] + tail[m] * prefix[j]
            prefix[j] += g[m] * J[m, j]
        for i in range(m + 1):
            factor = row[i]
            for j in range(i + 1):
                H[i, j] += factor * row[j]


@shared_kernel("f8(vector, vector, vector, vector, f8, vector, vector, vector)", fast=True)
def _line_search(u, v, du, dv, decrement, z, p, trial):
    """Return a step length in (0, 1] along which f decreases.

    f is convex along the ray, so it decreases wherever its slope is still negative. The
    slope is used instead of f because f itself cancels when logits are huge.
    """
    k = u.shape[0]
    low = 0.0
    high = 1.0
    t = 1.0
    for _ in range(100):
        for i in range(k):
            trial[i] = u[i] + t * du[i]
        expand_classes(trial, z)
        softmax(z, p)
        reduce_classes(p, trial)
        slope = 0.0
        for i in range(k):
            slope += (v[i] + t * dv[i]) * dv[i] + trial[i] * du[i]
        if slope > 0.0:
            high = t
        elif t == 1.0 or slope >= -0.5 * decrement:
            return t
        else:
            low = t
        t = 0.5 * (low + high)
    return t
