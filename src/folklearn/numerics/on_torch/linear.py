"""Symmetric systems on a device."""

from typing import Any

from folklearn.numerics.on_torch.device import Device


class Factor:
    """The factor L of a symmetric matrix LL'."""

    def __init__(self, L: Any) -> None:
        self._L = L

    def solve(self, sides: Any) -> Any:
        """Return the solutions (n, k) for right-hand sides (n, k)."""
        return sides.cholesky_solve(self._L)


def factored(device: Device, matrix: Any) -> Factor | None:
    """Return the factor of a matrix, or None if it has none; the matrix stays as it is."""
    L, info = device.torch.linalg.cholesky_ex(matrix)
    return Factor(L) if int(info) == 0 else None
