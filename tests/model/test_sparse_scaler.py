"""Sparse rows are divided by their norm, and nothing that is 0 becomes anything else."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, csr_matrix

from folklearn.errors import InvalidInputError
from folklearn.model.sparse_scaler import SparseScaler
from folklearn.persist import revive
from folklearn.sparse import SparseRows


def sample(rng, T=12, d=9):
    X = rng.normal(size=(T, d)) * (rng.random((T, d)) < 0.4)
    X[3] = 0.0
    return X


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_it_is_the_definition(scale, intercept, rng):
    X = sample(rng)
    scaler = SparseScaler(n_features=9, scale=scale, intercept=intercept)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    expected = X / np.where(norms > 0.0, norms, 1.0) if scale else X
    if intercept:
        expected = np.hstack([expected, np.full((12, 1), 0.3 if scale else 1.0)])
    for rows in (X, csr_array(X), csr_matrix(X), coo_array(X), SparseRows.of(X)):
        found = scaler.transform(rows)
        np.testing.assert_allclose(found.dense(), expected, atol=1e-15)
        assert found.nnz == np.count_nonzero(X) + 12 * intercept
    part = scaler.transform(SparseRows.of(X)[2:7])
    np.testing.assert_allclose(part.dense(), expected[2:7], atol=1e-15)
    row = np.flatnonzero(X[0])
    np.testing.assert_allclose(scaler.transform((row, X[0, row])).dense(), expected[:1], atol=1e-15)


def test_late_features_lie_behind_the_constant(rng):
    X = sample(rng)
    scaler = SparseScaler(n_features=4)
    scaler.grow(9)
    again = revive(scaler.to_record())
    plain = SparseScaler(n_features=9).transform(X).dense()
    expected = np.hstack([plain[:, :4], plain[:, 9:], plain[:, 4:9]])
    for one in (scaler, again):
        found = one.transform(X)
        np.testing.assert_array_equal(found.dense(), expected)
        assert (one.place, one.n_columns, one.n_features) == (4, 10, 9)
        for row in found:
            assert (np.diff(row.indices) > 0).all()


def test_what_is_missing_is_0(rng):
    X = sample(rng)
    gaps = X.copy()
    gaps[X != 0] = np.where(rng.random(np.count_nonzero(X)) < 0.5, np.nan, X[X != 0])
    scaler = SparseScaler(n_features=9)
    expected = scaler.transform(np.nan_to_num(gaps)).dense()
    for rows in (gaps, csr_array(gaps)):
        np.testing.assert_allclose(scaler.transform(rows).dense(), expected, atol=1e-15)


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (np.ones((2, 8)), "shape"),
        (np.ones(9), "shape"),
        (csr_array(np.ones((2, 10))), "shape"),
        (csr_array(np.full((1, 9), np.inf)), "inf"),
        (csr_array(np.full((1, 9), 1e15)), "norm"),
        (csr_array(np.full((1, 9), 1j)), "real"),
        (([9], [1.0]), "shape"),
        ([["a"] * 9], "real"),
    ],
)
def test_nonsense_is_refused(X, said):
    with pytest.raises(InvalidInputError, match=said):
        SparseScaler(n_features=9).transform(X)


def test_no_rows_at_all():
    assert SparseScaler(n_features=3).transform(np.empty((0, 3))).shape == (0, 4)


@pytest.mark.parametrize("empty", [(), (0,), (3, 4), (10, 11), (0, 5, 11), tuple(range(12))])
def test_empty_rows_leave_the_norms_of_others_alone(empty, rng):
    X = rng.normal(size=(12, 9))
    X[list(empty)] = 0.0
    rows = SparseRows.of(X)
    np.testing.assert_allclose(rows.norms(), np.linalg.norm(X, axis=1), atol=1e-15)
    np.testing.assert_allclose(rows[2:11].norms(), np.linalg.norm(X[2:11], axis=1), atol=1e-15)
