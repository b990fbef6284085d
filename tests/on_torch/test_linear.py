"""Factors in blocks against dense solves."""

import numpy as np
import pytest

from folklearn.kernels import quadratic
from folklearn.kernels.on_torch import back

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")


def positive(rng, n):
    half = rng.normal(size=(n, n))
    return half @ half.T + n * np.eye(n)


@pytest.mark.parametrize(("n", "block"), [(1, 4), (7, 4), (8, 4), (9, 4), (23, 4), (24, 6), (9, 1)])
def test_blocks_solve_as_one(n, block, device, rng):
    A, sides = positive(rng, n), rng.normal(size=(n, 3))
    L = device.put(np.linalg.cholesky(A))
    given = device.put(sides)
    found = quadratic.DeviceFactor(device, L, block).solve(given)
    np.testing.assert_allclose(back(found), np.linalg.solve(A, sides), rtol=1e-11)
    np.testing.assert_array_equal(back(given), sides)


@pytest.mark.parametrize("b", [1, 3, 8, 12, 20])
def test_triangles_are_inverted_by_halves(b, device, rng, monkeypatch):
    monkeypatch.setattr(quadratic, "_MAX_INVERTED_ROWS", 2)
    L = np.linalg.cholesky(np.stack([positive(rng, b) for _ in range(3)]))
    found = back(quadratic.invert(device, device.put(L)))
    np.testing.assert_allclose(found, np.linalg.inv(L), rtol=1e-11, atol=1e-14)


def test_a_matrix_without_a_factor_has_none_and_stays_as_it_is(device, rng):
    A = positive(rng, 5)
    there = device.put(A)
    factor = quadratic.factorise(there, device)
    sides = rng.normal(size=(5, 1))
    expected = np.linalg.solve(A, sides)
    np.testing.assert_allclose(back(factor(device.put(sides))), expected, rtol=1e-11)
    np.testing.assert_array_equal(back(there), A)
    assert quadratic.factorise(device.put(A - 100.0 * np.eye(5)), device) is None
