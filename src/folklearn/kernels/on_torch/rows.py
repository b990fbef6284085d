"""Rows on a device."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from folklearn.arrays import Array, Labels
from folklearn.kernels.on_torch.device import Device

_MOST_ROWS, _MOST_NUMBERS = 1 << 18, 1 << 27  # that are sent at once


class DeviceRows(NamedTuple):
    """Examples X (m, d), targets Y (m, K), weights and norms (m,), all tensors."""

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
        """Send examples to a device; labels become targets, unless there are soft ones."""
        if len(soft):
            Y = device.put(soft)
        else:
            Y = device.zeros(len(labels), n_classes)
            Y.scatter_(1, device.put(labels)[:, None], 1.0)
        return cls(device.put(X), Y, device.put(weights), device.put(norms))

    @classmethod
    def parts_of(cls, device: Device, n_classes: int, *rows: Any) -> "Iterator[DeviceRows]":
        """Send examples, as `of` takes them, in parts: all of them may not fit."""
        n, d = rows[0].shape
        size = max(1, min(_MOST_ROWS, _MOST_NUMBERS // d))
        for start in range(0, n, size):
            yield cls.of(device, n_classes, *(part[start : start + size] for part in rows))

    def of_places(self, places: Any) -> "DeviceRows":
        """Return some of them."""
        return DeviceRows(*(part[places] for part in self))

    @property
    def n_bytes(self) -> int:
        """The memory that they take."""
        return sum(part.nbytes for part in self)
