import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from folklearn.kernels import prediction_rules
from folklearn.kernels.prediction_rules import MAX_STEPS, cholesky, solve_fixed_point
from folklearn.kernels.simplex import helmert


def solve(h, C):
    k = h.size
    squares, vectors = prediction_rules.small_arrays(k)
    squares[prediction_rules.C_AT] = C
    vectors[prediction_rules.A_AT, :k] = h
    solve_fixed_point(0.5, squares, vectors)
    log_total, steps = vectors[prediction_rules.INFO, :2]
    u, z, p = vectors[[prediction_rules.U_AT, prediction_rules.Z_AT, prediction_rules.P_AT]]
    return u[:k], z, p, log_total, steps


def positive_semidefinite(rng, k, rank, size):
    half = rng.normal(size=(k, rank))
    return size * half @ half.T / rank


@given(
    K=st.integers(2, 12),
    rank=st.integers(1, 12),
    size=st.sampled_from([0.0, 1e-300, 1e-3, 1.0, 1e2, 1e4, 1e6]),
    seed=st.integers(0, 10**6),
)
def test_the_equation_is_solved_for_any_semidefinite_C(K, rank, size, seed):
    rng = np.random.default_rng(seed)
    C = positive_semidefinite(rng, K - 1, rank, size)
    h = rng.normal(size=K - 1) * max(1.0, np.sqrt(size))
    u, z, p, log_total, steps = solve(h, C)
    Q = helmert(K)
    logits = Q @ u
    np.testing.assert_allclose(z, logits - logits.max(), rtol=1e-12, atol=1e-12 * (1 + size))
    np.testing.assert_allclose(p, np.exp(z - logsumexp(z)), rtol=1e-9, atol=1e-300)
    assert log_total == pytest.approx(logsumexp(z), rel=1e-12)
    np.testing.assert_allclose(u, h - 0.5 * C @ Q.T @ p, atol=1e-10 * (1.0 + size))
    assert steps < MAX_STEPS


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("size", [1e10, 1e17])
def test_a_well_conditioned_huge_C_still_converges(K, size, rng):
    C = size * np.eye(K - 1)
    h = np.sqrt(size) * rng.normal(size=K - 1)
    u, _, p, _, steps = solve(h, C)
    assert steps < MAX_STEPS
    residual = u - h + 0.5 * C @ helmert(K).T @ p
    assert np.abs(residual).max() <= 1e-12 * size


def test_zero_h_gives_the_uniform_distribution_exactly():
    for K in (2, 3, 10):
        p = solve(np.zeros(K - 1), 5.0 * np.eye(K - 1))[2]
        np.testing.assert_array_equal(p, np.full(K, 1.0 / K))


def test_cholesky_raises_pivots_that_rounding_pushed_down():
    A = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-9]])
    inverse = np.empty(2)
    assert cholesky(A, inverse, 1.0, 0.0) == 1
    np.testing.assert_allclose(A, [[1.0, 1.0], [1.0, 1.0]])


def test_cholesky_drops_null_directions(rng):
    half = rng.normal(size=(6, 3))
    A = half @ half.T
    factor, inverse = A.copy(), np.empty(6)
    cholesky(factor, inverse, 0.0, 1e-13)
    lower = np.tril(factor)
    np.testing.assert_allclose(lower @ lower.T, A, atol=1e-6)
    assert (np.diag(lower)[3:] == 0.0).all()
