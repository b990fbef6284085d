"""What is played: contexts, and what every action would have paid."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from folklearn.arrays import Array

from ..data import NAMES, Source, stream

REAL = NAMES
SYNTHETIC = ("realizable", "graded", "bent")
_D, _K = 20, 5  # of the synthetic streams, beside the constant
_STEEP = 3.0  # norm of the weights of an action
_SPREAD = 8.0  # a graded reward is as certain as so many clicks


@dataclass(frozen=True)
class Arena:
    """A stream by name; `folder` is None for those that are drawn."""

    name: str
    n_rounds: int
    folder: Path | None = None


@dataclass(frozen=True, eq=False)
class Game:
    """Contexts X (T, d), the constant among them; rewards R (T, K) in 0..1 that actions get, and
    `means` (T, K) what they get on average, which are the rewards themselves for real data."""

    X: Array
    R: Array
    means: Array


@lru_cache(maxsize=2)
def game(arena: Arena, seed: int) -> Game:
    """Return a stream: classes as actions, 1 for the right one; or drawn rewards."""
    if arena.name not in SYNTHETIC:
        own = stream(Source(arena.name, arena.folder, arena.n_rounds), seed)
        R = np.eye(own.K)[own.y]
        return Game(own.X, R, R)
    rng = np.random.default_rng([seed, SYNTHETIC.index(arena.name)])
    T = arena.n_rounds
    X = np.column_stack([rng.normal(size=(T, _D)) / np.sqrt(_D + 1), np.full(T, (_D + 1) ** -0.5)])
    W = rng.normal(size=(_K, _D + 1))
    W *= _STEEP * np.sqrt(_D + 1) / np.linalg.norm(W, axis=1, keepdims=True) / 2.0
    logits = X @ W.T
    if arena.name == "bent":  # no linear model is right: a product of two columns decides
        logits += 20.0 * (X[:, 0] * X[:, 1])[:, None] * rng.choice([-1.0, 1.0], size=_K)
    means = 1.0 / (1.0 + np.exp(-logits))
    if arena.name == "graded":
        R = rng.beta(_SPREAD * means + 1e-9, _SPREAD * (1.0 - means) + 1e-9)
    else:
        R = (rng.random((T, _K)) < means).astype(np.float64)
    return Game(X, R, means)
