"""A model lets go of every row, and goes on to learn, predict and prove."""

import copy
import struct

import numpy as np
import pytest

from folklearn import DecisionModel, Leader, Model, load
from folklearn.errors import InvalidInputError
from folklearn.kernels import experts, leaders
from folklearn.learners.leader import ExpertLearner
from folklearn.learners.shared_gaussian import SharedGaussian
from tests.test_laws import LEARNERS, random_stream

NUMBER, NAME, WORD, ID = 0.123456789123456, "zebrafish", "quokka", "P-77"


def stream(n, *, words=False, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        row = {"a": rng.normal(), "b": rng.exponential(), "c": str(rng.choice(["x", "y", "z"]))}
        if words:
            row["t"] = " ".join(rng.choice(["red", "green", "blue", "grey"], 4))
        yield row, "p" if row["a"] + (row["c"] == "x") + 0.5 * rng.logistic() > 0.3 else "q"


def learn(model, rows, *, at_once=False):
    if at_once:
        rows, labels = zip(*rows, strict=True)
        model.learn_many(list(rows), list(labels))
        return
    for row, label in rows:
        model.learn_one(row, label)


def has_row(record, x):
    """Tell whether an array of a state has a row of numbers, or a multiple of it, side by side."""
    for array in record.arrays.values():
        for flat in (array.ravel(), array.T.ravel()):
            if array.dtype != np.float64 or flat.size < x.size:
                continue
            finite = np.where(np.isfinite(flat), flat, 0.0)
            windows = np.lib.stride_tricks.sliding_window_view(finite, x.size)
            norms = np.sqrt((windows**2).sum(axis=1)) * np.linalg.norm(x)
            if (np.abs(windows @ x) > (1.0 - 1e-9) * norms + 1e-300).any():
                return True
    return False


SETTINGS = {
    "default": {},
    "windows": {"windows": True},
    "lines": {"terms": "none"},
    "all terms": {"terms": "all"},
    "crosses": {"crosses": [("c", "a")]},
    "not scaled": {"scale": False},
    "by class": {"coverage": 0.9, "coverage_by": "class"},
    "second class": {"classes": ["q", "p"]},
    "leader that is certified": {"learner": "leader", "certify": True},
    "forgetful": {"learner": "leader", "memory": 40},
    **{
        name: {"learner": name}
        for name in ("folklore", "leader", "blocks", "gaf", "laplace", "ogd")
    },
    **{name: {"learner": name, "classes": ["q", "p"]} for name in ("aioli", "ons")},
}


CASES = [(name, 300, False) for name in SETTINGS]
CASES += [(name, n, False) for name in ("default", "windows", "lines") for n in (0, 40, 1025)]
CASES += [(name, n, True) for name in ("default", "windows") for n in (0, 40, 300, 1025)]


@pytest.mark.parametrize(("name", "n", "words"), CASES)
def test_nothing_of_a_row_is_left_and_all_goes_on(name, n, words):
    settings = SETTINGS[name]
    model = Model(roles={"id": "ignored"}, **settings)
    grows = settings.get("learner") not in ("aioli", "ons")
    for i, (row, label) in enumerate(stream(n, words=words)):
        row |= {"id": f"P-{i}", "c": row["c"] if grows else None}
        if i == n - 1:  # the first after a power of 2, where moments begin anew
            row |= {"a": NUMBER, "b": 2.0 * NUMBER, "id": ID}
            row |= {"t": f"red {WORD}"} if words else {}
        model.learn_one(row, label)
    number = model.ask({"a": NUMBER, "id": ID})[1]
    planted = [ID.encode(), str(NUMBER).encode(), struct.pack("<d", NUMBER)]
    planted += [WORD.encode()] * (words and n > 0)
    content = model.to_bytes()
    assert all(each in content for each in planted[: None if n else 2])
    row = {"a": 0.5, "b": 1.0, "c": "x", **({"t": "red green"} if words else {})}
    before = model.predict_proba_one(row)

    model.release_rows()

    content = model.to_bytes()
    assert not any(each in content for each in planted)
    assert not model.pending
    assert not len(model.recent.rows()[1])
    assert not model.sets._waiting
    assert model.predict_proba_one(row) == before
    with pytest.raises(InvalidInputError, match=f"no row waits under the number {number}"):
        model.tell(number, "p")
    again = load(content)
    again.release_rows()
    assert again.to_bytes() == content
    again, parts = load(content), copy.deepcopy(model)
    more = [(row if grows else row | {"c": None}, y) for row, y in stream(150, words=words, seed=1)]
    learn(again, more)
    for start in (0, 50, 51):
        learn(parts, more[start : {0: 50, 50: 51, 51: 150}[start]])
        parts = load(parts.to_bytes())
    assert parts.to_bytes() == again.to_bytes()
    assert again.n_rounds == again.metrics.n_rows == n + 150
    assert again.certificate().valid
    assert (
        again.certificate().best_linear_at_least
        <= again.metrics.loss + again.certificate().n_rounds
    )


@pytest.mark.parametrize(("n", "n_later"), [(40, 3), (300, 3), (1500, 100), (2100, 3), (2113, 0)])
def test_scaled_rows_are_let_go_of_too(n, n_later):
    """Also those of windows, and the last one, of whose sum it would be the only row."""
    model, rows = Model(windows=True), list(stream(n))
    learn(model, rows[: n - 1 - n_later])
    planted = {"a": 0.7 * NUMBER, "b": 0.3 + NUMBER, "c": "x"}
    raw = model.encoder.encode_row(planted)
    online = model.pipeline.scaler.scale_row(raw, False)[-5:]  # behind the terms
    model.learn_one(planted, "p")
    learn(model, rows[n - n_later :])
    assert has_row(model.to_record(), online)
    evidence = model.pipeline.evidence
    fixed = raw if evidence._scaler is None else evidence._scaler.transform(raw[None])[0]
    assert has_row(model.to_record(), raw) or has_row(model.to_record(), fixed)
    model.release_rows()
    evidence = model.pipeline.evidence
    if evidence._scaler is not None:
        fixed = evidence._scaler.transform(raw[None])[0]
    assert not any(has_row(model.to_record(), x) for x in (raw, online, fixed))


def experts_of(learner):
    inside = getattr(learner, "experts", []) if not isinstance(learner, ExpertLearner) else []
    return [learner, *(part for expert in inside for part in experts_of(expert))]


@pytest.mark.parametrize("name", sorted(LEARNERS.keys() - {"aggregating"}))  # which no model has
@pytest.mark.parametrize("T", [1, 30, 300])
def test_learners_let_go_of_rows_and_predict_the_same(name, T):
    make = LEARNERS[name]
    d, K = 6, 2 if make.two_classes else 3
    X, y, _ = random_stream(1, T + 100, d, K)
    learner = make(d, K)
    learner.run(X[:T], y[:T])
    before = learner.predict(X[T:])
    covariance = learner.covariance() if name == "shared blocks" else None
    learner._release_rows()
    for part in experts_of(learner):
        if isinstance(part, SharedGaussian):
            np.testing.assert_allclose(part.covariance(), covariance, rtol=1e-12, atol=1e-12)
    if T >= 30:  # a sum of one row is that row
        assert not any(has_row(learner.to_record(), x) for x in X[:T] if x.any())
    for part in experts_of(learner):
        if isinstance(part, ExpertLearner):
            state = part._state
            for name in ("recent_x", "recent_y", "recent_w", "kept_x", "kept_y", "kept_w", "seen"):
                assert not state[name].any()
        if isinstance(part, SharedGaussian):
            assert not part._U.any()
            assert not part._kappas.any()
    np.testing.assert_array_equal(learner.predict(X[T:]), before)
    one = type(learner).from_record(learner.to_record())
    whole, parts = one.run(X[T:], y[T:]), np.empty((100, K))
    for rows in (slice(0, 33), slice(33, 34), slice(34, 100)):
        parts[rows] = learner.run(X[T:][rows], y[T:][rows])
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)
    if make.bytes:
        assert learner.to_bytes() == one.to_bytes()


@pytest.mark.parametrize("T", [30, 50, 51, 133, 300])
def test_rows_of_leaders_enter_their_sums_and_no_others(T):
    """Rows that are kept, and those that wait behind them, curve the sum as they did before."""
    X, y, _ = random_stream(1, T, 4, 3)
    leader = Leader(n_features=4, n_classes=3, kept=50)
    forgetful = Leader(n_features=4, n_classes=3, memory=1280)  # refreshed after 128 rows
    for learner in (leader, forgetful):
        learner.run(X, y)
    before = leader.curvature()
    for learner in (leader, forgetful):
        learner._release_rows()
    np.testing.assert_allclose(leader.curvature(), before, rtol=1e-12)
    assert not leader._state.plan[experts.N_KEPT]
    fresh = Leader(n_features=4, n_classes=3, memory=1280)
    fresh.run(X, y)
    since = slice(T - T % 128, T)
    S, G, _ = fresh._state.quadratic(0)
    W, weights = fresh._state.model(0), np.ones(T % 128)
    leaders.add_expanded(S, G, W, X[since], np.eye(3)[y[since]], weights)
    np.testing.assert_allclose(forgetful._state.quadratic(0).S, S, rtol=1e-12)
    np.testing.assert_allclose(forgetful._state.quadratic(0).G, G, rtol=1e-12)


@pytest.mark.parametrize("name", ["leader", "leader that forgets", "auto", "shared blocks"])
def test_learners_lose_little_by_it(name):
    d, K, T = 4, 3, 3000
    X, y, _ = random_stream(7, T, d, K)
    losses = []
    for n_releases in (0, 1, 10):
        learner, total = LEARNERS[name](d, K), 0.0
        for part in np.array_split(np.arange(T), n_releases + 1):
            P = learner.run(X[part], y[part])
            total -= np.log(P[np.arange(len(part)), y[part]]).sum()
            learner._release_rows()
        losses.append(total / T)
    assert losses[1] < losses[0] + 0.005
    assert losses[2] < losses[0] + 0.02


def test_a_released_state_is_a_function_of_the_state(tmp_path):
    model = Model(windows=True)
    learn(model, stream(700, words=True))
    again = load(model.to_bytes())
    again.certificate()
    again.windows()
    again.predict_proba_one({"a": 1.0})
    for each in (model, again):
        each.release_rows()
    assert model.to_bytes() == again.to_bytes()


def test_labels_that_wait_to_move_thresholds_do_so():
    model, again = Model(), Model()
    learn(model, stream(10))
    learn(again, stream(10))
    assert model.sets._waiting
    model.release_rows()
    assert not model.sets._waiting
    assert model.sets.to_bytes() == again.sets.to_bytes()


def test_models_that_only_predict_and_fits(tmp_path):
    model = Model()
    table = [{**row, "label": label} for row, label in stream(400)]
    model.fit(table, target="label")
    expected = model.predict_proba(table)
    model.release_rows()
    np.testing.assert_array_equal(model.predict_proba(table), expected)
    assert model.hindsight is not None
    model.save(tmp_path / "small", inference=True)
    small = load(tmp_path / "small")
    content = small.to_bytes()
    small.release_rows()
    assert small.to_bytes() == content
    np.testing.assert_array_equal(small.predict_proba(table), expected)


def test_wide_rows():
    model = Model()
    rng = np.random.default_rng(0)
    for i in range(300):
        words = rng.choice(["red", "green", "blue", "grey", "black"], 4)
        model.learn_one({"t": " ".join([*words, WORD] if i == 298 else words)}, words[0])
    assert WORD.encode() in model.to_bytes()
    model.release_rows()
    assert WORD.encode() not in model.to_bytes()
    model.learn_one({"t": "red green blue"}, "red")
    assert model.certificate().valid
    assert model.certificate().best_linear_at_least > 0.0


def test_the_hold_out_scores_what_it_has(monkeypatch):
    """A stripe from row 516 to 644 is open: 84 rows of it are scored, 24 are not."""
    for n, is_scored in ((600, True), (540, False)):
        model = Model()
        learn(model, stream(n))
        holdout = model.pipeline.holdout
        assert holdout.is_open
        before = holdout._totals.copy()
        model.release_rows()
        holdout = model.pipeline.holdout
        assert not holdout.is_open
        assert not holdout.rows.n_rows
        assert holdout.next_round > n
        assert (holdout._totals[1] != before[1]) == is_scored


def test_changed_columns_are_found_with_bins_of_later_rows():
    rng, model = np.random.default_rng(0), Model("ogd")
    shift = None
    for i in range(900):
        model.learn_one({"a": float(rng.normal() + 3.0 * (i > 700))}, "pq"[i % 2])
        if i in (99, 400):
            model.release_rows()
    shift = model.metrics.find_shifts(model.encoder)["a"]
    assert 660 <= shift.since <= 740
    assert model.metrics._columns._lengths.sum() == 900 - 100 - 256


def test_decisions_that_wait_expire():
    for default, n_dropped, n_expired in ((None, 100, 0), (0.25, 0, 100)):
        model = DecisionModel(["tea", "coffee"], default_reward=default)
        for i in range(200):
            decision = model.decide({"x": NUMBER if i % 2 else i / 7.0, "who": f"P-{i}"})
            if i % 2 == 0:
                model.reward(decision.id, i % 3 == 0)
        assert ID.encode() in model.to_bytes()
        model.release_rows()
        content = model.to_bytes()
        assert b"0.12345678912345" not in content
        assert struct.pack("<d", NUMBER) not in content
        assert not model.pending
        assert (model.n_dropped, model.n_expired) == (n_dropped, n_expired)
        again = load(content)
        again.release_rows()
        assert again.to_bytes() == content
        for each in (model, again):
            decision = each.decide({"x": 1.0})
            each.reward(decision.id, 1.0)
        assert again.to_bytes() == model.to_bytes()


def test_categories_of_decisions_lose_their_names():
    model = DecisionModel(["tea", "coffee"])
    for i in range(30):
        decision = model.decide({"x": i / 7.0, "kind": NAME if i % 3 else "horse"})
        model.reward(decision.id, i % 2)
    row = {"x": 1.0, "kind": "horse"}
    expected = model.expected_rewards(row)
    model.encoder.forget_categories([model.encoder.find_category("kind", NAME)])
    model.release_rows()
    assert NAME.encode() not in model.to_bytes()
    assert model.expected_rewards(row) == expected
    model.reward(model.decide({"x": 1.0, "kind": NAME}).id, 1.0)
    assert model.encoder.find_category("kind", NAME) == 3


# Names of categories.


def with_categories(n=300, **settings):
    model = Model(**settings)
    for i, (row, label) in enumerate(stream(n)):
        category = NAME if i % 7 == 0 else row["c"]
        model.learn_one({**row, "c": category, "d": "ab"[i % 2]}, label)
    return model


def test_a_category_loses_its_name_and_keeps_its_weights():
    model = with_categories()
    place, W = model.find_category("c", NAME), model.pipeline.coef()
    assert model.encoder.keys[place] == ("c", NAME)
    n_bytes = model.encoder.n_bytes
    model.forget_categories([place])
    model.release_rows()
    assert model.find_category("c", NAME) is None
    content = model.to_bytes()
    assert NAME.encode() not in content
    again = load(content)
    assert again.encoder.keys == model.encoder.keys
    assert again.encoder.n_bytes == model.encoder.n_bytes != n_bytes
    assert again.to_bytes() == content
    np.testing.assert_array_equal(model.pipeline.coef(), W)
    unknown, missing = ({"a": 0.3, "b": 1.0, "d": "a", **c} for c in ({"c": NAME}, {}))
    assert model.predict_proba_one(unknown) == model.predict_proba_one(missing)
    n = len(model.encoder.keys)
    model.learn_one({"a": 0.0, "b": 1.0, "c": NAME, "d": "a"}, "p")
    assert model.find_category("c", NAME) == n
    model.forget_categories([place, n, n])  # the first has none any more
    assert model.find_category("c", NAME) is None
    assert model.encoder.name_of(*model.encoder.keys[n]) == f"c = (forgotten {n})"


def test_crosses_lose_the_name_too():
    model = with_categories(crosses=[("c", "d"), ("c", "a"), ("d", "c")])
    named = [i for i, (_, part) in enumerate(model.encoder.keys) if NAME in part]
    assert len(named) == 6
    again = load(model.to_bytes())
    model.forget_categories([model.find_category("c", NAME)])
    assert not [part for _, part in model.encoder.keys if NAME in part]
    n_places = [
        sum(part.startswith(" forgotten") for source, part in model.encoder.keys if source == name)
        for name in ("c", "c:d", "c:a", "d:c")
    ]
    assert n_places == [1, 2, 1, 2]
    again.encoder.places.pop(("c", NAME))  # as if further categories shared places
    while (place := again.find_category("c", NAME)) is not None:
        again.forget_categories([place])
    again.encoder.places["c", NAME] = named[0]
    assert [i for i, (_, part) in enumerate(again.encoder.keys) if NAME in part] == named[:1]


def test_categories_beside_words_have_names_and_hashed_ones_have_none():
    model = Model()
    for row, label in stream(300, words=True):
        model.learn_one(row, label)
    place = model.find_category("c", "x")
    assert model.encoder.dense.keys[place] == ("c", "x")
    model.forget_categories([place])
    assert model.find_category("c", "x") is None
    assert load(model.to_bytes()).find_category("c", "y") is not None
    model.learn_one({"a": 0.0, "c": "x", "t": "red red"}, "p")
    assert model.find_category("c", "x") is not None


def test_what_is_no_category_is_not_found_and_not_forgotten():
    model = with_categories()
    assert Model().find_category("c", NAME) is None
    Model().forget_categories([])
    for column, value in (("c", "never"), ("c", None), ("a", 1.0), ("none", NAME), ("c", "#3")):
        assert model.find_category(column, value) is None
    keys = list(model.encoder.keys)
    number = model.encoder.places["a", ""]
    for place in (number, -1, len(keys)):
        with pytest.raises(InvalidInputError, match=f"no category has the position {place}"):
            model.forget_categories([model.find_category("c", NAME), place])
    assert model.encoder.keys == keys


def test_forgotten_names_count_among_the_hundred_of_a_column():
    model = Model("ogd")
    for i in range(110):
        model.learn_one({"c": f"k{i}"}, "pq"[i % 2])
    model.forget_categories([model.find_category("c", f"k{i}") for i in range(50)])
    model.learn_one({"c": "k0"}, "p")
    assert model.find_category("c", "k0") is None  # it shares a place, as the 101st does
    assert model.find_category("c", "k105") is None
    assert model.find_category("c", "#5") is None
