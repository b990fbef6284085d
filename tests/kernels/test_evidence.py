"""Every line that a bound rests on: one row from its definition, and the rounding of the sums."""

import math

import numpy as np
import pytest

from folklearn import Evidence
from folklearn.kernels.evidence import DEPTH, add_products, expand_row


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("K", [2, 3, 6])
def test_a_row_is_expanded_as_defined(K, soft):
    rng = np.random.default_rng(K)
    z, weight = 3.0 * rng.normal(size=K), 2.5
    y = rng.dirichlet(np.ones(K)) if soft else np.eye(K)[1]
    label, given = (-1, y) if soft else (1, np.empty(0))
    pairs, residual = np.empty(K * (K - 1) // 2), np.empty(K)
    expand_row(z.copy(), label, given, weight, pairs, residual)
    p = np.exp(z) / np.exp(z).sum()
    away = z - p @ z
    i, j = np.triu_indices(K, 1)
    np.testing.assert_allclose(pairs, 0.5 * weight * p[i] * p[j], rtol=1e-12)
    np.testing.assert_allclose(residual, weight * (p - y - p * away), rtol=1e-9)


@pytest.mark.parametrize("m", [9, 1, 300])  # 300 are more than are added at once
@pytest.mark.parametrize("d", [1, 7, 161])
def test_products_enter_their_places(d, m):
    rng = np.random.default_rng(d)
    X, coefficients = rng.normal(size=(m, d)), rng.random(size=(m, 3))
    S = np.ones((3, d * (d + 1) // 2))
    add_products(S, coefficients, X)
    for pair in range(3):
        square = 1.0 + (X.T * coefficients[:, pair]) @ X
        np.testing.assert_allclose(S[pair], square[np.tril_indices(d)], rtol=1e-9)


def test_depth_counts_rows_merges_and_scalings():
    X = np.random.default_rng(0).normal(size=(300, 2))
    few, many = (Evidence(n_features=2, n_classes=2) for _ in range(2))
    few.add(X[:10], np.zeros(10, int))
    many.add(X, np.zeros(300, int))
    assert few._all_totals()[DEPTH] == 10
    assert many._all_totals()[DEPTH] == 300
    assert (few + many)._all_totals()[DEPTH] == (many + few)._all_totals()[DEPTH] == 311
    assert (0.5 * few)._all_totals()[DEPTH] == 11
    assert (0.5 * few).total_weight == 5.0


def test_a_loss_is_rounded_up_before_a_floor_is_taken_from_it():
    evidence = Evidence(n_features=1, n_classes=2)
    evidence.add(np.ones((50, 1)), np.tile([0, 1], 25))
    loss = 1e12
    certificate = evidence.certificate(loss)
    assert certificate.regret_bound >= loss * (1.0 + 50 * 2.0**-53) - evidence.lower_bound()
    assert math.isclose(certificate.regret_bound, loss, rel_tol=1e-9)
