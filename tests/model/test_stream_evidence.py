"""Evidence in columns that are standardised once: behind the head, with what comes late."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn import Model, load
from folklearn.evaluate.regression import logistic_regression
from folklearn.evidence import evidence
from folklearn.learners import catalogue
from folklearn.model import stream_evidence
from folklearn.scaler import FixedScaler, Moments

HEAD, BLOCK = 96, 32


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    """A head, blocks and rows that wait so few that streams of a test are long."""
    monkeypatch.setattr(stream_evidence, "HEAD_ROWS", HEAD)
    monkeypatch.setattr(stream_evidence, "_SPARSE_HEAD_ROWS", HEAD)
    monkeypatch.setattr(stream_evidence, "_CHUNK_ROWS", BLOCK)
    monkeypatch.setattr(evidence, "KEPT_ROWS", 100)
    monkeypatch.setattr(evidence, "SETTLED_ROWS", 16)


def rows_of(X):
    return [{f"x{j}": x for j, x in enumerate(row) if not np.isnan(x)} for row in X.tolist()]


def coordinates(X, numeric=None, n_head=HEAD):
    """As the class says: by the head, later columns by the block that brings them; slowly."""
    T, d = X.shape
    Z = np.zeros((T, d + 1))
    Z[:, 0] = 1.0
    for j in range(d):
        is_number = numeric is None or numeric[j]
        if not is_number:
            Z[:, j + 1] = np.nan_to_num(X[:, j])
            continue
        first = int(np.flatnonzero(~np.isnan(X[:, j]))[0])
        start = 0 if first < n_head else n_head + (first - n_head) // BLOCK * BLOCK
        stop = n_head if first < n_head else start + BLOCK
        own = X[start:stop, j]
        own = own[~np.isnan(own)]
        deviation = own.std() if np.ptp(own) > 0.0 else 1.0
        Z[:, j + 1] = np.nan_to_num((X[:, j] - own.mean()) / deviation)
    return Z


def least_cost(Z, y, n_classes=2, weight=None):
    """Return loss plus penalty of the best linear model, which no bound may be above."""
    best = logistic_regression(Z, y, n_classes=n_classes, constant=0, weight=weight, tol=1e-9)
    return best.loss + best.penalty


def labelled(rng, T=260, d=3):
    X = rng.normal(size=(T, d)) * [1.0, 30.0, 0.01] + [0.0, 100.0, -5.0]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = (z[:, 0] - z[:, 1] + rng.logistic(size=T) > 0).astype(int)
    return X, y


@pytest.mark.parametrize("learner", ["auto", "ogd"])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_bound_is_near_whatever_learns(rng, learner, one_by_one):
    check_bound(rng, learner, one_by_one)


def test_the_bound_is_below_the_best_model_and_near_it(rng):
    check_bound(rng, "folklore", False)


def check_bound(rng, learner, one_by_one):
    X, y = labelled(rng)
    model = Model(learner)
    if one_by_one:
        for row, label in zip(rows_of(X), y.tolist(), strict=True):
            model.learn_one(row, label)
    else:
        model.learn_many(rows_of(X), y.tolist())
    found, first = model.certificate(), y[0]
    least = least_cost(coordinates(X), np.where(y == first, 0, 1))
    assert found.C == 1.0
    assert 0.95 * least < found.best_linear_at_least <= least
    assert f"the first {HEAD} rows" in found.in_words()
    assert found.loss == model.metrics.loss
    assert found.at_norm(2.0) == pytest.approx(found.best_linear_at_least - 4.0)  # tau is 2


def test_portions_do_not_matter_and_files_go_on(rng, tmp_path):
    X, y = labelled(rng)
    rows, labels = rows_of(X), y.tolist()
    whole, parts = Model(windows=True), Model(windows=True)
    whole.learn_many(rows, labels)
    for start, stop in ((0, 50), (50, 51), (51, 130), (130, 260)):
        parts.learn_many(rows[start:stop], labels[start:stop])
        parts.certificate()  # to look changes nothing
        parts.windows()
        parts = load(parts.to_bytes())
    assert parts.pipeline.evidence.to_bytes() == whole.pipeline.evidence.to_bytes()
    found, expected = parts.certificate(), whole.certificate()
    assert found.best_linear_at_least == pytest.approx(expected.best_linear_at_least, rel=1e-12)
    assert [one.lower_bound for one in parts.windows()] == [
        one.lower_bound for one in whole.windows()
    ]


def test_columns_and_classes_that_come_late(rng):
    """A column within the head, one behind it, a third class late; scaled by their own rows."""
    X, y = labelled(rng, T=300, d=3)
    X[:40, 1] = np.nan
    X[:170, 2] = np.nan
    y[200:][rng.random(100) < 0.3] = 2
    model = Model("folklore")
    model.learn_many(rows_of(X), [f"c{k}" for k in y])
    found = model.certificate()
    least = least_cost(coordinates(X), y, 3)
    assert 0.4 * least < found.best_linear_at_least <= least
    assert "those that came later by the rows that brought them" in found.in_words()


def test_categories_are_zero_or_one(rng):
    T = 300
    codes = rng.integers(0, 4, T)
    x = rng.normal(size=T)
    y = ((codes == 1) + x + rng.logistic(size=T) > 0.5).astype(int)
    rows = [{"x": x[t], "kind": "abcd"[codes[t]]} for t in range(T)]
    model = Model()
    model.run([{**row, "y": int(k)} for row, k in zip(rows, y, strict=True)], target="y")
    first = list(dict.fromkeys(codes.tolist()))
    X = np.column_stack([x, *(codes == code for code in first)]).astype(float)
    least = least_cost(coordinates(X, [True, False, False, False, False]), y)
    found = model.certificate()
    assert 0.9 * least < found.best_linear_at_least <= least
    assert "categories as 0 or 1" in found.models


@given(seed=st.integers(0, 10**6))
def test_what_comes_late_never_lifts_the_bound(seed):
    """Columns, classes and categories at random times, gaps, weights, any portions."""
    rng = np.random.default_rng(seed)
    T, d, K = int(rng.integers(20, 240)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    X = rng.standard_t(2.0, size=(T, d)) * np.exp(rng.normal(size=d) * 3.0)
    for j in range(d):
        X[: int(rng.integers(0, T)) * (rng.random() < 0.5), j] = np.nan
        X[rng.random(T) < 0.1, j] = np.nan
    X[0, 0] = rng.normal()
    codes = rng.integers(0, 1 + np.arange(T) * 4 // T)
    known = 2 + np.arange(T) * (K - 2) // T
    y = rng.integers(0, known)
    y[:2] = 0, 1
    weights = rng.random(T)
    rows = [{**row, "kind": f"k{code}"} for row, code in zip(rows_of(X), codes, strict=True)]
    model = Model("folklore" if rng.random() < 0.5 else "ogd")
    first, start = list(dict.fromkeys(y.tolist())), 0
    while start < T:
        stop = start + int(rng.integers(1, 90))
        model.learn_many(
            rows[start:stop], [f"c{k}" for k in y[start:stop]], weight=weights[start:stop]
        )
        start = stop
    found = model.certificate()
    y = np.array([first.index(k) for k in y.tolist()])
    kinds = list(dict.fromkeys(codes.tolist()))
    raw = np.column_stack([X, *(codes == kind for kind in kinds)]).astype(float)
    numeric = [True] * d + [False] * len(kinds)
    present = [not numeric[j] or not np.isnan(raw[:, j]).all() for j in range(raw.shape[1])]
    Z = coordinates(raw[:, present], np.array(numeric)[present], min(T, HEAD))
    assert found.best_linear_at_least <= least_cost(Z, y, len(first), weights) * (1.0 + 1e-12)


def test_rows_too_long_for_the_arithmetic_count_for_nothing(rng):
    X, y = labelled(rng)
    X[:, 2] = 0.0
    X[:HEAD, 2] = 1e-12 * rng.normal(size=HEAD)
    X[200, 2] = 1e12  # 1e24 deviations
    model = Model()
    model.learn_many(rows_of(X), y.tolist())
    found = model.certificate()
    assert found.valid
    assert 0.0 < found.best_linear_at_least < found.loss


@pytest.mark.parametrize("one_by_one", [False, True])
def test_many_columns_have_planes_at_what_was_predicted(rng, monkeypatch, one_by_one):
    X, y = labelled(rng)
    monkeypatch.setattr(catalogue, "_MAX_PAIR_PRODUCTS", 0)
    model, whole = Model("ogd", classes=[0, 1]), Model("ogd", classes=[0, 1])
    whole.learn_many(rows_of(X), y.tolist())
    for row, label in zip(rows_of(X), y.tolist(), strict=True):
        if one_by_one:
            model.learn_one(row, label)
        else:
            model.learn_many([row], [label])
    found = load(model.to_bytes()).certificate()
    assert found == model.certificate()
    expected = whole.certificate().best_linear_at_least
    assert found.best_linear_at_least == pytest.approx(expected, rel=1e-9)
    assert 0.0 < found.best_linear_at_least <= least_cost(coordinates(X), y)


def test_a_stream_that_becomes_wide_keeps_its_bound(rng, monkeypatch):
    X, y = labelled(rng, T=400)
    y[300:][rng.random(100) < 0.5] = 2
    monkeypatch.setattr(catalogue, "_MAX_PAIR_PRODUCTS", 12)  # ten for two classes
    model = Model("ogd")
    model.learn_many(rows_of(X[:300]), y[:300].tolist())
    assert not model.pipeline.evidence.is_wide
    before = model.certificate().best_linear_at_least
    model.learn_many(rows_of(X[300:]), y[300:].tolist())
    assert model.pipeline.evidence.is_wide
    order = [list(model.labels).index(k) for k in y.tolist()]
    least = least_cost(coordinates(X), np.array(order), 3)
    found = model.certificate().best_linear_at_least
    assert 0.0 < found <= least
    assert before > 0.0


def test_planes_touch_at_distributions_also_where_no_class_was_known():
    P = stream_evidence._distributions(np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 0.7]]), 2)
    assert P.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.3, 0.7]]


def test_a_stream_of_words(rng):
    words = [" ".join(f"w{w}" for w in rng.integers(0, 9, 5)) for _ in range(150)]
    labels = ["p" if "w1" in text else "q" for text in words]
    one, many = (Model(roles={"t": "words"}) for _ in range(2))
    for text, label in zip(words, labels, strict=True):
        one.learn_one({"t": text}, label)
    many.learn_many([{"t": text} for text in words], labels)
    assert one.pipeline.evidence.to_bytes() == many.pipeline.evidence.to_bytes()
    found = load(one.to_bytes()).certificate()
    assert found == one.certificate()
    assert 0.0 < found.best_linear_at_least <= 150 * np.log(2.0)
    assert "texts as counts of hashed words" in found.models


def test_moments_merge_and_leave_gaps_out(rng):
    X = rng.normal(size=(50, 3)) * [1.0, 1e6, 0.0] + [0.0, 1e9, 7.0]
    X[rng.random(X.shape) < 0.2] = np.nan
    whole, parts = Moments.of(X), Moments.of(X[:7]) + Moments.of(X[7:])
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    scaler = FixedScaler().opened(whole, [True, True, True])
    Z = scaler.transform(X)[:, 1:]
    present = ~np.isnan(X)
    assert (Z[~present] == 0.0).all()
    np.testing.assert_allclose([Z[present[:, j], j].std() for j in (0, 1)], 1.0)
    np.testing.assert_allclose(Z[:, 2], 0.0, atol=1e-12)  # it does not vary: deviation 1


def test_a_model_is_the_same_in_either_coordinates(rng):
    X = rng.normal(size=(40, 3)) * [1.0, 50.0, 0.1] + [5.0, -3.0, 0.0]
    scaler = FixedScaler().opened(Moments.of(X), [True, False, True])
    weights, constants = rng.normal(size=(2, 3)), rng.normal(size=2)
    W = scaler.model(weights, constants)
    np.testing.assert_allclose(scaler.transform(X) @ W.T, X @ weights.T + constants)


@pytest.mark.parametrize("draw", range(8))
def test_rows_that_are_let_go_of_at_any_time_never_lift_a_bound(draw, seed, monkeypatch):
    """Of the whole stream and of windows; also rows that come before coordinates are set."""
    monkeypatch.setattr(stream_evidence, "HEAD_ROWS", 128)
    monkeypatch.setattr(stream_evidence, "_LEAST_HEAD_ROWS", 40)
    rng = np.random.default_rng([seed, draw])
    X, y = labelled(rng, T=400)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[0] = 1.0, 100.0, -5.0
    model = Model("ogd", windows=True)
    cuts = [*np.sort(rng.choice(np.arange(1, 250), rng.integers(1, 7), replace=False)).tolist()]
    for start, stop in zip([0, *cuts], [*cuts, 400], strict=True):
        model.learn_many(rows_of(X[start:stop]), y[start:stop].tolist())
        if stop < 400:
            before = model.certificate()
            model.release_rows()
            assert model.certificate().valid
            if stop >= 40 and before is not None:
                was, now = before.best_linear_at_least, model.certificate().best_linear_at_least
                assert now > (1.0 - 1e-3) * was - 1e-3
            model = load(model.to_bytes())
    n_head = min([*(cut for cut in cuts if cut >= 40), 128])
    Z, y = coordinates(X, n_head=n_head), np.where(y == y[0], 0, 1)
    found = model.certificate()
    assert f"the first {n_head} rows" in found.in_words()
    means = model.pipeline.evidence._scaler.means
    np.testing.assert_allclose(means, np.nanmean(X[:n_head], axis=0), rtol=1e-9)
    assert found.best_linear_at_least <= least_cost(Z, y)
    bounded = [window for window in model.windows() if window.lower_bound > 0.0]
    assert [window.start for window in bounded][:2] == [320, 256]
    assert bounded[0].lower_bound > 0.9 * least_cost(Z[320:], y[320:])
    assert bounded[-1].start == 0
    for window in bounded:
        rows = slice(window.start, window.stop)
        assert window.lower_bound <= least_cost(Z[rows], y[rows])


@pytest.mark.parametrize("n", [10, 50, 138, 178])
def test_a_window_that_lost_its_first_rows_has_the_later_ones(n, rng, monkeypatch):
    monkeypatch.setattr(stream_evidence, "HEAD_ROWS", 128)
    monkeypatch.setattr(stream_evidence, "_LEAST_HEAD_ROWS", 40)
    X, y = labelled(rng, T=256)
    model = Model("ogd", windows=True)
    model.learn_many(rows_of(X[:n]), y[:n].tolist())
    model.release_rows()
    model.learn_many(rows_of(X[n:]), y[n:].tolist())
    n_lost = n if n < 40 else n % 64
    ladder = model.pipeline.evidence._ladder
    assert sum(span.evidence.n_rounds for span in ladder) == 256 - n_lost
    assert sum(span.n_rounds for span in ladder) == 256


def test_large_sums_begin_windows_anew(rng, monkeypatch):
    monkeypatch.setattr(evidence, "_WIDE_POINT", 8)
    X, y = labelled(rng, T=600)
    model = Model("ogd", windows=True)
    model.learn_many(rows_of(X[:512]), y[:512].tolist())
    before = model.windows()[-1].lower_bound
    model.release_rows()
    model.learn_many(rows_of(X[512:]), y[512:].tolist())
    *recent, whole = model.windows()
    assert 0.0 < recent[0].lower_bound < recent[0].loss
    assert 0.0 < whole.lower_bound < before  # of the last 88 rows alone
    assert model.certificate().best_linear_at_least > before
