"""The second-order state as an object: arrays, and the compiled calls that move them."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from folklearn.arrays import Array
from folklearn.kernels.blas import THREADED_N, OneThread, one_thread
from folklearn.kernels.block_update import block_size, run_loop, run_rounds
from folklearn.kernels.prediction_rules import (
    AT_THE_MEAN,
    EXPLICIT,
    INTEGRAL,
    LAM,
    N_CONSTANTS,
    N_TOTALS,
)
from folklearn.kernels.second_order import SPARE, memo_size
from folklearn.kernels.simplex import helmert

_CHUNK_FLOPS = 3e9  # work between two chances to report progress or to be interrupted


class SecondOrderState:
    """S = A^-1 and theta = A^-1 g of the surrogate sum, in reduced coordinates.

    Arguments are validated by the caller. `totals` adds up the rounds (see `rules`). nodes None
    chooses the explicit rule, nodes (m, k) the integral, nodes (0, k) the softmax at the mean.
    gamma 0 is the largest valid.
    A single event is too short for another layer of calls: learners pass S and memo to
    `predict_round` and `update_round` themselves, the latter inside `one_thread` unless
    that is None.
    """

    __slots__ = ("S", "_n_kept", "d", "gamma", "k", "memo", "one_thread")

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
        self.d = d
        self.k = k = K - 1
        n = k * d
        self.S: Array = np.zeros((n, n))
        np.fill_diagonal(self.S, 1.0 / lam)
        n_nodes = 0 if nodes is None else len(nodes)
        self.memo: Array = np.zeros(memo_size(d, k, n_nodes))
        first = N_TOTALS + N_CONSTANTS
        self._n_kept = first + n
        self.gamma = gamma
        rule = EXPLICIT if nodes is None else INTEGRAL if n_nodes else AT_THE_MEAN
        self.memo[N_TOTALS:first] = B, gamma, pull, mu, max_norm, lam, rule
        if nodes is not None and n_nodes:
            self.memo[-nodes.size :] = nodes.ravel()
        self.one_thread = one_thread(n, k)

    # Views are made when asked for: stored ones would not survive a copy of this object.
    @property
    def totals(self) -> Array:
        """What the rounds add up to."""
        return self.memo[:N_TOTALS]

    @property
    def theta(self) -> Array:
        """A^-1 g, (n,)."""
        return self.memo[N_TOTALS + N_CONSTANTS : self._n_kept]

    def predict_many(self, X: Array, norms: Array) -> Array:
        """Return p (T, K), every row from the current state."""
        T = len(X)
        no_soft = np.empty((0, self.k + 1))
        return self._run(X, norms, np.zeros(T, np.int64), no_soft, np.zeros(T), False, None)[0]

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
    ) -> tuple[Array, Array]:
        """Predict, then learn, row by row; return p (T, K) and the losses (T,).

        Blocks are as long as is fastest, or of `block` rounds: of 1, bytes are those of the loop.
        """
        return self._run(X, norms, labels, soft, weights, True, report, block)

    def _run(
        self,
        X: Array,
        norms: Array,
        labels: NDArray[np.int64],
        soft: Array,
        weights: Array,
        learning: bool,
        report: Callable[[int], None] | None,
        block: int = 0,
    ) -> tuple[Array, Array]:
        T = len(X)
        n = self.theta.size
        b = block or block_size(self.d, self.k)
        # Whole blocks per chunk, so that the chunks do not change the result.
        chunk = b * max(1, int(_CHUNK_FLOPS / (n * n * (self.k + 2.0) + 5e4) / b))
        out = np.empty((T, self.k + 1))
        losses = np.empty(T)
        for start in range(0, T, chunk):
            rows = slice(start, min(start + chunk, T))
            with nullcontext() if n >= THREADED_N else OneThread():
                part = X[rows], labels[rows], soft[rows] if len(soft) else soft, weights[rows]
                results = learning, out[rows], losses[rows]
                if b == 1:
                    m = rows.stop - rows.start
                    run_loop(self.S, self.memo, *part, 0, m, *results)
                else:
                    run_rounds(self.S, self.memo, part[0], norms[rows], *part[1:], b, *results)
            if report is not None:
                report(rows.stop)
        return out, losses

    def mean(self) -> Array:
        """Return the minimiser of the surrogate sum as W (K, d)."""
        return helmert(self.k + 1) @ (-0.5 * self.theta.reshape(self.k, self.d))

    def adopt(self, smaller: "SecondOrderState") -> None:
        """Become a state of fewer features or classes, with nothing known of the others.

        The Helmert basis is nested, so that old coordinates keep their meaning: a new class
        and a new feature add coordinates on which only the ridge acts, A = diag(A, lam I).
        """
        k, d = smaller.k, smaller.d
        places = (np.arange(k)[:, None] * self.d + np.arange(d)).ravel()
        self.S[np.ix_(places, places)] = smaller.S  # in order: lower triangle to lower triangle
        self.theta[places] = smaller.theta
        self.totals[:] = smaller.totals

    def discount(self, keep: float) -> None:
        """Let all examples so far count `keep` times what they did: A' = keep A + (1 - keep) lam I.

        The ridge keeps its full weight, which no update of S alone could do: O(n^3).
        """
        n = self.theta.size
        lam = self.memo[N_TOTALS + LAM]
        with nullcontext() if n >= THREADED_N else OneThread():
            A = _inverse(self.S, SPARE / lam)
            g = A @ self.theta
            A *= keep
            A.flat[:: n + 1] += (1.0 - keep) * lam
            self.S[:] = _inverse(A, lam)
            self.theta[:] = self.S @ (keep * g)
        self.memo[self._n_kept + self.d] = 0.0  # what was seen is not fresh

    def renew(self, feature: int) -> None:
        """Know nothing of one feature any more, and of the others what was known: O(n).

        S is the inverse of the curvature, so that dropping rows and columns of it minimises
        over the weights of the feature; the new ones have the ridge alone.
        """
        for place in range(feature, self.theta.size, self.d):
            self.S[place, :place] = 0.0
            self.S[place:, place] = 0.0
            self.S[place, place] = 1.0 / self.memo[N_TOTALS + LAM]
            self.theta[place] = 0.0
        self.memo[self._n_kept + self.d] = 0.0  # what was seen is not fresh

    def packed(self) -> Array:
        """Return the lower triangle of S by rows, n(n+1)/2 numbers."""
        n = self.theta.size
        out = np.empty(n * (n + 1) // 2)
        for i in range(n):
            out[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] = self.S[i, : i + 1]
        return out

    def restore(self, lower: Array, theta: Array, totals: Array) -> None:
        """Become the state whose `packed`, `theta` and `totals` these are."""
        for i in range(self.theta.size):
            self.S[i, : i + 1] = lower[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2]
        self.memo[self._n_kept + self.d] = 0.0  # what was seen is not fresh
        self.theta[:] = theta
        self.totals[:] = totals


def _inverse(lower: Array, ridge: float) -> Array:
    """Return the inverse of a positive definite matrix, given by its lower triangle.

    To one that rounding has made indefinite a ridge is added, ten times larger at every try.
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
