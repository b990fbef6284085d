"""Ogd against its slow twin and its bound, and the edges of what it accepts."""

import math

import numpy as np
import pytest

from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.sgd import Ogd
from folklearn.serialization import Record, read
from tests.reference import streams
from tests.reference.hindsight import best_in_class
from tests.reference.ogd import DenseOgd

STREAMS = {
    "stochastic": streams.stochastic,
    "separable": streams.separable,
    "pure noise": streams.pure_noise,
    "drifting": streams.drifting,
}


def make_stream(rng, T, d, K, labels):
    X = rng.normal(size=(T, d)) / math.sqrt(d)
    X *= rng.choice([0.0, 0.1, 1.0, 3.0], size=T, p=[0.05, 0.2, 0.6, 0.15])[:, None]
    y = rng.integers(0, K, T)
    weights = np.ones(T)
    if labels == "soft":
        y = rng.dirichlet(np.full(K, 0.3), size=T)
    elif labels == "weighted":
        weights = rng.exponential(2.0, size=T) * (rng.random(T) > 0.1)
    return X, y, weights


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("labels", ["hard", "soft", "weighted"])
@pytest.mark.parametrize("B", [0.5, 5.0])
def test_equals_the_dense_twin(K, labels, B, rng):
    d, T = 3, 400
    X, y, weights = make_stream(rng, T, d, K, labels)
    model, twin = Ogd(n_features=d, n_classes=K, B=B), DenseOgd(d, K, B, 1.0)
    for x, target, weight in zip(X, y, weights, strict=True):
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        loss = model.update(x, target, weight=weight)
        assert loss == pytest.approx(twin.update(x, target, weight), abs=1e-9)
    np.testing.assert_allclose(model.coef(), twin.W, atol=1e-9)


@pytest.mark.parametrize("labels", ["hard", "soft", "weighted"])
def test_run_equals_the_loop(labels, rng):
    X, y, weights = make_stream(rng, 200, 5, 4, labels)
    together, alone = (Ogd(n_features=5, n_classes=4) for _ in range(2))
    P = together.run(X, y, weight=weights)
    for t, x in enumerate(X):
        np.testing.assert_allclose(P[t], alone.predict(x), atol=1e-12)
        alone.update(x, y[t], weight=weights[t])
    np.testing.assert_allclose(together.coef(), alone.coef(), atol=1e-12)


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("name", [*STREAMS, "adversarial"])
@pytest.mark.parametrize("B", [1.0, 5.0])
def test_regret_is_below_the_bound(name, K, B, seed):
    T, d = 400, 3
    model = Ogd(n_features=d, n_classes=K, B=B)
    if name == "adversarial":
        X = streams.pure_noise(seed, T, d, K)[0]
        losses = []
        y = np.empty(T, dtype=int)
        for t, x in enumerate(X):
            y[t] = np.argmin(model.predict(x))
            losses.append(model.update(x, int(y[t])))
    else:
        X, y = STREAMS[name](seed, T, d, K)
        losses = -np.log(model.run(X, y)[np.arange(T), y])
    _, best, gap = best_in_class(X, y, B, K)
    assert sum(losses) - (best - gap) <= model.regret_bound(T)


def test_weighted_regret_is_below_the_weighted_bound(seed):
    T, d, K, B = 300, 3, 3, 2.0
    rng = np.random.default_rng(seed)
    X, y = streams.drifting(seed, T, d, K)
    weights = rng.exponential(size=T)
    model = Ogd(n_features=d, n_classes=K, B=B)
    losses = -np.log(model.run(X, y, weight=weights)[np.arange(T), y])
    _, best, gap = best_in_class(X, y, B, K, weight=weights)
    share = math.sqrt((weights**2).sum())
    assert weights @ losses - (best - gap) <= share * model.regret_bound(1)


def test_the_bound_in_numbers():
    """G = sqrt 2, D = 2 * 3 * 2: 1.5 * sqrt 2 * 12 * 10."""
    value = Ogd(n_features=7, n_classes=4, B=3.0).regret_bound(100)
    assert value == pytest.approx(180.0 * math.sqrt(2.0))
    longer = Ogd(n_features=1, n_classes=4, B=3.0, R=2.0)
    assert longer.regret_bound(100) == pytest.approx(2.0 * value)
    assert longer.regret_bound(0) == 0.0


def test_only_the_proportions_of_the_weights_matter(rng):
    X, y, weights = make_stream(rng, 100, 3, 3, "weighted")
    plain, scaled = (Ogd(n_features=3, n_classes=3) for _ in range(2))
    P = plain.run(X, y, weight=weights)
    np.testing.assert_allclose(scaled.run(X, y, weight=1e-3 * weights), P, atol=1e-10)


def test_weights_of_every_size_keep_everything_finite(rng):
    X = rng.normal(size=(60, 3))
    model = Ogd(n_features=3, n_classes=3, B=1e15, R=1e-15)
    weights = rng.choice([0.0, 1e-300, 1e-10, 1.0, 1e15], size=60)
    assert np.isfinite(model.run(X, rng.integers(0, 3, 60), weight=weights)).all()
    assert np.isfinite(model.run(1e14 * X, rng.integers(0, 3, 60))).all()
    assert np.linalg.norm(model.coef(), axis=1).max() <= 1e15 * (1.0 + 1e-12)


def test_predicting_rows_equals_predicting_one_by_one(rng):
    model = Ogd(n_features=4, n_classes=3)
    X = rng.normal(size=(20, 4))
    model.run(X, rng.integers(0, 3, 20))
    np.testing.assert_allclose(model.predict(X), [model.predict(x) for x in X], atol=1e-15)
    assert model.predict(np.empty((0, 4))).shape == (0, 3)


def test_saving_and_resuming_is_exact(rng, tmp_path):
    X, y, weights = make_stream(rng, 60, 3, 4, "weighted")
    straight, stopped = (Ogd(n_features=3, n_classes=4, B=2.0, R=3.0) for _ in range(2))
    for t in range(60):
        straight.update(X[t], y[t], weight=weights[t])
        stopped.update(X[t], y[t], weight=weights[t])
        if t == 30:
            stopped.save(tmp_path / "model")
            stopped = Ogd.from_record(read(tmp_path / "model"))
    np.testing.assert_array_equal(straight.coef(), stopped.coef())
    assert repr(stopped) == "Ogd(n_features=3, n_classes=4, B=2.0, R=3.0, rate=None)"


def test_records_that_cannot_be_used():
    record = Ogd(n_features=2, n_classes=3).to_record()
    with pytest.raises(StateFileError, match="bad configuration: B must be"):
        Ogd.from_record(Record("Ogd", {**record.config, "B": -1}, record.arrays))
    with pytest.raises(StateFileError, match="an Ogd state needs rate"):
        Ogd.from_record(Record("Ogd", {"B": 1, "R": 1, "n_features": 2, "n_classes": 2}, {}))
    with pytest.raises(StateFileError, match=r"needs float64 W of shape \(3, 2\)"):
        Ogd.from_record(Record("Ogd", record.config, {"totals": record.arrays["totals"]}))


BAD_UPDATES = [
    ({"x": [1.0, math.nan], "y": 0}, "x has nan at feature 1"),
    ({"x": [1.0, math.inf], "y": 0}, "x has inf at feature 1"),
    ({"x": [1e200, 0.0], "y": 0}, "norm above"),
    ({"x": [1.0], "y": 0}, r"shape \(1,\)"),
    ({"x": "ab", "y": 0}, "real numbers"),
    ({"x": [1.0, 2.0], "y": 3}, "label y is 3; expected 0 to 2"),
    ({"x": [1.0, 2.0], "y": [0.5, 0.6, 0.0]}, "sum to 1"),
    ({"x": [1.0, 2.0], "y": 0, "weight": -1.0}, "weight is -1.0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_UPDATES)
def test_bad_input_names_what_was_wrong_and_changes_nothing(arguments, message):
    model = Ogd(n_features=2, n_classes=3)
    model.update([0.3, 0.4], 1)
    before = {name: array.tobytes() for name, array in model.to_record().arrays.items()}
    with pytest.raises(InvalidInputError, match=message):
        model.update(**arguments)
    with pytest.raises(InvalidInputError, match=r"label y\[1\] is 7"):
        model.run(np.ones((2, 2)), [0, 7])
    with pytest.raises(InvalidInputError, match="x has nan"):
        model.predict([math.nan, 0.0])
    assert {name: a.tobytes() for name, a in model.to_record().arrays.items()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"B": 0.0}, "B must be a positive number"),
        ({"R": -1}, "R must be"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Ogd(**{"n_features": 2, "n_classes": 2, **arguments})
    with pytest.raises(TypeError):
        Ogd(2, 2)


def test_empty_run_and_progress_callback(rng):
    model = Ogd(n_features=2, n_classes=3)
    assert model.run(np.empty((0, 2)), []).shape == (0, 3)
    done = []
    model.run(rng.normal(size=(10, 2)), rng.integers(0, 3, 10), progress=done.append)
    assert done[-1] == 10


def test_a_constant_rate_is_plain_stochastic_gradient_descent(rng):
    d, K, rate = 3, 4, 0.7
    model = Ogd(n_features=d, n_classes=K, B=1e6, rate=rate)
    W = np.zeros((K, d))
    for _ in range(50):
        x, label, weight = rng.normal(size=d), int(rng.integers(K)), rng.uniform(0.5, 2.0)
        z = W @ x
        p = np.exp(z - z.max())
        p /= p.sum()
        np.testing.assert_allclose(model.predict(x), p, atol=1e-12)
        model.update(x, label, weight=weight)
        W -= rate * weight * np.outer(p - np.eye(K)[label], x)
    np.testing.assert_allclose(model.coef(), W, atol=1e-12)
