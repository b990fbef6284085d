"""Off-policy estimates: unbiased by enumeration, equal to their twins, honest intervals."""

from itertools import product

import numpy as np
import pytest

from folklearn import Folklore, synthetic
from folklearn.baselines import Banditron
from folklearn.errors import InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.off_policy import LearnedPolicy, greedy, interact, off_policy, reward_model
from tests.reference import decisions
from tests.reference import off_policy as reference
from tests.reference.decisions import best_constant

d, K = 3, 3


def distributions(rng, T, least=0.0):
    return (1.0 - K * least) * rng.dirichlet(np.ones(K), size=T) + least


def draw_actions(rng, P):
    return (rng.random((len(P), 1)) > np.cumsum(P, axis=1)[:, :-1]).sum(axis=1)


def logged(rng, X, y, P0):
    """The log of a policy P0 that does not learn."""
    actions = draw_actions(rng, P0)
    return Interactions(X, actions, P0[np.arange(len(y)), actions], actions == y, K)


def example(rng, T=60):
    """A log, a policy and a model of the rewards."""
    X, y = rng.normal(size=(T, d)), rng.integers(K, size=T)
    log = logged(rng, X, y, distributions(rng, T, least=0.05))
    return log, distributions(rng, T), rng.random((T, K))


def truth(P, y):
    return P[np.arange(len(y)), y].mean()


# The mean of the estimate over all logs, exactly.


def constant_agent(base, history):
    return base[len(history)]


def adaptive_agent(base, history):
    """Prefers what was right, and avoids what was wrong, more strongly in every round."""
    p = base[len(history)].copy()
    for action, correct in history:
        p[action] *= 3.0 if correct else 0.2
    return p / p.sum()


def mean_over_all_logs(agent, estimate, X, y, base):
    total = 0.0
    for actions in product(range(K), repeat=len(y)):
        history, chance, propensities = [], 1.0, []
        for t, action in enumerate(actions):
            propensities.append(agent(base, history)[action])
            chance *= propensities[-1]
            history.append((action, action == y[t]))
        total += chance * estimate(Interactions(X, actions, propensities, actions == y, K))
    return total


@pytest.mark.parametrize("agent", [constant_agent, adaptive_agent])
@pytest.mark.parametrize("method", ["ips", "dr", "dr by itself"])
def test_the_mean_over_all_logs_is_the_truth(agent, method, rng):
    T = 4
    X, y = rng.normal(size=(T, d)), rng.integers(K, size=T)
    base, P, q = distributions(rng, T, least=0.05), distributions(rng, T), rng.random((T, K))
    words = {"ips": {"rewards": 0.0 * q}, "dr": {"rewards": q}, "dr by itself": {}}[method]
    mean = mean_over_all_logs(agent, lambda log: off_policy(log, P, **words).value, X, y, base)
    assert mean == pytest.approx(truth(P, y), abs=1e-13)


def test_a_model_that_saw_later_rounds_is_biased_once_the_agent_adapts():
    """Why the reward model looks back only: the same enumeration tells the difference."""
    T = 4
    X, y = np.ones((T, 1)), np.array([1, 0, 0, 0])
    base, P = np.full((T, K), 1.0 / K), np.tile([0.8, 0.1, 0.1], (T, 1))

    def cross_fitted(log):
        """Every round is modelled by the share of right ones in all the others."""
        q = np.full((T, K), 1.0 / K)
        for t, k in product(range(T), range(K)):
            played = (log.actions == k) & (np.arange(T) != t)
            if played.any():
                q[t, k] = log.rewards[played].mean()
        return off_policy(log, P, rewards=q).value

    fixed = mean_over_all_logs(constant_agent, cross_fitted, X, y, base)
    assert fixed == pytest.approx(truth(P, y), abs=1e-13)
    adaptive = mean_over_all_logs(adaptive_agent, cross_fitted, X, y, base)
    assert abs(adaptive - truth(P, y)) > 0.01


# Equality with loops over the definitions.


def test_values_and_errors_are_those_of_the_definitions(rng):
    log, P, q = example(rng)
    p, a, r = log.propensities, log.actions, log.rewards
    ips = off_policy(log, P, rewards=0.0 * q)
    terms = reference.ips_terms(P, a, p, r)
    assert ips.value == pytest.approx(reference.mean(terms), abs=1e-12)
    assert ips.std_error == pytest.approx(reference.std_error(terms), abs=1e-12)
    dr = off_policy(log, P, rewards=q)
    dr_terms = reference.dr_terms(P, a, p, r, q)
    assert dr.value == pytest.approx(reference.mean(dr_terms), abs=1e-12)
    assert dr.std_error == pytest.approx(reference.std_error(dr_terms), abs=1e-12)
    for estimate in (ips, dr):
        size = reference.effective_size(P, a, p)
        assert estimate.effective_size == pytest.approx(size, rel=1e-12)
        half = 1.959963984540054 * np.hypot(estimate.std_error, 1.0 / size)
        assert estimate.low == pytest.approx(np.clip(estimate.value - half, 0, 1), abs=1e-12)
        assert estimate.high == pytest.approx(np.clip(estimate.value + half, 0, 1), abs=1e-12)


@pytest.mark.parametrize("n_blocks", [1, 4, 7, 60, 100])
def test_the_reward_model_learns_from_earlier_blocks_only(n_blocks, rng):
    log, _, _ = example(rng, T=25)
    q = reward_model(log, n_blocks=n_blocks)
    expected = reference.reward_model(log.X, log.actions, log.rewards, K, n_blocks)
    np.testing.assert_allclose(q, expected, rtol=0, atol=1e-12)


# Known truth: on a labelled stream the accuracy of every policy can be counted.


def pool(rng, T=2000):
    """Rows to draw from with replacement, so that the truth is their mean, exactly."""
    X, y = synthetic.stochastic(int(rng.integers(2**31)), T, d=d, K=K, B=10.0)
    learner = Folklore(n_features=d, n_classes=K)
    learner.run(X[:300], y[:300])
    target = learner.predict(X)
    logging = 0.5 * np.roll(target, 1, axis=1) + 0.5 / K
    return X, y, target, logging


def n_covered(rng, n_logs, T, share=None):
    """How often the truth is covered, with a share of the target as rewards, or what is learned."""
    X, y, target, logging = pool(rng)
    q = None if share is None else share * target
    value, covered = truth(target, y), 0
    for _ in range(n_logs):
        rows = rng.integers(len(y), size=T)
        log = logged(rng, X[rows], y[rows], logging[rows])
        estimate = off_policy(log, target[rows], rewards=q if q is None else q[rows])
        covered += estimate.low <= value <= estimate.high
    return covered


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["ips", "dr"])
def test_the_normal_interval_covers_as_often_as_it_says(share, rng):
    """400 logs at 0.95: outside of 352..398 with probability 4e-8 if exact, 3e-6 at 0.94."""
    assert 352 <= n_covered(rng, 400, 400, share) <= 398


def test_with_its_own_reward_model_too(rng):
    """200 logs: below 170 with probability 3e-8 at 0.95, 2e-6 at 0.94."""
    assert n_covered(rng, 200, 300) >= 170


def test_the_normal_interval_covers_while_the_agent_learns(rng):
    """200 logs of Banditrons: the contexts stay, so that the interval is rather too wide.

    Below 170 with probability 3e-8 at 0.95.
    """
    X, y, target, _ = pool(rng, T=400)
    value, covered = truth(target, y), 0
    for _ in range(200):
        log = interact(Banditron(n_features=d, n_classes=K, exploration=0.5, seed=rng), X, y)
        estimate = off_policy(log, target, rewards=target)
        covered += estimate.low <= value <= estimate.high
    assert covered >= 170


def test_a_good_reward_model_shortens_the_interval(rng):
    X, y, target, logging = pool(rng)
    log = logged(rng, X, y, logging)
    ips, given, own = (
        off_policy(log, target, **words)
        for words in ({"rewards": 0.0 * target}, {"rewards": target}, {})
    )
    assert given.std_error < 0.8 * ips.std_error
    assert own.std_error < 0.8 * ips.std_error
    perfect = off_policy(log, target, rewards=np.eye(K)[y])
    assert perfect.value == pytest.approx(truth(target, y), abs=1e-12)


@pytest.mark.parametrize(
    ("features", "draw"),
    [(False, decisions.binary), (True, decisions.graded)],
    ids=["contexts", "features of actions"],
)
def test_intervals_for_rewards_cover_as_often_as_they_say(features, draw, rng):
    """100 logs at 0.95: below 84 with probability 2e-5 if exact; more are in experiments/coverage.

    With a reward model of its own, which is what everybody gets.
    """
    world, covered = decisions.world(rng, features=features), 0
    for _ in range(100):
        estimate, truth = decisions.judged(rng, world, 200, draw)
        covered += estimate.low <= truth <= estimate.high
    assert covered >= 84


@pytest.mark.parametrize(("features", "learn"), [(False, best_constant), (True, greedy)])
def test_a_policy_learned_from_the_log_is_judged_by_what_it_had_not_seen(features, learn, rng):
    """60 logs at 0.95: below 48 with probability 3e-5 if exact."""
    world, covered = decisions.world(rng, features=features), 0
    for _ in range(60):
        estimate, truth = decisions.judged_learned(rng, world, 200, decisions.graded, learn)
        covered += estimate.low <= truth <= estimate.high
    assert covered >= 48


# Rewards, features of actions, learned policies.


@pytest.mark.parametrize("agent", [constant_agent, adaptive_agent])
def test_the_mean_over_all_logs_is_the_truth_of_a_learned_policy_too(agent, rng):
    """Of the policies that each log led to: both sides depend on the log, their means agree."""
    T = 4
    X, y = rng.normal(size=(T, d)), rng.integers(K, size=T)
    base = distributions(rng, T, least=0.05)

    def gap(log):
        values = []

        def learn(past):
            t, best = past.n_rounds, best_constant(past)
            values.append(0.5 * best(X[t : t + 1])[0, y[t]] + 0.5 / K)
            return lambda X: 0.5 * best(X) + 0.5 / K

        return off_policy(log, LearnedPolicy(learn, n_blocks=T)).value - np.mean(values)

    assert mean_over_all_logs(agent, gap, X, y, base) == pytest.approx(0.0, abs=1e-13)


def test_a_policy_learned_and_judged_by_the_same_rounds_flatters_itself(rng):
    """Why there is `LearnedPolicy`: actions earn the same, and the best of a log looks better."""
    gaps = []
    for _ in range(60):
        log = Interactions(
            rng.normal(size=(60, 1)), rng.integers(8, size=60), [1 / 8] * 60, rng.random(60), 8
        )
        naive = off_policy(log, best_constant(log)).value
        honest = off_policy(log, LearnedPolicy(best_constant)).value
        gaps.append((naive - 0.5, honest - 0.5))
    naive, honest = np.mean(gaps, axis=0)
    assert naive > 0.1
    assert abs(honest) < 0.06


def test_features_of_actions_and_contexts_give_the_same_where_both_say_the_same(rng):
    log, P, q = example(rng)
    menus = [np.column_stack([np.tile(x, (K, 1)), np.eye(K)]) for x in log.X]
    same = Interactions(menus, log.actions, log.propensities, log.rewards)
    one, other = off_policy(same, list(P), rewards=q.ravel()), off_policy(log, P, rewards=q)
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))
    by_rows = off_policy(same, lambda rows: np.full(len(rows), 1 / K), rewards=q.ravel())
    uniform = off_policy(log, np.full((len(P), K), 1 / K), rewards=q)
    assert by_rows.value == pytest.approx(uniform.value)


def test_the_reward_model_of_actions_with_features(rng):
    world = decisions.world(rng, features=True)
    log, P = world.log(rng, 1500, decisions.binary)
    q = reward_model(log)
    assert q.shape == (len(log.X),)
    assert (q[: log.offsets[150]] == 0.5).all()
    ips, dr = off_policy(log, P, rewards=0.0 * q), off_policy(log, P)
    assert dr.std_error < 0.8 * ips.std_error
    play = greedy(log)
    assert world.value(play) > world.value(world.logging) + 0.1


# What must not change anything, and what must.


def test_the_logging_policy_itself_is_valued_at_what_it_got(rng):
    X, y = rng.normal(size=(50, d)), rng.integers(K, size=50)
    P = distributions(rng, 50, least=0.1)
    log = logged(rng, X, y, P)
    estimate = off_policy(log, P, rewards=np.zeros((50, K)))
    assert estimate.value == pytest.approx(log.mean_reward, abs=1e-12)
    assert estimate.effective_size == pytest.approx(50.0)


def test_dr_turns_round_with_right_and_wrong_and_ips_does_not(rng):
    log, P, q = example(rng)
    swapped = Interactions(log.X, log.actions, log.propensities, 1.0 - log.rewards, K)
    one, other = off_policy(log, P, rewards=q), off_policy(swapped, P, rewards=1.0 - q)
    assert one.value == pytest.approx(1.0 - other.value, abs=1e-12)
    assert one.std_error == pytest.approx(other.std_error, abs=1e-12)
    total = sum(off_policy(one, P, rewards=0.0 * q).value for one in (log, swapped))
    w = P[np.arange(60), log.actions] / log.propensities
    assert total == pytest.approx(w.mean(), abs=1e-12)


def test_a_policy_may_be_a_matrix_an_agent_a_learner_or_a_function(rng):
    log, _, _ = example(rng)
    learner = Folklore(n_features=d, n_classes=K)
    learner.run(rng.normal(size=(50, d)), rng.integers(K, size=50))
    agent = Banditron(n_features=d, n_classes=K, exploration=0.3)
    for policy, P in [
        (learner, learner.predict(log.X)),
        (agent, agent.policy(log.X)),
        (lambda X: learner.predict(-X), learner.predict(-log.X)),
    ]:
        assert off_policy(log, policy) == off_policy(log, P.tolist())
    assert agent.n_decisions == 0


def test_a_log_that_says_nothing_about_the_policy():
    log = Interactions(np.ones((4, 1)), [0, 0, 1, 0], [0.5] * 4, [1, 0, 1, 1], 3)
    P = np.tile([0.0, 0.0, 1.0], (4, 1))
    with pytest.raises(InvalidInputError, match="gives no probability to any action"):
        off_policy(log, P)


def test_values_are_not_clipped_and_an_interval_outside_says_nothing():
    log = Interactions(np.ones((40, 1)), [0, 1] * 20, [0.1] * 40, [1] * 40, 2)
    estimate = off_policy(log, np.full((40, 2), 0.5), rewards=np.zeros((40, 2)))
    assert estimate.value == pytest.approx(5.0)
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_equal_outcomes_are_no_certainty():
    """20 wrong outcomes: the rule of three would say at most 3/20."""
    log = Interactions(np.ones((20, 1)), [0] * 20, [1.0] * 20, [0] * 20, 2)
    P = np.tile([1.0, 0.0], (20, 1))
    estimate = off_policy(log, P, rewards=np.zeros((20, 2)))
    assert (estimate.value, estimate.low) == (0.0, 0.0)
    assert estimate.high == pytest.approx(1.96 / 20, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"confidence": 1.0}, "confidence must be a number above 0 and below 1, got 1.0"),
        ({"confidence": "high"}, "confidence must be a number above 0"),
        ({"rewards": np.zeros((60, 2))}, r"rewards has shape \(60, 2\); expected"),
        ({"rewards": np.full((60, K), np.nan)}, r"rewards\[0, 0\] is nan; expected a number"),
        ({"rewards": np.full((60, K), 1.5)}, r"rewards\[0, 0\] is 1.5"),
        ({"rewards": np.full(180, 0.5)}, r"rewards has shape \(180,\); expected"),
    ],
)
def test_bad_words_are_refused(words, sentence, rng):
    log, P, _ = example(rng)
    with pytest.raises(InvalidInputError, match=sentence):
        off_policy(log, P, **words)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda P: P[:-1], r"policy has shape \(59, 3\); expected"),
        (lambda P: P.argmax(axis=1), r"policy has shape \(60,\); expected"),
        (lambda P: 2.0 * P, "row 0 of policy"),
        (lambda P: np.full_like(P, 0.25), "row 0 of policy sums to 0.75"),
        (lambda P: np.where(P[7, 1] == P, np.nan, P), "row 7 of policy gives class 1"),
        (lambda P: "greedy", "policy must hold real numbers"),
        (lambda P: Folklore(n_features=d + 1, n_classes=K), "n_features=4"),
        (lambda P: Folklore(n_features=d, n_classes=2), r"policy has shape \(60, 2\)"),
    ],
)
def test_bad_policies_are_refused(spoil, sentence, rng):
    log, P, _ = example(rng)
    with pytest.raises(InvalidInputError, match=sentence):
        off_policy(log, spoil(P))


def test_bad_logs_are_refused(rng):
    with pytest.raises(InvalidInputError, match="at least 2 rounds; the log has 1"):
        off_policy(Interactions([[1.0]], [0], [0.5], [1], 2), [[0.5, 0.5]])
    rare = Interactions([[1.0], [1.0]], [0, 0], [0.5, 1e-300], [1, 1], 2)
    with pytest.raises(InvalidInputError, match="a propensity of 1e-300; .* overflow"):
        off_policy(rare, np.full((2, 2), 0.5))
    with pytest.raises(InvalidInputError, match="n_blocks must be at least 1"):
        reward_model(rare, n_blocks=0)


MENUS = Interactions([np.ones((2, 1)), np.ones((3, 1))], [0, 2], [0.5, 0.5], [1, 0])


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ([[0.5, 0.5]], "policy has 1 entries; expected the probabilities of the actions of each"),
        (None, "policy has 0 entries"),
        ([[0.5, 0.5], [0.5, 0.5]], r"policy has shape \(2,\) in decision 1; expected \(3,\)"),
        ([[0.5, 0.6], [0.0, 0.0, 1.0]], "decision 0 of policy sums to 1.1"),
        (lambda rows: np.full(len(rows), 0.5), "decision 1 of policy sums to 1.5"),
    ],
)
def test_bad_policies_for_actions_with_features_are_refused(policy, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        off_policy(MENUS, policy)


def test_a_learned_policy_needs_rounds(rng):
    log, _, _ = example(rng)

    def uniform(past):
        return lambda X: np.full((len(X), K), 1 / K)

    with pytest.raises(InvalidInputError, match="at least 3 rounds; the log has 2"):
        off_policy(log[:2], LearnedPolicy(uniform))
    with pytest.raises(InvalidInputError, match="n_blocks must be at least 2"):
        off_policy(log, LearnedPolicy(uniform, n_blocks=1))
    assert off_policy(log[:3], LearnedPolicy(uniform)).n_rounds == 2
