"""The exploration of the bandit theorem, and the constant of randomised decoding."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from folklearn import Folklore, Gaf, Laplace, Ogd, auto
from folklearn.bandits import BanditReduction
from folklearn.bandits.reduction import DECODING_COST
from folklearn.kernels.curvature import gamma_star_below
from tests.reference.bandits import decoded, mistake_bound

SIZES = {"n_features": 2, "n_classes": 3}
BALL = {"B": 0.7, "R": 1.3}
DECODINGS = ("sample", "randomised")


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


class OfRegret(Folklore):
    """A learner that states a given bound on its regret."""

    regret = 4.0

    def regret_bound(self, n_rounds):
        return self.regret


def theory(T, *, K=3, regret=4.0, decoding="sample"):
    learner = OfRegret(n_features=1, n_classes=K)
    learner.regret = regret
    return BanditReduction(learner, horizon=T, decoding=decoding).exploration


def test_exploration_and_mistakes_in_numbers():
    assert theory(1200) == pytest.approx(0.1, rel=1e-12)
    bound = mistake_bound(1200, 3, regret=4.0, loss=50.0, exploration=theory(1200))
    assert bound == pytest.approx(50.0 + 2.0 * 120.0, rel=1e-12)  # 2 sqrt(K T R)
    assert theory(12) == 1.0
    assert theory(5) == 1.0  # clipped
    assert theory(5, regret=1e300) == 1.0


@pytest.mark.parametrize(("decoding", "scale"), [("sample", 1.0), ("randomised", DECODING_COST)])
@pytest.mark.parametrize("T", [10, 1000, 10**6])
def test_the_choose_exploration_has_the_least_bound(T, decoding, scale):
    problem = {"regret": 20.0, "loss": 100.0, "cost": scale}
    best = mistake_bound(
        T, 4, **problem, exploration=theory(T, K=4, regret=20.0, decoding=decoding)
    )
    for exploration in np.geomspace(1e-6, 1.0, 200):
        other = mistake_bound(T, 4, **problem, exploration=exploration)
        assert best <= other * (1.0 + 1e-12)


def test_randomised_decoding_has_the_smaller_bound():
    sample, randomised = (theory(5000, regret=30.0, decoding=how) for how in DECODINGS)
    assert randomised < sample
    problem = {"regret": 30.0, "loss": 9.0}
    assert mistake_bound(5000, 3, **problem, exploration=randomised, cost=DECODING_COST) < (
        mistake_bound(5000, 3, **problem, exploration=sample)
    )


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
