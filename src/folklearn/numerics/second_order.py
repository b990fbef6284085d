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
from numba import carray, njit
from numpy.typing import NDArray

from folklearn.numerics.backend import PLAIN, RIGHT, TRANSPOSED, address, gemm, trmm
from folklearn.numerics.curvature import valid_curvature
from folklearn.numerics.fixed_point import MAX_STEPS, solve_fixed_point
from folklearn.numerics.simplex import expanded_diagonal, reduce_classes
from folklearn.numerics.surrogate import expand_surrogate, log_loss

Array = NDArray[np.float64]

# What the rounds add up to, by position in the totals array. The last three count rounds:
# with a curvature that was not valid, with an unsolved fixed point, that cost the state its digits.
N_TOTALS = 6
LOSS, BRACKET, ROUNDS, OVERCURVED, UNSOLVED, IMPRECISE = range(N_TOTALS)

_PANEL = 16
_SMALL_N = 32  # states so small that entering BLAS costs more than it saves

# Rows of the memo's vectors; those from _WORK on are scratch.
_Q, _U, _Z, _P, _G, _SCALE, _TAIL, _A, _WORK = range(9)
_N_SQUARES, _N_VECTORS = 3, 15
FRESH, _LOG_TOTAL, _STEPS = -3, -2, -1  # behind x in the memo's `seen`


def memo_size(d: int, k: int) -> int:
    """Return the number of floats that `open_memo` lays out."""
    n = k * d
    return N_TOTALS + n + (d + 3) + _N_SQUARES * k * k + _N_VECTORS * (k + 1) + k * n


@njit(cache=True, nogil=True)
def open_memo(memo, d, k):
    """Return the views totals, theta, seen, squares, vectors, P of a memo.

    Everything but S lives in this one array, because a compiled function pays for every
    array it is called with: the totals (N_TOTALS,); theta (n,); the last context and how
    the state saw it, as seen (d + 3,), squares (3, k, k), of which the first is C, vectors
    (15, K) and P (k, n); and scratch.
    """
    n = k * d
    K = k + 1
    at = N_TOTALS
    totals = carray(address(memo, 0), (N_TOTALS,), np.float64)
    theta = carray(address(memo, at), (n,), np.float64)
    at += n
    seen = carray(address(memo, at), (d + 3,), np.float64)
    at += d + 3
    squares = carray(address(memo, at), (_N_SQUARES, k, k), np.float64)
    at += _N_SQUARES * k * k
    vectors = carray(address(memo, at), (_N_VECTORS, K), np.float64)
    at += _N_VECTORS * K
    P = carray(address(memo, at), (k, n), np.float64)
    return totals, theta, seen, squares, vectors, P


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
def predict_round(S, memo, x, max_norm, out):
    """Write the prediction for x into out; return False, all untouched, if |x| is unusable."""
    if not norm(x) <= max_norm:
        return False
    d = x.shape[0]
    _, theta, seen, squares, vectors, P = open_memo(memo, d, S.shape[0] // d)
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
def count_round(totals, loss, weight, bracket, steps, n_lost):
    """Add one finished round to the totals."""
    totals[LOSS] += weight * loss
    totals[BRACKET] += bracket
    totals[ROUNDS] += 1.0
    totals[UNSOLVED] += steps == MAX_STEPS
    totals[IMPRECISE] += n_lost > 0


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def absorb(S, theta, P, V, a):
    """theta += P a and S -= (P V)(P V)'; P is overwritten by P V."""
    k, n = P.shape
    for c in range(k):
        Pc, factor = P[c], a[c]
        for i in range(n):
            theta[i] += factor * Pc[i]
    if n <= _SMALL_N:
        _absorb_small(S, P, V)
        return
    trmm(RIGHT, PLAIN, n, k, 1.0, V, 0, k, P, 0, n)
    subtract_square(S, P)


@njit(cache=True, nogil=True)
def subtract_square(S, Y):
    """S -= YY' for Y (k, n) of small rank k, by narrow panels: faster than dsyrk there.

    What a panel writes above the diagonal lands in the unused triangle.
    """
    k, n = Y.shape
    for first in range(0, n, _PANEL):
        width = min(_PANEL, n - first)
        gemm(
            PLAIN, TRANSPOSED, first + width, width, k,
            -1.0, Y, 0, n, Y, first, n, 1.0, S, first * n, n,
        )  # fmt: skip


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _absorb_small(S, P, V):
    """The two products of `absorb` without the cost of entering BLAS."""
    k, n = P.shape
    for c in range(k - 1, -1, -1):  # column c of P V needs the columns up to c only
        Pc, factor = P[c], V[c, c]
        for i in range(n):
            Pc[i] *= factor
        for b in range(c):
            Pb, factor = P[b], V[c, b]
            for i in range(n):
                Pc[i] += factor * Pb[i]
    for i in range(n):
        row = S[i]
        c = 0
        while c + 4 <= k:
            y0, y1, y2, y3 = P[c], P[c + 1], P[c + 2], P[c + 3]
            f0, f1, f2, f3 = y0[i], y1[i], y2[i], y3[i]
            for j in range(i + 1):
                row[j] -= f0 * y0[j] + f1 * y1[j] + f2 * y2[j] + f3 * y3[j]
            c += 4
        while c < k:
            y0 = P[c]
            f0 = y0[i]
            for j in range(i + 1):
                row[j] -= f0 * y0[j]
            c += 1


@njit(cache=True, nogil=True, error_model="numpy")
def update_round(S, memo, x, label, soft, weight, B, gamma, max_norm):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    length = norm(x)
    if not length <= max_norm:
        return math.nan
    d = x.shape[0]
    k = S.shape[0] // d
    totals, theta, seen, squares, vectors, P = open_memo(memo, d, k)
    _look(S, theta, P, squares, vectors, seen, x)
    z, a, V = vectors[_Z], vectors[_A, :k], squares[1]
    loss = log_loss(z, seen[_LOG_TOTAL], label, soft)
    curvature = choose_curvature(gamma, z, 2.0 * B * length, weight, totals)
    bracket, n_lost = expand_surrogate(
        label, soft, weight, curvature, vectors[_U, :k], vectors[_P],
        vectors[_G, :k], vectors[_SCALE, :k], vectors[_TAIL, :k],
        squares[0], vectors[_Q, :k], V, a, squares[2], vectors[_WORK:],
    )  # fmt: skip
    absorb(S, theta, P, V, a)
    seen[FRESH] = 0.0
    count_round(totals, loss, weight, bracket, seen[_STEPS], n_lost)
    return loss
