"""ClassGaussians against its slow twin, its certificate against models, and the edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

import folklearn
from folklearn import ClassGaussians, Mixture, Ogd
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate import logistic_regression
from folklearn.serialization import Record
from tests.learners.streams import loss_with_penalty, mixed_stream
from tests.reference.class_blocks import DenseClassBlocks
from tests.reference.loss import log_loss


def covariances(model):
    """P as full matrices (K, d, d)."""
    d, K = model.n_features, model.n_classes
    rows, columns = np.tril_indices(d)
    P = np.empty((K, d, d))
    P[:, rows, columns] = model._P.T
    P[:, columns, rows] = model._P.T
    return P


@pytest.mark.parametrize("K", [2, 3, 12])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize("ridge", [0.5, 0.01])
def test_equals_the_dense_twin(K, kind, ridge, seed):
    d, T = 4, 120
    X, Y, weight = mixed_stream(seed, T, d, K, kind)
    model = ClassGaussians(n_features=d, n_classes=K, ridge=ridge, R=2.0)
    twin = DenseClassBlocks(d, K, ridge, R=2.0)
    for x, y, w in zip(X, Y, weight, strict=True):
        label = y if kind == "soft" else int(np.argmax(y))
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        loss = model.update(x, label, weight=w)
        assert loss == pytest.approx(twin.update(x, y, w), abs=1e-9)
    np.testing.assert_allclose(model.coef(), twin.W, atol=1e-9)
    inverse = np.linalg.inv(twin.precisions)
    np.testing.assert_allclose(covariances(model), inverse, atol=1e-9 * np.abs(inverse).max())
    certificate = model.certificate()
    assert certificate.loss == pytest.approx(twin.loss, abs=1e-9)
    assert certificate.best_linear_at_least == pytest.approx(twin.least(), rel=1e-9, abs=1e-9)


def test_one_round_in_numbers():
    """Two classes, one feature: s = 1/(2 ridge) = 1, and z' = (t, -t) with t = 1 - sigmoid(2 t)."""
    model = ClassGaussians(n_features=1, n_classes=2, ridge=0.5)
    assert model.update([1.0], 0) == pytest.approx(math.log(2.0))
    t = model.coef()[0, 0]
    assert t == pytest.approx(1.0 / (1.0 + math.exp(2.0 * t)), abs=1e-15)
    assert model.coef()[1, 0] == pytest.approx(-t, abs=1e-15)
    np.testing.assert_allclose(model._P, 1.0 / (1.0 + t * (1.0 - t)), rtol=1e-14)


@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
def test_run_is_the_loop_byte_for_byte(kind, seed):
    X, Y, weight = mixed_stream(seed, 150, 6, 300, kind)
    y = Y if kind == "soft" else Y.argmax(axis=1)
    together, alone = (ClassGaussians(n_features=6, n_classes=300) for _ in range(2))
    P = together.run(X, y, weight=weight)
    for t, x in enumerate(X):
        assert P[t].tobytes() == alone.predict(x).tobytes()
        alone.update(x, y[t], weight=weight[t])
    ours, theirs = together.to_record(), alone.to_record()
    assert ours.config == theirs.config
    for name, array in ours.arrays.items():
        assert array.tobytes() == theirs.arrays[name].tobytes()


def total_loss(W, X, Y, weight):
    Z = X @ W.T
    return float(weight @ (logsumexp(Z, axis=1) - (Y * Z).sum(axis=1)))


@given(
    d=st.integers(1, 5),
    K=st.integers(2, 12),
    T=st.integers(1, 80),
    size=st.sampled_from([1e-3, 1.0, 100.0]),
    labels=st.sampled_from(["model", "noise", "one class", "soft"]),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_no_model_beats_the_certificate(d, K, T, size, labels, weighted, seed):
    rng = np.random.default_rng(seed)
    X = size * rng.normal(size=(T, d)) / math.sqrt(d)
    y = np.argmax(X @ rng.normal(size=(d, K)) * 4.0 / size + rng.gumbel(size=(T, K)), axis=1)
    if labels == "noise":
        y = rng.integers(0, K, T)
    elif labels == "one class":
        y = np.zeros(T, dtype=int)
    Y = rng.dirichlet(np.full(K, 0.3), size=T) if labels == "soft" else np.eye(K)[y]
    weight = rng.choice([0.0, 0.01, 1.0, 30.0, 1000.0], size=T) if weighted else np.ones(T)
    model = ClassGaussians(n_features=d, n_classes=K, R=size)
    model.run(X, Y if labels == "soft" else y, weight=weight)
    floor = model.certificate()
    assert floor.valid
    best = logistic_regression(X, Y, n_classes=K, weight=weight).W
    members = [np.zeros((K, d)), best, model.coef()]
    members += [rng.normal(size=(K, d)) * norm for norm in (0.01, 1.0, 10.0, 300.0)]
    for W in members:
        loss = total_loss(W, X, Y, weight)
        slack = 1e-12 * (abs(loss) + weight @ np.abs(X).sum(axis=1) * np.abs(W).max())
        assert floor.best_linear_at_least <= loss_with_penalty(W, X, Y, weight) + slack
        assert model.certificate(W).best_linear_at_least <= loss + slack


def test_the_certificate_proves_something(rng):
    T, d, K = 3000, 4, 20
    X, y = rng.normal(size=(T, d)) / 2.0, rng.integers(0, K, T)
    model = ClassGaussians(n_features=d, n_classes=K)
    model.run(X, y)
    certificate = model.certificate()
    assert 0.5 * T * math.log(K) < certificate.best_linear_at_least < T * math.log(K)
    assert certificate.C == 1.0


def test_a_mixture_has_its_certificate(rng):
    sizes = {"n_features": 3, "n_classes": 4}
    mixture = Mixture([ClassGaussians(**sizes), Ogd(**sizes)])
    mixture.run(rng.normal(size=(50, 3)), rng.integers(0, 4, 50))
    for W in (None, np.full((4, 3), 5.0)):
        own, mixed = mixture.experts[0].certificate(W), mixture.certificate(W)
        assert (mixed.C, mixed.penalty) == (own.C, own.penalty)
        assert mixed.best_linear_at_least == pytest.approx(own.best_linear_at_least)


def test_the_state_has_the_size_that_was_expected():
    model = ClassGaussians(n_features=20, n_classes=500)
    assert model.n_bytes == pytest.approx(model.expected_bytes(20, 500), rel=1e-3)
    assert model.n_bytes < 1.1e6


def test_a_late_feature_was_always_zero(rng):
    X, y = rng.normal(size=(60, 4)) / 2, rng.integers(0, 3, 60)
    X[:30, 2:] = 0.0
    told, late = (ClassGaussians(n_features=d, n_classes=3) for d in (4, 2))
    expected = told.run(X, y)
    early = late.run(X[:30, :2], y[:30])
    late = late.grown(n_features=4)
    np.testing.assert_array_equal(np.vstack([early, late.run(X[30:], y[30:])]), expected)
    for part, array in told.to_record().arrays.items():
        np.testing.assert_array_equal(late.to_record().arrays[part], array)


def test_the_certificate_after_growth_is_true(rng, tmp_path):
    d = 2
    model = ClassGaussians(n_features=d, n_classes=2)
    played = []
    for K in (2, 4, 5):
        model = model.grown(n_classes=K)
        for _ in range(60):
            x, y = rng.normal(size=d), int(rng.integers(K))
            model.update(x, y)
            played.append((x, y, K))
    certificate = model.certificate()
    for _ in range(50):
        W = 3.0 * rng.random() * rng.normal(size=(5, d))
        loss = sum(log_loss(W[:K] @ x, y) for x, y, K in played)
        assert loss >= model.certificate(W).best_linear_at_least
        assert loss + 0.5 * (W**2).sum() >= certificate.best_linear_at_least
    model.save(tmp_path / "grown")
    assert folklearn.load(tmp_path / "grown").certificate() == certificate


@given(
    d=st.integers(1, 4),
    K=st.integers(2, 6),
    ridge=st.sampled_from([1e-15, 1e-6, 0.1, 1e6]),
    sizes=st.lists(
        st.sampled_from([0.0, 1e-200, 1e-4, 1.0, 1e3, 1e8, 1e14]), min_size=1, max_size=25
    ),
    spread=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_whatever_arrives_everything_stays_finite(d, K, ridge, sizes, spread, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(sizes) if spread else 1, d)) * np.array(sizes)[:, None]
    weight = rng.choice([0.0, 1e-6, 1.0, 50.0, 1e15], size=len(sizes))
    model = ClassGaussians(n_features=d, n_classes=K, ridge=ridge)
    P = model.run(X, rng.integers(0, K, len(sizes)), weight=weight)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    for name, array in model.to_record().arrays.items():
        assert name == "limit" or np.isfinite(array).all()
    assert (covariances(model).diagonal(axis1=1, axis2=2) >= 0.0).all()
    ceiling = weight.sum() * math.log(K)
    assert model.certificate().best_linear_at_least <= ceiling * (1.0 + 1e-12) + 1e-12


def test_covariances_stay_positive_on_a_long_stream(rng):
    """Columns of very different sizes, and two that are equal."""
    T, d, K = 20_000, 6, 4
    X = rng.normal(size=(T, d)) * np.array([1.0, 1e-3, 1e2, 1.0, 1.0, 1.0])
    X[:, 4] = X[:, 3]
    y = np.argmax(X[:, :4] * np.array([1.0, 1e3, 1e-2, 1.0]) + rng.gumbel(size=(T, K)), axis=1)
    model = ClassGaussians(n_features=d, n_classes=K, ridge=1e-4)
    model.run(X, y)
    assert np.linalg.eigvalsh(covariances(model)).min() > 0.0
    np.testing.assert_allclose(model.coef()[:, 3], model.coef()[:, 4], atol=1e-6)


def test_classes_that_do_not_matter_are_passed_over(rng):
    """Whole slices of classes far below learn nothing, and the others as if alone."""
    d, K, T = 3, 512, 40
    X, y = rng.normal(size=(T, d)), rng.integers(0, 256, T)
    X[:, 0] = 1.0
    model, alone = (ClassGaussians(n_features=d, n_classes=n) for n in (K, 256))
    model._W[0, 256:] = -200.0
    before = model.to_record().arrays
    P = model.run(X, y)
    np.testing.assert_allclose(P[:, :256], alone.run(X, y), atol=1e-14)
    for part in ("W", "P"):
        after = model.to_record().arrays[part]
        np.testing.assert_array_equal(after[:, 256:], before[part][:, 256:])
        assert (after[:, :256] != before[part][:, :256]).any()


BAD_UPDATES = [
    ({"x": [1.0, math.nan], "y": 0}, "x has nan at feature 1"),
    ({"x": [1e200, 0.0], "y": 0}, "norm above"),
    ({"x": [1.0], "y": 0}, r"shape \(1,\)"),
    ({"x": [1.0, 2.0], "y": 3}, "label y is 3; expected 0 to 2"),
    ({"x": [1.0, 2.0], "y": [0.5, 0.6, 0.0]}, "sum to 1"),
    ({"x": [1.0, 2.0], "y": 0, "weight": -1.0}, "weight is -1.0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_UPDATES)
def test_bad_input_names_what_was_wrong_and_changes_nothing(arguments, message):
    model = ClassGaussians(n_features=2, n_classes=3)
    model.update([0.3, 0.4], 1)
    before = {name: array.tobytes() for name, array in model.to_record().arrays.items()}
    with pytest.raises(InvalidInputError, match=message):
        model.update(**arguments)
    with pytest.raises(InvalidInputError, match="x has nan"):
        model.predict([math.nan, 0.0])
    with pytest.raises(InvalidInputError, match="norm above"):
        model.predict([1e200, 0.0])
    assert {name: a.tobytes() for name, a in model.to_record().arrays.items()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"ridge": 0.0}, "ridge must be a positive number"),
        ({"R": -1}, "R must be"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        ClassGaussians(**{"n_features": 2, "n_classes": 2, **arguments})


def test_records_that_cannot_be_used():
    record = ClassGaussians(n_features=2, n_classes=3).to_record()
    with pytest.raises(StateFileError, match="bad configuration: ridge must be"):
        ClassGaussians.from_record(Record("ClassGaussians", {**record.config, "ridge": 0}, {}))


def test_certificates_that_cannot_be_asked_for():
    model = ClassGaussians(n_features=2, n_classes=3)
    with pytest.raises(InvalidInputError, match=r"W has shape \(2, 3\)"):
        model.certificate(np.zeros((2, 3)))


def test_empty_run_and_progress_callback(rng):
    model = ClassGaussians(n_features=2, n_classes=3)
    assert model.run(np.empty((0, 2)), []).shape == (0, 3)
    done = []
    model.run(rng.normal(size=(10, 2)), rng.integers(0, 3, 10), progress=done.append)
    assert done[-1] == 10


def test_a_variance_that_rounding_brought_below_0_spoils_nothing():
    X = np.array([[-1.7e8, -1.9e8], [8e7, -1.4e8], [0, -3e7], [5e7, 0]])
    soft = [[0.01, 0.24, 0.75], [0.47, 0.33, 0.2], [63 / 101, 12 / 101, 26 / 101]]
    model = ClassGaussians(n_features=2, n_classes=3)
    model.run(X, [*soft, [0.52, 0.46, 0.02]])
    assert np.isfinite(model.coef()).all()
    assert (covariances(model).diagonal(axis1=1, axis2=2) >= 0.0).all()
