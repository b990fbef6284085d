"""Evidence is never above the truth: the fast sums against slow twins, best models, 50 digits.

What docs/theory/evidence.md proves is attacked here with streams made to break it: contexts of
all sizes at once, nearly on a line, weights from 0 to 1e6, soft labels, saturated and absurd
points of expansion.
"""

import os
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from folklearn import Evidence, Folklore
from folklearn.evaluate.best_linear import best_in_class
from folklearn.kernels import curvature
from folklearn.kernels.evidence import certain_curvature
from folklearn.metrics.scores import linear_losses
from tests.reference import evidence as twin
from tests.reference import fifty_digits
from tests.reference.curvature import ratio

# Hostile streams of each of 25 shapes, and a part of them judged with 50 digits or by the exact
# least value. Others with FOLKLEARN_TEST_SEED, and ten thousand with FOLKLEARN_STREAMS=400.
N_GROUPS, GROUP = 25, int(os.environ.get("FOLKLEARN_STREAMS", "80"))
N_EXACT, N_LEAST = GROUP, GROUP // 4
RADII = (0.5, 3.0, 10.0, 100.0)


def one_stream(rng, T, d, K):
    """X (T, d), Y (T, K), weight (T,), hostile in one of several ways."""
    X = rng.normal(size=(T, d))
    kind = rng.integers(6)
    if kind == 0:
        X *= 10.0 ** rng.uniform(-3, 6, size=(T, 1))
    elif kind == 1:
        X *= 10.0 ** rng.uniform(-3, 6)
    elif kind == 2:  # nearly on a line
        X = rng.normal(size=(T, 1)) * X[:1] + 10.0 ** rng.uniform(-12, -3) * X
        X *= 10.0 ** rng.uniform(-1, 4)
    elif kind == 3:  # repeated, growing
        X = X[:1] * 10.0 ** np.linspace(0, rng.uniform(0, 8), T)[:, None]
    elif kind == 4:
        X[:, 0] *= 10.0 ** rng.uniform(2, 6)
        X[rng.integers(T)] = 0.0
    labels = rng.integers(rng.integers(1, K + 1), size=T)  # some classes may never occur
    if rng.random() < 0.3:
        labels = (X @ rng.normal(size=(d, K))).argmax(axis=1)  # separable
    Y = np.eye(K)[labels]
    if rng.random() < 0.3:
        Y = rng.dirichlet(np.full(K, 10.0 ** rng.uniform(-2, 1)), size=T)
        Y /= Y.sum(axis=1, keepdims=True)
    weight = np.ones(T)
    if rng.random() < 0.4:
        weight = 10.0 ** rng.uniform(-6, 6, size=T) * (rng.random(T) < 0.8)
    return X, Y, weight


def expansion_point(rng, best, B):
    """Zero, anything, absurd, outside the class, the best model, or near it."""
    kind = rng.integers(6)
    noise = rng.normal(size=best.shape)
    if kind == 0:
        return np.zeros_like(best)
    if kind == 1:
        return B * noise * 10.0 ** rng.uniform(-3, 2)
    if kind == 2:
        return 1e9 * noise
    if kind == 3:
        return best + 1e-3 * B * noise
    return best


def gathered(rng, X, y, weight, K, B, points):
    """Evidence of the rows in one piece, in pieces, merged, or grown to its size on the way."""
    whole = Evidence(n_features=X.shape[1], n_classes=K, B=B)
    T = len(X)
    kind = rng.integers(3)
    if kind == 0:
        whole.add(X, y, at=points[0], weight=weight)
        return whole
    cuts = [0, *np.sort(rng.integers(0, T + 1, size=2)), T]
    for n, (start, end) in enumerate(pairwise(cuts)):
        rows = slice(start, end)
        point = points[n % len(points)]
        if kind == 1:
            whole.add(X[rows], y[rows], at=point, weight=weight[rows])
        else:
            part = Evidence(n_features=X.shape[1], n_classes=K, B=B)
            part.add(X[rows], y[rows], at=point, weight=weight[rows])
            whole = whole + part
    return whole


def slack(X, weight, B):
    """What rounding may do to the *judge*, a loss summed in floats: far below a billionth."""
    return 1e-13 * float(weight @ (1.0 + 4.0 * B * np.linalg.norm(X, axis=1)))


@pytest.mark.parametrize("group", range(N_GROUPS))
def test_no_floor_is_above_the_best_model(group, seed):
    rng = np.random.default_rng([seed, group])
    T = int(rng.choice([1, 2, 4, 8, 12, 16, 30], p=[0.1, 0.1, 0.2, 0.2, 0.2, 0.15, 0.05]))
    d, K = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    B = RADII[group % len(RADII)]
    streams = [one_stream(rng, T, d, K) for _ in range(GROUP)]
    X, Y, weight = (np.array(part) for part in zip(*streams, strict=True))
    best, losses = twin.best_many(X, Y, weight, B)
    for n in range(GROUP):
        points = [expansion_point(rng, best[n], B) for _ in range(2)]
        hard = (Y[n].max(axis=1) == 1.0).all() and rng.random() < 0.5
        y = Y[n].argmax(axis=1) if hard else Y[n]
        evidence = gathered(rng, X[n], y, weight[n], K, B, points)
        allowed = losses[n] + slack(X[n], weight[n], B)
        assert evidence.value(best[n]) <= allowed, (group, n)
        assert evidence.lower_bound() <= allowed, (group, n)
        if n % 8 == 0:  # the same sum speaks of smaller classes too
            smaller = float(B * rng.uniform(0.01, 1.0))
            Z = twin.centred(X[n] @ best[n].T * (smaller / B))
            loss = weight[n] @ (np.log(np.exp(Z).sum(axis=1)) - (Y[n] * Z).sum(axis=1))
            assert evidence.lower_bound(B=smaller) <= loss + slack(X[n], weight[n], B), (group, n)


def hostile(rng):
    """A small stream, a class, a point of expansion whose logits every machine rounds alike."""
    T, d, K = int(rng.integers(1, 9)), int(rng.integers(1, 3)), int(rng.integers(2, 4))
    X, Y, weight = one_stream(rng, T, d, K)
    B = float(rng.choice(RADII))
    best, _ = twin.best_many(X[None], Y[None], weight[None], B)
    point = expansion_point(rng, best[0], B)
    if d > 1:  # one feature alone is expanded along, so that z is a single product
        point[:, 1:] = 0.0
    return X, Y, weight, B, point, best[0]


def exactly(X, Y, weight, B, point):
    """The same rows in 50 digits, with the curvature that the fast code takes."""
    Z = X @ point.T
    norms = np.sqrt((X**2).sum(axis=1))
    a = twin.centred(Z)
    gamma = np.array([certain_curvature(z, 2.0 * B * r) for z, r in zip(a, norms, strict=True)])
    K = Y.shape[1]
    return fifty_digits.rows(X, Y, K, gamma=gamma, weight=weight, Z=Z)


@pytest.mark.parametrize("part", range(10))
def test_no_claim_is_above_fifty_digits(part, seed):
    """At a model of the class, the exact sum of surrogates and the exact loss are above it."""
    rng = np.random.default_rng([seed, 77, part])
    for _ in range(N_EXACT // 10):
        X, Y, weight, B, point, best = hostile(rng)
        evidence = Evidence(n_features=X.shape[1], n_classes=Y.shape[1], B=B)
        evidence.add(X, Y, at=point, weight=weight)
        floor, near, _ = evidence.minimise()
        rows = exactly(X, Y, weight, B, point)
        surrogates, loss = fifty_digits.evidence(rows), fifty_digits.loss(rows)
        shrunk = near * (1.0 - 1e-15)  # inside the class also after rounding
        for W in (shrunk, best * (1.0 - 1e-15)):
            below, above = fifty_digits.value(surrogates, W), fifty_digits.value(loss, W)
            with mp.workdps(fifty_digits.DIGITS):
                assert below <= above + mp.mpf("1e-45") * (1 + above)
                assert evidence.value(W) <= max(below, 0)
                assert floor <= max(below, 0)
                assert floor <= above


@pytest.mark.parametrize("part", range(10))
def test_no_floor_is_above_the_exact_least_values(part, seed):
    """Against the least value of the exact quadratic, and of the exact loss, over the class."""
    rng = np.random.default_rng([seed, 78, part])
    for _ in range(N_LEAST // 10):
        X, Y, weight, B, point, _ = hostile(rng)
        evidence = Evidence(n_features=X.shape[1], n_classes=Y.shape[1], B=B)
        evidence.add(X, Y, at=point, weight=weight)
        rows = exactly(X, Y, weight, B, point)
        least, gap = fifty_digits.least(fifty_digits.evidence(rows), B, tol=1e-25)
        assert gap <= 1e-20 * (1 + abs(least))
        floor = evidence.lower_bound()
        assert floor <= max(least, 0)
        # Where the best model saturates, the search may end early, above the least loss.
        assert floor <= fifty_digits.least(fifty_digits.loss(rows), B, tol=1e-25)[0]
        # And what the proof in floats costs is nothing beside the unit of the data.
        unit = float(weight @ (1.0 + B * np.linalg.norm(X, axis=1)))
        if least > 0:
            assert float(least) - floor <= 1e-9 * unit


@pytest.mark.parametrize("seed_offset", range(40))
def test_value_and_floor_equal_the_slow_twin(seed_offset, seed):
    rng = np.random.default_rng([seed, 79, seed_offset])
    T, d, K = int(rng.integers(1, 20)), int(rng.integers(1, 5)), int(rng.integers(2, 6))
    B = float(rng.choice([0.5, 3.0, 10.0]))
    X = rng.normal(size=(T, d)) * rng.uniform(0.1, 2.0)
    y = rng.integers(K, size=T) if seed_offset % 2 else rng.dirichlet(np.ones(K), size=T)
    weight = rng.uniform(0.0, 3.0, size=T)
    best = best_in_class(X, y, B=B, n_classes=K, weight=weight)
    point = best.W + 0.1 * rng.normal(size=(K, d))
    evidence = Evidence(n_features=d, n_classes=K, B=B)
    evidence.add(X, y, at=point, weight=weight)

    norms = np.linalg.norm(X, axis=1)
    Z = twin.centred(X @ point.T)
    gamma = np.array([certain_curvature(z, 2.0 * B * r) for z, r in zip(Z, norms, strict=True)])
    assert (gamma <= twin.curvatures(X, Z, B)).all()
    q = twin.quadratic(X, y, K, at=point, gamma=gamma, weight=weight)
    for _ in range(5):
        W = rng.normal(size=(K, d))
        W *= B * rng.random() / np.linalg.norm(W, axis=1).max()
        expected = twin.total(W, X, y, Z, gamma, weight)
        assert q.value(W) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert evidence.value(W) == pytest.approx(max(expected, 0.0), rel=1e-9, abs=1e-9)
    floor, gap = twin.floor(q, B)
    assert gap <= 1e-9 * (1.0 + q.c)
    assert evidence.lower_bound() == pytest.approx(
        max(floor, 0.0), rel=1e-9, abs=1e-9 * weight.sum()
    )
    assert twin.floor_by_dual(q, B) == pytest.approx(floor, rel=1e-4, abs=1e-4)
    assert floor - gap <= best.loss


@pytest.mark.parametrize("K", [2, 4])
def test_the_slow_floor_equals_a_generic_solver(K, rng):
    pytest.importorskip("cvxpy")
    X = rng.normal(size=(12, 3))
    y = rng.integers(K, size=12)
    q = twin.quadratic(X, y, K, at=rng.normal(size=(K, 3)), B=2.0)
    assert twin.floor(q, 2.0)[0] == pytest.approx(twin.floor_cvxpy(q, 2.0), abs=1e-5)


def test_the_dual_has_the_derivatives_it_claims(rng):
    K, d, B = 3, 2, 2.0
    q = twin.quadratic(rng.normal(size=(9, d)), rng.integers(K, size=9), K, B=B)
    at = rng.uniform(0.1, 1.0, size=K)
    _, gradient, hessian = twin.dual(at, q, B)
    assert np.linalg.eigvalsh(hessian).max() <= 1e-12  # concave
    for i in range(K):
        step = 1e-5 * np.eye(K)[i]
        up, down = twin.dual(at + step, q, B), twin.dual(at - step, q, B)
        assert gradient[i] == pytest.approx((up[0] - down[0]) / 2e-5, rel=1e-5, abs=1e-7)
        assert hessian[i] == pytest.approx((up[1] - down[1]) / 2e-5, rel=1e-5, abs=1e-6)


def test_every_multiplier_is_sound(rng):
    K, d, B = 3, 2, 2.0
    X, y = rng.normal(size=(30, d)), rng.integers(K, size=30)
    best = best_in_class(X, y, B=B, n_classes=K)
    q = twin.quadratic(X, y, K, at=best.W, B=B)
    for _ in range(200):
        below, _, _ = twin.dual(10.0 ** rng.uniform(-4, 4, size=K), q, B)
        assert below <= best.loss + 1e-9


def test_the_stored_pairs_are_the_blocks_of_the_dense_matrix(rng):
    K, d = 4, 3
    X, y = rng.normal(size=(20, d)), rng.integers(K, size=20)
    evidence = Evidence(n_features=d, n_classes=K)
    evidence.add(X, y)
    gamma = np.array([certain_curvature(np.zeros(K), 20.0 * r) for r in np.linalg.norm(X, axis=1)])
    pairs = twin.pair_coefficients(twin.quadratic(X, y, K, gamma=gamma))
    rows, columns = np.tril_indices(d)
    arrays = evidence.to_record().arrays
    assert arrays["S"] == pytest.approx(pairs[:, rows, columns], rel=1e-12, abs=1e-14)


def rows_of(rng, T=200, d=3, K=4):
    X = rng.normal(size=(T, d)) * 10.0 ** rng.uniform(-1, 1, size=(T, 1))
    return X, rng.dirichlet(np.ones(K), size=T), rng.uniform(0, 5, size=T), rng.normal(size=(K, d))


def test_merging_shuffled_parts_equals_one_pass(rng):
    X, Y, weight, at = rows_of(rng)
    whole = Evidence(n_features=3, n_classes=4)
    whole.add(X, Y, at=at, weight=weight)
    order = rng.permutation(len(X))
    merged = Evidence(n_features=3, n_classes=4)
    for rows in np.array_split(order, 7):
        part = Evidence(n_features=3, n_classes=4)
        part.add(X[rows], Y[rows], at=at, weight=weight[rows])
        merged = part + merged
    W = at + 0.1 * rng.normal(size=(4, 3))  # far from `at` large terms cancel, and take digits
    assert merged.value(W) == pytest.approx(whole.value(W), rel=1e-12)
    # Expanded so far away, only a small class has a floor above 0.
    floor = whole.lower_bound(B=0.1)
    assert floor > 0.1 * weight.sum()
    assert merged.lower_bound(B=0.1) == pytest.approx(floor, abs=1e-9 * weight.sum())
    assert merged.n_rounds == whole.n_rounds
    assert merged.total_weight == pytest.approx(whole.total_weight, rel=1e-12)


def test_scaling_is_scaling_the_weights(rng):
    X, Y, weight, at = rows_of(rng)
    plain, scaled = (Evidence(n_features=3, n_classes=4) for _ in range(2))
    plain.add(X, Y, at=at, weight=weight)
    scaled.add(X, Y, at=at, weight=0.3 * weight)
    W = at + 0.1 * rng.normal(size=(4, 3))
    assert (0.3 * plain).value(W) == pytest.approx(scaled.value(W), rel=1e-12)
    floor = scaled.lower_bound(B=0.1)
    assert floor > 0.03 * weight.sum()
    assert (plain * 0.3).lower_bound(B=0.1) == pytest.approx(floor, abs=1e-9 * 0.3 * weight.sum())
    assert (plain * 0.0).lower_bound() == 0.0


def test_evidence_scaled_into_underflow_is_never_above(rng):
    """A thousand halvings leave subnormal numbers, whose rounding is not relative."""
    X, Y, weight, at = rows_of(rng, T=10)
    evidence = Evidence(n_features=3, n_classes=4)
    evidence.add(1e-3 * X, Y, at=at, weight=weight)
    W = rng.normal(size=(4, 3))
    whole = mp.mpf(evidence.value(W))
    for power in (600, 900, 1000, 1020, 1060, 1080):
        faded = (evidence * 2.0**-500) * 2.0 ** (500 - power)
        assert faded.value(W) <= whole * mp.mpf(2) ** -power * (1 + mp.mpf("1e-9"))


def test_growing_keeps_what_was_proven(rng):
    """More features are as if they had been 0; more classes as if they had not been there."""
    X, Y, weight, at = rows_of(rng, T=60)
    small = Evidence(n_features=3, n_classes=4)
    small.add(X, Y, at=at, weight=weight)
    large = small.grown(n_features=5, n_classes=6)
    W = rng.normal(size=(6, 5))
    W[:4, :3] = at + 0.1 * W[:4, :3]
    assert large.value(W) == pytest.approx(small.value(W[:4, :3]), rel=1e-12)
    floor = small.lower_bound(B=0.1)
    assert floor > 0.1 * weight.sum()
    assert large.lower_bound(B=0.1) == pytest.approx(floor, abs=1e-9 * weight.sum())
    # A model of six classes loses more on a row of four than its first four rows do.
    padded = np.pad(X, ((0, 0), (0, 2)))
    wide = np.pad(Y, ((0, 0), (0, 2)))
    best = best_in_class(padded, wide, B=0.1, n_classes=6, weight=weight)
    assert floor <= best.loss
    # Rows that come later count among all classes; W is compared on each row as it was.
    more, labels = rng.normal(size=(20, 5)), rng.integers(6, size=20)
    large.add(more, labels, at=0.3 * W)
    for _ in range(50):
        W = rng.normal(size=(6, 5)) * rng.uniform(0.1, 2.0)
        before = float(weight @ linear_losses(X, Y, W[:4, :3]))
        assert large.value(W) <= before + linear_losses(more, labels, W).sum()


def test_many_features_are_summed_as_few_are(rng):
    """From some width on each pair has a rank update of its own instead of packed products."""
    d, K, T = 170, 3, 40
    X, y = rng.normal(size=(T, d)) / 10, rng.integers(K, size=T)
    at = rng.normal(size=(K, d)) / 10
    evidence = Evidence(n_features=d, n_classes=K)
    evidence.add(X, y, at=at)
    Z = twin.centred(X @ at.T)
    norms = np.linalg.norm(X, axis=1)
    gamma = np.array([certain_curvature(z, 20.0 * r) for z, r in zip(Z, norms, strict=True)])
    for scale in (0.1, 0.3):
        W = scale * at
        expected = twin.total(W, X, y, Z, gamma, np.ones(T))
        assert evidence.value(W) == pytest.approx(expected, rel=1e-11)
        assert evidence.value(W) <= linear_losses(X, y, W).sum()


def test_the_best_model_in_hindsight_is_its_own_floor(rng):
    X, Y, weight, _ = rows_of(rng, T=80)
    best = best_in_class(X, Y, B=3.0, n_classes=4, weight=weight, tol=1e-12)
    evidence = Evidence(n_features=3, n_classes=4, B=3.0)
    evidence.add(X, Y, at=best.W, weight=weight)
    assert evidence.lower_bound() == pytest.approx(best.loss, rel=1e-9)
    assert evidence.lower_bound() <= best.loss
    assert evidence.certificate(best.loss).regret_bound >= 0.0
    assert evidence.certificate(best.loss, best.W).regret_bound >= 0.0


@pytest.mark.parametrize("B", [1.0, 10.0, 100.0])
def test_a_model_that_is_accepted_just_outside_is_covered(B):
    """W may exceed B by a billionth; at the border the quadratic touches the loss."""
    excess = 1.0 + 0.99e-9
    for m in np.linspace(0.0, 20.0, 41):
        for features, classes in ((1, 2), (2, 3)):
            x, W = np.zeros(features), np.zeros((classes, features))
            x[0], W[0, 0], W[1:, 0] = 1.0, B * excess, -B * excess
            point = np.zeros_like(W)
            point[0, 0] = m
            evidence = Evidence(n_features=features, n_classes=classes, B=B)
            evidence.add(x[None], [0], at=point)
            with mp.workdps(60):
                loss = mp.log1p((classes - 1) * mp.exp(-2 * mp.mpf(W[0, 0])))
                assert evidence.value(W) <= loss


def test_rows_that_leave_no_pull_at_all(rng):
    """The expansion point gives the label all the probability: S and G are exactly 0."""
    evidence = Evidence(n_features=1, n_classes=2)
    evidence.add([[1e6]], [0], at=[[1e9], [-1e9]], weight=[1e6])
    assert evidence.lower_bound() == 0.0


@pytest.mark.parametrize(("size", "heaviness"), [(1e12, 1.0), (1.0, 1e12), (1e8, 1e6)])
def test_streams_that_voided_the_certificate_of_the_inverse(size, heaviness, rng):
    """An inverse loses its digits on contexts of very unlike size on one line; a sum does not."""
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    small, large = np.repeat([1.0, 0.0], 50), np.repeat([0.0, 1.0], 50)
    X = (small + size * large)[:, None] * direction
    weight = small + heaviness * large
    y = rng.integers(3, size=100)
    learner = Folklore(n_features=3, n_classes=3)
    learner.run(X, y, weight=weight)
    voided = learner.certificate()
    assert not voided.valid or voided.best_linear_at_least <= 0.0
    # In contexts of size 1 the same problem is easy, and its best model lies inside.
    best = best_in_class(X / size, y, B=10.0, n_classes=3, weight=weight, tol=1e-12)
    assert np.linalg.norm(best.W, axis=1).max() < 9.9
    evidence = Evidence(n_features=3, n_classes=3)
    evidence.add(X, y, at=best.W / size, weight=weight)
    certificate = evidence.certificate(best.loss)
    assert certificate.valid
    assert evidence.lower_bound() <= best.loss * (1.0 + 1e-12)
    # Double precision knows the slopes to 1e-16 of their size, and a model may be B long.
    unit = float(weight @ (1.0 + 10.0 * np.linalg.norm(X, axis=1)))
    assert certificate.regret_bound <= max(1e-6 * best.loss, 1e-12 * unit)


def test_the_exact_constant_for_two_classes_is_at_the_far_end(rng):
    """min over |l| <= L is at l = L for m >= 0, and 1/2 is valid when m is outside the reach."""
    m, L = rng.uniform(0, 40, size=400), 10.0 ** rng.uniform(-2, 2, size=400)
    there, back = ratio(m, L), ratio(m, -L)
    outside = m >= L
    assert (np.minimum(there, back)[outside] >= 0.5 - 1e-12).all()
    assert (there[~outside] <= back[~outside] * (1 + 1e-10)).all()


@pytest.mark.parametrize("K", [2, 3, 5, 30])
def test_curvature_holds_at_every_expansion_point(K, rng):
    """KL(p, q) >= gamma Var_p(ln q/p), also far outside the class and for saturated p."""
    for _ in range(300):
        reach = 10.0 ** rng.uniform(-2, 2.5)
        a = rng.normal(size=K) * 10.0 ** rng.uniform(-2, 3)
        a -= a.max()
        gamma = certain_curvature(a, reach)
        ends = rng.choice([0.0, 1.0], size=K) if rng.random() < 0.5 else rng.random(K)
        v = reach * ends
        with mp.workdps(60):
            e = [mp.exp(mp.mpf(t)) for t in a]
            p = [t / mp.fsum(e) for t in e]
            f = [mp.exp(mp.mpf(t)) for t in v]
            r = [mp.mpf(s) - mp.mpf(t) for s, t in zip(v, a, strict=True)]
            mean = mp.fsum(x * y for x, y in zip(p, r, strict=True))
            spread = mp.fsum(x * (y - mean) ** 2 for x, y in zip(p, r, strict=True))
            divergence = mp.log(mp.fsum(f)) - mp.log(mp.fsum(e)) - mean
            assert divergence >= gamma * spread - mp.mpf("1e-50")


def test_the_curvature_constants_are_below_their_definitions(rng):
    """In 50 digits, with the shrinking that pays for the rounding of the point of expansion."""
    for L in 10.0 ** rng.uniform(-3, 3, size=20):
        with mp.workdps(60 + int(L)):
            far = mp.mpf(float(L))
            least = min(_ratio(far * k / 200, far) for k in range(200))
        assert curvature.gamma_star_below(L) <= least
    for _ in range(300):
        m, L = rng.uniform(0, 60), 10.0 ** rng.uniform(-4, 2)
        with mp.workdps(120):
            truth = min(_ratio(mp.mpf(m), mp.mpf(L)), _ratio(mp.mpf(m), -mp.mpf(L)), mp.mpf("0.5"))
        assert curvature.binary_exact(m, L) <= truth


def _ratio(m, far):
    gap = far - m
    s = 1 / (1 + mp.exp(-m))
    top = mp.log1p(mp.exp(far)) - mp.log1p(mp.exp(m)) - s * gap
    return top / (s * (1 - s) * gap**2)
