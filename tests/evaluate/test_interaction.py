"""Labelled rows as a bandit stream: who is told what, and when; logs made by hand."""

from itertools import pairwise

import numpy as np
import pytest

from folklearn import Folklore, synthetic
from folklearn.bandits import BanditReduction
from folklearn.baselines import Banditron, Soba
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.off_policy import interact

T, d, K = 300, 4, 3


class Witness(Banditron):
    """A Banditron that writes down what happens to it."""

    def __init__(self, **words):
        super().__init__(n_features=d, n_classes=K, **words)
        self.events = []

    def act(self, x):
        decision = super().act(x)
        self.events.append(("act", decision.id))
        return decision

    def learn(self, decision, correct):
        super().learn(decision, correct)
        self.events.append(("learn", decision.id))


@pytest.fixture
def stream(seed):
    return synthetic.stochastic(seed, T, d=d, K=K)


def test_the_log_is_what_a_loop_by_hand_gives(stream, seed):
    X, y = stream
    log = interact(Banditron(n_features=d, n_classes=K, seed=seed), X, y)
    twin = Banditron(n_features=d, n_classes=K, seed=seed)
    decisions = []
    for t in range(T):
        decisions.append(twin.act(X[t]))
        twin.learn(decisions[t], decisions[t].action == y[t])
    np.testing.assert_array_equal(log.X, X)
    np.testing.assert_array_equal(log.actions, [one.action for one in decisions])
    np.testing.assert_array_equal(log.propensities, [one.propensity for one in decisions])
    np.testing.assert_array_equal(log.rewards, log.actions == y)
    assert log.n_rounds == T
    assert log.n_actions == K
    assert log.mean_reward == np.mean(log.actions == y)
    np.testing.assert_array_equal(log.rewards, log.actions == y)
    assert log.error_rate == np.mean(log.actions != y)


def test_outcomes_come_at_once_and_all_of_them(stream):
    agent = Witness()
    interact(agent, *stream)
    assert agent.events == [(verb, t) for t in range(T) for verb in ("act", "learn")]
    assert agent.pending == ()
    assert (agent.n_decisions, agent.n_outcomes) == (T, T)


def test_rewards_of_every_action_in_place_of_labels(stream):
    X, y = stream
    agents = Banditron(n_features=d, n_classes=K), Banditron(n_features=d, n_classes=K)
    log, same = interact(agents[0], X, y), interact(agents[1], X, np.eye(K)[y])
    np.testing.assert_array_equal(log.actions, same.actions)
    np.testing.assert_array_equal(log.rewards, same.rewards)


def test_an_agent_goes_on_from_where_it_stands(stream):
    X, y = stream
    once, twice = (
        BanditReduction(Folklore(n_features=d, n_classes=K), exploration=0.3) for _ in range(2)
    )
    log = interact(once, X, y)
    parts = [interact(twice, X[part], y[part]) for part in (slice(0, 100), slice(100, T))]
    np.testing.assert_array_equal(np.concatenate([part.actions for part in parts]), log.actions)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, y: (X[:, :2], y), "X has shape .* expected .*n_features=4"),
        (lambda X, y: (np.where(np.arange(T)[:, None] == T - 1, np.nan, X), y), "row 299 of X"),
        (lambda X, y: (X, y[:-1]), "y has shape"),
        (lambda X, y: (X, y + K), "expected 0 to 2"),
        (lambda X, y: (X, 2.0 * np.eye(K)[y]), "what every action earns, from 0 to 1"),
        (lambda X, y: (X, np.ones((T, 2))), r"expected \(300, 3\): .*what every action earns"),
    ],
)
def test_everything_is_checked_before_the_first_decision(stream, change, sentence):
    agent = Witness()
    X, y = change(*stream)
    with pytest.raises(InvalidInputError, match=sentence):
        interact(agent, X, y)
    assert agent.events == []


def test_no_rows_no_decisions():
    log = interact(Banditron(n_features=d, n_classes=K), np.empty((0, d)), [])
    assert log.n_rounds == 0
    with pytest.raises(InvalidInputError, match="nothing to score"):
        _ = log.error_rate


GOOD = {
    "X": [[0.0, 1.0], [1.0, 1.0]],
    "actions": [0, 1],
    "propensities": [1.0, 0.25],
    "rewards": [1, 0],
    "n_actions": 2,
}


def test_a_log_made_by_hand():
    log = Interactions(**GOOD)
    assert log.X.dtype == log.propensities.dtype == np.float64
    assert log.actions.dtype == np.int64
    assert log.rewards.dtype == np.float64


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"X": [0.0, 1.0]}, r"X has shape \(2,\)"),
        ({"X": [[0.0, np.inf], [1.0, 1.0]]}, "row 0 of X has inf at feature 1"),
        ({"n_actions": 1}, "n_actions must be at least 2"),
        ({"actions": [0]}, "actions has shape .* one entry per decision"),
        ({"actions": [0, 2]}, r"actions\[1\] is 2; expected 0 to 1"),
        ({"actions": [-1, 0]}, r"actions\[0\] is -1; expected 0 to 1"),
        ({"actions": [0.0, 1.0]}, "actions must be integers"),
        ({"propensities": [1.0]}, "propensities has shape"),
        ({"propensities": [1.0, 0.0]}, r"propensities\[1\] is 0; expected the probability"),
        ({"propensities": [1.1, 0.5]}, r"propensities\[0\] is 1.1"),
        ({"propensities": [np.nan, 0.5]}, r"propensities\[0\] is nan"),
        ({"rewards": [True]}, "rewards has shape"),
        ({"rewards": [0.5, 1.5]}, r"rewards\[1\] is 1.5; expected a number from 0 to 1"),
        ({"rewards": [-1, 0]}, r"rewards\[0\] is -1"),
        ({"rewards": ["yes", "no"]}, "rewards must hold real numbers"),
        ({"n_actions": None}, r"X\[0\] has shape \(2,\); expected a matrix with a row for every"),
    ],
)
def test_bad_logs_are_refused(bad, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Interactions(**(GOOD | bad))


def test_a_log_does_not_follow_the_callers_array(rng):
    X = rng.normal(size=(10, 3))
    log = interact(Banditron(n_features=3, n_classes=2), X, rng.integers(0, 2, 10))
    before = log.X.copy()
    X[:] = 7.0
    np.testing.assert_array_equal(log.X, before)
    with pytest.raises(ValueError, match="read-only"):
        log.X[0] = 1.0


@pytest.mark.parametrize("X", [[1.0, 2.0], np.empty((2, 0))])
def test_contexts_that_are_no_rows_are_refused(X):
    with pytest.raises(InvalidInputError, match="expected one row of features per decision"):
        Interactions(X, [0, 1], [0.5, 0.5], [1, 0], 2)


def test_a_refused_outcome_names_its_row(rng):
    X = rng.normal(size=(60, 3))
    X[7:] *= 1e9  # whichever of these the agent learns from first
    agent = Soba(n_features=3, n_classes=3, exploration=0.5)
    with pytest.raises(FolklearnError, match=r"outcome of row \d+ of X was refused: .*too long"):
        interact(agent, X, rng.integers(0, 3, 60))


MENUS = {
    "X": [[[0.0, 1.0], [1.0, 1.0]], [[2.0, 1.0], [3.0, 1.0], [4.0, 1.0]], [[5.0, 5.0]]],
    "actions": [1, 2, 0],
    "propensities": [0.5, 0.25, 1.0],
    "rewards": [0.5, 0.0, 1.0],
}


def test_a_log_whose_actions_have_features():
    log = Interactions(**MENUS)
    assert log.n_rounds == 3
    assert [log.menu(t).tolist() for t in range(3)] == MENUS["X"]
    assert log.X[log.pairs].tolist() == [[1.0, 1.0], [4.0, 1.0], [5.0, 5.0]]
    assert log.mean_reward == 0.5
    later = log[1:]
    assert later.n_rounds == 2
    assert later.menu(0).tolist() == MENUS["X"][1]
    assert later.rewards.tolist() == [0.0, 1.0]
    assert log[:0].n_rounds == 0


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"actions": [2, 0, 0]}, r"actions\[0\] is 2; expected 0 to 1"),
        ({"X": [*MENUS["X"][:2], [[1.0]]]}, r"X\[2\] has shape \(1, 1\); expected at least one"),
        ({"X": [*MENUS["X"][:2], np.empty((0, 2))]}, r"X\[2\] has shape \(0, 2\)"),
        ({"X": [*MENUS["X"][:2], [[1.0, np.nan]]]}, "row 0 of X has nan"),
        ({"X": MENUS["X"][:2]}, r"actions has shape \(3,\); expected one entry per decision: \(2,"),
    ],
)
def test_bad_logs_with_features_of_actions_are_refused(bad, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Interactions(**(MENUS | bad))


@pytest.mark.parametrize("log", [Interactions(**GOOD), Interactions(**MENUS)])
@pytest.mark.parametrize("n_blocks", [1, 2, 5])
def test_blocks_are_consecutive_and_hold_everything(log, n_blocks):
    edges = list(log.blocks(n_blocks))
    assert edges[0][0] == 0
    assert edges[-1][1] == log.n_rounds
    assert all(stop == start for (_, stop), (start, _) in pairwise(edges))
    parts = [log[start:stop] for start, stop in edges]
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), log.X)
    np.testing.assert_array_equal(np.concatenate([part.rewards for part in parts]), log.rewards)
