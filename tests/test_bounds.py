"""Measured regret under every learner's own bound, on every stream of the library."""

import math

import numpy as np
import pytest

from folklearn import Aggregating, Aioli, Folklore, Ogd, Ons, best_in_class, synthetic

B = 3.0
T = 300

# name: (classes, learner, nats of Monte Carlo error that come on top)
LEARNERS = {
    "folklore": (3, Folklore, 0.0),
    "folklore, K=2": (2, Folklore, 0.0),
    "ogd": (3, Ogd, 0.0),
    "ons": (3, Ons, 0.0),
    "aggregating": (2, Aggregating, 2.0),
}


def play(model, name, seed, d, K):
    """Let the model meet a stream; return the stream and the best model in hindsight."""
    if name == "against":
        X = synthetic.contexts(seed, T, d=d)
        y = synthetic.against(model, X)
    elif name == "hard_for_proper":
        X, y = synthetic.hard_for_proper(seed, T, B=B)
        model.run(X, y)
    else:
        X, y = synthetic.OBLIVIOUS[name](seed, T, d=d, K=K)
        model.run(X, y)
    return X, y, best_in_class(X, y, B=B, n_classes=K)


def total_loss(model, X, y):
    """The loss of a fresh learner on the same stream, which is what its bound speaks of."""
    return sum(model.update(x, label) for x, label in zip(X, y, strict=True))


@pytest.mark.parametrize("name", [*synthetic.OBLIVIOUS, "against"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_regret_is_below_the_bound(learner, name, seed):
    K, make, slack = LEARNERS[learner]
    d = 2
    if name == "hard_for_proper":
        d, K = 1, 2
    X, y, best = play(make(n_features=d, n_classes=K, B=B), name, seed, d, K)
    total = total_loss(make(n_features=d, n_classes=K, B=B), X, y)
    assert np.linalg.norm(X, axis=1).max() <= 1.0 + 1e-9
    limit = make(n_features=d, n_classes=K, B=B).regret_bound(T)
    assert math.isfinite(limit)
    assert total - best.at_least <= limit + slack


@pytest.mark.parametrize("name", [*synthetic.OBLIVIOUS, "against"])
@pytest.mark.parametrize("improved", [False, True])
def test_aioli_is_below_its_bound(name, improved, seed):
    d = 1 if name == "hard_for_proper" else 2
    model = Aioli(n_features=d, B=B, improved=improved)
    _, _, best = play(model, name, seed, d, 2)
    assert model.certificate().loss - best.at_least <= model.regret_bound(T)


@pytest.mark.parametrize("n_rounds", [1, 100])
def test_bounds_do_not_depend_on_the_unit_of_x(n_rounds):
    """Contexts R times as long are models R times as short and ridges R^2 times as large."""
    sizes = {"n_features": 3, "n_classes": 4}
    for R in (0.2, 5.0):
        unit = Folklore(**sizes, B=2.0, R=1.0, lam=0.3)
        scaled = Folklore(**sizes, B=2.0 / R, R=R, lam=0.3 * R**2)
        assert scaled.regret_bound(n_rounds) == pytest.approx(unit.regret_bound(n_rounds), 1e-12)


def test_aiolis_bound_does_not_depend_on_the_unit_of_x():
    for improved in (False, True):
        unit = Aioli(n_features=3, B=2.0, lam=0.3, improved=improved)
        scaled = Aioli(n_features=3, B=0.4, R=5.0, lam=7.5, improved=improved)
        assert scaled.regret_bound(50) == pytest.approx(unit.regret_bound(50), rel=1e-12)
