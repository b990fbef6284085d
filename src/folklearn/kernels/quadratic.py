"""A sum of evidence as it is stored, and the linear algebra that a floor and a fit need of it.

`folklearn.kernels.on_torch.quadratic` has the same on a device: whoever solves for something
asks a quadratic, and need not know where it lies.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from folklearn.arrays import Array
from folklearn.kernels.newton import factor_ridge, jump, pull

Solve = Callable[[Array], Array]  # right-hand sides (n,) or (n, k) to solutions
_MOST_NUDGES = 40


class Quadratic(NamedTuple):
    """Pairs S (P, D) packed, G (K, d), totals."""

    S: Array
    G: Array
    totals: Array

    @property
    def shape(self) -> tuple[int, int]:
        """K and d."""
        return self.G.shape[0], self.G.shape[1]

    def blocks(self) -> Array:
        """Return S_ij as full matrices, (P, d, d)."""
        d = self.shape[1]
        rows, columns = np.tril_indices(d)
        full = np.empty((len(self.S), d, d))
        full[:, rows, columns] = self.S
        full[:, columns, rows] = self.S
        return full

    def copy(self) -> "Quadratic":
        """Return the same in arrays of its own."""
        return Quadratic(*(part.copy() for part in self))

    def form(self) -> "Form":
        """Return what is evaluated and solved again and again, made once."""
        return Form(self.blocks())

    def pulled(self, W: Array) -> Array:
        """Return (K, d), for each i the sum over j of S_ij (w_i - w_j)."""
        out = np.empty_like(W)
        pull(self.S, np.ascontiguousarray(W), out)
        return out

    def mode(self, ridge: float) -> Array | None:
        """Return where ridge |W|^2 + this is least, (K, d); None if rounding leaves no factor."""
        K, d = self.shape
        n = (K - 1) * d
        H, W = np.empty((n, n)), np.zeros((K, d))
        if not factor_ridge(self.S, ridge, K, H):
            return None
        jump(self.G, H, W)
        return W


class Form:
    """sum (w_i - w_j)' S_ij (w_i - w_j), from full matrices (P, d, d)."""

    def __init__(self, blocks: Array) -> None:
        self._blocks = blocks
        self._matrix: Array | None = None
        self.traces: Array = np.trace(blocks, axis1=1, axis2=2)

    @property
    def matrix(self) -> Array:
        """The matrix (Kd, Kd) of the form, class-major; made when it is first asked for."""
        if self._matrix is None:
            self._matrix = matrix(self._blocks)
        return self._matrix

    @property
    def largest(self) -> float:
        """The largest entry on its diagonal."""
        return float(self.matrix.diagonal().max())

    def along(self, apart: Array) -> Array:
        """Return S_ij times one vector each, (P, d)."""
        along: Array = np.matmul(self._blocks, apart[:, :, None])[:, :, 0]
        return along

    def factored(self, multipliers: Array) -> Solve:
        """Return the solver of its matrix plus diag(multipliers) (x) I.

        What rounding made indefinite is nudged until it has a factor.
        """
        n = len(self.matrix)
        shifted = self.matrix.copy()
        shifted.flat[:: n + 1] += np.repeat(multipliers, n // len(multipliers))
        for nudge in nudges(n, self.largest):
            try:
                factor = cho_factor(shifted, lower=True, check_finite=False)
            except LinAlgError:
                shifted.flat[:: n + 1] += nudge
            else:
                return lambda sides: np.asarray(cho_solve(factor, sides, check_finite=False))
        raise LinAlgError("a sum of evidence is not a number any more")


def matrix(blocks: Array) -> Array:
    """Return the matrix (Kd, Kd), class-major, of a form with full matrices (P, d, d)."""
    d = blocks.shape[1]
    K = n_classes(len(blocks))
    M = np.zeros((K, d, K, d))
    for (i, j), block in zip(pairs(K), blocks, strict=True):
        M[i, :, i] += block
        M[j, :, j] += block
        M[i, :, j] = -block
        M[j, :, i] = -block
    return M.reshape(K * d, K * d)


def nudges(n: int, largest: float) -> list[float]:
    """Return what is added to the diagonal, one after the other, until there is a factor."""
    first = 1e-15 * n * max(largest, 1e-300)
    return [first * 4.0**k for k in range(_MOST_NUDGES)]


def pairs(K: int) -> list[tuple[int, int]]:
    """Return the pairs of classes in their order."""
    return [(i, j) for i in range(K) for j in range(i + 1, K)]


def n_classes(n_pairs: int) -> int:
    """Return the number of classes that have so many pairs."""
    return int((1 + np.sqrt(1 + 8 * n_pairs)) // 2)
