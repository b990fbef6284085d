"""The second-order state (S, theta) and one round of it.

S = A^-1 is symmetric, n x n with n = (K-1) d, class-major. Only its lower triangle (C
order) is kept: symmetry holds by construction, a pass reads half the memory, and the
update is a BLAS rank-k update of one triangle. What lies above the diagonal is unused.

A round reads S once (`context_stats`) and writes it once (`absorb`); between them everything is
k-sized. The prediction of the last context is kept in the memo for its update.
"""

import math

import numpy as np
from numba import carray

from folklearn.kernels import prediction_rules as rules
from folklearn.kernels.blas import NEVER_SPLIT, PLAIN, RIGHT, TRANSPOSED, address, gemm, syrk, trmm
from folklearn.kernels.compile import helper_kernel, inner_kernel, kernel, shared_kernel

_SMALL_N = 32  # states so small that entering BLAS costs more than it saves
_MAX_PANELLED_N, _PANEL = 800, 16  # above, dsyrk is faster than panels
SPARE = 1e-12  # of 1/lam: what rounding may take from the diagonal of S beyond what is there
_MAX_THETA = 1e100  # beyond, sums of products overflow


def memo_offsets(d: int, k: int) -> tuple[int, ...]:
    """Return where theta, seen, squares, vectors, P, room and nodes begin in a memo.

    Everything but S lives in this one array: a compiled function pays for every array it is called
    with. Totals and constants come first. seen is the last context, and behind it whether squares,
    vectors and P are of it and this state; room is scratch.
    """
    theta = rules.N_TOTALS + rules.N_CONSTANTS
    seen = theta + k * d
    squares = seen + d + 1
    vectors = squares + rules.N_SQUARES * k * k
    P = vectors + rules.N_VECTORS * (k + 1)
    room = P + k * k * d
    return theta, seen, squares, vectors, P, room, room + 2 * k * d


_offsets_of = helper_kernel(memo_offsets)


@inner_kernel
def _view(memo, at, shape):
    return carray(address(memo, at), shape, np.float64)


@inner_kernel
def sections_of(memo, d, k):
    """Return totals, constants, theta, seen, squares, vectors, P, room and nodes as views."""
    theta, seen, squares, vectors, P, room, nodes = _offsets_of(d, k)
    return (
        _view(memo, 0, (rules.N_TOTALS,)),
        _view(memo, rules.N_TOTALS, (rules.N_CONSTANTS,)),
        _view(memo, theta, (k * d,)),
        _view(memo, seen, (d + 1,)),
        _view(memo, squares, (rules.N_SQUARES, k, k)),
        _view(memo, vectors, (rules.N_VECTORS, k + 1)),
        _view(memo, P, (k, k * d)),
        _view(memo, room, (2, k * d)),
        _view(memo, nodes, ((memo.shape[0] - nodes) // k, k)),
    )


@shared_kernel("void(matrix, vector, matrix)", fast=True)
def columns(S, x, P):
    """Write P = S(I (x) x) (as P', C order), four rows of the lower triangle at a time."""
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
            for b in range(a + 1):
                o = b * d
                t0 = t1 = t2 = t3 = 0.0
                for j in range(d if b < a else r):
                    e0, e1, e2, e3, xj = s0[o + j], s1[o + j], s2[o + j], s3[o + j], x[j]
                    t0 += e0 * xj
                    t1 += e1 * xj
                    t2 += e2 * xj
                    t3 += e3 * xj
                    Pa[o + j] += (x0 * e0 + x1 * e1) + (x2 * e2 + x3 * e3)
                Pb = P[b]
                Pb[i], Pb[i + 1], Pb[i + 2], Pb[i + 3] = t0, t1, t2, t3
            e10, e20, e21 = s1[i], s2[i], s2[i + 1]
            e30, e31, e32 = s3[i], s3[i + 1], s3[i + 2]
            Pa[i] += s0[i] * x0 + e10 * x1 + e20 * x2 + e30 * x3
            Pa[i + 1] += e10 * x0 + s1[i + 1] * x1 + e21 * x2 + e31 * x3
            Pa[i + 2] += e20 * x0 + e21 * x1 + s2[i + 2] * x2 + e32 * x3
            Pa[i + 3] += e30 * x0 + e31 * x1 + e32 * x2 + s3[i + 3] * x3
            r += 4
        while r < d:
            i = first + r
            s0, x0 = S[i], x[r]
            for b in range(a + 1):
                o = b * d
                t0 = 0.0
                for j in range(d if b < a else r):
                    t0 += s0[o + j] * x[j]
                    Pa[o + j] += x0 * s0[o + j]
                P[b, i] = t0
            Pa[i] += s0[i] * x0
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


@inner_kernel
def norm(x):
    """Return |x|; NaN and infinity pass through."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j] * x[j]
    return math.sqrt(total)


@shared_kernel("b1(matrix, vector, vector)", fast=True)
def _load_context(S, memo, x):
    """Fill the memo for context x, unless it already holds it for this very state.

    Return False, all untouched, if |x| is unusable.
    """
    d = x.shape[0]
    k = S.shape[0] // d
    _, constants, theta, seen, squares, vectors, P, _, nodes = sections_of(memo, d, k)
    same, square = seen[d] != 0.0, 0.0
    for j in range(d):
        same &= seen[j] == x[j]
        square += x[j] * x[j]
    if not math.sqrt(square) <= constants[rules.MAX_NORM]:
        return False
    if same:
        return True
    for j in range(d):
        seen[j] = x[j]
    seen[d] = 1.0
    context_stats(S, theta, x, P, squares[rules.C_AT], vectors[rules.Q_AT])
    rules.predict_from_state(constants, nodes, squares, vectors)
    return True


@kernel
def predict_round(S, memo, x, out):
    """Write the prediction for x into out; return False, all untouched, if |x| is unusable."""
    if not _load_context(S, memo, x):
        return False
    K = out.shape[0]
    at = _offsets_of(x.shape[0], K - 1)[3] + rules.PREDICTED * K
    for i in range(K):
        out[i] = memo[at + i]
    return True


@kernel
def update_round(S, memo, x, label, soft, weight):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    return _update_round(S, memo, x, label, soft, weight)


@shared_kernel("f8(matrix, vector, vector, i8, vector, f8)", fast=True)
def _update_round(S, memo, x, label, soft, weight):
    if not _load_context(S, memo, x):
        return math.nan
    d = x.shape[0]
    k = S.shape[0] // d
    totals, constants, theta, seen, squares, vectors, P, room, _ = sections_of(memo, d, k)
    n_lost, size = totals[rules.IMPRECISE], norm(theta)
    loss = rules.learn(constants, squares, vectors, label, soft, weight, norm(x), size, totals)
    spare = SPARE / constants[rules.LAM]
    if not absorb(S, theta, P, squares[rules.V_AT], vectors[rules.A_AT], room, spare):
        totals[rules.IMPRECISE] = n_lost + 1.0
    seen[d] = 0.0
    return loss


@shared_kernel("b1(matrix, vector, matrix, matrix, vector, matrix, f8)", fast=True)
def absorb(S, theta, P, V, a, room, spare):
    """theta += P a and S -= (P V)(P V)'; P is overwritten by P V and room[0] by P a.

    Return False, S and theta untouched, if S would get a diagonal below -spare, or theta an absurd
    size. S only shrinks, so that its diagonal bounds every entry of what was taken from I/lam.
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
    if n > _MAX_PANELLED_N:
        syrk(PLAIN, n, k, -1.0, P, 0, n, S, 0, n)
    elif n > _SMALL_N:  # what a panel writes above the diagonal lands in the unused triangle
        for first in range(0, n, _PANEL):
            width = min(_PANEL, n - first)
            gemm(
                PLAIN, TRANSPOSED, first + width, width, k,
                -1.0, P, 0, n, P, first, n, 1.0, S, first * n, n,
            )  # fmt: skip
    else:
        for i in range(n):
            row = S[i]
            for c in range(k):
                Pc, factor = P[c], P[c, i]
                for j in range(i + 1):
                    row[j] -= factor * Pc[j]
    return True


@kernel
def run_loop(S, memo, X, labels, soft, weights, start, stop, learning, out):
    """Predict the rows from start to before stop one by one, and learn them."""
    no_label = np.empty(0)
    for t in range(start, stop):
        predict_round(S, memo, X[t], out[t])
        if learning:
            y = soft[t] if labels[t] < 0 else no_label
            update_round(S, memo, X[t], labels[t], y, weights[t])
