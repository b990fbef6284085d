"""Many rounds at BLAS-3 speed, with the same predictions as one by one.

When b contexts are known ahead, the n-sized work of b rounds collapses into two matrix
products around a sequential part that lives in the small Gram matrix (bk x bk):

1. `open_block`:   P = S(I (x) X'), n x bk;  C = (I (x) X')'P;  q = (I (x) X')'theta.
2. for round i: predict and learn from C_ii and q_i (`rules`), which gives V_i and a_i,
   then for later l, j:  q_l += C_li a_i,  E_il = V_i'C_il,  C_lj -= E_il'E_ij.
3. `close_block`:  the columns Y_l = (P_l - sum_{i<l} Y_i E_il) V_l of the rank-bk update are
   Y = P G with G upper triangular, built from V and E;  theta += P c;  S -= Y Y'.

Columns are round-major: round i, class c is column ik + c. A block of one round is the
plain loop, which is faster when n is small.
"""

import numpy as np

from folklearn.kernels import prediction_rules
from folklearn.kernels.blas import (
    LEFT,
    PLAIN,
    RIGHT,
    TRANSPOSED,
    gemm,
    gemv_add,
    symm,
    syrk_subtract,
    trmm,
)
from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.prediction_rules import (
    LAM,
    PREDICTED,
    learn,
    predict_from_state,
    small_arrays,
)
from folklearn.kernels.second_order import (
    FRESH,
    SPARE,
    is_sound,
    norm,
    open_memo,
    predict_round,
    update_round,
)


def block_size(d: int, k: int) -> int:
    """Return the number of rounds per block, 1 for the plain loop.

    Measured: bk near n/8 is best (the sequential part grows like (bk)^3), more than 32
    rounds gain nothing, and small states or blocks of fewer than 4 rounds do not pay.
    """
    n = k * d
    b = min(max(24, n // 8) // k, 32)
    return 1 if n < 100 or b < 4 else b


@kernel
def context_products(S, X, P):
    """P = S(I (x) X') from one triangle of S: two strips and one diagonal block per class."""
    b, d = X.shape
    n = S.shape[0]
    k = n // d
    stride = k * n  # from one round's column to the next round's, same class
    for c in range(k):
        first = c * d
        below = n - first - d
        if first > 0:
            gemm(PLAIN, PLAIN, first, b, d, 1.0, S, first * n, n, X, 0, d, 0.0, P, c * n, stride)
        symm(d, b, S, first * n + first, n, X, 0, d, P, c * n + first, stride)
        if below > 0:
            gemm(
                TRANSPOSED, PLAIN, below, b, d, 1.0, S, (first + d) * n + first, n,
                X, 0, d, 0.0, P, c * n + first + d, stride,
            )  # fmt: skip


@kernel
def open_block(S, theta, X, P, C, q):
    """Step 1. P is (bk, n), C is (bk, bk) and q is (bk,) in C order."""
    b, d = X.shape
    n = theta.shape[0]
    k = n // d
    context_products(S, X, P)
    for c in range(k):
        gemm(
            TRANSPOSED, PLAIN, b * k, b, d, 1.0, P, c * d, n,
            X, 0, d, 0.0, C, c * b * k, k * b * k,
        )  # fmt: skip
    gemm(TRANSPOSED, PLAIN, k, b, d, 1.0, theta, 0, d, X, 0, d, 0.0, q, 0, k)


@kernel
def close_block(S, theta, P, G, c, room, spare):
    """Step 3. G is (bk, bk), upper triangular by columns; c is (bk,).

    Return False, S and theta untouched, if rounding would spoil them (`is_sound`).
    """
    m, n = P.shape
    step = room[0]
    for i in range(n):
        step[i] = 0.0
    gemv_add(n, m, P, 0, n, c, 0, step, 0)
    trmm(RIGHT, PLAIN, n, m, 1.0, G, 0, m, P, 0, n)
    if not is_sound(S, theta, P, room, spare):
        return False
    for i in range(n):
        theta[i] += step[i]
    syrk_subtract(PLAIN, n, m, P, 0, n, S, 0, n)
    return True


@kernel
def _learn_block(
    C, q, G, c, constants, nodes, norms, mean,
    labels, soft, weights, learning, totals, out, losses,
):  # fmt: skip
    """Step 2: the sequential part. Overwrites C by E; writes G and c for `close_block`."""
    b = norms.shape[0]
    m = q.shape[0]
    k = m // b
    squares, vectors = small_arrays(k)
    Cii, V, a = (
        squares[prediction_rules.C_AT],
        squares[prediction_rules.V_AT],
        vectors[prediction_rules.A_AT, :k],
    )
    no_label = np.empty(0)
    for i in range(b):
        at = i * k
        for r in range(k):
            vectors[prediction_rules.Q_AT, r] = q[at + r]
            for s in range(r + 1):
                Cii[r, s] = C[at + r, at + s]
                Cii[s, r] = Cii[r, s]
        predict_from_state(constants, nodes, squares, vectors)
        for r in range(k + 1):
            out[i, r] = vectors[PREDICTED, r]
        if not learning:
            continue
        y = soft[i] if labels[i] < 0 else no_label
        losses[i] = learn(
            constants, squares, vectors, labels[i], y, weights[i], norms[i], mean, totals
        )

        # Columns at.. of G hold H_i = e_i - sum_{l<i} G_l E_li until V_i is applied.
        for s in range(k):
            for r in range(at):
                G[at + s, r] = C[at + s, r]
            for r in range(k):
                G[at + s, at + r] = 1.0 if r == s else 0.0
        if at > 0:
            trmm(LEFT, PLAIN, at, k, -1.0, G, 0, m, G, at * m, m)
        for r in range(k):
            c[at + r] = 0.0
        gemv_add(at + k, k, G, at * m, m, a, 0, c, 0)
        trmm(RIGHT, PLAIN, at + k, k, 1.0, V, 0, k, G, at * m, m)

        rest = m - at - k
        if rest > 0:
            below = (at + k) * m + at  # rows of later rounds, columns of round i
            later = (at + k) * m + at + k
            _update_later(C, q, a, at, k)
            trmm(LEFT, TRANSPOSED, k, rest, 1.0, V, 0, k, C, below, m)
            syrk_subtract(TRANSPOSED, rest, k, C, below, m, C, later, m)


@fast_kernel
def _update_later(C, q, a, at, k):
    """q_l += C_li a_i for every later round l."""
    for row in range(at + k, q.shape[0]):
        total = 0.0
        for s in range(k):
            total += C[row, at + s] * a[s]
        q[row] += total


@kernel
def run_loop(S, memo, X, labels, soft, weights, start, stop, learning, out, losses):
    """Predict the rows from start to before stop one by one, and learn them."""
    no_label = np.empty(0)
    for t in range(start, stop):
        predict_round(S, memo, X[t], out[t])
        if learning:
            y = soft[t] if labels[t] < 0 else no_label
            losses[t] = update_round(S, memo, X[t], labels[t], y, weights[t])


@kernel
def run_rounds(S, memo, X, norms, labels, soft, weights, b, learning, out, losses):
    """Predict every row of X into out; when learning, learn each row after predicting it.

    A block that rounding would spoil is learned again row by row, where single rounds are lost
    instead of the whole block. Blocks of one round are `run_loop`.
    """
    T, d = X.shape
    n = S.shape[0]
    k = n // d
    totals, constants, theta, seen, _, _, _, room, nodes = open_memo(memo, d, k)
    P = np.empty((b * k, n))
    C = np.empty(b * k * b * k)
    G = np.empty(b * k * b * k)
    q = np.empty(b * k)
    c = np.empty(b * k)
    for start in range(0, T, b):
        stop = min(start + b, T)
        m = (stop - start) * k
        totals_before = totals.copy()
        Cm, Gm = C[: m * m].reshape(m, m), G[: m * m].reshape(m, m)
        open_block(S, theta, X[start:stop], P[:m], Cm, q[:m])
        _learn_block(
            Cm, q[:m], Gm, c[:m], constants, nodes, norms[start:stop], norm(theta),
            labels[start:stop], soft[start:stop] if soft.shape[0] > 0 else soft,
            weights[start:stop], learning, totals, out[start:stop], losses[start:stop],
        )  # fmt: skip
        if not learning:
            continue
        seen[FRESH] = 0.0
        if not close_block(S, theta, P[:m], Gm, c[:m], room, SPARE / constants[LAM]):
            for i in range(totals.shape[0]):
                totals[i] = totals_before[i]
            run_loop(S, memo, X, labels, soft, weights, start, stop, learning, out, losses)
            seen[FRESH] = 0.0
