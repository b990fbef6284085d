"""Weak learners with known behaviour. Those that know the truth find the round in x[0]."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .loss import Array


def rounds(T: int, n_features: int = 2) -> Array:
    """Contexts whose first feature is the number of the round."""
    X = np.zeros((T, n_features))
    X[:, 0] = np.arange(T)
    return X


def planted_labels(rng: np.random.Generator, y: Array, n_classes: int, edge: float) -> Array:
    """With probability `edge` the true label, else uniform: the edge of the definition."""
    uniform = rng.integers(0, n_classes, len(y))
    return np.where(rng.random(len(y)) < edge, y, uniform)


class Planted:
    """Says labels[t] in round t, whatever the costs."""

    def __init__(self, labels: Sequence[int] | Array) -> None:
        self.labels = np.asarray(labels)

    def predict(self, x: Array, C: Array) -> int:
        return int(self.labels[int(x[0])])

    def update(self, x: Array, C: Array, y: int) -> None:
        pass


class AlwaysRight(Planted):
    """Says y[t]."""


class AlwaysWrong(Planted):
    """Says (y[t] + 1) mod K: wrong, and for K = 2 as informative as being right."""

    def __init__(self, y: Sequence[int] | Array, n_classes: int) -> None:
        super().__init__((np.asarray(y) + 1) % n_classes)


class Adversary:
    """Knows y[t] and says the label that costs most."""

    def __init__(self, y: Sequence[int] | Array) -> None:
        self.y = np.asarray(y)

    def predict(self, x: Array, C: Array) -> int:
        return int(np.argmax(C[self.y[int(x[0])]]))

    def update(self, x: Array, C: Array, y: int) -> None:
        pass


class CostMinimiser:
    """Believes in class frequencies weighted by K ||C(y, .)||_1, says the cheapest label."""

    def __init__(self, n_classes: int) -> None:
        self.belief = np.ones(n_classes)
        self.seen: list[tuple[Array, Array, int]] = []

    def predict(self, x: Array, C: Array) -> int:
        shift = np.sin(np.arange(1, len(self.belief) + 1) * x.sum())  # so that x matters
        return int(np.argmin((self.belief * np.exp(shift)) @ C))

    def update(self, x: Array, C: Array, y: int) -> None:
        self.belief[y] += len(C) * np.abs(C[y]).sum()
        self.seen.append((np.array(x), np.array(C), int(y)))


class Failing:
    """Says 0, and raises in predict or update once it has learned `after` rounds."""

    def __init__(self, where: str, after: int) -> None:
        self.where, self.after, self.learned = where, after, 0

    def predict(self, x: Array, C: Array) -> int:
        if self.where == "predict" and self.learned >= self.after:
            raise RuntimeError("the tree fell over")
        return 0

    def update(self, x: Array, C: Array, y: int) -> None:
        if self.where == "update" and self.learned >= self.after:
            raise RuntimeError("the tree fell over")
        self.learned += 1


class Saying:
    """Says 0, and `value` once it has learned `after` rounds."""

    def __init__(self, value: Any, after: int) -> None:
        self.value, self.after, self.learned = value, after, 0

    def predict(self, x: Array, C: Array) -> Any:
        return self.value if self.learned >= self.after else 0

    def update(self, x: Array, C: Array, y: int) -> None:
        self.learned += 1
