"""Symmetric systems on a device."""

from functools import cached_property
from typing import Any

from folklearn.numerics.on_torch.device import Device

BLOCK = 1024  # unknowns that are solved for at once
_SMALL = 64  # matrices that are inverted in one piece


class Factor:
    """The factor L of a symmetric matrix LL'.

    A device solves triangular systems one unknown after the other, and needs as long for it as
    for the factor. So the blocks on the diagonal are inverted, and all the rest is products.
    """

    def __init__(self, device: Device, L: Any, block: int = BLOCK) -> None:
        self._device, self._L, self._block = device, L, block

    @cached_property
    def _inverses(self) -> list[Any]:
        """The inverses of the blocks on the diagonal; the last block may be smaller."""
        L, b = self._L, self._block
        whole = len(L) // b
        ends = [(k * b, (k + 1) * b) for k in range(whole)]
        equal = self._device.torch.stack([L[start:stop, start:stop] for start, stop in ends])
        found = list(inverted(self._device, equal))
        rest = L[whole * b :, whole * b :]
        return [*found, inverted(self._device, rest[None])[0]] if len(rest) else found

    def solve(self, sides: Any) -> Any:
        """Return the solutions (n, k) for right-hand sides (n, k)."""
        L, b = self._L, self._block
        if len(L) < 2 * b:
            return sides.cholesky_solve(L)
        x = sides.clone()
        for k, inverse in enumerate(self._inverses):
            at, before = slice(k * b, (k + 1) * b), slice(0, k * b)
            x[at] = inverse @ (x[at] - L[at, before] @ x[before])
        for k, inverse in reversed(list(enumerate(self._inverses))):
            at, after = slice(k * b, (k + 1) * b), slice((k + 1) * b, None)
            x[at] = inverse.T @ (x[at] - L[after, at].T @ x[after])
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
