"""Rows on a device become the quadratics that the compiled code makes of them."""

import numpy as np
import pytest

from folklearn.arrays import logit_losses
from folklearn.kernels import quadratic
from folklearn.kernels.evidence import add_products, expand_rows
from folklearn.kernels.on_torch import back
from folklearn.kernels.on_torch import expand as on_torch
from folklearn.kernels.on_torch.expand import DeviceRows

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")


def hostile_rows(rng, m, K, soft):
    """Logits up to 1000 away from each other, weights from 0 to 1000."""
    Z = rng.normal(size=(m, K)) * 10.0 ** rng.uniform(-6, 3, size=(m, 1))
    Z[0], Z[1] = 0.0, np.where(np.arange(K) == 1, 1000.0, -1000.0)
    labels = np.full(m, -1) if soft else rng.integers(K, size=m)
    Y = rng.dirichlet(np.full(K, 0.2), size=m) if soft else np.empty((0, K))
    weights = rng.choice([0.0, 1e-3, 1.0, 1000.0], size=m)
    return Z, labels, Y, weights


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("K", [2, 3, 7])
def test_rows_are_expanded_as_on_the_cpu(K, soft, device, rng):
    m = 60
    Z, labels, Y, weights = hostile_rows(rng, m, K, soft)
    pairs, residuals = np.empty((m, K * (K - 1) // 2)), np.empty((m, K))
    expand_rows(Z.copy(), labels, Y, weights, pairs, residuals)
    rows = DeviceRows.of(device, K, np.zeros((m, 1)), labels, Y, weights)
    point = on_torch.Point(device, device.put(Z), rows)
    found_coefficients, found_residuals = point.expand()
    np.testing.assert_allclose(back(found_coefficients), pairs, rtol=1e-12, atol=1e-300)
    unit = 1e-12 * (1.0 + weights[:, None])
    assert (np.abs(back(found_residuals) - residuals) <= unit).all()
    assert float(point.loss()) == pytest.approx(weights @ logit_losses(Z, labels, Y), rel=1e-12)


@pytest.mark.parametrize("most", [1 << 26, 50, 1])
def test_products_are_added_as_on_the_cpu(most, device, rng, monkeypatch):
    """However few of them may exist at once."""
    monkeypatch.setattr(quadratic, "_MAX_SCALED_NUMBERS", most)
    m, d, Q = 23, 5, 3
    X, coefficients = rng.normal(size=(m, d)), rng.random((m, Q))
    before = rng.normal(size=(Q, d, d))
    before += before.transpose(0, 2, 1)
    lower = np.tril_indices(d)
    expected = np.ascontiguousarray(before[:, *lower])
    add_products(expected, coefficients, X)
    S = device.put(before)
    quadratic.add_device_products(S, device.put(coefficients), device.put(X))
    found = back(S)
    np.testing.assert_allclose(found[:, *lower], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found, found.transpose(0, 2, 1), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_rows_are_sent_in_parts(soft, device, rng, monkeypatch):
    monkeypatch.setattr("folklearn.kernels.on_torch.expand._MAX_SENT_NUMBERS", 6)
    _, labels, Y, weights = hostile_rows(rng, 7, 3, soft)
    X = rng.normal(size=(7, 2))
    parts = list(DeviceRows.batches_of(device, 3, X, labels, Y, weights))
    assert [len(part.X) for part in parts] == [3, 3, 1]
    own = [np.concatenate([back(one) for one in each]) for each in zip(*parts, strict=True)]
    targets = Y if soft else np.eye(3)[labels]
    for found, expected in zip(own, (X, targets, weights), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert parts[0].n_bytes == 8 * 3 * (2 + 3 + 1)
