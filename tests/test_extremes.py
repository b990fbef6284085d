"""Inputs that break lesser numerics. W = 0 is in every class, so T ln K bounds what it proves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn import Folklore
from folklearn.kernels import prediction_rules as rules

SIZES = [0.0, 1e-200, 1e-4, 1.0, 1e3, 1e8, 1e14]


def assert_sound(model, P):
    assert np.isfinite(P).all()
    assert (P >= 0.0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    certificate = model.certificate()
    ceiling = certificate.n_rounds * math.log(model.n_classes)
    assert math.isfinite(certificate.loss)
    assert certificate.best_linear_at_least <= ceiling * (1.0 + 1e-9) + 1e-9
    return certificate


@pytest.mark.parametrize("B", [300.0, 1e4])
@pytest.mark.parametrize("K", [2, 3, 10])
def test_saturated_probabilities(B, K, rng):
    """A separable stream drives p to 1e-300 and below; then one label turns against it."""
    T, d = 3000, 4
    X = rng.normal(size=(T, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    W = rng.normal(size=(K, d))
    y = np.argmax(X @ W.T, axis=1)
    model = Folklore(n_features=d, n_classes=K, B=B, lam=1e-9)
    P = model.run(X, y)
    assert assert_sound(model, P).valid
    assert P.min() < 1e-200
    surest = int(np.argmin(P.min(axis=1)))
    p = model.predict(X[surest])
    loss = model.update(X[surest], int(np.argmin(p)))
    assert 100.0 < loss < math.inf
    assert assert_sound(model, model.predict(X)).valid
    assert model._totals[rules.UNSOLVED] == 0


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-8, 1e8])
@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("labels", ["noise", "one class", "against"])
def test_contexts_of_every_size(size, K, labels, rng):
    T, d = 60, 3
    X = rng.normal(size=(T, d))
    X *= size / np.linalg.norm(X, axis=1)[:, None]
    model = Folklore(n_features=d, n_classes=K)
    P = np.empty((T, K))
    for t, x in enumerate(X):
        P[t] = model.predict(x)
        y = {"noise": rng.integers(K), "one class": 0, "against": np.argmin(P[t])}[labels]
        model.update(x, int(y))
    assert assert_sound(model, P).valid
    assert model._totals[rules.UNSOLVED] == 0
    assert_sound(model, model.predict(rng.normal(size=(5, d))))


def test_sizes_mixed_in_one_stream(rng):
    T, d, K = 300, 3, 4
    X = rng.normal(size=(T, d)) * rng.choice([0.0, 1e-300, 1e-3, 1.0, 1e4, 1e8], size=(T, 1))
    y = rng.integers(0, K, T)
    model = Folklore(n_features=d, n_classes=K)
    assert_sound(model, model.run(X, y))


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("parameters", [{}, {"B": 1e-3, "lam": 1e-8}, {"B": 1.0, "lam": 1e-15}])
@pytest.mark.parametrize("top", [2, 4, 8, 14])
def test_growing_contexts_on_one_line(K, parameters, top, rng):
    """Every round shrinks S along the same direction, until it is rounding noise."""
    for _ in range(20):
        v = rng.normal(size=3)
        v /= np.linalg.norm(v)
        model = Folklore(n_features=3, n_classes=K, **parameters)
        P = []
        for size in np.repeat(np.logspace(0, top, 4), 3):
            P.append(model.predict(size * v))
            model.update(size * v, int(np.argmin(P[-1])))
        assert_sound(model, np.array(P))


def test_lost_digits_are_the_reason_given():
    model = Folklore(n_features=1, n_classes=2, B=1.0, lam=1e-15)
    for _ in range(5):
        model.update([1.0], 0)
    assert "lost its digits" in model.certificate().reason


def test_a_thousand_classes(rng):
    K, d = 1000, 2
    model = Folklore(n_features=d, n_classes=K)
    x = rng.normal(size=d)
    P = np.empty((3, K))
    for t in range(3):
        P[t] = model.predict(x)
        model.update(x, 7)
    certificate = assert_sound(model, P)
    assert certificate.valid
    np.testing.assert_allclose(P[0], 1e-3, rtol=1e-9)
    assert P[0, 7] < P[1, 7] < P[2, 7]


@pytest.mark.parametrize("K", [2, 5])
def test_one_round_one_feature(K):
    model = Folklore(n_features=1, n_classes=K)
    assert_sound(model, model.run([[1.0]], [K - 1]))
    assert model.certificate().n_rounds == 1


def test_duplicated_and_constant_columns(rng):
    x = rng.normal(size=(200, 1))
    X = np.hstack([x, x, x, np.ones((200, 1)), np.zeros((200, 1))])
    y = (x[:, 0] > 0).astype(int)
    model = Folklore(n_features=5, n_classes=3)
    certificate = assert_sound(model, model.run(X, y))
    assert certificate.valid
    np.testing.assert_allclose(model.coef()[:, 0], model.coef()[:, 2], atol=1e-10)
    np.testing.assert_array_equal(model.coef()[:, 4], 0.0)


def test_one_class_only(rng):
    X = rng.normal(size=(500, 3))
    model = Folklore(n_features=3, n_classes=3)
    certificate = assert_sound(model, model.run(np.abs(X), np.full(500, 2)))
    assert certificate.loss < 50.0


@pytest.mark.parametrize("parameters", [{"B": 1e15}, {"lam": 1e-15}, {"lam": 1e15}])
def test_absurd_parameters_are_reported_not_hidden(parameters, rng):
    """Everything stays finite, and what rounding destroyed is not called a certificate."""
    X, y = rng.normal(size=(200, 6)), rng.integers(0, 4, 200)
    model = Folklore(n_features=6, n_classes=4, **parameters)
    P = model.run(X, y)
    assert_sound(model, P)
    assert_sound(model, model.predict(1e14 * X))
    model.run(X, y, weight=np.full(200, 1e15))
    assert np.isfinite(model.predict(X)).all()
    assert model.certificate().best_linear_at_least <= 201 * 1e15 * math.log(4)


def test_an_absurd_gamma_is_reported_not_hidden(rng):
    """gamma = 1/2 on contexts of norm 1e8 loses all digits: the certificate must not survive."""
    X = 1e8 * rng.normal(size=(100, 3))
    model = Folklore(n_features=3, n_classes=3, gamma=0.5)
    P = model.run(X, rng.integers(0, 3, 100))
    assert np.isfinite(P).all()
    assert not model.certificate().valid


@given(
    d=st.integers(1, 4),
    K=st.integers(2, 5),
    B=st.sampled_from([1e-3, 1.0, 300.0, 1e6]),
    lam=st.sampled_from([None, 1e-8, 1.0, 1e6]),
    sizes=st.lists(
        st.sampled_from([0.0, 1e-200, 1e-4, 1.0, 1e3, 1e8, 1e14]), min_size=1, max_size=25
    ),
    spread=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_whatever_arrives_the_certificate_stays_sound(d, K, B, lam, sizes, spread, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(sizes) if spread else 1, d)) * np.array(sizes)[:, None]
    model = Folklore(n_features=d, n_classes=K, B=B, lam=lam)
    weight = rng.choice([0.0, 1e-6, 1.0, 50.0], size=len(sizes))
    P = model.run(X, rng.integers(0, K, len(sizes)), weight=weight)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    certificate = model.certificate()
    ceiling = weight.sum() * math.log(K)
    assert certificate.best_linear_at_least <= ceiling * (1.0 + 1e-12) + 1e-12
