"""Evidence of first order: planes below the losses, against sums that do not round."""

import math

import numpy as np
import pytest
from scipy.special import softmax

from folklearn import Evidence, LinearEvidence
from folklearn.errors import InvalidInputError
from folklearn.kernels import evidence as kernels
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, WEIGHT
from folklearn.kernels.lower_bound import _evaluate, plane, project_into_class


def planes(rng, T, d, K, size):
    """Totals and G of T rows with soft labels and any predictions, and the rows themselves."""
    X, P = size * rng.normal(size=(T, d)), softmax(5.0 * rng.normal(size=(T, K)), axis=1)
    Y = rng.dirichlet(np.full(K, 0.3), size=T)
    weight = rng.choice([0.0, 1.0, 1000.0], size=T)
    totals, G, residual = np.zeros(N_TOTALS), np.zeros((K, d)), np.empty(K)
    for x, p, y, w in zip(X, P, Y, weight, strict=True):
        kernels.add_tangent(p, -1, y, w, math.sqrt(x @ x), residual, totals)
        G += np.outer(residual, x)
    return X, P, Y, weight, totals, G


def value(totals, G, W):
    return kernels.value_of_planes(totals, G.T, W.T, np.sqrt((W**2).sum(axis=1)).max())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("K", [2, 7])
def test_the_value_is_the_sum_of_the_planes_rounded_down(K, size, rng):
    X, P, Y, weight, totals, G = planes(rng, 300, 3, K, size)
    for _ in range(20):
        W = rng.normal(size=(K, 3)) * 1e-3 / size
        terms = [
            w * ((y - p) @ -(W @ x) - p @ np.log(p))
            for x, p, y, w in zip(X, P, Y, weight, strict=True)
        ]
        below = value(totals, G, W)
        assert 0.0 < below <= math.fsum(terms) <= below * (1.0 + 1e-10)
        lengths = np.sqrt((W**2).sum(axis=1))
        pulls = np.sqrt((G**2).sum(axis=1))
        assert kernels.lower_bound_of_planes(totals, pulls, 3, lengths.max()) <= below


def test_at_the_best_of_the_class_value_and_floor_meet(rng):
    _, _, _, _, totals, G = planes(rng, 200, 4, 5, 1.0)
    pulls = np.sqrt((G**2).sum(axis=1))
    W = -0.01 * G / pulls[:, None]
    floor = kernels.lower_bound_of_planes(totals, pulls, 4, 0.01)
    assert floor > 0.0
    assert value(totals, G, W) == pytest.approx(floor, rel=1e-10)


def test_no_rows_prove_nothing():
    assert kernels.lower_bound_of_planes(np.zeros(N_TOTALS), np.zeros(3), 2, 10.0) == 0.0
    assert value(np.zeros(N_TOTALS), np.zeros((3, 2)), np.ones((3, 2))) == 0.0


def test_the_allowance_is_the_one_that_is_proven():
    """docs/theory/large-problems.md: c is off by kappa [...], and every norm by kappa [...]."""
    K, n, B = 3, 5, 2.0
    totals = np.zeros(N_TOTALS)
    totals[[CONSTANT, WEIGHT, REACH, DEPTH]] = 900.0, 1000.0, 3000.0, 1e9
    pulls = np.array([1.0, 2.0, 3.0])
    kappa = 1.01 * 2.0**-53 * (1e9 + K * K + n + 60.0)
    log_K = math.log(K)
    of_constant = kappa * ((1.0 + log_K) ** 2 * 1000.0 + 900.0)
    of_pulls = kappa * (6.0 + K * (2.0 + 3.0 * log_K) * 3000.0)
    exact = 900.0 - B * 6.0
    allowed = of_constant + B * of_pulls
    assert allowed > 1e-3
    assert exact - kernels.lower_bound_of_planes(totals, pulls, n, B) == pytest.approx(
        allowed, rel=1e-9
    )
    W = np.eye(K, n)
    G = 0.1 * np.ones((K, n))
    kappa = 1.01 * 2.0**-53 * (1e9 + K * K + n * K + 60.0)
    of_product = kappa * (0.3 + K * (2.0 + 3.0 * log_K) * 3000.0 * 1.0)
    of_constant = kappa * ((1.0 + log_K) ** 2 * 1000.0 + 900.0)
    assert 900.3 - value(totals, G, W) == pytest.approx(of_constant + of_product, rel=1e-9)


def test_a_plane_lies_under_its_quadratic(rng):
    X, y = rng.normal(size=(200, 3)), rng.integers(4, size=200)
    evidence = Evidence(n_features=3, n_classes=4, B=2.0)
    evidence.add(X, y, at=rng.normal(size=(4, 3)))
    here = project_into_class(rng.normal(size=(4, 3)), 2.0)
    c, G = plane(evidence._sums, here, 2.0)
    assert c + (G * here).sum() == pytest.approx(evidence.value(here), rel=1e-9)
    assert c + (G * here).sum() <= evidence.value(here)
    _, best = plane(evidence._sums, evidence.minimise().W, 2.0)
    for _ in range(300):
        W = project_into_class(4.0 * rng.normal(size=(4, 3)), 2.0)
        assert c + (G * W).sum() <= evidence.value(W)
    assert LinearEvidence.tangent_to(evidence).lower_bound() == pytest.approx(
        evidence.lower_bound(), rel=1e-5
    )
    assert np.abs(best).max() > 0.0


def test_a_plane_pays_for_the_rounding_of_its_gradient(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(3, size=50)
    evidence = Evidence(n_features=2, n_classes=3, B=2.0)
    evidence.add(X, y)
    W = project_into_class(rng.normal(size=(3, 2)), 2.0)
    before, _ = plane(evidence._sums, W, 2.0)
    evidence._totals[DEPTH] = 1e10  # as if it had been through so many additions
    here = _evaluate(evidence._sums.form(), W)
    after, _ = plane(evidence._sums, W, 2.0)
    of_gradient = 4.0 * here.rounding.sum()
    assert of_gradient > 1e-4
    assert before - after >= of_gradient


def test_limits_travel(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(3, size=50)
    second = Evidence(n_features=2, n_classes=3, B=2.0)
    second.add(X, y)
    limited, free = (
        LinearEvidence.tangent_to(second),
        LinearEvidence(n_features=2, n_classes=3, B=2.0),
    )
    free.add(X, y)
    assert free.lower_bound(B=50.0) == 0.0
    for one in (limited, limited + free, free + limited, 0.5 * limited, limited.grown(n_classes=5)):
        assert one.lower_bound(B=2.0) > 0.0
        with pytest.raises(InvalidInputError, match="larger than the class"):
            one.lower_bound(B=2.1)
        with pytest.raises(InvalidInputError, match="row of norm"):
            one.value(3.0 * np.eye(one.n_classes, 2))
        again = LinearEvidence.from_record(one.to_record())
        assert again.largest_B == 2.0


def test_next_to_no_weight_proves_nothing():
    tiny = LinearEvidence(n_features=1, n_classes=2, B=10.0)
    tiny.add([[1.0]], [0], weight=[1e-170])
    assert tiny.lower_bound() == tiny.value([[1.0], [-1.0]]) == 0.0
