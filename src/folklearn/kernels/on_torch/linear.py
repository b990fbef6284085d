"""Symmetric systems on a device."""

import math
from functools import cached_property
from typing import Any

from folklearn.kernels.on_torch.device import Device

_BLOCK = 2048  # unknowns that are solved for at once, about
_SMALL = 64  # matrices that are inverted in one piece


class Factor:
    """The factor L of a symmetric matrix LL'.

    A device solves triangular systems one unknown after the other, and needs as long for it as
    for the factor. So the blocks on the diagonal are inverted, and all the rest is products.
    """

    def __init__(self, device: Device, L: Any, block: int = _BLOCK) -> None:
        self._device, self._L, self._block = device, L, block

    @cached_property
    def _blocks(self) -> list[tuple[slice, Any]]:
        """Where the blocks on the diagonal are, and their inverses."""
        L, n = self._L, len(self._L)
        halvings = max(0, math.ceil(math.log2(self._block / _SMALL)))
        piece = 2**halvings  # so that all blocks are halved as often
        b = piece * math.ceil(n / (piece * math.ceil(n / self._block)))
        blocks = L.new_zeros(math.ceil(n / b), b, b)
        blocks.diagonal(dim1=1, dim2=2).fill_(1.0)  # beyond the end
        places = [slice(start, min(start + b, n)) for start in range(0, n, b)]
        for block, at in zip(blocks, places, strict=True):
            own = L[at, at]
            block[: len(own), : len(own)] = own
        inverses = inverted(self._device, blocks)
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


def inverted(device: Device, L: Any) -> Any:
    """Return the inverses of lower triangular matrices (q, b, b), by halves."""
    torch, b = device.torch, L.shape[1]
    if b <= _SMALL or b % 2:
        one = torch.eye(b, dtype=L.dtype, device=L.device)
        return torch.linalg.solve_triangular(L, one.expand_as(L), upper=False)
    h = b // 2
    A, C = inverted(device, torch.cat([L[:, :h, :h], L[:, h:, h:]])).split(len(L))
    inverse = torch.zeros_like(L)
    inverse[:, :h, :h], inverse[:, h:, h:] = A, C
    inverse[:, h:, :h] = -(C @ L[:, h:, :h] @ A)
    return inverse


def factored(device: Device, matrix: Any) -> Factor | None:
    """Return the factor of a matrix, or None if it has none; the matrix stays as it is."""
    L, info = device.torch.linalg.cholesky_ex(matrix)
    return Factor(device, L) if int(info) == 0 else None
