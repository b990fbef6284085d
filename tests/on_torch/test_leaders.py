"""Modes of several ridges at once against `walk`, one after the other."""

from dataclasses import replace

import numpy as np
import pytest

from folklearn.kernels import leaders
from folklearn.kernels.evidence import n_pairs
from folklearn.kernels.newton import factor_ridge, walk
from folklearn.kernels.on_torch import back
from folklearn.kernels.on_torch import experts as on_torch
from folklearn.kernels.on_torch.expand import DeviceRows
from tests.on_torch.test_quadratic import some_quadratic

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

RIDGES = np.array([0.3, 0.03, 1e-3])


def kept_rows(rng, m, K, d):
    """X, Y, weights."""
    X = rng.normal(size=(m, d)) * 10.0 ** rng.uniform(-1, 1, size=(m, 1))
    return X, rng.dirichlet(np.ones(K), size=m), rng.random(m)


def moved_here(own, kept, at, ridges, W):
    X, Y, weights = kept
    K, d = at.shape
    curved = own.copy()
    if len(X):
        leaders.add_expanded(curved.S, np.empty((K, d)), at, X, Y, weights)
    after = W.copy()
    H = np.empty(((K - 1) * d, (K - 1) * d))
    for ridge, one in zip(ridges, after, strict=True):
        if not factor_ridge(curved.S, ridge, K, H):
            continue
        walk(own.S, own.G, ridge, H, X, Y, weights, leaders.STEPS_OF_NEWTON, one)
    return after


def moved_there(device, own, kept, at, ridges, W):
    there = own.to(device)
    rows = DeviceRows(*map(device.put, kept))
    at, ridges, W = map(device.put, (at, ridges, W))
    found = on_torch.move_to_modes(device, there.S, there.G, rows, at, ridges, W)
    np.testing.assert_array_equal(back(there.S), own.blocks())
    return back(found)


@pytest.mark.parametrize("m", [0, 1, 30])
@pytest.mark.parametrize(("K", "d"), [(2, 3), (4, 2), (3, 5)])
def test_modes_of_several_ridges(K, d, m, device, rng):
    own, kept = some_quadratic(rng, K, d), kept_rows(rng, m, K, d)
    W = rng.normal(size=(len(RIDGES), K, d))
    W -= W.mean(axis=1, keepdims=True)
    expected = moved_here(own, kept, W[1], RIDGES, W)
    found = moved_there(device, own, kept, W[1], RIDGES, W)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    assert np.abs(found - W).max() > 0.1


def test_steps_that_lead_too_far_are_shortened_each_by_itself(device, rng):
    """From far away the curvature at one model says little about the others."""
    own, kept = some_quadratic(rng, 3, 2, T=3), kept_rows(rng, 20, 3, 2)
    W = 30.0 * rng.normal(size=(3, 3, 2)) * np.array([1.0, 0.01, 1.0])[:, None, None]
    W -= W.mean(axis=1, keepdims=True)
    expected = moved_here(own, kept, W[0], RIDGES, W)
    found = moved_there(device, own, kept, W[0], RIDGES, W)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_a_model_whose_step_leads_nowhere_stays(device, rng):
    """At a model that is certain of everything there is next to no curvature: steps are absurd."""
    own, kept = some_quadratic(rng, 3, 2, T=0), kept_rows(rng, 20, 3, 2)
    W = rng.normal(size=(2, 3, 2)) * np.array([300.0, 1.0])[:, None, None]
    ridges = np.array([1e-9, 10.0])
    expected = moved_here(own, kept, W[0], ridges, W)
    found = moved_there(device, own, kept, W[0], ridges, W)
    np.testing.assert_array_equal(expected[0], W[0])
    np.testing.assert_array_equal(found[0], W[0])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert np.abs(found[1] - W[1]).max() > 0.1


@pytest.mark.parametrize("m", [0, 12])
def test_a_ridge_without_a_factor_stays_and_others_move(m, device, rng):
    own, kept = some_quadratic(rng, 3, 2), kept_rows(rng, m, 3, 2)
    broken = replace(own, S=own.S - 20.0)
    W = rng.normal(size=(2, 3, 2))
    W -= W.mean(axis=1, keepdims=True)  # as those of leaders are
    ridges = np.array([1e-3, 1e4])
    found = moved_there(device, broken, kept, W[0], ridges, W)
    np.testing.assert_array_equal(found[0], W[0])
    expected = moved_here(broken, kept, W[0], ridges, W)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert np.abs(found[1] - W[1]).max() > 0.1
    nowhere = moved_there(device, broken, kept, W[0], ridges[:1], W[:1])
    np.testing.assert_array_equal(nowhere, W[:1])


def test_fewer_rows_than_features_need_no_sum(device, rng):
    K, d, m = 3, 12, 5
    X, *rest = kept_rows(rng, m, K, d)
    X[4] = X[3]  # the same row twice
    rows = DeviceRows(*map(device.put, (X, *rest)))
    spanned = rng.normal(size=(len(RIDGES), K, m)) @ X
    W, at = device.put(spanned), device.put(spanned[0])
    nothing = device.zeros(n_pairs(K), d, d), device.zeros(K, d)
    ridges = device.put(RIDGES)
    expected = on_torch.move_to_modes(device, *nothing, rows, at, ridges, W)
    found = on_torch.move_within_span(device, rows, at, ridges, W)
    np.testing.assert_allclose(back(found), back(expected), rtol=1e-9, atol=1e-10)
