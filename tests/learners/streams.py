"""Streams for tests of learners."""

import numpy as np
from scipy.special import logsumexp

from tests.reference.evidence import labels_as_rows


def mixed_stream(seed, T, d, K, kind):
    """Rows of different norms, labels as rows (T, K), weights; kind is hard, soft or weighted."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, d)) * rng.choice([0.3, 1.0, 3.0], size=(T, 1)) / np.sqrt(d)
    W = 4.0 * rng.normal(size=(K, d))
    y = np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)
    Y = rng.dirichlet(np.full(K, 0.3), size=T) if kind == "soft" else labels_as_rows(y, K)
    weight = rng.choice([0.0, 0.5, 1.0], size=T) if kind == "weighted" else np.ones(T)
    return X, Y, weight


def loss_with_penalty(W, X, Y, weight):
    """Total loss of W (K, d) plus its penalty, C = 1: 1 / C, or 2 / C for two classes."""
    Z = X @ W.T
    loss = weight @ (logsumexp(Z, axis=1) - (Y * Z).sum(axis=1))
    return float(loss + (2.0 if len(W) == 2 else 1.0) * 0.5 * (W**2).sum())
