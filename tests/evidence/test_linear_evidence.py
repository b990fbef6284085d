"""Planes: balanced along a constant, in any share, of columns that are too many to be listed."""

import numpy as np
import pytest

from folklearn import LinearEvidence
from folklearn.evaluate.regression import logistic_regression
from folklearn.sparse import SparseRows
from folklearn.validation import Rows


def rows_of(rng, T=600, d=3, K=3):
    X = np.hstack([np.ones((T, 1)), rng.normal(size=(T, d))])
    y = (X @ rng.normal(size=(d + 1, K)) + rng.gumbel(size=(T, K))).argmax(axis=1)
    weights = rng.random(T)
    rows = Rows(X, np.sqrt((X**2).sum(axis=1)), np.full(T, -1), np.eye(K)[y], weights)
    return rows, logistic_regression(X, y, n_classes=K, weight=weights, constant=0)


def softmax(Z):
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def test_balanced_planes_have_no_slope_along_the_constant(rng):
    rows, best = rows_of(rng)
    shifted = softmax(rows.X @ best.W.T + [0.3, -0.2, 0.0])  # predictions that are off
    plain, balanced = (LinearEvidence(n_features=4, n_classes=3, constant=0) for _ in range(2))
    plain._add_planes(rows, shifted)
    for part in (slice(0, 200), slice(200, 600)):
        balanced._add_balanced(rows.part(part.start, part.stop), shifted[part])
    assert np.abs(balanced.G[balanced.columns == 0]).max() < 0.011
    least = best.loss + best.penalty
    assert plain.lower_bound() < 0.1 * least
    assert 0.95 * least < balanced.lower_bound() <= least


@pytest.mark.parametrize("label", [0, 2])
def test_rows_of_one_class_can_be_balanced(label):
    evidence = LinearEvidence(n_features=1, n_classes=3, constant=0)
    Y = np.eye(3)[[label] * 5]
    rows = Rows(np.ones((5, 1)), np.ones(5), np.full(5, -1), Y, np.ones(5))
    evidence._add_balanced(rows, np.tile([0.0, 0.5, 0.5], (5, 1)))
    assert 0.0 <= evidence.lower_bound() < 0.1  # a constant predicts them all


def test_a_share_of_the_planes_is_a_bound_where_all_of_them_are_none(rng):
    rows, best = rows_of(rng)
    evidence = LinearEvidence(n_features=4, n_classes=3, constant=0)
    evidence._add(rows)  # at 1/3, 1/3, 1/3
    tau = evidence.penalties[evidence.columns]
    c, bent = evidence._totals[0], 0.5 * float(((evidence.G**2).sum(axis=1) / tau).sum())
    assert c < bent
    assert evidence.lower_bound() == pytest.approx(c**2 / (4.0 * bent))
    assert 0.0 < evidence.lower_bound() <= best.loss + best.penalty


def test_columns_are_too_many_to_be_listed():
    evidence = LinearEvidence(n_features=2**41, n_classes=2, constant=2**40)
    X = SparseRows(np.array([0, 2]), np.array([7, 2**40]), np.array([1.0, 1.0]), 2**41)
    evidence.add(X, [1])
    assert 0.0 < evidence.certificate(1.0).best_linear_at_least < np.log(2.0)
