"""How actions are played by their gaps, and the most that a round may cost."""

import math

import numpy as np
import pytest

from folklearn.bandits.rewards import RULES
from folklearn.kernels.exploration import draw_action, most_regret
from tests.reference import rewards as reference

every_rule = pytest.mark.parametrize("rule", RULES)


def losses_of_all_kinds(rng, n_actions):
    """Near each other or far apart, all large or all tiny."""
    least = math.exp(rng.uniform(-12.0, 0.0))
    spread = rng.choice([0.01, 0.1, 1.0, 3.0]) * rng.exponential(size=n_actions)
    return np.minimum(least * np.exp(spread), 1.0 - 1e-12)


@every_rule
@pytest.mark.parametrize("n_actions", [2, 3, 7, 40])
def test_rules_by_their_definition(rule, n_actions, rng):
    for _ in range(200):
        losses = losses_of_all_kinds(rng, n_actions)
        gamma = math.exp(rng.uniform(-3.0, 9.0))
        P = RULES[rule].play(losses, gamma)
        assert (P >= 0.0).all()
        assert P.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(P, reference.probabilities(rule, losses, gamma), atol=1e-13)


def test_fastcb_is_sure_where_an_action_costs_nothing():
    play = RULES["fastcb"].play
    np.testing.assert_allclose(play(np.array([0.0, 0.3, 0.0]), 5.0), [2 / 3, 0.0, 1 / 3])
    np.testing.assert_allclose(play(np.zeros(4), 5.0), 0.25)


@every_rule
def test_the_most_regret_is_that_of_the_worst_world(rule, rng):
    for _ in range(100):
        n_actions = int(rng.integers(2, 8))
        losses = np.clip(losses_of_all_kinds(rng, n_actions), 1e-4, 1.0 - 1e-4)
        gamma, eta = np.exp(rng.uniform(-1.0, 5.0, 2))
        P = RULES[rule].play(losses, gamma)
        most = most_regret(P, losses, eta)
        assert most == pytest.approx(reference.most_regret(P, losses, eta), abs=1e-7)
        for truth in rng.random((50, n_actions)):
            assert reference.regret_beyond(P, losses, eta, truth) <= most + 1e-12


@every_rule
@pytest.mark.parametrize("eta", [1e-15, 1e-3, 1e-2, 1.0, 1e10])
def test_the_most_regret_is_from_0_to_1_at_the_extremes(rule, eta):
    extremes = [0.0, 1e-300, 0.5, 1.0]
    for losses in (np.array([f, g, h]) for f in extremes for g in extremes for h in extremes):
        P = RULES[rule].play(losses, 8.0 * eta)
        assert P.sum() == pytest.approx(1.0, abs=1e-12)
        assert -1e-12 <= most_regret(P, losses, eta) <= 1.0 + 1e-12


@pytest.mark.parametrize("n_actions", [2, 3, 10, 100])
def test_no_round_costs_more_than_the_theorems_say(n_actions, rng):
    """SquareCB: 2 (K-1) / gamma at eta = gamma / 8. FastCB: 2 K f_b / gamma at eta = gamma."""
    for _ in range(5000):
        losses = losses_of_all_kinds(rng, n_actions)
        gamma = math.exp(rng.uniform(-1.0, 12.0))
        square = RULES["squarecb"]
        cost = most_regret(square.play(losses, gamma), losses, square.price * gamma)
        assert cost <= 2.0 * (n_actions - 1.0) / gamma * (1.0 + 1e-9)
        gamma = 2.0 * n_actions * math.exp(rng.exponential(3.0))
        fast = RULES["fastcb"]
        cost = most_regret(fast.play(losses, gamma), losses, fast.price * gamma)
        assert cost <= 2.0 * n_actions * losses.min() / gamma * (1.0 + 1e-9) + 1e-15


def test_squared_errors_are_at_most_half_the_excess_loss(rng):
    """Pinsker's inequality for coins: what makes SquareCB's price an eighth of gamma."""
    q, f = rng.random((2, 100_000))
    assert ((q - f) ** 2 <= 0.5 * reference.divergence(q, f) + 1e-15).all()


def test_an_action_without_mass_is_never_drawn():
    P = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    assert [draw_action(P, u) for u in (0.0, 0.2499, 0.25, 0.5, np.nextafter(1.0, 0.0))] == [
        1,
        1,
        3,
        3,
        3,
    ]
    assert draw_action(np.array([0.1] * 10), np.nextafter(1.0, 0.0)) == 9
