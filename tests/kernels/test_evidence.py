"""Every line that a floor rests on: one row from its definition, and the rounding of the sums."""

import math

import numpy as np
import pytest

from folklearn import Evidence
from folklearn.kernels.curvature import gamma_star_below, valid_curvature
from folklearn.kernels.evidence import (
    CONSTANT,
    DEPTH,
    N_TOTALS,
    REACH,
    ROUNDS,
    WEIGHT,
    add_products,
    certain_curvature,
    expand_row,
)
from folklearn.kernels.lower_bound import _Evaluated
from folklearn.kernels.quadratic import Quadratic
from tests.reference.evidence import rounding


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("B", [0.0, 10.0])
def test_a_row_is_expanded_as_defined(K, B, soft):
    rng = np.random.default_rng(K)
    z, weight, length = 3.0 * rng.normal(size=K), 2.5, 1.7
    y = rng.dirichlet(np.ones(K)) if soft else np.eye(K)[1]
    label, given = (-1, y) if soft else (1, np.empty(0))
    pairs, residual, totals = np.empty(K * (K - 1) // 2), np.empty(K), np.zeros(N_TOTALS)
    a = z - z.max()
    expand_row(z.copy(), label, given, weight, length, B, pairs, residual, totals)
    p = np.exp(a) / np.exp(a).sum()
    gamma = 0.5 if B == 0.0 else certain_curvature(a, 2.0 * B * length)
    away = a - p @ a
    i, j = np.triu_indices(K, 1)
    np.testing.assert_allclose(pairs, weight * gamma * p[i] * p[j], rtol=1e-12)
    np.testing.assert_allclose(residual, weight * (p - y - 2 * gamma * p * away), rtol=1e-9)
    entropy = -(p @ np.log(p))
    assert totals[CONSTANT] == pytest.approx(weight * (entropy + gamma * (p @ away**2)))
    assert totals[WEIGHT] == weight
    assert totals[REACH] == pytest.approx(weight * length)
    assert totals[DEPTH] == totals[ROUNDS] == 1.0


def test_the_curvature_of_a_row_leaves_room_for_rounding():
    rng = np.random.default_rng(0)
    for K in (2, 3, 9):
        for _ in range(50):
            a = 5.0 * rng.normal(size=K)
            a -= a.max()
            used = certain_curvature(a, 20.0)
            assert used <= (1.0 - 0.9e-8) * valid_curvature(a, 20.0)
            assert used >= 0.999 * valid_curvature(a, 20.0)
    far = np.array([0.0, -25.0])
    assert certain_curvature(far, 20.0) == pytest.approx(gamma_star_below(20.0), rel=1e-7)


@pytest.mark.parametrize("m", [9, 1, 300])  # 300 are more than are added at once
@pytest.mark.parametrize("d", [1, 7, 161])
def test_products_enter_their_places(d, m):
    rng = np.random.default_rng(d)
    X, coefficients = rng.normal(size=(m, d)), rng.random(size=(m, 3))
    S = np.ones((3, d * (d + 1) // 2))
    add_products(S, coefficients, X)
    for pair in range(3):
        square = 1.0 + (X.T * coefficients[:, pair]) @ X
        np.testing.assert_allclose(S[pair], square[np.tril_indices(d)], rtol=1e-9)


def test_depth_counts_rows_merges_and_scalings():
    X = np.random.default_rng(0).normal(size=(300, 2))
    few, many = (Evidence(n_features=2, n_classes=2) for _ in range(2))
    few.add(X[:10], np.zeros(10, int))
    many.add(X, np.zeros(300, int))
    assert few._totals[DEPTH] == 10
    assert many._totals[DEPTH] == 300
    assert (few + many)._totals[DEPTH] == (many + few)._totals[DEPTH] == 301
    assert (0.5 * few)._totals[DEPTH] == 11
    assert (0.5 * few).total_weight == 5.0


SIZES = {
    "weight": {"weight": 1e6},
    "constant": {"constant": 1e6},
    "reach": {"reach": 1e6},
    "curvature": {"S": 1e6},
    "multipliers": {"dual": 1e6},
    "depth alone": {},
}


@pytest.mark.parametrize("large", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("K", [2, 4])
def test_the_allowance_for_rounding_is_that_of_the_theorem(K, large):
    """With a depth of 1e9 it can be seen beside the sums themselves."""
    d, B = 3, 10.0
    rng = np.random.default_rng(K)
    rows = rng.normal(size=(K * (K - 1) // 2, 4, d))
    S = np.array([(x.T @ x)[np.tril_indices(d)] for x in rows]) * large.get("S", 1.0)
    G, W = rng.normal(size=(K, d)), rng.normal(size=(K, d))
    totals = np.zeros(N_TOTALS)
    totals[[CONSTANT, WEIGHT, REACH, DEPTH]] = (
        large.get("constant", 1.0), large.get("weight", 1.0), large.get("reach", 1.0), 1e9,
    )  # fmt: skip
    dual = rng.random(K) * large.get("dual", 1.0) + 0.1
    quadratic = Quadratic(S, G, totals)
    for multipliers, norm in ((dual, B), (np.zeros(K), 0.0)):  # the class, and W alone
        ours = _Evaluated(quadratic.form(), W, multipliers, norm)
        value, e_q, e_i, floor = rounding(S, G, totals, W, multipliers, norm)
        np.testing.assert_allclose(ours.rounding, e_i, rtol=1e-6)
        assert value - ours.below == pytest.approx(value - floor, rel=1e-6, abs=1e-6 * e_q)


def test_a_loss_is_rounded_up_before_a_floor_is_taken_from_it():
    evidence = Evidence(n_features=1, n_classes=2)
    evidence.add(np.ones((50, 1)), np.tile([0, 1], 25))
    loss = 1e12
    certificate = evidence.certificate(loss)
    assert certificate.regret_bound >= loss * (1.0 + 50 * 2.0**-53) - evidence.lower_bound()
    assert math.isclose(certificate.regret_bound, loss, rel_tol=1e-9)
