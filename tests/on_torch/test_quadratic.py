"""A sum of evidence on a device, its matrix, its floor and its mode, against those of the CPU."""

import numpy as np
import pytest
from scipy.linalg import LinAlgError, cho_solve

from folklearn import Evidence
from folklearn.kernels import lower_bound as floors
from folklearn.kernels import quadratic as host
from folklearn.kernels.newton import factor_ridge
from folklearn.kernels.on_torch import quadratic as on_torch
from folklearn.kernels.on_torch.device import back
from folklearn.kernels.on_torch.linear import factored

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

SHAPES = [(2, 1), (2, 4), (3, 3), (5, 2)]
B = 3.0


def some_quadratic(rng, K, d, T=60):
    evidence = Evidence(n_features=d, n_classes=K, B=B)
    y = rng.dirichlet(np.ones(K), size=T)
    evidence.add(rng.normal(size=(T, d)), y, at=rng.normal(size=(K, d)), weight=rng.random(T))
    return evidence._quadratic


@pytest.fixture(params=SHAPES, ids=str)
def both(request, device, rng):
    """The same sum here and there."""
    own = some_quadratic(rng, *request.param)
    return own, on_torch.DeviceQuadratic.of(device, own)


def near(found, expected, unit=1.0):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * unit)


def test_there_and_back_is_the_same(both):
    own, there = both
    for part, expected in zip(there.here(), own, strict=True):
        np.testing.assert_array_equal(part, expected)
    assert there.shape == own.shape
    copy = there.copy()
    for part in copy:
        part += 1.0
    np.testing.assert_array_equal(there.here().S, own.S)
    np.testing.assert_array_equal(there.totals, own.totals)


def test_its_matrix_and_curvature(both, device):
    own, there = both
    K, d = own.shape
    whole = host.matrix(own.blocks())
    near(back(on_torch.matrix(device, there.S)), whole)
    n = (K - 1) * d
    near(back(on_torch.curvature(device, there.S)), whole[:n, :n])


def test_its_ridge_is_that_of_centred_models(both, device, rng):
    own, there = both
    K, d = own.shape
    n = (K - 1) * d
    L = np.empty((n, n))
    assert factor_ridge(own.S, 0.3, K, L)
    H = on_torch.ridged(on_torch.curvature(device, there.S), 0.3, K)
    near(back(H), np.tril(L) @ np.tril(L).T, n)
    sides = rng.normal(size=(2, K, d))
    steps = back(on_torch.solved(factored(device, H), device.put(sides)))
    held = -0.5 * sides[:, : K - 1].reshape(2, n).T
    expected = np.zeros((2, K, d))
    expected[:, : K - 1] = cho_solve((np.tril(L), True), held).T.reshape(2, K - 1, d)
    near(steps, expected - expected.mean(axis=1, keepdims=True))


def test_what_pulls_at_models(both, device, rng):
    own, there = both
    W = rng.normal(size=(3, *own.shape))
    found = back(on_torch.pulled(device, there.S, device.put(W)))
    for one, expected in zip(found, W, strict=True):
        near(one, own.pulled(expected))
    near(there.pulled(W[0]), own.pulled(W[0]))


def test_its_form(both, device, rng):
    own, there = both
    K, d = own.shape
    here, form = own.form(), on_torch.DeviceForm(device, there.S)
    near(form.traces, here.traces)
    assert form.largest == pytest.approx(here.largest)
    apart = rng.normal(size=(len(own.S), d))
    near(form.along(apart), here.along(apart))
    multipliers = rng.uniform(0.5, 2.0, size=K)
    for sides in (rng.normal(size=K * d), rng.normal(size=(K * d, K))):
        near(form.factored(multipliers)(sides), here.factored(multipliers)(sides))


@pytest.fixture(params=["as it is", "always on the device"])
def least_size(request, monkeypatch):
    """From how many unknowns on the device solves."""
    if request.param != "as it is":
        monkeypatch.setattr(on_torch, "_SMALL", 0)


@pytest.mark.usefixtures("least_size")
def test_its_floor_value_and_mode(both, rng):
    own, there = both
    W = rng.normal(size=own.shape)
    assert floors.value(there, W) == pytest.approx(floors.value(own, W), rel=1e-11)
    here, found = floors.floor(own, B), floors.floor(there, B)
    assert found.below == pytest.approx(here.below, rel=1e-9)
    near(there.mode(0.1), own.mode(0.1))
    constant, slopes = floors.plane(there, here.W, B)
    expected_constant, expected_slopes = floors.plane(own, here.W, B)
    assert constant == pytest.approx(expected_constant, rel=1e-9)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-9, atol=1e-9)
    again = floors.floor(there, B, near=here.multipliers)
    assert again.below == pytest.approx(here.below, rel=1e-9)


def test_small_ones_are_solved_on_the_cpu_and_others_are_not(both, monkeypatch):
    _, there = both
    assert isinstance(there.form(), host.Form)
    monkeypatch.setattr(on_torch, "_SMALL", np.prod(there.shape))
    assert isinstance(there.form(), on_torch.DeviceForm)


def test_what_rounding_made_indefinite_is_nudged(device, rng):
    """Rows on one line: the matrix has a factor only with something on its diagonal."""
    x = rng.normal(size=3)
    S = np.stack([np.outer(x, x)] * 3)
    S[0, 0, 0] -= 1e-15
    sides = rng.normal(size=9)
    form, there = host.Form(S), on_torch.DeviceForm(device, device.put(S))
    nothing = np.zeros(3)
    for own in (form, there):
        assert np.isfinite(own.factored(nothing)(sides)).all()
    before = back(there._matrix)
    np.testing.assert_array_equal(before, host.matrix(S))  # nudged in a copy


def test_what_is_no_number_has_no_factor(device):
    form = on_torch.DeviceForm(device, device.put(np.full((1, 2, 2), np.nan)))
    with pytest.raises(LinAlgError, match="not a number"):
        form.factored(np.ones(2))


def test_a_mode_that_rounding_leaves_no_factor_for(device, rng):
    own = some_quadratic(rng, 3, 2)
    broken = own._replace(S=own.S - 100.0)
    assert broken.mode(1e-9) is None
    assert on_torch.DeviceQuadratic.of(device, broken).mode(1e-9) is None
