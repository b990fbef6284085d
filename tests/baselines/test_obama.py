"""OBAMA against the exact integral, and the edges of what it accepts."""

import math

import numpy as np
import pytest

from folklearn import Aggregating
from folklearn.baselines import Obama
from folklearn.errors import FolklearnError
from tests.bandits.forced import (
    act_as,
    documented_exploration,
    easy_stream,
    learned,
    play,
)
from tests.bandits.registered import contexts
from tests.reference.bandits import DenseObama


def drive(seed, K, others, T=80, exploration=0.6, B=4.0, n_particles=4800):
    """Mean distance of the policies of an agent from those of twins, along one trajectory."""
    rng = np.random.default_rng(seed)
    agent = Obama(
        n_features=1, n_classes=K, exploration=exploration, B=B, n_particles=n_particles, seed=seed
    )
    errors = np.zeros(len(others))
    for x in rng.uniform(-1.0, 1.0, size=(T, 1)):
        P = agent.policy(x)
        errors += [np.abs(P - twin.probabilities(x)).max() / T for twin, _ in others]
        y = int(np.argmax(3.0 * x * np.arange(K) + rng.gumbel(size=K)))
        decision = act_as(agent, x, int(rng.integers(K)))
        agent.learn(decision, decision.action == y)
        for twin, propensity in others:
            given = decision.propensity if propensity is None else propensity
            twin.learn(x, decision.action, given, decision.action == y)
    return errors


@pytest.mark.parametrize(("K", "points", "tolerance"), [(2, 60, 0.002), (3, 24, 0.003)])
def test_equals_the_exact_integral(K, points, tolerance, seed):
    """Mean error over 80 rounds: .0005 +- .0002 (K = 2) and .0008 +- .0003 (K = 3) over seeds.

    The tolerance is eight standard deviations above: below 1e-6 for a fresh seed if the tails
    are normal. Forgetting the propensity, or the factor mu / K, is twice as far or more.
    """
    exact = DenseObama(K, 0.6, 4.0, points)
    unweighted, heavy = DenseObama(K, 0.6, 4.0, points), DenseObama(K, 0.6, 4.0, points)
    twins = [(exact, None), (unweighted, 1.0), (heavy, 0.6 / K)]
    errors = drive(seed, K, twins)
    assert errors[0] < tolerance
    assert errors[1:].min() > 2.0 * tolerance


def test_the_error_falls_with_the_number_of_particles(seed):
    """Sixteen times as many: about a quarter of the error, in the mean over ten trajectories."""
    few, many = (
        sum(
            drive(10 * seed + i, 2, [(DenseObama(2, 0.6, 4.0, 40), None)], T=40, n_particles=n)[0]
            for i in range(10)
        )
        for n in (60, 960)
    )
    assert many < 0.6 * few


def test_the_first_policy_is_uniform():
    np.testing.assert_allclose(
        Obama(n_features=2, n_classes=5).policy([1.0, -2.0]), 0.2, atol=1e-12
    )


def test_wrong_outcomes_teach_nothing(rng):
    agent = Obama(n_features=2, n_classes=3, n_particles=30)
    before = learned(agent)
    for x in contexts(rng, 20, 2):
        agent.learn(agent.act(x), False)
    assert learned(agent) == before


def test_no_label_weighs_more_than_1(rng):
    """The least propensity is mu / K, where the weight (mu / K) / P is 1."""
    agent = Obama(n_features=1, n_classes=2, exploration=0.05, B=50.0, n_particles=60)
    for _ in range(60):
        agent.learn(act_as(agent, np.array([1.0]), 1), True)
    agent.learn(act_as(agent, np.array([1.0]), 0), True)
    weights = agent.to_record().arrays["learner.w"]
    assert weights.max() <= 1.0
    assert weights[-1] > 0.5
    assert weights[:-1].min() < 0.06


def test_exploration_by_default_by_hand_and_by_horizon():
    assert Obama(n_features=2, n_classes=3).exploration == documented_exploration(Obama)
    T = 10**5
    regret = Aggregating(n_features=2, n_classes=3, B=2.0, R=0.5).regret_bound(T)
    expected = math.sqrt(3 * regret / T)
    assert expected < 1.0
    assert Obama(n_features=2, n_classes=3, horizon=T, B=2.0, R=0.5).exploration == pytest.approx(
        expected, rel=1e-12
    )
    assert Obama(n_features=2, n_classes=3, horizon=3).exploration == 1.0


def test_learns_an_easy_stream(rng):
    """Chance errs 0.67, exploration alone 0.13; this 0.16 +- 0.02 over seeds."""
    X, y = easy_stream(rng, 800, 3)
    agent = Obama(
        n_features=3, n_classes=3, exploration=0.2, B=10.0, n_particles=120, n_moves=5, seed=rng
    )
    assert play(agent, X, y)[400:].mean() < 0.35


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"exploration": 0.0}, "exploration must be above 0"),
        ({"exploration": 1.1}, "exploration must be a number from 0 to 1"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 10, "exploration": 0.1}, "not both"),
        ({"B": 0.0}, "B must be a positive number"),
        ({"R": -1.0}, "R must be a positive number"),
        ({"n_particles": 1}, "n_particles must be at least 2"),
        ({"n_moves": 0}, "n_moves must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(FolklearnError, match=message):
        Obama(**{"n_features": 2, "n_classes": 2, **arguments})
