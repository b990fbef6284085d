"""The second-order state as an object: arrays, and the compiled calls that move them."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray

from folklearn.numerics.backend import blas_threads
from folklearn.numerics.blocks import block_size, run_rounds
from folklearn.numerics.second_order import (
    N_TOTALS,
    new_memo,
    predict_round,
    update_round,
)
from folklearn.numerics.simplex import helmert

Array = NDArray[np.float64]

_CHUNK_FLOPS = 3e9  # work between two chances to report progress or to be interrupted


class SecondOrderState:
    """S = A^-1 and theta = A^-1 g of the surrogate sum, in reduced coordinates.

    Arguments are validated by the caller. `totals` adds up the rounds (see `second_order`).
    """

    __slots__ = ("S", "_arrays", "_update_threads", "d", "k", "theta", "totals")

    def __init__(self, d: int, K: int, lam: float) -> None:
        self.d = d
        self.k = K - 1
        n = self.k * d
        self.S: Array = np.zeros((n, n))
        np.fill_diagonal(self.S, 1.0 / lam)
        self.theta: Array = np.zeros(n)
        self.totals: Array = np.zeros(N_TOTALS)
        self._arrays = (self.S, self.theta, *new_memo(d, self.k))
        self._update_threads = blas_threads(n, self.k)

    def predict(self, x: Array, max_norm: float) -> Array | None:
        """Return p (K,), or None if |x| is not at most max_norm."""
        p = np.empty(self.k + 1)
        return p if predict_round(*self._arrays, x, max_norm, p) else None

    def update(
        self,
        x: Array,
        label: int,
        soft: Array,
        weight: float,
        B: float,
        gamma: float,
        max_norm: float,
    ) -> float:
        """Learn one example; return its loss, or NaN if |x| is not at most max_norm."""
        if self._update_threads is None:
            return update_round(  # type: ignore[no-any-return]
                *self._arrays, self.totals, x, label, soft, weight, B, gamma, max_norm
            )
        with self._update_threads:
            return update_round(  # type: ignore[no-any-return]
                *self._arrays, self.totals, x, label, soft, weight, B, gamma, max_norm
            )

    def predict_many(self, X: Array, norms: Array) -> Array:
        """Return p (T, K), every row from the current state."""
        T = len(X)
        return self._run(X, norms, np.zeros(T, np.int64), np.empty((0, self.k + 1)),
                         np.zeros(T), 0.0, 0.0, False, None)[0]  # fmt: skip

    def run(
        self,
        X: Array,
        norms: Array,
        labels: NDArray[np.int64],
        soft: Array,
        weights: Array,
        B: float,
        gamma: float,
        report: Callable[[int], None] | None = None,
    ) -> tuple[Array, Array]:
        """Predict, then learn, row by row; return p (T, K) and the losses (T,)."""
        return self._run(X, norms, labels, soft, weights, B, gamma, True, report)

    def _run(
        self,
        X: Array,
        norms: Array,
        labels: NDArray[np.int64],
        soft: Array,
        weights: Array,
        B: float,
        gamma: float,
        learn: bool,
        report: Callable[[int], None] | None,
    ) -> tuple[Array, Array]:
        T = len(X)
        n = self.theta.size
        b = block_size(self.d, self.k)
        # Whole blocks per chunk, so that the chunks do not change the result.
        chunk = b * max(1, int(_CHUNK_FLOPS / (n * n * (self.k + 2.0) + 5e4) / b))
        P = np.empty((T, self.k + 1))
        losses = np.empty(T)
        for start in range(0, T, chunk):
            rows = slice(start, min(start + chunk, T))
            with blas_threads(n, b * self.k) or nullcontext():
                run_rounds(
                    *self._arrays, self.totals, X[rows], norms[rows],
                    labels[rows], soft[rows] if len(soft) else soft, weights[rows],
                    B, gamma, b, learn, P[rows], losses[rows],
                )  # fmt: skip
            if report is not None:
                report(rows.stop)
        return P, losses

    def mean(self) -> Array:
        """Return the minimiser of the surrogate sum as W (K, d)."""
        return helmert(self.k + 1) @ (-0.5 * self.theta.reshape(self.k, self.d))

    def packed(self) -> Array:
        """Return the lower triangle of S by rows, n(n+1)/2 numbers."""
        n = self.theta.size
        out = np.empty(n * (n + 1) // 2)
        for i in range(n):
            out[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] = self.S[i, : i + 1]
        return out

    def unpack(self, lower: Array) -> None:
        """Replace S by what `packed` returned."""
        for i in range(self.theta.size):
            self.S[i, : i + 1] = lower[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2]
        self._arrays = (self.S, self.theta, *new_memo(self.d, self.k))
