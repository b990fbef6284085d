"""Text in the River classifier: categories with places that are opened when they are needed."""

import enum
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folklearn
from folklearn.errors import InvalidInputError
from folklearn.model.pipeline import OnlinePipeline

pytest.importorskip("river", reason="River comes with the extra `river`")

from folklearn.adapters.river import FolkloreStreamClassifier
from tests.adapters.test_river import as_frame, learned, state, stream

COLOURS = ["red", "green", "blue", "mauve", "\ud800 half a character"]


def coloured(rng, T=80, n_colours=5):
    """Examples with text that comes late, goes missing, and takes turns with numbers."""
    for t, (x, y) in enumerate(stream(rng, T=T, d=2, missing=0.1)):
        colour = COLOURS[int(rng.integers(1 + min(t // 8, n_colours - 1)))]
        either = "many" if rng.random() < 0.3 or not t else float(rng.integers(3))
        yield x | {"colour": None if t % 9 == 5 else colour, "either": either}, y


def test_a_category_is_a_number_of_its_own(rng):
    """The twin is told 1 and 0, of every category from the row that brings it."""
    twin, model = OnlinePipeline("folklore", n_features=2), FolkloreStreamClassifier("folklore")
    numbers = {}
    for t, (x, y) in enumerate(stream(rng, d=1)):
        colour = COLOURS[t % 3]
        row = np.array([*x.values(), *(float(c == colour) for c in COLOURS[: min(3, t + 1)])])
        p = model.predict_proba_one(x | {"colour": colour})
        if t:
            expected = twin.predict_row(row[: twin.n_features].copy())
            np.testing.assert_allclose(list(p.values()), expected, atol=1e-8)
        model.learn_one(x | {"colour": colour}, y)
        twin.learn_row(row, numbers.setdefault(y, len(numbers)))
    assert len(model.model.encoder) == 4


def test_text_is_learned():
    model = FolkloreStreamClassifier("folklore")
    for t in range(90):
        model.learn_one({"colour": COLOURS[t % 3], "noise": math.sin(t)}, t % 3)
    assert [model.predict_one({"colour": colour}) for colour in COLOURS[:3]] == [0, 1, 2]
    assert len(model.model.encoder) == 4  # the noise and three colours


def test_the_first_value_says_what_a_feature_is():
    model = learned([({"a": 1.0}, 0), ({"a": None}, 0), ({"a": 2}, 1)], "folklore")
    before = pickle.dumps(model)
    with pytest.raises(InvalidInputError, match="column 'a': 'red' is not a number"):
        model.learn_one({"a": "red"}, 1)
    assert pickle.dumps(model) == before
    model = learned([({"a": "red"}, 0), ({"a": 1}, 1), ({"a": "1"}, 0), ({"a": 1.0}, 1)])
    assert model.model.encoder.keys == [("a", "red"), ("a", "1")]


def test_text_never_learned_is_ignored(rng):
    model = learned(coloured(rng), "folklore")
    before = pickle.dumps(model)
    x = {"x0": 0.3, "either": 1.0}
    assert model.predict_proba_one(x | {"colour": "new"}) == model.predict_proba_one(x)
    assert pickle.dumps(model) == before


def test_every_kind_of_text_is_the_same_text():
    class Colour(str, enum.Enum):  # noqa: UP042 - StrEnum formats itself, this one does not
        RED = "red"

    model = learned([({"c": "red"}, 0), ({"c": "blue"}, 1)], "folklore")
    expected = model.predict_proba_one({"c": "red"})
    for red in (np.str_("red"), Colour.RED, type("Text", (str,), {})("red")):
        assert model.predict_proba_one({"c": red}) == expected


def test_the_order_of_texts_is_of_no_account(rng):
    one, other = FolkloreStreamClassifier("folklore"), FolkloreStreamClassifier("folklore")
    for t in range(30):
        x = {name: f"{name} {t % 7}" for name in "abcdefg"[: 2 + t // 6]} | {"z": float(t)}
        names = [*x]
        shuffled = {names[j]: x[names[j]] for j in rng.permutation(len(x))}
        assert one.predict_proba_one(x) == other.predict_proba_one(shuffled)
        one.learn_one(x, t % 3)
        other.learn_one(shuffled, t % 3)
    assert one.model.encoder.keys == other.model.encoder.keys


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_resuming_equals_never_stopping(cut, rng, tmp_path):
    examples = list(coloured(rng))
    model = learned(examples[:cut], "folklore")
    model.model.save(tmp_path / "model")
    resumed = model.clone()
    resumed.model = folklearn.load(tmp_path / "model")
    for x, y in examples[cut:]:
        assert resumed.predict_proba_one(x) == model.predict_proba_one(x)
        model.learn_one(x, y)
        resumed.learn_one(x, y)
    assert state(resumed) == state(model)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("dtype", ["plain", "categorical", "enum"])
def test_many_is_the_loop(kind, dtype, rng):
    library = pytest.importorskip(kind, reason="data frames are optional")
    examples = [
        ({"x0": x["x0"], "colour": x["colour"], "size": "S" if x["x1"] > 0 else "L"}, y)
        for x, y in coloured(rng, n_colours=4)  # polars does not know half a character
    ]
    one, many = FolkloreStreamClassifier("folklore"), FolkloreStreamClassifier("folklore")
    for start in range(0, len(examples), 16):
        batch = examples[start : start + 16]
        X, y = as_frame(library, batch)
        if kind == "pandas":
            names = {"plain": "string", "categorical": "category", "enum": object}
            X = X.astype({"colour": names[dtype], "size": names[dtype]})
        elif dtype != "plain":
            texts = library.Categorical if dtype == "categorical" else library.Enum(COLOURS[:4])
            X = X.with_columns(library.col("colour").cast(texts))
        for x, label in batch:
            one.learn_one(x, label)
        many.learn_many(X, y)
        assert many.model.encoder.keys == one.model.encoder.keys
        P = many.predict_proba_many(X).to_numpy()
        expected = [list(one.predict_proba_one(x).values()) for x, _ in batch]
        np.testing.assert_allclose(P, expected, atol=1e-8)
        assert many.predict_many(X).to_list() == [one.predict_one(x) for x, _ in batch]


def test_the_first_row_of_a_frame_sets_the_unit(rng):
    """As in the loop, where texts of later rows are not known with the first."""
    pd = pytest.importorskip("pandas", reason="data frames are optional")
    examples = [({"c": f"text {t}"}, t % 2) for t in range(20)]
    X = pd.DataFrame([x for x, _ in examples])
    many = FolkloreStreamClassifier("folklore")
    many.learn_many(X, [y for _, y in examples])
    one = learned(examples, "folklore")
    scalers = [each.model.pipeline.to_record().config["scaler"] for each in (many, one)]
    assert scalers[0] == scalers[1]
    np.testing.assert_allclose(
        many.predict_proba_many(X).to_numpy()[7],
        list(one.predict_proba_one({"c": "text 7"}).values()),
        atol=1e-8,
    )


WORDS = st.text(max_size=3) | st.sampled_from(COLOURS[:4])
ROWS = st.lists(st.tuples(WORDS | st.none(), WORDS | st.none(), st.integers(0, 2)), min_size=1)


@given(rows=ROWS, cut=st.integers(0, 5))
def test_any_text_in_frames_is_the_loop(rows, cut):
    pd = pytest.importorskip("pandas", reason="data frames are optional")
    one = FolkloreStreamClassifier("folklore")
    many = FolkloreStreamClassifier("folklore")
    X = pd.DataFrame([row[:2] for row in rows], columns=["a", 1], dtype=object)
    y = [row[2] for row in rows]
    for a, b, label in rows:
        one.learn_one({"a": a, 1: b}, label)
    many.learn_many(X[:cut], y[:cut])
    many.learn_many(X[cut:], y[cut:])
    assert many.model.encoder.keys == one.model.encoder.keys
    expected = [list(one.predict_proba_one({"a": a, 1: b}).values()) for a, b, _ in rows]
    np.testing.assert_allclose(many.predict_proba_many(X).to_numpy(), expected, atol=1e-7)
