"""Streams whose classes and features come late."""

import math

import numpy as np
import pytest

import folklearn
from folklearn import Folklore
from folklearn.errors import InvalidInputError
from folklearn.streams.open import OpenModel
from folklearn.streams.scaler import OnlineScaler


def arriving(rng, T, d, K):
    """Rows of K classes that appear one by one, numbered as they come."""
    X = rng.normal(size=(T, d))
    W = rng.normal(size=(K, d)) * 2
    y = np.empty(T, np.int64)
    for t in range(T):
        known = min(K, 1 + t * K // T)
        y[t] = np.argmax(W[:known] @ X[t] + rng.gumbel(size=known))
    order = {label: number for number, label in enumerate(dict.fromkeys(y.tolist()))}
    return X, np.array([order[label] for label in y.tolist()])


def strict_losses(P, u, y):
    losses, seen = [], 0
    for t, label in enumerate(y):
        losses.append(-math.log(u[t] if label == seen else (1.0 - u[t]) * P[t, label]))
        seen = max(seen, label + 1)
    return np.array(losses)


def test_it_is_the_definition(rng):
    """A loop with a learner that grows by hand."""
    X, y = arriving(rng, 120, 3, 5)
    P, u = OpenModel("folklore", n_features=3).run(X, y)
    Z = OnlineScaler(3).learn_transform(X)
    learner, known = None, 0
    for t, label in enumerate(y):
        assert u[t] == pytest.approx((known + 0.5) / (t + 1) if known else 1.0)
        if learner is not None:
            np.testing.assert_allclose(P[t, :known], learner.predict(Z[t]), atol=1e-9)
        elif known == 1:
            assert P[t, 0] == 1.0
        np.testing.assert_array_equal(P[t, known:], 0.0)
        if label == known:
            known += 1
            if learner is not None:
                learner.grow(n_classes=known)
            elif known == 2:
                learner = Folklore(n_features=4, n_classes=2)
        if learner is not None:
            learner.update(Z[t], label)


@pytest.mark.parametrize("name", ["auto", "folklore", "ogd"])
def test_strict_loss_is_finite_and_probabilities_add_up(name, rng):
    X, y = arriving(rng, 200, 3, 8)
    model = OpenModel(name, n_features=3)
    P, u = model.run(X, y)
    assert np.isfinite(strict_losses(P, u, y)).all()
    assert (u > 0.0).all()
    totals = P.sum(axis=1)
    np.testing.assert_allclose(totals[1:], 1.0, atol=1e-12)
    assert model.n_classes == model.n_new == 8
    np.testing.assert_allclose(model.predict(X).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("cuts", [[1, 2, 50], list(range(1, 120))])
def test_blocks_are_their_rows(cuts, rng):
    X, y = arriving(rng, 120, 2, 4)
    whole, parts = OpenModel("folklore", n_features=2), OpenModel("folklore", n_features=2)
    P, u = whole.run(X, y)
    done = [parts.run(*pair) for pair in zip(np.split(X, cuts), np.split(y, cuts), strict=True)]
    np.testing.assert_allclose(np.concatenate([part[1] for part in done]), u)
    padded = np.vstack([np.pad(p, ((0, 0), (0, 4 - p.shape[1]))) for p, _ in done])
    np.testing.assert_allclose(padded, P, atol=1e-9)


def test_declared_classes_are_not_new(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 3, 50)
    model = OpenModel("folklore", n_features=2, n_classes=3)
    P, u = model.run(X, y)
    np.testing.assert_allclose(P[0], 1 / 3)
    np.testing.assert_allclose(u, 0.5 / (np.arange(50) + 1))
    expected = Folklore(n_features=3, n_classes=3).run(OnlineScaler(2).learn_transform(X), y)
    np.testing.assert_allclose(P, expected, atol=1e-9)
    model.run(X[:1], [3])
    assert (model.n_classes, model.n_new) == (4, 1)


def test_a_late_feature_changes_nothing_before_it_speaks(rng):
    X, y = arriving(rng, 80, 3, 3)
    X[:40, 2] = 0.0
    told, late = OpenModel("folklore", n_features=3), OpenModel("folklore", n_features=2)
    told._scaler._first = 2  # the same unit and order of columns
    expected, _ = told.run(X, y)
    first, _ = late.run(X[:40, :2], y[:40])
    late.grow(n_features=3)
    rest, _ = late.run(X[40:], y[40:])
    np.testing.assert_allclose(rest, expected[40:], atol=1e-9)
    np.testing.assert_allclose(first, expected[:40, : first.shape[1]], atol=1e-9)


@pytest.mark.parametrize("cut", [0, 1, 10, 60])
def test_resuming_equals_never_stopping(cut, rng, tmp_path):
    X, y = arriving(rng, 100, 3, 5)
    X[rng.random((100, 3)) < 0.1] = np.nan
    straight, stopped = OpenModel("auto", n_features=3), OpenModel("auto", n_features=3)
    for model in (straight, stopped):
        model.run(X[:cut], y[:cut])
    stopped.save(tmp_path / "model")
    resumed = folklearn.load(tmp_path / "model")
    P, u = straight.run(X[cut:], y[cut:])
    again, u_again = resumed.run(X[cut:], y[cut:])
    np.testing.assert_array_equal(again, P)
    np.testing.assert_array_equal(u_again, u)


def test_the_certificate_says_which_classes_it_compares(rng):
    model = OpenModel("folklore", n_features=2)
    assert model.certificate() is None
    X, y = arriving(rng, 100, 2, 4)
    model.run(X, y)
    assert "from 2 to 4" in model.certificate().scope


@pytest.mark.parametrize(
    ("X", "y", "words", "sentence"),
    [
        ([[1.0, 2.0]], [1], {}, r"y\[0\] is 1, but only 0 classes were known"),
        ([[1.0, 2.0]] * 2, [0, 2], {}, r"a new class has the next number, 1"),
        ([[1.0, np.inf]], [0], {}, "has inf at feature 1"),
        ([[1.0]], [0], {}, "X has shape"),
        ([[1.0, 2.0]], [0], {"weight": [2.0]}, "above max_weight=1"),
        ([[1.0, 2.0]], [[1.0]], {}, "soft labels"),
    ],
)
def test_bad_rows_change_nothing(X, y, words, sentence):
    model = OpenModel("auto", n_features=2)
    before = model.to_record()
    with pytest.raises(InvalidInputError, match=sentence):
        model.run(X, y, **words)
    after = model.to_record()
    assert after.config == before.config
    assert all(np.array_equal(after.arrays[part], before.arrays[part]) for part in before.arrays)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("aioli",), "no learner that takes classes as they come"),
        (("nonsense",), "no learner that takes"),
        (("folklore", {"B": -1.0}), "B must be"),
        (("folklore", {"colour": 1}), "does not take these settings"),
    ],
)
def test_bad_learners_are_refused_at_once(arguments, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        OpenModel(*arguments, n_features=2)
