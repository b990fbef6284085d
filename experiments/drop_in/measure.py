"""The rows, and the two measurements: held-out loss, and the price of undeclared classes."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from folklearn import FolkloreClassifier
from folklearn.model.pipeline import OnlinePipeline

from .methods import METHODS, facts, strict_losses

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]
SHUFFLED, ONE_BY_ONE = ARRIVALS = ("shuffled", "one by one")
BUNDLED = {"iris": load_iris, "wine": load_wine}


@dataclass(frozen=True)
class Source:
    """A data set; `folder` is None for those that scikit-learn brings along."""

    name: str
    folder: Path | None
    most_rows: int

    def load(self) -> tuple[Rows, Labels]:
        """Return all rows, raw."""
        if self.folder is None:
            X, y = BUNDLED[self.name](return_X_y=True)
        else:
            with np.load(self.folder / f"{self.name}.npz") as arrays:
                X, y = arrays["X"], arrays["y"]
        return X.astype(np.float64), y.astype(np.int64)


def held_out(source: Source, method: str, split_seed: int, seed: int) -> dict[str, Any]:
    """Fit on four fifths of the first rows, drawn at random and stratified; test on the rest."""
    X, y = (part[: source.most_rows] for part in source.load())
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.2, random_state=split_seed, stratify=y
    )
    noise = np.random.default_rng(0).normal(size=(600, 3))
    for K in (2, 3):  # compiles, which is not to be timed
        FolkloreClassifier().fit(noise, np.arange(600) % K)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `iterations` tells
        warnings.filterwarnings("ignore", "The least populated class")  # two rows in nursery
        start = process_time()
        model = METHODS[method](seed).fit(X, y)
        seconds = process_time() - start
    losses = strict_losses(model, X_test, y_test)
    return {
        "sizes": {"train": len(y), "test": len(y_test), "d": X.shape[1],
                  "K": len(np.unique([*y, *y_test]))},
        "losses": losses,
        "accuracy": float(np.mean(model.predict(X_test) == y_test)),
        "seconds": seconds,
        **facts(model),
    }  # fmt: skip


def late_classes(source: Source, arrival: str, seed: int) -> dict[str, float]:
    """Play one stream twice: classes as they come, and their number told before."""
    X, y = source.load()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))[: source.most_rows]
    X, y = X[order], _by_appearance(y[order])
    if arrival == ONE_BY_ONE:  # class k spreads evenly over what is left after k/(2K) of the time
        begin = y / (2.0 * (y.max() + 1))
        order = np.argsort(begin + (1.0 - begin) * rng.random(len(y)))
        X, y = X[order], _by_appearance(y[order])
    K, T, d = int(y.max()) + 1, len(y), X.shape[1]
    P, u = OnlinePipeline("auto", n_features=d).run(X, y)
    first = np.zeros(T, dtype=bool)
    first[np.unique(y, return_index=True)[1]] = True
    novelty = -np.log(np.where(first, u, 1.0 - u))
    known = -np.log(P[~first, y[~first]])
    P, u = OnlinePipeline("auto", n_features=d, n_classes=K).run(X, y)
    plain = -np.log(P[np.arange(T), y])
    return {
        "T": T,
        "K": K,
        "last_class_in_round": int(np.flatnonzero(first)[-1]) + 1,
        "open": float(novelty.sum() + known.sum()),
        "open_novelty": float(novelty.sum()),
        "told_strict": float((plain - np.log1p(-u)).sum()),
        "told_plain": float(plain.sum()),
        "told_plain_on_first_rows": float(plain[first].sum()),
        "open_on_other_rows": float(known.sum()),
        "told_plain_on_other_rows": float(plain[~first].sum()),
    }


def _by_appearance(y: Labels) -> Labels:
    """Number the classes in the order in which they come."""
    labels, places = np.unique(y, return_index=True)
    numbers = np.empty(int(labels.max()) + 1, dtype=np.int64)
    numbers[labels[np.argsort(places)]] = np.arange(len(labels))
    return numbers[y]
