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

from folklearn.kernels.blas import (
    NEVER_SPLIT,
    PLAIN,
    RIGHT,
    TRANSPOSED,
    address,
    gemm,
    syrk,
    trmm,
)
from folklearn.kernels.compile import inner_kernel, kernel, shared_kernel
from folklearn.kernels.prediction_rules import (
    A_AT,
    C_AT,
    IMPRECISE,
    LAM,
    MAX_NORM,
    N_CONSTANTS,
    N_SQUARES,
    N_TOTALS,
    N_VECTORS,
    PREDICTED,
    Q_AT,
    V_AT,
    learn,
    predict_from_state,
)

FRESH = -1  # behind x in the memo's `seen`: what the memo holds of that x
_SEEN = 1.0
_GLIMPSED = 2.0
_SPARSE = 4  # a context with at most d / 4 nonzeros is predicted from those alone
_SMALL_N = 32  # states so small that entering BLAS costs more than it saves
_MAX_PANELLED_N, _PANEL = 800, 16  # above, dsyrk is faster than panels
SPARE = 1e-12  # of 1/lam: what rounding may take from the diagonal of S beyond what is there
_MAX_THETA = 1e100  # beyond, sums of products overflow


@inner_kernel
def memo_offsets(d, k):
    """Return where theta, seen, squares, vectors, P, room and nodes begin in a memo."""
    theta = N_TOTALS + N_CONSTANTS
    seen = theta + k * d
    squares = seen + d + 1
    vectors = squares + N_SQUARES * k * k
    P = vectors + N_VECTORS * (k + 1)
    room = P + k * k * d
    return theta, seen, squares, vectors, P, room, room + 2 * k * d


@inner_kernel
def open_memo(memo, d, k):
    """Return the views totals, constants, theta, seen, squares, vectors, P, room, nodes of a memo.

    Everything but S lives in this one array, because a compiled function pays for every
    array it is called with. Totals, constants, squares, vectors and nodes are those of
    `prediction_rules`; theta is (n,); seen (d + 1,) is the last context and whether what squares,
    vectors and P (k, n) hold is fresh, that is, how the present state sees it (0 if not);
    room is (2, n), scratch.
    """
    at = memo_offsets(d, k)
    n_nodes = (memo.shape[0] - at[6]) // k
    return (
        carray(address(memo, 0), (N_TOTALS,), np.float64),
        carray(address(memo, N_TOTALS), (N_CONSTANTS,), np.float64),
        carray(address(memo, at[0]), (k * d,), np.float64),
        carray(address(memo, at[1]), (d + 1,), np.float64),
        carray(address(memo, at[2]), (N_SQUARES, k, k), np.float64),
        carray(address(memo, at[3]), (N_VECTORS, k + 1), np.float64),
        carray(address(memo, at[4]), (k, k * d), np.float64),
        carray(address(memo, at[5]), (2, k * d), np.float64),
        carray(address(memo, at[6]), (n_nodes, k), np.float64),
    )


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


@inner_kernel
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
    same = seen[FRESH] != 0.0
    n_nonzeros = 0
    for j in range(d):
        same &= seen[j] == x[j]
        n_nonzeros += x[j] != 0.0
        seen[j] = x[j]
    if same:
        return True
    if 0 < n_nonzeros * _SPARSE <= d:
        context_stats_sparse(S, theta, x, squares[C_AT], vectors[Q_AT])
        seen[FRESH] = _GLIMPSED
    else:
        context_stats(S, theta, x, P, squares[C_AT], vectors[Q_AT])
        seen[FRESH] = _SEEN
    predict_from_state(constants, nodes, squares, vectors)
    return True


@kernel
def predict_round(S, memo, x, out):
    """Write the prediction for x into out; return False, all untouched, if |x| is unusable."""
    if not load_context(S, memo, x):
        return False
    K = out.shape[0]
    at = memo_offsets(x.shape[0], K - 1)[3] + PREDICTED * K
    for i in range(K):
        out[i] = memo[at + i]
    return True


@kernel
def update_round(S, memo, x, label, soft, weight):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    if not load_context(S, memo, x):
        return math.nan
    d = x.shape[0]
    totals, constants, theta, seen, squares, vectors, P, room, _ = open_memo(
        memo, d, S.shape[0] // d
    )
    if seen[FRESH] == _GLIMPSED:
        columns(S, x, P)
    n_lost = totals[IMPRECISE]
    loss = learn(constants, squares, vectors, label, soft, weight, norm(x), norm(theta), totals)
    if not absorb(S, theta, P, squares[V_AT], vectors[A_AT], room, SPARE / constants[LAM]):
        totals[IMPRECISE] = n_lost + 1.0
    seen[FRESH] = 0.0
    return loss


@shared_kernel("b1(matrix, vector, matrix, matrix, vector, matrix, f8)", fast=True)
def absorb(S, theta, P, V, a, room, spare):
    """theta += P a and S -= (P V)(P V)'; P is overwritten by P V and room[0] by P a.

    Return False, S and theta untouched, if rounding would spoil them: if S would get a diagonal
    below -spare, or theta an absurd size. In exact arithmetic the diagonal stays positive. S only
    ever shrinks, so that the diagonal bounds every entry of what was taken from I/lam: as long as
    all updates pass, S is finite and of its proper size, even when rounding has made it indefinite.
    """
    k, n = P.shape
    step, left = room[0], room[1]
    for i in range(n):
        step[i] = 0.0
    for c in range(k):
        Pc, factor = P[c], a[c]
        for i in range(n):
            step[i] += factor * Pc[i]
    if n * n * k > NEVER_SPLIT:
        trmm(RIGHT, PLAIN, n, k, 1.0, V, 0, k, P, 0, n)
    else:  # some BLAS split even tiny triangular products across threads
        for c in range(k - 1, -1, -1):  # column c of P V needs the columns up to c only
            Pc, factor = P[c], V[c, c]
            for i in range(n):
                Pc[i] *= factor
            for b in range(c):
                Pb, factor = P[b], V[c, b]
                for i in range(n):
                    Pc[i] += factor * Pb[i]
    size = 0.0
    for i in range(n):
        size += abs(theta[i] + step[i])
        left[i] = S[i, i] + spare
    for c in range(k):
        Pc = P[c]
        for i in range(n):
            left[i] -= Pc[i] * Pc[i]
    enough = size <= _MAX_THETA
    for i in range(n):
        enough &= left[i] >= 0.0
    if not enough:
        return False
    for i in range(n):
        theta[i] += step[i]
    if n > _SMALL_N:
        subtract_square(S, P)
        return True
    for i in range(n):
        row = S[i]
        for c in range(k):
            Pc, factor = P[c], P[c, i]
            for j in range(i + 1):
                row[j] -= factor * Pc[j]
    return True


@shared_kernel("void(matrix, matrix)")
def subtract_square(S, Y):
    """S -= YY' for Y (k, n): by narrow panels, or for a large n by dsyrk.

    What a panel writes above the diagonal lands in the unused triangle.
    """
    k, n = Y.shape
    if n > _MAX_PANELLED_N:
        syrk(PLAIN, n, k, -1.0, Y, 0, n, S, 0, n)
        return
    for first in range(0, n, _PANEL):
        width = min(_PANEL, n - first)
        gemm(
            PLAIN, TRANSPOSED, first + width, width, k,
            -1.0, Y, 0, n, Y, first, n, 1.0, S, first * n, n,
        )  # fmt: skip
