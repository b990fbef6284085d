"""Symmetric systems on a device."""

from functools import cached_property
from typing import Any

from folklearn.numerics.on_torch.device import Device

BLOCK = 1024  # unknowns that are solved for at once


class Factor:
    """The factor L of a symmetric matrix LL'.

    A device solves triangular systems one unknown after the other, and needs as long for it as
    for the factor. So the blocks on the diagonal are inverted, and all the rest is products.
    """

    def __init__(self, device: Device, L: Any, block: int = BLOCK) -> None:
        self._device, self._L, self._block = device, L, block

    @cached_property
    def _inverses(self) -> list[Any]:
        torch, L, b = self._device.torch, self._L, self._block
        one = torch.eye(b, dtype=L.dtype, device=L.device)
        whole = len(L) // b
        equal = torch.stack([L[k * b : (k + 1) * b, k * b : (k + 1) * b] for k in range(whole)])
        found = list(torch.linalg.solve_triangular(equal, one.expand_as(equal), upper=False))
        rest = L[whole * b :, whole * b :]
        if len(rest):
            m = len(rest)
            found.append(torch.linalg.solve_triangular(rest, one[:m, :m], upper=False))
        return found

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


def factored(device: Device, matrix: Any) -> Factor | None:
    """Return the factor of a matrix, or None if it has none; the matrix stays as it is."""
    L, info = device.torch.linalg.cholesky_ex(matrix)
    return Factor(device, L) if int(info) == 0 else None
