"""Who plays: each method predicts every row before it learns it, and returns what it predicted."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import lightgbm
import numpy as np
from river.forest import AMFClassifier, ARFClassifier
from river.preprocessing import StandardScaler
from river.tree import HoeffdingAdaptiveTreeClassifier

from folklearn import Model

from ..data import Labels, Rows

CHUNK_ROWS = 1024  # that are handed to a `Model` at a time
FLOOR = 1e-4  # added to each probability of a peer
FIRST_FIT, GROWTH = 64, 1.25  # rows of the first fit of trees, and of each fit over the last
PLAIN = (31, 0.1, 10)  # leaves, learning rate, least rows of a leaf
GRID = {
    f"lightgbm-{leaves}-{rate}-{least}": (leaves, rate, least)
    for leaves, rate, least in itertools.product((7, 31), (0.05, 0.1), (5, 20))
}
DEFAULTS = "lightgbm-31-0.1-20"  # of the grid: LightGBM's own
Player = Callable[[Rows, Labels, int, int], Rows]  # X, y, K, seed to probabilities (T, K)


def smooth(P: Rows) -> Rows:
    """Return P (T, K) with the floor added and the rows normalised; rows of zeros are uniform."""
    sums = P.sum(axis=1, keepdims=True)
    P = P / np.where(sums > 0.0, sums, 1.0) + FLOOR
    return P / P.sum(axis=1, keepdims=True)


def play_model(X: Rows, y: Labels, K: int, seed: int, **settings: Any) -> Rows:
    """A `Model` to which all classes are declared."""
    model, parts = Model(classes=range(K), **settings), []
    for start in range(0, len(X), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        parts.append(model.learn_many(X[rows], y[rows].tolist()).P)
    return np.concatenate(parts)


def play_river(make: Callable[[int, int], Any], X: Rows, y: Labels, K: int, seed: int) -> Rows:
    """A classifier of River; the dictionary of each row is made within."""
    model, P = make(K, seed), np.zeros((len(X), K))
    for p, values, label in zip(P, X, y.tolist(), strict=True):
        x = dict(enumerate(values.tolist()))
        for k, probability in model.predict_proba_one(x).items():
            p[k] = probability
        model.learn_one(x, label)
    return smooth(P)


def play_lightgbm(settings: tuple[int, float, int], X: Rows, y: Labels, K: int, seed: int) -> Rows:
    """LightGBM, fitted anew to all rows so far whenever a quarter more have come."""
    leaves, rate, least = settings
    parameters = {
        "objective": "binary" if K == 2 else "multiclass", "num_class": 1 if K == 2 else K,
        "num_leaves": leaves, "learning_rate": rate, "min_child_samples": least,
        "num_threads": 1, "verbose": -1,
    }  # fmt: skip
    P, n = np.zeros((len(X), K)), FIRST_FIT
    while n < len(X):
        trees = lightgbm.train(parameters, lightgbm.Dataset(X[:n], y[:n]), num_boost_round=100)
        end = math.ceil(GROWTH * n)
        p = np.asarray(trees.predict(X[n:end]))
        P[n:end] = np.c_[1.0 - p, p] if K == 2 else p
        n = end
    return smooth(P)


def _hat(K: int, seed: int) -> Any:
    return HoeffdingAdaptiveTreeClassifier(seed=seed)


def _arf(n_trees: int, K: int, seed: int) -> Any:
    return ARFClassifier(n_models=n_trees, seed=seed)


def _amf(n_trees: int, K: int, seed: int) -> Any:
    return AMFClassifier(n_estimators=n_trees, dirichlet=1 / K, seed=seed)


def _scaled(make: Callable[[int, int], Any], K: int, seed: int) -> Any:
    return StandardScaler() | make(K, seed)


OURS: dict[str, Player] = {"model": play_model, "lines": partial(play_model, terms="none")}
METHODS: dict[str, Player] = {
    **OURS,
    "lightgbm": partial(play_lightgbm, PLAIN),
    "hat": partial(play_river, _hat),
    "arf-10": partial(play_river, partial(_arf, 10)),
    "amf-10": partial(play_river, partial(_amf, 10)),
    **{name: partial(play_lightgbm, settings) for name, settings in GRID.items()},
    "arf-50": partial(play_river, partial(_arf, 50)),
    "amf-50": partial(play_river, partial(_amf, 50)),
    "arf-10-scaled": partial(play_river, partial(_scaled, partial(_arf, 10))),
    "amf-10-scaled": partial(play_river, partial(_scaled, partial(_amf, 10))),
}
