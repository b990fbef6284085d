"""Rows on a device and their quadratics: `folklearn.kernels.evidence` by columns."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from folklearn.arrays import Array, Labels
from folklearn.kernels import curvature
from folklearn.kernels.evidence import ABSENT, EXACT_UP_TO, SHRUNK
from folklearn.kernels.on_torch import Device, back
from folklearn.kernels.quadratic import pairs

_MAX_SENT_ROWS, _MAX_SENT_NUMBERS = 1 << 18, 1 << 27  # at once
_MAX_SCALED_NUMBERS = 1 << 26  # of scaled rows, at once
MAX_COEFFICIENTS = 1 << 24  # of pairs, at once


class DeviceRows(NamedTuple):
    """Rows X (m, d), targets Y (m, K), weights and norms (m,), all tensors."""

    X: Any
    Y: Any
    weights: Any
    norms: Any

    @classmethod
    def of(
        cls,
        device: Device,
        n_classes: int,
        X: Array,
        norms: Array,
        labels: Labels,
        soft: Array,
        weights: Array,
    ) -> "DeviceRows":
        """Send rows to a device; labels become targets, unless there are soft ones."""
        if len(soft):
            Y = device.put(soft)
        else:
            Y = device.zeros(len(labels), n_classes)
            Y.scatter_(1, device.put(labels)[:, None], 1.0)
        return cls(device.put(X), Y, device.put(weights), device.put(norms))

    @classmethod
    def batches_of(cls, device: Device, n_classes: int, *rows: Any) -> "Iterator[DeviceRows]":
        """Send rows, as `of` takes them, in batches: all of them may not fit."""
        n, d = rows[0].shape
        size = max(1, min(_MAX_SENT_ROWS, _MAX_SENT_NUMBERS // d))
        for start in range(0, n, size):
            yield cls.of(device, n_classes, *(array[start : start + size] for array in rows))

    def of_places(self, places: Any) -> "DeviceRows":
        """Return the rows of a slice, or of row numbers."""
        return DeviceRows(*(tensor[places] for tensor in self))

    @property
    def n_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self)


class Expanded(NamedTuple):
    """Rows at one point: coefficients (m, P) of pairs, parts (m, K) of G, totals (5,)."""

    coefficients: Any
    residuals: Any
    totals: Any


class Point:
    """Rows at logits Z (m, K): their loss there, and their quadratics for any class."""

    def __init__(self, device: Device, Z: Any, rows: DeviceRows) -> None:
        self._device, self._rows = device, rows
        self._A = Z - Z.amax(1, keepdim=True)
        P = device.torch.where(self._A >= ABSENT, self._A.exp(), 0.0)
        total = P.sum(1, keepdim=True)
        self._P, self._log_total = P / total, total.log()
        self._mean = (self._P * self._A).sum(1, keepdim=True)

    def loss(self) -> Any:
        """Return their total loss."""
        rows = self._rows
        others = self._A.exp().scatter(1, self._A.argmax(1, keepdim=True), 0.0)
        losses = others.sum(1, keepdim=True).log1p() - (rows.Y * self._A).sum(1, keepdim=True)
        return (rows.weights[:, None] * losses).sum()

    def expand(self, B: float) -> Expanded:
        """Return their quadratics, below the losses of the class of B; B = 0: gamma = 1/2."""
        torch, rows, P = self._device.torch, self._rows, self._P
        gamma: Any = 0.5
        if B > 0.0:
            gamma = SHRUNK * _valid_curvature(self._device, self._A, 2.0 * B * rows.norms)[:, None]
        w = rows.weights[:, None]
        i, j = pairs(self._device, P.shape[1])
        bent = gamma * P
        scaled = w * bent
        away = self._A - self._mean
        pulled = bent * away
        constants = (self._log_total - self._mean) + (pulled * away).sum(1, keepdim=True)
        counts = torch.stack((constants[:, 0], torch.ones_like(rows.norms), rows.norms))
        totals = torch.nn.functional.pad(counts @ rows.weights, (0, 2), value=float(len(P)))
        return Expanded(scaled[:, i] * P[:, j], w * ((P - rows.Y) - 2.0 * pulled), totals)


def add_products(S: Any, coefficients: Any, X: Any) -> None:
    """S (Q, d, d) += for each column of coefficients (m, Q) the sum of c xx' over rows X (m, d)."""
    Q, d, _ = S.shape
    rows = max(1, _MAX_SCALED_NUMBERS // (Q * d))
    flat = S.view(Q * d, d)
    for start in range(0, len(X), rows):
        x, c = X[start : start + rows], coefficients[start : start + rows]
        scaled = (c[:, :, None] * x[:, None, :]).view(len(x), Q * d)
        flat.addmm_(scaled.T, x)


def add_expanded(
    device: Device, sums: Sequence[Any], rows: DeviceRows, W: Any, classes: Sequence[float]
) -> float:
    """Add rows expanded at W (K, d), for one class to each of some sums; return the loss of W."""
    loss = 0.0
    size = max(1, MAX_COEFFICIENTS // len(sums[0].S))
    for start in range(0, len(rows.X), size):
        batch = rows.of_places(slice(start, start + size))
        point = Point(device, batch.X @ W.T, batch)
        for quadratic, B in zip(sums, classes, strict=True):
            expanded = point.expand(B)
            quadratic.G.addmm_(expanded.residuals.T, batch.X)
            add_products(quadratic.S, expanded.coefficients, batch.X)
            quadratic.totals[:] += back(expanded.totals)
        loss += float(point.loss())
    return loss


def find_residuals(device: Device, rows: DeviceRows, W: Any) -> tuple[float, Array, Array]:
    """Return the loss of W (K, d) on rows, its gradient (K, d), and totals of the planes there."""
    point = Point(device, rows.X @ W.T, rows)
    weighted = rows.weights[:, None]
    G = (weighted * (point._P - rows.Y)).T @ rows.X
    entropies = point._log_total - point._mean
    counts = device.torch.stack((entropies[:, 0], device.torch.ones_like(rows.norms), rows.norms))
    n = float(len(rows.X))
    return float(point.loss()), back(G), np.append(back(counts @ rows.weights), (n, n))


def _valid_curvature(device: Device, A: Any, reach: Any) -> Any:
    """Return a gamma (m,) valid at logits A (m, K) whose largest is 0, for reach = 2 B |x|."""
    K = A.shape[1]
    if K == 2:
        m = (A[:, 0] - A[:, 1]).abs()
        exact = _binary_exact(device, m, reach)
        return device.torch.where(m > EXACT_UP_TO, _gamma_star_below(device, reach), exact)
    away = reach - A.amin(1)
    return device.torch.maximum(
        _gamma_star_below(device, reach + math.log(K - 1.0)), _self_concordant(device, away)
    )


@cache
def _table(device: Device) -> tuple[Any, Any]:
    return device.put(curvature.NODES), device.put(curvature.INVERSES)


def _gamma_star_below(device: Device, L: Any) -> Any:
    torch = device.torch
    nodes, inverses = _table(device)
    last = len(curvature.NODES) - 1
    i = (torch.log1p(L) / curvature.STEP).long().clamp(max=last - 1)
    slope = (inverses[i + 1] - inverses[i]) / (nodes[i + 1] - nodes[i])
    within = inverses[i] + slope * (L - nodes[i])
    beyond = inverses[last] + (L - nodes[last])
    return 1.0 / torch.where(nodes[last] <= L, beyond, within)


def _self_concordant(device: Device, D: Any) -> Any:
    torch = device.torch
    far = D.clamp(min=curvature.SMALL)
    ratio = curvature.SAFE * (torch.expm1(-far) + far) / (far * far)
    return torch.where(curvature.SMALL > D, 0.5 - D / 6.0, ratio)


def _softplus(t: Any) -> Any:
    return t.clamp(min=0.0) + t.abs().neg().exp().log1p()  # PyTorch's own is cut off at 20


def _binary_ratio(device: Device, m: Any, gap: Any) -> Any:
    torch = device.torch
    c = torch.exp(-_softplus(m))
    near = 0.5 + (2.0 * c - 1.0) * gap / 6.0 + (1.0 - 6.0 * (1.0 - c) * c) * gap * gap / 24.0
    wide = torch.where(gap.abs() < curvature.SMALL, 1.0, gap)
    above = c * wide + torch.log1p(c * torch.expm1(-wide.clamp(min=0.0)))
    below = _softplus(-m - wide) - _softplus(-m) + c * wide
    ratio = torch.where(wide > 0.0, above, below) / ((1.0 - c) * c * wide * wide)
    return torch.where(gap.abs() < curvature.SMALL, near - 1e-10, ratio)


def _binary_exact(device: Device, m: Any, L: Any) -> Any:
    """`curvature.binary_exact`, for m at most EXACT_UP_TO."""
    m = m.clamp(max=EXACT_UP_TO)
    least = device.torch.minimum(_binary_ratio(device, m, L - m), _binary_ratio(device, m, -L - m))
    return (curvature.SAFE * least).clamp(max=0.5)
