"""What Python is warned of, as the command line is: once a call, at the caller's own line."""

import warnings

import numpy as np
import pytest

import folklearn
from folklearn import DataWarning, FolkloreClassifier, Model
from folklearn.model.batch import MOST_OWN
from folklearn.scale.folding import model_of

N = 300


def heard(call, *arguments, **options):
    """Return the sentences that a call warns with, and what it returns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call(*arguments, **options)
    assert all(one.category is DataWarning and one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught], found


@pytest.fixture
def rows(rng):
    sizes = rng.normal(size=N).tolist()
    return [
        {"size": x, "kind": "uvw"[i % 3], "y": "pq"[x + (i % 3) > 1]} for i, x in enumerate(sizes)
    ]


def test_columns_that_cannot_be_read_are_named_once_a_call(rows):
    nested = [{**row, "tags": ["a"], "more": {"b": 1}} for row in rows]
    said, _ = heard(Model().run, nested, "y")
    assert said == [
        "left out of the rows, because only numbers, text, dates and durations can "
        "be read: 'tags' (nested values), 'more' (nested values)"
    ]
    for use in ("fit", "run"):
        dropped = Model(roles={"tags": "ignored", "more": "ignored"})
        assert heard(getattr(dropped, use), nested, "y")[0] == []
    late = [*rows, {**rows[0], "late": [1]}]
    assert [sentence[:5] for sentence in heard(Model().run, iter(late), "y")[0]] == ["left "]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_column_of_durations_is_seconds_and_one_of_lists_is_left_out(package, rng):
    frames = pytest.importorskip(package)
    seconds = rng.exponential(100.0, N).round(3)
    waited = np.rint(seconds * 1e3).astype("timedelta64[ms]")
    frame = frames.DataFrame({"waited": waited, "list": [[1]] * N, "y": seconds > 80.0})
    said, run = heard(Model().run, frame, "y")
    assert len(said) == 1
    assert "left out of the data frame" in said[0]
    assert "'list' (" in said[0]
    assert run.model.roles == {"waited": "number", "y": "target"}
    plain = frames.DataFrame({"waited": seconds, "y": seconds > 80.0})
    assert Model().run(plain, "y").loss == pytest.approx(run.loss, rel=1e-9)
    assert heard(Model().learn_many, frame[["waited", "list"]], ["p", "q"] * (N // 2))[0] == said


@pytest.mark.parametrize("words", [False, True], ids=["dense", "wide"])
def test_categories_that_were_never_learned_are_counted_by_column(rows, words):
    text = {"note": "it is all well here"} if words else {}
    rows = [{**row, "place": "xy"[i % 2], **text} for i, row in enumerate(rows)]
    model = Model(roles={"note": "words"} if words else None)
    assert heard(model.run, rows, "y")[0] == []
    assert model.encoder.sparse == words
    for use in (model.predict, model.predict_proba, model.score):
        assert heard(use, rows)[0] == []
    renamed = [{**row, "kind": "U" if row["kind"] == "u" else row["kind"]} for row in rows]
    renamed[0]["place"] = "z"
    expected = (
        "100 rows have a value of 'kind' that was never learned (U); 1 row has a value of 'place' "
        "that was never learned (z): such values count as missing"
    )
    for use in (model.predict, model.predict_proba, model.score):
        assert heard(use, renamed)[0] == [expected]
    missing = [{**row, "kind": None if row["kind"] == "U" else row["kind"]} for row in renamed]
    missing[0]["place"] = None
    P = heard(model.predict_proba, renamed)[1]
    np.testing.assert_array_equal(P, model.predict_proba(missing))
    assert heard(model_of(model.to_bytes()).predict, renamed)[0] == [expected]
    assert heard(model.run, renamed, "y")[0] == []  # where new values are normal
    assert heard(model.predict, renamed)[0] == []  # and learned


def test_values_are_counted_over_blocks_and_few_of_them_shown(rows):
    model = Model()
    model.run(rows, "y")
    many = [{**rows[0], "kind": f"k{i % 7}"} for i in range(9000)]
    assert heard(model.predict, many)[0] == [
        "9000 rows have a value of 'kind' that was never learned (k0, k1, k2): such values count "
        "as missing"
    ]


def test_rare_categories_share_places_and_are_not_called_unlearned(rng):
    rows = [{"code": f"c{i % (3 * MOST_OWN)}", "y": "pq"[i % 2]} for i in range(6 * MOST_OWN)]
    model = Model()
    model.run(rows, "y", shuffle=True)
    assert heard(model.predict, [{"code": "never"}])[0] == []


def test_columns_that_the_model_does_not_know_are_named(rows):
    model = Model()
    model.run(rows, "y")
    wider = [{**row, "id": i, "tags": [1]} for i, row in enumerate(rows)]
    expected = ["columns that the model does not know are left out: id, tags"]
    assert heard(model.predict, wider)[0] == heard(model.score, wider)[0] == expected


def test_scikit_learn_is_warned_once_a_call_too(rows):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows)
    X, y = frame[["size", "kind"]], frame["y"]
    model = FolkloreClassifier().fit(X, y)
    assert heard(model.predict, X)[0] == []
    assert heard(model.predict, X.assign(kind="Z"))[0] == [
        "300 rows have a value of 'kind' that was never learned (Z): such values count as missing"
    ]


def test_a_frozen_loss_far_above_the_progressive_one_is_warned_of(rng):
    streaks = np.repeat(rng.integers(0, 2, 100), 20)
    rows = [{"noise": x, "y": int(k)} for x, k in zip(rng.normal(size=2000), streaks, strict=True)]
    said, run = heard(Model().run, rows, "y")
    assert said[-1] == (
        "the saved model will do worse than the running one. Rows ahead, it had an average loss of "
        f"{run.holdout_loss:.4f}, where predictions with every label known had {run.loss:.4f}: "
        "what is learned here goes out of date, so go on learning while you predict"
    )
    assert len([sentence for sentence in said if "saved model" in sentence]) == 1


def test_a_single_class_is_warned_of():
    model = Model()
    assert heard(model.run, [{"x": 1.0, "y": "p"}, {"x": 2.0, "y": "p"}], "y")[0] == [
        "all labels are 'p': nothing is learned of one class"
    ]
    assert "1 class: p" in repr(model)
    assert heard(model.run, [{"x": 1.0, "y": "q"}], "y")[0] == []


def test_it_is_silenced_like_any_other(rows):
    model = Model()
    model.run(rows, "y")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", folklearn.DataWarning)
        model.predict([{"kind": "Z"}])
    assert caught == []
