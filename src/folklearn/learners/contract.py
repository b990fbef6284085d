"""What every learner offers, and what a certificate says."""

import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.certificate import Certificate, scope_of_growth
from folklearn.errors import InvalidInputError
from folklearn.persist import Record

__all__ = ["Certificate", "Learner", "scope_of_growth"]

Progress = bool | Callable[[int], None]


def refuse_unless_learner(name: str, value: Any) -> None:
    """Raise if something is no learner: another object, or a class in place of one."""
    verbs = all(callable(getattr(value, verb, None)) for verb in ("predict", "update"))
    if not verbs or isinstance(value, type):
        raise InvalidInputError(f"{name} is {value!r}, not a learner")


def grown_sizes(
    learner: "Learner", n_features: int | None, n_classes: int | None
) -> dict[str, int]:
    """Return the sizes that a learner is to grow to; they cannot shrink."""
    sizes = {"n_features": learner.n_features, "n_classes": learner.n_classes}
    for name, wanted in (("n_features", n_features), ("n_classes", n_classes)):
        if wanted is not None:
            sizes[name] = problem.count(name, wanted, sizes[name])
    return sizes


class Learner(Protocol):
    """The verbs that every learner shares; `predict` never changes what comes after it."""

    n_features: int
    n_classes: int

    def predict(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out."""

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example; return its log loss, predicted before learning."""

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> NDArray[np.float64]:
        """Predict, then learn, row by row; return the predictions (T, K)."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a file that `folklearn.load` reads."""

    def to_record(self) -> Record:
        """Return the full state as a record."""
