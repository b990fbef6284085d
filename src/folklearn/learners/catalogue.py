"""The learners by name, for those who choose one by a word: the command line, the adapters."""

from collections.abc import Callable, Mapping
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.learners.aioli import Aioli
from folklearn.learners.auto import auto
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
