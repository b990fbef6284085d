"""The bandit theorems as functions, and the constant of randomised decoding."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from folklearn import Folklore, Gaf, Laplace, Ogd, auto
from folklearn.bandits.reduction import DECODING_COST, bandit_exploration, bandit_mistakes
from folklearn.errors import InvalidInputError
from folklearn.kernels.curvature import gamma_star_below
from tests.reference.bandits import decoded

SIZES = {"n_features": 2, "n_classes": 3}
BALL = {"B": 0.7, "R": 1.3}


def cost(p, y):
    """Chance of a mistake by randomised decoding over the log loss."""
    return (1.0 - decoded(p, "randomised")[y]) / -math.log(p[y])


def test_the_decoding_cost_is_the_supremum_over_the_simplex(rng):
    """Reached by two classes of which the less likely one, of about 0.434, is right."""
    a = np.linspace(0.0, 1.0, 2001)[1:-1]
    two = np.array([[cost(np.array([p, 1.0 - p]), y) for y in (0, 1)] for p in a])
    best = minimize_scalar(
        lambda p: -cost(np.array([p, 1.0 - p]), 0), bounds=(0.35, 0.49), method="bounded"
    )
    assert 0.7467 < -best.fun <= DECODING_COST
    assert two.max() <= -best.fun + 1e-9
    assert two.max() == pytest.approx(-best.fun, abs=1e-6)
    grid = np.linspace(0.0, 1.0, 101)
    for p in ((u, v, max(0.0, 1.0 - u - v)) for u in grid for v in grid if 0.0 < u < 1.0 - v):
        assert cost(np.array(p), 0) <= -best.fun + 1e-9
    for K in (3, 4, 7):
        for p in rng.dirichlet(np.full(K, 0.7), size=1000):
            y = int(rng.integers(K))
            if 0.0 < p[y] < 1.0:
                assert cost(p, y) <= -best.fun + 1e-9


def test_sampling_costs_at_most_1(rng):
    for p in rng.dirichlet(np.ones(4), size=500):
        assert 1.0 - decoded(p, "sample")[0] <= -math.log(p[0])


def test_exploration_in_numbers():
    exploration = bandit_exploration
    assert exploration(1200, n_classes=3, regret=4.0) == pytest.approx(0.1, rel=1e-12)
    assert exploration(1200, n_classes=3, regret=4.0, cost=0.25) == pytest.approx(0.05, rel=1e-12)
    assert exploration(12, n_classes=3, regret=4.0) == 1.0
    assert exploration(5, n_classes=3, regret=4.0) == 1.0  # clipped
    assert exploration(5, n_classes=3, regret=math.inf) == 1.0
    assert exploration(5, n_classes=3, regret=0.0) == 0.0


def test_mistakes_in_numbers():
    mistakes = bandit_mistakes
    problem = {"n_classes": 3, "regret": 4.0, "loss": 50.0}
    assert mistakes(1200, **problem) == pytest.approx(50.0 + 2.0 * 120.0, rel=1e-12)
    assert mistakes(1200, **problem, cost=0.25) == pytest.approx(12.5 + 120.0, rel=1e-12)
    assert mistakes(1200, **problem, exploration=0.5) == pytest.approx(50 + 600 + 24, rel=1e-12)
    assert mistakes(4, **problem) == pytest.approx(50 + 4 + 12, rel=1e-12)  # clipped at 1
    assert mistakes(1200, **problem, exploration=0.0) == math.inf
    assert mistakes(1200, n_classes=3, regret=math.inf, loss=1.0) == math.inf


@pytest.mark.parametrize("scale", [1.0, DECODING_COST])
@pytest.mark.parametrize("T", [10, 1000, 10**6])
def test_the_choose_exploration_has_the_least_bound(T, scale):
    problem = {"n_classes": 4, "regret": 20.0, "loss": 100.0, "cost": scale}
    best = bandit_mistakes(T, **problem)
    for exploration in np.geomspace(1e-6, 1.0, 200):
        other = bandit_mistakes(T, **problem, exploration=exploration)
        assert best <= other * (1.0 + 1e-12)


def test_randomised_decoding_has_the_smaller_bound():
    problem = {"n_classes": 3, "regret": 30.0}
    T, cost = 5000, DECODING_COST
    assert bandit_exploration(T, **problem, cost=cost) < bandit_exploration(T, **problem)
    assert bandit_mistakes(T, **problem, loss=9.0, cost=cost) < bandit_mistakes(
        T, **problem, loss=9.0
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_rounds": 0}, "n_rounds must be at least 1"),
        ({"n_rounds": 1.5}, "n_rounds must be an integer"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
    ],
)
def test_bad_sizes_are_refused(arguments, message):
    problem = {"n_rounds": 10, "n_classes": 2, "regret": 1.0, **arguments}
    with pytest.raises(InvalidInputError, match=message):
        bandit_exploration(**problem)
    with pytest.raises(InvalidInputError, match=message):
        bandit_mistakes(**problem, loss=1.0)
    with pytest.raises(InvalidInputError, match="exploration must be a number from 0 to 1"):
        bandit_mistakes(10, n_classes=2, regret=1.0, loss=1.0, exploration=1.5)


def folklore_bound(T, gammas, lam):
    """Theorem F2 of docs/theory/folklore.md, for `SIZES` and `BALL`."""
    least, most = gammas
    (d, K), (B, R) = SIZES.values(), BALL.values()
    growth = math.log1p(most * T * R**2 / (lam * K * d))
    return lam * K * B**2 + 0.25 * (1.0 / least + R**2 / (4.0 * lam)) * (K - 1) * d * growth


_GAMMA = float(gamma_star_below(2.0 * 0.7 * 1.3 + math.log(2)))
REGRET_BOUNDS = {
    "folklore": (
        Folklore(**SIZES, **BALL),
        lambda T: folklore_bound(T, (_GAMMA, 0.5), 2.0 * 1.3 / 0.7),
    ),
    "folklore, lam": (
        Folklore(**SIZES, **BALL, lam=0.3),
        lambda T: folklore_bound(T, (_GAMMA, 0.5), 0.3),
    ),
    "folklore, gamma": (
        Folklore(**SIZES, **BALL, gamma=0.01),
        lambda T: folklore_bound(T, (0.01, 0.01), 2.0 * 1.3 / 0.7),
    ),
    "folklore, gamma too large": (Folklore(**SIZES, **BALL, gamma=0.5), lambda T: math.inf),
    "gaf": (Gaf(**SIZES, **BALL, lam=0.5, mu=0.01), lambda T: T * math.log(3 / 0.01)),
    "gaf, no mass": (Gaf(**SIZES, **BALL, mu=0.0, improved=True), lambda T: math.inf),
    "laplace": (Laplace(**SIZES), lambda T: math.inf),
    "ogd": (Ogd(**SIZES, **BALL), lambda T: 1.5 * math.sqrt(2.0) * 1.3 * 1.4 * math.sqrt(3 * T)),
    "ogd, constant rate": (Ogd(**SIZES, **BALL, rate=0.1), lambda T: math.inf),
}


@pytest.mark.parametrize("name", REGRET_BOUNDS)
@pytest.mark.parametrize("T", [1, 10, 10**6])
def test_a_learner_knows_its_own_bound(name, T):
    learner, bound = REGRET_BOUNDS[name]
    assert learner.regret_bound(T) == pytest.approx(bound(T), rel=1e-14)


def test_a_mixture_states_no_bound():
    assert auto(**SIZES).regret_bound(100) == math.inf


@pytest.mark.parametrize("bad", [math.nan, -1.0, "much", None])
def test_regrets_and_losses_that_are_none_are_refused(bad):
    with pytest.raises(InvalidInputError, match="regret must be"):
        bandit_exploration(10, n_classes=3, regret=bad)
    with pytest.raises(InvalidInputError, match="loss must be"):
        bandit_mistakes(10, n_classes=3, regret=1.0, loss=bad)
