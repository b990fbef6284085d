"""Factors on a device against dense solves."""

import numpy as np
import pytest

from folklearn.kernels import quadratic
from folklearn.kernels.on_torch import back

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")


def positive(rng, n):
    half = rng.normal(size=(n, n))
    return half @ half.T + n * np.eye(n)


def test_a_matrix_without_a_factor_has_none_and_stays_as_it_is(device, rng):
    A = positive(rng, 5)
    there = device.put(A)
    factor = quadratic.factorise(there, device)
    sides = rng.normal(size=(5, 1))
    expected = np.linalg.solve(A, sides)
    np.testing.assert_allclose(back(factor(device.put(sides))), expected, rtol=1e-11)
    np.testing.assert_array_equal(back(there), A)
    assert quadratic.factorise(device.put(A - 100.0 * np.eye(5)), device) is None
