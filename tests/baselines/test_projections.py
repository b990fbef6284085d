"""The projections, against a generic solver and against their own optimality conditions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.baselines.kernels import optimality_gap, project
from folklearn.kernels.linear_models import length, project_rows
from tests.reference import ons as reference

shapes = st.tuples(st.integers(2, 6), st.integers(1, 5))  # K, d


def random_matrix(rng, n, size):
    """Identity plus a positive semidefinite matrix of random rank."""
    half = rng.normal(size=(n, int(rng.integers(1, n + 1))))
    return np.eye(n) + size * half @ half.T / n


def solve(origin, step, A, B, tolerance=1e-10):
    W = np.empty_like(origin)
    largest = 1.0 + np.trace(A) - len(A)
    gap, solved = project(origin, step, A, largest, B, tolerance, W)
    return W, gap, solved


def test_length_survives_squares_that_overflow():
    assert length(np.array([3.0, 4.0])) == 5.0
    assert length(np.array([3e200, 4e200])) == pytest.approx(5e200)
    assert length(np.zeros(3)) == 0.0
    assert math.isnan(length(np.array([1.0, math.nan])))
    assert not length(np.array([1.0, math.inf])) <= 1e300


@given(shape=shapes, seed=st.integers(0, 10**6), size=st.sampled_from([1e-9, 1.0, 1e9, 1e180]))
def test_rows_are_shortened_one_by_one(shape, seed, size):
    rng = np.random.default_rng(seed)
    W = size * rng.normal(size=shape)
    B = size if size < 1e100 else 2.0
    norms = np.array([math.hypot(*row) for row in W])
    expected = W * np.minimum(1.0, B / norms)[:, None]
    assert project_rows(W, B) == (norms > B).sum()
    np.testing.assert_allclose(W, expected, rtol=1e-13)


@given(shape=shapes, seed=st.integers(0, 10**6))
def test_the_gap_is_the_largest_slope_over_the_class(shape, seed):
    rng = np.random.default_rng(seed)
    W, g = rng.normal(size=shape), rng.normal(size=shape)
    worst = -3.0 * g / np.linalg.norm(g, axis=1, keepdims=True)
    assert optimality_gap(W, g, 3.0) == pytest.approx((g * (W - worst)).sum(), rel=1e-12)


@given(
    shape=shapes,
    seed=st.integers(0, 10**6),
    size=st.sampled_from([0.0, 0.1, 10.0, 300.0]),
    reach=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_projection_equals_the_reference(shape, seed, size, reach):
    """By the reference solver, and by the optimality conditions: g_k = -mu_k W_k, mu_k >= 0."""
    rng = np.random.default_rng(seed)
    B = 1.5
    A = random_matrix(rng, shape[0] * shape[1], size)
    origin = rng.normal(size=shape)
    project_rows(origin, B)
    step = reach * rng.normal(size=shape)
    W, gap, solved = solve(origin, step, A, B)
    assert solved
    assert 0.0 <= gap <= max(1e-10, 1e-13 * np.trace(A))
    expected, _ = reference.project(origin - step, A / 2, B)
    np.testing.assert_allclose(W, expected, atol=1e-11)
    g = (A @ (W - origin + step).ravel()).reshape(shape)
    for row, slope in zip(W, g, strict=True):
        norm = np.linalg.norm(row)
        assert norm <= B * (1.0 + 1e-12)
        inside = norm < B * (1.0 - 1e-9)
        target = np.zeros_like(row) if inside else -np.linalg.norm(slope) / B * row
        np.testing.assert_allclose(slope, target, atol=1e-9 * (1.0 + np.abs(A).max()))


def test_a_point_of_the_class_stays():
    origin, step = np.full((2, 2), 0.1), np.full((2, 2), 0.2)
    W, gap, solved = solve(origin, step, np.eye(4), 1.0)
    np.testing.assert_array_equal(W, origin - step)
    assert (gap, solved) == (0.0, True)


def test_in_the_identity_norm_rows_are_shortened(rng):
    origin, step = np.zeros((3, 4)), 5.0 * rng.normal(size=(3, 4))
    expected = -step.copy()
    project_rows(expected, 2.0)
    np.testing.assert_allclose(solve(origin, step, np.eye(12), 2.0)[0], expected, atol=1e-14)


def test_a_step_far_below_rounding_of_the_origin_keeps_its_gap():
    """From the sphere, outward by 1e-12: V - W is known to the digits of the step."""
    origin = np.array([[10.0, 0.0], [0.0, 10.0]])
    step = -1e-12 * origin
    W, gap, solved = solve(origin, step, np.eye(4), 10.0, tolerance=1e-22)
    np.testing.assert_allclose(W, origin, rtol=1e-15)
    assert solved
    assert gap <= 1e-12


def test_an_unsolved_projection_is_a_member_and_says_its_gap(rng):
    """An absurd condition number: no claim of success, but a true gap."""
    A = np.eye(6)
    for _ in range(3):
        v = 1e7 * rng.normal(size=6)
        A += np.outer(v, v)
    origin, step = np.zeros((3, 2)), rng.normal(size=(3, 2)) * 30.0
    W, gap, solved = solve(origin, step, A, 1.0)
    assert np.linalg.norm(W, axis=1).max() <= 1.0 + 1e-12
    assert math.isfinite(gap)
    assert isinstance(solved, bool)
