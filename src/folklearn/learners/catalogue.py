"""The learners by name, for those who choose one by a word: the command line, the adapters."""

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from folklearn import memory, registry
from folklearn.errors import InvalidInputError
from folklearn.kernels.blas import OWN
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


def make(
    name: str, n_features: int, n_classes: int, settings: Mapping[str, Any], device: str = OWN
) -> Learner:
    """Return a learner that has learned nothing."""
    if device != OWN:
        settings = {**settings, "device": device}
    takes = settings_of(name)
    for setting in settings:
        if setting not in takes:
            raise InvalidInputError(
                f"{name} does not take the setting {setting!r}; it takes: {', '.join(takes)}"
            )
    learner: Learner = registry.find(CATALOGUE[name])(
        n_features=n_features, n_classes=n_classes, **settings
    )
    return learner


def settings_of(name: str) -> tuple[str, ...]:
    """Return the names of the settings that a learner takes, beside its sizes."""
    if name not in CATALOGUE:
        raise InvalidInputError(
            f"there is no learner {name!r}; choose one of: {', '.join(CATALOGUE)}"
        )
    parameters = inspect.signature(registry.find(CATALOGUE[name])).parameters
    return tuple(word for word in parameters if word not in ("n_features", "n_classes"))


@cache
def _smallest(name: str) -> Learner:
    """Return a learner of a kind to ask what all of its kind can do."""
    return make(name, 1, 2, {})


def grows(name: str) -> bool:
    """Tell whether a learner takes classes and features as they come."""
    return name in CATALOGUE and _smallest(name).can_grow


def growing() -> tuple[str, ...]:
    """Return the names of those that take classes and features as they come."""
    return tuple(filter(grows, CATALOGUE))


def n_bytes(name: str, n_features: int, n_classes: int) -> int:
    """Return about how much memory the state of a learner takes."""
    return _smallest(name).expected_bytes(n_features, n_classes)


def check_size(name: str, n_features: int, n_classes: int) -> None:
    """Raise if the state of a learner cannot fit in this machine: it would stall, not fail."""
    needed, present = n_bytes(name, n_features, n_classes), memory.bytes_present()
    if present is not None and needed > present:
        advice = "fewer features" if name == "auto" else 'learner="auto", or fewer features'
        raise InvalidInputError(
            f"learner={name!r} needs {needed / 1e9:.1f} GB of memory for {n_features} columns and "
            f"{n_classes} classes, and this machine has {present / 1e9:.1f} GB: use {advice}"
        )
