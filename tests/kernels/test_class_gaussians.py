"""The kernels of class blocks: the implicit step by its conditions, covariances by their sense."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import lambertw, logsumexp, softmax

from folklearn.kernels import class_gaussians as kernels
from folklearn.kernels.linear_models import length
from tests.reference.class_blocks import implicit_step

NO_LABEL = np.empty(0)
VARIANCES = (0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e6, 1e12)


def solved(z, v, y):
    """p', p' - y and the number of steps; y is a class or a distribution."""
    z = z - z.max()
    K = len(z)
    p, residual = softmax(z), np.empty(K)
    label, soft = (int(y), NO_LABEL) if np.ndim(y) == 0 else (-1, y)
    n_steps = kernels.solve(
        z.copy(), float(logsumexp(z)), v, label, soft, p, residual, np.empty((4, K))
    )
    return p, residual, n_steps


def assert_optimal(z, v, y, p, residual):
    """z' = z - v (p' - y) must have softmax p'; in logarithms, so that small ones count too."""
    given_ = np.eye(len(z))[y] if np.ndim(y) == 0 else y
    np.testing.assert_allclose(p - given_, residual, atol=4e-16)
    assert abs(residual.sum()) <= 1e-13
    z = z - z.max()
    moved = z - v * residual
    size = 1.0 + np.abs(z).max() + np.abs(moved).max()
    log_p = moved - logsumexp(moved)
    seen = p > 1e-290
    assert np.abs(np.log(p[seen]) - log_p[seen]).max() <= 1e-12 * size
    assert (log_p[~seen] < -600).all()


@settings(max_examples=200)
@given(
    K=st.integers(2, 30),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 10.0, 100.0, 3000.0]),
    weight=st.sampled_from([1e-6, 0.3, 1.0, 1e3, 1e9, 1e15]),
    alike=st.booleans(),
    label=st.sampled_from(["likely", "unlikely", "any", "soft", "sparse", "predicted"]),
    seed=st.integers(0, 10**6),
)
def test_the_implicit_step_over_hostile_inputs(K, spread, weight, alike, label, seed):
    rng = np.random.default_rng(seed)
    z = spread * rng.normal(size=K)
    s = rng.choice(VARIANCES, size=1 if alike else K) * rng.uniform(0.5, 2.0, size=K)
    y = {
        "likely": np.argmax(z),
        "unlikely": np.argmin(z),
        "any": rng.integers(K),
        "soft": rng.dirichlet(np.ones(K)),
        "sparse": rng.dirichlet(np.full(K, 0.02) + 1e-9),
        "predicted": softmax(z),
    }[label]
    y = y / y.sum() if np.ndim(y) else int(y)
    p, residual, n_steps = solved(z, weight * s, y)
    assert n_steps < 100
    assert_optimal(z, weight * s, y, p, residual)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("weight", [0.1, 1.0, 20.0])
def test_the_implicit_step_is_the_minimiser(kind, weight, rng):
    for _ in range(20):
        K = int(rng.integers(2, 12))
        z, s = 3.0 * rng.normal(size=K), rng.exponential(size=K) + 1e-3
        y = int(rng.integers(K)) if kind == "hard" else rng.dirichlet(np.ones(K))
        given_ = np.eye(K)[y] if kind == "hard" else y
        expected = softmax(implicit_step(z, s, given_, weight))
        np.testing.assert_allclose(solved(z, weight * s, y)[0], expected, atol=1e-12)


def test_few_steps_are_enough_on_ordinary_rounds(rng):
    counts = []
    for _ in range(200):
        z, s = 2.0 * rng.normal(size=500), rng.exponential(size=500)
        counts.append(solved(z, s, int(rng.integers(500)))[2])
    assert np.mean(counts) < 5.0
    assert max(counts) < 10


@pytest.mark.parametrize("E", np.logspace(-2, 300, 40))
def test_the_function_of_lambert(E):
    exact = float(lambertw(E).real)
    w = math.exp(kernels._deviation(1.0, math.log(E) - 1.0))
    assert w == pytest.approx(exact, rel=1e-15 * (2.0 + abs(math.log(E))))


def test_the_function_of_lambert_of_what_overflows():
    for c in (500.0, 690.0, 1e3, 1e10, 1e100):
        w = math.exp(kernels._deviation(1.0, c - 1.0))
        assert w + math.log(w) == pytest.approx(c, rel=1e-12)


def packed(matrices):
    """Lower triangles by rows, classes last, of (K, d, d)."""
    rows, columns = np.tril_indices(matrices.shape[1])
    return np.ascontiguousarray(matrices[:, rows, columns].T)


@pytest.mark.parametrize("K", [3, 300])
@pytest.mark.parametrize("density", [0.3, 1.0])
def test_spread_is_the_product_with_every_covariance(K, density, rng):
    d = 6
    half = rng.normal(size=(K, d, d))
    P = half @ half.transpose(0, 2, 1)
    x = rng.normal(size=d) * (rng.random(d) < density)
    u, s, noise = np.empty((d, K)), np.empty(K), np.empty(K)
    kernels.spread(packed(P), x, u, s, noise)
    np.testing.assert_allclose(u.T, P @ x, atol=1e-12)
    np.testing.assert_allclose(s, (P @ x) @ x, rtol=1e-12)


def test_a_variance_that_is_noise_is_0(rng):
    d = 3
    v = rng.normal(size=d)
    v /= length(v)
    P = 1e6 * (np.eye(d) - np.outer(v, v))[None]
    u, s, noise = np.empty((d, 1)), np.empty(1), np.empty(1)
    kernels.spread(packed(P), v, u, s, noise)
    assert s[0] == 0.0
