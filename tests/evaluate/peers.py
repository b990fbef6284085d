"""Predictions of other libraries, each made before its label was learned."""

import numpy as np
import pytest


def constant(X, y, K):
    return np.full((len(X), K), 1.0 / K)


def frequencies(X, y, K):
    """How often each class occurred so far, with one added to each count."""
    counts = np.cumsum(np.vstack([np.ones(K), np.eye(K)[y[:-1]]]), axis=0)
    return counts / counts.sum(axis=1, keepdims=True)


def river(X, y, K, mix=1e-3):
    """River's softmax regression; it knows only the classes it saw, so `mix` is uniform."""
    linear_model = pytest.importorskip("river.linear_model", reason="River is not installed")
    model = linear_model.SoftmaxRegression()
    P = np.zeros((len(X), K))
    for t, (x, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        features = dict(enumerate(x))
        for k, p in model.predict_proba_one(features).items():
            P[t, k] = p
        if not P[t].any():
            P[t] = 1.0 / K
        model.learn_one(features, label)
    return (1.0 - mix) * P + mix / K


def vw(X, y, K):
    """Vowpal Wabbit's one-against-all; its numbers are single precision."""
    package = pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is not installed")
    model = package.Workspace(f"--oaa {K} --probabilities --loss_function=logistic --quiet")
    P = np.empty((len(X), K))
    for t, (x, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        features = " ".join(f"{j}:{value:.6g}" for j, value in enumerate(x))
        example = model.parse(f"{label + 1} | {features}")
        P[t] = model.predict(example)
        model.learn(example)
        model.finish_example(example)
    model.finish()
    P = np.maximum(P, 1e-6)
    return P / P.sum(axis=1, keepdims=True)


PEERS = {"constant": constant, "frequencies": frequencies, "river": river, "vw": vw}
