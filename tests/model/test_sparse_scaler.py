"""Sparse rows are divided by their norm, and nothing that is 0 becomes anything else."""

import numpy as np
import pytest

from folklearn.model.batch import SparseInput
from folklearn.scaler import SPACE, OnlineScaler, SparseScaler
from folklearn.serialization import revive
from folklearn.sparse import SparseRows


def sample(rng, T=12, d=9):
    X = rng.normal(size=(T, d)) * (rng.random((T, d)) < 0.4)
    X[3] = 0.0
    return X


def columns_of(Z, slot, width):
    """What lies in the space of one slot, dense."""
    found = np.zeros((len(Z), width))
    for t, row in enumerate(Z):
        own = (row.indices >= slot * SPACE) & (row.indices < (slot + 1) * SPACE)
        found[t, row.indices[own] - slot * SPACE] = row.values[own]
    return found


def by_norm(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0.0, norms, 1.0)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_it_is_the_definition(scale, intercept, rng):
    X = sample(rng)
    scaler = SparseScaler(n_features=1, scale=scale, intercept=intercept)
    expected = by_norm(X) if scale else X
    rows = SparseRows.of(X)
    found = scaler.transform(SparseInput.of_rows(rows))
    np.testing.assert_allclose(columns_of(found, 1, 9), expected, atol=1e-15)
    constant = (0.3 if scale else 1.0) * intercept
    np.testing.assert_array_equal(columns_of(found, 0, 1), np.full((12, 1), constant))
    assert found.nnz == np.count_nonzero(X) + 12 * intercept
    part = scaler.transform(SparseInput.of_rows(rows[2:7]))
    np.testing.assert_allclose(columns_of(part, 1, 9), expected[2:7], atol=1e-15)


def test_every_column_of_the_data_has_the_same_length(rng):
    """Numbers are standardised on line; with c columns all is divided by the root of c."""
    words, colours, numbers = sample(rng), sample(rng), rng.normal(5.0, 9.0, size=(12, 2))
    numbers[4, 1] = np.nan
    X = SparseInput.of_parts(numbers, (2, 4), {1: SparseRows.of(words), 3: SparseRows.of(colours)})
    scaler = SparseScaler(n_features=4, n_numbers=2)
    found = scaler.scale_rows(X, learn=True)
    np.testing.assert_allclose(columns_of(found, 1, 9), by_norm(words) / 2.0, atol=1e-15)
    np.testing.assert_allclose(columns_of(found, 3, 9), by_norm(colours) / 2.0, atol=1e-15)
    plain = OnlineScaler(n_features=2, intercept=False, gaps=True)
    expected = plain.learn_transform(numbers) / plain.unit / 2.0
    for j, slot in enumerate((2, 4)):
        np.testing.assert_allclose(columns_of(found, slot, 1)[:, 0], expected[:, j], atol=1e-15)
    for row in found:
        assert (np.diff(row.indices) > 0).all()
    np.testing.assert_array_equal(
        scaler.transform(X).values, revive(scaler.to_record()).transform(X).values
    )


def test_rows_learned_one_by_one_are_the_block(rng):
    X = SparseInput.of_parts(rng.normal(size=(12, 1)), (2,), {1: SparseRows.of(sample(rng))})
    block, single = SparseScaler(n_features=2, n_numbers=1), SparseScaler(n_features=2, n_numbers=1)
    Z = block.scale_rows(X, learn=True)
    for t in range(12):
        row = single.scale_rows(X[t : t + 1], learn=True).row(0)
        np.testing.assert_array_equal(row.indices, Z.row(t).indices)
        np.testing.assert_array_equal(row.values, Z.row(t).values)


def test_late_columns_leave_the_places_of_others_alone(rng):
    words = SparseInput.of_rows(SparseRows.of(sample(rng)))
    scaler = SparseScaler(n_features=1)
    before = scaler.transform(words)
    scaler.grow(3, 1)
    again = revive(scaler.to_record())
    for one in (scaler, again):
        assert (one.place, one.n_columns, one.n_features, one.n_numbers) == (0, 4 * SPACE, 3, 1)
        found = one.transform(words)
        np.testing.assert_array_equal(found.indices, before.indices)
        own = columns_of(found, 1, 9)
        np.testing.assert_allclose(own, columns_of(before, 1, 9) / np.sqrt(3.0), atol=1e-15)


def test_inputs_joined_cut_and_kept(rng):
    first = SparseInput.of_parts(rng.normal(size=(5, 1)), (2,), {1: SparseRows.of(sample(rng)[:5])})
    later = SparseInput.of_parts(
        rng.normal(size=(7, 2)), (2, 4),
        {1: SparseRows.of(sample(rng)[5:]), 3: SparseRows.of(sample(rng)[5:])},
    )  # fmt: skip
    joined = SparseInput.concat([first, later])
    assert len(joined) == 12
    assert np.isnan(joined.numbers[:5, 1]).all()
    assert not columns_of(joined.cells[:5], 3, 9).any()
    assert (joined.shape[1], joined.of_slots(2).shape[1]) == (4, 2)
    assert set((joined.of_slots(2).cells.indices // SPACE).tolist()) == {0, 1, 2}
    assert joined.of_slots(2).slots == (2,)
    again = SparseInput.of_arrays(joined.arrays())
    assert again.slots == joined.slots
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(again.cells, name), getattr(joined.cells, name))


def test_no_rows_at_all():
    none = SparseInput.of_rows(SparseRows.of(np.empty((0, 3))))
    assert SparseScaler(n_features=1).transform(none).shape == (0, 2 * SPACE)


@pytest.mark.parametrize("empty", [(), (0,), (3, 4), (10, 11), (0, 5, 11), tuple(range(12))])
def test_empty_rows_leave_the_norms_of_others_alone(empty, rng):
    X = rng.normal(size=(12, 9))
    X[list(empty)] = 0.0
    rows = SparseRows.of(X)
    np.testing.assert_allclose(rows.norms(), np.linalg.norm(X, axis=1), atol=1e-15)
    np.testing.assert_allclose(rows[2:11].norms(), np.linalg.norm(X[2:11], axis=1), atol=1e-15)
