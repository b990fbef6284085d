"""Many rounds on the second-order state at BLAS-3 speed.

When b contexts are known ahead, the n-sized work of b rounds collapses into two matrix
products around a sequential part that lives in the small Gram matrix (bk x bk):

1. `_open_block`:   P = S(I (x) X'), n x bk;  C = (I (x) X')'P;  q = (I (x) X')'theta.
2. for round i: predict and learn from C_ii and q_i (`prediction_rules`), which gives V_i and a_i,
   then for later l, j:  q_l += C_li a_i,  E_il = V_i'C_il,  C_lj -= E_il'E_ij.
3. `absorb`:  the columns Y_l = (P_l - sum_{i<l} Y_i E_il) V_l of the rank-bk update are
   Y = P G with G upper triangular, built from V and E;  theta += P c;  S -= Y Y'.

Columns are round-major: round i, class c is column ik + c. A block of one round is the
plain loop, which is faster when n is small.
"""

import numpy as np

from folklearn.kernels import prediction_rules as rules
from folklearn.kernels.blas import LEFT, PLAIN, RIGHT, TRANSPOSED, gemm, symm, syrk, trmm
from folklearn.kernels.compile import kernel
from folklearn.kernels.second_order import SPARE, absorb, norm, run_loop, sections_of


def block_size(d: int, k: int) -> int:
    """Return the number of rounds per block, 1 for the plain loop: bk near n/8 is fastest."""
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
def _open_block(S, theta, X, P, C, q):
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
def _learn_block(
    C, q, G, c, constants, nodes, norms, mean,
    labels, soft, weights, learning, totals, out,
):  # fmt: skip
    """Step 2: the sequential part. Overwrites C by E; writes G and c for `absorb`."""
    b = norms.shape[0]
    m = q.shape[0]
    k = m // b
    squares, vectors = rules.small_arrays(k)
    Cii, V, a = squares[rules.C_AT], squares[rules.V_AT], vectors[rules.A_AT]
    no_label = np.empty(0)
    for i in range(b):
        at = i * k
        for r in range(k):
            vectors[rules.Q_AT, r] = q[at + r]
            for s in range(r + 1):
                Cii[r, s] = C[at + r, at + s]
                Cii[s, r] = Cii[r, s]
        rules.predict_from_state(constants, nodes, squares, vectors)
        for r in range(k + 1):
            out[i, r] = vectors[rules.PREDICTED, r]
        if not learning:
            continue
        y = soft[i] if labels[i] < 0 else no_label
        rules.learn(constants, squares, vectors, labels[i], y, weights[i], norms[i], mean, totals)

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
        gemm(PLAIN, PLAIN, at + k, 1, k, 1.0, G, at * m, m, a, 0, k, 1.0, c, 0, m)
        trmm(RIGHT, PLAIN, at + k, k, 1.0, V, 0, k, G, at * m, m)

        rest = m - at - k
        if rest > 0:
            below = (at + k) * m + at  # rows of later rounds, columns of round i
            later = (at + k) * m + at + k
            for row in range(at + k, m):
                for r in range(k):
                    q[row] += C[row, at + r] * a[r]
            trmm(LEFT, TRANSPOSED, k, rest, 1.0, V, 0, k, C, below, m)
            syrk(TRANSPOSED, rest, k, -1.0, C, below, m, C, later, m)


@kernel
def run_rounds(S, memo, X, norms, labels, soft, weights, b, learning, out):
    """Predict every row of X into out; when learning, learn each row after predicting it.

    A block that rounding would spoil is learned again row by row: single rounds are lost.
    """
    T, d = X.shape
    n = S.shape[0]
    k = n // d
    totals, constants, theta, seen, _, _, _, room, nodes = sections_of(memo, d, k)
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
        _open_block(S, theta, X[start:stop], P[:m], Cm, q[:m])
        _learn_block(
            Cm, q[:m], Gm, c[:m], constants, nodes, norms[start:stop], norm(theta),
            labels[start:stop], soft[start:stop] if soft.shape[0] > 0 else soft,
            weights[start:stop], learning, totals, out[start:stop],
        )  # fmt: skip
        if not learning:
            continue
        seen[d] = 0.0
        if not absorb(S, theta, P[:m], Gm, c[:m], room, SPARE / constants[rules.LAM]):
            for i in range(rules.N_TOTALS):
                totals[i] = totals_before[i]
            run_loop(S, memo, X, labels, soft, weights, start, stop, learning, out)
            seen[d] = 0.0
