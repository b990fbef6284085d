"""The verbs of Model: any row and label in, exact on the way out, all or nothing."""

import copy
import datetime
import math
import pickle
from dataclasses import asdict
from decimal import Decimal

import numpy as np
import pytest
from scipy.sparse import csr_array

import folklearn
from folklearn import DataWarning, DecisionModel, Folklore, Model
from folklearn.errors import InvalidInputError

COLOURS = ["red", "green", "blue", None]


def rows_of(rng, T=200, words=False):
    """Rows of every role, with gaps, a late column, and labels that come late."""
    found = []
    for t in range(T):
        number = float(rng.normal())
        row = {"n": number if t == 0 or rng.random() > 0.1 else None}
        row["colour"] = COLOURS[int(rng.integers(4))] if t else "red"
        row["day"] = f"2026-01-{1 + t % 28:02}"
        if words:
            row["note"] = "sun and more sun" if number > 0 else "rain and more rain"
        label = "cold" if number < 0 else ("warm" if t < 40 or number < 1 else "hot")
        found.append((row, label))
    return found


def state(model):
    record = model.to_record()
    return record.config, {part: array.tobytes() for part, array in record.arrays.items()}


def learned(rows, *arguments, **words):
    model = Model(*arguments, **words)
    for x, y in rows:
        model.learn_one(x, y)
    return model


def count_places(encoder):
    """Count the places of an encoder, and of the one of columns beside words."""
    return 0 if encoder is None else len(encoder) + count_places(encoder.dense)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("name", ["auto", "folklore"])
def test_many_rows_are_the_loop(name, words, rng):
    if words and name != "auto":
        pytest.skip("words are for the default")
    rows = rows_of(rng, words=words)
    roles = {"note": "words"} if words else {}  # of two texts: a category otherwise
    one, many = Model(name, roles=roles), Model(name, roles=roles)
    P, losses, is_old = np.zeros((200, 3)), [], np.zeros(200, bool)
    for t, (x, y) in enumerate(rows):
        n_places = count_places(one.encoder)
        known = one.predict_proba_one(x)
        unseen, before = one.unseen_probability, one.metrics.loss
        P[t, : len(known)] = (1.0 - unseen) * np.array(list(known.values()))
        one.learn_one(x, y)
        losses.append(one.metrics.loss - before)
        # A category that is new is ignored when asked, and words beside it see a new class coming.
        is_old[t] = count_places(one.encoder) == n_places and (not words or y in known)
    xs, ys = zip(*rows, strict=True)
    step = many.learn_many(xs[:90], ys[:90])
    later = many.learn_many(xs[90:], ys[90:])
    K = step.P.shape[1]
    np.testing.assert_allclose(step.P[is_old[:90]], P[:90, :K][is_old[:90]], atol=1e-7)
    np.testing.assert_allclose(later.P[is_old[90:]], P[90:][is_old[90:]], atol=1e-7)
    np.testing.assert_allclose([*step.losses, *later.losses], losses, atol=1e-6)
    assert (one.n_rounds, one.labels) == (many.n_rounds, many.labels)
    for total in ("loss", "loss_of_new", "weight", "n_errors"):
        expected = pytest.approx(getattr(many.metrics, total), rel=1e-6)
        assert getattr(one.metrics, total) == expected
    assert one.encoder.keys == many.encoder.keys
    assert one.roles == many.roles
    frozen = one.predict_proba(list(xs))
    np.testing.assert_allclose(frozen, many.predict_proba(list(xs)), atol=1e-6)


@pytest.mark.parametrize(
    "labels", [("a", "b"), (1, 2), (True, False), (1.5, -2.0), ((1, 2), frozenset("x"))]
)
def test_labels_of_any_kind(labels, rng):
    model = Model("folklore")
    assert model.predict_one({"n": 1.0}) is None
    for t in range(60):
        model.learn_one({"n": t % 2 + 0.1 * rng.normal()}, labels[t % 2])
    assert model.labels == labels
    assert model.predict_one({"n": 1.0}) == labels[1]
    assert list(model.predict_proba_one({"n": 0.0})) == list(labels)


@pytest.mark.parametrize("words", [False, True])
def test_soft_labels_bring_classes_and_count_what_is_new(words, rng):
    rows = rows_of(rng, T=40, words=words)
    soft = [{y: 0.75, "other": 0.25} if t % 2 else y for t, (_, y) in enumerate(rows)]
    one, many = learned(zip([x for x, _ in rows], soft, strict=True)), Model()
    step = many.learn_many([x for x, _ in rows], soft)
    assert one.labels == many.labels
    assert one.metrics.loss == pytest.approx(float(step.losses.sum()), rel=1e-9)
    assert one.metrics.loss_of_new == pytest.approx(many.metrics.loss_of_new, rel=1e-9)
    assert one.metrics.n_errors == many.metrics.n_errors
    assert 0.0 < one.metrics.loss_of_new < one.metrics.loss


@pytest.mark.parametrize("total", [1.0 - 9e-7, 1.0 + 9e-7])
def test_soft_labels_that_nearly_sum_to_1_count_as_if_they_did(total, rng):
    """The loss of a row and what it proves are about the same label: else the regret is too low."""
    rows, exact, near = rng.normal(size=(60, 1)), Model(terms="none"), Model(terms="none")
    for (x,) in rows:
        soft = {"a": 0.25, "b": 0.75}
        exact.learn_one({"x": x}, soft)
        near.learn_one({"x": x}, {y: total * share for y, share in soft.items()})
    assert near.metrics.loss == pytest.approx(exact.metrics.loss, rel=1e-12)
    proven = [model.certificate().regret_bound for model in (near, exact)]
    assert proven[0] == pytest.approx(proven[1], rel=1e-10)


def test_a_class_known_by_a_soft_label_is_not_new():
    model = Model("folklore")
    step = model.learn_many([{"n": 1.0}, {"n": 2.0}], [{"a": 0.6, "b": 0.4}, "b"])
    assert step.losses[0] == 0.0  # nothing was known, and nothing is what it said
    p = step.P[1, 1]
    assert step.losses[1] == pytest.approx(-math.log(p))
    assert model.pipeline.n_new == 1


def test_a_declared_model_is_closed_until_a_class_comes():
    rows = [({"n": float(t % 2)}, "ab"[t % 2]) for t in range(20)]
    one, many = learned(rows, classes=["a", "b"]), Model(classes=["a", "b"])
    assert one.unseen_probability == one.metrics.loss_of_new == 0.0
    many.learn_many([x for x, _ in rows], [y for _, y in rows])
    for model in (one, many):
        before = model.metrics.loss
        if model is one:
            model.learn_one({"n": 0.5}, "c")
        else:
            model.learn_many([{"n": 0.5}], ["c"])
        assert model.metrics.loss - before == pytest.approx(-math.log(0.5 / 21.0))
        assert model.unseen_probability == 1.5 / 22.0


def test_ask_and_tell_with_files_in_between(rng, tmp_path):
    rows = rows_of(rng, T=120, words=False)
    model = learned(rows[:60])
    numbers = {}
    for x, y in rows[60:80]:
        p, number = model.ask(x)
        assert p == model.predict_proba_one(x)
        numbers[number] = y, p, model.unseen_probability
    assert list(model.pending) == list(numbers)
    model.save(tmp_path / "model")
    loaded = folklearn.load(tmp_path / "model")
    assert state(loaded) == state(model)
    for number, (y, p, unseen) in reversed(numbers.items()):
        for one in (model, loaded):
            before = one.metrics.loss
            one.tell(number, y)
            given = (1.0 - unseen) * p[y] if y in p else unseen
            assert one.metrics.loss - before == pytest.approx(-math.log(given))
    assert state(loaded) == state(model)
    with pytest.raises(InvalidInputError, match="never asked for, or has its label"):
        model.tell(number, y)


def test_what_is_told_of_words_and_soft_labels_counts_as_it_was_asked(rng):
    rows = rows_of(rng, T=60, words=True)
    model = learned(rows)
    p, number = model.ask(rows[0][0])
    unseen, before = model.unseen_probability, model.metrics.loss
    for x, y in rows[:30]:
        model.learn_one(x, y)
        before += model.metrics.loss - before
    with pytest.raises(InvalidInputError, match="the number of a row must be an integer"):
        model.tell((p, number), "cold")
    model.tell(number, {"cold": 0.5, "warm": 0.5})
    expected = -0.5 * sum(math.log((1.0 - unseen) * p[label]) for label in ("cold", "warm"))
    assert model.metrics.loss - before == pytest.approx(expected)


def test_class_weight_is_weight(rng):
    rows = rows_of(rng, T=60)
    factors = {"cold": 0.5, "warm": 2.0}
    model = Model("folklore", class_weight=factors)
    twin = Model("folklore")
    for x, y in rows:
        model.learn_one(x, y, weight=0.5)
        twin.learn_one(x, y, weight=0.5 * factors.get(y, 1.0))
    assert model.predict_proba_one(rows[0][0]) == twin.predict_proba_one(rows[0][0])
    assert model.metrics.loss == twin.metrics.loss
    soft = Model("folklore", class_weight=factors)
    soft.learn_many([x for x, _ in rows], [{y: 1.0} for _, y in rows], weight=0.5)
    assert soft.metrics.weight == pytest.approx(model.metrics.weight)
    with pytest.raises(InvalidInputError, match="needs to see all labels first"):
        Model(class_weight="balanced").learn_one({"n": 1.0}, "a")
    with pytest.raises(InvalidInputError, match='must be None, a dict or "balanced"'):
        Model(class_weight=[1.0])


BAD = [
    ({"n": math.inf}, "a", 1.0, "column 'n' has inf, which is not finite"),
    ({"n": 1e16}, "a", 1.0, "column 'n' has 1e.16, which is too large"),
    ({"n": "red"}, "a", 1.0, "column 'n': 'red' is not a number"),
    ({"n": [1.0]}, "a", 1.0, "the value is nested"),
    ({"n": 1j}, "a", 1.0, "is not a number"),
    (
        {"day": "tomorrow"},
        "a",
        1.0,
        "'tomorrow', unlike 2024-05-01T10:30, is not a date",
    ),
    ({"n": 1.0}, None, 1.0, "label is missing"),
    ({"n": 1.0}, ["a"], 1.0, "hashable"),
    ({"n": 1.0}, {"a": 0.4}, 1.0, "sum to 0.4"),
    ({"n": 1.0}, "a", -1.0, "weight is -1"),
    ({"n": 1.0}, "a", 7.0, "above max_weight"),
    ([1.0], "a", 1.0, "must be a dictionary"),
]


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize(("x", "y", "weight", "sentence"), BAD)
def test_a_bad_row_changes_nothing(x, y, weight, sentence, words, rng):
    model = learned(rows_of(rng, T=30, words=words))
    before = state(model)
    with pytest.raises(InvalidInputError, match=sentence):
        model.learn_one(x, y, weight=weight)
    with pytest.raises(InvalidInputError):
        model.learn_many([{"n": 1.0}, x], ["a", y], weight=[1.0, weight])
    assert state(model) == before


def test_a_row_of_pandas_is_told_what_to_do():
    frame = pytest.importorskip("pandas").DataFrame({"n": [1.0], "m": [2.0]})
    row, model = frame.iloc[0], Model()
    for use in (lambda: model.learn_one(row, "a"), lambda: model.learn_many([row], ["a"])):
        with pytest.raises(InvalidInputError, match=r"got a Series: row.to_dict\(\) makes a"):
            use()
    model.learn_one(row.to_dict(), "a")
    with pytest.raises(InvalidInputError, match=r"got a Series: row.to_dict\(\) makes a"):
        model.predict_one(row)
    with pytest.raises(InvalidInputError, match=r"got a DataFrame$"):
        model.predict_one(frame)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"crosses": ("country", "device")}, r"pairs of columns, .*, got 'country'"),
        ({"crosses": ["ab"]}, r"pairs of columns, .*, got 'ab'"),
        ({"crosses": [("a", "b", "c")]}, r"pairs of columns, .*, got \('a', 'b', 'c'\)"),
        ({"classes": "ab"}, "classes must be a list of labels, got 'ab'"),
        ({"class_weight": {"a": -1.0}}, "class_weight of 'a' must be a number from 0 to"),
    ],
)
def test_settings_are_checked_before_the_first_row(settings, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Model(**settings)
    if "crosses" in settings:
        with pytest.raises(InvalidInputError, match=sentence):
            DecisionModel(**settings)


def test_a_score_needs_labels(rng):
    model = Model()
    rows = [{"n": n, "y": "ab"[n > 0.0]} for n in rng.normal(size=20).tolist()]
    model.run(rows, target="y")
    with pytest.raises(InvalidInputError, match="no row of the rows has a label in the column 'y'"):
        model.score([{"n": 1.0}])


def test_a_folder_is_not_written_to(tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        Model().save(tmp_path)
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}.*"))


def test_a_bad_first_row_decides_nothing():
    for bad in ({"n": math.inf}, {"n": 1.0, "m": [1]}, {"n": 1.0}):
        model = Model()
        before = state(model)
        with pytest.raises(InvalidInputError):
            model.learn_one(bad, "a", weight=7.0)
        with pytest.raises(InvalidInputError):
            model.learn_many([bad], ["a"], weight=7.0)
        assert state(model) == before
        assert model.encoder is model.pipeline is None
        model.learn_one({"n": "text"}, "a")
        assert model.roles == {"n": "category"}


@pytest.mark.parametrize(
    ("cut", "words"), [*((cut, False) for cut in (0, 1, 30, 66, 70, 150)), (30, True), (70, True)]
)
def test_resuming_equals_never_stopping(cut, words, rng, tmp_path):
    rows = rows_of(rng, words=words)
    model = learned(rows[:cut])
    model.save(tmp_path / "model")
    copies = [
        folklearn.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ]
    for x, y in rows[cut:]:
        model.learn_one(x, y)
    for other in copies:
        for x, y in rows[cut:]:
            other.learn_one(x, y)
        assert state(other) == state(model)
        here, there = ([asdict(w) for w in m.windows()] for m in (model, other))
        np.testing.assert_equal(there, here)


def test_recent_rows_are_the_same_after_a_restart(rng, tmp_path):
    rows = rows_of(rng, T=700)
    model = learned(rows[:400], "ogd")
    model.save(tmp_path / "model")
    loaded = folklearn.load(tmp_path / "model")
    for other in (model, loaded):
        for x, y in rows[400:]:
            other.learn_one(x, y)
    assert state(loaded) == state(model)
    block, labels = model.recent.rows()
    assert len(block) == len(labels) == 256


def test_late_columns_and_missing_values(rng):
    model = learned(rows_of(rng, T=50), "folklore")
    x = {"n": 0.3, "colour": "red", "day": "2026-01-05"}
    p = model.predict_proba_one(x)
    assert model.predict_proba_one(x | {"new": 3.0, "colour2": "x"}) == p
    model.learn_one(x | {"new": 3.0}, "warm")
    assert model.roles["new"] == "number"
    gaps = (
        None,
        math.nan,
        np.nan,
        "",
        " NA",
        "-",
        "?",
        "n.a.",
        "None",
        np.timedelta64("NaT"),
        Decimal("sNaN"),
    )
    assert all(model.predict_proba_one({"n": gap}) == model.predict_proba_one({}) for gap in gaps)
    assert all(model.predict_proba_one({"day": gap}) == model.predict_proba_one({}) for gap in gaps)


@pytest.mark.parametrize("source", ["file", "frame", "rows"])
def test_one_rule_for_values(tmp_path, source):
    """What a value says does not depend on whether a file, a frame or a row brings it."""
    rows = [
        {
            "age": "-" if i % 9 == 5 else str(i * 7 % 60), "code": f"{i % 5:03d}",
            "on": ("True", "False")[i % 3 == 0], "size": -999 if i % 7 == 0 else i % 11,
            "shop": ("None", "unknown", "south")[i % 3], "wait": i % 13, "y": "pq"[i * 7 % 60 > 30],
        }
        for i in range(300)
    ]  # fmt: skip
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = Model(missing=(-999, "unknown"))
    with pytest.warns(DataWarning, match="taken for a missing value: '-' in 'age'; for"):
        model.run({"file": tmp_path / "t.csv", "frame": frame, "rows": rows}[source], "y")
    assert set(model.roles.values()) == {"number", "category", "target"}
    roles = [model.roles[name] for name in ("age", "code", "on", "size", "shop", "wait")]
    assert roles == ["number", "category", "number", "number", "category", "number"]
    assert {part for name, part in model.encoder.keys if name == "shop"} == {"None", "south"}
    model.save(tmp_path / "m")
    model = folklearn.load(tmp_path / "m")
    full = {"age": 31, "code": "003", "on": True, "size": 5, "shop": "south", "wait": 2}
    same = [
        {**full, "on": "true"}, {**full, "age": "31"},
        {**full, "wait": datetime.timedelta(seconds=2)},
        {**full, "wait": np.timedelta64(2, "s")}, {**full, "wait": "2.0"},
    ]  # fmt: skip
    for row in same:
        assert model.predict_proba_one(row) == model.predict_proba_one(full)
        np.testing.assert_array_equal(model.predict_proba([row]), model.predict_proba([full]))
    gaps = [(None, -999, "unknown"), ("?", "-999", " unknown "), ("-", -999.0, "")]
    lacking = [full | dict(zip(("age", "size", "shop"), gap, strict=True)) for gap in gaps]
    absent = {"code": "003", "on": True, "wait": 2}
    for row in lacking:
        assert model.predict_proba_one(row) == model.predict_proba_one(absent)
    with pytest.warns(DataWarning, match=r"taken for a missing value: '-', '\?' in 'age'$"):
        P = model.predict_proba(pd.DataFrame(lacking))
    np.testing.assert_array_equal(P, model.predict_proba([absent] * 3))
    before = model.n_rounds
    model.learn_one(full | {"age": "-", "size": -999}, "p")
    assert model.n_rounds == before + 1


def test_rows_with_keys_that_are_no_text_go_the_short_way():
    model = Model()
    for i in range(8):
        model.learn_one({("rbf", 0): i % 3, 7: "uv"[i % 2]}, "pq"[i % 2])
    named = model.encoder.encode_row({"('rbf', 0)": 2, "7": "v"})
    np.testing.assert_array_equal(model.encoder.encode_row({("rbf", 0): 2, 7: "v"}), named)


def test_the_order_of_a_mapping_is_of_no_account(rng):
    one, other = Model("folklore"), Model("folklore")
    for x, y in rows_of(rng, T=40):
        names = list(x)
        shuffled = {names[j]: x[names[j]] for j in rng.permutation(len(names))}
        one.learn_one(x, y)
        other.learn_one(shuffled, y)
    assert one.encoder.keys == other.encoder.keys
    assert one.predict_proba_one(x) == other.predict_proba_one(x)


def test_matrices_dense_and_sparse(rng):
    X, y = rng.normal(size=(80, 4)), rng.integers(0, 3, 80)
    X[rng.random(X.shape) < 0.5] = 0.0
    dense, sparse = Model("folklore"), Model("folklore")
    dense.learn_many(X, y)
    sparse.learn_many(csr_array(X), y.tolist())
    np.testing.assert_array_equal(sparse.predict_proba(csr_array(X)), dense.predict_proba(X))
    assert dense.encoder.encode(folklearn.readers.open.as_table(X)).X is X  # not copied
    wide = Model()
    wide.learn_many(csr_array((80, 10**6)), y)
    assert wide.pipeline.sparse
    with pytest.raises(InvalidInputError, match='needs .* GB of memory.* use learner="auto"'):
        Model("folklore").learn_many(csr_array((80, 10**6)), y)


def test_soft_labels_of_declared_classes(rng):
    X, Y = rng.normal(size=(30, 2)), rng.dirichlet(np.ones(3), 30)
    model = Model("folklore")
    with pytest.raises(InvalidInputError, match="a label must be hashable"):
        model.learn_many(X, Y)
    model.declare("abc")
    model.learn_many(X, [dict(zip("abc", y, strict=True)) for y in Y.tolist()])
    assert model.labels == ("a", "b", "c")
    model.declare(["d"])
    assert model.predict_proba(X).shape == (30, 4)
    assert model.unseen_probability == 0.0


def test_an_interruption_leaves_names_for_what_has_grown(rng, monkeypatch):
    rows = rows_of(rng, T=100)
    model = learned(rows[:20], "folklore")
    learn = Folklore._run

    def interrupted(self, *arguments):
        if model.pipeline.n_rounds > 60:
            raise KeyboardInterrupt
        return learn(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Folklore, "_run", interrupted)
        model.learn_many([x for x, _ in rows[20:50]], [y for _, y in rows[20:50]])
        with pytest.raises(KeyboardInterrupt):
            model.learn_many([x for x, _ in rows[50:]], [y for _, y in rows[50:]])
    assert len(model.labels) == model.pipeline.n_classes
    assert len(model.encoder) == model.pipeline.n_features
    assert sum(model.predict_proba_one(rows[0][0]).values()) == pytest.approx(1.0)


def test_dates_of_every_kind_are_one_date():
    model = Model("folklore")
    for t in range(28):
        model.learn_one({"when": datetime.date(2026, 1, 1 + t)}, t % 7 < 3)
    said = [
        model.predict_proba_one({"when": when})
        for when in (
            "2026-01-09", datetime.date(2026, 1, 9), datetime.datetime(2026, 1, 9),
            "2026-01-09T00:00",
        )
    ]  # fmt: skip
    assert all(one == said[0] for one in said)


def test_labels_apart_from_the_rows_are_refused_with_a_way():
    frame = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0]})
    for learn in (Model().fit, Model().run):
        with pytest.raises(InvalidInputError, match=r"got Series: put the labels into the rows"):
            learn(frame, frame["a"] > 1)


def test_dates_of_every_type_are_one_date():
    day = np.datetime64("2024-05-31T10:30")
    given = [day, day.item(), "2024-05-31T10:30", "31.05.2024 10:30", "2024/05/31 10:30"]
    models = [Model(roles={"day": "date"}) for _ in given]
    for model, value in zip(models, given, strict=True):
        model.learn_one({"day": value}, "a")
        model.learn_one({"day": "2024-06-01"}, "b")
    expected = models[0].predict_proba_one({"day": day})
    assert all(model.predict_proba_one({"day": day}) == expected for model in models)


def test_dates_whose_order_the_role_tells(tmp_path):
    path = tmp_path / "t.csv"
    days = [(month, day) for month in range(1, 13) for day in range(10, 28)]
    path.write_text(
        "day,y\n" + "".join(f"{month:02}/{day}/2024,{'ab'[month > 6]}\n" for month, day in days)
    )
    model = Model()
    model.run(path, "y", shuffle=True)
    assert model.roles["day"] == "month/day"
    assert model.predict([{"day": "01/02/2024"}, {"day": "11/02/2024"}]) == ["a", "b"]
    model.save(tmp_path / "m")
    again = folklearn.load(tmp_path / "m")
    assert again.predict_one({"day": "02/12/2024"}) == "a"
    assert again.predict_one({"day": "12/02/2024"}) == "b"
    with pytest.raises(InvalidInputError, match="is not a date"):
        again.learn_one({"day": "31/01/2024"}, "a")


def test_costs_decide_for_what_costs_least(rng):
    """Against the sum over all classes; weights of classes are taken back; ties keep the order."""
    X = rng.normal(size=(300, 2))
    y = np.array(["ok", "fraud", "theft"])[(X @ [1.0, 0.5] + rng.logistic(size=300) > 2.0) * 1]
    y[::17] = "theft"
    weight = {"fraud": 6.0, "ok": 0.5}
    model = Model("ogd", class_weight=weight, B=3.0)
    model.learn_many(X, y)
    costs = {("fraud", "theft"): 0.25, "fraud": 50.0, ("ok", "ok"): -0.5, "theft": 3}
    C = {(a, b): float(a != b) for a in model.labels for b in model.labels}
    C |= {("fraud", "ok"): 50.0, ("theft", "ok"): 3.0, ("theft", "fraud"): 3.0}
    C |= {("fraud", "theft"): 0.25, ("ok", "ok"): -0.5}
    expected = []
    for p in model.predict_proba(X).tolist():
        q = {a: v / weight.get(a, 1.0) for a, v in zip(model.labels, p, strict=True)}
        expected.append(min(model.labels, key=lambda b: sum(q[a] * C[a, b] for a in q)))
    assert model.predict(X, costs=costs) == expected
    assert expected != model.predict(X)
    rows = [{"a": a, "b": b, "y": label} for (a, b), label in zip(X.tolist(), y, strict=True)]
    one = Model("ogd", B=3.0)
    one.learn_many([{"a": row["a"], "b": row["b"]} for row in rows], y)
    score = one.score(rows, "y", costs={"fraud": 9})
    decided = one.predict([{"a": row["a"], "b": row["b"]} for row in rows], costs={"fraud": 9})
    missed = [9.0 if a == "fraud" else 1.0 for a, b in zip(y, decided, strict=True) if a != b]
    assert score.error == pytest.approx(len(missed) / 300)
    assert score.cost == pytest.approx(sum(missed) / 300)
    found = sum(a == b == "fraud" for a, b in zip(y, decided, strict=True))
    assert score.classes["fraud"].recall == pytest.approx(found / sum(y == "fraud"))
    assert math.isnan(one.score(rows, "y").cost)


def test_costs_of_two_classes_are_a_threshold(rng):
    x = rng.normal(size=400)
    y = np.where(x + rng.logistic(size=400) > 2.5, "fraud", "ok").tolist()
    model = Model("folklore")
    for value, label in zip(x, y, strict=True):
        model.learn_one({"x": value}, label)
    rows = [{"x": value} for value in x]
    P = model.predict_proba(rows)[:, model.labels.index("fraud")]
    decided = model.predict(rows, costs={"fraud": 50})
    assert decided == ["fraud" if p > 1.0 / 51.0 else "ok" for p in P]
    for row in rows:
        p = model.predict_proba_one(row)["fraud"]
        one = model.predict_one(row, costs={"fraud": 50, "not yet": 2})
        assert one == ("fraud" if p > 1.0 / 51.0 else "ok")
    assert Model().predict_one({"x": 1.0}, costs={"fraud": 50}) is None
    for costs, sentence in [
        ({"Fraud": 2}, "costs name the class 'Fraud', which the model does not know; its classes"),
        ({("ok", 3): 2}, "costs name the class 3,"),
        ({"fraud": math.nan}, "the cost of 'fraud' must be a number from -1e"),
        ([[0, 1], [50, 0]], "costs must be a dictionary of labels, or of pairs"),
    ]:
        with pytest.raises(InvalidInputError, match=sentence):
            model.predict([{"x": 1.0}], costs=costs)


def test_results_are_short_as_the_last_line_of_a_notebook(rng):
    model = Model("folklore")
    many = model.learn_many([{"x": float(t)} for t in range(9)], ["a"] * 8 + ["b"])
    assert repr(many) == f"PredictionBatch of 9 rows: loss {many.losses.mean():.4f}, error 22.2%"
    run = model.run([{"x": float(t), "y": "ab"[t % 2]} for t in range(40)], "y")
    assert len(repr(run.report())) < 60
    assert run.report().startswith("<!doctype html>")
