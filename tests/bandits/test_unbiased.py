"""Importance weights are unbiased: the mean over all actions, by enumeration, not simulation.

For every action a copy of a trained agent is made to play it and told its outcome; the change
of its state is averaged with the probabilities of its policy.
"""

import copy
import math

import numpy as np
import pytest

from folklearn import Folklore, Ogd
from folklearn.bandits import BanditReduction
from folklearn.baselines import Banditron, Newtron, Obama, Soba
from tests.bandits.forced import act_as, exploitation
from tests.bandits.registered import contexts

D, K = 3, 4
every_label = pytest.mark.parametrize("y", range(K))


@pytest.fixture
def x(rng):
    return contexts(rng, 1, D)[0]


def trained(agent, rng, n_rounds=60):
    for x in contexts(rng, n_rounds, D):
        agent.learn(agent.act(x), bool(rng.random() < 0.5))
    return agent


def mean_over_actions(agent, x, y, change):
    """E over the action of change(agent before, agent after its outcome)."""
    total = 0.0
    for action, probability in enumerate(agent.policy(x)):
        after = copy.deepcopy(agent)
        decision = act_as(after, x, action)
        assert decision.propensity == probability
        after.learn(decision, action == y)
        total = total + probability * change(agent, after)
    return total


def softmax(z):
    p = np.exp(z - z.max())
    return p / p.sum()


@every_label
def test_banditron_takes_the_step_of_the_perceptron(x, y, rng):
    agent = trained(Banditron(n_features=D, n_classes=K, exploration=0.3), rng)
    assert np.abs(agent._W).max() > 0.1
    mean = mean_over_actions(agent, x, y, lambda before, after: after._W - before._W)
    predicted = int(np.argmax(agent._W @ x))
    np.testing.assert_allclose(mean, np.outer(np.eye(K)[y] - np.eye(K)[predicted], x), atol=1e-12)


def newtron_estimate(before, after):
    """Delta (K, d), from b and H: both change by multiples of it, and b by H's change of W."""
    H, b = after._H - before._H, after._b - before._b
    reduced = b + H @ (before._Q.T @ before._W).ravel()
    return before._Q @ reduced.reshape(K - 1, D)


@every_label
def test_newtron_follows_the_gradient_of_the_log_loss(x, y, rng):
    alpha = 4.0
    agent = Newtron(n_features=D, n_classes=K, exploration=0.3, alpha=alpha, beta=0.5, D=2.0)
    W = trained(agent, rng)._W
    assert np.linalg.norm(W) > 0.1
    mean = mean_over_actions(agent, x, y, newtron_estimate)
    gradient = np.outer(softmax(alpha * W @ x) - np.eye(K)[y], x)
    np.testing.assert_allclose(mean, gradient, atol=1e-10)

    def loss(W):
        return -math.log(softmax(alpha * W @ x)[y]) / alpha

    h = 1e-6
    for place in np.ndindex(K, D):
        step = np.zeros((K, D))
        step[place] = h
        slope = (loss(W + step) - loss(W - step)) / (2.0 * h)
        assert mean[place] == pytest.approx(slope, abs=1e-7)


def soba_theta(agent):
    """theta = A W."""
    inverse = np.tril(agent._S) + np.tril(agent._S, -1).T
    return np.linalg.solve(inverse, agent._W.ravel()).reshape(K, D)


@every_label
def test_soba_steps_from_the_rival_to_the_label(x, y, rng):
    agent = trained(Soba(n_features=D, n_classes=K, exploration=0.3), rng)
    agent._total[0] += 1e6  # far from the skipping rule, which is no estimate
    scores = agent._W @ x
    assert np.abs(scores).max() > 1e-3
    rival = max((k for k in range(K) if k != y), key=lambda k: scores[k])
    mean = mean_over_actions(
        agent, x, y, lambda before, after: soba_theta(before) - soba_theta(after)
    )
    np.testing.assert_allclose(mean, np.outer(np.eye(K)[rival] - np.eye(K)[y], x), atol=1e-9)


@every_label
def test_obama_weighs_a_label_by_1_in_the_mean(x, y, rng):
    exploration = 0.6
    agent = Obama(
        n_features=D, n_classes=K, exploration=exploration, B=5.0, n_particles=40, n_moves=2
    )
    trained(agent, rng, n_rounds=30)

    def weight(before, after):
        """c_s, from the weight (mu / K) c_s under which the label entered the history."""
        old, new = (one.to_record().arrays["learner.w"] for one in (before, after))
        return new[len(old) :].sum() / (exploration / K)

    assert mean_over_actions(agent, x, y, weight) == pytest.approx(1.0, rel=1e-12)


@every_label
@pytest.mark.parametrize("decoding", ["sample", "randomised"])
@pytest.mark.parametrize("make", [Folklore, Ogd])
def test_reduction_learns_every_label_with_the_same_probability(x, y, make, decoding, rng):
    """epsilon / K of the step with the label known, whatever the learner thinks of it."""
    epsilon = 0.4
    agent = BanditReduction(
        make(n_features=D, n_classes=K, B=4.0), exploration=epsilon, decoding=decoding
    )
    trained(agent, rng)
    informed = copy.deepcopy(agent.learner)
    assert np.ptp(informed.predict(x)) > 1e-3
    informed.update(x, y)
    step = informed.coef() - agent.learner.coef()
    exploit = exploitation(agent, x)
    mean, chance, total = np.zeros((K, D)), 0.0, 0.0
    for action in range(K):
        for explored, probability in (
            (True, epsilon / K),
            (False, (1.0 - epsilon) * exploit[action]),
        ):
            total += probability
            if probability == 0.0:
                continue
            after = copy.deepcopy(agent)
            decision = act_as(after, x, action, explored=explored)
            assert decision.propensity == agent.policy(x)[action]
            after.learn(decision, action == y)
            change = after.learner.coef() - agent.learner.coef()
            mean += probability * change
            chance += probability * bool(np.any(change != 0.0))
    assert total == pytest.approx(1.0, rel=1e-12)
    assert chance == pytest.approx(epsilon / K, rel=1e-12)
    np.testing.assert_allclose(mean, epsilon / K * step, atol=1e-12)


@every_label
@pytest.mark.parametrize("decoding", ["sample", "randomised"])
def test_reduction_with_all_correct_actions_weighs_every_label_alike(x, y, decoding, rng):
    """Weight epsilon in the mean."""
    learner = Weighed(n_features=D, n_classes=K, B=0.3)
    agent = BanditReduction(learner, exploration=0.4, decoding=decoding, updates="correct")
    trained(agent, rng)
    assert np.ptp(agent.policy(x)) > 1e-3
    mean = mean_over_actions(
        agent, x, y, lambda before, after: after.learner.total - before.learner.total
    )
    assert mean == pytest.approx(0.4, rel=1e-12)


class Weighed(Folklore):
    """Adds up the weights of its examples."""

    total = 0.0

    def _learn(self, x, label, soft, weight):
        self.total += weight
        return super()._learn(x, label, soft, weight)
