"""Labelled rows as a bandit stream: who is told what, and when; logs made by hand."""

import numpy as np
import pytest

from folklearn import Folklore, synthetic
from folklearn.bandits import BanditReduction, Banditron, Soba
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interaction import Interactions, interact

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


class FullWitness(Witness):
    learns_labels = True

    def learn_label(self, decision, y):
        self._settle(self._find(decision)[0])
        self.events.append(("label", decision.id, y))


@pytest.fixture
def stream(seed):
    return synthetic.stochastic(seed, T, d=d, K=K)


@pytest.mark.parametrize("delay", [0, 1, 7, T - 1, T, 10 * T])
def test_the_log_is_what_a_loop_by_hand_gives(stream, delay, seed):
    X, y = stream
    log = interact(Banditron(n_features=d, n_classes=K, seed=seed), X, y, delay=delay)
    twin = Banditron(n_features=d, n_classes=K, seed=seed)
    decisions = []
    for t in range(T):
        decisions.append(twin.act(X[t]))
        if t >= delay:
            twin.learn(decisions[t - delay], decisions[t - delay].action == y[t - delay])
    np.testing.assert_array_equal(log.X, X)
    np.testing.assert_array_equal(log.actions, [one.action for one in decisions])
    np.testing.assert_array_equal(log.propensities, [one.propensity for one in decisions])
    np.testing.assert_array_equal(log.correct, log.actions == y)
    assert log.n_rounds == T
    assert log.n_classes == K
    np.testing.assert_array_equal(log.mistakes, np.cumsum(log.actions != y))
    assert log.error_rate == np.mean(log.actions != y)


def test_outcomes_come_late_in_order_and_all_of_them(stream):
    agent = Witness()
    interact(agent, *stream, delay=2)
    assert agent.events[:7] == [
        ("act", 0),
        ("act", 1),
        ("act", 2),
        ("learn", 0),
        ("act", 3),
        ("learn", 1),
        ("act", 4),
    ]
    assert agent.events[-3:] == [("learn", T - 3), ("learn", T - 2), ("learn", T - 1)]
    assert agent.pending == ()
    assert (agent.n_decisions, agent.n_outcomes) == (T, T)


def test_an_agent_with_full_feedback_is_told_the_labels(stream):
    agent = FullWitness()
    X, y = stream
    interact(agent, X, y)
    assert [event[1:] for event in agent.events if event[0] == "label"] == list(enumerate(y))
    assert not any(event[0] == "learn" for event in agent.events)


def test_an_agent_goes_on_from_where_it_stands(stream):
    X, y = stream
    once, twice = (
        BanditReduction(Folklore(n_features=d, n_classes=K), exploration=0.3) for _ in range(2)
    )
    log = interact(once, X, y)
    parts = [interact(twice, X[part], y[part]) for part in (slice(0, 100), slice(100, T))]
    np.testing.assert_array_equal(np.concatenate([part.actions for part in parts]), log.actions)


def test_progress_ends_with_the_last_round(stream):
    counts = []
    interact(Banditron(n_features=d, n_classes=K), *stream, progress=counts.append)
    assert counts == [T]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, y: (X[:, :2], y, 0), "X has shape .* expected .*n_features=4"),
        (lambda X, y: (np.where(np.arange(T)[:, None] == T - 1, np.nan, X), y, 0), "row 299 of X"),
        (lambda X, y: (X, y[:-1], 0), "y has shape"),
        (lambda X, y: (X, y + K, 0), "expected 0 to 2"),
        (lambda X, y: (X, np.eye(K)[y], 0), "an action is right or wrong"),
        (lambda X, y: (X, y, -1), "delay must be at least 0"),
        (lambda X, y: (X, y, 50), "51 decisions would wait .* max_pending=50: shorten"),
    ],
)
def test_everything_is_checked_before_the_first_decision(stream, change, sentence):
    agent = Witness(max_pending=50)
    X, y, delay = change(*stream)
    with pytest.raises(InvalidInputError, match=sentence):
        interact(agent, X, y, delay=delay)
    assert agent.events == []


def test_no_rows_no_decisions():
    log = interact(Banditron(n_features=d, n_classes=K), np.empty((0, d)), [])
    assert log.n_rounds == 0
    assert log.mistakes.shape == (0,)
    with pytest.raises(InvalidInputError, match="nothing to score"):
        _ = log.error_rate


GOOD = {
    "X": [[0.0, 1.0], [1.0, 1.0]],
    "actions": [0, 1],
    "propensities": [1.0, 0.25],
    "correct": [1, 0],
    "n_classes": 2,
}


def test_a_log_made_by_hand():
    log = Interactions(**GOOD)
    assert log.X.dtype == log.propensities.dtype == np.float64
    assert log.actions.dtype == np.int64
    assert log.correct.dtype == np.bool_
    assert log.mistakes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"X": [0.0, 1.0]}, r"X has shape \(2,\)"),
        ({"X": [[0.0, np.inf], [1.0, 1.0]]}, "row 0 of X has inf at feature 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"actions": [0]}, "actions has shape .* one action per row of X"),
        ({"actions": [0, 2]}, r"actions\[1\] is 2; expected 0 to 1"),
        ({"actions": [-1, 0]}, r"actions\[0\] is -1; expected 0 to 1"),
        ({"actions": [0.0, 1.0]}, "actions must be integers"),
        ({"propensities": [1.0]}, "propensities has shape"),
        ({"propensities": [1.0, 0.0]}, r"propensities\[1\] is 0; expected the probability"),
        ({"propensities": [1.1, 0.5]}, r"propensities\[0\] is 1.1"),
        ({"propensities": [np.nan, 0.5]}, r"propensities\[0\] is nan"),
        ({"correct": [True]}, "correct has shape"),
        ({"correct": [0.5, 1.0]}, "correct must hold True or False"),
        ({"correct": [0, 2]}, "correct must hold True or False"),
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
    X[::7] *= 1e9
    agent = Soba(n_features=3, n_classes=3, exploration=0.5)
    with pytest.raises(FolklearnError, match=r"outcome of row \d+ of X was refused: .*too long"):
        interact(agent, X, rng.integers(0, 3, 60))
