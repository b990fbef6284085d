"""What the tangents of evidence allow for rounding: the theorem's terms, one by one."""

import mpmath as mp
import numpy as np
import pytest

from folklearn import Evidence
from folklearn.evidence import evidence as module
from folklearn.evidence.lower_bound import Tangent, round_loss_up
from folklearn.evidence.points import choose_curvatures
from folklearn.kernels.evidence import DEPTH, WEIGHT
from tests.reference.evidence import Sums
from tests.reference.fifty_digits import DIGITS, exact

N_WAITING = 20


@pytest.fixture(autouse=True)
def _few_rows_wait(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", N_WAITING)
    monkeypatch.setattr(module, "SETTLED_ROWS", 30)


def expanded(rng, K, monkeypatch, size=1.0):
    """Evidence of 50 rows, of which 30 are in the sums, and these sums from their definition."""
    seen = []

    def spy(*given):
        seen.append(choose_curvatures(*given))
        return seen[-1]

    monkeypatch.setattr(module, "choose_curvatures", spy)
    X, weight = size * rng.normal(size=(50, 3)), rng.exponential(size=50)
    y = rng.integers(K, size=50)
    evidence = Evidence(n_features=3, n_classes=K)
    evidence.add(X, y, weight=weight)
    waits = (X[:, None] == evidence._rows.X).all(axis=2).any(axis=1)
    order = np.flatnonzero(~waits)  # rows enter the sums in the order in which they came
    Y = np.eye(K)[y]
    sums = Sums.of(X[order], Y[order], weight[order], evidence._W, seen[0])
    waiting = X[waits], Y[waits], weight[waits]
    return evidence, sums, waiting, (X, weight)


@pytest.mark.parametrize("s", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("K", [2, 4])
def test_the_tangent_is_that_of_its_definition(K, s, rng, monkeypatch):
    evidence, sums, (X, Y, weight), _ = expanded(rng, K, monkeypatch)
    for W in (np.zeros((K, 3)), rng.normal(size=(K, 3))):
        value, slope = sums.tangent(W, s)
        P = np.exp(X @ W.T)
        P /= P.sum(axis=1, keepdims=True)
        value += float(weight @ (np.log(np.exp(X @ W.T).sum(axis=1)) - (Y * (X @ W.T)).sum(axis=1)))
        slope = slope + (weight[:, None] * (P - Y)).T @ X
        found = evidence._tangent(W, s)
        assert found.value == pytest.approx(value, rel=1e-11)
        assert found.value < value
        np.testing.assert_allclose(found.slope, slope, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("large", ["nothing", "rows", "weights", "model"])
@pytest.mark.parametrize("K", [2, 4])
def test_the_allowance_is_that_of_the_theorem(K, large, rng, monkeypatch):
    """With a depth of 1e9 it can be seen beside the sums themselves."""
    evidence, sums, (X, _, weight), (all_X, all_weight) = expanded(
        rng, K, monkeypatch, size=1e3 if large == "rows" else 1.0
    )
    W = rng.normal(size=(K, 3)) * (1e3 if large == "model" else 1.0)
    if large == "weights":
        evidence._totals[WEIGHT] += 1e9
        all_weight = np.append(all_weight, 1e9)
        all_X = np.r_[all_X, np.zeros((1, 3))]
    P = np.exp(X @ W.T - (X @ W.T).max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    c0 = sums.c0 - weight @ (P * np.log(np.maximum(P, 1e-300))).sum(axis=1)
    sums = Sums(c0, sums.G0, sums.c1, sums.G1, sums.S)
    N_w, N_x = all_weight.sum(), all_weight @ np.linalg.norm(all_X, axis=1)
    for depth in (1e9, 1e10):
        evidence._totals[DEPTH] = depth - N_WAITING
        e, e_i = sums.allowances(W, N_w, N_x, depth)
        before = evidence._tangent(W, 0.5)
        evidence._totals[DEPTH] = -N_WAITING
        at_none, _ = sums.allowances(W, N_w, N_x, 0.0)
        exact_value = evidence._tangent(W, 0.5).value + at_none
        assert exact_value - before.value == pytest.approx(e, rel=1e-5)
        np.testing.assert_allclose(before.rounding, e_i, rtol=1e-9)


def least_exactly(tangent, tau):
    """The least value of the tangent plus penalty, the slope as bad as its rounding allows."""
    with mp.workdps(DIGITS):
        total = mp.mpf(tangent.value)
        rounding = np.repeat(tangent.rounding, len(tau))
        numbers = zip(
            exact(tangent.W), exact(tangent.slope), exact(tau) * len(tangent.W), exact(rounding),
            strict=True,
        )  # fmt: skip
        for w, g, t, e in numbers:
            total += t * w**2 / 2 - (abs(g + t * w) + e) ** 2 / (2 * t)
        return total


@pytest.mark.parametrize("K", [2, 300])
@pytest.mark.parametrize("rest", [0.0, 1e-9, 1.0])
def test_the_least_value_of_a_tangent_is_rounded_down(K, rest, rng):
    """Many weights, few columns: the penalty is a sum over all of them."""
    n_close = 0
    for _ in range(100):
        tau = 10.0 ** rng.uniform(-3, 3, size=2)
        W = rng.normal(size=(K, 2)) * 10.0 ** rng.uniform(-3, 3, size=(K, 1))
        slope = -tau * W * (1.0 + rest * rng.normal(size=(K, 2)))
        rounding = rest * rng.random(K)
        tangent = Tangent(W, 0.0, slope, rounding)
        found, truth = tangent.least(tau), least_exactly(tangent, tau)
        assert mp.mpf(found) <= truth
        if rest == 0.0:  # whatever the order of the sum
            assert mp.mpf(found) <= truth * (1 - 2 * K * mp.mpf(2) ** -53)
        n_close += found >= float(truth) - 1e-9 * abs(float(truth)) - 1e-12
    assert n_close > 50 or rest == 1.0


def test_a_share_below_one_is_needed_where_the_optimum_is_far(rng, monkeypatch):
    """Points with next to no radius: quadratics that are taken at their word are above the loss."""
    monkeypatch.setattr(module, "_RADIUS", 1e-4)
    monkeypatch.setattr(module, "_MIN_RATIO", 0.0)
    X = np.ones((4000, 1))
    y = np.r_[rng.integers(2, size=60), np.ones(3940, int)]
    evidence = Evidence(n_features=1, n_classes=2, C=100.0)
    evidence.add(X, y)
    bound, W = evidence.minimise()
    loss = float(np.logaddexp(0.0, -(W[1] - W[0]) * (2 * y - 1)).sum())
    penalty = 0.5 * float((evidence.penalties * W**2).sum())
    assert bound <= loss + penalty
    far = np.array([[-3.0], [3.0]])
    assert evidence._share(far) < 1.0
    loss = float(np.log1p(np.exp(-6.0 * (2 * y - 1))).sum())
    assert evidence.value(far) <= loss
    assert evidence._tangent(far, 1.0).value > loss  # it is the share that makes it sound


def test_a_loss_is_rounded_up_before_a_bound_is_taken_from_it(rng):
    terms = rng.random(3000)
    total = 0.0
    for term in terms:
        total += float(term)
    with mp.workdps(DIGITS):
        assert mp.fsum(exact(terms)) <= mp.mpf(round_loss_up(total, 3000))
    evidence = Evidence(n_features=1, n_classes=2)
    evidence.add(np.ones((50, 1)), np.tile([0, 1], 25))
    certificate = evidence.certificate(1e12)
    assert certificate.regret_bound >= 1e12 * (1.0 + 50 * 2.0**-53) - evidence.lower_bound()
    assert certificate.regret_bound == pytest.approx(1e12, rel=1e-9)


def test_depth_counts_rows_merges_and_scalings(rng):
    X = rng.normal(size=(300, 2))
    few, many = (Evidence(n_features=2, n_classes=2) for _ in range(2))
    few.add(X[:10], np.zeros(10, int))
    many.add(X, np.zeros(300, int))
    assert few._all_totals()[DEPTH] == 10
    assert many._all_totals()[DEPTH] == 300
    assert (0.5 * few)._all_totals()[DEPTH] == 11
    assert (0.5 * few).total_weight == 5.0
    n_settled = 300 - len(many._parts()["rows.X"])
    both = few + many
    assert both._all_totals()[DEPTH] == n_settled + 1 + (310 - n_settled)
