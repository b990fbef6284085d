"""SOBA against its slow twin, and the edges of what it accepts."""

import math

import numpy as np
import pytest

from experiments.bandit.diagonal import DiagonalSoba
from folklearn.baselines import Soba
from folklearn.errors import FolklearnError
from tests.bandits.forced import (
    act_as,
    alongside,
    documented_exploration,
    easy_stream,
    learned,
    play,
    state,
)
from tests.bandits.registered import contexts
from tests.reference.bandits import DenseSoba

each_matrix = pytest.mark.parametrize("make", [Soba, DiagonalSoba])


def inverse(agent):
    """A^-1 as a matrix; the agent keeps its diagonal, or its lower triangle."""
    if isinstance(agent, DiagonalSoba):
        return np.diag(agent._S.ravel())
    return np.tril(agent._S) + np.tril(agent._S, -1).T


@each_matrix
@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("exploration", [0.05, 0.7])
@pytest.mark.parametrize("delay", [0, 5])
def test_equals_the_dense_twin(K, exploration, delay, make, rng):
    d = 3
    agent = make(n_features=d, n_classes=K, exploration=exploration)
    twin = DenseSoba(d, K, exploration, make is DiagonalSoba)
    alongside(agent, twin, rng, contexts(rng, 100, d), delay)
    np.testing.assert_allclose(agent._W, twin.W, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(inverse(agent), np.linalg.inv(twin.A), rtol=0.0, atol=1e-9)
    assert agent._total[0] == pytest.approx(twin.running_sum, abs=1e-9)


@each_matrix
def test_the_skipping_rule_is_at_work(make, rng):
    """On an easy stream most rounds are right by a margin: the sum would become negative."""
    X, y = easy_stream(rng, 150, 3)
    agent, twin = (
        make(n_features=3, n_classes=3, exploration=0.5),
        DenseSoba(3, 3, 0.5, make is DiagonalSoba),
    )
    for x, label in zip(X, y, strict=True):
        np.testing.assert_allclose(agent.policy(x), twin.probabilities(x), rtol=0.0, atol=1e-9)
        before, skipped = learned(agent), twin.n_skipped
        decision = act_as(agent, x, int(label))
        agent.learn(decision, True)
        twin.learn(x, decision.action, decision.propensity, True)
        assert agent._total[0] == pytest.approx(twin.running_sum, abs=1e-9)
        assert agent._total[0] >= 0.0
        assert (learned(agent) == before) == (twin.n_skipped > skipped)
    assert 10 < twin.n_skipped < 150


@each_matrix
def test_wrong_outcomes_teach_nothing(make, rng):
    agent = make(n_features=2, n_classes=3, exploration=0.5)
    for x in contexts(rng, 20, 2):
        agent.learn(agent.act(x), True)
    before = learned(agent)
    for x in contexts(rng, 20, 2):
        agent.learn(agent.act(x), False)
    assert learned(agent) == before


def test_ties_go_to_the_lowest_class():
    agent = Soba(n_features=2, n_classes=3, exploration=0.3)
    np.testing.assert_allclose(agent.policy([1.0, 2.0]), [0.8, 0.1, 0.1], atol=1e-15)
    # The rival of class 1 is 0, the lowest of the others: 2 now lies between them.
    agent.learn(act_as(agent, np.array([1.0, 0.0]), 1), True)
    scores = agent._W @ np.array([1.0, 0.0])
    assert scores[1] > 0.0 == scores[2] > scores[0]


def test_exploration_by_default_by_hand_and_by_horizon():
    assert Soba(n_features=2, n_classes=3).exploration == documented_exploration(Soba)
    assert Soba(n_features=2, n_classes=3, exploration=0.0).exploration == 0.0
    T = 10**4
    expected = 3 * math.sqrt(2 * math.log(1 + 2 * T * 4.0 / 6) / T)
    assert expected < 1.0
    assert Soba(n_features=2, n_classes=3, horizon=T, R=2.0).exploration == pytest.approx(
        expected, rel=1e-12
    )
    assert Soba(n_features=2, n_classes=3, horizon=5).exploration == 1.0


@each_matrix
def test_learns_an_easy_stream(make, rng):
    """Chance errs 0.75, exploration alone 0.075; this 0.08 +- 0.014 over 60 seeds."""
    X, y = easy_stream(rng, 1500, 4)
    mistakes = play(make(n_features=4, n_classes=4, exploration=0.1, seed=rng), X, y)
    assert mistakes[750:].mean() < 0.3


def test_a_context_too_long_for_the_inverse_is_refused_and_changes_nothing():
    agent = Soba(n_features=2, n_classes=2, exploration=0.5)
    x = np.array([1e12, 1e-3])
    agent.learn(act_as(agent, x, 1), True)
    decision = act_as(agent, x, 0)
    before = state(agent)
    with pytest.raises(FolklearnError, match="too long to be learned again.*scale the features"):
        agent.learn(decision, True)
    assert state(agent) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"exploration": -1}, "exploration must be a number from 0 to 1"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 10, "exploration": 0.1}, "not both"),
        ({"R": 0}, "R must be a positive number"),
        ({"seed": None}, "seed must be an integer"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(FolklearnError, match=message):
        Soba(**{"n_features": 2, "n_classes": 2, **arguments})
