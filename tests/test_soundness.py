"""Promises that a determined reader once broke; each test fails on the code that broke them."""

import math
from decimal import Decimal

import numpy as np
import pytest

from folklearn import Aioli, Folklore, Gaf, Laplace, auto, best_in_class
from folklearn.kernels import prediction_rules
from tests.reference import boosting as reference
from tests.reference.boosting_regression import BoostingRegression

N_HOSTILE = 60  # streams for each learner; 3,000 passed when this was written


def hostile_stream(seed):
    """Legal contexts, labels (None: the least likely class) and weights, the worst we know."""
    rng = np.random.default_rng(seed)
    T, d, K = int(rng.integers(1, 30)), int(rng.choice([1, 2, 3, 40])), int(rng.choice([2, 3, 5]))
    low, high = sorted(rng.uniform(-15.0, 14.9, 2))
    one, several = rng.normal(size=d), rng.normal(size=(3, d))
    X = [
        rng.normal(size=(T, d)),
        np.tile(one, (T, 1)),
        np.outer(rng.normal(size=T), one),
        several[rng.integers(0, 3, T)] + 1e-9 * rng.normal(size=(T, d)),
    ][rng.integers(4)]
    X /= np.linalg.norm(X, axis=1)[:, None]
    X *= 10.0 ** (rng.uniform(low, high, (T, 1)) if rng.random() < 0.7 else high)
    w = [
        np.ones(T),
        np.full(T, 10.0 ** rng.uniform(-3.0, 15.0)),
        rng.choice([0.0, 1e-15, 1.0, 1e6, 1e15], T),
    ][rng.integers(3)]
    y = [rng.integers(0, K, T), rng.dirichlet(np.ones(K), T), np.full((T, K), 1.0 / K), None]
    return X, y[rng.integers(4)], w, K


def every_learner(d, K, seed):
    rng = np.random.default_rng(seed)
    sizes = {"n_features": d, "n_classes": K}
    ball = {"B": 10.0 ** rng.uniform(-3.0, 6.0), "lam": 10.0 ** rng.uniform(-15.0, 8.0)}
    n_points = (None, 4)[rng.integers(2)]
    yield Folklore(**sizes)
    yield Folklore(**sizes, **ball)
    yield Folklore(**sizes, **ball, gamma=0.5)
    yield Folklore(**sizes, **ball, memory=10)
    yield Gaf(**sizes, **ball, mu=0.0, n_points=n_points, improved=True)
    yield Laplace(**sizes, **ball)
    yield auto(**sizes, max_weight=1e15)
    if K == 2:
        yield Aioli(n_features=d, **ball)


def assert_usable(model, P, X):
    P = np.vstack([P, model.predict(X), model.predict(np.eye(X.shape[1]))])
    assert np.isfinite(P).all()
    assert (P >= 0.0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize("part", range(4))
def test_nothing_legal_makes_nan_or_an_exception(part, seed):
    for stream in range(part, N_HOSTILE, 4):
        X, y, w, K = hostile_stream([seed, stream])
        for model in every_learner(X.shape[1], K, [seed, stream]):
            P = np.empty((len(X), K))
            for t, x in enumerate(X):
                P[t] = model.predict(x)
                target = np.argmin(P[t]) if y is None else y[t]
                assert math.isfinite(model.update(x, target, weight=float(w[t])))
            assert_usable(model, P, X)
        for model in every_learner(X.shape[1], K, [seed, stream]):
            labels = np.zeros(len(X), int) if y is None else y
            assert_usable(model, model.run(X, labels, weight=w), X)


@pytest.mark.parametrize("together", [True, False])
def test_a_repeated_huge_context_with_soft_labels_is_survived(together):
    X, Y = np.tile([3e8, 1e9], (40, 1)), np.full((40, 2), 0.5)
    model = auto(n_features=2, n_classes=2)
    if together:
        P = model.run(X, Y)
    else:
        P = np.array([model.predict(x) for x, y in zip(X, Y, strict=True) if model.update(x, y)])
    assert_usable(model, P, X)
    certificate = model.certificate()
    assert math.isfinite(certificate.loss)
    assert certificate.best_linear_at_least <= 40 * math.log(2) + 1e-9


@pytest.mark.parametrize("n_features", [2, 120])  # single rounds, and blocks
def test_a_spoiled_state_is_said_to_be_one_and_still_predicts(n_features, rng):
    """Weights of 7e11 along contexts of norm 2e5 leave only noise of S there."""
    X = np.tile(rng.normal(size=n_features), (60, 1)) + 1e-7 * rng.normal(size=(60, n_features))
    X *= 2e5 / np.linalg.norm(X, axis=1)[:, None]
    model = Folklore(n_features=n_features, n_classes=2, gamma=0.5)
    P = model.run(X, np.full((60, 2), 0.5), weight=np.full(60, 7e11))
    assert_usable(model, P, X)
    assert not model.certificate().valid
    S = np.tril(model._S)
    assert np.abs(S).max() <= (1.0 + 1e-9) / model.lam
    assert np.diag(S).min() >= -1e-11 / model.lam
    W = np.abs(model.coef()).max()
    assert W < 1e10


def test_the_softmax_at_the_mean_never_loses_infinity():
    model = Gaf(n_features=1, n_classes=2, mu=0.0, n_points=None, B=1e4, lam=1e-6, improved=True)
    for _ in range(40):
        model.update([1.0], 0)
    z = model.coef()[:, 0] * 1e3
    assert z[0] - z[1] > 800.0
    assert model.predict([1e3])[1] == 1e-300
    assert model.update([1e3], 1) == pytest.approx(300.0 * math.log(10.0), rel=1e-9)
    assert math.isfinite(model.certificate().loss)
    assert math.isfinite(model.certificate().best_linear_at_least)


def test_an_integral_never_gives_a_class_nothing():
    C, q, nodes = np.full((1, 1), 1e-3), np.array([-3000.0]), np.array([[1.0], [-1.0]])
    squares, vectors = prediction_rules.small_arrays(1)
    squares[prediction_rules.C_AT], vectors[prediction_rules.Q_AT, :1] = C, q
    prediction_rules._predict_integral(0.0, nodes, squares, vectors)
    p = vectors[prediction_rules.PREDICTED]
    assert p[1] == 1e-300
    assert p.sum() == 1.0


@pytest.mark.parametrize(("K", "n_points"), [(2, 2), (2, 16), (3, 2), (3, 16)])
@pytest.mark.parametrize("B", [0.05, 1.0])
def test_the_bound_of_gaf_counts_its_points(K, n_points, B):
    """The bound of exact integrals is passed, by up to a factor of 1.66."""
    parameters = {"n_features": 1, "n_classes": K, "B": B, "lam": 2.5}
    model = Gaf(**parameters, n_points=n_points)
    X, y = np.ones((3, 1)), []
    for x in X:
        y.append(int(np.argmin(model.predict(x))))
        model.update(x, y[-1])
    regret = model.certificate().loss - best_in_class(X, y, B=B, n_classes=K).at_least
    assert regret <= model.regret_bound(3)


@pytest.mark.parametrize("regression", ["offset", "folklore", "aioli"])
def test_boosting_regressions_hold_at_huge_weights(regression, seed):
    """Against exact losses; ln(1 + tiny) times 1e14 is not tiny."""
    for stream in range(40):
        rng = np.random.default_rng([seed, stream])
        T, K = int(rng.integers(1, 6)), int(rng.integers(2, 5))
        S = rng.normal(size=(T, K)) * 10.0 ** rng.uniform(-1.0, 2.0)
        w = np.full(T, 10.0 ** rng.uniform(8.0, 15.0))
        labels = np.argmax(S, axis=1) if rng.random() < 0.5 else rng.integers(0, K, T)
        y = np.argmax(S, axis=1) if rng.random() < 0.5 else rng.integers(0, K, T)
        model = BoostingRegression(n_classes=K, regression=regression)
        for t in range(T):
            model.update(S[t], int(labels[t]), int(y[t]), weight=float(w[t]))
        for alpha in (0.0, 1e-9, -0.01, 2.0, -2.0):
            exact = reference.exact_loss(S, labels, y, w, alpha)
            assert Decimal(model.certificate(alpha).best_linear_at_least) <= exact
