"""Newtron against its slow twin, and the edges of what it accepts."""

import math

import numpy as np
import pytest

from experiments.bandit.diagonal import DiagonalNewtron
from folklearn.baselines import Newtron
from folklearn.errors import FolklearnError
from tests.bandits.forced import act_as, alongside, documented_exploration, easy_stream, play
from tests.bandits.registered import contexts
from tests.reference.bandits import DenseNewtron

# exploration, alpha, beta, D: the paper's, one that seldom leaves the ball, one that always does
SETTINGS = [(0.01, 10.0, 0.01, 1.0), (0.5, 3.0, 2.0, 2.0), (0.3, 1.0, 0.5, 0.05)]


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("make", [Newtron, DiagonalNewtron])
def test_equals_the_dense_twin(K, setting, make, rng):
    d = 3
    exploration, alpha, beta, D = setting
    agent = make(n_features=d, n_classes=K, exploration=exploration, alpha=alpha, beta=beta, D=D)
    twin = DenseNewtron(d, K, exploration, alpha, beta, D, make is DiagonalNewtron)
    alongside(agent, twin, rng, contexts(rng, 60, d), delay=0)
    np.testing.assert_allclose(agent._W, twin.W, rtol=0.0, atol=1e-9 * (1.0 + D))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_delayed_outcome_is_expanded_where_it_was_played(setting, rng):
    d, K = 3, 3
    exploration, alpha, beta, D = setting
    agent = Newtron(n_features=d, n_classes=K, exploration=exploration, alpha=alpha, beta=beta, D=D)
    twin = DenseNewtron(d, K, exploration, alpha, beta, D)
    alongside(agent, twin, rng, contexts(rng, 60, d), delay=5)
    np.testing.assert_allclose(agent._W, twin.W, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("D", [0.1, 1.0, 30.0])
def test_the_iterate_stays_in_the_ball(D, rng):
    """And reaches its surface: the constraint is at work in this test."""
    agent = Newtron(n_features=4, n_classes=3, exploration=0.3, D=D)
    norms = []
    for x in contexts(rng, 300, 4):
        agent.learn(agent.act(x), bool(rng.random() < 0.6))
        norms.append(np.linalg.norm(agent._W))
    assert max(norms) <= D * (1.0 + 1e-9)
    if D <= 1.0:
        assert max(norms) >= D * (1.0 - 1e-9)


def test_the_iterate_is_the_leader(rng):
    """Inside the ball the objective's gradient H W + b is 0, on the surface -mu W, mu >= 0."""
    seen = set()
    agent = Newtron(n_features=2, n_classes=3, exploration=0.5, beta=1.0, D=0.7)
    for x in contexts(rng, 200, 2):
        agent.learn(agent.act(x), bool(rng.random() < 0.5))
        w = (agent._Q.T @ agent._W).ravel()
        gradient = agent._H @ w + agent._b
        size = 1.0 + np.linalg.norm(agent._b)
        inside = np.linalg.norm(w) < 0.7 * (1.0 - 1e-9)
        mu = 0.0 if inside else -float(gradient @ w) / float(w @ w)
        assert mu >= -1e-9 * size
        np.testing.assert_allclose(gradient + mu * w, 0.0, atol=1e-9 * size)
        seen.add(inside)
    assert seen == {True, False}


def test_the_first_policy_is_uniform():
    np.testing.assert_allclose(
        Newtron(n_features=2, n_classes=5).policy([1.0, -2.0]), 0.2, atol=1e-15
    )


def test_exploration_by_default_by_hand_and_by_horizon():
    assert Newtron(n_features=2, n_classes=3).exploration == documented_exploration(Newtron)
    assert Newtron(n_features=2, n_classes=3, exploration=0.0).exploration == 0.0
    n, T = 4, 10**6
    agent = Newtron(n_features=2, n_classes=3, horizon=T, alpha=7.0, beta=0.5, D=2.0, R=3.0)
    growth = math.log(1 + 2 * 0.5 * 2.0 * 9.0 * T / n)
    expected = math.sqrt(7.0 * 3 * n * growth / (2 * 0.5 * T))
    assert expected < 1.0
    assert agent.exploration == pytest.approx(expected, rel=1e-9)
    assert Newtron(n_features=2, n_classes=3, horizon=10).exploration == 1.0


def test_learns_an_easy_stream(rng):
    """Chance errs 0.75, exploration alone 0.075; this 0.093 +- 0.009 over seeds."""
    X, y = easy_stream(rng, 1500, 4)
    mistakes = play(Newtron(n_features=4, n_classes=4, exploration=0.1, seed=rng), X, y)
    assert mistakes[750:].mean() < 0.25


def test_extreme_contexts_keep_everything_finite():
    agent = Newtron(n_features=2, n_classes=3, exploration=0.01)
    for t, size in enumerate([1e6, 1e-9, 1.0, 1e6, 0.0, 1e3]):
        x = size * np.array([1.0, (-1.0) ** t])
        P = agent.policy(x)
        agent.learn(act_as(agent, x, int(np.argmin(P))), t % 2 == 0)
        assert np.isfinite(agent._W).all()
        np.testing.assert_allclose(agent.policy(x).sum(), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"exploration": 1.1}, "exploration must be a number from 0 to 1"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 10, "exploration": 0.1}, "not both"),
        ({"alpha": 0.0}, "alpha must be a positive number"),
        ({"beta": -1.0}, "beta must be a positive number"),
        ({"D": "wide"}, "D must be a positive number"),
        ({"R": math.inf}, "R must be a positive number"),
        ({"seed": 0.5}, "seed must be an integer"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(FolklearnError, match=message):
        Newtron(**{"n_features": 2, "n_classes": 2, **arguments})


@pytest.mark.parametrize(("D", "size"), [(0.1, 10**-160.5), (0.5, 10**-161.75), (1e-10, 1e-155)])
def test_a_tiny_context_breaks_nothing(D, size):
    agent = Newtron(n_features=2, n_classes=3, D=D)
    agent.learn(agent.act([size, 0.0]), True)
    np.testing.assert_allclose(agent.policy([1.0, 1.0]).sum(), 1.0)
