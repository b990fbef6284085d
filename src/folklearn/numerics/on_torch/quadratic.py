"""A sum of evidence on a device, and its linear algebra: the twin of `numerics.quadratic`."""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from folklearn.arrays import Array
from folklearn.numerics import quadratic as host
from folklearn.numerics.on_torch.device import Device, back
from folklearn.numerics.on_torch.expand import pairs
from folklearn.numerics.on_torch.linear import Factor, factored
from folklearn.numerics.quadratic import Solve, n_classes, nudges

_SMALL = 1500  # unknowns below which the CPU is faster: a device waits for each of many steps


class Quadratic:
    """Full matrices S (P, d, d), G (K, d), totals, all tensors of a device."""

    def __init__(self, device: Device, S: Any, G: Any, totals: Any) -> None:
        self.device = device
        self.tensors = S, G, totals

    @classmethod
    def of(cls, device: Device, quadratic: host.Quadratic) -> "Quadratic":
        """Return a copy on a device."""
        parts = quadratic.blocks(), quadratic.G, quadratic.totals
        return cls(device, *(device.put(part) for part in parts))

    def here(self) -> host.Quadratic:
        """Return a copy in arrays of this machine."""
        S, G, totals = self.tensors
        rows, columns = np.tril_indices(S.shape[1])
        packed = S[:, self.device.put(rows), self.device.put(columns)]
        return host.Quadratic(back(packed), back(G).copy(), back(totals).copy())

    @property
    def shape(self) -> tuple[int, int]:
        """K and d."""
        K, d = self.tensors[1].shape
        return K, d

    @property
    def G(self) -> Array:
        """The linear part (K, d)."""
        return back(self.tensors[1])

    @property
    def totals(self) -> Array:
        """What rows add up to beside."""
        return back(self.tensors[2])

    def copy(self) -> "Quadratic":
        """Return the same in tensors of its own."""
        return Quadratic(self.device, *(part.clone() for part in self.tensors))

    def form(self) -> "Form | host.Form":
        """Return what is evaluated and solved again and again, where that is fastest."""
        S = self.tensors[0]
        if np.prod(self.shape) < _SMALL:
            return host.Form(back(S))
        return Form(self.device, S)

    def pulled(self, W: Array) -> Array:
        """Return (K, d), for each i the sum over j of S_ij (w_i - w_j)."""
        return back(pulled(self.device, self.tensors[0], self.device.put(W)[None])[0])

    def mode(self, ridge: float) -> Array | None:
        """Return where ridge |W|^2 + this is least, (K, d); None if rounding leaves no factor."""
        S, G, _ = self.tensors
        factor = factored(self.device, ridged(curvature(self.device, S), ridge, n_classes(len(S))))
        if factor is None:
            return None
        W = solved(factor, G[None])[0]
        return back(W) if bool(W.isfinite().all()) else np.zeros(self.shape)


class Form:
    """The twin of `numerics.quadratic.Form`."""

    def __init__(self, device: Device, S: Any) -> None:
        self._device, self._S = device, S
        self.traces: Array = back(S.diagonal(dim1=1, dim2=2).sum(1))
        self._matrix = matrix(device, S)
        self.largest = float(self._matrix.diagonal().max())

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
    along = (S @ apart).permute(2, 0, 1)
    out = device.torch.zeros_like(W)
    return out.index_add_(1, i, along).index_add_(1, j, along, alpha=-1.0)


def matrix(device: Device, S: Any) -> Any:
    """Return the matrix (Kd, Kd), class-major, of the form with matrices S (P, d, d)."""
    d = S.shape[1]
    K = n_classes(len(S))
    M = device.zeros(K, d, K, d)
    for (i, j), block in zip(host.pairs(K), S, strict=True):
        M[i, :, i] += block
        M[j, :, j] += block
        M[i, :, j] = -block
        M[j, :, i] = -block
    return M.view(K * d, K * d)


def curvature(device: Device, S: Any) -> Any:
    """Return the same with the last class held at 0, ((K-1)d, (K-1)d)."""
    d = S.shape[1]
    n = (n_classes(len(S)) - 1) * d
    return matrix(device, S)[:n, :n].contiguous()


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
