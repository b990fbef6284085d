"""Evidence of first order: planes below the losses, against sums that do not round."""

import math

import numpy as np
import pytest
from scipy.special import softmax

from folklearn.numerics import tangents
from folklearn.numerics.evidence import N_TOTALS


def planes(rng, T, d, K, size):
    """Totals and G of T rows with soft labels and any predictions, and the rows themselves."""
    X, P = size * rng.normal(size=(T, d)), softmax(5.0 * rng.normal(size=(T, K)), axis=1)
    Y = rng.dirichlet(np.full(K, 0.3), size=T)
    weight = rng.choice([0.0, 1.0, 1000.0], size=T)
    totals, G, residual = np.zeros(N_TOTALS), np.zeros((K, d)), np.empty(K)
    for x, p, y, w in zip(X, P, Y, weight, strict=True):
        tangents.add_tangent(p, -1, y, w, math.sqrt(x @ x), residual, totals)
        G += np.outer(residual, x)
    return X, P, Y, weight, totals, G


def value(totals, G, W):
    return tangents.value(totals, G.T, W.T, np.sqrt((W**2).sum(axis=1)).max())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("K", [2, 7])
def test_the_value_is_the_sum_of_the_planes_rounded_down(K, size, rng):
    X, P, Y, weight, totals, G = planes(rng, 300, 3, K, size)
    for _ in range(20):
        W = rng.normal(size=(K, 3)) * 1e-3 / size
        terms = [
            w * ((y - p) @ -(W @ x) - p @ np.log(p))
            for x, p, y, w in zip(X, P, Y, weight, strict=True)
        ]
        below = value(totals, G, W)
        assert 0.0 < below <= math.fsum(terms) <= below * (1.0 + 1e-10)
        lengths = np.sqrt((W**2).sum(axis=1))
        pulls = np.sqrt((G**2).sum(axis=1))
        assert tangents.floor(totals, pulls, 3, lengths.max()) <= below


def test_at_the_best_of_the_class_value_and_floor_meet(rng):
    _, _, _, _, totals, G = planes(rng, 200, 4, 5, 1.0)
    pulls = np.sqrt((G**2).sum(axis=1))
    W = -0.01 * G / pulls[:, None]
    floor = tangents.floor(totals, pulls, 4, 0.01)
    assert floor > 0.0
    assert value(totals, G, W) == pytest.approx(floor, rel=1e-10)


def test_no_rows_prove_nothing():
    assert tangents.floor(np.zeros(N_TOTALS), np.zeros(3), 2, 10.0) == 0.0
    assert value(np.zeros(N_TOTALS), np.zeros((3, 2)), np.ones((3, 2))) == 0.0
