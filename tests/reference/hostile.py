"""Streams that are hostile to evidence: rows, labels and weights of every size."""

import numpy as np


def one_stream(rng, T, d, K):
    """X (T, d), Y (T, K), weight (T,), hostile in one of several ways."""
    X = rng.normal(size=(T, d))
    kind = rng.integers(6)
    if kind == 0:
        X *= 10.0 ** rng.uniform(-3, 6, size=(T, 1))
    elif kind == 1:
        X *= 10.0 ** rng.uniform(-3, 6)
    elif kind == 2:  # nearly on a line
        X = rng.normal(size=(T, 1)) * X[:1] + 10.0 ** rng.uniform(-12, -3) * X
        X *= 10.0 ** rng.uniform(-1, 4)
    elif kind == 3:  # repeated, growing
        X = X[:1] * 10.0 ** np.linspace(0, rng.uniform(0, 8), T)[:, None]
    elif kind == 4:
        X[:, 0] *= 10.0 ** rng.uniform(2, 6)
        X[rng.integers(T)] = 0.0
    labels = rng.integers(rng.integers(1, K + 1), size=T)  # some classes may never occur
    if rng.random() < 0.3:
        labels = (X @ rng.normal(size=(d, K))).argmax(axis=1)  # separable
    Y = np.eye(K)[labels]
    if rng.random() < 0.3:
        Y = rng.dirichlet(np.full(K, 10.0 ** rng.uniform(-2, 1)), size=T)
        Y /= Y.sum(axis=1, keepdims=True)
    weight = np.ones(T)
    if rng.random() < 0.4:
        weight = 10.0 ** rng.uniform(-6, 6, size=T) * (rng.random(T) < 0.8)
    return X, Y, weight
