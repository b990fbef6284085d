"""Evidence of first order: planes below the losses, against sums that do not round."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax

import folklearn
from folklearn import Evidence, LinearEvidence
from folklearn.evaluate import logistic_regression
from folklearn.kernels import evidence as kernels
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, WEIGHT
from tests.reference.hostile import one_stream
from tests.reference.loss import linear_losses


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
    tau = np.array([1.0, 3.0, 0.1]) * size**2 * 1e6
    least = kernels.penalised_lower_bound(totals, G.T, tau)
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
        assert least <= below + 0.5 * float((tau * W**2).sum())


def test_at_the_best_model_value_and_bound_meet(rng):
    _, _, _, _, totals, G = planes(rng, 200, 4, 5, 1.0)
    pulls = np.sqrt((G**2).sum(axis=1))
    W = -0.01 * G / pulls[:, None]
    bound = kernels.lower_bound_of_planes(totals, pulls, 4, 0.01)
    assert bound > 0.0
    assert value(totals, G, W) == pytest.approx(bound, rel=1e-10)
    tau = 1e6 * np.arange(1.0, 5.0)
    W = -G / tau
    bound = kernels.penalised_lower_bound(totals, G.T, tau)
    assert value(totals, G, W) + 0.5 * float((tau * W**2).sum()) == pytest.approx(bound, rel=1e-10)


def test_no_rows_prove_nothing():
    nothing = np.zeros(N_TOTALS)
    assert kernels.lower_bound_of_planes(nothing, np.zeros(3), 2, 10.0) == 0.0
    assert kernels.penalised_lower_bound(nothing, np.zeros((2, 3)), np.ones(2)) == 0.0
    assert value(nothing, np.zeros((3, 2)), np.ones((3, 2))) == 0.0
    tiny = LinearEvidence(n_features=1, n_classes=2)
    tiny.add([[1.0]], [0], weight=[1e-170])
    assert tiny.lower_bound() == tiny.value([[1.0], [-1.0]]) == 0.0


def test_the_allowance_is_the_one_that_is_proven():
    """docs/theory/evidence.md: c is off by kappa [...], and every entry of G by kappa [...]."""
    K, n, B = 3, 5, 2.0
    totals = np.zeros(N_TOTALS)
    totals[[CONSTANT, WEIGHT, REACH, DEPTH]] = 900.0, 1000.0, 3000.0, 1e9
    pulls = np.array([1.0, 2.0, 3.0])
    kappa = 1.01 * 2.0**-53 * (1e9 + K * K + n + 60.0)
    log_K = math.log(K)
    of_constant = kappa * ((1.0 + log_K) ** 2 * 1000.0 + 900.0)
    of_pulls = kappa * (6.0 + K * (2.0 + 3.0 * log_K) * 3000.0)
    allowed = of_constant + B * of_pulls
    assert allowed > 1e-3
    found = kernels.lower_bound_of_planes(totals, pulls, n, B)
    assert 900.0 - B * 6.0 - found == pytest.approx(allowed, rel=1e-9)
    W = np.eye(K, n)
    G = 0.1 * np.ones((K, n))
    kappa = 1.01 * 2.0**-53 * (1e9 + K * K + n * K + 60.0)
    of_entry = kappa * (2.0 + 3.0 * log_K) * 3000.0
    of_constant = kappa * ((1.0 + log_K) ** 2 * 1000.0 + 900.0)
    assert 900.3 - value(totals, G, W) == pytest.approx(
        of_constant + kappa * 0.3 + K * of_entry, rel=1e-9
    )
    tau = np.arange(1.0, 6.0)
    bent = 0.5 * K * ((0.1 + of_entry) ** 2 / tau).sum() * (1.0 + kappa)
    found = kernels.penalised_lower_bound(totals, G.T, tau)
    assert 900.0 - found == pytest.approx(of_constant + bent, rel=1e-9)
    assert of_entry > 1e-4


@pytest.mark.parametrize("group", range(4))
def test_no_model_of_any_norm_is_below_the_bound(group, seed):
    """Added at any model, dense or sparse, merged, scaled, grown, saved."""
    rng = np.random.default_rng([seed, 80, group])
    for _ in range(20):
        d, K = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        X, Y, weight = one_stream(rng, int(rng.integers(2, 80)), d, K)
        X, weight = np.clip(X, -1e3, 1e3), np.clip(weight, 0.0, 1e3)
        evidence = LinearEvidence(n_features=d, n_classes=K, C=10.0 ** rng.uniform(-4, 1))
        half = len(X) // 2
        at = rng.normal(size=(K, d)) * 10.0 ** rng.uniform(-3, 0)
        evidence.add(X[:half], Y[:half], weight=weight[:half], at=at)
        more = evidence._empty()
        more.add(csr_array(X[half:]), Y[half:], weight=weight[half:])
        both = folklearn.load((evidence + more * 1.0).to_bytes())
        larger = both.grown(n_features=d + 1, n_classes=K + 1)
        for scale in (0.0, 1e-3, 1.0, 100.0):
            W = scale * rng.normal(size=(K, d))
            loss = float(weight @ linear_losses(X, Y, W))
            slack = 1e-12 * (1.0 + weight @ np.linalg.norm(X, axis=1)) * (1.0 + scale)
            assert both.value(W) <= loss + slack
            penalty = 0.5 * float((both.penalties * W**2).sum())
            assert both.lower_bound() <= loss + penalty + slack
            padded = np.pad(W, ((0, 1), (0, 1)))
            assert larger.value(padded) == pytest.approx(both.value(W), rel=1e-9, abs=slack)


def test_at_the_optimum_the_bound_is_the_optimum(rng):
    X, y = rng.normal(size=(300, 3)), rng.integers(4, size=300)
    fit = logistic_regression(X, y, n_classes=4, tol=1e-10)
    evidence = LinearEvidence(n_features=3, n_classes=4)
    evidence.add(X, y, at=fit.W)
    assert evidence.lower_bound() == pytest.approx(fit.loss + fit.penalty, rel=1e-6)


def test_a_plane_touches_evidence_of_second_order(rng):
    X, y = rng.normal(size=(200, 3)), rng.integers(4, size=200)
    evidence = Evidence(n_features=3, n_classes=4)
    evidence.add(X, y)
    bound, W = evidence.minimise()
    touching = LinearEvidence.tangent_to(evidence)
    assert touching.lower_bound() == pytest.approx(bound, rel=1e-9)
    assert touching.lower_bound() <= bound
    assert touching.value(W) == pytest.approx(evidence.value(W), rel=1e-9)
    assert (touching.n_rounds, touching.total_weight) == (200, 200.0)


def test_a_plane_pays_for_the_rounding_of_its_slope(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(3, size=50)
    evidence = Evidence(n_features=2, n_classes=3)
    evidence.add(X, y)
    evidence._totals[DEPTH] = 1e10  # as if it had been through so many additions
    after = LinearEvidence.tangent_to(evidence)
    W = evidence.minimise()[1]
    tangent = evidence._tangent(W, 1.0)
    rounding = tangent.rounding
    of_slope = float((rounding * np.abs(W).sum(axis=1)).sum())
    assert of_slope > 1e-6
    assert after._totals[CONSTANT] <= tangent.value - (tangent.slope * W).sum() - of_slope
    kappa = kernels.relative_rounding(after._totals[DEPTH], 3, 6)
    allowed = kappa * (2.0 + 3.0 * math.log(3)) * after._totals[REACH]
    assert allowed >= rounding.max()


def test_totals_count_rows_weights_and_reach(rng):
    _, _, _, weight, totals, _ = planes(rng, 50, 3, 4, 2.0)
    X = planes(np.random.default_rng(0), 50, 3, 4, 2.0)[0]
    assert totals[DEPTH] == 50.0
    assert totals[WEIGHT] == pytest.approx(weight.sum())
    evidence = LinearEvidence(n_features=3, n_classes=4)
    evidence.add(X, np.zeros(50, int), weight=weight)
    assert evidence._totals[REACH] == pytest.approx(weight @ np.linalg.norm(X, axis=1))
    assert (0.5 * evidence)._totals[DEPTH] == (evidence + evidence)._totals[DEPTH] == 51.0


def test_a_share_of_a_steep_plane_lies_below_the_loss_too():
    """max(0, c + g w) + w^2 / 2, g = -3 c: where the plane is 0 the penalty is c^2 / (2 g^2)."""
    totals = np.zeros(N_TOTALS)
    totals[[CONSTANT, WEIGHT, REACH, DEPTH]] = 2.0, 2.0, 2.0, 1.0
    G = np.array([[-6.0, 0.0]])
    found = kernels.penalised_lower_bound(totals, G, np.ones(1))
    w = 2.0 / 6.0
    assert found == pytest.approx(0.5 * w**2, rel=1e-9)
    assert found <= 0.5 * w**2
