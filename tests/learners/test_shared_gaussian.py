"""SharedGaussian against its slow twin, in any portions, and the edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folklearn
from folklearn import ClassGaussians, Mixture, Ogd, SharedGaussian
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.shared_gaussian import FixedGaussian
from folklearn.serialization import Record, as_bytes
from tests.learners.streams import mixed_stream
from tests.reference.shared_gaussian import DenseSharedGaussian


def state(model):
    return {part: array.tobytes() for part, array in model.to_record().arrays.items()}


def assert_is_the_twin(model, twin):
    np.testing.assert_allclose(model.coef(), twin.W, atol=1e-9)
    P = twin.covariance()
    np.testing.assert_allclose(model.covariance(), P, atol=1e-9 * np.abs(P).max())
    assert model.loss == pytest.approx(twin.loss, rel=1e-9, abs=1e-9)
    assert model.n_rounds == twin.n_rounds


@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("ridge", "leak"), [(0.5, 0.0), (0.01, 1e-3), (0.01, 0.1)])
def test_equals_the_dense_twin(K, kind, ridge, leak, seed):
    d, T = 4, 100
    X, Y, weight = mixed_stream(seed, T, d, K, kind)
    model = SharedGaussian(n_features=d, n_classes=K, ridge=ridge, leak=leak, R=2.0)
    twin = DenseSharedGaussian(d, K, ridge, leak, R=2.0)
    for x, y, w in zip(X, Y, weight, strict=True):
        label = y if kind == "soft" else int(np.argmax(y))
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        loss = model.update(x, label, weight=w)
        assert loss == pytest.approx(twin.update(x, y, w), abs=1e-9)
    assert_is_the_twin(model, twin)


@pytest.mark.parametrize("largest", [30.0, 1e4])
def test_large_weights_equal_the_dense_twin(largest, seed, rng):
    d, K, T = 3, 4, 70
    X, Y, _ = mixed_stream(seed, T, d, K, "soft")
    weight = rng.choice([0.0, 1e-3, 1.0, largest], size=T)
    model = SharedGaussian(n_features=d, n_classes=K, ridge=0.1, leak=0.01)
    twin = DenseSharedGaussian(d, K, 0.1, 0.01)
    P = model.run(X, Y, weight=weight)
    for x, y, w, p in zip(X, Y, weight, P, strict=True):
        np.testing.assert_allclose(p, twin.predict(x), atol=1e-7)
        twin.update(x, y, w)
    np.testing.assert_allclose(model.coef(), twin.W, atol=1e-6)


def test_one_round_in_numbers():
    """Two classes, one feature: s = 1/(2 ridge) = 1, and z' = (t, -t) with t = 1 - sigmoid(2 t)."""
    model = SharedGaussian(n_features=1, n_classes=2, ridge=0.5)
    assert model.update([1.0], 0) == pytest.approx(math.log(2.0))
    t = model.coef()[0, 0]
    assert t == pytest.approx(1.0 / (1.0 + math.exp(2.0 * t)), abs=1e-15)
    assert model.coef()[1, 0] == pytest.approx(-t, abs=1e-15)
    np.testing.assert_allclose(model.covariance(), 1.0 / (1.0 + t * (1.0 - t)), rtol=1e-14)


def test_two_classes_are_those_of_class_gaussians(seed):
    """Then every class has the same curvature."""
    X, Y, _ = mixed_stream(seed, 100, 5, 2, "soft")
    shared, own = (
        kind(n_features=5, n_classes=2, ridge=0.01) for kind in (SharedGaussian, ClassGaussians)
    )
    np.testing.assert_allclose(shared.run(X, Y), own.run(X, Y), atol=1e-10)


def test_a_leak_returns_to_the_prior():
    model = SharedGaussian(n_features=2, n_classes=2, ridge=0.5, leak=0.01)
    model.run(np.tile([[1.0, 0.5]], (64, 1)), [0] * 64)
    assert model.covariance()[0, 0] < 0.9
    model.run(np.zeros((3200, 2)), [0] * 3200)
    np.testing.assert_allclose(model.covariance(), np.eye(2), atol=1e-12)


@pytest.mark.parametrize("d", [1, 4, 37, 110])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
def test_portions_make_no_difference_to_any_bit(d, kind, seed, rng):
    T, K = 150, 3
    X, Y, weight = mixed_stream(seed, T, d, K, kind)
    y = Y if kind == "soft" else Y.argmax(axis=1)
    make = lambda: SharedGaussian(n_features=d, n_classes=K, leak=1e-3)  # noqa: E731
    whole = make()
    P = whole.run(X, y, weight=weight)
    some = np.sort(rng.choice(np.arange(1, T), 9, replace=False)).tolist()
    for cuts in ([1, 2, 50], [31, 32, 33, 64], some, list(range(1, T))):
        parts = make()
        done = [
            parts.run(*part[:2], weight=part[2])
            for part in zip(*(np.split(array, cuts) for array in (X, y, weight)), strict=True)
        ]
        assert np.vstack(done).tobytes() == P.tobytes()
        assert state(parts) == state(whole)


@pytest.mark.parametrize("cut", [0, 1, 17, 31, 32, 33, 100])
def test_resuming_in_a_block_equals_never_stopping(cut, seed, tmp_path):
    X, Y, weight = mixed_stream(seed, 120, 6, 3, "weighted")
    y = Y.argmax(axis=1)
    straight, stopped = (SharedGaussian(n_features=6, n_classes=3, leak=0.01) for _ in range(2))
    P = straight.run(X, y, weight=weight)
    stopped.run(X[:cut], y[:cut], weight=weight[:cut])
    stopped.save(tmp_path / "state")
    resumed = folklearn.load(tmp_path / "state")
    assert repr(resumed) == repr(stopped)
    assert resumed.run(X[cut:], y[cut:], weight=weight[cut:]).tobytes() == P[cut:].tobytes()
    assert state(resumed) == state(straight)


@pytest.mark.parametrize("d", [3, 70])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
def test_run_is_the_loop(d, kind, seed):
    T, K = 200, 4
    X, Y, weight = mixed_stream(seed, T, d, K, kind)
    y = Y if kind == "soft" else Y.argmax(axis=1)
    together, alone, both = (SharedGaussian(n_features=d, n_classes=K, leak=1e-3) for _ in range(3))
    P = together.run(X, y, weight=weight)
    for t, x in enumerate(X):
        np.testing.assert_allclose(alone.predict(x), P[t], atol=1e-9)
        alone.update(x, y[t], weight=weight[t])
    np.testing.assert_allclose(alone.coef(), together.coef(), atol=1e-9)
    size = np.abs(together.covariance()).max()
    np.testing.assert_allclose(alone.covariance(), together.covariance(), atol=1e-9 * size)
    for t in range(20):  # a block of both kinds
        both.update(X[t], y[t], weight=weight[t])
    np.testing.assert_allclose(both.run(X[20:], y[20:], weight=weight[20:]), P[20:], atol=1e-9)
    assert together.loss == pytest.approx(alone.loss, rel=1e-12)


@pytest.mark.parametrize("cut", [10, 32, 50])
def test_late_features_and_classes_are_as_if_0_before(cut, rng):
    d, K, T = 3, 2, 100
    X, y = rng.normal(size=(T, 5)) / 2, rng.integers(0, 4, T)
    y[:cut] %= 2
    model, twin = SharedGaussian(n_features=d, n_classes=K, leak=0.01), None
    twin = DenseSharedGaussian(d, K, model.ridge, 0.01)
    early = model.run(X[:cut, :d], y[:cut])
    for x, label in zip(X[:cut, :d], y[:cut], strict=True):
        twin.update(x, label)
    before = state(model)
    larger = model.grown(n_features=5, n_classes=4)
    twin.grow(5, 4)
    assert_is_the_twin(larger, twin)
    P = larger.run(X[cut:], y[cut:])
    for x, label, p in zip(X[cut:], y[cut:], P, strict=True):
        np.testing.assert_allclose(p, twin.predict(x), atol=1e-9)
        twin.update(x, label)
    assert_is_the_twin(larger, twin)
    assert state(model) == before
    told = SharedGaussian(n_features=5, n_classes=2, leak=0.01)
    padded = np.hstack([X[:cut, :d], np.zeros((cut, 2))])
    np.testing.assert_allclose(told.run(padded, y[:cut]), early, atol=1e-12)
    late = model.grown(n_features=5)
    np.testing.assert_allclose(late.covariance(), told.covariance(), atol=1e-9)


def assert_sound(model, P):
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    for array in model.to_record().arrays.values():
        assert np.isfinite(array).all()
    noise = 1e-12 / (2.0 * model.ridge)
    assert (model.covariance().diagonal() >= -noise).all()
    assert (model._P.diagonal() >= 0.0).all()
    folklearn.load(model.to_bytes())


@given(
    d=st.integers(1, 4),
    K=st.integers(2, 6),
    ridge=st.sampled_from([1e-15, 1e-6, 0.1, 1e6]),
    leak=st.sampled_from([0.0, 1e-3, 0.5]),
    sizes=st.lists(
        st.sampled_from([0.0, 1e-200, 1e-150, 1e-4, 1.0, 1e3, 1e8, 1e14]), min_size=1, max_size=70
    ),
    spread=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_whatever_arrives_everything_stays_finite(d, K, ridge, leak, sizes, spread, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(sizes) if spread else 1, d)) * np.array(sizes)[:, None]
    weight = rng.choice([0.0, 1e-6, 1.0, 50.0, 1e12, 1e15], size=len(sizes))
    y = rng.integers(0, K, len(sizes))
    together, alone = (
        SharedGaussian(n_features=d, n_classes=K, ridge=ridge, leak=leak) for _ in range(2)
    )
    assert_sound(together, together.run(X, y, weight=weight))
    P = []
    for x, label, w in zip(X, y, weight, strict=True):
        P.append(alone.predict(x))
        alone.update(x, label, weight=w)
    assert_sound(alone, np.array(P))


@pytest.mark.parametrize("weight", [1.0, 1e12])
def test_rows_that_are_all_the_same_spoil_nothing(weight, rng):
    X, y = np.tile(rng.normal(size=6), (3000, 1)), rng.integers(0, 3, 3000)
    model = SharedGaussian(n_features=6, n_classes=3, ridge=1e-6)
    assert_sound(model, model.run(X, y, weight=np.full(3000, weight)))
    if weight == 1.0:
        np.testing.assert_allclose(model.predict(X[0]), np.bincount(y) / 3000, atol=0.02)


def test_the_covariance_stays_positive_on_a_long_stream(rng):
    """Columns of very different sizes, and two that are equal."""
    T, d, K = 20_000, 6, 4
    X = rng.normal(size=(T, d)) * np.array([1.0, 1e-3, 1e2, 1.0, 1.0, 1.0])
    X[:, 4] = X[:, 3]
    y = np.argmax(X[:, :4] * np.array([1.0, 1e3, 1e-2, 1.0]) + rng.gumbel(size=(T, K)), axis=1)
    model = SharedGaussian(n_features=d, n_classes=K, ridge=1e-4)
    model.run(X, y)
    assert np.linalg.eigvalsh(model.covariance()).min() > 0.0
    np.testing.assert_allclose(model.coef()[:, 3], model.coef()[:, 4], atol=1e-6)


def test_a_copy_to_predict_predicts_the_same_and_learns_nothing(rng):
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 4, 60)
    model = SharedGaussian(n_features=3, n_classes=4)
    model.run(X, y)
    fixed = model.copy_to_predict()
    assert type(fixed) is FixedGaussian
    again = folklearn.load(fixed.to_bytes())
    expected, row = model.predict(X), model.predict(X[0])
    model.run(X, y)  # the copy does not follow
    for copied in (fixed, again, fixed.copy_to_predict()):
        assert copied.predict(X).tobytes() == expected.tobytes()
        assert copied.predict(X[0]).tobytes() == row.tobytes()
        before = state(copied)
        for learn in (lambda c=copied: c.update(X[0], 1), lambda c=copied: c.run(X, y)):
            with pytest.raises(InvalidInputError, match="made to predict cannot learn"):
                learn()
        assert state(copied) == before
        assert copied.predict(X).tobytes() == expected.tobytes()
    assert fixed.n_bytes < model.n_bytes


BAD_UPDATES = [
    ({"x": [1.0, math.nan], "y": 0}, "x has nan at feature 1"),
    ({"x": [1e100, 0.0], "y": 0}, "norm above"),
    ({"x": [1.0], "y": 0}, r"shape \(1,\)"),
    ({"x": [1.0, 2.0], "y": 3}, "label y is 3; expected 0 to 2"),
    ({"x": [1.0, 2.0], "y": [0.5, 0.6, 0.0]}, "sum to 1"),
    ({"x": [1.0, 2.0], "y": 0, "weight": -1.0}, "weight is -1.0"),
    ({"x": [1.0, 2.0], "y": 0, "weight": math.nan}, "weight is nan"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_UPDATES)
def test_bad_input_names_what_was_wrong_and_changes_nothing(arguments, message):
    model = SharedGaussian(n_features=2, n_classes=3)
    model.update([0.3, 0.4], 1)
    before = state(model)
    with pytest.raises(InvalidInputError, match=message):
        model.update(**arguments)
    with pytest.raises(InvalidInputError, match="x has nan"):
        model.predict([math.nan, 0.0])
    with pytest.raises(InvalidInputError, match="norm above"):
        model.predict([1e200, 0.0])
    rows = [[0.3, 0.4], arguments["x"] if len(arguments["x"]) == 2 else [math.inf, 0.0]]
    with pytest.raises(InvalidInputError):
        model.run(rows, [0, 7], weight=[1.0, arguments.get("weight", 1.0)])
    assert state(model) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"ridge": 0.0}, "ridge must be a positive number"),
        ({"leak": -0.1}, "leak must be a number from 0 to 0.5"),
        ({"leak": 0.6}, "leak must be a number from 0 to 0.5"),
        ({"R": -1}, "R must be"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        SharedGaussian(**{"n_features": 2, "n_classes": 2, **arguments})


def crafted(**changes):
    model = SharedGaussian(n_features=3, n_classes=3)
    model.run(np.eye(3), [0, 1, 2])
    record = model.to_record()
    config = {word: value for word, value in changes.items() if word in record.config}
    arrays = {part: array for part, array in changes.items() if part in record.arrays}
    return Record("SharedGaussian", record.config | config, record.arrays | arrays)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ridge": 0}, "bad configuration: ridge must be"),
        ({"leak": 2.0}, "bad configuration: leak must be"),
        ({"n_features": 10**9}, "of its sizes has .* numbers or more"),
        ({"n_features": 4}, "needs float64 W of shape"),
        ({"P": np.zeros((2, 2))}, "needs float64 P of shape"),
        ({"P": np.full(6, np.nan)}, "has a number in P"),
        ({"U": np.full((32, 3), np.inf)}, "has a number in U"),
        ({"kappas": np.zeros(31)}, "needs float64 kappas of shape"),
        ({"P": -np.ones(6)}, "has a covariance that none can be"),
        ({"kappas": np.full(32, -1.0)}, "has a covariance that none can be"),
        ({"totals": np.array([1.0, -1.0])}, "has no whole number of rounds"),
        ({"totals": np.array([1.0, 0.5])}, "has no whole number of rounds"),
        ({"totals": np.array([1.0, 1e60])}, "has no whole number of rounds"),
    ],
)
def test_states_that_nobody_saves_are_refused(changes, message):
    assert folklearn.load(as_bytes(crafted())).n_rounds == 3
    with pytest.raises(StateFileError, match=message):
        folklearn.load(as_bytes(crafted(**changes)))


def test_a_fixed_state_holds_its_mean():
    record = SharedGaussian(n_features=3, n_classes=3).copy_to_predict().to_record()
    record.config["n_features"] = 10**9
    with pytest.raises(StateFileError, match="of its sizes has"):
        folklearn.load(as_bytes(record))


def test_the_state_has_the_size_that_was_expected():
    model = SharedGaussian(n_features=200, n_classes=30)
    assert model.n_bytes == pytest.approx(model.expected_bytes(200, 30), rel=0.02)


def test_nothing_is_proven():
    model = SharedGaussian(n_features=2, n_classes=3)
    model.update([1.0, 0.0], 2)
    certificate = model.certificate()
    assert not certificate.valid
    assert certificate.n_rounds == 1
    mixture = Mixture([SharedGaussian(n_features=2, n_classes=3), Ogd(n_features=2, n_classes=3)])
    assert "no surviving expert" in mixture.certificate().reason


def test_empty_run_and_progress_callback(rng):
    model = SharedGaussian(n_features=2, n_classes=3)
    assert model.run(np.empty((0, 2)), []).shape == (0, 3)
    done = []
    model.run(rng.normal(size=(10, 2)), rng.integers(0, 3, 10), progress=done.append)
    assert done[-1] == 10
