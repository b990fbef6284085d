"""The matrix products that `run` cannot avoid, alone: what is left is the library's own part.

They are the product for P and the rank update of S, at the library's block size. Where the
library chooses a block of one round they are its pass over S and a rank-k update.
"""

import numpy as np
from numba import njit
from peers import Competitor, Labels, Rows

from folklearn.kernels.blas import PLAIN, syrk
from folklearn.kernels.second_order import context_stats
from folklearn.kernels.second_order_blocks import context_products

_TINY = 1e-6  # norm of x: S stays as it is while S -= PP' is repeated thousands of times


@njit(nogil=True)
def _block_calls(S, X, P, repeats):  # type: ignore[no-untyped-def]
    m, n = P.shape
    for _ in range(repeats):
        context_products(S, X, P)
        syrk(PLAIN, n, m, -1.0, P, 0, n, S, 0, n)


@njit(nogil=True)
def _round_calls(S, theta, x, P, C, q, repeats):  # type: ignore[no-untyped-def]
    for _ in range(repeats):
        context_stats(S, theta, x, P, C, q)
        syrk(PLAIN, P.shape[1], P.shape[0], -1.0, P, 0, P.shape[1], S, 0, P.shape[1])


def blas_calls(d: int, K: int, block: int) -> Competitor:
    """Return the products of `run`; a row costs one share of a block."""
    k = K - 1
    n = k * d
    rng = np.random.default_rng([d, K])
    S = np.eye(n) + 1e-3 * rng.normal(size=(n, n))
    X = _TINY * rng.normal(size=(block, d)) / np.sqrt(d)
    P = np.zeros((block * k, n))
    theta, C, q = rng.normal(size=n), np.zeros((k, k)), np.zeros(k)

    def repeats(X: Rows, y: Labels) -> int:
        return len(X) // block

    def play(repeats: int) -> None:
        if block == 1:
            _round_calls(S, theta, X[0], P, C, q, repeats)
        else:
            _block_calls(S, X, P, repeats)

    return Competitor("blas", repeats, play, block)
