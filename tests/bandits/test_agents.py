"""The laws that every bandit agent obeys, generated over every registered agent."""

import copy
import math

import numpy as np
import pytest
from scipy.stats import chi2

from folklearn.errors import InvalidInputError
from tests.bandits.forced import act_as, learned, state
from tests.bandits.registered import contexts, every_agent, every_weighing_agent

D, K = 3, 4


@every_agent
@pytest.mark.parametrize("shape", [(1, 2), (3, 4), (2, 6)])
def test_policy_lies_on_the_simplex_and_changes_nothing(make, shape, rng):
    d, n_classes = shape
    agent = make.trained(d, n_classes, n_rounds=25)
    agent.act(np.zeros(d))
    before = state(agent)
    X = 3.0 * rng.normal(size=(20, d))
    kept = X.copy()
    P = agent.policy(X)
    assert P.shape == (20, n_classes)
    for x, row in zip(X, P, strict=True):
        alone = agent.policy(x)
        np.testing.assert_array_equal(alone, row)
        alone[:] = 7.0  # what is returned belongs to the caller
    assert agent.policy(np.empty((0, d))).shape == (0, n_classes)
    assert (P >= 0.0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(X, kept)
    assert state(agent) == before


@every_agent
def test_acting_never_learns(make, rng):
    agent = make.trained(D, K)
    X = contexts(rng, 10, D)
    P, before = agent.policy(X), learned(agent)
    for x in contexts(rng, 50, D):
        agent.act(x)
    assert learned(agent) == before
    assert len(agent.pending) == 50
    if make.rewards:  # only the exploration may have become smaller
        agent.n_decisions -= 50
    np.testing.assert_array_equal(agent.policy(X), P)


@every_agent
def test_the_propensity_is_what_the_policy_said(make, rng):
    agent = make(D, K)
    for number, x in enumerate(contexts(rng, 60, D)):
        P = agent.policy(x)
        decision = agent.act(x)
        assert decision.propensity == P[decision.action]
        assert 0.0 < decision.propensity <= 1.0
        assert 0 <= decision.action < K
        assert decision.id == number
        assert type(decision.action) is int
        assert type(decision.propensity) is float
        np.testing.assert_array_equal(decision.x, x)
        assert not decision.x.flags.writeable
        agent.learn(decision, rng.random() < 0.5)
    assert (agent.n_decisions, agent.n_outcomes, agent.n_dropped) == (60, 60, 0)
    assert agent.pending == ()


@every_agent
def test_actions_follow_the_policy(make, seed):
    """Pearson's statistic; a seed fails with probability 1e-6 for each agent.

    Where the policy moves, the counts vary less than multinomial ones with its mean.
    """
    agent = make.trained(D, K, seed=seed)
    x = np.array([0.3, -0.5, 0.6])
    n = 1000
    expected, counts = np.zeros(K), np.zeros(K)
    for _ in range(n):
        expected += agent.policy(x)
        counts[agent.act(x).action] += 1.0
    assert expected.min() > 5.0
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(1e-6, K - 1)


def late(agent, rng, *, waiting):
    """Play an unlikely action, then, if it shall wait, twenty likely ones; then learn."""
    agent = copy.deepcopy(agent)
    X = contexts(rng, 21, D)
    decision = act_as(agent, X[0], int(np.argmin(agent.policy(X[0]))))
    for x in X[1:] if waiting else []:
        act_as(agent, x, int(np.argmax(agent.policy(x))), explored=False)
    return agent, decision


@every_agent
@pytest.mark.parametrize("correct", [True, False])
def test_decisions_in_between_leave_no_trace_in_an_outcome(make, correct, seed):
    trained = make.trained(D, K)
    states = []
    for waiting in (False, True):
        agent, decision = late(trained, np.random.default_rng(seed), waiting=waiting)
        agent.learn(decision, correct)
        states.append(learned(agent))
    assert states[0] == states[1]
    assert (states[0] != learned(trained)) or not correct


def using_the_last(agent, *, propensity, seen):
    """A copy that learns with the propensity, or what was seen, of the latest decision."""

    class Mutant(type(agent)):
        def _absorb(self, decision, own, correct):
            last, last_seen = list(self._pending.values())[-1]
            decision = copy.copy(decision)
            if propensity:
                object.__setattr__(decision, "propensity", last.propensity)
            super()._absorb(decision, last_seen if seen else own, correct)

    Mutant.__name__ = type(agent).__name__
    mutant = copy.deepcopy(agent)
    mutant.__class__ = Mutant
    return mutant


def differs_when_late(agent, seed, **mutation):
    agent, decision = late(agent, np.random.default_rng(seed), waiting=True)
    mutant = using_the_last(agent, **mutation)
    harmless = using_the_last(agent, propensity=False, seen=False)
    for one in (agent, mutant, harmless):
        one.learn(decision, True)
    assert learned(harmless) == learned(agent)
    return learned(mutant) != learned(agent)


@every_weighing_agent
def test_the_last_propensity_would_be_noticed(make, seed):
    """That the law above has teeth: an agent with this mistake fails it."""
    assert differs_when_late(make.trained(D, K), seed, propensity=True, seen=False)


@every_agent
def test_what_the_last_decision_saw_would_be_noticed(make, seed):
    agent = make.trained(D, K)
    assert differs_when_late(agent, seed, propensity=True, seen=True)


@every_agent
def test_outcomes_in_any_order(make, rng):
    """Decisions made in one order and reported in another, against made in the other order."""
    if make.rewards:
        pytest.skip("the number of a decision enters its propensity, and so what is learned")
    n = 12
    X = contexts(rng, n, D)
    order, correct = rng.permutation(n), rng.random(n) < 0.7
    late, prompt = make.trained(D, K), make.trained(D, K)
    actions = [int(rng.choice(K, p=P / P.sum())) for P in late.policy(X)]
    explored = rng.random(n) < 0.5
    decisions = [act_as(late, X[t], actions[t], explored=bool(explored[t])) for t in range(n)]
    again = [act_as(prompt, X[t], actions[t], explored=bool(explored[t])) for t in order]
    for t, other in zip(order, again, strict=True):
        late.learn(decisions[t], correct[t])
        prompt.learn(other, correct[t])
        if not make.rewards:
            assert other.propensity == decisions[t].propensity
    assert learned(late) == learned(prompt)


@every_agent
def test_an_id_is_as_good_as_a_decision(make, rng):
    by_decision, by_id, by_copy = (make(D, K) for _ in range(3))
    for x in contexts(rng, 30, D):
        correct = rng.random() < 0.5
        by_decision.learn(by_decision.act(x), bool(correct))
        by_id.learn(np.int64(by_id.act(x).id), np.bool_(correct))
        by_copy.learn(copy.deepcopy(by_copy.act(x)), int(correct))
    assert state(by_decision) == state(by_id) == state(by_copy)


@every_agent
def test_what_cannot_be_learned_is_refused_and_changes_nothing(make, rng):
    agent = make.trained(D, K)
    other = make.trained(D, K, seed=1)
    x = contexts(rng, 2, D)
    done = agent.act(x[0])
    agent.learn(done, True)
    waiting, theirs = agent.act(x[0]), other.act(x[1])
    before = state(agent)
    for outcome in (done, done.id, 0):
        with pytest.raises(InvalidInputError, match="no decision waits.*has its outcome"):
            agent.learn(outcome, True)
    with pytest.raises(InvalidInputError, match="no decision waits under the id 42"):
        agent.learn(42, True)
    while theirs.id != waiting.id:
        theirs = other.act(x[1])
    with pytest.raises(InvalidInputError, match="it was not made here"):
        agent.learn(theirs, True)
    for bad in (-1, 1.5, "0", None, True):
        with pytest.raises(InvalidInputError, match="id of a decision must be|no decision waits"):
            agent.learn(bad, True)
    assert state(agent) == before
    agent.learn(waiting, True)


@every_agent
def test_bad_outcomes_are_refused_and_change_nothing(make):
    agent = make.trained(D, K)
    decision = agent.act([0.1, 0.2, 0.3])
    before = state(agent)
    message = "reward must be a number" if make.rewards else "correct must be True or False"
    between = -0.5 if make.rewards else 0.5
    for bad in (2, -1, between, None, "yes", math.nan, [True], np.complex128(0.5)):
        with pytest.raises(InvalidInputError, match=message):
            agent.learn(decision, bad)
    assert state(agent) == before
    agent.learn(decision, False)
    assert agent.pending == ()


BAD_CONTEXTS = {
    "nan": ([0.0, math.nan, 0.0], "x has nan at feature 1"),
    "inf": ([0.0, 0.0, -math.inf], "x has -inf at feature 2"),
    "short": ([0.0, 0.0], "x has shape"),
    "scalar": (1.0, "x has shape"),
    "cube": (np.zeros((1, 1, D)), "x has shape"),
    "text": (["a", "b", "c"], "must hold real numbers"),
    "numbers as text": (["1", "2", "3"], "must hold real numbers"),
    "nothing": (None, "x"),
    "ragged": ([[1.0], [1.0, 2.0], 3.0], "must hold real numbers"),
    "complex": (np.array([1j, 0, 0]), "must hold real numbers"),
    "too long": ([1e16, 0.0, 0.0], "too large for the arithmetic"),
}


@every_agent
def test_bad_contexts_are_refused_and_change_nothing(make):
    agent = make.trained(D, K)
    agent.act([0.1, 0.2, 0.3])
    before = state(agent)
    for bad, message in BAD_CONTEXTS.values():
        with pytest.raises(InvalidInputError, match=message):
            agent.act(bad)
        with pytest.raises(InvalidInputError, match=message):
            agent.policy(bad)
    with pytest.raises(InvalidInputError, match="x has shape"):
        agent.act(np.zeros((2, D)))
    with pytest.raises(InvalidInputError, match="row 1 of X has nan"):
        agent.policy([[0.0, 0.0, 0.0], [0.0, 0.0, math.nan]])
    with pytest.raises(InvalidInputError, match="X has shape"):
        agent.policy(np.zeros((2, D + 1)))
    assert state(agent) == before


@every_agent
def test_the_oldest_decision_is_dropped_and_counted(make, rng):
    agent = make(D, K)
    agent.max_pending = 3
    X = contexts(rng, 6, D)
    decisions = [agent.act(x) for x in X[:5]]
    assert [decision.id for decision in agent.pending] == [2, 3, 4]
    assert (agent.n_decisions, agent.n_dropped, agent.n_outcomes) == (5, 2, 0)
    for outcome in (decisions[0], 1):
        with pytest.raises(InvalidInputError, match="expired or was dropped"):
            agent.learn(outcome, True)
    agent.learn(decisions[3], True)
    with pytest.raises(InvalidInputError, match="has its outcome"):
        agent.learn(3, True)
    agent.act(X[5])
    assert [decision.id for decision in agent.pending] == [2, 4, 5]
    assert (agent.n_decisions, agent.n_dropped, agent.n_outcomes) == (6, 2, 1)


@every_agent
def test_a_decision_can_be_dropped_by_hand(make, rng):
    agent = make(D, K)
    decisions = [agent.act(x) for x in contexts(rng, 3, D)]
    agent.drop(decisions[1])
    agent.drop(2)
    assert [decision.id for decision in agent.pending] == [0]
    assert (agent.n_decisions, agent.n_dropped, agent.n_outcomes) == (3, 2, 0)
    with pytest.raises(InvalidInputError, match="no decision waits"):
        agent.learn(decisions[1], True)
    with pytest.raises(InvalidInputError, match="no decision waits"):
        agent.drop(1)


@every_agent
def test_numbers_0_and_1_are_outcomes(make):
    agents = [make.trained(D, K) for _ in range(3)]
    for agent, right in zip(agents, (True, 1.0, np.float32(1.0)), strict=True):
        agent.learn(agent.act([0.1, 0.2, 0.3]), right)
    assert len({str(state(agent)) for agent in agents}) == 1


@every_agent
def test_an_own_interaction_can_be_learned_as_a_logged_one(make, rng):
    """With outcomes at once, learning from the log of a twin is learning itself."""
    agent, reader = make.trained(D, K), make.trained(D, K)
    if getattr(agent, "updates", "") == "explored":
        with pytest.raises(InvalidInputError, match="only this agent's own explorations teach"):
            reader.learn_logged([0.1, 0.2, 0.3], 0, 0.5, True)
        return
    for t, x in enumerate(contexts(rng, 30, D)):
        decision = agent.act(x)
        agent.learn(decision, t % 2 == 0)
        reader.learn_logged(x, decision.action, decision.propensity, t % 2 == 0)
    x = [0.3, -0.2, 0.1]
    if not make.rewards:  # a live one counts decisions
        np.testing.assert_array_equal(reader.policy(x), agent.policy(x))
    before = state(reader)
    for bad in (([np.nan] * D, 0, 0.5, 1), (x, 0, 0.0, 1), (x, 0, 1.5, 1)):
        with pytest.raises(InvalidInputError):
            reader.learn_logged(*bad)
    with pytest.raises(InvalidInputError, match=f"action must be at most {K - 1}, got {K}"):
        reader.learn_logged(x, K, 0.5, 1)
    assert state(reader) == before


@every_agent
def test_a_context_changed_in_place_has_no_effect(make, rng):
    careless, careful = make.trained(D, K), make.trained(D, K)
    buffer = np.empty(D)
    for x in contexts(rng, 20, D):
        buffer[:] = x
        decision = careless.act(buffer)
        other = careful.act(x)
        buffer[:] = 1e6
        careless.learn(decision, True)
        careful.learn(other, True)
    assert state(careless) == state(careful)


@every_agent
def test_a_copy_is_equal_and_independent(make, rng):
    agent = make.trained(D, K)
    waiting = agent.act(np.ones(D) / 2)
    other, before = copy.deepcopy(agent), state(agent)
    assert state(other) == before
    X, correct = contexts(rng, 20, D), rng.random(20) < 0.5

    def go_on(one):
        one.learn(waiting, True)
        for x, right in zip(X, correct, strict=True):
            one.learn(one.act(x), right)
        return state(one)

    after = go_on(other)
    assert state(agent) == before
    assert go_on(agent) == after


@every_agent
def test_the_same_seed_gives_the_same_bytes(make):
    first, second, third = (make.trained(D, K, seed=seed) for seed in (7, 7, 8))
    assert state(first) == state(second)
    assert state(first) != state(third)


@every_agent
def test_a_generator_is_used_and_advanced(make):
    rng = np.random.default_rng(7)
    assert state(make.trained(D, K, seed=rng)) == state(make.trained(D, K, seed=7))
    assert rng.random() != np.random.default_rng(7).random()


@every_agent
def test_the_agent_says_what_it_is(make):
    agent = make(D, K)
    text = repr(agent)
    assert text.startswith(f"{type(agent).__name__}(")
    assert "exploration=" in text
    assert repr(agent.act(np.zeros(D))).startswith("Decision(id=0, action=")
