"""Data frames with columns of text: hashed, remembered by the first rows, never half learned."""

import datetime
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from folklearn import FolkloreClassifier, memory
from folklearn.adapters._sklearn import frames
from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue
from folklearn.model.core import Core as OpenModel
from folklearn.model.hashing import TextHasher
from tests.adapters.copying import copies

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def quick(**words):
    return FolkloreClassifier(**{"learner": "folklore", "n_buckets": 8, "shuffle": False} | words)


def sample(rng, T=60):
    """Two columns of numbers and two of text, some missing, and labels that follow the text."""
    colours = rng.choice(["red", "blue", "green", None], T).tolist()
    colours[0] = "red"  # a column that begins with nothing would count as numbers
    columns = {
        "width": np.where(rng.random(T) < 0.1, np.nan, rng.normal(size=T)),
        "colour": colours,
        "old": rng.random(T) < 0.5,
        "size": rng.choice(["S", "L"], T).tolist(),
    }
    y = np.array(["warm" if colour == "red" else "cold" for colour in colours])
    y[:2] = ["warm", "cold"]
    return columns, np.where(rng.random(T) < 0.1, "mild", y)


def by_hand(columns, n_buckets=8):
    """Return numbers first, then the buckets."""
    texts = {name: columns[name] for name in ("colour", "size")}
    numbers = np.column_stack([columns["width"], columns["old"]])
    return np.hstack([numbers, TextHasher(n_buckets).columns(texts)])


def some(columns, rows):
    return {name: [values[row] for row in rows] for name, values in columns.items()}


def arrow(columns):
    return pytest.importorskip("pyarrow").table(
        {name: np.asarray(values).tolist() for name, values in columns.items()}
    )


MAKERS = {
    "pandas": pd.DataFrame,
    "objects": lambda columns: pd.DataFrame(columns).astype({"colour": object, "size": object}),
    "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "categories": lambda columns: pd.DataFrame(columns).astype(
        {"colour": "category", "size": "category"}
    ),
    "polars": pl.DataFrame,
    "enums": lambda columns: pl.DataFrame(columns).with_columns(
        pl.col("size").cast(pl.Enum(["S", "L", "XL"])), pl.col("colour").cast(pl.Categorical)
    ),
    "arrow": arrow,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_text_is_hashed_and_put_behind_the_numbers(kind, rng):
    columns, y = sample(rng)
    frame, X = MAKERS[kind](columns), by_hand(columns)
    names, numbers = np.unique(y, return_inverse=True)
    twin = OpenModel("folklore", n_features=10, n_classes=len(names))
    twin.run(X, numbers)
    model = quick().fit(frame, y)
    np.testing.assert_array_equal(model.predict_proba(frame), twin.predict(X))
    assert model.text_features_.tolist() == ["colour", "size"]
    assert model.feature_names_in_.tolist() == ["width", "colour", "old", "size"]
    assert model.n_features_in_ == 4
    assert model.model_.n_features == 10


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
@pytest.mark.parametrize("select", ["last", "average"])
def test_pieces_are_the_whole(library, select, rng):
    columns, y = sample(rng)
    model = quick(select=select, random_state=0)
    whole = quick().fit(library.DataFrame(columns), y)
    for rows in np.split(np.arange(60), [1, 2, 30]):
        model.partial_fit(library.DataFrame(some(columns, rows)), y[rows], classes=np.unique(y))
    P = model.predict_proba(library.DataFrame(columns))
    if select == "last":
        np.testing.assert_allclose(P, whole.predict_proba(library.DataFrame(columns)), atol=1e-9)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)


def test_a_text_that_was_never_seen_has_its_place(rng):
    columns, y = sample(rng)
    model = quick(n_buckets=64).fit(pd.DataFrame(columns), y)
    new = some(columns, [0, 1]) | {"colour": ["violet", None]}
    twin = OpenModel("folklore", n_features=66, n_classes=len(model.classes_))
    twin.run(by_hand(columns, 64), np.searchsorted(model.classes_, y))
    expected = twin.predict(by_hand(new, 64))
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame(new)), expected)
    frame = pd.DataFrame(new)
    frame["colour"] = frame["colour"].astype("category")
    np.testing.assert_array_equal(model.predict_proba(frame), expected)


def test_frames_of_nothing_but_text():
    for library in (pd, pl):
        frame = library.DataFrame({"a": ["x", "y", None], "b": ["u", None, None]})
        model = quick().fit(frame, [0, 1, 0])
        twin = OpenModel("folklore", n_features=8, n_classes=2)
        X = TextHasher(8).columns({"a": ["x", "y", None], "b": ["u", None, None]})
        twin.run(X, [0, 1, 0])
        np.testing.assert_array_equal(model.predict_proba(frame), twin.predict(X))
        with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
            model.predict(frame[:0])


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "b"],
        ["a", np.nan, "b"],
        pd.array(["a", pd.NA, "b"], "string"),
        pd.Categorical(["a", None, "b"]),
        pd.Series(["a", pd.NA, "b"], dtype=object),
    ],
    ids=["None", "NaN", "string", "category", "object"],
)
def test_missing_text_adds_nothing(values):
    model = quick().fit(pd.DataFrame({"t": values}), [0, 1, 1])
    X = TextHasher(8).columns({"t": ["a", None, "b"]})
    twin = OpenModel("folklore", n_features=8, n_classes=2)
    twin.run(X, [0, 1, 1])
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame({"t": values})), twin.predict(X))


def test_numbers_among_text_are_their_text():
    codes = pd.DataFrame({"code": pd.Categorical([1, 2, 10])})
    model = quick().fit(codes, [0, 1, 0])
    P = model.predict_proba(codes)
    assert model.text_features_.tolist() == ["code"]
    for later in ([1, 2, 10], ["1", "2", "10"], [1, "2", 10]):
        np.testing.assert_array_equal(model.predict_proba(pd.DataFrame({"code": later})), P)
        if not isinstance(later[1], str) or isinstance(later[0], str):
            np.testing.assert_array_equal(model.predict_proba(pl.DataFrame({"code": later})), P)
    gaps = [
        model.predict_proba(frame({"code": [np.nan]})) for frame in (pd.DataFrame, pl.DataFrame)
    ]
    np.testing.assert_array_equal(gaps[0], gaps[1])
    mixed = quick().fit(pd.DataFrame({"code": [1, "2", 10]}), [0, 1, 0])
    np.testing.assert_array_equal(mixed.predict_proba(codes), P)


@pytest.mark.filterwarnings("ignore:pandas.DataFrame with sparse columns")
@pytest.mark.parametrize(
    "values",
    [
        [None, None, None],
        [True, None, False],
        [1, None, 2.5],
        pd.array([1, None, 2], "Int64"),
        pd.array([True, None, False], "boolean"),
        pd.arrays.SparseArray([0.0, 1.0, 2.0]),
    ],
    ids=["nothing", "truth", "objects", "Int64", "boolean", "sparse"],
)
def test_numbers_stay_numbers(values):
    values = pd.Series(values, dtype=object) if isinstance(values, list) else values
    frame = pd.DataFrame({"n": values, "m": [0.5, 0.1, 0.2]})
    array = np.column_stack(
        [pd.Series(values).astype("Float64").to_numpy(float, na_value=np.nan), frame["m"]]
    )
    expected = quick().fit(array, [0, 1, 1]).predict_proba(array)
    model = quick().fit(frame, [0, 1, 1])
    assert model.text_features_.tolist() == []
    np.testing.assert_array_equal(model.predict_proba(frame), expected)


def test_columns_without_names_that_are_text(rng):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    frame.columns = range(4)
    model = quick().fit(frame, y)
    assert model.text_features_.tolist() == [1, 3]
    assert not hasattr(model, "feature_names_in_")
    P = model.predict_proba(frame)
    frame.columns = range(4, 8)  # scikit-learn does not compare names that are numbers
    np.testing.assert_array_equal(model.predict_proba(frame), P)


# Refusals


def refused(model, sentence, *batch, error=InvalidInputError):
    before = pickle.dumps(model)
    for verb in ("partial_fit", "fit") if not hasattr(model, "model_") else ("partial_fit",):
        with pytest.raises(error, match=sentence):
            getattr(model, verb)(*batch)
        assert pickle.dumps(model) == before


def test_later_rows_have_the_columns_of_the_first(rng):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    model = quick().fit(frame, y)
    refused(model, "column 'width' holds text", frame.assign(width="wide"), y)
    refused(model, "column 'old' holds text", frame.assign(old=pd.Categorical([1] * 60)), y)
    refused(model, "column 'size' is of type datetime64", frame.assign(size=pd.Timestamp(0)), y)
    refused(
        model,
        "feature names should match",
        frame[["width", "old", "colour", "size"]],
        y,
        error=ValueError,
    )
    refused(model, "now missing:\n- size", frame.drop(columns="size"), y, error=ValueError)
    refused(model, "unseen at fit time:\n- more", frame.assign(more=1.0), y, error=ValueError)
    refused(
        model, r"the columns \['colour', 'size'\] held text.*pass a data frame", np.ones((60, 4)), y
    )
    refused(model, "infinity", frame.assign(width=np.inf), y, error=ValueError)
    refused(model, "row 0 of X has a norm above", frame.assign(width=1e16), y)
    with pytest.raises(InvalidInputError, match="column 'width' holds text"):
        model.predict(frame.assign(width="wide"))


def test_a_model_of_arrays_learns_no_text_later(rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    model = quick().fit(X, y)
    frame = pd.DataFrame({0: ["a"] * 20, 1: X[:, 1]})
    refused(model, "column 0 holds text, but held none in the first rows", frame, y)
    model.fit(frame, y)  # which begins anew
    assert model.text_features_.tolist() == [0]
    assert model.fit(X, y).text_features_.tolist() == []


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2026-01-01", "2026-01-02"]),
        pd.to_timedelta([1, 2]),
        pd.period_range("2026", periods=2),
        [datetime.date(2026, 1, 1)] * 2,
        [b"a", b"b"],
        [{}, {}],
        ["a", (1, 2)],
        [1j, 2j],
    ],
    ids=repr,
)
def test_other_kinds_are_refused_by_name(values):
    frame = pd.DataFrame({"fine": [1.0, 2.0], "odd": values})
    refused(quick(), "column 'odd' is of type .* convert or drop it", frame, [0, 1])


@pytest.mark.parametrize("values", [[[1], [2]], [b"a", b"b"], [datetime.date(2026, 1, 1)] * 2])
def test_other_kinds_of_polars_are_refused_by_name(values):
    refused(quick(), "column 'odd' is of type", pl.DataFrame({"odd": values}), [0, 1])


@pytest.mark.parametrize(
    "X",
    [
        [["red", 1.0], ["blue", 2.0]],
        [["1", "2"], ["3", "4"]],
        np.array([["red"], ["blue"]]),
        np.array([["red", 1.0], ["blue", 2.0]], object),
        np.array([[b"1"], [b"2"]]),
    ],
    ids=["list", "digits", "array", "objects", "bytes"],
)
def test_text_outside_frames_is_refused(X):
    refused(quick(), "X holds text, which is taken from data frames only: pass one", X, [0, 1])


def test_without_narwhals_frames_are_arrays(rng, monkeypatch):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    expected = quick().fit(frame[["width", "old"]], y).predict_proba(frame[["width", "old"]])
    monkeypatch.setattr(frames, "nw", None)
    numbers = frame[["width", "old"]]
    np.testing.assert_array_equal(quick().fit(numbers, y).predict_proba(numbers), expected)
    refused(quick(), "it is read with narwhals", frame, y)


def test_buckets_count_as_features(monkeypatch):
    frame = pd.DataFrame({"t": ["a", "b"], "n": [1.0, 2.0]})
    needed = catalogue.n_bytes("folklore", 1 + 8 + 1, 2)
    monkeypatch.setattr(memory, "bytes_present", lambda: needed)
    quick().fit(frame, [0, 1])
    monkeypatch.setattr(memory, "bytes_present", lambda: needed - 1)
    refused(quick(), r"for 9 features \(8 of them for text\) and 2 classes", frame, ["a", "b"])


TEXTS = st.sampled_from(["a", "b", "", "é", "\ud800", None])
NUMBERS = st.one_of(st.floats(-3.0, 3.0), st.sampled_from([np.nan, None, True, 1e15]))
ANYTHING = TEXTS | NUMBERS | st.sampled_from([1e200, np.inf, 2**80, b"a", (1, 2), 1j, {}, pd.NaT])


@st.composite
def batches(draw):
    """Mostly columns of one valid kind, sometimes anything: both sides are visited."""
    n = draw(st.integers(0, 4))
    columns = {}
    for name, usual in (("number", NUMBERS), ("text", TEXTS), ("other", TEXTS)):
        values = draw(st.sampled_from([usual] * 4 + [ANYTHING, NUMBERS]))
        columns[name] = draw(st.lists(values, min_size=n, max_size=n))
    frame = pd.DataFrame(
        {name: pd.Series(column, dtype=object) for name, column in columns.items()}
    )
    change = draw(st.sampled_from(["none", "none", "category", "infer", "polars", "order"]))
    try:
        if change == "category":
            frame["text"] = frame["text"].astype("category")
        elif change == "infer":
            frame = frame.infer_objects().convert_dtypes()
        elif change == "polars":
            frame = pl.DataFrame(columns, strict=False)
        elif change == "order":
            frame = frame[["text", "number", "other"]]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        pass  # there is no such frame
    return frame, draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n))


@pytest.mark.filterwarnings("ignore")  # of scikit-learn and pandas, about the odd input
@pytest.mark.parametrize("begun", [True, False])
def test_a_batch_is_learned_or_changes_nothing(begun):
    begin = quick()
    good = pd.DataFrame({"number": [1.0, np.nan], "text": ["a", None], "other": ["x", "y"]})
    if begun:
        begin.partial_fit(good, ["a", "b"])
    state = pickle.dumps(begin)

    @settings(max_examples=150)
    @given(batches())
    def check(batch):
        frame, y = batch
        model = pickle.loads(state)
        before = pickle.dumps(model)
        try:
            model.partial_fit(frame, y)
        except (ValueError, TypeError):
            assert pickle.dumps(model) == before
        else:
            assert model.model_.n_rounds == 2 * begun + len(y)
            P = model.predict_proba(frame)
            np.testing.assert_allclose(P.sum(axis=1), 1.0)
            again = pickle.loads(pickle.dumps(model))
            np.testing.assert_array_equal(again.predict_proba(frame), P)

    check()


# Among other estimators


def test_in_a_pipeline_a_grid_and_cross_validation(rng):
    columns, y = sample(rng, T=120)
    for library in (pd, pl):
        frame = library.DataFrame(columns)
        P = cross_val_predict(quick(), frame, y, cv=3, method="predict_proba")
        assert log_loss(y, P) < 0.8
        grid = {"n_buckets": [1, 16], "B": [3.0, 10.0]}
        search = GridSearchCV(quick(), grid, cv=3, scoring="neg_log_loss").fit(frame, y)
        assert search.best_params_["n_buckets"] == 16
    scaled = make_column_transformer(
        (StandardScaler(), ["width"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    frame = pd.DataFrame(columns)
    pipeline = make_pipeline(scaled, quick()).fit(frame, y)
    assert pipeline[-1].text_features_.tolist() == ["colour", "size"]
    assert pipeline.score(frame, y) > 0.7


def test_copies_go_on_exactly(rng):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    model = quick(select="average", random_state=3).partial_fit(frame[:40], y[:40])
    twins = copies(model)
    P = model.set_params(n_buckets=99).partial_fit(frame[40:], y[40:]).predict_proba(frame)
    for twin in twins:
        assert twin.text_features_.tolist() == ["colour", "size"]
        np.testing.assert_array_equal(twin.partial_fit(frame[40:], y[40:]).predict_proba(frame), P)
    fresh = clone(model)
    assert fresh.n_buckets == 99
    assert not hasattr(fresh, "text_features_")
