"""Rows on a device become the quadratics that the compiled code makes of them."""

import numpy as np
import pytest

from folklearn.arrays import logit_losses
from folklearn.kernels.curvature import SMALL
from folklearn.kernels.evidence import (
    EXACT_UP_TO,
    N_TOTALS,
    SHRUNK,
    add_products,
    certain_curvature,
    expand_rows,
)
from folklearn.kernels.on_torch import back
from folklearn.kernels.on_torch import expand as on_torch
from folklearn.kernels.on_torch.expand import DeviceRows

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")


def hostile_rows(rng, m, K, soft):
    """Logits up to 1000 away from each other, weights from 0 to 1000, norms of all sizes."""
    Z = rng.normal(size=(m, K)) * 10.0 ** rng.uniform(-6, 3, size=(m, 1))
    Z[0], Z[1] = 0.0, np.where(np.arange(K) == 1, 1000.0, -1000.0)
    labels = np.full(m, -1) if soft else rng.integers(K, size=m)
    Y = rng.dirichlet(np.full(K, 0.2), size=m) if soft else np.empty((0, K))
    weights = rng.choice([0.0, 1e-3, 1.0, 1000.0], size=m)
    return Z, labels, Y, weights, 10.0 ** rng.uniform(-4, 3, size=m)


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("B", [0.0, 0.1, 10.0, 1e4])
@pytest.mark.parametrize("K", [2, 3, 7])
def test_rows_are_expanded_as_on_the_cpu(K, B, soft, device, rng):
    m = 60
    Z, labels, Y, weights, norms = hostile_rows(rng, m, K, soft)
    pairs, residuals = np.empty((m, K * (K - 1) // 2)), np.empty((m, K))
    totals = np.zeros(N_TOTALS)
    expand_rows(Z.copy(), labels, Y, weights, norms, B, pairs, residuals, totals)
    rows = DeviceRows.of(device, K, np.zeros((m, 1)), norms, labels, Y, weights)
    point = on_torch.Point(device, device.put(Z), rows)
    found = point.expand(B)
    np.testing.assert_allclose(back(found.coefficients), pairs, rtol=1e-12, atol=1e-300)
    unit = 1e-12 * (1.0 + weights[:, None])
    assert (np.abs(back(found.residuals) - residuals) <= unit).all()
    np.testing.assert_allclose(back(found.totals), totals, rtol=1e-12)
    assert float(point.loss()) == pytest.approx(weights @ logit_losses(Z, labels, Y), rel=1e-12)


def test_the_constant_of_two_classes_changes_where_it_does_on_the_cpu(device):
    """Beyond EXACT_UP_TO there is another formula, and where the gap is SMALL a third."""
    edges = EXACT_UP_TO + np.array([-1e-9, -0.0, 4e-15, 1e-9, 5.0])
    wide = [(m, L) for m in (0.0, 1e-3, 3.0, *edges) for L in (1e-6, 0.5, 19.0, 20.0, 400.0)]
    gaps = [SMALL * factor for factor in (-1.001, -0.999, 0.0, 0.5, 0.999, 1.001, 2.0)]
    near = [(m, m + gap) for m in (1e-2, 1.0, 15.0) for gap in gaps]
    m, L = np.array([*wide, *near]).T
    A = np.stack([np.zeros_like(m), -m], axis=1)
    expected = [certain_curvature(a, reach) for a, reach in zip(A, L, strict=True)]
    found = SHRUNK * back(on_torch._valid_curvature(device, device.put(A), device.put(L)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_less(found, 0.5)


@pytest.mark.parametrize("most", [1 << 26, 50, 1])
def test_products_are_added_as_on_the_cpu(most, device, rng, monkeypatch):
    """However few of them may exist at once."""
    monkeypatch.setattr(on_torch, "_MAX_SCALED_NUMBERS", most)
    m, d, Q = 23, 5, 3
    X, coefficients = rng.normal(size=(m, d)), rng.random((m, Q))
    before = rng.normal(size=(Q, d, d))
    before += before.transpose(0, 2, 1)
    lower = np.tril_indices(d)
    expected = np.ascontiguousarray(before[:, *lower])
    add_products(expected, coefficients, X)
    S = device.put(before)
    on_torch.add_products(S, device.put(coefficients), device.put(X))
    found = back(S)
    np.testing.assert_allclose(found[:, *lower], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found, found.transpose(0, 2, 1), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_rows_are_sent_in_parts(soft, device, rng, monkeypatch):
    monkeypatch.setattr("folklearn.kernels.on_torch.expand._MAX_SENT_NUMBERS", 6)
    _, labels, Y, weights, norms = hostile_rows(rng, 7, 3, soft)
    X = rng.normal(size=(7, 2))
    parts = list(DeviceRows.batches_of(device, 3, X, norms, labels, Y, weights))
    assert [len(part.X) for part in parts] == [3, 3, 1]
    own = [np.concatenate([back(one) for one in each]) for each in zip(*parts, strict=True)]
    targets = Y if soft else np.eye(3)[labels]
    for found, expected in zip(own, (X, targets, weights, norms), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert parts[0].n_bytes == 8 * 3 * (2 + 3 + 1 + 1)
