"""The on-line scaler against NumPy's own means and deviations."""

import numpy as np
import pytest

from folklearn import serialization
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.scaler import FixedScaler, Moments, OnlineScaler
from folklearn.serialization import Record


def clipped(values):
    """The values as they count: at most 8 deviations away from the earlier ones."""
    taken = []
    for value in values:
        if taken and np.std(taken) > 0:
            reach = 8 * np.std(taken)
            value = np.clip(value, np.mean(taken) - reach, np.mean(taken) + reach)
        taken.append(value)
    return taken


def moments(values):
    """Mean and deviation; when their number doubles, the last half may replace all of them."""
    taken, half = [], []
    mean, deviation = 0.0, 0.0
    for n, value in enumerate(values, 1):
        if n > 1 and deviation > 0:
            value_counts = np.clip(value, mean - 8 * deviation, mean + 8 * deviation)
        else:
            value_counts = value
        taken.append(value_counts)
        mean, deviation = np.mean(taken), np.std(taken)
        if n > 4:
            half.append(value)
        if n >= 8 and n.bit_count() == 1:
            late = clipped(half)
            if 0 < np.std(late) < deviation / 8:
                taken = late * 2  # the same mean and deviation, of twice as many
                mean, deviation = np.mean(taken), np.std(taken)
            half = []
    return mean, deviation


def plain_scaling(X):
    """The definition, with a full pass over the past for every row."""
    T, d = X.shape
    out = np.empty((T, d + 1))
    for t in range(T):
        past = [moments(X[: t + 1, j]) for j in range(d)]
        score = [
            (x - mean) / std if std > 0 else 0 for x, (mean, std) in zip(X[t], past, strict=True)
        ]
        largest = min(5, np.sqrt(t))
        out[t] = np.append(np.clip(score, -largest, largest), 1.0) / np.sqrt(d + 1)
    return out


def test_it_is_the_definition(rng):
    X = rng.normal(size=(60, 4)) * [1.0, 1e-6, 1e9, 3.0] + [0.0, 5.0, -1e9, 100.0]
    np.testing.assert_allclose(
        OnlineScaler(n_features=4).learn_transform(X), plain_scaling(X), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("row", [0, 1, 2, 3, 10, 40])
def test_it_is_the_definition_with_absurd_values(rng, row):
    X = rng.normal(size=(60, 2))
    X[row : row + 2] = 1e6, -1e3
    np.testing.assert_allclose(
        OnlineScaler(n_features=2).learn_transform(X), plain_scaling(X), rtol=0, atol=1e-6
    )


def test_ordinary_values_are_scaled_by_the_ordinary_moments(rng):
    X = np.column_stack([rng.normal(size=4000), rng.random(4000) < 0.3, rng.random(4000) < 0.5])
    scaled = OnlineScaler(n_features=3).learn_transform(X)[1000:]
    for t in (1000, 3999):
        past = X[: t + 1]
        expected = np.clip((X[t] - past.mean(axis=0)) / past.std(axis=0), -5, 5) / 2
        np.testing.assert_allclose(scaled[t - 1000, 1:3], expected[1:], atol=1e-12)  # 0/1: exact
        np.testing.assert_allclose(scaled[t - 1000, 0], expected[0], atol=0.02)


@pytest.mark.parametrize("row", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("absurd", [1e3, -1e9, 1e14])
def test_an_absurd_value_is_made_up_for(rng, row, absurd):
    X = 20.0 + 3.0 * rng.normal(size=(2000, 1))
    good = OnlineScaler(n_features=1).learn_transform(X)
    X[row] = absurd
    bad = OnlineScaler(n_features=1).learn_transform(X)
    later = slice(max(200, 5 * row), None)
    np.testing.assert_allclose(bad[later, 0], good[later, 0], rtol=0.4, atol=0.3)
    np.testing.assert_allclose(bad[1500:, 0], good[1500:, 0], rtol=0.15, atol=0.05)


def test_a_rare_feature_saturates_and_does_not_vanish(rng):
    x = (rng.random(20_000) < 0.002).astype(float)
    scaled = OnlineScaler(n_features=1).learn_transform(x[:, None])[1000:, 0] * np.sqrt(2)
    there = x[1000:] == 1.0
    np.testing.assert_allclose(scaled[there], 5.0)
    assert np.abs(scaled[~there]).max() < 0.1


def test_a_scale_that_really_changes_is_followed(rng):
    X = rng.normal(size=(1500, 1))
    X[500:] = 1e3 + 1e2 * X[500:]
    scaled = OnlineScaler(n_features=1).learn_transform(X)[:, 0] * np.sqrt(2)
    plain = (X[-1, 0] - X.mean()) / X.std()
    assert scaled[-1] == pytest.approx(plain, abs=0.5)
    assert np.ptp(scaled[1000:]) > 1.0


@pytest.mark.parametrize("rows", [[0, 1], [1, 2], [0, 1, 2], [0, 2, 5], list(range(10))])
@pytest.mark.parametrize("absurd", [-999.0, 1e9])
def test_a_bad_beginning_is_forgotten(rng, rows, absurd):
    X = rng.normal(size=(2000, 1))
    good = OnlineScaler(n_features=1).learn_transform(X)
    X[rows] = absurd
    bad = OnlineScaler(n_features=1).learn_transform(X)
    np.testing.assert_allclose(bad[200:, 0], good[200:, 0], rtol=0.4, atol=0.3)


def test_a_scale_that_shrinks_is_followed(rng):
    X = rng.normal(size=(4000, 1))
    X[:500] *= 1e4
    scaled = OnlineScaler(n_features=1).learn_transform(X)[1024:, 0] * np.sqrt(2)
    assert 0.5 < scaled.std() < 1.5


def test_a_few_absurd_values_in_every_hundred_are_borne(rng):
    X = rng.normal(size=(5000, 1))
    X[rng.random(5000) < 0.01] = 1e9
    scaled = OnlineScaler(n_features=1).learn_transform(X)[2000:, 0] * np.sqrt(2)
    ordinary = X[2000:, 0] < 1e8
    assert 0.4 < scaled[ordinary].std() < 1.0


@pytest.mark.parametrize("cuts", [[1, 2, 30], [7], [0, 59]])
def test_a_block_is_exactly_its_rows(rng, cuts):
    X = rng.normal(size=(60, 3)) * 100
    by_row, by_block = OnlineScaler(n_features=3), OnlineScaler(n_features=3)
    rows = np.vstack([by_row.learn_transform(x[None, :]) for x in X])
    blocks = np.vstack([by_block.learn_transform(part) for part in np.split(X, cuts)])
    assert rows.tobytes() == blocks.tobytes()


def test_transform_is_what_learning_would_give_and_changes_nothing(rng):
    X = rng.normal(size=(20, 3)) * 7
    scaler = OnlineScaler(n_features=3)
    scaler.learn_transform(X[:-1])
    before = scaler.transform(X[:5])
    looked = scaler.transform(X[-1])
    np.testing.assert_array_equal(scaler.transform(X[:5]), before)
    np.testing.assert_array_equal(scaler.learn_transform(X[-1:])[0], looked)


def test_a_constant_feature_gives_exactly_zero():
    scaled = OnlineScaler(n_features=2).learn_transform(np.full((1000, 2), 0.1) * [1, 3])
    assert np.all(scaled[:, :2] == 0.0)
    assert np.all(scaled[:, 2] == 1 / np.sqrt(3))


def test_a_large_offset_costs_no_accuracy():
    steps = np.tile([0.0, 1.0], 5000)
    near, far = OnlineScaler(n_features=1), OnlineScaler(n_features=1)
    np.testing.assert_allclose(
        far.learn_transform(1e9 + steps[:, None]),
        near.learn_transform(steps[:, None]),
        rtol=0,
        atol=1e-6,
    )


def test_scores_are_clipped_and_norms_are_about_one(rng):
    X = rng.normal(size=(2000, 30))
    X[-1, 0] = 1e6
    scaled = OnlineScaler(n_features=30).learn_transform(X)
    assert scaled[-1, 0] == 5.0 / np.sqrt(31)
    assert np.mean(np.linalg.norm(scaled, axis=1)) == pytest.approx(1.0, abs=0.02)


def test_resume_is_exact_through_a_file(rng, tmp_path):
    X = rng.normal(size=(50, 3))
    whole, first = OnlineScaler(n_features=3), OnlineScaler(n_features=3)
    expected = whole.learn_transform(X)[20:]
    first.learn_transform(X[:20])
    serialization.write(tmp_path / "scaler", first.to_record())
    second = OnlineScaler.from_record(serialization.read(tmp_path / "scaler"))
    assert second.learn_transform(X[20:]).tobytes() == expected.tobytes()


def test_a_record_is_a_copy():
    scaler = OnlineScaler(n_features=1)
    scaler.learn_transform([[1.0]])
    record = scaler.to_record()
    scaler.learn_transform([[9.0]])
    assert record.arrays["moments"][1, 0] == 1.0


def test_a_record_of_another_shape_is_refused():
    arrays = OnlineScaler(n_features=2).to_record().arrays
    config = OnlineScaler(n_features=3).to_record().config
    with pytest.raises(StateFileError, match="needs float64 moments of shape"):
        OnlineScaler.from_record(Record("OnlineScaler", config, arrays))
    with pytest.raises(StateFileError, match="needs scale"):
        OnlineScaler.from_record(Record("OnlineScaler", {"n_features": 2}, arrays))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_is_refused_whole(bad):
    scaler = OnlineScaler(n_features=2)
    with pytest.raises(InvalidInputError, match="row 1 of X"):
        scaler.learn_transform([[1.0, 2.0], [3.0, bad]])
    assert scaler.to_record().arrays["moments"].sum() == 0


def test_a_gap_becomes_the_mean_and_moves_nothing(rng):
    X = rng.normal(size=(40, 2)) * 3 + 5
    X[rng.random(40) < 0.3, 0] = np.nan
    scaled = OnlineScaler(n_features=2, gaps=True).learn_transform(X)
    there = ~np.isnan(X[:, 0])
    np.testing.assert_array_equal(scaled[~there, 0], 0.0)
    alone = OnlineScaler(n_features=1).learn_transform(X[there, :1])[:, 0] * np.sqrt(2)
    np.testing.assert_allclose(scaled[there, 0] * np.sqrt(3), alone, rtol=1e-12)
    with pytest.raises(InvalidInputError, match="row 0 of X has inf at feature 1"):
        OnlineScaler(n_features=2, gaps=True).learn_transform([[np.nan, np.inf]])


def test_nothing_but_the_constant_if_not_asked_to_scale():
    X = np.array([[3.0, np.nan], [-7.0, 1e9]])
    plain = OnlineScaler(n_features=2, scale=False, gaps=True).learn_transform(X)
    np.testing.assert_array_equal(plain, [[3.0, 0.0, 1.0], [-7.0, 1e9, 1.0]])
    bare = OnlineScaler(n_features=2, scale=False, intercept=False).learn_transform([[3.0, 4.0]])
    np.testing.assert_array_equal(bare, [[3.0, 4.0]])


def test_a_late_feature_was_zero_and_comes_behind_the_constant(rng):
    X = rng.normal(size=(30, 3))
    X[:20, 2] = 0.0
    told, late = OnlineScaler(n_features=3), OnlineScaler(n_features=2)
    expected = told.learn_transform(X) * np.sqrt(4)
    first = late.learn_transform(X[:20, :2]) * np.sqrt(3)
    late.grow(3)
    rest = late.learn_transform(X[20:]) * np.sqrt(3)
    np.testing.assert_allclose(first, expected[:20, [0, 1, 3]], atol=1e-12)
    np.testing.assert_allclose(rest, expected[20:][:, [0, 1, 3, 2]], atol=1e-12)
    again = OnlineScaler.from_record(late.to_record())
    np.testing.assert_array_equal(again.transform(X), late.transform(X))


def test_the_fixed_scaler_is_that_of_all_rows(rng):
    X = rng.normal(size=(50, 3)) * [1.0, 1e3, 1.0] + [5.0, -1e4, 0.0]
    X[:, 2] = X[:, 2] > 0.0
    scaler = FixedScaler().opened(Moments.of(X), [True, True, False])
    Z = scaler.transform(X)
    np.testing.assert_array_equal(Z[:, 0], 1.0)
    numbers = X[:, :2]
    np.testing.assert_allclose(Z[:, 1:3], (numbers - numbers.mean(axis=0)) / numbers.std(axis=0))
    np.testing.assert_array_equal(Z[:, 3], X[:, 2])
    weights, constants = rng.normal(size=(2, 3)), rng.normal(size=2)
    W = scaler.model(weights, constants)
    np.testing.assert_allclose(Z @ W.T, X @ weights.T + constants, rtol=1e-9)


def test_a_column_that_comes_late_is_standardised_by_the_rows_that_bring_it(rng):
    first = np.c_[rng.normal(3.0, 2.0, 40), np.full(40, np.nan)]
    later = np.c_[rng.normal(9.0, 2.0, 30), rng.normal(-5.0, 0.1, 30)]
    scaler = FixedScaler(intercept=False).opened(Moments.of(first), [True, True])
    assert scaler.n_open == 1
    scaler = scaler.opened(Moments.of(later), [True, True])
    Z = scaler.transform(later)
    np.testing.assert_allclose(Z[:, 0], (later[:, 0] - first[:, 0].mean()) / first[:, 0].std())
    np.testing.assert_allclose(Z[:, 1], (later[:, 1] - later[:, 1].mean()) / later[:, 1].std())
