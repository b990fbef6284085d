"""Evidence about every linear model, attacked: no model may lose less than it says.

Few rows wait here, so that most are expanded early and far from the best model. Every draw is from
a generator with a fixed seed; FOLKLEARN_TEST_SEED gives others.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

import folklearn
from folklearn import Evidence, LinearEvidence
from folklearn.errors import InvalidInputError
from folklearn.evidence import evidence as module
from folklearn.evidence.points import ExpansionPoint, choose_curvatures
from tests.evidence.test_theorem import exact_divergence
from tests.reference import unconstrained as twin
from tests.reference.hostile import one_stream


@pytest.fixture(autouse=True)
def _few_rows_wait(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", 24)
    monkeypatch.setattr(module, "SETTLED_ROWS", 8)
    monkeypatch.setattr(module, "_MAX_POINTS", 5)


def total_loss(W, X, Y, weight):
    Z = X @ W.T
    top = Z.max(axis=1, keepdims=True)
    return float(weight @ (logsumexp(Z - top, axis=1) - np.sum(Y * (Z - top), axis=1)))


def penalised_optimum(evidence, X, Y, weight):
    """The least penalised loss by Newton steps over all rows: an upper bound on it, at least."""
    exact = twin.LiveBound(Y.shape[1], evidence.penalties, n_waiting=len(X))
    exact.rows = X, Y, weight
    try:
        W, _ = exact.minimise(exact.W, 1.0, most_steps=200)
    except np.linalg.LinAlgError:  # rows of too many sizes for Newton steps without a remedy
        W = np.clip(evidence.minimise()[1].ravel(), -1e12, 1e12)
    return exact.objective(W, 1.0)[0], W.reshape(Y.shape[1], -1)


def collect(rng, X, Y, weight, **settings):
    """Evidence of the rows in one piece, in pieces, merged, saved or without rows on the way."""
    (T, d), K = X.shape, Y.shape[1]
    kind = rng.integers(6)
    cuts = [0, *np.sort(rng.integers(0, T + 1, size=2)), T]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    whole = Evidence(n_features=d, n_classes=K, **settings)
    for part in parts if kind else [slice(0, T)]:
        if kind == 1:
            more = Evidence(n_features=d, n_classes=K, **settings)
            more.add(X[part], Y[part], weight=weight[part])
            whole = whole + more
        else:
            whole.add(X[part], Y[part], weight=weight[part])
        if kind == 2:
            whole = folklearn.load(whole.to_bytes())
        if kind == 3:
            whole = whole * 1.0
        if kind == 4:
            whole._release_rows()
    return whole


@pytest.mark.parametrize("group", range(16))
def test_no_model_of_any_norm_is_below_the_bound(group, seed):
    rng = np.random.default_rng([seed, group])
    n_close = 0
    for _ in range(12):
        d, K = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        X, Y, weight = one_stream(rng, int(rng.integers(40, 300)), d, K)
        X = np.clip(X, -1e6, 1e6)
        settings = {"C": 10.0 ** rng.uniform(-2, 3)}
        if rng.random() < 0.3:
            settings["constant"] = int(rng.integers(d))
        evidence = collect(rng, X, Y, weight, **settings)
        bound = evidence.lower_bound()
        optimum, best = penalised_optimum(evidence, X, Y, weight)
        slack = 1e-11 * (
            1.0 + abs(optimum) + weight @ np.linalg.norm(X, axis=1) * np.abs(best).max()
        )
        assert bound <= optimum + slack
        for scale in (0.0, 1e-3, 1.0, 1e3):
            W = best + scale * rng.normal(size=best.shape)
            loss = total_loss(W, X, Y, weight)
            size = weight @ np.linalg.norm(X, axis=1) * np.abs(W).max()
            assert evidence.value(W) <= loss + 1e-11 * (1.0 + loss + size)
            penalty = 0.5 * float((evidence.penalties * W**2).sum())
            assert bound <= loss + penalty + 1e-11 * (1.0 + loss + penalty + size)
        n_close += bound >= 0.5 * optimum
    assert n_close >= 2  # a bound that says nothing would be below too


@pytest.mark.parametrize("group", range(8))
def test_rows_that_are_let_go_of_leave_the_bound_and_keep_it_true(group, seed, monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", int(1 + 60 * (group % 3)))
    rng = np.random.default_rng([seed, group, 1])
    n_close = 0
    for _ in range(8):
        d, K, n_parts = int(rng.integers(1, 5)), int(rng.integers(2, 5)), int(rng.integers(1, 9))
        X, Y, weight = one_stream(rng, int(rng.integers(40, 300)), d, K)
        X = np.clip(X, -1e3, 1e3)
        evidence = Evidence(n_features=d, n_classes=K, C=10.0 ** rng.uniform(-2, 3))
        for part in np.array_split(np.arange(len(X)), n_parts):
            evidence.add(X[part], Y[part], weight=weight[part])
            before, W = evidence.minimise()
            is_within = evidence._share(W) == 1.0  # of all radii
            evidence._release_rows()
            assert len(evidence._parts()["rows.X"]) == 0
            assert not is_within or evidence.lower_bound() >= (1.0 - 1e-5) * before
            optimum, best = penalised_optimum(
                evidence, *(a[: part[-1] + 1] for a in (X, Y, weight))
            )
            size = weight @ np.linalg.norm(X, axis=1) * np.abs(best).max()
            assert evidence.lower_bound() <= optimum + 1e-11 * (1.0 + abs(optimum) + size)
            for scale in (0.0, 0.1, 10.0):
                W = best + scale * rng.normal(size=best.shape)
                loss = total_loss(W, *(a[: part[-1] + 1] for a in (X, Y, weight)))
                assert evidence.value(W) <= loss + 1e-11 * (1.0 + loss + size + scale * size)
        n_close += evidence.lower_bound() >= 0.3 * optimum
    assert n_close >= 2


def test_rows_that_are_expanded_beside_a_point_pay_for_the_way_to_it(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", 10**6)
    monkeypatch.setattr(module, "_RADIUS", 0.05)
    monkeypatch.setattr(module, "_GROWTH", 10**6)  # no second point
    X, y = np.ones((2200, 1)), np.repeat([0, 1, 0, 1], [196, 4, 1000, 1000])
    evidence = Evidence(n_features=1, n_classes=2, C=1e6)
    evidence.add(X[:200], y[:200])
    evidence._release_rows()
    sure = evidence.minimise()[1]
    evidence.add(X[200:], y[200:])
    evidence._release_rows()
    assert len(evidence._points) == 1
    assert evidence._share(sure) == 1.0
    assert evidence.value(sure) <= total_loss(sure, X, np.eye(2)[y], np.ones(len(X)))


@pytest.mark.parametrize("exponent", [-120, -30, 8, 14])
def test_weights_of_any_size(exponent, rng):
    X, Y, _ = one_stream(rng, 120, 3, 3)
    X = np.clip(X, -10.0, 10.0)
    weight = np.full(120, 10.0**exponent)
    evidence = collect(rng, X, Y, weight)
    optimum, _ = penalised_optimum(evidence, X, Y, weight)
    assert 0.0 <= evidence.lower_bound() <= optimum * (1.0 + 1e-9)


def test_classes_and_columns_that_come_late(rng):
    for _ in range(20):
        d, K, T = int(rng.integers(2, 5)), int(rng.integers(3, 6)), 200
        X, y, weight = rng.normal(size=(T, d)), rng.integers(K, size=T), rng.exponential(size=T)
        half = T // 2
        X[:half, -1] = 0.0
        y[:half] = np.minimum(y[:half], 1)
        evidence = Evidence(n_features=d - 1, n_classes=2)
        evidence.add(X[:half, :-1], y[:half], weight=weight[:half])
        evidence = evidence.grown(n_features=d, n_classes=K)
        evidence.add(X[half:], y[half:], weight=weight[half:])
        optimum, _ = penalised_optimum(evidence, X, np.eye(K)[y], weight)
        assert evidence.lower_bound() <= optimum * (1.0 + 1e-9)


def test_chosen_curvatures_hold_within_the_radius(rng):
    """For every step that `ExpansionPoint.step_to` admits the quadratic is below the divergence."""
    for _ in range(150):
        K, d = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        x = rng.normal(size=d) * 10.0 ** rng.uniform(-2, 2)
        roots = rng.normal(size=(K, d, d)) * 10.0 ** rng.uniform(-3, 3, size=(K, 1, d))
        radius = 10.0 ** rng.uniform(-1, 2)
        W = rng.normal(size=(K, d))
        point, inverses = ExpansionPoint.at(
            W, roots @ roots.transpose(0, 2, 1) + 1e-6 * np.eye(d), radius
        )
        distances = np.sqrt(((inverses @ x) ** 2).sum(axis=1))[None]
        p = softmax(W @ x)
        r = choose_curvatures(p[None], distances, radius, np.zeros(1))[0]
        for _ in range(10):
            step = np.linalg.solve(point.L.transpose(0, 2, 1), rng.normal(size=(K, d, 1)))[:, :, 0]
            step *= radius * (1.0 - 1e-9) / point.step_to(W + step)
            step += rng.normal(size=d)  # a shift of all classes changes nothing
            if point.step_to(W + step) > radius:
                continue
            v, q = step @ x, r / r.sum()
            apart = v[:, None] - v  # without cancellation against the mean
            centred = (apart * q).sum(axis=1)
            divergence = exact_divergence(v, p)
            assert 0.25 * r @ centred**2 <= divergence * (1.0 + 1e-9) + 1e-12 * np.abs(v).max()
            theta = -centred * r / (2.0 * p)
            assert np.all(theta <= 1.0 + 1e-9)
            steps = np.clip(theta, 0.0, 1.0)  # the least constant cancels for small ones
            least = [0.5 if t < 1e-7 else twin.least_constant(t) for t in steps]
            assert np.all(p / r >= np.array(least) * (1.0 - 1e-9))


def test_a_joined_point_lies_within_both(rng):
    for _ in range(200):
        K, d = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        points = []
        for _ in range(2):
            roots = rng.normal(size=(K, d, d)) * 10.0 ** rng.uniform(-2, 2, size=(K, 1, d))
            metric = roots @ roots.transpose(0, 2, 1) + 1e-6 * np.eye(d)
            W = rng.normal(size=(K, d)) * 10.0 ** rng.uniform(-2, 0)
            points.append(ExpansionPoint.at(W, metric, 10.0 ** rng.uniform(0, 3))[0])
        joined = points[0].join(points[1])
        for _ in range(10):
            step = np.linalg.solve(joined.L.transpose(0, 2, 1), rng.normal(size=(K, d, 1)))[:, :, 0]
            W = joined.W + step * rng.uniform() * joined.radius / max(
                joined.step_to(joined.W + step), 1e-300
            )
            if joined.step_to(W) <= joined.radius:
                assert all(point.step_to(W) <= point.radius * (1.0 + 1e-9) for point in points)


def test_rows_that_all_wait_are_proven_exactly(monkeypatch, rng):
    monkeypatch.setattr(module, "KEPT_ROWS", 4096)
    X, y = rng.normal(size=(500, 4)), rng.integers(3, size=500)
    evidence = Evidence(n_features=4, n_classes=3)
    evidence.add(X, y)
    optimum, _ = penalised_optimum(evidence, X, np.eye(3)[y], np.ones(500))
    assert evidence.lower_bound() == pytest.approx(optimum, rel=1e-6)


def test_most_of_a_stationary_stream_is_proven(monkeypatch, rng):
    monkeypatch.setattr(module, "KEPT_ROWS", 512)
    monkeypatch.setattr(module, "SETTLED_ROWS", 128)
    X = np.c_[rng.normal(size=(6000, 4)), np.ones(6000)]
    y = (X @ rng.normal(size=(5, 3)) + rng.gumbel(size=(6000, 3))).argmax(axis=1)
    evidence = Evidence(n_features=5, n_classes=3, constant=4)
    evidence.add(X, y)
    optimum, _ = penalised_optimum(evidence, X, np.eye(3)[y], np.ones(6000))
    assert 0.98 * optimum <= evidence.lower_bound() <= optimum


def test_what_is_new_waits(rng, monkeypatch):
    """A column that opens late: its rows are kept, and the bound stays close."""
    monkeypatch.setattr(module, "KEPT_ROWS", 300)
    monkeypatch.setattr(module, "SETTLED_ROWS", 100)
    T, late = 3000, 1500
    X = np.c_[rng.normal(size=(T, 3)), np.ones(T)]
    X[:late, 2] = 0.0
    y = (X @ np.array([1.0, -1.0, 3.0, 0.0]) + rng.logistic(size=T) > 0.0).astype(int)
    evidence = Evidence(n_features=4, n_classes=2)
    evidence.add(X[: late + 200], y[: late + 200])
    n_late_waiting = np.count_nonzero(evidence._rows.X[:, 2])
    assert n_late_waiting / len(evidence._parts()["rows.X"]) > 1.5 * 200 / (late + 200)
    evidence.add(X[late + 200 :], y[late + 200 :])
    optimum, _ = penalised_optimum(evidence, X, np.eye(2)[y], np.ones(T))
    assert 0.95 * optimum <= evidence.lower_bound() <= optimum


def test_portions_change_nothing(rng):
    X, Y, weight = one_stream(rng, 200, 3, 3)
    once = Evidence(n_features=3, n_classes=3)
    once.add(X, Y, weight=weight)
    for cuts in ([0, 1, 7, 90, 200], list(range(201))):
        parts, asked = (Evidence(n_features=3, n_classes=3) for _ in range(2))
        for a, b in pairwise(cuts):
            for one in (parts, asked):
                one.add(X[a:b], Y[a:b], weight=weight[a:b])
            assert asked.total_weight >= 0.0  # a question changes nothing
        assert parts.to_bytes() == asked.to_bytes() == once.to_bytes()


def test_single_rows_are_rows(rng):
    X, y, weight = rng.normal(size=(90, 3)), rng.integers(3, size=90), rng.exponential(size=90)
    once, singly = (Evidence(n_features=3, n_classes=3) for _ in range(2))
    once.add(X, y, weight=weight)
    for x, label, w in zip(X, y, weight, strict=True):
        singly._append(x, int(label), np.empty(0), float(w))
    assert singly.n_rounds == 90
    assert singly.to_bytes() == once.to_bytes()


def test_merging_shuffled_parts_is_one_pass(monkeypatch, rng):
    """To the last digits where all rows wait, and sound where they do not."""
    X, Y, weight = rng.normal(size=(200, 3)), rng.dirichlet(np.ones(4), 200), rng.random(200)
    for n_kept, tolerance in ((4096, 1e-6), (24, 0.5)):
        monkeypatch.setattr(module, "KEPT_ROWS", n_kept)
        whole = Evidence(n_features=3, n_classes=4)
        whole.add(X, Y, weight=weight)
        merged = Evidence(n_features=3, n_classes=4)
        for rows in np.array_split(rng.permutation(200), 7):
            part = Evidence(n_features=3, n_classes=4)
            part.add(X[rows], Y[rows], weight=weight[rows])
            merged = part + merged
        assert merged.lower_bound() == pytest.approx(whole.lower_bound(), rel=tolerance)
        assert merged.n_rounds == 200
        assert merged.total_weight == pytest.approx(weight.sum(), rel=1e-12)
        optimum, _ = penalised_optimum(whole, X, Y, weight)
        assert merged.lower_bound() <= optimum * (1.0 + 1e-9)


def test_scaling_is_scaling_the_weights(rng):
    X, Y, weight = rng.normal(size=(100, 3)), rng.dirichlet(np.ones(4), 100), rng.random(100)
    plain = Evidence(n_features=3, n_classes=4)
    plain.add(X, Y, weight=weight)
    for factor in (1.0, 0.3, 1e-6):
        scaled = factor * plain
        optimum, best = penalised_optimum(scaled, X, Y, factor * weight)
        assert scaled.lower_bound() <= optimum * (1.0 + 1e-9)
        for W in (best, rng.normal(size=best.shape)):
            loss = total_loss(W, X, Y, weight)
            assert scaled.value(W) <= factor * loss * (1.0 + 1e-9)
            assert scaled.value(W) == pytest.approx(factor * plain.value(W), rel=1e-9, abs=1e-12)
    assert (plain * 0.0).lower_bound() == 0.0


def test_many_features_are_summed_as_few_are(rng):
    """From some width on each pair has a rank update of its own instead of packed products."""
    d, T = 165, 90
    X, y = rng.normal(size=(T, d)) / 10, rng.integers(3, size=T)
    evidence = Evidence(n_features=d, n_classes=3)
    evidence.add(X, y)
    few = Evidence(n_features=d - 10, n_classes=3)
    few.add(X[:, :-10], y)
    for one, rows in ((evidence, X), (few, X[:, :-10])):
        assert len(one._parts()["rows.X"]) < T
        optimum, best = penalised_optimum(one, rows, np.eye(3)[y], np.ones(T))
        assert 0.5 * optimum <= one.lower_bound() <= optimum * (1.0 + 1e-9)
        assert one.value(best) <= total_loss(best, rows, np.eye(3)[y], np.ones(T))


def test_growing_keeps_what_was_proven(rng):
    """More features are as if they had been 0; more classes as if they had not been there."""
    X, Y, weight = rng.normal(size=(60, 3)), rng.dirichlet(np.ones(4), 60), rng.random(60)
    small = Evidence(n_features=3, n_classes=4)
    small.add(X, Y, weight=weight)
    large = small.grown(n_features=5, n_classes=6)
    assert len(large._parts()["rows.X"]) == len(small._parts()["rows.X"])
    W = 0.1 * rng.normal(size=(6, 5))
    loss = total_loss(W[:, :3], X, np.pad(Y, ((0, 0), (0, 2))), weight)
    assert 0.5 * loss < large.value(W) <= loss
    absent = W.copy()
    absent[4:] = 0.0
    absent[:4, 3:] = 0.0
    large_alone = small.grown(n_features=5)
    assert large_alone.value(absent[:4]) == pytest.approx(small.value(absent[:4, :3]), rel=1e-12)


def test_a_loaded_one_goes_on_exactly(rng):
    X, y = rng.normal(size=(150, 3)), rng.integers(3, size=150)
    evidence = Evidence(n_features=3, n_classes=3, C=2.0, constant=1)
    evidence.add(X[:70], y[:70])
    loaded = folklearn.load(evidence.to_bytes())
    for each in (evidence, loaded):
        each.add(X[70:], y[70:])
    assert loaded.to_bytes() == evidence.to_bytes()
    assert loaded.lower_bound() == evidence.lower_bound()


def test_a_certificate_says_what_it_is_about(rng):
    X, y = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    evidence = Evidence(n_features=2, n_classes=2, C=0.5)
    evidence.add(X, y)
    certificate = evidence.certificate(60 * np.log(2.0))
    assert certificate.C == 0.5
    assert certificate.penalty == 4.0
    assert "whatever its weights" in certificate.in_words()
    assert "its penalty (C = 0.5) counted" in certificate.in_words()
    W = np.array([[0.3, 0.1], [-0.3, -0.1]])
    loss = total_loss(W, X, np.eye(2)[y], np.ones(60))
    assert certificate.at_norm(float(np.linalg.norm(W))) <= loss
    assert evidence.certificate(50.0, W).best_linear_at_least <= loss


def test_sums_of_other_problems_are_refused():
    with pytest.raises(InvalidInputError, match="same problem and penalty"):
        Evidence(n_features=2, n_classes=2) + Evidence(n_features=2, n_classes=2, C=3.0)
    with pytest.raises(TypeError):
        Evidence(n_features=2, n_classes=2) + LinearEvidence(n_features=2, n_classes=2)


def test_planes_that_touch_lie_below_for_every_model(rng):
    for _ in range(20):
        X, Y, weight = one_stream(rng, 150, 3, 3)
        X, weight = np.clip(X, -100.0, 100.0), np.clip(weight, 0.0, 100.0)
        evidence = collect(rng, X, Y, weight)
        planes = LinearEvidence.tangent_to(evidence)
        optimum, best = penalised_optimum(evidence, X, Y, weight)
        assert planes.lower_bound() <= optimum * (1.0 + 1e-9) + 1e-9
        for scale in (0.0, 0.1, 10.0):
            W = best + scale * rng.normal(size=best.shape)
            loss = total_loss(W, X, Y, weight)
            assert planes.value(W) <= loss * (1.0 + 1e-9) + 1e-9
