"""Data frames: roles by the first rows, categories with a place of their own, all or nothing."""

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

import folklearn
from folklearn import FolkloreClassifier, utils
from folklearn.adapters import sklearn as adapter
from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue
from folklearn.model.pipeline import OnlinePipeline
from tests.adapters.copying import copies

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def quick(**words):
    return FolkloreClassifier(**{"learner": "folklore", "shuffle": False} | words)


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


CATEGORIES = {"colour": ["red", "blue", "green"], "size": ["S", "L"]}


def by_hand(columns):
    """Return columns by name, categories in order of appearance; the numbers are in between."""
    parts = []
    for name in sorted(columns):
        if name in CATEGORIES:
            values = dict.fromkeys(value for value in columns[name] if value is not None)
            parts += [[cell == value for cell in columns[name]] for value in values]
        else:
            parts.append(columns[name])
    return np.array(parts, float).T


def places(model):
    return [" = ".join(filter(None, key)) for key in model.model_.encoder.keys]


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
def test_categories_have_places_of_their_own(kind, rng):
    columns, y = sample(rng)
    frame, X = MAKERS[kind](columns), by_hand(columns)
    names, numbers = np.unique(y, return_inverse=True)
    twin = OnlinePipeline("folklore", n_features=7, n_classes=len(names))
    model = quick().fit(frame, y)
    wanted = ["colour", "old", "size", "width"]
    assert sorted({place.split(" = ")[0] for place in places(model)}) == wanted
    # New places are opened as row after row needs them.
    by_column = [f"colour = {c}" for c in dict.fromkeys(filter(None, columns["colour"]))]
    by_column += ["old", *(f"size = {c}" for c in dict.fromkeys(columns["size"])), "width"]
    order = [by_column.index(place) for place in places(model)]
    twin.run(X[:, order], numbers)
    np.testing.assert_array_equal(model.predict_proba(frame), twin.predict(X[:, order]))
    assert model.model_.roles == {
        "colour": "category", "old": "number", "size": "category", "width": "number"
    }  # fmt: skip
    assert model.feature_names_in_.tolist() == ["width", "colour", "old", "size"]
    assert model.n_features_in_ == 4


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_pieces_are_the_whole(library, rng):
    """If the first piece has all categories: it sets the unit of the scaling."""
    columns, y = sample(rng)
    model = quick()
    whole = quick().fit(library.DataFrame(columns), y)
    for rows in np.split(np.arange(60), [30, 31, 45]):
        model.partial_fit(library.DataFrame(some(columns, rows)), y[rows], classes=np.unique(y))
    P = model.predict_proba(library.DataFrame(columns))
    np.testing.assert_allclose(P, whole.predict_proba(library.DataFrame(columns)), atol=1e-9)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:1 row has a value of 'colour' that was never learned")
def test_a_category_that_was_never_seen_says_nothing(rng):
    columns, y = sample(rng)
    model = quick().fit(pd.DataFrame(columns), y)
    P = [
        model.predict_proba(pd.DataFrame(some(columns, [0]) | {"colour": [colour]}))
        for colour in ("violet", None, np.nan)
    ]
    np.testing.assert_array_equal(P[0], P[1])
    np.testing.assert_array_equal(P[0], P[2])
    model.partial_fit(pd.DataFrame(some(columns, [0, 1]) | {"colour": ["violet"] * 2}), y[:2])
    assert places(model)[-1] == "colour = violet"


def test_what_is_saved_knows_columns_labels_and_roles(rng, tmp_path):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    for learner in ("folklore", "auto"):
        model = FolkloreClassifier(learner=learner).fit(frame, y)
        model.model_.save(tmp_path / "model")
        loaded = folklearn.load(tmp_path / "model")
        assert loaded.labels == tuple(model.classes_.tolist())
        np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
        row = {name: values[3] for name, values in columns.items()}
        p = loaded.predict_proba_one(row)
        if learner == "auto":  # after `fit`, everything predicts as the fit
            np.testing.assert_allclose(list(p.values()), model.predict_proba(frame)[3], rtol=1e-9)


def test_roles_dates_words_ids_and_crosses(rng):
    T = 120
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2026-01-01", periods=T, freq="37h"),
            "day": [f"2026-01-{1 + t % 28:02}" for t in range(T)],
            "note": ["late again and again", "all is very well"] * (T // 2),
            "row": np.arange(T),
            "key": [f"k{t}" for t in range(T)],
            "code": rng.integers(0, 3, T),
            "place": rng.choice(["N", "S"], T),
        }
    )
    y = np.where(frame["when"].dt.day_of_week < 3, "early", "late")
    model = FolkloreClassifier(roles={"code": "category"}, crosses=[("code", "place")])
    model.fit(frame.drop(columns="note"), y)
    assert model.model_.roles == {
        "when": "date", "day": "date", "row": "id", "key": "id", "code": "category",
        "place": "category",
    }  # fmt: skip
    assert "code:place = 0 & N" in places(model)
    assert model.score(frame.drop(columns="note"), y) > 0.9
    roles = {"when": "ignored", "note": "words"}
    model = FolkloreClassifier(roles=roles).fit(frame, np.arange(T) % 2)
    assert model.model_.encoder.sparse
    assert model.score(frame, np.arange(T) % 2) == 1.0
    with pytest.raises(InvalidInputError, match="X has no column 'colour', which was given a role"):
        FolkloreClassifier(roles={"colour": "category"}).fit(frame, y)
    with pytest.raises(InvalidInputError, match="cannot have the role 'colour'"):
        FolkloreClassifier(roles={"code": "colour"}).fit(frame, y)


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
    X = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    twin = OnlinePipeline("folklore", n_features=2, n_classes=2)
    twin.run(X, [0, 1, 1])
    np.testing.assert_array_equal(model.predict_proba(pd.DataFrame({"t": values})), twin.predict(X))


def test_numbers_among_text_are_their_text():
    codes = pd.DataFrame({"code": pd.Categorical([1, 2, 10])})
    model = quick().fit(codes, [0, 1, 0])
    P = model.predict_proba(codes)
    assert model.model_.roles == {"code": "category"}
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
        [True, None, False],
        [1, None, 2.5],
        pd.array([1, None, 2], "Int64"),
        pd.array([True, None, False], "boolean"),
    ],
    ids=["truth", "objects", "Int64", "boolean"],
)
def test_numbers_stay_numbers(values):
    values = pd.Series(values, dtype=object) if isinstance(values, list) else values
    frame = pd.DataFrame({"m": [0.5, 0.1, 0.2], "n": values})
    array = np.column_stack(
        [frame["m"], pd.Series(values).astype("Float64").to_numpy(float, na_value=np.nan)]
    )
    expected = quick().fit(array, [0, 1, 1])
    model = quick().fit(frame, [0, 1, 1])
    assert model.model_.roles == {"m": "number", "n": "number"}
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(array))


def test_a_column_without_values_is_whatever_comes(rng):
    frame = pd.DataFrame({"m": [0.5, 0.1], "n": pd.Series([None, None], dtype=object)})
    model = quick().fit(frame, [0, 1])
    assert model.model_.roles == {"m": "number"}
    model.partial_fit(frame.assign(n=["x", "y"]), [0, 1])
    assert model.model_.roles == {"m": "number", "n": "category"}


def test_columns_without_names_that_are_text(rng):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    frame.columns = range(4)
    model = quick().fit(frame, y)
    assert model.model_.roles == {"0": "number", "1": "category", "2": "number", "3": "category"}
    assert not hasattr(model, "feature_names_in_")
    P = model.predict_proba(frame)
    frame.columns = range(4, 8)  # scikit-learn does not compare names that are numbers
    np.testing.assert_array_equal(model.predict_proba(frame), P)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_an_array_after_a_frame_is_taken_by_position(rng):
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = quick().fit(pd.DataFrame(X, columns=["c", "a", "b"]), y)
    P = model.predict_proba(pd.DataFrame(X, columns=["c", "a", "b"]))
    np.testing.assert_array_equal(model.predict_proba(X), P)


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
    refused(model, "column 'width': 'wide' is not a num", frame.assign(width="wide"), y)
    refused(
        model,
        "feature names should match",
        frame[["width", "old", "colour", "size"]],
        y,
        error=ValueError,
    )
    refused(model, "now missing:\n- size", frame.drop(columns="size"), y, error=ValueError)
    refused(model, "unseen at fit time:\n- more", frame.assign(more=1.0), y, error=ValueError)
    refused(model, "column 'width': inf is not finite", frame.assign(width=np.inf), y)
    refused(model, "column 'width': 1e.16 is too large", frame.assign(width=1e16), y)
    with pytest.raises(InvalidInputError, match="column 'width': 'wide' is not a number"):
        model.predict(frame.assign(width="wide"))


def test_a_model_of_arrays_learns_no_text_later(rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    model = quick().fit(X, y)
    frame = pd.DataFrame({0: ["a"] * 20, 1: X[:, 1]})
    refused(model, "X holds text, which is taken from data frames only, if the first", frame, y)
    model.fit(frame, y)  # which begins anew
    assert model.model_.roles == {"0": "category", "1": "number"}
    assert model.fit(X, y).model_.roles == {}


@pytest.mark.parametrize(
    "values",
    [
        pd.period_range("2026", periods=2),
        [{}, {}],
        ["a", (1, 2)],
        [1j, 2j],
    ],
    ids=repr,
)
def test_other_kinds_are_refused_by_name(values):
    frame = pd.DataFrame({"fine": [1.0, 2.0], "odd": values})
    refused(quick(), "column 'odd'", frame, [0, 1])


@pytest.mark.parametrize("values", [[[1], [2]], [b"a", b"b"], [datetime.time(1), datetime.time(2)]])
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
    refused(quick(), "X holds text, which is taken from data frames only, if", X, [0, 1])


def test_without_narwhals_frames_are_arrays(rng, monkeypatch):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    numbers = frame[["old", "width"]]
    expected = quick().fit(numbers, y).predict_proba(numbers)
    monkeypatch.setattr(adapter, "find_spec", lambda _: None)
    model = quick().fit(numbers, y)
    np.testing.assert_array_equal(model.predict_proba(numbers), expected)
    assert model.feature_names_in_.tolist() == ["old", "width"]
    refused(quick(), "it is read with narwhals", frame, y)


def test_places_count_as_features(monkeypatch):
    frame = pd.DataFrame({"t": ["a", "b"], "n": [1.0, 2.0]})
    needed = catalogue.n_bytes("folklore", 1 + 2 + 1, 2)
    monkeypatch.setattr(utils, "bytes_present", lambda: needed)
    quick().fit(frame, [0, 1])
    monkeypatch.setattr(utils, "bytes_present", lambda: needed - 1)
    refused(quick(), "GB of memory for 4 columns and 2 classes", frame, ["a", "b"])


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

    @settings(max_examples=80)
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
        grid = {"roles": [None, {"colour": "ignored"}], "B": [3.0, 10.0]}
        search = GridSearchCV(quick(), grid, cv=3, scoring="neg_log_loss").fit(frame, y)
        assert search.best_params_["roles"] is None
    scaled = make_column_transformer(
        (StandardScaler(), ["width"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    frame = pd.DataFrame(columns)
    pipeline = make_pipeline(scaled, quick()).fit(frame, y)
    assert pipeline[-1].model_.roles["colour"] == "category"
    assert pipeline.score(frame, y) > 0.7


def test_copies_go_on_exactly(rng):
    columns, y = sample(rng)
    frame = pd.DataFrame(columns)
    model = quick(random_state=3).partial_fit(frame[:40], y[:40])
    twins = copies(model)
    P = model.set_params(B=99.0).partial_fit(frame[40:], y[40:]).predict_proba(frame)
    for twin in twins:
        assert twin.model_.roles == model.model_.roles
        np.testing.assert_array_equal(twin.partial_fit(frame[40:], y[40:]).predict_proba(frame), P)
    fresh = clone(model)
    assert fresh.B == 99.0
    assert not hasattr(fresh, "model_")
