"""The second-order state (S, theta) and one round of it.

S = A^-1 is symmetric, n x n with n = (K-1) d, class-major. Only its lower triangle (C
order) is kept: symmetry holds by construction, a pass reads half the memory, and the
update is a BLAS rank-k update of one triangle. What lies above the diagonal is unused.

A round reads S once (`context_stats`) and writes it once (`absorb`); between them everything is
k-sized. A sparse context is predicted from the few entries of S that it meets
(`context_stats_sparse`); its pass over S waits for the update, which may never come. The
prediction of the last context is kept in the memo, so that an update after a predict of the
same context repeats nothing.
"""

import math

import numpy as np
from numba import carray

from folklearn.kernels import prediction_rules
from folklearn.kernels.blas import NEVER_SPLIT, PLAIN, RIGHT, TRANSPOSED, address, gemm, trmm
from folklearn.kernels.compile import (
    fast_inner_kernel,
    inline_kernel,
    inner_kernel,
    kernel,
    shared_kernel,
)
from folklearn.kernels.prediction_rules import (
    IMPRECISE,
    LAM,
    MAX_NORM,
    N_CONSTANTS,
    N_SQUARES,
    N_TOTALS,
    N_VECTORS,
    PREDICTED,
    learn,
    predict_from_state,
)

FRESH = -1  # behind x in the memo's `seen`: what the memo holds of that x
_SEEN = 1.0
_GLIMPSED = 2.0
_PANEL = 16
_SPARSE = 4  # a context with at most d / 4 nonzeros is predicted from those alone
SPARE = 1e-12  # of 1/lam: what rounding may take from the diagonal of S beyond what is there
_MAX_THETA = 1e100  # beyond, sums of products overflow
_SMALL_N = 32  # states so small that entering BLAS costs more than it saves


def memo_size(d: int, k: int, n_nodes: int) -> int:
    """Return the number of floats that `open_memo` lays out."""
    n = k * d
    return (
        prediction_rules.N_TOTALS + prediction_rules.N_CONSTANTS + n + (d + 1)
        + prediction_rules.N_SQUARES * k * k + prediction_rules.N_VECTORS * (k + 1)
        + k * n + 2 * n + n_nodes * k
    )  # fmt: skip


@inline_kernel
def predicted_at(d, k):
    """Return the place of the prediction (K,) in a memo."""
    vectors = N_TOTALS + N_CONSTANTS + k * d + (d + 1) + N_SQUARES * k * k
    return vectors + PREDICTED * (k + 1)


@inner_kernel
def open_memo(memo, d, k):
    """Return the views totals, constants, theta, seen, squares, vectors, P, room, nodes of a memo.

    Everything but S lives in this one array, because a compiled function pays for every
    array it is called with. Totals, constants, squares, vectors and nodes are those of
    `rules`; theta is (n,); seen (d + 1,) is the last context and whether what squares,
    vectors and P (k, n) hold is fresh, that is, how the present state sees it (0 if not);
    room is (2, n), scratch.
    """
    n = k * d
    totals = carray(address(memo, 0), (N_TOTALS,), np.float64)
    at = N_TOTALS
    constants = carray(address(memo, at), (N_CONSTANTS,), np.float64)
    at += N_CONSTANTS
    theta = carray(address(memo, at), (n,), np.float64)
    at += n
    seen = carray(address(memo, at), (d + 1,), np.float64)
    at += d + 1
    squares = carray(address(memo, at), (N_SQUARES, k, k), np.float64)
    at += N_SQUARES * k * k
    vectors = carray(address(memo, at), (N_VECTORS, k + 1), np.float64)
    at += N_VECTORS * (k + 1)
    P = carray(address(memo, at), (k, n), np.float64)
    at += k * n
    room = carray(address(memo, at), (2, n), np.float64)
    at += 2 * n
    nodes = carray(address(memo, at), ((memo.shape[0] - at) // k, k), np.float64)
    return totals, constants, theta, seen, squares, vectors, P, room, nodes


@shared_kernel("void(matrix, vector, matrix)", fast=True)
def columns(S, x, P):
    """Write P = S(I (x) x) (as P', C order).

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


@shared_kernel("void(matrix, vector, vector, matrix, matrix, vector)", fast=True)
def context_stats(S, theta, x, P, C, q):
    """Write P = S(I (x) x), C = (I (x) x)'P and q = (I (x) x)'theta."""
    columns(S, x, P)
    k = P.shape[0]
    d = x.shape[0]
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


@shared_kernel("void(matrix, vector, vector, matrix, vector)", fast=True)
def context_stats_sparse(S, theta, x, C, q):
    """Write C and q alone, from the entries of S where x is not 0.

    A prediction needs no more, and for a sparse x that is a small part of S.
    """
    k = C.shape[0]
    d = x.shape[0]
    there = np.flatnonzero(x)
    for a in range(k):
        total = 0.0
        for i in there:
            total += theta[a * d + i] * x[i]
        q[a] = total
        for b in range(a):
            total = 0.0
            for i in there:
                row, part = S[a * d + i], 0.0
                for j in there:
                    part += row[b * d + j] * x[j]
                total += part * x[i]
            C[a, b] = total
            C[b, a] = total
        total = 0.0
        for place in range(there.shape[0]):
            i = there[place]
            row, part = S[a * d + i], 0.0
            for j in there[:place]:
                part += row[a * d + j] * x[j]
            total += (2.0 * part + row[a * d + i] * x[i]) * x[i]
        C[a, a] = total


@inner_kernel
def norm(x):
    """Return |x|; NaN and infinity pass through."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j] * x[j]
    return math.sqrt(total)


@shared_kernel("b1(matrix, vector, vector)")
def load_context(S, memo, x):
    """Fill the memo for context x, unless it already holds it for this very state.

    Return False, all untouched, if |x| is unusable. Which of the two ways depends on x alone, so
    that a prediction before an update changes nothing. After a context_stats_sparse P is not there:
    `update_round` fills it in.
    """
    d = x.shape[0]
    k = S.shape[0] // d
    _, constants, theta, seen, squares, vectors, P, _, nodes = open_memo(memo, d, k)
    if not norm(x) <= constants[MAX_NORM]:
        return False
    if seen[FRESH] != 0.0:
        same = True
        for j in range(d):
            same &= seen[j] == x[j]
        if same:
            return True
    for j in range(d):
        seen[j] = x[j]
    C, q = squares[prediction_rules.C_AT], vectors[prediction_rules.Q_AT, :k]
    n_nonzeros = 0
    for j in range(d):
        n_nonzeros += x[j] != 0.0
    if 0 < n_nonzeros * _SPARSE <= d:
        context_stats_sparse(S, theta, x, C, q)
        seen[FRESH] = _GLIMPSED
    else:
        context_stats(S, theta, x, P, C, q)
        seen[FRESH] = _SEEN
    predict_from_state(constants, nodes, squares, vectors)
    return True


@kernel
def predict_round(S, memo, x, out):
    """Write the prediction for x into out; return False, all untouched, if |x| is unusable."""
    if not load_context(S, memo, x):
        return False
    at = predicted_at(x.shape[0], out.shape[0] - 1)
    for i in range(out.shape[0]):
        out[i] = memo[at + i]
    return True


@kernel
def update_round(S, memo, x, label, soft, weight):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    return learn_context(S, memo, x, label, soft, weight)


@shared_kernel("f8(matrix, vector, vector, i8, vector, f8)")
def learn_context(S, memo, x, label, soft, weight):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    if not load_context(S, memo, x):
        return math.nan
    d = x.shape[0]
    k = S.shape[0] // d
    totals, constants, theta, seen, squares, vectors, P, room, _ = open_memo(memo, d, k)
    if seen[FRESH] == _GLIMPSED:
        columns(S, x, P)
    n_lost = totals[IMPRECISE]
    loss = learn(constants, squares, vectors, label, soft, weight, norm(x), norm(theta), totals)
    V, a = squares[prediction_rules.V_AT], vectors[prediction_rules.A_AT, :k]
    if not absorb(S, theta, P, V, a, room, SPARE / constants[LAM]):
        totals[IMPRECISE] = n_lost + 1.0
    seen[FRESH] = 0.0
    return loss


@shared_kernel("b1(matrix, vector, matrix, matrix, vector, matrix, f8)", fast=True)
def absorb(S, theta, P, V, a, room, spare):
    """theta += P a and S -= (P V)(P V)'; P is overwritten by P V and room[0] by P a.

    Return False, S and theta untouched, if rounding would spoil them (`is_sound`).
    """
    k, n = P.shape
    step = room[0]
    for i in range(n):
        step[i] = 0.0
    for c in range(k):
        Pc, factor = P[c], a[c]
        for i in range(n):
            step[i] += factor * Pc[i]
    if n * n * k <= NEVER_SPLIT:
        _times_triangular(P, V)
    else:
        trmm(RIGHT, PLAIN, n, k, 1.0, V, 0, k, P, 0, n)
    if not is_sound(S, theta, P, room, spare):
        return False
    for i in range(n):
        theta[i] += step[i]
    if n <= _SMALL_N:
        _subtract_square_small(S, P)
    else:
        subtract_square(S, P)
    return True


@fast_inner_kernel
def is_sound(S, theta, Y, room, spare):
    """Tell whether S - YY' has a diagonal of at least -spare and theta + room[0] a sane size.

    In exact arithmetic the diagonal stays positive. S only ever shrinks, so that the diagonal
    bounds every entry of what was taken from I/lam: as long as all updates pass, S is finite and
    of its proper size, even when rounding has made it indefinite.
    """
    m, n = Y.shape
    step, left = room[0], room[1]
    size = 0.0
    for i in range(n):
        size += abs(theta[i] + step[i])
        left[i] = S[i, i] + spare
    for c in range(m):
        Yc = Y[c]
        for i in range(n):
            left[i] -= Yc[i] * Yc[i]
    enough = True
    for i in range(n):
        enough &= left[i] >= 0.0
    return enough and size <= _MAX_THETA


@shared_kernel("void(matrix, matrix)")
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


@inline_kernel
def _times_triangular(P, V):
    """P = P V in place; some BLAS split even tiny triangular products across threads."""
    k, n = P.shape
    for c in range(k - 1, -1, -1):  # column c of P V needs the columns up to c only
        Pc, factor = P[c], V[c, c]
        for i in range(n):
            Pc[i] *= factor
        for b in range(c):
            Pb, factor = P[b], V[c, b]
            for i in range(n):
                Pc[i] += factor * Pb[i]


@shared_kernel("void(matrix, matrix)", fast=True)
def _subtract_square_small(S, Y):
    """S -= YY' without the cost of entering BLAS."""
    k, n = Y.shape
    for i in range(n):
        row = S[i]
        for c in range(k):
            Yc = Y[c]
            factor = Yc[i]
            for j in range(i + 1):
                row[j] -= factor * Yc[j]
