"""Streams that stand still, streams that change, and what a learner loses on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import folklearn

Numbers = NDArray[np.float64]
SCALE = 1.5  # standard deviation of the weights that draw the labels
BLOCK = 1024  # rows that are learned at a time


@dataclass(frozen=True)
class World:
    """Rows of d columns and K classes, whose labels change in one way, at `change`."""

    kind: str
    d: int
    K: int
    n_rows: int

    @property
    def change(self) -> int:
        """The row of the first change."""
        return self.n_rows // (4 if self.kind == "recurring" else 2)

    def drawn(self, seed: int) -> tuple[Numbers, Any]:
        """Return rows and labels."""
        rng = np.random.default_rng([seed, self.d, self.K])
        X = rng.normal(size=(self.n_rows, self.d))
        old, new = SCALE * rng.normal(size=(2, self.K, self.d)) / np.sqrt(self.d / 5.0)
        row, share = np.arange(self.n_rows), np.zeros(self.n_rows)
        if self.kind == "abrupt":
            share = (row >= self.change).astype(np.float64)
        elif self.kind == "gradual":
            share = ((row - self.change) / (self.n_rows / 5.0)).clip(0.0, 1.0)
        elif self.kind == "recurring":
            share = (row // self.change % 2).astype(np.float64)
        Z = (1.0 - share[:, None]) * (X @ old.T) + share[:, None] * (X @ new.T)
        y = np.argmax(Z + rng.gumbel(size=Z.shape), axis=1)
        if self.kind.endswith("noise"):
            rate = 0.05 if self.kind == "little noise" else 0.2
            lot = (row >= self.change) & (rng.random(self.n_rows) < rate)
            y = np.where(lot, rng.integers(self.K, size=self.n_rows), y)
        return X, y


def of_file(folder: Path, name: str) -> tuple[Numbers, Any]:
    """Return the rows of a data set, as they came."""
    with np.load(folder / f"{name}.npz") as arrays:
        return arrays["X"].astype(np.float64), arrays["y"]


def in_random_order(folder: Path, name: str, n_rows: int, seed: int) -> tuple[Numbers, Any]:
    """Return rows of a data set, drawn without replacement."""
    X, y = of_file(folder, name)
    some = np.random.default_rng(seed).permutation(len(y))[:n_rows]
    return X[some], y[some]


def blocks(n_rows: int, size: int = BLOCK) -> Iterator[slice]:
    """Yield the parts of a stream."""
    for start in range(0, n_rows, size):
        yield slice(start, min(n_rows, start + size))


def losses_of(learner: str, X: Numbers, y: Any) -> tuple[Numbers, Any]:
    """Return the loss of every row, and whether its most likely class was wrong."""
    model = folklearn.Model(learner)
    losses, wrong = np.empty(len(y)), np.empty(len(y), bool)
    for part in blocks(len(y)):
        step = model.learn_many(X[part], y[part])
        losses[part] = step.losses
        wrong[part] = step.P.argmax(axis=1) != step.labels
    return losses, wrong
