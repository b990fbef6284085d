"""Predictions in many files: their evidence adds up to the same proof, wherever it is made."""

import numpy as np
from joblib import Parallel, delayed

from folklearn import Certifier, synthetic
from folklearn.evaluate.regression import logistic_regression
from folklearn.evidence.passes import add_in_tree

SIZES = {"n_features": 3, "n_classes": 3}
FILES = range(5)


def blocks_of(number):
    """Yield what stands for a file: rows, and the predictions of somebody who is too sure."""
    rows = slice(300 * number, 300 * (number + 1))
    X, y = (array[rows] for array in synthetic.stochastic(0, 1500, d=3, K=3))
    P = np.full((300, 3), 0.1)
    P[:, number % 3] = 0.8
    yield X[:100], y[:100], P[:100]
    yield X[100:], y[100:], P[100:]


def certify(file):
    certifier = Certifier(**SIZES, C=4.0)
    for block in blocks_of(file):
        certifier.observe_many(*block)
    return certifier.loss, certifier.evidence


def certificate_of(n_jobs=1):
    certified = Parallel(n_jobs=n_jobs)(delayed(certify)(file) for file in FILES)
    losses, evidence = zip(*certified, strict=True)
    return add_in_tree(evidence).certificate(sum(losses))


def test_no_model_gets_below_the_floor_of_all_files():
    blocks = [block for file in FILES for block in blocks_of(file)]
    X, y, _ = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    best = logistic_regression(X, y, C=4.0, n_classes=3)
    found, total = certificate_of(), best.loss + best.penalty
    assert (found.n_rounds, found.valid) == (1500, True)
    assert total * (1.0 - 1e-5) < found.best_linear_at_least <= total


def test_processes_give_the_same_bits():
    assert certificate_of(n_jobs=1) == certificate_of(n_jobs=2)
