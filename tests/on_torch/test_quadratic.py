"""A sum of quadratics on a device, its matrix and its mode, against those of the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import LinAlgError, cho_solve

from folklearn.evidence.passes import passes_over
from folklearn.kernels import quadratic as host
from folklearn.kernels.newton import factor_ridge
from folklearn.kernels.on_torch import back

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

SHAPES = [(2, 1), (2, 4), (3, 3), (5, 2)]


def some_quadratic(rng, K, d, T=60):
    rows = rng.normal(size=(T, d)), rng.dirichlet(np.ones(K), size=T), rng.random(T)
    passes = passes_over(*rows, n_features=d, n_classes=K)
    return passes.expand(rng.normal(size=(K, d))).quadratic


@pytest.fixture(params=SHAPES, ids=str)
def both(request, device, rng):
    """The same sum here and there."""
    own = some_quadratic(rng, *request.param)
    return own, own.to(device)


def near(found, expected, unit=1.0):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * unit)


def test_there_and_back_is_the_same(both):
    own, there = both
    for part, expected in zip(there.to(None), own, strict=True):
        np.testing.assert_array_equal(part, expected)
    assert there.shape == own.shape
    copy = there.copy()
    for part in copy:
        part += 1.0
    np.testing.assert_array_equal(there.to(None).S, own.S)
    np.testing.assert_array_equal(there.totals, own.totals)


def test_its_matrix_and_curvature(both, device):
    own, there = both
    K, d = own.shape
    whole = host.matrix(own.blocks(), K)
    near(back(host.matrix(there.S, K, device)), whole)
    n = (K - 1) * d
    near(back(host.matrix(there.S, K, device, n_rows=K - 1)), whole[:n, :n])


def test_its_ridge_is_that_of_centred_models(both, device, rng):
    own, there = both
    K, d = own.shape
    n = (K - 1) * d
    L = np.empty((n, n))
    assert factor_ridge(own.S, 0.3, K, L)
    H = host.add_ridge(host.matrix(there.S, K, device, n_rows=K - 1), 0.3, K)
    near(back(H), np.tril(L) @ np.tril(L).T, n)
    side = rng.normal(size=(K, d))
    step = back(host.newton_step(host.factorise(H, device), device.put(side)))
    expected = np.zeros((K, d))
    held = -0.5 * side[: K - 1].ravel()
    expected[: K - 1] = cho_solve((np.tril(L), True), held).reshape(K - 1, d)
    near(step, expected - expected.mean(axis=0))


def test_what_pulls_at_models(both, device, rng):
    own, there = both
    W = rng.normal(size=(3, *own.shape))
    pulls = back(host.pull(there.S, device.put(W), device))
    for pull, model in zip(pulls, W, strict=True):
        near(own.G + 2.0 * pull, own.gradient(model))
    near(there.gradient(W[0]), own.gradient(W[0]))


def test_it_times_vectors(both, rng):
    own, there = both
    apart = rng.normal(size=(len(own.S), own.shape[1]))
    for here, device_product in zip(own.along(apart), there.along(apart), strict=True):
        near(device_product, here)


def test_its_mode(both):
    own, there = both
    near(there.mode(0.1), own.mode(0.1))


def test_what_rounding_made_indefinite_is_nudged(device, rng):
    """Rows on one line: the matrix has a factor only with something more on its diagonal."""
    x = rng.normal(size=3)
    H = np.outer(x, x) - 1e-15 * np.eye(3)
    side = rng.normal(size=(3, 1))
    for own, where in ((H.copy(), None), (device.put(H), device)):
        solve = host.factorise_near(own, where)
        assert np.isfinite(back(solve(side if where is None else device.put(side)))).all()


def test_what_is_no_number_has_no_factor(device):
    for nothing, where in (
        (np.full((2, 2), np.nan), None),
        (device.put(np.full((2, 2), np.nan)), device),
    ):
        with pytest.raises(LinAlgError, match="no numbers"):
            host.factorise_near(nothing, where)


def test_a_mode_that_rounding_leaves_no_factor_for(device, rng):
    own = some_quadratic(rng, 3, 2)
    broken = replace(own, S=own.S - 100.0)
    assert broken.mode(1e-9) is None
    assert broken.to(device).mode(1e-9) is None
