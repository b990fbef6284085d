"""Gaptron against its slow twin, under both kinds of feedback, and what it refuses."""

import math

import numpy as np
import pytest

import folklearn
from folklearn.baselines import Gaptron
from folklearn.errors import FolklearnError, InvalidInputError
from tests.bandits.forced import (
    act_as,
    alongside,
    documented_exploration,
    easy_stream,
    play,
    state,
)
from tests.bandits.registered import contexts
from tests.reference.bandits import DenseGaptron

LN2 = math.log(2.0)


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("delay", [0, 5])
def test_equals_the_dense_twin(K, delay, rng):
    d, exploration, R = 3, 0.3, 1.5
    agent = Gaptron(n_features=d, n_classes=K, exploration=exploration, R=R)
    twin = DenseGaptron(d, K, exploration, exploration * LN2 / (K * R) ** 2)
    alongside(agent, twin, rng, contexts(rng, 150, d), delay)
    np.testing.assert_allclose(agent._W, twin.W, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_full_information_equals_the_dense_twin(K, rng):
    d, R = 3, 1.5
    agent = Gaptron(n_features=d, n_classes=K, feedback="full", R=R)
    twin = DenseGaptron(d, K, 0.0, LN2 / (2 * K * R**2))
    assert agent.exploration == 0.0
    for x in contexts(rng, 150, d):
        np.testing.assert_allclose(agent.policy(x), twin.probabilities(x), rtol=0.0, atol=1e-9)
        y = int(rng.integers(K))
        agent.learn(agent.act(x), y)
        twin.learn_label(x, y)
    np.testing.assert_allclose(agent._W, twin.W, rtol=0.0, atol=1e-9)


def test_labels_may_come_late_by_id_and_in_any_order(rng):
    """All decisions are made at W = 0, where p is uniform."""
    d, K = 2, 3
    agent = Gaptron(n_features=d, n_classes=K, feedback="full")
    agent.step = 1.0
    X, y = contexts(rng, 20, d), rng.integers(0, K, 20)
    for x in X:
        agent.act(x)
    for t in rng.permutation(20):
        agent.learn(int(t), np.int64(y[t]))
    expected = (np.eye(K)[y] - 1.0 / K).T @ X / LN2
    np.testing.assert_allclose(agent._W, expected, atol=1e-12)
    assert agent.pending == ()
    assert agent.n_outcomes == 20


def test_the_gap_is_what_is_explored():
    """Two classes: doubt 1 - p while that exceeds epsilon, epsilon after; ties to class 0."""
    agent = Gaptron(n_features=1, n_classes=2, exploration=0.1)
    np.testing.assert_allclose(agent.policy([1.0]), [0.75, 0.25], atol=1e-15)
    agent._W[:] = [[0.0], [math.log(4.0)]]
    np.testing.assert_allclose(agent.policy([1.0]), [0.1, 0.9], atol=1e-15)
    agent._W[:] = [[0.0], [math.log(99.0)]]
    np.testing.assert_allclose(agent.policy([1.0]), [0.05, 0.95], atol=1e-15)
    np.testing.assert_allclose(
        Gaptron(n_features=1, n_classes=3, exploration=0.1).policy([1.0]), 1 / 3, atol=1e-15
    )


def test_feedback_of_the_other_kind_is_refused_and_changes_nothing():
    bandit, full = (
        Gaptron(n_features=2, n_classes=3),
        Gaptron(n_features=2, n_classes=3, feedback="full"),
    )
    decisions = [agent.act([0.5, 0.5]) for agent in (bandit, full)]
    before = [state(bandit), state(full)]
    with pytest.raises(InvalidInputError, match="correct must be True or False, got 2"):
        bandit.learn(decisions[0], 2)
    for bad in (True, 3, -1, 0.5, None, "1", [0.5, 0.5], [0.2, 0.3, 0.5]):
        with pytest.raises(InvalidInputError, match="y "):
            full.learn(decisions[1], bad)
    with pytest.raises(InvalidInputError, match="decision 7 was not made"):
        full.learn(7, 1)
    assert [state(bandit), state(full)] == before
    full.learn(decisions[1], 1)
    with pytest.raises(InvalidInputError, match="reported already"):
        full.learn(decisions[1], 1)


def test_full_information_resumes_exactly(rng, tmp_path):
    agent = Gaptron(n_features=2, n_classes=3, feedback="full")
    for x in contexts(rng, 20, 2):
        agent.learn(agent.act(x), int(rng.integers(3)))
    waiting = agent.act([0.3, -0.3])
    agent.save(tmp_path / "agent")
    resumed = folklearn.load(tmp_path / "agent")
    for one in (agent, resumed):
        one.learn(waiting, 2)
        one.act([0.1, 0.1])
    assert state(agent) == state(resumed)


def test_exploration_and_step_by_default_by_hand_and_by_horizon():
    agent = Gaptron(n_features=2, n_classes=3)
    assert agent.exploration == documented_exploration(Gaptron)
    assert agent.step == pytest.approx(agent.exploration * LN2 / 9.0, rel=1e-12)
    agent = Gaptron(n_features=2, n_classes=3, horizon=10**4, D=2.0, R=0.5)
    assert agent.exploration == pytest.approx(3.0 / math.sqrt(2.0 * LN2 * 10**4), rel=1e-12)
    assert agent.step == pytest.approx(agent.exploration * LN2 / 2.25, rel=1e-12)
    assert Gaptron(n_features=2, n_classes=3, horizon=1).exploration == 1.0
    assert Gaptron(n_features=2, n_classes=3, feedback="full", R=2.0).step == pytest.approx(
        LN2 / 24.0, rel=1e-12
    )


def test_learns_an_easy_stream(rng):
    """With a bolder step than the default: chance errs 0.75, this 0.15 +- 0.01 over seeds."""
    X, y = easy_stream(rng, 2000, 4)
    agent = Gaptron(n_features=4, n_classes=4, exploration=0.2, seed=rng)
    agent.step = 0.5
    mistakes = play(agent, X, y)
    assert mistakes[1000:].mean() < 0.3


def test_mistakes_stay_below_the_bounds(rng):
    """Against U = 3 I. The bounds are on means; one run stays at about half of them."""
    T, K = 3000, 3
    X, y = easy_stream(rng, T, K)
    U = 3.0 * np.eye(K)
    Z = X @ U.T
    bits = ((np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(T), y]) / LN2).sum()
    bandit = Gaptron(n_features=K, n_classes=K, horizon=T, D=np.linalg.norm(U), seed=rng)
    eta, epsilon = bandit.step, bandit.exploration
    assert play(bandit, X, y).sum() <= bits + (U**2).sum() / (2 * eta) + epsilon * T
    full = Gaptron(n_features=K, n_classes=K, feedback="full", seed=rng)
    mistakes = 0
    for x, label in zip(X, y, strict=True):
        decision = full.act(x)
        mistakes += decision.action != label
        full.learn(decision, label)
    assert mistakes <= bits + K * (U**2).sum() / LN2


def test_a_forced_outcome_moves_towards_the_class():
    agent = Gaptron(n_features=1, n_classes=3, exploration=0.5)
    agent.learn(act_as(agent, np.array([1.0]), 2), True)
    assert np.argmax(agent.policy([1.0])) == 0  # doubt stays until one class has half
    assert agent._W[2, 0] > 0.0 > agent._W[0, 0] == agent._W[1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"feedback": "some"}, "feedback must be one of 'bandit', 'full', got 'some'"),
        ({"exploration": 0.0}, "exploration must be above 0"),
        ({"exploration": 1.1}, "exploration must be a number from 0 to 1"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 10, "exploration": 0.1}, "not both"),
        ({"feedback": "full", "exploration": 0.1}, "exploration and horizon are for bandit"),
        ({"feedback": "full", "horizon": 10}, "exploration and horizon are for bandit"),
        ({"D": 0.0}, "D must be a positive number"),
        ({"R": -1.0}, "R must be a positive number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"max_pending": 0}, "max_pending must be at least 1"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(FolklearnError, match=message):
        Gaptron(**{"n_features": 2, "n_classes": 2, **arguments})


@pytest.mark.parametrize(
    "words", [{"R": 1e5}, {"exploration": 1e-15}, {"R": 1e8, "feedback": "full"}]
)
def test_a_tiny_step_of_its_own_survives_a_file(words, tmp_path):
    agent = Gaptron(n_features=5, n_classes=100, **words)
    agent.save(tmp_path / "agent")
    assert folklearn.load(tmp_path / "agent").step == agent.step
