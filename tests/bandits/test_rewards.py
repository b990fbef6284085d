"""Agents of rewards: their twins, their bound, and decisions that expire."""

import copy
import math

import numpy as np
import pytest
from scipy.special import expit

import folklearn
from folklearn import Folklore, Laplace, Ogd, OnlineScaler, bandits
from folklearn.bandits import RewardAgent
from folklearn.bandits.rewards import RULES
from folklearn.errors import InvalidInputError, StateFileError
from tests.bandits.forced import act_as, learned, state
from tests.bandits.registered import contexts
from tests.reference import rewards as reference

D, K = 3, 4
every_rule = pytest.mark.parametrize("rule", RULES)


def agent_of(d=D, n_actions=K, B=3.0, **words):
    return RewardAgent(
        [Folklore(n_features=d, n_classes=2, B=B) for _ in range(n_actions)], **words
    )


@every_rule
@pytest.mark.parametrize("delay", [0, 3])
def test_equals_the_dense_twin(rule, delay, rng):
    agent = agent_of(exploration=rule, strength=0.7)
    twin = reference.DenseRewards(D, K, 3.0, rule, 0.7, RULES[rule].price)
    waiting = []
    for x in contexts(rng, 30, D):
        P = twin.probabilities(x)
        np.testing.assert_allclose(agent.policy(x), P, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(agent.expected_rewards(x), 1.0 - twin.losses(x), atol=1e-9)
        waiting.append((act_as(agent, x, int(rng.integers(K))), twin.act(x)))
        while len(waiting) > delay:
            decision, seen = waiting.pop(int(rng.integers(len(waiting))))
            reward = float(rng.random())
            agent.learn(decision, reward)
            twin.learn(decision.x, decision.action, seen, reward)
    certificate = agent.regret_certificate()
    assert certificate.explored == pytest.approx(twin.explored, abs=1e-6)
    if delay:
        assert not certificate.valid
        assert certificate.bound == math.inf
    else:
        assert certificate.bound == pytest.approx(twin.bound(), rel=1e-9, abs=1e-6)


def test_the_excess_loss_is_estimated_without_bias(rng):
    """Over actions and rewards, loss minus the true model's loss is sum_a P_a KL(f*_a | f_a)."""
    agent = agent_of(strength=0.3)
    for x in contexts(rng, 60, D):
        agent.learn(agent.act(x), float(rng.random()))
    x, W = contexts(rng, 1, D)[0], rng.normal(size=(K, D))
    truth = expit(W @ x)

    def total(one):
        return sum(regression.certificate().loss for regression in one.regressions)

    mean = 0.0
    for action, probability in enumerate(agent.policy(x)):
        for reward, chance in ((1.0, truth[action]), (0.0, 1.0 - truth[action])):
            after = copy.deepcopy(agent)
            decision = act_as(after, x, action)
            assert decision.propensity == probability
            after.learn(decision, reward)
            own = -math.log(truth[action] if reward else 1.0 - truth[action])
            mean += probability * chance * (total(after) - total(agent) - own)
    excess = reference.divergence(truth, agent.expected_rewards(x))
    assert mean == pytest.approx(float(agent.policy(x) @ excess), rel=1e-9)
    assert mean > 0.0


def drifting_contexts(rng, T, d):
    """Chosen to hurt: always the same for a long time, then its opposite, then new ones."""
    X = contexts(rng, T, d)
    X[: T // 3] = X[0]
    X[T // 3 : T // 2] = -X[0]
    return X


def played(agent, X, means, rng):
    """Return the regret of an agent whose rewards are coins of these means (T, K)."""
    regret = 0.0
    for x, mean in zip(X, means, strict=True):
        decision = agent.act(x)
        agent.learn(decision, rng.random() < mean[decision.action])
        regret += mean.max() - mean[decision.action]
    return regret


@pytest.mark.parametrize("make", [contexts, drifting_contexts])
@pytest.mark.parametrize(
    "words", [{"strength": "theory"}, {"exploration": "squarecb", "strength": "theory"}, {}]
)
def test_the_mean_regret_is_below_the_certificate_if_rewards_are_realizable(make, words):
    """Means of six streams; at the theory's strength the bound says something, too."""
    T, d, n_actions, B = 2000, 2, 3, 1.0
    regrets, bounds = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        W = rng.normal(size=(n_actions, d))
        W *= 2.0 * B / np.linalg.norm(W, axis=1)[:, None]
        X = make(rng, T, d)
        agent = agent_of(d, n_actions, B, seed=seed, **words)
        regrets.append(played(agent, X, expit(X @ W.T), rng))
        certificate = agent.regret_certificate()
        assert certificate.valid
        bounds.append(certificate.bound)
    print(f"\nregret {np.mean(regrets):.1f}, certified {np.mean(bounds):.1f}, of {T}")
    assert np.mean(regrets) <= np.mean(bounds)
    if words:
        assert np.mean(bounds) < 0.5 * T


def test_without_realizability_regret_is_measured_and_nothing_is_claimed(rng):
    """Rewards that no sigmoid of a linear function gives; what is printed is no bound."""
    T, n_actions = 3000, 3
    X = contexts(rng, T, 2)
    means = 0.5 + 0.4 * np.cos(6.0 * X[:, :1] + np.arange(n_actions) * 2.0)
    agent = agent_of(2, n_actions, 1.0, strength="theory")
    regret = played(agent, X, means, rng)
    certificate = agent.regret_certificate()
    print(
        f"\nwithout realizability: regret {regret:.1f}, and {certificate.bound:.1f} if it were so"
    )
    assert "It holds if the expected reward of an action is the sigmoid" in certificate.in_words()


def test_a_smaller_class_has_a_smaller_bound(rng):
    agent = agent_of(B=3.0)
    for x in contexts(rng, 50, D):
        agent.learn(agent.act(x), True)
    small, whole = agent.regret_certificate(B=1.0), agent.regret_certificate()
    assert small.bound < whole.bound
    assert (small.B, whole.B) == (1.0, 3.0)
    assert "weights of norm at most 2 that" in small.in_words()


def test_what_the_certificate_does_not_cover_is_said():
    x = [0.1, 0.2, 0.3]
    agent = agent_of()
    assert "no decision yet" in agent.regret_certificate().in_words()
    first = agent.act(x)
    assert agent.regret_certificate().valid  # its reward may come before the next decision
    agent.act(x)
    assert "1 decision had no reward" in agent.regret_certificate().reason
    agent.learn(first, 1.0)
    assert "1 reward came after a later decision" in agent.regret_certificate().reason
    agent = agent_of()
    agent.drop(agent.act(x))
    assert "1 decision had no reward" in agent.regret_certificate().in_words()
    agent = agent_of()
    agent.act(x)
    agent.learn(agent.act(x), 1.0)  # the first is still out, though nothing came late
    assert "1 decision had no reward" in agent.regret_certificate().reason
    lost = RewardAgent([Laplace(n_features=3, n_classes=2) for _ in range(2)])
    assert "Nothing is proven about the regret: Laplace" in lost.regret_certificate().in_words()


def test_a_log_that_is_learned_before_a_reward_makes_it_late():
    """The reward is then certified with another prediction than the one that was played."""
    x = [0.1, 0.2, 0.3]
    agent = agent_of()
    agent.learn_logged(x, 0, 0.5, 1.0)
    agent.learn(agent.act(x), 1.0)
    assert agent.regret_certificate().valid
    decision = agent.act(x)
    agent.learn_logged(x, decision.action, 0.5, 1.0)
    agent.learn(decision, 1.0)
    assert "1 reward came after a later decision, or after a log" in (
        agent.regret_certificate().reason
    )


def test_the_certificate_is_a_number_at_any_strength(tmp_path):
    """exp(1 / eta) overflows where hardly anything but chance is played."""
    agent = agent_of(exploration="squarecb", strength=1e-6)
    for _ in range(3):
        agent.learn(agent.act([0.1, 0.2, 0.3]), 1.0)
    assert agent.regret_certificate().explored == 3.0
    agent.save(tmp_path / "agent")
    assert folklearn.load(tmp_path / "agent").regret_certificate() == agent.regret_certificate()


def test_decisions_that_wait_too_long_get_the_default(rng):
    agent, twin = (agent_of(default_reward=0.25, wait=2), agent_of())
    X = contexts(rng, 5, D)
    for x in X:
        decision = agent.act(x)
        if decision.id >= 3:  # two later decisions have been made
            waiting = twin.pending[0]
            twin.learn(waiting, 0.25)
        act_as(twin, x, decision.action)
    assert [decision.id for decision in agent.pending] == [2, 3, 4]
    assert (agent.n_expired, agent.n_outcomes, agent.n_dropped) == (2, 2, 0)
    assert learned(agent)[1] == learned(twin)[1]
    with pytest.raises(InvalidInputError, match="expired or was dropped"):
        agent.learn(0, 1.0)
    agent.learn(2, 1.0)
    assert not agent.regret_certificate().valid


def test_the_oldest_expires_where_no_more_may_wait(rng):
    agent = agent_of(default_reward=0.0)
    agent.max_pending = 2
    for x in contexts(rng, 5, D):
        agent.act(x)
    assert [decision.id for decision in agent.pending] == [3, 4]
    assert (agent.n_expired, agent.n_dropped) == (3, 0)


def test_a_clock_of_the_caller_expires_by_hand(rng):
    with_default, without = agent_of(default_reward=1.0), agent_of()
    x = contexts(rng, 1, D)[0]
    told = copy.deepcopy(with_default)
    with_default.expire(act_as(with_default, x, 1))
    told.learn(act_as(told, x, 1), 1.0)
    assert learned(with_default) == learned(told)
    assert (with_default.n_expired, told.n_expired) == (1, 0)
    without.expire(act_as(without, x, 1).id)
    assert (without.n_expired, without.n_dropped) == (0, 1)
    with pytest.raises(InvalidInputError, match="no decision waits"):
        without.expire(0)


def test_waiting_without_a_default_drops(rng):
    agent = agent_of(wait=1)
    for x in contexts(rng, 4, D):
        agent.act(x)
    assert (agent.n_dropped, agent.n_expired, len(agent.pending)) == (2, 0, 2)


def test_expiry_is_resumed(rng, tmp_path):
    agent = agent_of(default_reward=0.5, wait=3)
    X = contexts(rng, 20, D)
    for x in X[:10]:
        agent.act(x)
    agent.save(tmp_path / "agent")
    resumed = folklearn.load(tmp_path / "agent")
    for one in (agent, resumed):
        for x in X[10:]:
            one.act(x)
    assert state(resumed) == state(agent)
    assert resumed.n_expired == 16


def test_a_bad_default_is_refused_from_a_file(tmp_path):
    agent = agent_of(default_reward=0.5)
    record = agent.to_record()
    record.config["default_reward"] = 2.0
    with pytest.raises(StateFileError, match="reward must be a number from 0 to 1"):
        RewardAgent.from_record(record)


def test_rewards_in_between_are_soft_labels(rng):
    agent, twin = agent_of(), Folklore(n_features=D, n_classes=2, B=3.0)
    x = contexts(rng, 1, D)[0]
    agent.learn(act_as(agent, x, 2), 0.3)
    twin.update(x, [0.7, 0.3])
    np.testing.assert_array_equal(agent.regressions[2].predict(x), twin.predict(x))


def test_an_action_that_is_sure_keeps_its_digits():
    """A loss of 1e-20 is not 0: others are still played, and the bound counts them."""
    agent = RewardAgent([Ogd(n_features=1, n_classes=2, B=30.0, rate=1.0) for _ in range(2)])
    agent.regressions[0].run(np.ones((3000, 1)), np.ones(3000, int))
    assert 0.0 < agent.regressions[0].predict([6.0])[0] < 1e-17
    assert agent.expected_rewards([6.0])[0] == 1.0
    assert 0.0 < agent.policy([6.0])[1] < 1e-16


def test_labelled_rows_can_be_played(rng):
    """Right and wrong are the rewards 1 and 0."""
    X = contexts(rng, 300, D)
    log = folklearn.interact(agent_of(D, 3), X, X.argmax(axis=1))
    assert log.n_actions == 3
    assert log.rewards[200:].mean() > 0.6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"exploration": "ucb"}, "exploration must be one of 'fastcb', 'squarecb'"),
        ({"strength": 0.0}, "strength must be a positive number"),
        ({"strength": "much"}, "strength must be a positive number"),
        ({"default_reward": 1.5}, "reward must be a number from 0 to 1"),
        ({"wait": 0}, "wait must be at least 1"),
    ],
)
def test_constructor_checks(words, message):
    with pytest.raises(InvalidInputError, match=message):
        agent_of(**words)


def test_regressions_are_checked():
    two, wide, three = (Ogd(n_features=d, n_classes=n) for d, n in ((2, 2), (3, 2), (2, 3)))
    for bad, message in (
        ([two], "at least two actions"),
        ([two, two], "one learner stands for two actions"),
        ([two, wide], "different numbers of features"),
        ([two, three], "has two classes"),
        ([two, None], "not a learner"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            RewardAgent(bad)


def test_auto_learns_without_being_told_anything(rng):
    """Chance earns 0.25 and the best action 0.9; this 0.8 +- 0.01 over seeds."""
    agent = bandits.auto(n_features=3, n_actions=4, seed=rng)
    earned = 0.0
    for x in contexts(rng, 2000, 3):
        decision = agent.act(x)
        best = int(np.argmax([*x, 0.2]))
        reward = rng.random() < (0.9 if decision.action == best else 0.1)
        agent.learn(decision, reward)
        earned += reward
    assert earned > 1300
    assert agent.regret_certificate().valid


def test_scaled_contexts_are_those_of_the_scaler(rng):
    """Acting and learning see the same row, and it is what `OnlineScaler` makes of the contexts."""
    X = rng.normal(size=(60, 3)) * [1.0, 1e3, 1e-3] + [5.0, 0.0, 7.0]
    scaler = OnlineScaler(n_features=3)
    agent = bandits.auto(n_features=3, n_actions=2, seed=1)
    twin = bandits.auto(n_features=4, n_actions=2, seed=1, scale=False)
    for x, z in zip(X, scaler.learn_transform(X), strict=True):
        decision, other = agent.act(x), twin.act(z)
        assert (decision.action, decision.propensity) == (other.action, other.propensity)
        reward = float(x[0] > 5.0) if decision.action else 0.4
        agent.learn(decision, reward)
        twin.learn(other, reward)
    for x in X:
        np.testing.assert_array_equal(
            agent.expected_rewards(x), twin.expected_rewards(scaler.transform(x))
        )
    assert agent.regret_certificate().bound == twin.regret_certificate().bound
    assert "the scaled features" in agent.regret_certificate().in_words()


def test_a_scaled_agent_goes_on_where_it_stopped(rng, tmp_path):
    X = 100.0 * rng.normal(size=(40, 2))
    agent = bandits.auto(n_features=2, n_actions=3)
    for x in X[:20]:
        agent.learn(agent.act(x), rng.random())
    agent.save(tmp_path / "agent")
    other = folklearn.load(tmp_path / "agent")
    for x in X[20:]:
        decision, same = agent.act(x), other.act(x)
        assert (decision.action, decision.propensity) == (same.action, same.propensity)
        agent.learn(decision, 0.5)
        other.learn(same, 0.5)
