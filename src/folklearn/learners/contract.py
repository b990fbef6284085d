"""What every learner offers, and what a certificate says."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn.persist import Record

Progress = bool | Callable[[int], None]


@dataclass(frozen=True)
class Certificate:
    """A proven statement about every linear model of row norm at most B, in hindsight.

    Attributes
    ----------
    loss : total (weighted) log loss of the learner so far, in nats.
    regret_bound : no model in the class, or the one asked about, has a total loss below
        ``loss - regret_bound``.
    B : the row norm that the statement covers.
    n_rounds : number of rounds so far.
    valid : False if the proof does not apply; the bound is then infinite.
    reason : why it does not apply, or an empty string.
    """

    loss: float
    regret_bound: float
    B: float
    n_rounds: int
    valid: bool = True
    reason: str = ""

    @property
    def best_linear_at_least(self) -> float:
        """A lower bound on the total loss of the best model of the class in hindsight."""
        return self.loss - self.regret_bound


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
