"""Sums of quadratics, as arrays or on a device, and the linear algebra that bounds and fits need.

Callers ask a `Quadratic` and need not know where its numbers are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from folklearn.arrays import Array
from folklearn.kernels.evidence import DEPTH, N_TOTALS, n_pairs, n_products
from folklearn.kernels.newton import factor_ridge, jump, pull
from folklearn.kernels.on_torch import quadratic as on_torch
from folklearn.kernels.on_torch.device import Device, back

Solve = Callable[[Array], Array]  # right-hand sides (n,) or (n, k) to solutions

_MIN_DEVICE_UNKNOWNS = 1500  # below, the CPU is faster: a device waits for each of many steps
_MAX_NUDGES = 40


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A sum of evidence: matrices S of pairs of classes, slopes G (K, d), totals (N_TOTALS,).

    S is (P, d(d+1)/2), the lower triangles of the matrices. On a device S and G are tensors and S
    is (P, d, d); totals are always an array. Several sums can be stacked along a first axis.
    """

    S: Any
    G: Any
    totals: Array
    device: Device | None = None

    @classmethod
    def zeros(
        cls, K: int, d: int, *, device: Device | None = None, stacked: tuple[int, ...] = ()
    ) -> "Quadratic":
        """Return a sum of no rows, or several."""
        totals = np.zeros((*stacked, N_TOTALS))
        if device is None:
            S = np.zeros((*stacked, n_pairs(K), n_products(d)))
            return cls(S, np.zeros((*stacked, K, d)), totals)
        S = device.zeros(*stacked, n_pairs(K), d, d)
        return cls(S, device.zeros(*stacked, K, d), totals, device)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.S, self.G, self.totals))

    def __getitem__(self, index: Any) -> "Quadratic":
        """Return one of several stacked sums, not copied."""
        return Quadratic(self.S[index], self.G[index], self.totals[index], self.device)

    def __add__(self, other: "Quadratic") -> "Quadratic":
        """Return the sum of two sums on the same device."""
        totals = merge_totals(self.totals, other.totals)
        return Quadratic(self.S + other.S, self.G + other.G, totals, self.device)

    def copy(self) -> "Quadratic":
        """Return a copy."""
        if self.device is None:
            return Quadratic(*(array.copy() for array in self))
        return Quadratic(self.S.clone(), self.G.clone(), self.totals.copy(), self.device)

    def to(self, device: Device | None) -> "Quadratic":
        """Return a copy on a device, or as arrays."""
        if device == self.device:
            return self.copy()
        if self.device is None:
            assert device is not None
            blocks, G = device.put(self.blocks()), device.put(self.G)
            return Quadratic(blocks, G, self.totals.copy(), device)
        rows, columns = (self.device.put(at) for at in np.tril_indices(self.shape[1]))
        S = back(self.S[:, rows, columns])
        arrays = Quadratic(S, back(self.G).copy(), self.totals.copy())
        return arrays if device is None else arrays.to(device)

    @property
    def shape(self) -> tuple[int, int]:
        """K and d."""
        K, d = self.G.shape
        return K, d

    def blocks(self) -> Any:
        """Return the matrices of pairs in full, (P, d, d)."""
        if self.device is not None:
            return self.S
        d = self.shape[1]
        rows, columns = np.tril_indices(d)
        full = np.empty((len(self.S), d, d))
        full[:, rows, columns] = self.S
        full[:, columns, rows] = self.S
        return full

    def form(self) -> "Form":
        """Return the quadratic as it is evaluated and solved many times, where that is fastest."""
        if self.device is None:
            return Form(self.blocks(), self.G, self.totals)
        small = np.prod(self.shape) < _MIN_DEVICE_UNKNOWNS
        blocks, device = (back(self.S), None) if small else (self.S, self.device)
        return Form(blocks, back(self.G), self.totals, device)

    def gradient(self, W: Array) -> Array:
        """Return the gradient (K, d) at W (K, d)."""
        if self.device is not None:
            pulls = back(on_torch.pull(self.device, self.S, self.device.put(W)[None])[0])
            return back(self.G) + 2.0 * pulls
        pulls = np.empty_like(W)
        pull(self.S, np.ascontiguousarray(W), pulls)
        gradient: Array = self.G + 2.0 * pulls
        return gradient

    def mode(self, ridge: float) -> Array | None:
        """Return the minimiser (K, d) of ridge |W|^2 + this; None if rounding leaves no factor."""
        if self.device is not None:
            return on_torch.mode(self.device, self.S, self.G, ridge)
        K, d = self.shape
        n = (K - 1) * d
        H, W = np.empty((n, n)), np.zeros((K, d))
        if not factor_ridge(self.S, ridge, K, H):
            return None
        jump(self.G, H, W)
        return W


class Form:
    """c + <G, W> + sum (w_i - w_j)' S_ij (w_i - w_j), with G and totals as arrays.

    The matrices S_ij (P, d, d) are an array, or a tensor if there is a device.
    """

    def __init__(self, blocks: Any, G: Array, totals: Array, device: Device | None = None) -> None:
        self._blocks, self.G, self.totals, self.device = blocks, G, totals, device
        self.traces: Array = self._back(blocks.diagonal(0, 1, 2).sum(1))

    def _back(self, values: Any) -> Array:
        array: Array = values if self.device is None else back(values)
        return array

    def _put(self, values: Array) -> Any:
        return values if self.device is None else self.device.put(values)

    @cached_property
    def matrix(self) -> Any:
        """The matrix (Kd, Kd) of the second-order part, class-major."""
        if self.device is None:
            return matrix(self._blocks)
        return on_torch.matrix(self.device, self._blocks, len(self.G))

    @cached_property
    def largest(self) -> float:
        """The largest entry on the diagonal of the matrix."""
        return float(self.matrix.diagonal().max())

    def along(self, differences: Array) -> Array:
        """Return S_ij times a vector each, (P, d)."""
        return self._back((self._blocks @ self._put(differences)[:, :, None])[:, :, 0])

    def solver(self, multipliers: Array) -> Solve:
        """Return the solver of the matrix plus diag(multipliers) (x) I.

        A matrix that rounding made indefinite is nudged until it has a factor.
        """
        n = len(self.matrix)
        shifted = self.matrix.copy() if self.device is None else self.matrix.clone()
        diagonal = np.einsum("ii->i", shifted) if self.device is None else shifted.diagonal()
        diagonal += self._put(np.repeat(multipliers, n // len(multipliers)))
        nudge = 1e-15 * n * max(self.largest, 1e-300)
        for _ in range(_MAX_NUDGES):
            solve = self._factor(shifted)
            if solve is not None:
                return solve
            diagonal += nudge
            nudge *= 4.0
        raise LinAlgError("a sum of evidence is not a number any more")

    def _factor(self, M: Any) -> Solve | None:
        if self.device is not None:
            factor = on_torch.factorise(self.device, M)
            return None if factor is None else factor.solve_array
        try:
            cholesky = cho_factor(M, lower=True, check_finite=False)
        except LinAlgError:
            return None
        return lambda sides: np.asarray(cho_solve(cholesky, sides, check_finite=False))


def merge_totals(one: Array, other: Array) -> Array:
    """Return the totals (..., N_TOTALS) of two sets of rows whose sums were added."""
    both = one + other
    both[..., DEPTH] = np.maximum(one[..., DEPTH], other[..., DEPTH]) + 1.0
    return both


def matrix(blocks: Array) -> Array:
    """Return the matrix (Kd, Kd), class-major, of a form with full matrices (P, d, d)."""
    d = blocks.shape[1]
    K = int((1 + np.sqrt(1 + 8 * len(blocks))) // 2)
    M = np.zeros((K, d, K, d))
    for i, j, block in zip(*np.triu_indices(K, 1), blocks, strict=True):
        M[i, :, i] += block
        M[j, :, j] += block
        M[i, :, j] = -block
        M[j, :, i] = -block
    return M.reshape(K * d, K * d)
