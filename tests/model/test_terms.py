"""Terms of columns: what they are, when they open, and that they cost little and gain much."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_selection import f_classif

import folklearn
from folklearn import Model, OnlineScaler, auto
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.kernels.scaling import CROSS, HINGE, PRODUCT, STEP
from folklearn.learners import mixture as mixtures
from folklearn.learners.auto import Auto
from folklearn.learners.term_mixture import TermMixture, affordable_terms
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.refit import refit
from folklearn.model.terms import TermScaler, TermSet, choose_terms, find_knots
from folklearn.serialization import as_bytes
from tests.reference import terms as reference


def state(model):
    record = model.to_record()
    return record.config, {part: array.tobytes() for part, array in record.arrays.items()}


def drawn(rng, T=300, d=3, gaps=0.1):
    """Rows of a number that is curved, one of few values and further ones, with gaps."""
    X = rng.normal(size=(T, d)) * (1.0 + np.arange(d))
    X[:, 1] = rng.integers(0, 4, T)
    y = (X[:, 0] ** 2 + X[:, 1] > 2.0).astype(np.int64)
    X[rng.random((T, d)) < gaps] = np.nan
    return X, y


def scaled(X):
    """Values as the scaler leaves them: standardised, and 0 where there is none."""
    return np.nan_to_num((X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0))


def losses_of(P, y):
    return -np.log(P[np.arange(len(y)), y])


# --- What they are ------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_terms_are_their_definition(gaps, rng):
    X, y = drawn(rng, gaps=gaps)
    Z = scaled(X)
    terms = choose_terms(X, y, 300, crosses=True)
    assert set(terms.blocks.tolist()) == {HINGE, STEP, PRODUCT, CROSS, CROSS + 1}
    found, expected = terms.expand(X, Z), reference.values_of(terms, X, Z)
    assert found.shape == (300, len(terms))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)
    waves = found[:, len(terms.kinds) :]
    assert np.abs(waves).max() <= math.sqrt(2.0) + 1e-9
    assert not np.isnan(waves).any()


@given(
    angle=st.floats(-1e6, 1e6), phase=st.floats(0.0, 2.0 * math.pi), size=st.sampled_from([1, 17])
)
def test_a_wave_is_a_cosine(angle, phase, size):
    """The polynomial errs by 1e-9 at most, and what rounding leaves of a large angle."""
    nothing = np.empty(0, np.int64), np.empty((0, 2), np.int64), np.empty((0, 2))
    terms = TermSet(1, *nothing, np.ones((size, 1)), np.full(size, phase))
    rows = np.array([[angle]])
    expected = math.sqrt(2.0) * math.cos(angle + phase)
    np.testing.assert_allclose(
        terms.expand(rows, rows)[0], expected, atol=1e-9 + 1e-14 * abs(angle)
    )


def test_absurd_values_stay_finite():
    terms = choose_terms(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1]), 60)
    X = np.array([[1e15], [-1e15], [1e-300], [np.nan]])
    values = terms.expand(X, np.clip(np.nan_to_num(X), -5.0, 5.0))
    assert np.isfinite(values[:3]).all()
    assert values[:3].max() == 1e6
    assert np.isnan(values[3, : len(terms.kinds)]).all()


def test_knots_of_few_values_lie_between_them():
    column = np.array([5.0, 1.0, 1.0, 2.0, 5.0, 2.0])
    assert find_knots(column, np.unique(column), 4) == [1.5, 3.5]
    assert find_knots(column, np.unique(column), 1) != []
    assert find_knots(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 4) == [0.5]
    assert find_knots(np.arange(5.0), np.arange(5.0), 4) == [0.5, 1.5, 2.5, 3.5]


def test_knots_of_many_values_are_quantiles_of_rows_and_of_values():
    """A column that is 0 on most rows: the quantiles of its rows say little."""
    column = np.concatenate([np.zeros(900), np.arange(1.0, 101.0)])
    values = np.unique(column)
    of_values = np.quantile(values, [1 / 3, 2 / 3]).tolist()
    assert find_knots(column, values, 4) == [0.0, *of_values]
    spread = np.arange(1000.0)
    for n in (3, 4):
        knots = find_knots(spread, spread, n)
        assert knots == sorted(set(knots))
        assert 2 <= len(knots) <= n
        assert 100.0 < min(knots) < max(knots) < 900.0
    high = np.concatenate([np.full(900, 100.0), np.arange(100.0)])
    assert max(find_knots(high, np.unique(high), 4)) < 100.0  # a step there is never taken


def test_columns_that_tell_the_classes_apart_come_first(rng):
    T, d = 200, 12
    X, y = rng.normal(size=(T, d)), rng.integers(0, 3, T)
    X[:, 7] += 2.0 * y
    X[:, 4] -= y
    terms = choose_terms(X, y, 24)
    curved = terms.columns[terms.kinds == HINGE, 0].tolist()
    assert set(curved) <= {7, 4}
    assert curved[0] == 7
    multiplied = terms.columns[terms.kinds == PRODUCT]
    assert [7, 7] in multiplied.tolist()
    assert [7, 4] in multiplied.tolist()
    crosses = choose_terms(X, y, 30, crosses=True)
    crossed = {tuple(pair) for pair in crosses.columns[crosses.kinds == CROSS].tolist()}
    assert (7, 4) in crossed
    assert len({j for pair in crossed for j in pair}) == 7


def products_of(terms):
    return [tuple(pair) for pair in terms.columns[terms.kinds == PRODUCT].tolist()]


def test_products_that_tell_more_than_the_columns_come_first(rng):
    T, d = 256, 12
    X = rng.normal(size=(T, d))
    y = (X[:, 3] * X[:, 8] + X[:, 1] + 0.5 * rng.normal(size=T) > 0.0).astype(int)
    y[X[:, 5] > 1.5] = 2
    Z = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -5.0, 5.0)
    order = sorted(range(d), key=lambda j: -f_classif(X, y)[0][j])
    every = [(i, j) for i in range(d) for j in range(i, d)]
    worth = {pair: reference.worth_of_product(Z, y, *pair) for pair in every}
    chosen = {tuple(sorted(pair)) for pair in products_of(choose_terms(X, y, 60))}
    first = set(order[: int(math.sqrt(len(chosen)))])
    of_first = {pair for pair in every if first >= {*pair}}
    others = sorted(set(every) - of_first, key=worth.get)
    assert chosen == of_first | set(others[len(of_first) - len(chosen) :])
    assert 10 < len(chosen) < len(every)
    assert {(3, 8), (5, 5)} == set(sorted(every, key=worth.get)[-2:])


def test_products_that_are_linear_are_left_out(rng):
    """Those of two categories of one column are 0 on every row."""
    T = 300
    a, b = rng.integers(0, 3, T), rng.integers(0, 4, T)
    X = np.hstack([np.eye(3)[a], np.eye(4)[b]])
    y = ((a == 1) & (b == 2) | (a == 0) & (b == 1)).astype(int)
    products = products_of(choose_terms(X, y, 60))
    assert {(min(i, j) < 3, max(i, j) >= 3) for i, j in products} == {(True, True)}
    assert len(products) == 12


def test_the_number_of_terms_is_about_what_is_allowed(rng):
    for d in (1, 5, 60):
        X, y = rng.normal(size=(100, d)), rng.integers(0, 2, 100)
        for n_most in (16, 50, 300):
            assert 0.5 * n_most <= len(choose_terms(X, y, n_most)) <= 1.2 * n_most
        assert len(choose_terms(X, y, 2000).phases) == 400


def test_columns_that_say_nothing_have_no_terms():
    """Constant ones, missing ones, and those whose spread has no inverse."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [np.full(50, 3.0), np.full(50, np.nan), 1e-170 * rng.normal(size=50), rng.normal(size=50)]
    )
    X[1:, 0][:5] = np.nan
    terms = choose_terms(X, rng.integers(0, 2, 50), 60)
    used = set(terms.columns[terms.kinds != PRODUCT].ravel().tolist())
    assert used == {3}
    assert not set(terms.columns.ravel().tolist()) & {0, 1}
    folklearn.load(terms.to_bytes())


def test_two_values_have_no_curves_and_no_square(rng):
    X = np.column_stack([rng.integers(0, 2, 80), rng.normal(size=80)]).astype(float)
    terms = choose_terms(X, rng.integers(0, 2, 80), 60)
    assert set(terms.columns[terms.kinds == STEP, 0].tolist()) == {1}
    products = terms.columns[terms.kinds == PRODUCT].tolist()
    assert sorted(map(sorted, products)) == [[0, 1], [1, 1]]


def test_terms_have_names():
    terms = TermSet(
        2,
        np.array([HINGE, STEP, PRODUCT, CROSS]),
        np.array([[0, 0], [1, 1], [0, 1], [1, 0]]),
        np.array([[0.5, 2.0], [1.25, 0.0], [0.0, 0.0], [1.0, -3.0]]),
        np.ones((2, 2)),
        np.zeros(2),
    )
    assert terms.names(["age", "size"]) == [
        "max(age - 0.5, 0)", "[size > 1.25]", "age * size", "[size > 1] * [age > -3]",
        "wave 0", "wave 1",
    ]  # fmt: skip
    assert len(terms) == 6


def test_terms_are_saved(rng):
    X, y = drawn(rng)
    terms = choose_terms(X, y, 100, crosses=True)
    loaded = folklearn.load(terms.to_bytes())
    assert state(loaded) == state(terms)
    for part, value in [("columns", 3), ("columns", -1), ("kinds", 4), ("numbers", np.nan)]:
        record = terms.to_record()
        record.arrays[part].flat[0] = value
        with pytest.raises(StateFileError, match=f"a TermSet state has a number in {part}"):
            folklearn.load(as_bytes(record))


# --- Their scale --------------------------------------------------------------------------------


def opened(rng, gaps=0.1, T=120, n_most=60):
    """A scaler whose terms open after 64 of T rows; terms of all rows, by definition."""
    X, y = drawn(rng, T, gaps=gaps)
    scaler = OnlineScaler(n_features=3, gaps=True)
    before = scaler.scale_rows(X[:64], learn=True)
    terms = choose_terms(X[:64], y[:64], n_most, crosses=True)
    return scaler, X, before, terms


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_terms_are_standardised_as_they_come(gaps, rng):
    scaler, X, before, terms = opened(rng, gaps)
    plain = OnlineScaler(n_features=3, gaps=True)
    np.testing.assert_array_equal(plain.learn_transform(X[:64]), before)
    early = plain.transform(X[:64])
    scaler = TermScaler.of(scaler, terms)
    first = scaler.learn_terms(X[:64])
    late = plain.learn_transform(X[64:])
    rest = scaler.scale_rows(X[64:], learn=True)
    Z = np.vstack([early, late])
    raw = reference.values_of(terms, X, Z[:, :3] / scaler.unit)
    expected = np.hstack([reference.standardised(raw, terms.blocks), Z])
    np.testing.assert_allclose(np.vstack([first, rest]), expected, atol=1e-9)
    assert scaler.n_terms == len(terms)
    lengths = np.linalg.norm(rest[:, : len(terms)], axis=1)
    assert 0.5 < lengths.mean() < 1.5


def test_portions_make_no_difference_to_a_scaler(rng):
    scaler, X, _, terms = opened(rng)
    scaler = TermScaler.of(scaler, terms)
    scaler.learn_terms(X[:64])
    whole, single = copy.deepcopy(scaler), copy.deepcopy(scaler)
    expected = whole.scale_rows(X[64:], learn=True)
    rows = []
    for x in X[64:]:
        quiet = single.scale_row(x, False)
        rows.append(single.scale_row(x, True))
        assert quiet.tobytes() == rows[-1].tobytes()
    assert np.array(rows).tobytes() == expected.tobytes()
    assert state(single) == state(whole)
    for cuts in ([1, 7], [30]):
        parts = copy.deepcopy(scaler)
        done = [parts.scale_rows(part, learn=True) for part in np.split(X[64:], cuts)]
        assert np.vstack(done).tobytes() == expected.tobytes()
        assert state(parts) == state(whole)


def test_a_scaler_goes_on_from_a_file(rng, tmp_path):
    scaler, X, _, terms = opened(rng)
    closed = TermScaler.of(folklearn.load(scaler.to_bytes()), terms)
    scaler = TermScaler.of(scaler, terms)
    assert closed.learn_terms(X[:64]).tobytes() == scaler.learn_terms(X[:64]).tobytes()
    scaler.save(tmp_path / "scaler")
    again = folklearn.load(tmp_path / "scaler")
    expected = scaler.scale_rows(X[64:], learn=True)
    assert again.scale_rows(X[64:], learn=True).tobytes() == expected.tobytes()
    assert state(again) == state(scaler)
    record = scaler.to_record()
    record.arrays["term_moments"] = record.arrays["term_moments"][:, 1:].copy()
    with pytest.raises(StateFileError, match="term_moments of shape"):
        folklearn.load(as_bytes(record))
    record = TermScaler(n_features=2).to_record()
    inner = scaler.to_record()
    record.config["terms"] = inner.config["terms"]
    record.arrays.update({p: a for p, a in inner.arrays.items() if p.startswith("term")})
    with pytest.raises(StateFileError, match="columns that it does not have"):
        folklearn.load(as_bytes(record))


def test_late_columns_lie_behind_terms_that_know_nothing_of_them(rng):
    scaler, X, _, terms = opened(rng, gaps=0.0)
    scaler = TermScaler.of(scaler, terms)
    scaler.learn_terms(X[:64])
    narrow = copy.deepcopy(scaler)
    scaler.grow(4)
    wide = np.hstack([X[64:], rng.normal(size=(len(X) - 64, 1))])
    rows, expected = scaler.scale_rows(wide, learn=True), narrow.scale_rows(X[64:], learn=True)
    assert rows[:, :-1].tobytes() == expected.tobytes()
    assert rows[:, -1].any()


# --- When they open -----------------------------------------------------------------------------


def pipeline(d=3, K=2, **words):
    return OnlinePipeline("auto", n_features=d, n_classes=K, **{"terms": "auto", **words})


def test_terms_open_twice_from_rows_that_were_scored(rng):
    X, y = drawn(rng)
    model = pipeline()
    model.run(X[:63], y[:63])
    assert model.scaler.n_terms == 0
    assert isinstance(model.learner, Auto)
    model.run(X[63:64], y[63:64])
    n_most = affordable_terms(4, 2)
    assert state(model.scaler.terms) == state(choose_terms(X[:64], y[:64], n_most))
    assert isinstance(model.learner, TermMixture)
    assert len(model.learner.experts) == 7
    assert [g.n_rounds for g in model.learner.gaussians] == [64] * 6
    assert model.learner.n_rounds == model.learner.lines.n_rounds == 64
    early = model.scaler.terms
    model.run(X[64:255], y[64:255])
    assert model.scaler.terms is early
    model.learn_row(X[255], int(y[255]))
    assert state(model.scaler.terms) == state(choose_terms(X[:256], y[:256], n_most))
    assert [g.n_rounds for g in model.learner.gaussians] == [256] * 6
    last = model.scaler.terms
    model.run(np.tile(X, (8, 1)), np.tile(y, 8))
    assert model.scaler.terms is last


def test_rows_without_weight_choose_nothing(rng):
    X, y = drawn(rng)
    weight = (np.arange(300) % 3 == 0).astype(float)
    model = pipeline()
    model.run(X[:64], y[:64], weight=weight[:64])
    assert model.scaler.n_terms == 0  # 22 rows are too few
    model.run(X[64:256], y[64:256], weight=weight[64:256])
    counted = weight[:256] > 0.0
    expected = choose_terms(X[:256][counted], y[:256][counted], affordable_terms(4, 2))
    assert state(model.scaler.terms) == state(expected)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), t=st.sampled_from([3, 50, 63, 64, 70, 200, 255, 256, 270]))
def test_labels_change_nothing_before_they_come(seed, t):
    rng = np.random.default_rng(seed)
    X, y = drawn(rng, T=280)
    other = np.where(np.arange(280) < t, y, rng.integers(0, 2, 280))
    P, Q = (pipeline().run(X, labels)[0] for labels in (y, other))
    assert P[: t + 1].tobytes() == Q[: t + 1].tobytes()


@pytest.mark.parametrize("n", [1, 64, 300])
def test_one_class_for_long_opens_terms_later(n, rng):
    X, y = drawn(rng, T=700)
    y[:n], y[n] = 0, 1
    model = OnlinePipeline("auto", n_features=3, terms="auto")
    P, u = model.run(X[:n], y[:n])
    np.testing.assert_array_equal(P[1:], 1.0)
    assert model.scaler.n_terms == 0
    P, u = model.run(X[n:], y[n:])
    assert np.isfinite(P).all()
    assert (u > 0.0).all()
    assert model.scaler.n_terms > 100
    n_opened = {1: 256, 64: 256, 300: 512}[n]
    expected = choose_terms(X[:n_opened], y[:n_opened], affordable_terms(4, 2))
    assert state(model.scaler.terms) == state(expected)


def test_terms_open_with_declared_classes_that_do_not_come(rng):
    X, y = drawn(rng, T=700)
    y[:300] = 1
    model = pipeline(K=3)
    P, _ = model.run(X, y)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    assert model.scaler.n_terms > 100


def test_late_columns_classes_and_gaps(rng):
    """Between the openings and after them; one by one is the run."""
    X, y = drawn(rng, T=400)
    X[:, 2] = 7.0  # does not vary
    wide = np.hstack([X, rng.normal(size=(400, 2))])
    y[:2] = 0, 1
    y[100:][X[100:, 0] > 1.5] = 2
    y[300:][wide[300:, 4] > 1.0] = 3
    parts = [(0, 80, 3), (80, 90, 4), (90, 280, 4), (280, 400, 5)]
    block, single = (OnlinePipeline("auto", n_features=3, terms="auto") for _ in range(2))
    for start, stop, d in parts:
        P, u = block.run(wide[start:stop, :d], y[start:stop])
        np.testing.assert_allclose(P[1:].sum(axis=1), 1.0, atol=1e-12)
        for t in range(start, stop):
            x = np.ascontiguousarray(wide[t, :d])
            p, unseen = single.learn_row(x, int(y[t]))
            np.testing.assert_allclose(p, P[t - start, : len(p)], atol=1e-9)
            assert unseen == u[t - start]
    assert block.n_classes == 4
    assert block.scaler.terms.n_columns == 4
    assert [g.n_features for g in block.learner.gaussians] == [block.scaler.n_terms + 6] * 6
    loaded = folklearn.load(block.to_bytes())
    np.testing.assert_array_equal(loaded.predict(wide), block.predict(wide))


def test_columns_that_never_vary_have_no_terms():
    model = pipeline(d=2)
    X, y = np.full((300, 2), 5.0), np.arange(300) % 2
    P, _ = model.run(X, y)
    assert np.isfinite(P).all()
    assert model.scaler.n_terms == 0


def test_tiny_and_huge_columns_can_be_saved(rng):
    X, y = rng.normal(size=(300, 4)) * np.array([1.0, 1e-120, 1e-170, 1e13]), None
    y = (X[:, 0] > 0).astype(int)
    model = pipeline(d=4)
    assert np.isfinite(model.run(X, y)[0]).all()
    loaded = folklearn.load(model.to_bytes())
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_terms_that_are_not_asked_for(rng):
    with pytest.raises(InvalidInputError, match="terms must be one of"):
        Model(terms="some")
    X, y = drawn(rng)
    for words in ({"terms": "none"}, {"scale": False}, {"terms": "all", "scale": False}):
        model = pipeline(**words)
        model.run(X, y)
        assert type(model.scaler) is OnlineScaler
        assert isinstance(model.learner, Auto)


def test_terms_that_nobody_learns_any_more_are_dropped(rng, monkeypatch):
    """Then rows are scaled and learned as if there had been none, and at the price of that."""
    for limit, value in {"_HOPELESS": 0.0, "_MIN_CREDIT": math.inf, "_CATCHES_UP": -99.0}.items():
        monkeypatch.setattr(mixtures, limit, value)
    X = rng.normal(size=(1100, 3))
    y = (X @ [3.0, -2.0, 0.5] + rng.logistic(size=1100) > 0.0).astype(np.int64)
    whole, parts, single, plain = pipeline(), pipeline(), pipeline(), pipeline(terms="none")
    P, Q = (model.run(X, y)[0] for model in (whole, plain))
    resumed = pipeline()
    resumed.run(X[:1023], y[:1023])
    assert resumed.scaler.n_terms > 100
    resumed = folklearn.load(resumed.to_bytes())
    assert resumed.run(X[1023:], y[1023:])[0].tobytes() == P[1023:].tobytes()
    for part in np.split(np.arange(1100), [1000, 1024, 1025]):
        assert parts.run(X[part], y[part])[0].tobytes() == P[part].tobytes()
    for x, label, p in zip(X, y, P, strict=True):
        np.testing.assert_allclose(single.learn_row(x, int(label))[0], p, atol=1e-9)
    assert state(whole) == state(parts) == state(resumed)
    assert P[1024:].tobytes() == Q[1024:].tobytes()
    for model in (whole, single):
        assert type(model.scaler) is OnlineScaler
        assert isinstance(model.learner, Auto)
        assert (model.terms, model._next_opening) == ("auto", 0)
        assert model.predict(X).shape == (1100, 2)


def test_too_many_columns_leave_no_room(rng):
    X, y = rng.normal(size=(70, 290)), rng.integers(0, 2, 70)
    model = pipeline(d=290)
    model.run(X, y)
    assert model.scaler.n_terms == 0
    assert model._next_opening == 256


# --- The same whatever way the rows come --------------------------------------------------------


@pytest.mark.parametrize("cuts", [[64], [63, 65, 255, 257], [1, 2, 50, 270], list(range(1, 280))])
def test_portions_make_no_difference_to_any_bit(cuts, rng):
    X, y = drawn(rng, T=280)
    weight = rng.choice([0.0, 0.5, 1.0], 280)
    whole, parts = pipeline(), pipeline()
    P, _ = whole.run(X, y, weight=weight)
    done = [
        parts.run(*part[:2], weight=part[2])[0]
        for part in zip(*(np.split(array, cuts) for array in (X, y, weight)), strict=True)
    ]
    assert np.vstack(done).tobytes() == P.tobytes()
    assert state(parts) == state(whole)


@pytest.mark.parametrize("late", [60, 100, 250, 300])
def test_columns_that_come_late_in_a_batch_do_not_change_the_choice(late, rng):
    """A number and an indicator: known to the batch before the opening, but to no row."""
    X, y = drawn(rng, T=400, d=5)
    X[:late, 3], X[:, 4] = np.nan, np.arange(400) % 3 == 0
    X[:late, 4] = 0.0
    words = {"late_missing": [True, False], "late_numeric": [True, False]}
    whole, parts = pipeline(), pipeline()
    P, _ = whole.run(X, y, **words)
    first, _ = parts.run(X[:late, :3], y[:late])
    rest, _ = parts.run(X[late:], y[late:], **words)
    assert whole.scaler.terms.n_columns == (5 if late < 256 else 3)
    assert state(whole.scaler.terms) == state(parts.scaler.terms)
    np.testing.assert_allclose(np.vstack([first, rest]), P, atol=1e-9)


@pytest.mark.parametrize("cut", [10, 63, 64, 70, 255, 256, 260, 300])
def test_resuming_equals_never_stopping(cut, rng):
    X, y = drawn(rng, T=400)
    straight, stopped = pipeline(), pipeline()
    P, _ = straight.run(X, y)
    stopped.run(X[:cut], y[:cut])
    resumed = folklearn.load(stopped.to_bytes())
    assert state(resumed) == state(stopped)
    if resumed.learner is not None:
        assert resumed.learner.standing == stopped.learner.standing
    assert resumed.run(X[cut:], y[cut:])[0].tobytes() == P[cut:].tobytes()
    assert state(resumed) == state(straight)


@pytest.mark.parametrize("cut", [30, 255])
def test_a_model_resumes_row_by_row(cut, rng):
    X, y = drawn(rng, T=270)
    rows = [{"a": a, "b": b, "c": c} for a, b, c in np.nan_to_num(X).tolist()]
    straight, stopped = Model(), Model()
    for t, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        straight.learn_one(row, label)
        stopped.learn_one(row, label)
        if t == cut:
            stopped = folklearn.load(stopped.to_bytes())
    assert stopped.pipeline.scaler.n_terms > 0
    assert state(stopped) == state(straight)


def test_many_rows_are_the_loop(rng):
    X, y = drawn(rng, T=400)
    rows = [
        {"a": a, "b": b, "c": None if math.isnan(c) else c}
        for (a, b), c in zip(np.nan_to_num(X[:, :2]).tolist(), X[:, 2].tolist(), strict=True)
    ]
    one, many = Model(classes=[0, 1]), Model(classes=[0, 1])
    step = many.learn_many(rows, y.tolist())
    for row, label, p in zip(rows, y.tolist(), step.P, strict=True):
        np.testing.assert_allclose(list(one.predict_proba_one(row).values()), p, atol=1e-9)
        one.learn_one(row, label)
    assert isinstance(one.pipeline.learner, TermMixture)
    np.testing.assert_allclose(one.predict_proba(rows), many.predict_proba(rows), atol=1e-9)


def test_late_categories_come_after_terms(rng):
    T = 400
    rows = [
        {"n": float(rng.normal()), "c": f"v{int(rng.integers(2 if t < 100 else 6))}"}
        for t in range(T)
    ]
    y = [int(row["n"] ** 2 > 1.0) ^ (row["c"] == "v1") for row in rows]
    model = Model()
    for start in range(0, T, 20):
        step = model.learn_many(rows[start : start + 20], y[start : start + 20])
        assert np.isfinite(step.losses).all()
    pipeline = model.pipeline
    assert pipeline.scaler.n_features == 7
    assert [g.n_features for g in pipeline.learner.gaussians] == [pipeline.scaler.n_terms + 8] * 6
    again = folklearn.load(model.to_bytes())
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))


def test_without_terms_it_is_the_scaler_and_the_learner(rng):
    X, y = drawn(rng, T=500)
    model = Model(terms="none", classes=[0, 1])
    step = model.learn_many(X, y)
    assert type(model.pipeline.scaler) is OnlineScaler
    assert isinstance(model.pipeline.learner, Auto)
    Z = OnlineScaler(n_features=3, gaps=True).learn_transform(X)
    learner = auto(n_features=4, n_classes=2, certify=False)
    assert step.P.tobytes() == learner.run(Z, y).tobytes()


@pytest.mark.parametrize("name", ["folklore", "ogd"])
def test_a_learner_that_was_named_is_used_as_it_is(name, rng):
    X, y = drawn(rng)
    plain, asked = Model(name), Model(name, terms="all")
    for model in (plain, asked):
        model.learn_many(X[:70], y[:70])
    assert type(plain.pipeline.scaler) is OnlineScaler
    assert isinstance(asked.pipeline.learner, TermMixture)
    assert type(asked.pipeline.learner.lines) is type(plain.pipeline.learner)


def test_all_terms_have_crosses(rng):
    X, y = drawn(rng)
    few, all_ = Model(), Model(terms="all")
    for model in (few, all_):
        model.learn_many(X[:70], y[:70])
    assert CROSS not in few.pipeline.scaler.terms.kinds
    assert CROSS in all_.pipeline.scaler.terms.kinds
    assert all_.pipeline.scaler.n_terms > few.pipeline.scaler.n_terms
    assert folklearn.load(all_.to_bytes()).terms == "all"


# --- Copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [70, 230, 330])
def test_a_copy_that_predicts_does_not_follow(cut, rng):
    """The stripes of the hold-out hold one; that at 216 is open when terms are chosen again."""
    X, y = drawn(rng, T=400)
    model = pipeline()
    for t in range(cut):
        model.learn_row(X[t], int(y[t]))
    assert model.holdout.is_open
    frozen = model.holdout._learner, model.holdout._scaler
    copied = model.copy_to_predict()
    next_, by_holdout = model.predict_next(X), model.predict(X)
    Z = frozen[1].transform(X)
    held = frozen[0].predict(Z)
    before = [state(part) for part in frozen]
    for t in range(cut, 400):
        model.learn_row(X[t], int(y[t]))
    assert [state(part) for part in frozen] == before
    np.testing.assert_array_equal(frozen[0].predict(frozen[1].transform(X)), held)
    np.testing.assert_array_equal(copied.predict_next(X), next_)
    np.testing.assert_array_equal(copied.predict(X), by_holdout)
    assert np.abs(model.predict_next(X) - next_).max() > 1e-3
    with pytest.raises(InvalidInputError, match="made to predict cannot learn"):
        copied.run(X[:1], y[:1])


def test_a_model_to_predict_is_the_model_now(rng):
    X, y = drawn(rng, gaps=0.0)
    model = Model()
    model.learn_many(X, y)
    copied = model.copy_to_predict()
    expected = model.predict_proba(X)
    model.learn_many(X[::-1], y)
    np.testing.assert_array_equal(copied.predict_proba(X), expected)


# --- Files that nobody saved --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "value", "sentence"),
    [
        ("next_opening", 100, "opens terms at a round that is over"),
        ("next_opening", 70, "opens terms at a round that is over"),
        ("next_opening", -1, "next_opening must be at least 0"),
        ("terms", "some", "terms must be one of"),
    ],
)
def test_openings_that_nobody_saves_are_refused(word, value, sentence, rng):
    X, y = drawn(rng)
    model = pipeline()
    model.run(X[:100], y[:100])
    record = model.to_record()
    assert record.config["next_opening"] == 256
    record.config[word] = value
    with pytest.raises(StateFileError, match=sentence):
        folklearn.load(as_bytes(record))


def test_terms_that_the_learner_does_not_know_are_refused(rng):
    X, y = drawn(rng)
    model, plain = pipeline(), pipeline(terms="none")
    model.run(X, y)
    plain.run(X, y)
    record, other = model.to_record(), plain.to_record()
    record.config["scaler"] = other.config["scaler"]
    for part in [part for part in record.arrays if part.startswith("scaler.")]:
        del record.arrays[part]
    record.arrays.update({p: a for p, a in other.arrays.items() if p.startswith("scaler.")})
    with pytest.raises(StateFileError, match="terms that its learner does not know"):
        folklearn.load(as_bytes(record))
    other.config["next_opening"] = 10**6
    with pytest.raises(StateFileError, match="has no place for them"):
        folklearn.load(as_bytes(other))


# --- What they cost, and what they gain ---------------------------------------------------------


def total_loss(X, y, **words):
    model = pipeline(d=X.shape[1], **words)
    return losses_of(model.run(X, y)[0], y).sum(), model


def test_on_a_linear_stream_terms_cost_what_was_promised(rng):
    T = 3000
    X = rng.normal(size=(T, 3))
    y = (X @ [1.5, -1.0, 0.5] + rng.logistic(size=T) > 0.0).astype(np.int64)
    with_terms, model = total_loss(X, y)
    without, _ = total_loss(X, y, terms="none")
    assert model.learner.lines is not None
    assert with_terms <= without + math.log(7.0) + math.log(T)


def circle(rng, T):
    X = rng.normal(size=(T, 2))
    return X, ((X**2).sum(axis=1) > 1.4).astype(np.int64)


def test_a_circle_is_learned(rng):
    X, y = circle(rng, 1500)
    with_terms, _ = total_loss(X, y)
    without, _ = total_loss(X, y, terms="none")
    assert with_terms < 0.4 * without


def test_two_categories_against_each_other_are_learned(rng):
    T = 1000
    a, b = rng.integers(0, 2, (2, T))
    rows = [{"a": "xy"[i], "b": "uv"[j]} for i, j in zip(a, b, strict=True)]
    y = ["no" if i == j else "yes" for i, j in zip(a, b, strict=True)]
    curved, linear = Model(), Model(terms="none")
    for model in (curved, linear):
        model.learn_many(rows, y)
    assert curved.metrics.loss < 0.3 * linear.metrics.loss


def test_a_fit_with_terms_is_better_where_the_classes_are_curved(rng, tmp_path):
    X, y = circle(rng, 900)
    X[:, 1] = rng.normal(size=900)
    y = (X[:, 0] ** 2 + 0.1 * rng.normal(size=900) > 1.0).astype(np.int64)
    rows = [{"a": a, "b": b, "y": label} for (a, b), label in zip(X.tolist(), y, strict=True)]
    curved, linear = Model(), Model(terms="none")
    losses = []
    for model in (curved, linear):
        model.fit(rows[:600], "y")
        P = model.predict_proba([{"a": row["a"], "b": row["b"]} for row in rows[600:]])
        order = [model.labels.index(k) for k in (0, 1)]
        losses.append(losses_of(P[:, order], y[600:]).mean())
    assert losses[0] < 0.5 * losses[1]
    n_terms = curved.pipeline.scaler.n_terms
    assert curved.pipeline.batch_fit.shape == (2, n_terms + 3)
    assert linear.pipeline.batch_fit.shape == (2, 3)
    curved.save(tmp_path / "fitted")
    loaded = folklearn.load(tmp_path / "fitted")
    assert state(loaded) == state(curved)
    asked = [{"a": 0.3, "b": 1.0}, {"a": 2.0, "b": 0.0}]
    np.testing.assert_array_equal(loaded.predict_proba(asked), curved.predict_proba(asked))
    assert curved.pipeline.coef().shape == (2, 3)


def test_a_fit_with_terms_costs_little_where_they_do_not_help(rng):
    X = rng.normal(size=(2600, 3))
    y = (X @ [3.0, -2.0, 0.5] + rng.logistic(size=2600) > 0.0).astype(np.int64)
    losses = []
    for model in (pipeline(), pipeline(terms="none")):
        model.run(X[:600], y[:600])
        refit(model, lambda: [(X[:600], y[:600], np.ones(600))])
        losses.append(losses_of(model.predict(X[600:]), y[600:]).mean())
    assert losses[0] < losses[1] + 0.06


def test_a_fit_takes_hard_and_soft_labels_few_rows_and_none(rng):
    X, y = drawn(rng, gaps=0.0)
    soft = 0.8 * np.eye(2)[y] + 0.1
    model = pipeline()
    model.run(X, y)
    for n in (0, 1, 2, 5, 13, 40):
        refit(model, lambda n=n: [(X[:n], y[:n], np.ones(n))] if n else [])
        assert np.isfinite(model.predict(X)).all()
    ones = np.ones(150)
    refit(model, lambda: [(X[:150], y[:150], ones), (X[150:], soft[150:], ones)])
    mixed = model.predict(X)
    both = np.vstack([np.eye(2)[y[:150]], soft[150:]])
    refit(model, lambda: [(X, both, np.ones(300))])
    np.testing.assert_allclose(model.predict(X), mixed, atol=1e-6)
