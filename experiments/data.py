"""The streams: which rows, in which order, and the one preprocessing that everybody gets."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from folklearn.scaler import OnlineScaler

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

NAMES = (
    "letter", "pendigits", "satimage", "segment", "digits",
    "electricity", "covtype", "adult", "nursery", "weather",
)  # fmt: skip
IN_ORDER = frozenset({"electricity", "covtype", "weather"})  # the data's README says so
SYNTHETIC = ("synthetic-2", "synthetic-4")  # name-K, for tests that have no data folder


@dataclass(frozen=True)
class Source:
    """A data set and how much of it to use; `folder` is None for synthetic rows."""

    name: str
    folder: Path | None
    most_rows: int | None  # None: all

    @property
    def in_order(self) -> bool:
        """Whether the order of the rows is part of the data, so that seeds change nothing."""
        return self.name in IN_ORDER

    def seeds(self, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """Return the seeds that give different streams."""
        return seeds[:1] if self.in_order else seeds


@dataclass(frozen=True, eq=False)
class Stream:
    """Standardised rows in the order they are played; K counts all classes of the data set."""

    X: Rows
    y: Labels
    K: int

    @property
    def d(self) -> int:
        """The number of columns, the constant included."""
        return int(self.X.shape[1])

    def head(self, n_rows: int) -> "Stream":
        """Return the first rows alone."""
        return Stream(self.X[:n_rows], self.y[:n_rows], self.K)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add --data, which has no default: data lie where the reader has put them."""
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where NAME.npz are")


def found_in(folder: Path | None, names: Iterable[str]) -> list[str]:
    """Return the data sets that are there; those that are not are named on standard error."""
    if folder is None:
        print(f"skipped {', '.join(names)}: no --data FOLDER was given", file=sys.stderr)
        return []
    found = []
    for name in names:
        if (folder / f"{name}.npz").is_file():
            found.append(name)
        else:
            print(f"skipped {name}: no {name}.npz in {folder}", file=sys.stderr)
    return found


@lru_cache(maxsize=4)
def stream(source: Source, seed: int) -> Stream:
    """Order the rows (shuffled with the seed, unless they have an order), cut, standardise."""
    X, y, K = _raw(source)
    if not source.in_order:
        order = np.random.default_rng(seed).permutation(len(X))
        X, y = X[order], y[order]
    X, y = X[: source.most_rows], y[: source.most_rows]
    scaled = OnlineScaler(n_features=X.shape[1]).learn_transform(X.astype(np.float64))
    return Stream(scaled, y, K)


@lru_cache(maxsize=1)
def _raw(source: Source) -> tuple[NDArray[np.float64], Labels, int]:
    if source.folder is None:
        return _synthetic(int(source.name.rpartition("-")[2]), n_rows=source.most_rows or 1000)
    with np.load(source.folder / f"{source.name}.npz") as arrays:
        X, y = arrays["X"], arrays["y"].astype(np.int64)
    return X, y, int(y.max()) + 1


def _synthetic(K: int, n_rows: int, d: int = 3) -> tuple[Rows, Labels, int]:
    """Labels drawn from one softmax model."""
    rng = np.random.default_rng(K)
    X = rng.normal(size=(n_rows, d))
    W = 2.0 * rng.normal(size=(K, d))
    return X, np.argmax(X @ W.T + rng.gumbel(size=(n_rows, K)), axis=1), K
