"""A sum of evidence on a device, and its linear algebra: the twin of `kernels.quadratic`."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from folklearn.arrays import Array
from folklearn.kernels.on_torch.device import Device, back
from folklearn.kernels.on_torch.expand import Point, add_products, incidence, pairs
from folklearn.kernels.on_torch.linear import Factor, factored
from folklearn.kernels.on_torch.rows import DeviceRows
from folklearn.kernels.quadratic import Form, Quadratic, Solve, n_classes, nudges

MOST_COEFFICIENTS = 1 << 24  # of pairs, that are held at once
_SMALL = 1500  # unknowns below which the CPU is faster: a device waits for each of many steps


class DeviceQuadratic:
    """Full matrices S (P, d, d) and slopes (K, d) as tensors of a device; totals are here."""

    def __init__(self, device: Device, S: Any, slopes: Any, totals: Array) -> None:
        self.device, self.S, self.slopes, self.totals = device, S, slopes, totals

    @classmethod
    def of(cls, device: Device, quadratic: Quadratic) -> "DeviceQuadratic":
        """Return a copy on a device."""
        blocks = device.put(quadratic.blocks())
        return cls(device, blocks, device.put(quadratic.G), quadratic.totals.copy())

    def here(self) -> Quadratic:
        """Return a copy in arrays of this machine."""
        rows, columns = (self.device.put(at) for at in np.tril_indices(self.S.shape[1]))
        return Quadratic(back(self.S[:, rows, columns]), self.G.copy(), self.totals.copy())

    def __iter__(self) -> Iterator[Any]:
        return iter((self.S, self.slopes, self.totals))

    @property
    def shape(self) -> tuple[int, int]:
        """K and d."""
        K, d = self.slopes.shape
        return K, d

    @property
    def G(self) -> Array:
        """The linear part (K, d)."""
        return back(self.slopes)

    def copy(self) -> "DeviceQuadratic":
        """Return the same in tensors of its own."""
        return DeviceQuadratic(self.device, self.S.clone(), self.slopes.clone(), self.totals.copy())

    def add(self, rows: DeviceRows, W: Any, B: float) -> None:
        """Add rows expanded at W (K, d)."""
        add_expanded((self,), rows, W, (B,))

    def form(self) -> "Form | DeviceForm":
        """Return what is evaluated and solved again and again, where that is fastest."""
        if np.prod(self.shape) < _SMALL:
            return Form(back(self.S))
        return DeviceForm(self.device, self.S)

    def pulled(self, W: Array) -> Array:
        """Return (K, d), for each i the sum over j of S_ij (w_i - w_j)."""
        return back(pulled(self.device, self.S, self.device.put(W)[None])[0])

    def mode(self, ridge: float) -> Array | None:
        """Return where ridge |W|^2 + this is least, (K, d); None if rounding leaves no factor."""
        H = ridged(curvature(self.device, self.S), ridge, self.shape[0])
        factor = factored(self.device, H)
        if factor is None:
            return None
        W = solved(factor, self.slopes[None])[0]
        return back(W) if bool(W.isfinite().all()) else np.zeros(self.shape)


def add_expanded(
    sums: Sequence[DeviceQuadratic], rows: DeviceRows, W: Any, classes: Sequence[float]
) -> float:
    """Add rows expanded at W (K, d), for a class to each of some sums; return the loss of W."""
    device, loss = sums[0].device, 0.0
    at_once = max(1, MOST_COEFFICIENTS // len(sums[0].S))
    for start in range(0, len(rows.X), at_once):
        part = rows.of_places(slice(start, start + at_once))
        point = Point(device, part.X @ W.T, part)
        for own, B in zip(sums, classes, strict=True):
            one = point.expanded(B)
            own.slopes.addmm_(one.residuals.T, part.X)
            add_products(own.S, one.coefficients, part.X)
            own.totals += back(one.totals)
        loss += float(point.loss())
    return loss


class DeviceForm:
    """The twin of `kernels.quadratic.Form`."""

    def __init__(self, device: Device, S: Any) -> None:
        self._device, self._S = device, S
        self.traces: Array = back(S.diagonal(dim1=1, dim2=2).sum(1))

    @cached_property
    def _matrix(self) -> Any:
        return matrix(self._device, self._S)

    @cached_property
    def largest(self) -> float:
        """The largest entry on the diagonal of its matrix."""
        return float(self._matrix.diagonal().max())

    def along(self, apart: Array) -> Array:
        """Return S_ij times one vector each, (P, d)."""
        return back((self._S @ self._device.put(apart)[:, :, None])[:, :, 0])

    def factored(self, multipliers: Array) -> Solve:
        """Return the solver of its matrix plus diag(multipliers) (x) I."""
        n = len(self._matrix)
        shifted = self._matrix.clone()
        diagonal = shifted.diagonal()
        diagonal += self._device.put(np.repeat(multipliers, n // len(multipliers)))
        for nudge in nudges(n, self.largest):
            factor = factored(self._device, shifted)
            if factor is not None:
                return self._solver(factor)
            diagonal += nudge
        raise LinAlgError("a sum of evidence is not a number any more")

    def _solver(self, factor: Factor) -> Solve:
        def solve(sides: Array) -> Array:
            columns = self._device.put(sides.reshape(len(sides), -1))
            return back(factor.solve(columns)).reshape(sides.shape)

        return solve


def pulled(device: Device, S: Any, W: Any) -> Any:
    """Return, for models W (E, K, d), the sums over j of S_ij (w_i - w_j)."""
    i, j = pairs(device, W.shape[1])
    apart = (W[:, i] - W[:, j]).permute(1, 2, 0)  # (P, d, E)
    return incidence(device, W.shape[1]) @ (S @ apart).permute(2, 0, 1)


def matrix(device: Device, S: Any, n_rows: int | None = None) -> Any:
    """Return the matrix, class-major, of the form with matrices S (P, d, d): all of its classes,
    or the first so many, as if the others were held at 0.
    """
    torch, d = device.torch, S.shape[1]
    K = n_classes(len(S))
    k = n_rows or K
    i, j = pairs(device, K)
    place = torch.zeros(K, K, dtype=torch.long, device=device.place)
    place[i, j] = place[j, i] = torch.arange(len(S), device=device.place)
    M = torch.empty(k, d, k, d, dtype=S.dtype, device=device.place)
    torch.neg(S[place[:k, :k]].permute(0, 2, 1, 3), out=M)
    own = incidence(device, K)[:k].abs() @ S.flatten(1)
    M.diagonal(dim1=0, dim2=2).copy_(own.view(k, d, d).permute(1, 2, 0))
    return M.view(k * d, k * d)


def curvature(device: Device, S: Any) -> Any:
    """Return the same with the last class held at 0, ((K-1)d, (K-1)d)."""
    return matrix(device, S, n_classes(len(S)) - 1)


def ridged(H: Any, ridge: float, K: int) -> Any:
    """Return H plus the ridge of centred models, ridge (I - 11'/K) (x) I."""
    n = len(H)
    d = n // (K - 1)
    out = H.clone()
    out.view(K - 1, d, K - 1, d).diagonal(dim1=1, dim2=3).sub_(ridge / K)
    out.diagonal().add_(ridge)
    return out


def solved(factor: Factor, gradients: Any) -> Any:
    """Return the steps (E, K, d) to where gradients of the quadratic vanish, centred."""
    E, K, d = gradients.shape
    steps = gradients.new_zeros(E, K, d)
    sides = -0.5 * gradients[:, : K - 1].reshape(E, (K - 1) * d).T
    steps[:, : K - 1] = factor.solve(sides).T.view(E, K - 1, d)
    return steps - steps.mean(1, keepdim=True)
