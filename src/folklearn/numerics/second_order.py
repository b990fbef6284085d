"""The second-order state (S, theta) and one round of it.

S = A^-1 is symmetric, n x n with n = (K-1) d, class-major. Only its lower triangle (C
order) is kept: symmetry holds by construction, a pass reads half the memory, and the
update is a BLAS rank-k update of one triangle. What lies above the diagonal is unused.

A round reads S once (`see`) and writes it once (`absorb`); between them everything is
k-sized. The prediction of the last context is kept in the memo, so that an update after a
predict of the same context does not read S again.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from folklearn.numerics.backend import PLAIN, RIGHT, syrk_subtract, trmm
from folklearn.numerics.curvature import valid_curvature
from folklearn.numerics.fixed_point import MAX_STEPS, solve_fixed_point
from folklearn.numerics.simplex import expanded_diagonal, reduce_classes
from folklearn.numerics.surrogate import expand_surrogate, log_loss

Array = NDArray[np.float64]

# What the rounds add up to, by position in the totals array. The last three count rounds:
# with a curvature that was not valid, with an unsolved fixed point, with lost definiteness.
N_TOTALS = 6
LOSS, BRACKET, ROUNDS, OVERCURVED, UNSOLVED, INDEFINITE = range(N_TOTALS)

_TINY_N = 32  # binary states so small that a BLAS call costs more than its work

# The memo: the last context as the state saw it, and scratch. Numba takes arrays cheaply
# and objects dearly, so it is four arrays: P (k, n); squares (N_SQUARES, k, k), of which
# the first is C; vectors (N_VECTORS, K), rows as below; seen, which is x (d,) followed by
# whether the memo is fresh, logsumexp(z) and the number of Newton steps.
N_SQUARES = 3
N_VECTORS = 15
_Q, _U, _Z, _P, _G, _SCALE, _TAIL, _A, _WORK = range(9)
FRESH, _LOG_TOTAL, _STEPS = -3, -2, -1


def new_memo(d: int, k: int) -> tuple[Array, Array, Array, Array]:
    """Return an empty memo."""
    return (
        np.zeros((k, k * d)),
        np.zeros((N_SQUARES, k, k)),
        np.zeros((N_VECTORS, k + 1)),
        np.zeros(d + 3),
    )


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def see(S, theta, x, P, C, q):
    """Write P = S(I (x) x) (as P', C order), C = (I (x) x)'P and q = (I (x) x)'theta.

    One pass over the lower triangle, four rows at a time. Row i of class a gives the part
    of column a left of the diagonal (the long loop) and, by symmetry, its own entry in the
    columns of the classes before a (the short loops).
    """
    k = P.shape[0]
    d = x.shape[0]
    for a in range(k):
        Pa = P[a]
        first = a * d
        for j in range(first + d):
            Pa[j] = 0.0
        r = 0
        while r + 4 <= d:
            i = first + r
            s0, s1, s2, s3 = S[i], S[i + 1], S[i + 2], S[i + 3]
            x0, x1, x2, x3 = x[r], x[r + 1], x[r + 2], x[r + 3]
            for b in range(a):
                o = b * d
                t0 = t1 = t2 = t3 = 0.0
                for j in range(d):
                    t0 += s0[o + j] * x[j]
                    t1 += s1[o + j] * x[j]
                    t2 += s2[o + j] * x[j]
                    t3 += s3[o + j] * x[j]
                P[b, i], P[b, i + 1], P[b, i + 2], P[b, i + 3] = t0, t1, t2, t3
            for j in range(i):
                Pa[j] += x0 * s0[j] + x1 * s1[j] + x2 * s2[j] + x3 * s3[j]
            t0 = t1 = t2 = t3 = 0.0
            for j in range(r):
                t0 += s0[first + j] * x[j]
                t1 += s1[first + j] * x[j]
                t2 += s2[first + j] * x[j]
                t3 += s3[first + j] * x[j]
            Pa[i] = t0 + s0[i] * x0 + s1[i] * x1 + s2[i] * x2 + s3[i] * x3
            Pa[i + 1] = t1 + s1[i] * x0 + s1[i + 1] * x1 + s2[i + 1] * x2 + s3[i + 1] * x3
            Pa[i + 2] = t2 + s2[i] * x0 + s2[i + 1] * x1 + s2[i + 2] * x2 + s3[i + 2] * x3
            Pa[i + 3] = t3 + s3[i] * x0 + s3[i + 1] * x1 + s3[i + 2] * x2 + s3[i + 3] * x3
            r += 4
        while r < d:
            i = first + r
            s0, x0 = S[i], x[r]
            for b in range(a):
                o = b * d
                t0 = 0.0
                for j in range(d):
                    t0 += s0[o + j] * x[j]
                P[b, i] = t0
            for j in range(i):
                Pa[j] += x0 * s0[j]
            t0 = 0.0
            for j in range(r + 1):
                t0 += s0[first + j] * x[j]
            Pa[i] = t0
            r += 1
    for a in range(k):
        total = 0.0
        for j in range(d):
            total += theta[a * d + j] * x[j]
        q[a] = total
        for b in range(a + 1):
            total = 0.0
            for j in range(d):
                total += P[b, a * d + j] * x[j]
            C[a, b] = total
            C[b, a] = total


@njit(cache=True, nogil=True, error_model="numpy")
def folklore_centre(C, q, h, diagonal):
    """Write h = -q/2 + Q'diag(QCQ')/4; the second term is the paper's bias B_t."""
    expanded_diagonal(C, diagonal)
    reduce_classes(diagonal, h)
    for i in range(q.shape[0]):
        h[i] = 0.25 * h[i] - 0.5 * q[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _look(S, theta, P, squares, vectors, seen, x):
    """Fill the memo for context x, unless it already holds it for this very state."""
    d = x.shape[0]
    k = P.shape[0]
    if seen[FRESH] == 1.0:
        same = True
        for j in range(d):
            same &= seen[j] == x[j]
        if same:
            return
    for j in range(d):
        seen[j] = x[j]
    C, q, h = squares[0], vectors[_Q, :k], vectors[_A, :k]
    see(S, theta, x, P, C, q)
    folklore_centre(C, q, h, vectors[_WORK])
    seen[_LOG_TOTAL], seen[_STEPS] = solve_fixed_point(
        h, C, vectors[_U, :k], vectors[_Z], vectors[_P],
        vectors[_G, :k], vectors[_SCALE, :k], vectors[_TAIL, :k],
        squares[1], squares[2], vectors[_WORK:],
    )  # fmt: skip
    seen[FRESH] = 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def norm(x):
    """Return |x|; NaN and infinity pass through."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j] * x[j]
    return math.sqrt(total)


@njit(cache=True, nogil=True, error_model="numpy")
def predict_round(S, theta, P, squares, vectors, seen, x, max_norm, out):
    """Write the prediction for x into out; return False, all untouched, if |x| is unusable."""
    if not norm(x) <= max_norm:
        return False
    _look(S, theta, P, squares, vectors, seen, x)
    for i in range(out.shape[0]):
        out[i] = vectors[_P, i]
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def choose_curvature(gamma, z, reach, weight, totals):
    """Return the round's curvature: the largest valid one, or gamma > 0 as given.

    A given gamma above the valid one voids the certificate, unless the round says nothing
    about any model (reach = 2 B|x| = 0, or no weight).
    """
    valid = valid_curvature(z, reach)
    if gamma <= 0.0:
        return valid
    if gamma > valid and reach > 0.0 and weight > 0.0:
        totals[OVERCURVED] += 1.0
    return gamma


@njit(cache=True, nogil=True, error_model="numpy")
def count_round(totals, loss, weight, bracket, steps, n_raised):
    """Add one finished round to the totals."""
    totals[LOSS] += weight * loss
    totals[BRACKET] += bracket
    totals[ROUNDS] += 1.0
    totals[UNSOLVED] += steps == MAX_STEPS
    totals[INDEFINITE] += n_raised > 0


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def absorb(S, theta, P, V, a):
    """theta += P a and S -= (P V)(P V)'; P is overwritten by P V."""
    k, n = P.shape
    for c in range(k):
        Pc, factor = P[c], a[c]
        for i in range(n):
            theta[i] += factor * Pc[i]
    if k == 1 and n <= _TINY_N:
        Pc, squared = P[0], V[0, 0] ** 2
        for i in range(n):
            row, factor = S[i], squared * Pc[i]
            for j in range(i + 1):
                row[j] -= factor * Pc[j]
        return
    trmm(RIGHT, PLAIN, n, k, 1.0, V, 0, k, P, 0, n)
    syrk_subtract(PLAIN, n, k, P, 0, n, S, 0, n)


@njit(cache=True, nogil=True, error_model="numpy")
def update_round(
    S, theta, P, squares, vectors, seen, totals, x, label, soft, weight, B, gamma, max_norm
):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    length = norm(x)
    if not length <= max_norm:
        return math.nan
    _look(S, theta, P, squares, vectors, seen, x)
    k = P.shape[0]
    z, a, V = vectors[_Z], vectors[_A, :k], squares[1]
    loss = log_loss(z, seen[_LOG_TOTAL], label, soft)
    curvature = choose_curvature(gamma, z, 2.0 * B * length, weight, totals)
    bracket, n_raised = expand_surrogate(
        label, soft, weight, curvature, vectors[_U, :k], vectors[_P],
        vectors[_G, :k], vectors[_SCALE, :k], vectors[_TAIL, :k],
        squares[0], vectors[_Q, :k], V, a, squares[2], vectors[_WORK:],
    )  # fmt: skip
    absorb(S, theta, P, V, a)
    seen[FRESH] = 0.0
    count_round(totals, loss, weight, bracket, seen[_STEPS], n_raised)
    return loss
