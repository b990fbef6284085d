"""Every line that the curvature of a row rests on, against exact numbers.

Each of these tests fails without the line that it names. A model is within the radius of a point
if one shift c has a small enough sum of |L_k' (D_k - c)|^2: the exact least one is compared.
"""

import mpmath as mp
import numpy as np
import pytest

from folklearn import Evidence
from folklearn.evidence import evidence as module
from folklearn.evidence.points import ExpansionPoint, choose_curvatures, curvature_constant
from folklearn.validation import longest_row
from tests.reference.fifty_digits import DIGITS, exact


def exact_matrix(values):
    return mp.matrix([exact(row) for row in values])


def exact_constant(reach):
    """c(rho) of the page's (4)."""
    return reach / 2 if reach >= 2 else mp.mpf(1) / 2 + reach / 6 + reach**2 / 24


def test_the_constant_of_a_reach():
    reach = np.r_[0.0, np.geomspace(1e-9, 1e9, 200), 2.0 - 1e-15, 2.0]
    with mp.workdps(DIGITS):
        for found, rho in zip(curvature_constant(reach), exact(reach), strict=True):
            assert mp.mpf(float(found)) == pytest.approx(exact_constant(rho), rel=1e-15)


def test_curvatures_pay_for_reach_cancellation_and_their_own_rounding(rng):
    """r_i c(rho_i) <= p_i with room, rho_i the exact reach for the mean with weights r."""
    for _ in range(300):
        K = int(rng.integers(2, 6))
        P = np.exp(rng.normal(size=(1, K)) * 10.0 ** rng.uniform(-1, 1.8))
        P /= P.sum()
        distances = 10.0 ** (rng.uniform(-3, 9) + rng.uniform(0, 1, size=(1, K)))
        radius, off = 10.0 ** rng.uniform(-6, 12), rng.choice([0.0, 1.0, 30.0])
        r = choose_curvatures(P, distances, radius, np.array([off]))[0]
        with mp.workdps(DIGITS):
            weights, delta, p = exact(r), exact(distances), exact(P)
            total = mp.fsum(weights)
            for i in range(K):
                others = [k for k in range(K) if k != i]
                near = mp.fsum(weights[k] / total * (delta[i] + delta[k]) for k in others)
                c = exact_constant(mp.mpf(radius) * near + mp.mpf(off))
                assert weights[i] * c <= p[i] * (1 - mp.mpf("0.9e-8"))


def test_no_more_is_given_away_than_that(rng):
    P = np.array([[0.2, 0.5, 0.3]])
    r = choose_curvatures(P, np.zeros((1, 3)), 100.0, np.zeros(1))
    np.testing.assert_allclose(r, P / 0.5, rtol=2e-8)


def draw_metric(rng, K, d, closeness):
    """Symmetric matrices (K, d, d) of columns of all sizes, nearly singular for a small number."""
    roots = rng.normal(size=(K, d, d))
    roots[:, :, -1] = roots[:, :, 0] + closeness * roots[:, :, -1]
    sizes = 10.0 ** rng.uniform(-4, 4, size=d)
    A = sizes * (roots.transpose(0, 2, 1) @ roots) * sizes[:, None]
    return 0.5 * (A + A.transpose(0, 2, 1))


def test_lengths_by_the_factor_are_not_below_those_by_the_inverse(rng):
    """(8): |R^-T D| <= |L' D|, both of floats, the metric nearly singular."""
    for _ in range(60):
        d = int(rng.integers(2, 5))
        point, inverses = ExpansionPoint.at(
            np.zeros((2, d)), draw_metric(rng, 2, d, 10.0 ** rng.uniform(-9, -5)), 1.0
        )
        with mp.workdps(DIGITS):
            for L, R in zip(point.L, inverses, strict=True):
                # The singular values of L' R' are at least 1: worst for D its least one.
                product = exact_matrix(L).T * exact_matrix(R).T
                gram = (product.T * product) ** -1
                largest = mp.eigsy(gram, eigvals_only=True)[d - 1]
                assert largest <= 1


def exact_step(point, W):
    """The least length of the step from a point to W over all shifts, in 50 digits."""
    K = len(W)
    with mp.workdps(DIGITS):
        roots = [exact_matrix(L).T for L in point.L]
        D = [mp.matrix(exact(W[k])) - mp.matrix(exact(point.W[k])) for k in range(K)]
        A = [root.T * root for root in roots]
        total, pulled = sum(A[1:], A[0]), sum((A[k] * D[k] for k in range(1, K)), A[0] * D[0])
        shift = mp.lu_solve(total, pulled)
        squares = (mp.norm(roots[k] * (D[k] - shift)) ** 2 for k in range(K))
        return mp.sqrt(mp.fsum(squares))


def test_a_step_is_not_shorter_than_it_is(rng):
    """(9): one class has a metric that nearly vanishes along the step, the other sets the shift."""
    for _ in range(100):
        slope = float(rng.normal())
        thin = np.array([[slope, 0.0], [1.0, 1e-20]])
        W = rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(0, 3)
        point = ExpansionPoint(W, np.stack([thin, 100.0 * np.eye(2)]), 1.0)
        near = W + rng.normal() * np.array([[1.0, -slope], [0.0, 0.0]])
        assert mp.mpf(point.step_to(near)) >= exact_step(point, near)


def test_a_long_step_is_hardly_longer_than_it_is(rng):
    for _ in range(20):
        W = rng.normal(size=(3, 3))
        point, _ = ExpansionPoint.at(W, draw_metric(rng, 3, 3, 1.0), 1.0)
        far = W + rng.normal(size=(3, 3))
        assert point.step_to(far) == pytest.approx(float(exact_step(point, far)), rel=1e-6)
        shifted = far + rng.normal(size=3)  # of all classes: it changes no prediction
        assert point.step_to(shifted) == pytest.approx(point.step_to(far), rel=1e-6)


def test_a_step_to_what_is_no_number_is_endless(rng):
    point, _ = ExpansionPoint.at(np.zeros((2, 3)), draw_metric(rng, 2, 3, 1.0), 1.0)
    assert point.step_to(np.full((2, 3), np.nan)) == np.inf


def test_a_joined_metric_pays_for_its_rounding():
    """By what d products and a factor of order d can be off, in units of the columns."""
    d = 200
    sizes = 10.0 ** np.linspace(-5, 5, d)
    point, _ = ExpansionPoint.at(np.zeros((1, d)), np.diag(sizes)[None], 1.0)
    joined = point.join(point)
    grown = (joined.L[0] ** 2).sum(axis=1) / (2.0 * (point.L[0] ** 2).sum(axis=1))
    error = d * d * 2.0**-52  # of the inverse, which L is divided by
    np.testing.assert_array_less(1.0 + 4.0 * d * d * 2.0**-52 + 2.0 * error, grown)


def test_points_too_far_apart_leave_no_step():
    """What is near the second point is not within the radius of the first: planes alone hold."""
    near, _ = ExpansionPoint.at(np.zeros((2, 1)), np.ones((2, 1, 1)), 1.0)
    far, _ = ExpansionPoint.at(np.array([[3.0], [-3.0]]), np.ones((2, 1, 1)), 1.0)
    evidence = Evidence(n_features=1, n_classes=2)
    evidence._points = [far.join(near)]
    assert evidence._share(near.W) == 0.0
    evidence._points = [near]
    assert evidence._share(near.W) == 1.0


def measured(X, inverses):
    evidence = Evidence(n_features=X.shape[1], n_classes=len(inverses))
    evidence._rows.extend(X, np.zeros((len(X), len(inverses))), np.ones(len(X)))
    evidence._inverses = inverses
    evidence._measure()
    return evidence._rows.distances


def test_distances_are_rounded_up(rng):
    """Rows along which the inverse nearly vanishes: what is left of R x is rounding."""
    d = 3
    R = rng.normal(size=(2, d, d))
    X = rng.normal(size=(40, d)) * 10.0 ** rng.uniform(-3, 3, size=(40, 1))
    for k, row in ((0, 0), (1, 1)):
        R[k] = np.outer(rng.normal(size=d), R[k, row])  # of rank 1
    X -= np.outer(X @ R[0, 0], R[0, 0]) / (R[0, 0] @ R[0, 0])
    distances = measured(X, R)
    with mp.workdps(DIGITS):
        for x, found in zip(X, distances, strict=True):
            for k in range(2):
                assert mp.norm(exact_matrix(R[k]) * mp.matrix(exact(x))) <= mp.mpf(found[k])


def test_the_reach_covers_what_logits_are_off_by(rng, monkeypatch):
    """Weights of 1e8 that cancel in every logit: the row is expanded beside W x."""
    chosen = []

    def spy(P, distances, radius, off):
        chosen.append((P, off))
        return choose_curvatures(P, distances, radius, off)

    monkeypatch.setattr(module, "choose_curvatures", spy)
    d, K = 5, 3
    X = 1.0 + 1e-9 * rng.normal(size=(30, d))
    W = 1e8 * rng.normal(size=(K, d))
    W -= W.mean(axis=1, keepdims=True)
    evidence = Evidence(n_features=d, n_classes=K)
    evidence._W = W
    evidence._points = [ExpansionPoint.at(W, np.tile(np.eye(d), (K, 1, 1)), 1.0)[0]]
    evidence._expand(X, np.eye(K)[[0] * 30], np.ones(30), np.ones((30, K)))
    (P, off), worst = chosen[0], 0.0
    with mp.workdps(DIGITS):
        for x, p, room in zip(X, P, off, strict=True):
            z = exact_matrix(W) * mp.matrix(exact(x))
            apart = [z[k] - mp.log(mp.mpf(p[k])) for k in range(K)]
            worst = max(worst, float(max(apart) - min(apart)))
            assert max(apart) - min(apart) <= room
    assert worst > 1e-9
    assert longest_row(W) > 1e7
