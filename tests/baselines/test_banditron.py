"""Banditron against its slow twin, and the edges of what it accepts."""

import numpy as np
import pytest

from folklearn.baselines import Banditron
from folklearn.errors import FolklearnError
from tests.bandits.forced import act_as, alongside, documented_exploration, easy_stream, play
from tests.reference.bandits import DenseBanditron


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize("exploration", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("delay", [0, 5])
def test_equals_the_dense_twin(K, exploration, delay, rng):
    d = 4
    agent = Banditron(n_features=d, n_classes=K, exploration=exploration)
    twin = DenseBanditron(d, K, exploration)
    alongside(agent, twin, rng, rng.normal(size=(200, d)), delay)
    np.testing.assert_allclose(agent._W, twin.W, atol=1e-9)


def test_ties_go_to_the_lowest_class():
    agent = Banditron(n_features=2, n_classes=3, exploration=0.3)
    np.testing.assert_allclose(agent.policy([1.0, 2.0]), [0.8, 0.1, 0.1], atol=1e-15)
    agent.learn(act_as(agent, np.array([1.0, 0.0]), 1), False)  # now class 0 is behind
    np.testing.assert_allclose(agent.policy([1.0, 2.0]), [0.1, 0.8, 0.1], atol=1e-15)


def test_exploration_by_default_by_hand_and_by_horizon():
    assert Banditron(n_features=2, n_classes=3).exploration == documented_exploration(Banditron)
    assert Banditron(n_features=2, n_classes=3, exploration=0.0).exploration == 0.0
    assert Banditron(n_features=2, n_classes=3, exploration=1).exploration == 1.0
    agent = Banditron(n_features=2, n_classes=3, horizon=1000, D=2.0, R=0.5)
    assert agent.exploration == pytest.approx((3.0 / 2000.0) ** (1.0 / 3.0), rel=1e-12)
    agent = Banditron(n_features=2, n_classes=3, horizon=1000, D=4.0, R=0.5)
    assert agent.exploration == pytest.approx((12.0 / 2000.0) ** (1.0 / 3.0), rel=1e-12)
    assert Banditron(n_features=2, n_classes=9, horizon=4).exploration == 1.0


def test_learns_an_easy_stream(rng):
    """Chance errs 0.75, this 0.06 +- 0.02 over 100 seeds, 0.13 at most."""
    X, y = easy_stream(rng, 2000, 4)
    mistakes = play(Banditron(n_features=4, n_classes=4, exploration=0.05, seed=rng), X, y)
    assert mistakes[1000:].mean() < 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"exploration": -0.1}, "exploration must be a number from 0 to 1"),
        ({"exploration": 1.1}, "exploration must be a number from 0 to 1"),
        ({"exploration": "much"}, "exploration must be a number"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 10.0}, "horizon must be an integer"),
        ({"horizon": 10, "exploration": 0.1}, "not both"),
        ({"D": 0.0}, "D must be a positive number"),
        ({"R": np.nan}, "R must be a positive number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": "abc"}, "seed must be an integer"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(FolklearnError, match=message):
        Banditron(**{"n_features": 2, "n_classes": 2, **arguments})
