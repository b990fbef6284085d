"""Sums over rows from their definitions: one row to second order, and products of features."""

import numpy as np
import pytest
from scipy.special import softmax

from folklearn.kernels.evidence import add_products, expand_row


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("K", [2, 3, 6])
def test_a_row_is_expanded_as_defined(K, soft):
    rng = np.random.default_rng(K)
    z, weight = 3.0 * rng.normal(size=K), 2.5
    y = rng.dirichlet(np.ones(K)) if soft else np.eye(K)[1]
    label, given = (-1, y) if soft else (1, np.empty(0))
    pairs, residual = np.empty(K * (K - 1) // 2), np.empty(K)
    expand_row(z.copy(), label, given, weight, pairs, residual)
    p = softmax(z)
    i, j = np.triu_indices(K, 1)
    np.testing.assert_allclose(pairs, 0.5 * weight * p[i] * p[j], rtol=1e-12)
    np.testing.assert_allclose(residual, weight * (p - y - p * (z - p @ z)), rtol=1e-9)


def test_far_classes_are_absent():
    pairs, residual = np.empty(1), np.empty(2)
    expand_row(np.array([1e6, -1e6]), 1, np.empty(0), 1.0, pairs, residual)
    assert pairs[0] == 0.0
    np.testing.assert_array_equal(residual, [1.0, -1.0])


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
