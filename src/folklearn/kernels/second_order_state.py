"""The second-order state as an object, and many rounds of it at BLAS-3 speed.

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

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from folklearn.arrays import Array
from folklearn.kernels import prediction_rules as rules
from folklearn.kernels.blas import (
    LEFT,
    PLAIN,
    RIGHT,
    TRANSPOSED,
    gemm,
    one_thread,
    symm,
    syrk,
    threads_for,
    trmm,
)
from folklearn.kernels.compile import kernel
from folklearn.kernels.second_order import (
    SPARE,
    absorb,
    memo_offsets,
    norm,
    predict_round,
    sections_of,
    update_round,
)
from folklearn.kernels.simplex import helmert

_FLOPS_BETWEEN_REPORTS = 3e9  # work between two chances to report progress or to be interrupted


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
def run_loop(S, memo, X, labels, soft, weights, start, stop, learning, out):
    """Predict the rows from start to before stop one by one, and learn them."""
    no_label = np.empty(0)
    for t in range(start, stop):
        predict_round(S, memo, X[t], out[t])
        if learning:
            y = soft[t] if labels[t] < 0 else no_label
            update_round(S, memo, X[t], labels[t], y, weights[t])


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


class SecondOrderState:
    """S = A^-1 and theta = A^-1 g of the surrogate sum, in reduced coordinates.

    nodes None chooses the explicit rule, nodes (m, k) the implicit one; gamma 0 is the largest
    valid. A single event is too short for another layer of calls: learners pass S and memo to
    `predict_round` and `update_round` themselves, the latter inside `one_thread` unless that is
    None.
    """

    __slots__ = ("S", "d", "gamma", "k", "memo", "one_thread")

    def __init__(
        self,
        d: int,
        K: int,
        lam: float,
        *,
        B: float,
        gamma: float,
        max_norm: float,
        pull: float = 0.5,
        mu: float = 0.0,
        nodes: Array | None = None,
    ) -> None:
        self.d, self.k, self.gamma = d, K - 1, gamma
        n = self.k * d
        self.S: Array = np.zeros((n, n))
        np.fill_diagonal(self.S, 1.0 / lam)
        rule = rules.EXPLICIT if nodes is None else rules.IMPLICIT
        constants = B, gamma, pull, mu, max_norm, lam, rule
        at_nodes = memo_offsets(d, self.k)[-1]
        self.memo: Array = np.zeros(at_nodes + (0 if nodes is None else nodes.size))
        self.memo[rules.N_TOTALS :][: rules.N_CONSTANTS] = constants
        if nodes is not None:
            self.memo[at_nodes:] = nodes.ravel()
        self.one_thread = one_thread(n, self.k)

    # Views are made when asked for: stored ones would not survive a copy of this object.
    @property
    def totals(self) -> Array:
        """What the rounds add up to."""
        return self.memo[: rules.N_TOTALS]

    @property
    def theta(self) -> Array:
        """A^-1 g, (n,)."""
        start, stop, *_ = memo_offsets(self.d, self.k)
        return self.memo[start:stop]

    @property
    def _lam(self) -> float:
        return float(self.memo[rules.N_TOTALS + rules.LAM])

    def _forget_context(self) -> None:
        self.memo[memo_offsets(self.d, self.k)[1] + self.d] = 0.0

    def predict_many(self, X: Array, norms: Array) -> Array:
        """Return p (T, K), every row from the current state."""
        T = len(X)
        no_soft = np.empty((0, self.k + 1))
        labels = np.zeros(T, np.int64)
        return self.run(X, norms, labels, no_soft, np.zeros(T), learning=False)

    def run(
        self,
        X: Array,
        norms: Array,
        labels: NDArray[np.int64],
        soft: Array,
        weights: Array,
        report: Callable[[int], None] | None = None,
        *,
        block: int = 0,
        learning: bool = True,
    ) -> Array:
        """Predict, then learn, row by row; return p (T, K). Blocks of 1 are the loop in bytes."""
        T, n = len(X), len(self.S)
        b = block or block_size(self.d, self.k)
        # Whole blocks per chunk, so that the chunks do not change the result.
        chunk = b * max(1, int(_FLOPS_BETWEEN_REPORTS / (n * n * (self.k + 2.0) + 5e4) / b))
        out = np.empty((T, self.k + 1))
        for start in range(0, T, chunk):
            rows = slice(start, min(start + chunk, T))
            labelled = labels[rows], soft[rows] if len(soft) else soft, weights[rows]
            with threads_for(n):
                if b == 1:
                    m = rows.stop - rows.start
                    run_loop(self.S, self.memo, X[rows], *labelled, 0, m, learning, out[rows])
                else:
                    run_rounds(
                        self.S, self.memo, X[rows], norms[rows], *labelled, b, learning, out[rows]
                    )
            if report is not None:
                report(rows.stop)
        return out

    def mean(self) -> Array:
        """Return the minimiser of the surrogate sum as W (K, d)."""
        return helmert(self.k + 1) @ (-0.5 * self.theta.reshape(self.k, self.d))

    def adopt(self, smaller: "SecondOrderState") -> None:
        """Become a state of fewer features or classes, with nothing known of the others.

        The Helmert basis is nested: old coordinates keep their meaning, A = diag(A, lam I).
        """
        k, d = smaller.k, smaller.d
        places = (np.arange(k)[:, None] * self.d + np.arange(d)).ravel()
        self.S[np.ix_(places, places)] = smaller.S  # in order: lower triangle to lower triangle
        self.theta[places] = smaller.theta
        self.totals[:] = smaller.totals

    def discount(self, keep: float) -> None:
        """Let all examples count `keep` times: A' = keep A + (1 - keep) lam I, in O(n^3)."""
        n = len(self.S)
        lam = self._lam
        with threads_for(n):
            A = _inverse(self.S, SPARE / lam)
            g = A @ self.theta
            A *= keep
            A.flat[:: n + 1] += (1.0 - keep) * lam
            self.S[:] = _inverse(A, lam)
            self.theta[:] = self.S @ (keep * g)
        self._forget_context()

    def renew(self, feature: int) -> None:
        """Know nothing of one feature any more: O(n).

        To drop rows and columns of the inverse curvature minimises over the weights of the feature.
        """
        for row in range(feature, self.theta.size, self.d):
            self.S[row, :row] = 0.0
            self.S[row:, row] = 0.0
            self.S[row, row] = 1.0 / self._lam
            self.theta[row] = 0.0
        self._forget_context()

    def pack(self) -> Array:
        """Return the lower triangle of S by rows, n(n+1)/2 numbers."""
        lower: Array = self.S[np.tri(len(self.S), dtype=bool)]
        return lower

    def restore(self, lower: Array, theta: Array, totals: Array) -> None:
        """Become the state whose `pack()`, `theta` and `totals` these are."""
        self.S[np.tri(len(self.S), dtype=bool)] = lower
        self._forget_context()
        self.theta[:] = theta
        self.totals[:] = totals


def _inverse(lower: Array, ridge: float) -> Array:
    """Return the inverse of a positive definite matrix, given by its lower triangle.

    If rounding has made it indefinite a ridge is added, ten times larger at every try.
    """
    # LAPACK counts by columns: its upper triangle is our lower one.
    factor, failed = dpotrf(lower.T, lower=False)
    while failed:
        raised = lower + ridge * np.eye(len(lower))
        factor, failed = dpotrf(raised.T, lower=False)
        ridge *= 10.0
    inverse, _ = dpotri(factor, lower=False)
    upper = np.triu(inverse)
    full: Array = upper + np.triu(upper, 1).T
    return full
