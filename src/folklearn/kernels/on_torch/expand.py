"""Rows on a device and their quadratics: `folklearn.kernels.evidence` by columns."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from folklearn.arrays import Array, Labels
from folklearn.kernels.evidence import ABSENT
from folklearn.kernels.on_torch import Device, back
from folklearn.kernels.quadratic import add_device_products, pairs

_MAX_SENT_ROWS, _MAX_SENT_NUMBERS = 1 << 18, 1 << 27  # at once
MAX_COEFFICIENTS = 1 << 24  # of pairs, at once


class DeviceRows(NamedTuple):
    """Rows X (m, d), targets Y (m, K) and weights (m,), all tensors."""

    X: Any
    Y: Any
    weights: Any

    @classmethod
    def of(
        cls, device: Device, n_classes: int, X: Array, labels: Labels, soft: Array, weights: Array
    ) -> "DeviceRows":
        """Send rows to a device; labels become targets, unless there are soft ones."""
        if len(soft):
            Y = device.put(soft)
        else:
            Y = device.zeros(len(labels), n_classes)
            Y.scatter_(1, device.put(labels)[:, None], 1.0)
        return cls(device.put(X), Y, device.put(weights))

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


class Point:
    """Rows at logits Z (m, K): their loss there, and their quadratics."""

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

    def expand(self) -> tuple[Any, Any]:
        """Return their losses to second order: coefficients (m, P) of pairs, parts (m, K) of G."""
        P, weighted = self._P, self._rows.weights[:, None]
        i, j = pairs(self._device, P.shape[1])
        scaled = 0.5 * weighted * P
        bent = P * (self._A - self._mean)
        return scaled[:, i] * P[:, j], weighted * ((P - self._rows.Y) - bent)


def add_expanded(device: Device, S: Any, G: Any, rows: DeviceRows, W: Any) -> float:
    """Add rows expanded at W (K, d) to a sum; return the loss of W."""
    loss = 0.0
    size = max(1, MAX_COEFFICIENTS // len(S))
    for start in range(0, len(rows.X), size):
        batch = rows.of_places(slice(start, start + size))
        point = Point(device, batch.X @ W.T, batch)
        coefficients, residuals = point.expand()
        G.addmm_(residuals.T, batch.X)
        add_device_products(S, coefficients, batch.X)
        loss += float(point.loss())
    return loss


def find_residuals(device: Device, rows: DeviceRows, W: Any) -> tuple[float, Array, Array]:
    """Return the loss of W (K, d) on rows, its gradient (K, d), and totals of the planes there."""
    point = Point(device, rows.X @ W.T, rows)
    weighted = rows.weights[:, None]
    G = (weighted * (point._P - rows.Y)).T @ rows.X
    entropies = point._log_total - point._mean
    norms = rows.X.norm(dim=1)
    counts = device.torch.stack((entropies[:, 0], device.torch.ones_like(norms), norms))
    n = float(len(rows.X))
    return float(point.loss()), back(G), np.append(back(counts @ rows.weights), (n, n))
