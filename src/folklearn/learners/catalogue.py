"""Learners by name, and the backend of `auto` by size, see there.

The boundaries are where a backend costs about a millisecond a round on one core, measured by
`python -m benchmarks.backends` (benchmarks/results/backends.md).
"""

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from folklearn import registry, utils
from folklearn.errors import InvalidInputError
from folklearn.kernels.blas import OWN
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.kernels.on_torch import Device
from folklearn.learners.base import Learner

# By the names of their classes, which `registry` loads when needed: nothing imports baselines.
CATALOGUE = {
    "auto": "auto",
    "folklore": "Folklore",
    "aioli": "Aioli",
    "leader": "Leader",
    "blocks": "ClassGaussians",
    "gaf": "Gaf",
    "laplace": "Laplace",
    "ogd": "Ogd",
    "ons": "Ons",
}

PAIRS, BLOCKS, WIDE = BACKENDS = "pairs", "blocks", "wide"
_MAX_PAIR_PRODUCTS = 250_000  # of features, over all pairs of classes
_MAX_BLOCK_ENTRIES = 1_000_000  # of the matrices of all classes
_MAX_MEMORY_SHARE = 0.25  # that the state of a backend may take
_N_PAIR_SUMS, _N_BLOCKS = 6, 3  # such arrays that a learner of the backend holds
_MAX_DEVICE_UNKNOWNS = 20_000  # of a leader: a refresh takes a fifth of a second there


def select_backend(n_features: int, n_classes: int, device: Device | None = None) -> str:
    """Return the backend for a number of features and classes, in the memory of this machine.

    On a device the first backend reaches further, because there products of matrices are cheap.
    """
    d, K, pairs = float(n_features), float(n_classes), float(n_pairs(n_classes))
    on_device = 8.0 * _N_PAIR_SUMS * (pairs * d**2 + (d * K) ** 2)
    if device is not None and d * K <= _MAX_DEVICE_UNKNOWNS and on_device <= device.bytes_free():
        return PAIRS
    room = _MAX_MEMORY_SHARE * utils.bytes_present() / 8.0
    products = pairs * float(n_products(n_features))
    if products <= _MAX_PAIR_PRODUCTS and _N_PAIR_SUMS * products <= room:
        return PAIRS
    entries = K * d**2
    return BLOCKS if entries <= _MAX_BLOCK_ENTRIES and _N_BLOCKS * entries <= room else WIDE


def make(
    name: str, n_features: int, n_classes: int, settings: Mapping[str, Any], device: str = OWN
) -> Learner:
    """Return a learner that has learned nothing."""
    if device != OWN:
        settings = {**settings, "device": device}
    takes = settings_of(name)
    for setting in [word for word in settings if word not in takes]:
        raise InvalidInputError(
            f"{name} does not take the setting {setting!r}; it takes: {', '.join(takes)}"
        )
    return registry.find(CATALOGUE[name])(n_features=n_features, n_classes=n_classes, **settings)


def settings_of(name: str) -> tuple[str, ...]:
    """Return the names of the settings that a learner takes, besides its sizes."""
    if name not in CATALOGUE:
        choices = ", ".join(CATALOGUE)
        raise InvalidInputError(f"there is no learner {name!r}; choose one of: {choices}")
    parameters = inspect.signature(registry.find(CATALOGUE[name])).parameters
    return tuple(word for word in parameters if word not in ("n_features", "n_classes"))


@cache
def _smallest(name: str) -> Learner:  # of a kind, to ask what all of its kind can do
    return make(name, 1, 2, {})


def grows(name: str) -> bool:
    """Tell whether a learner takes classes and features as they come."""
    return name in CATALOGUE and _smallest(name).can_grow


def growing() -> tuple[str, ...]:
    """Return the names of those that take classes and features as they come."""
    return tuple(filter(grows, CATALOGUE))


def check_grows(name: str) -> None:
    """Raise if a learner has to know all classes and features beforehand."""
    if not grows(name):
        raise InvalidInputError(
            f"{name!r} is no learner that takes classes as they come, or features; those are: "
            f"{', '.join(growing())}"
        )


def n_bytes(name: str, n_features: int, n_classes: int) -> int:
    """Return about how much memory the state of a learner takes."""
    return _smallest(name).expected_bytes(n_features, n_classes)


def check_size(name: str, n_features: int, n_classes: int) -> None:
    """Raise if the state of a learner cannot fit in this machine: it would stall, not fail."""
    needed, present = n_bytes(name, n_features, n_classes), utils.bytes_present()
    if needed > present:
        advice = "fewer features" if name == "auto" else 'learner="auto", or fewer features'
        raise InvalidInputError(
            f"learner={name!r} needs {needed / 1e9:.1f} GB of memory for {n_features} columns and "
            f"{n_classes} classes, and this machine has {present / 1e9:.1f} GB: use {advice}"
        )
