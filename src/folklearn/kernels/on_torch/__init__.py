"""Sums, refreshes and lower bounds on a device of PyTorch (extra ``gpu``).

Everything here has a compiled counterpart on the CPU; it is in float64, on the same schedule, for
sizes at which matrix products are nearly all of the work. Results agree with the CPU's to
rounding; they are not the same bits, because a device adds up in an order of its own.

A `Device` is chosen by name; arrays go there with `put` and come `back`.
"""

from typing import Any

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, spell_argument
from folklearn.utils import bytes_present

OF_TORCH = "torch-cpu"  # the CPU through PyTorch: what tests run on


class Device:
    """A device that has float64. Two of the same name are the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        argument = spell_argument("device={!r}", name)
        try:
            import torch
        except ImportError:
            raise InvalidInputError(
                f"{argument} needs PyTorch: pip install 'folklearn[gpu]'; without a device "
                "everything is computed on the CPU"
            ) from None
        self.torch: Any = torch
        kind = "cpu" if name == OF_TORCH else name
        try:
            self.place = torch.device(kind)
            torch.zeros(1, dtype=torch.float64, device=self.place).cpu()
        except (AssertionError, RuntimeError, TypeError) as error:
            raise InvalidInputError(
                f"{argument} cannot be used: {_first_line(error)}. Devices are 'cuda' and "
                f"'cuda:N', if PyTorch sees a GPU; 'cpu' computes without one"
            ) from None

    def bytes_free(self) -> float:
        """Return the memory that is not taken on the device; infinity if it does not say."""
        if self.place.type != "cuda":
            return bytes_present()
        free, _ = self.torch.cuda.mem_get_info(self.place)
        return float(free)

    def put(self, array: Any) -> Any:
        """Return an array of numbers as a tensor on the device; what is one stays as it is."""
        if isinstance(array, self.torch.Tensor):
            return array
        return self.torch.as_tensor(np.ascontiguousarray(array)).to(self.place)

    def zeros(self, *shape: int) -> Any:
        """Return a tensor of zeros."""
        return self.torch.zeros(shape, dtype=self.torch.float64, device=self.place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        return Device, (self.name,)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"


def put(device: Device | None, array: Any) -> Any:
    """Return an array as a tensor on a device; without one, as it is."""
    return array if device is None else device.put(array)


def back(values: Any) -> Array:
    """Return a tensor as an array; an array as it is."""
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
