import math

import numpy as np
import pytest

from folklearn import Folklore, Gaf, Laplace
from folklearn.baselines.second_order import gaussian_nodes
from folklearn.errors import InvalidInputError
from folklearn.kernels.curvature import valid_curvature
from folklearn.kernels.simplex import helmert
from tests.reference import streams
from tests.reference.gaf import DenseGaf, paper_gamma
from tests.reference.hindsight import best_in_class
from tests.reference.laplace import DenseLaplace


def chosen_curvature(z, x_norm, B):
    return valid_curvature(z, 2.0 * B * x_norm)


def stream(rng, T, d, K):
    X = rng.normal(size=(T, d)) / math.sqrt(d) * rng.choice([0.0, 0.3, 0.8], size=(T, 1))
    return X, rng.integers(0, K, T)


def reduced_inverse(twin, d, K):
    Q = np.kron(helmert(K), np.eye(d))
    return np.linalg.inv(Q.T @ twin.A @ Q)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("labels", ["hard", "soft", "weighted"])
def test_the_state_equals_the_twin_whatever_the_integral(K, labels, rng):
    """The expansion point does not depend on the prediction, so the state is exact."""
    T, d, B, lam = 60, 2, 4.0, 0.5
    X, y = stream(rng, T, d, K)
    targets = rng.dirichlet(np.ones(K), size=T) if labels == "soft" else y
    weights = rng.exponential(size=T) if labels == "weighted" else np.ones(T)
    model = Gaf(n_features=d, n_classes=K, B=B, lam=lam, improved=True, n_points=8)
    twin = DenseGaf(d, K, B, lam, gamma=chosen_curvature)
    for x, target, weight in zip(X, targets, weights, strict=True):
        model.update(x, target, weight=weight)
        twin.update(x, target, weight=weight)
    lower = np.tril(model._S)
    inverse = reduced_inverse(twin, d, K)
    np.testing.assert_allclose(lower + np.tril(lower, -1).T, inverse, atol=1e-8)
    np.testing.assert_allclose(model.coef(), twin.coef(), atol=1e-8)


@pytest.mark.parametrize("K", [2, 3])
def test_predictions_converge_to_the_integral(K, rng):
    T, d, B = 40, 2, 3.0
    X, y = stream(rng, T, d, K)
    twin = DenseGaf(d, K, B, 2.0 / B, gamma=paper_gamma(B, 1.0, K))
    models = {n: Gaf(n_features=d, n_classes=K, B=B, mu=0.0, n_points=n) for n in (64, 4096)}
    worst = dict.fromkeys(models, 0.0)
    for x, label in zip(X, y, strict=True):
        exact = twin.predict(x)
        for n, model in models.items():
            worst[n] = max(worst[n], abs(model.predict(x) - exact).max())
            model.update(x, label)
        twin.update(x, label)
    assert worst[64] < 0.03
    assert worst[4096] < 1e-3
    assert worst[4096] < worst[64] / 4.0


@pytest.mark.parametrize("K", [2, 3, 6])
def test_laplace_predicts_at_the_mode(K, rng):
    T, d, B = 60, 3, 8.0
    X, y = stream(rng, T, d, K)
    model = Laplace(n_features=d, n_classes=K, B=B)
    twin = DenseLaplace(d, K, B, mu=1e-9)
    for x, label in zip(X, y, strict=True):
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        assert model.update(x, label) == pytest.approx(twin.update(x, label), abs=1e-9)
    rows = Laplace(n_features=d, n_classes=K, B=B).run(X, y)
    np.testing.assert_allclose(rows[-1].sum(), 1.0, atol=1e-12)


def test_gaf_at_its_mean_certifies_tighter_than_folklore(rng):
    X, y = streams.stochastic(3, 2000, 4, 5)
    closed = Gaf(n_features=4, n_classes=5, improved=True, n_points=None)
    plain = Folklore(n_features=4, n_classes=5)
    closed.run(X, y)
    plain.run(X, y)
    _, best, gap = best_in_class(X, y, 10.0, 5)
    certificate = closed.certificate()
    assert certificate.valid
    assert certificate.loss - best + gap <= certificate.regret_bound
    assert plain.certificate().best_linear_at_least < certificate.best_linear_at_least <= best
    assert closed.regret_bound(100) == math.inf


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("name", ["stochastic", "separable", "pure_noise", "drifting", "against"])
def test_regret_is_below_the_certificate(improved, name, seed):
    T, d, K, B = 300, 2, 3, 4.0
    model = Gaf(n_features=d, n_classes=K, B=B, improved=improved)
    if name == "against":
        X = streams.pure_noise(seed, T, d, K)[0]
        y = streams.play_adversarial(model, X)
    else:
        X, y = getattr(streams, name)(seed, T, d, K)
        model.run(X, y)
    W, best, gap = best_in_class(X, y, B, K)
    assert model.certificate().valid
    regret = model.certificate().loss - best + gap
    assert regret <= model.certificate(W).regret_bound <= model.certificate().regret_bound
    assert regret <= model.regret_bound(T)
    if name == "against":
        assert regret >= 0.9 * model.certificate(W).regret_bound


def test_the_certificate_equals_the_dense_bracket(rng):
    T, d, K, B, lam = 40, 2, 2, 4.0, 0.5
    X, y = stream(rng, T, d, K)
    model = Gaf(n_features=d, n_classes=K, B=B, lam=lam, mu=0.0, improved=True, n_points=20_000)
    twin = DenseGaf(d, K, B, lam, gamma=chosen_curvature)
    for x, label in zip(X, y, strict=True):
        model.update(x, label)
        twin.update(x, label)
    quarter = model.certificate(np.zeros((K, d))).regret_bound
    assert quarter == pytest.approx(twin.bracket_sum, rel=1e-4)


def test_laplace_has_no_certificate():
    certificate = Laplace(n_features=2, n_classes=2).certificate()
    assert not certificate.valid
    assert "no lower bound" in certificate.reason


@pytest.mark.parametrize("k", [1, 2, 9])
def test_nodes_are_symmetric_and_standard(k):
    nodes = gaussian_nodes(1000, k, seed=3)
    np.testing.assert_allclose(nodes.mean(axis=0), 0.0, atol=1e-13)
    np.testing.assert_allclose(np.cov(nodes.T).reshape(k, k), np.eye(k), atol=0.12)
    np.testing.assert_array_equal(nodes, gaussian_nodes(1000, k, seed=3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"mu": -0.1}, "mu must be"), ({"mu": 0.6}, "mu"), ({"n_points": 1}, "n_points"),
     ({"seed": -1}, "seed"), ({"B": 0}, "B must be")],
)  # fmt: skip
def test_bad_parameters(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Gaf(n_features=2, n_classes=3, **arguments)
