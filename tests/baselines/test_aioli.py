import math

import numpy as np
import pytest

from folklearn import Aioli, Folklore
from folklearn.errors import InvalidInputError
from folklearn.kernels.curvature import binary_exact
from tests.reference import streams
from tests.reference.aioli import DenseAioli, paper_gamma
from tests.reference.dense_folklore import DenseFolklore
from tests.reference.hindsight import best_in_class


def improved_gamma(B):
    return lambda logit, x_norm: binary_exact(logit, 2.0 * B * x_norm)


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("labels", ["hard", "soft", "weighted"])
def test_equals_its_twin_in_its_own_coordinates(improved, labels, rng):
    """theta = W_1 - W_0: lam on W is twice lam on theta, B_theta is 2B, gamma is the same."""
    T, d, B, lam = 200, 3, 4.0, 0.6
    X = rng.normal(size=(T, d)) / math.sqrt(d) * rng.choice([0.0, 0.3, 1.0], size=(T, 1))
    y = rng.integers(0, 2, T)
    targets = rng.dirichlet([1.0, 1.0], size=T) if labels == "soft" else y
    weights = rng.exponential(size=T) if labels == "weighted" else np.ones(T)
    model = Aioli(n_features=d, B=B, lam=lam, improved=improved)
    gamma = improved_gamma(B) if improved else paper_gamma(2 * B, 1.0)
    twin = DenseAioli(d, 2 * B, lam / 2.0, gamma=gamma)
    for x, target, weight in zip(X, targets, weights, strict=True):
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        loss = model.update(x, target, weight=weight)
        assert loss == pytest.approx(twin.update(x, target, weight=weight), abs=1e-9)
    quarter = model.certificate(np.zeros((2, d))).regret_bound
    assert quarter == pytest.approx(twin.certificate_sum, rel=1e-8) or not model.certificate().valid


def test_folklore_with_two_classes_is_aioli_with_everything_halved(rng):
    T, d, B = 200, 3, 5.0
    X = rng.normal(size=(T, d)) / 2
    y = rng.integers(0, 2, T)
    folklore = Folklore(n_features=d, n_classes=2, B=B, lam=0.4)
    halved = DenseAioli(d, 2 * B, 0.2, gamma=improved_gamma(B), c=0.25)
    own = Aioli(n_features=d, B=B, lam=0.4, improved=True)
    doubled = DenseFolklore(
        d, 2, B, 0.4, gamma=lambda z, x_norm, B: binary_exact(z[0] - z[1], 2.0 * B * x_norm)
    )
    differs = 0.0
    for x, label in zip(X, y, strict=True):
        p = folklore.predict(x)
        np.testing.assert_allclose(p, halved.predict(x), atol=1e-12)
        np.testing.assert_allclose(own.predict(x), doubled.predict(x, phi_weight=2.0), atol=1e-9)
        differs = max(differs, abs(p - own.predict(x)).max())
        for learner in (folklore, halved, own):
            learner.update(x, label)
        doubled.update(x, label, phi_weight=2.0)
    assert differs > 1e-3


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("name", ["stochastic", "separable", "pure_noise", "drifting", "against"])
def test_regret_is_below_certificate_and_bound(improved, name, seed):
    T, d, B = 300, 2, 4.0
    model = Aioli(n_features=d, B=B, improved=improved)
    if name == "against":
        X = streams.pure_noise(seed, T, d, 2)[0]
        y = streams.play_adversarial(model, X)
    else:
        X, y = getattr(streams, name)(seed, T, d, 2)
        model.run(X, y)
    W, best, gap = best_in_class(X, y, B, 2)
    regret = model.certificate().loss - best + gap
    assert regret <= model.certificate(W).regret_bound <= model.certificate().regret_bound
    assert model.certificate().regret_bound <= model.regret_bound(T)


def test_contexts_beyond_R_void_its_own_constant():
    model = Aioli(n_features=2, B=5.0, R=1.0)
    model.update([0.6, 0.8], 1)
    assert model.certificate().valid
    model.update([6.0, 8.0], 1)
    assert "gamma=0.04545" in model.certificate().reason


def test_more_classes_are_refused():
    with pytest.raises(InvalidInputError, match="two classes, got n_classes=3: use Folklore"):
        Aioli(n_features=2, n_classes=3)
