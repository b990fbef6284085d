"""What real streams contain costs little, measured against the same stream without it."""

import numpy as np
import pytest

from folklearn.model.open import OpenModel

T, D, K = 1500, 4, 3


@pytest.fixture
def clean(rng):
    X = rng.normal(size=(T, D))
    W = 3.0 * rng.normal(size=(K, D))
    y = np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)
    return X * [1e-3, 1.0, 50.0, 1e6] + [0.0, 5.0, -300.0, 1e7], y


def later_loss(X, y):
    model = OpenModel("folklore", n_features=X.shape[1], n_classes=K)
    P, _ = model.run(X, y)
    assert np.isfinite(P).all()
    return -np.log(P[np.arange(len(y)), y])[T // 3 :].mean()


@pytest.mark.parametrize("rows", [[0], [1], [2], [0, 1], [0, 3], [10, 11], [300]])
@pytest.mark.parametrize("absurd", [1e9, -1e14])
def test_absurd_values_cost_little(clean, rows, absurd):
    X, y = clean
    dirty = X.copy()
    dirty[rows] = absurd / D
    assert later_loss(dirty, y) < later_loss(X, y) + 0.05


def test_one_absurd_value_in_a_hundred_costs_about_as_much_as_a_large_one(clean, rng):
    X, y = clean
    there = rng.random(X.shape) < 0.01
    large = np.where(there, X.mean(axis=0) + 5.0 * X.std(axis=0), X)
    absurd = np.where(there, 1e12, X)
    assert later_loss(absurd, y) < later_loss(large, y) + 0.2


def test_constant_features_cost_nothing_but_the_scale(clean):
    X, y = clean
    constant = np.column_stack([X, np.full((T, 2), 7.0)])
    assert later_loss(constant, y) < later_loss(X, y) + 0.05


def test_duplicated_features_cost_little(clean):
    X, y = clean
    assert later_loss(np.column_stack([X, X]), y) < later_loss(X, y) + 0.05


def test_a_missing_value_costs_what_it_would_have_told(clean, rng):
    X, y = clean
    gaps = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    filled = np.where(np.isnan(gaps), X.mean(axis=0), gaps)
    assert later_loss(gaps, y) == pytest.approx(later_loss(filled, y), abs=0.05)


def test_a_feature_that_is_always_missing_is_none_at_all(clean):
    X, y = clean
    gaps = np.column_stack([X, np.full(T, np.nan)])
    assert later_loss(gaps, y) < later_loss(X, y) + 0.05


def test_an_absurd_value_after_a_constant_beginning_is_forgotten(rng):
    counts = rng.poisson(0.3, size=(T, 1)).astype(float)
    y = np.minimum(counts[:, 0], K - 1).astype(np.int64)
    counts[:4, 0] = 0.0, 0.0, 0.0, 1e6
    assert later_loss(counts, y) < 0.2
