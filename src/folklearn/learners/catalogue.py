"""The learners by name, for those who choose one by a word: the command line, the adapters."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.learners.aioli import Aioli
from folklearn.learners.auto import REACHES, RIDGES, auto
from folklearn.learners.contract import Learner
from folklearn.learners.folklore import Folklore
from folklearn.learners.gaf import Gaf
from folklearn.learners.laplace import Laplace
from folklearn.learners.ogd import Ogd
from folklearn.learners.ons import Ons

CATALOGUE: dict[str, Callable[..., Learner]] = {
    "auto": auto,
    "folklore": Folklore,
    "aioli": Aioli,
    "gaf": Gaf,
    "laplace": Laplace,
    "ogd": Ogd,
    "ons": Ons,
}
# How many matrices of ((K-1) d)^2 numbers a state has, if not one.
_N_MATRICES = {"auto": len(REACHES) + 1 + len(RIDGES), "ogd": 0, "ons": 2}
_FULL = ("ons",)  # whose matrices have (K d)^2 numbers
GROWING = ("auto", "folklore", "gaf", "laplace", "ogd")  # take classes and features that come late


def make(name: str, n_features: int, n_classes: int, settings: Mapping[str, Any]) -> Learner:
    """Return a learner that has learned nothing."""
    if name not in CATALOGUE:
        raise InvalidInputError(
            f"there is no learner {name!r}; choose one of: {', '.join(CATALOGUE)}"
        )
    try:
        return CATALOGUE[name](n_features=n_features, n_classes=n_classes, **settings)
    except TypeError:
        raise InvalidInputError(f"{name} does not take these settings: {dict(settings)}") from None


def n_bytes(name: str, n_features: int, n_classes: int) -> int:
    """Return about how much memory the state of a learner takes."""
    n = (n_classes if name in _FULL else n_classes - 1) * n_features
    return 8 * _N_MATRICES.get(name, 1) * n**2


def bytes_present() -> int | None:
    """Return how much memory this machine has, or None if it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
