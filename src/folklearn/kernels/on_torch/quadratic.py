"""Quadratics of pairs of classes as tensors of a device, and their linear systems."""

import math
from functools import cached_property
from typing import Any

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.on_torch.device import Device, back
from folklearn.kernels.on_torch.expand import incidence, pairs

_BLOCK_UNKNOWNS = 2048  # that are solved for at once, about
_MAX_INVERTED_ROWS = 64  # of a matrix that is inverted in one piece


class Factor:
    """The factor L of a symmetric matrix LL'.

    A device solves triangular systems one unknown after the other, and needs as long for it as
    for the factor. So the blocks on the diagonal are inverted, and all the rest is products.
    """

    def __init__(self, device: Device, L: Any, block: int = _BLOCK_UNKNOWNS) -> None:
        self._device, self._L, self._block = device, L, block

    @cached_property
    def _blocks(self) -> list[tuple[slice, Any]]:
        """Where the blocks on the diagonal are, and their inverses."""
        L, n = self._L, len(self._L)
        halvings = max(0, math.ceil(math.log2(self._block / _MAX_INVERTED_ROWS)))
        multiple = 2**halvings  # so that all blocks are halved as often
        b = multiple * math.ceil(n / (multiple * math.ceil(n / self._block)))
        blocks = L.new_zeros(math.ceil(n / b), b, b)
        blocks.diagonal(dim1=1, dim2=2).fill_(1.0)  # beyond the end
        places = [slice(start, min(start + b, n)) for start in range(0, n, b)]
        for block, at in zip(blocks, places, strict=True):
            size = at.stop - at.start
            block[:size, :size] = L[at, at]
        inverses = invert(self._device, blocks)
        return [
            (at, inverse[: at.stop - at.start, : at.stop - at.start])
            for at, inverse in zip(places, inverses, strict=True)
        ]

    def solve(self, sides: Any) -> Any:
        """Return the solutions (n, k) for right-hand sides (n, k)."""
        L = self._L
        if len(L) <= self._block:
            return sides.cholesky_solve(L)
        x = sides.clone()
        for at, inverse in self._blocks:
            x[at] = inverse @ (x[at] - L[at, : at.start] @ x[: at.start])
        for at, inverse in reversed(self._blocks):
            x[at] = inverse.T @ (x[at] - L[at.stop :, at].T @ x[at.stop :])
        return x

    def solve_array(self, sides: Array) -> Array:
        """Return the solutions for right-hand sides (n,) or (n, k), both as arrays."""
        columns = self._device.put(sides.reshape(len(sides), -1))
        return back(self.solve(columns)).reshape(sides.shape)


def invert(device: Device, L: Any) -> Any:
    """Return the inverses of lower triangular matrices (q, b, b), by halves."""
    torch, b = device.torch, L.shape[1]
    if b <= _MAX_INVERTED_ROWS or b % 2:
        identity = torch.eye(b, dtype=L.dtype, device=L.device)
        return torch.linalg.solve_triangular(L, identity.expand_as(L), upper=False)
    h = b // 2
    A, C = invert(device, torch.cat([L[:, :h, :h], L[:, h:, h:]])).split(len(L))
    inverse = torch.zeros_like(L)
    inverse[:, :h, :h], inverse[:, h:, h:] = A, C
    inverse[:, h:, :h] = -(C @ L[:, h:, :h] @ A)
    return inverse


def factorise(device: Device, matrix: Any) -> Factor | None:
    """Return the factor of a matrix, or None if it has none; the matrix is not changed."""
    L, info = device.torch.linalg.cholesky_ex(matrix)
    return Factor(device, L) if int(info) == 0 else None


def pull(device: Device, S: Any, W: Any) -> Any:
    """Return, for models W (E, K, d), the sums over j of S_ij (w_i - w_j)."""
    i, j = pairs(device, W.shape[1])
    differences = (W[:, i] - W[:, j]).permute(1, 2, 0)  # (P, d, E)
    return incidence(device, W.shape[1]) @ (S @ differences).permute(2, 0, 1)


def matrix(device: Device, S: Any, K: int, n_rows: int | None = None) -> Any:
    """Return the matrix, class-major, of the form with matrices S (P, d, d).

    Of all K classes, or of the first `n_rows`, as if the others were held at 0.
    """
    torch, d = device.torch, S.shape[1]
    k = n_rows or K
    i, j = pairs(device, K)
    pair_of = torch.zeros(K, K, dtype=torch.long, device=device.place)
    pair_of[i, j] = pair_of[j, i] = torch.arange(len(S), device=device.place)
    M = torch.empty(k, d, k, d, dtype=S.dtype, device=device.place)
    torch.neg(S[pair_of[:k, :k]].permute(0, 2, 1, 3), out=M)
    diagonal = incidence(device, K)[:k].abs() @ S.flatten(1)
    M.diagonal(dim1=0, dim2=2).copy_(diagonal.view(k, d, d).permute(1, 2, 0))
    return M.view(k * d, k * d)


def curvature(device: Device, S: Any, K: int) -> Any:
    """Return the same with the last class held at 0, ((K-1)d, (K-1)d)."""
    return matrix(device, S, K, K - 1)


def add_ridge(H: Any, ridge: float, K: int) -> Any:
    """Return H plus the ridge of centred models, ridge (I - 11'/K) (x) I."""
    n = len(H)
    d = n // (K - 1)
    out = H.clone()
    out.view(K - 1, d, K - 1, d).diagonal(dim1=1, dim2=3).sub_(ridge / K)
    out.diagonal().add_(ridge)
    return out


def newton_steps(factor: Factor, gradients: Any) -> Any:
    """Return the steps (E, K, d) to where gradients of the quadratic vanish, centred."""
    E, K, d = gradients.shape
    steps = gradients.new_zeros(E, K, d)
    sides = -0.5 * gradients[:, : K - 1].reshape(E, (K - 1) * d).T
    steps[:, : K - 1] = factor.solve(sides).T.view(E, K - 1, d)
    return steps - steps.mean(1, keepdim=True)


def mode(device: Device, S: Any, G: Any, ridge: float) -> Array | None:
    """Return the minimiser (K, d) of ridge |W|^2 and a quadratic; None if there is no factor."""
    K = len(G)
    factor = factorise(device, add_ridge(curvature(device, S, K), ridge, K))
    if factor is None:
        return None
    W = newton_steps(factor, G[None])[0]
    return back(W) if bool(W.isfinite().all()) else np.zeros(G.shape)
