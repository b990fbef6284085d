"""Evidence of first order: planes below the losses, against sums that do not round."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from folklearn import Evidence, LinearEvidence
from folklearn.evidence import evidence as evidence_module
from folklearn.kernels import evidence as kernels
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, WEIGHT


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


def test_a_tangent_lies_under_its_evidence(rng, monkeypatch):
    monkeypatch.setattr(evidence_module, "KEPT_ROWS", 60)
    monkeypatch.setattr(evidence_module, "SETTLED_ROWS", 20)
    X, y = rng.normal(size=(200, 3)), rng.integers(4, size=200)
    evidence = Evidence(n_features=3, n_classes=4)
    evidence.add(X, y)
    tangent = LinearEvidence.tangent_to(evidence)
    assert tangent.n_rounds == 200
    assert tangent.lower_bound() <= evidence.lower_bound()
    assert tangent.lower_bound() == pytest.approx(evidence.lower_bound(), rel=1e-5)
    for _ in range(300):
        W = 4.0 * rng.random() * rng.normal(size=(4, 3))
        losses = logsumexp(X @ W.T, axis=1) - (X @ W.T)[np.arange(200), y]
        assert tangent.value(W) <= losses.sum() * (1.0 + 1e-12)


def test_next_to_no_weight_proves_nothing():
    tiny = LinearEvidence(n_features=1, n_classes=2)
    tiny.add([[1.0]], [0], weight=[1e-170])
    assert tiny.lower_bound() == tiny.value([[1.0], [-1.0]]) == 0.0
