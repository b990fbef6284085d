"""Actions with rows of their own: laws of the agent, and offsets that come and go."""

import copy
import math

import numpy as np
import pytest
from scipy.special import expit

import folklearn
from folklearn import Folklore, Ogd
from folklearn.bandits import ListAgent
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.serialization import Record
from tests.bandits.forced import learned, state
from tests.bandits.registered import contexts

D = 3
NAMES = ["tea", "milk", 7, "juice", 11, "water"]


def agent_of(offsets=0, **words):
    regression = Folklore(n_features=D + offsets, n_classes=2, B=3.0)
    return ListAgent(regression, offsets=offsets, **{"n_actions": 3, "strength": 0.3} | words)


def lists(rng, T, offsets):
    """Decisions of two to five rows each, with their names if actions have offsets."""
    for _ in range(T):
        m = int(rng.integers(2, 6))
        some = [NAMES[place] for place in rng.permutation(len(NAMES))[:m]]
        yield contexts(rng, m, D), (some if offsets else None)


def busy(offsets=3, **words):
    """An agent in mid-stream: 5 of 45 decisions wait, reported out of order."""
    agent, rng = agent_of(offsets, **words), np.random.default_rng(5)
    for rows, names in lists(rng, 36, offsets):
        agent.learn(agent.act(rows, names), float(rng.random()))
    waiting = [agent.act(rows, names) for rows, names in lists(rng, 9, offsets)]
    for t in (7, 2, 4, 0):
        agent.learn(waiting[t], t % 2 == 0)
    return agent


every_number = pytest.mark.parametrize("offsets", [0, 3, 6])


@every_number
def test_the_propensity_is_what_the_policy_said(offsets, rng):
    agent = busy(offsets)
    for rows, names in lists(rng, 30, offsets):
        before = state(agent)
        P, rewards = agent.policy(rows, names), agent.expected_rewards(rows, names)
        assert state(agent) == before
        assert P.shape == rewards.shape == (len(rows),)
        assert P.sum() == pytest.approx(1.0, abs=1e-12)
        decision = agent.act(rows, names)
        assert decision.propensity == P[decision.action]
        assert decision.name == (names[decision.action] if names else None)
        np.testing.assert_array_equal(decision.x, rows)
        assert not decision.x.flags.writeable
        agent.learn(decision.id, float(rng.random()))


@every_number
def test_acting_never_learns(offsets, rng):
    agent = busy(offsets)
    _, before = learned(agent)
    for rows, names in lists(rng, 20, offsets):
        agent.act(rows, names)
    assert learned(agent)[1] == before
    assert len(agent.pending) == 25


def test_one_row_learns_as_a_regression_does(rng):
    agent, twin = agent_of(), Folklore(n_features=D, n_classes=2, B=3.0)
    for rows, _ in lists(rng, 30, 0):
        np.testing.assert_allclose(
            agent.expected_rewards(rows), twin.predict(rows)[:, 1], rtol=0.0, atol=1e-12
        )
        decision, reward = agent.act(rows), float(rng.random())
        agent.learn(decision, reward)
        twin.update(rows[decision.action], [1.0 - reward, reward])


def test_an_offset_is_a_feature_of_its_own(rng):
    """As long as there is room they are columns of a one-hot code, the next one for all new."""
    agent, twin = agent_of(7), Folklore(n_features=D + 7, n_classes=2, B=3.0)
    order = []
    for rows, names in lists(rng, 60, 7):
        wide = np.zeros((len(rows), D + 7))
        wide[:, :D] = rows
        for row, name in zip(wide, names, strict=True):
            row[D + (order.index(name) if name in order else len(order))] = 1.0
        np.testing.assert_allclose(
            agent.expected_rewards(rows, names), twin.predict(wide)[:, 1], atol=1e-12
        )
        decision, reward = agent.act(rows, names), float(rng.random())
        agent.learn(decision, reward)
        if decision.name not in order:
            order.append(decision.name)
        twin.update(wide[decision.action], [1.0 - reward, reward])


def test_offsets_tell_apart_what_rows_do_not(rng):
    """All rows are alike: only the name says which action is good. Chance earns 0.5."""
    agent = agent_of(5, strength=10.0)
    rows = np.tile([0.0, 0.0, 0.1], (4, 1))
    goodness = {"tea": 0.2, "milk": 0.4, 7: 0.5, "juice": 0.9}
    earned = 0.0
    for _ in range(1000):
        names = [list(goodness)[place] for place in rng.permutation(4)]
        decision = agent.act(rows, names)
        reward = rng.random() < goodness[decision.name]
        agent.learn(decision, reward)
        earned += reward
    assert earned > 750


def test_who_was_rewarded_longest_ago_makes_room(rng):
    agent = agent_of(3)
    rows = contexts(rng, 1, D)
    for name in ("tea", "milk", "tea", 7):
        agent.learn(agent.act(rows, [name]), 1.0)
    assert list(agent._offset_columns) == ["tea", 7]
    assert len({agent._free_column, *agent._offset_columns.values()}) == 3
    fresh = agent.expected_rewards(rows, ["milk"])
    np.testing.assert_array_equal(fresh, agent.expected_rewards(rows, ["water"]))
    assert agent.expected_rewards(rows, ["tea"]) > fresh


@pytest.mark.parametrize("n_classes", [2, 3])
def test_renewing_a_feature_minimises_over_its_weights(n_classes, rng):
    """What is left of A is the Schur complement; the new weights have the ridge alone."""
    learner = Folklore(n_features=3, n_classes=n_classes, B=2.0)
    learner.run(contexts(rng, 40, 3), rng.integers(0, n_classes, 40))
    state_ = learner._state
    n = state_.theta.size
    A = np.linalg.inv(np.tril(state_.S) + np.tril(state_.S, -1).T)
    g = A @ state_.theta
    gone = np.arange(1, n, 3)
    rest = np.setdiff1d(np.arange(n), gone)
    solved = np.linalg.solve(A[np.ix_(gone, gone)], A[np.ix_(gone, rest)])
    expected = np.zeros((n, n))
    expected[np.ix_(rest, rest)] = A[np.ix_(rest, rest)] - A[np.ix_(rest, gone)] @ solved
    expected[gone, gone] = learner.lam
    left = g[rest] - A[np.ix_(rest, gone)] @ np.linalg.solve(A[np.ix_(gone, gone)], g[gone])
    before = learner.certificate().regret_bound
    x = contexts(rng, 1, 3)[0]
    learner.predict(x)  # what the memo holds of x must not survive
    learner.renew(1)
    S = np.tril(state_.S) + np.tril(state_.S, -1).T
    np.testing.assert_allclose(np.linalg.inv(S), expected, atol=1e-9)
    np.testing.assert_allclose((expected @ state_.theta)[rest], left, atol=1e-9)
    assert (state_.theta[gone] == 0.0).all()
    cost = learner.lam * n_classes * 2.0**2
    assert learner.certificate().regret_bound == pytest.approx(before + cost, rel=1e-12)
    again = Folklore.from_record(learner.to_record())
    np.testing.assert_array_equal(again.predict(x), learner.predict(x))


def test_a_renewed_certificate_covers_offsets_that_change(rng):
    """A feature that is the opposite of itself after every renewal: one model loses, two do not."""
    B = 2.0
    learner = Folklore(n_features=1, n_classes=2, B=B)
    w = np.array([-B, B])  # the logits of the class that helps most, with the sign of the era
    comparator = 0.0
    for era in range(6):
        if era:
            learner.renew(0)
        sign = 1.0 if era % 2 else -1.0
        for _ in range(50):
            y = int(rng.random() < expit(2.0 * B * sign))
            learner.update([1.0], y)
            z = sign * w
            comparator += math.log(np.exp(z).sum()) - z[y]
    certificate = learner.certificate()
    assert certificate.loss - comparator <= certificate.regret_bound


@every_number
def test_resuming_equals_never_stopping(offsets, seed, tmp_path):
    agent = busy(offsets, default_reward=0.5, wait=8, seed=seed)
    agent.save(tmp_path / "agent")
    resumed = folklearn.load(tmp_path / "agent")
    assert repr(resumed.pending) == repr(agent.pending)
    for one in (agent, resumed):
        rng = np.random.default_rng(seed)
        one.learn(one.pending[2], 0.25)
        for rows, names in lists(rng, 20, offsets):
            one.act(rows, names)
            one.learn(one.pending[-1], float(rng.random()))
    assert state(resumed) == state(agent)
    assert agent.n_expired > 0


def test_late_rewards_find_their_own_action(rng):
    agent = busy(3)
    by_hand = copy.deepcopy(agent)
    for decision in agent.pending:
        agent.learn(decision, 1.0)
        by_hand.learn(decision.id, 1)
    assert state(agent) == state(by_hand)
    with pytest.raises(InvalidInputError, match="reported already"):
        agent.learn(decision, 1.0)


def test_logged_interactions_teach_the_same(rng):
    agent, reader = agent_of(2), agent_of(2)
    for rows, names in lists(rng, 30, 2):
        decision, reward = agent.act(rows, names), float(rng.random())
        agent.learn(decision, reward)
        reader.learn_logged(rows, decision.action, decision.propensity, reward, names)
    np.testing.assert_array_equal(
        agent.expected_rewards(rows, names), reader.expected_rewards(rows, names)
    )
    assert reader.regret_certificate().n_rounds == 0
    before = state(reader)
    for bad in ((rows, len(rows), 0.5, 1), (rows, 0, 0.0, 1), (rows, 0, 0.5, 2)):
        with pytest.raises(InvalidInputError):
            reader.learn_logged(*bad)
    assert state(reader) == before


def test_a_prompt_reward_is_learned_where_the_action_was_seen(rng):
    """So that the loss that is certified is that of the prediction that was played."""
    agent = agent_of(3)
    for rows, names in lists(rng, 80, 3):
        decision = agent.act(rows, names)
        expected = agent.expected_rewards(rows, names)[decision.action]
        before = agent.regression.certificate().loss
        agent.learn(decision, 1.0)
        loss = agent.regression.certificate().loss - before
        assert loss == pytest.approx(-math.log(expected), abs=1e-9)


def test_the_mean_regret_is_below_the_certificate_if_rewards_are_realizable():
    T, d = 2000, 2
    regrets, bounds = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        w = rng.normal(size=d)
        w *= 2.0 / np.linalg.norm(w)
        regression = Folklore(n_features=d, n_classes=2, B=1.0)
        agent = ListAgent(regression, n_actions=4, strength="theory", seed=seed)
        regret = 0.0
        for _ in range(T):
            rows = contexts(rng, int(rng.integers(2, 7)), d)
            means = expit(rows @ w)
            decision = agent.act(rows)
            agent.learn(decision, rng.random() < means[decision.action])
            regret += means.max() - means[decision.action]
        regrets.append(regret)
        bounds.append(agent.regret_certificate().bound)
    print(f"\nregret {np.mean(regrets):.1f}, certified {np.mean(bounds):.1f}, of {T}")
    assert np.mean(regrets) <= np.mean(bounds) < 0.5 * T


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        (np.zeros((0, D)), None, "no row"),
        (np.zeros(D), None, "X has shape"),
        (np.zeros((2, D + 1)), None, "X has shape"),
        ([[0.0, math.nan, 0.0]], None, "row 0 of X has nan"),
        (np.zeros((2, D)), ["tea"], "name each of the 2 rows"),
        (np.zeros((2, D)), ["tea", "tea"], "each once"),
        (np.zeros((3, D)), "tea", "name each of the 3 rows"),
        (np.zeros((2, D)), 7, "name each of the 2 rows"),
        (np.zeros((2, D)), ["tea", 1.5], "a string or an integer, got 1.5"),
    ],
)
def test_bad_lists_are_refused_and_change_nothing(rows, names, message):
    agent = busy(3)
    before = state(agent)
    with pytest.raises(InvalidInputError, match=message):
        agent.act(rows, names)
    with pytest.raises(InvalidInputError, match=message):
        agent.policy(rows, names)
    assert state(agent) == before


def test_constructor_checks():
    with pytest.raises(InvalidInputError, match="construct the agent with offsets above 0"):
        agent_of().act(np.zeros((2, D)), ["tea", "milk"])
    with pytest.raises(InvalidInputError, match="one column is for new actions"):
        agent_of(1)
    with pytest.raises(InvalidInputError, match="offsets need a learner that can forget one"):
        ListAgent(Ogd(n_features=5, n_classes=2), offsets=2)
    with pytest.raises(InvalidInputError, match="construct it with n_features \\+ offsets"):
        ListAgent(Folklore(n_features=2, n_classes=2), offsets=2)
    with pytest.raises(InvalidInputError, match="has two classes"):
        ListAgent(Folklore(n_features=2, n_classes=3))


DAMAGES = {
    "no rows": ("pending.n_rows", lambda a: a * 0),
    "negative rows": ("pending.n_rows", lambda a: a - 10),
    "too few rows": ("pending.x", lambda a: a[:-1]),
    "too little seen": ("pending.seen", lambda a: a[:-1]),
    "an action beyond its rows": ("pending.action", lambda a: a + 5),
    "rows that are no numbers": ("pending.x", lambda a: a * math.nan),
    "no names": ("pending_names", lambda a: None),
    "too few names": ("pending_names", lambda a: a[:-1]),
    "a name that is none": ("pending_names", lambda a: [1.5, *a[1:]]),
    "no places": ("offset_columns", lambda a: None),
    "a place twice": ("offset_columns", lambda a: [[name, 0] for name, _ in a]),
    "too many places": ("offset_columns", lambda a: [[str(i), i] for i in range(9)]),
    "a bad number of offsets": ("offsets", lambda a: 99),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_are_refused(damage):
    name, change = DAMAGES[damage]
    record = busy(3).to_record()
    config, arrays = dict(record.config), dict(record.arrays)
    place = arrays if name in arrays else config
    place[name] = change(place[name])
    with pytest.raises(StateFileError):
        ListAgent.from_record(Record(record.kind, config, arrays))
