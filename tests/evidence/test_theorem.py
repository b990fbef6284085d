"""Bounds that need no norm: the theorem of docs/theory/evidence.md on its slow twin, attacked.

Every draw is from a generator with a fixed seed; FOLKLEARN_TEST_SEED gives others.
"""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import softmax

from tests.reference import unconstrained as twin
from tests.reference.hostile import one_stream
from tests.reference.unconstrained import LiveBound

DIGITS = 50


def exact_constant(theta):
    """The least c of a zone: f(1 - theta) / theta^2 with 50 digits."""
    u = 1 - theta
    return (u * mp.log(u) - u + 1 if u > 0 else mp.mpf(1)) / theta**2


def test_the_constant_of_a_reach_is_above_the_least_one():
    with mp.workdps(DIGITS):
        for theta in [mp.mpf(10) ** -k for k in range(1, 12)] + [
            mp.mpf(k) / 64 for k in range(1, 65)
        ]:
            least = exact_constant(theta)
            reach = float(2 * theta * least)
            chosen = mp.mpf(float(twin.constant(np.array(reach))))
            assert chosen >= least * (1 - mp.mpf(2) ** -51)
            assert chosen <= least * mp.mpf("1.02")


def test_the_summand_of_kl_is_below_its_parabola():
    """f(u) <= c (u - 1)^2 for u >= 1 - theta, where theta = reach / (2 c) <= 1."""
    with mp.workdps(DIGITS):
        for reach in np.geomspace(1e-6, 1e4, 61):
            c = mp.mpf(float(twin.constant(np.array(reach))))
            theta = mp.mpf(float(reach)) / (2 * c)
            assert theta <= 1
            for step in [*np.linspace(0.0, 1.0, 21), 2.0, 10.0, 1e3, 1e9]:
                u = (1 - theta) + mp.mpf(float(step)) * theta
                f = u * mp.log(u) - u + 1 if u > 0 else mp.mpf(1)
                assert f <= c * (u - 1) ** 2 * (1 + mp.mpf(10) ** -15) + mp.mpf(10) ** -40


def exact_divergence(v, p):
    with mp.workdps(DIGITS):
        terms = [mp.mpf(float(b)) * mp.exp(mp.mpf(float(a))) for a, b in zip(v, p, strict=True)]
        total = mp.fsum(mp.mpf(float(b)) for b in p)
        mean = mp.fsum(mp.mpf(float(b)) * mp.mpf(float(a)) for a, b in zip(v, p, strict=True))
        return float(mp.log(mp.fsum(terms) / total) - mean / total)


def draw_row(rng):
    """p (K,), a step v (K,) and reaches (K,), of every size."""
    K = int(rng.integers(2, 8))
    z = rng.normal(size=K) * 10.0 ** rng.uniform(-2, 2.2)
    v = rng.normal(size=K) * 10.0 ** rng.uniform(-5, 2.5)
    return softmax(z), v, 10.0 ** rng.uniform(-4, 3, size=K)


def test_the_lower_function_is_below_the_divergence_everywhere(rng):
    for _ in range(1500):
        p, v, reach = draw_row(rng)
        divergence = exact_divergence(v, p)
        below = twin.lower_function(v, p, reach)
        assert below <= divergence + 1e-9 * (1.0 + abs(divergence) + np.abs(v).max())


def test_in_the_zone_it_is_the_quadratic(rng):
    n_inside = 0
    for _ in range(1500):
        p, v, reach = draw_row(rng)
        r = p / twin.constant(reach)
        centred = v - r @ v / r.sum()
        quadratic = 0.25 * r @ centred**2
        below = twin.lower_function(v, p, reach)
        size = 1e-9 * (1.0 + quadratic + np.abs(v).max())
        if np.all(centred >= -reach):
            n_inside += 1
            assert below == pytest.approx(quadratic, abs=size)
        else:
            assert below <= quadratic + size
    assert n_inside > 300


def test_chosen_zones_hold_every_step_of_the_ellipsoid(rng):
    """And the quadratics are then below the divergence of every such step."""
    for _ in range(200):
        K, d = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        X = rng.normal(size=(3, d)) * 10.0 ** rng.uniform(-2, 2, size=(3, 1))
        root = rng.normal(size=(K * d, K * d)) * 10.0 ** rng.uniform(-1, 1, size=K * d)
        M = root @ root.T + 1e-3 * np.eye(K * d)
        radius = 10.0 ** rng.uniform(-1, 2)
        P = softmax(rng.normal(size=(3, K)) * 3.0, axis=1)
        r = twin.choose_curvatures(P, twin.pair_distances(X, np.linalg.inv(M), K), radius)
        for _ in range(10):
            step = rng.normal(size=K * d)
            step *= radius / np.sqrt(step @ M @ step)
            for x, p, curvature in zip(X, P, r, strict=True):
                v = step.reshape(K, d) @ x
                centred = v - curvature @ v / curvature.sum()
                c = p / curvature
                theta = -centred / (2.0 * c)
                assert np.all(theta <= 1.0 + 1e-9)
                least = [twin.least_constant(min(t, 1.0)) for t in np.maximum(theta, 0.0)]
                assert np.all(c >= np.array(least) * (1.0 - 1e-9))
                assert 0.25 * curvature @ centred**2 <= exact_divergence(v, p) * (1 + 1e-9) + 1e-12


def penalised_optimum(X, Y, weight, tau):
    """The least penalised loss, all rows kept: no expansion is involved."""
    exact = LiveBound(Y.shape[1], tau, n_waiting=len(X))
    exact.rows = X, Y, weight
    W, _ = exact.minimise(exact.W, 1.0, most_steps=200)
    return exact.objective(W, 1.0)[0]


@pytest.mark.parametrize("group", range(12))
def test_no_model_of_any_norm_is_below_the_bound(group, seed):
    """Hostile rows, weights and labels; few rows wait, so that most are expanded early."""
    rng = np.random.default_rng([seed, group])
    n_proven = 0
    for _ in range(15):
        d, K = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        X, Y, weight = one_stream(rng, int(rng.integers(80, 400)), d, K)
        X = np.clip(X, -1e3, 1e3)
        weight = np.clip(weight, 0.0, 1e4)
        tau = 10.0 ** rng.uniform(-3, 1, size=d)
        live = LiveBound(
            K, tau, n_waiting=int(rng.integers(10, 60)), radius=10.0 ** rng.uniform(0, 2)
        )
        live.extend(X, Y, weight)
        bound = live.bound()
        optimum = penalised_optimum(X, Y, weight, tau)
        assert bound["bound"] <= optimum + 1e-7 * (1.0 + abs(optimum))
        assert bound["s"] * bound["needed"] <= bound["radius"]
        n_proven += bound["bound"] >= 0.8 * optimum
    assert n_proven >= 3  # a bound that says nothing would be below too


def test_tangents_part_of_the_way_are_sound_too(rng):
    X, Y, weight = rng.normal(size=(300, 3)), np.eye(3)[rng.integers(3, size=300)], np.ones(300)
    tau = np.ones(3)
    live = LiveBound(3, tau, n_waiting=50, radius=0.05)
    live.extend(X, Y, weight)
    bound = live.bound()
    assert bound["s"] < 1.0
    assert bound["bound"] <= penalised_optimum(X, Y, weight, tau)


def test_what_is_new_waits(rng):
    """A column that opens late: its rows are kept, and the bound stays close."""
    T, late = 3000, 1500
    X = np.c_[rng.normal(size=(T, 3)), np.ones(T)]
    X[:late, 2] = 0.0
    y = (X @ np.array([1.0, -1.0, 3.0, 0.0]) + rng.logistic(size=T) > 0.0).astype(int)
    live = LiveBound(2, np.ones(4), n_waiting=300)
    live.extend(X[:late], np.eye(2)[y[:late]])
    live.extend(X[late : late + 200], np.eye(2)[y[late : late + 200]])
    n_late_waiting = np.count_nonzero(live.rows[0][:, 2])
    assert n_late_waiting / 300 > 1.5 * 200 / (late + 200)
    live.extend(X[late + 200 :], np.eye(2)[y[late + 200 :]])
    optimum = penalised_optimum(X, np.eye(2)[y], np.ones(T), np.ones(4))
    assert 0.98 * optimum <= live.bound()["bound"] <= optimum
