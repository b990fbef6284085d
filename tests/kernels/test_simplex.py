import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.kernels import simplex

CLASSES = [2, 3, 10, 1000]


def random_simplex(rng, K, spread):
    p = np.empty(K)
    simplex.softmax(spread * rng.normal(size=K), p)
    return p


@pytest.mark.parametrize("K", CLASSES)
def test_helmert_is_an_orthonormal_basis_of_the_complement_of_ones(K):
    Q = simplex.helmert(K)
    np.testing.assert_allclose(Q.T @ Q, np.eye(K - 1), atol=1e-13)
    np.testing.assert_allclose(Q.sum(axis=0), 0.0, atol=1e-13)


def test_helmert_is_nested():
    Q = simplex.helmert(7)
    np.testing.assert_array_equal(Q[:5, :4], simplex.helmert(5))
    np.testing.assert_array_equal(Q[5:, :4], 0.0)


@pytest.mark.parametrize("K", CLASSES)
def test_running_sums_are_products_with_helmert(K, rng):
    Q = simplex.helmert(K)
    v, u = rng.normal(size=K), rng.normal(size=K - 1)
    reduced, expanded = np.empty(K - 1), np.empty(K)
    simplex.reduce_classes(v, reduced)
    simplex.expand_classes(u, expanded)
    np.testing.assert_allclose(reduced, Q.T @ v, atol=1e-11)
    np.testing.assert_allclose(expanded, Q @ u, atol=1e-12)


@pytest.mark.parametrize("K", CLASSES)
def test_expanded_diagonal(K, rng):
    Q = simplex.helmert(K)
    half = rng.normal(size=(K - 1, 3))
    C = half @ half.T
    out = np.empty(K)
    simplex.expanded_diagonal(C, out)
    np.testing.assert_allclose(out, np.diag(Q @ C @ Q.T), rtol=1e-10, atol=1e-10)


def test_softmax_survives_huge_logits():
    p, z = np.empty(3), np.array([1e300, -7e299, 1e300])
    log_total = simplex.softmax(z, p)
    np.testing.assert_array_equal(p, [0.5, 0.0, 0.5])
    assert log_total - z[2] == np.log(2.0)


def dense_factor(p):
    k = p.size - 1
    g, scale, tail = np.empty(k), np.empty(k), np.empty(k)
    simplex.multinomial_factor(p, g, scale, tail)
    return g, scale, tail, np.diag(scale) + np.triu(np.outer(g, tail), 1)


@given(
    K=st.integers(2, 12),
    spread=st.sampled_from([0.0, 1.0, 30.0, 400.0, 1e5]),
    seed=st.integers(0, 10**6),
)
def test_multinomial_factor_is_exact_even_when_saturated(K, spread, seed):
    rng = np.random.default_rng(seed)
    p = random_simplex(rng, K, spread)
    g, scale, tail, rho = dense_factor(p)
    Q = simplex.helmert(K)
    # The covariance without cancellation: off-diagonal entries, and rows that sum to zero.
    covariance = -np.outer(p, p)
    np.fill_diagonal(covariance, 0.0)
    covariance -= np.diag(covariance.sum(axis=1))
    np.testing.assert_allclose(rho @ rho.T, Q.T @ covariance @ Q, atol=1e-15)

    v, out = rng.normal(size=K - 1), np.empty(K - 1)
    simplex.factor_times(v.size, g, scale, tail, v, out)
    np.testing.assert_allclose(out, rho @ v, atol=1e-13)
    simplex.factor_transpose_times(v.size, g, scale, tail, v, out)
    np.testing.assert_allclose(out, rho.T @ v, atol=1e-13)


@pytest.mark.parametrize("p", [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1e-300, 1.0]])
def test_multinomial_factor_at_the_corners(p):
    rho = dense_factor(np.array(p))[3]
    assert np.isfinite(rho).all()
    np.testing.assert_allclose(rho @ rho.T, 0.0, atol=1e-290)
