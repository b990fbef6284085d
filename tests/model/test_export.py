"""The ONNX file of a model gives what `predict_proba` gives, or is refused with a reason."""

import numpy as np
import pytest

from folklearn import Model, load
from folklearn.errors import InvalidInputError
from folklearn.model import export

pytest.importorskip("onnx", reason="needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

_CLOSE = 1e-9  # 1e-6 is promised; this tells whether a formula is another


def make_rows(n, n_classes=3, seed=0):
    """Rows with a gap, a category and a date, of classes that are no lines."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(100.0, 3.0, n), rng.normal(size=n)
    colours = rng.choice(["red", "green", "blue"], n)
    score = (x - 100.0) / 3.0 + z**2 + (colours == "red") + 0.3 * rng.gumbel(size=n)
    y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
    x[rng.random(n) < 0.1] = np.nan
    when = rng.integers(-(2**29), 2**31, n).astype("datetime64[s]")
    return [
        {"x": x[i], "z": z[i], "colour": colours[i], "when": when[i], "y": f"class {y[i]}"}
        for i in range(n)
    ]


def without_labels(rows):
    return [{name: row[name] for name in row if name != "y"} for row in rows]


def as_inputs(rows):
    """Return rows as the documentation says that they are given."""
    inputs = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if isinstance(values[0], np.datetime64):
            seconds = np.array(values, "datetime64[us]").astype(np.int64) / 1e6
            inputs[name] = np.where(np.isnat(values), np.nan, seconds)
        elif isinstance(values[0], str):
            inputs[name] = np.array(values, object)
        else:
            inputs[name] = np.array(values, np.float64)
    return inputs


def check_equal(model, rows, inputs=None, **options):
    """Check that the file says what the model says of rows, all of them and each."""
    session = runtime.InferenceSession(export.make_onnx(model, **options))
    inputs = as_inputs(rows) if inputs is None else inputs
    labels, P = session.run(None, inputs)
    assert P.dtype == np.float64
    np.testing.assert_allclose(P, model.predict_proba(rows), rtol=0.0, atol=_CLOSE)
    assert labels.tolist() == model.predict(rows)
    first = {name: values[:1] for name, values in inputs.items()}
    np.testing.assert_allclose(session.run(["probabilities"], first)[0], P[:1], atol=_CLOSE)


def strange_rows():
    rows = without_labels(make_rows(60, seed=1))
    rows[0]["colour"], rows[1]["colour"] = "never seen", ""
    rows[2] |= {"x": 1e6, "z": -1e6}
    rows[3] |= {"x": np.nan, "z": np.nan, "when": np.datetime64("NaT", "s")}
    return rows


# 7 and 63: the scaler reviews its scale at the next row. 300: terms, and Folklore is there still.
@pytest.mark.parametrize(
    ("n", "n_classes"), [(7, 2), (20, 12), (63, 3), (300, 2), (300, 12), (1100, 3)]
)
@pytest.mark.filterwarnings("ignore::folklearn.DataWarning")
def test_the_default_model(n, n_classes):
    model, rows = Model(), make_rows(n, n_classes)
    model.run(rows, "y")
    check_equal(model, strange_rows() + without_labels(rows[-200:]))  # knots are among these


@pytest.mark.parametrize("learner", ["folklore", "leader", "blocks", "ogd"])
@pytest.mark.filterwarnings("ignore::folklearn.DataWarning")
def test_a_learner_by_name(learner):
    model = Model(learner)
    model.run(make_rows(100), "y")
    check_equal(model, strange_rows())


@pytest.mark.parametrize(
    "settings", [{}, {"terms": "none"}, {"terms": "all"}, {"intercept": False}, {"scale": False}]
)
@pytest.mark.filterwarnings("ignore::folklearn.DataWarning")
def test_a_fit(settings):
    rows = make_rows(300)
    if settings.get("scale") is False:  # seconds since 1970 are too long for a row as it is
        rows = [{name: row[name] for name in row if name != "when"} for row in rows]
    kept = rows[0].keys()
    asked = [{name: row[name] for name in row if name in kept} for row in strange_rows()]
    check_equal(Model(**settings).fit(rows, "y"), asked)


def test_columns_that_come_late_lie_behind_the_constant():
    rows = make_rows(300)
    early = [{name: row[name] for name in ("x", "y")} for row in rows[:80]]
    model = Model()
    model.run(early, "y")
    model.run(rows[80:], "y")
    check_equal(model, without_labels(rows[:50]))


@pytest.mark.parametrize(("backend", "d"), [("blocks", 6), ("wide", 6), (None, 400)])
def test_a_matrix_in_every_backend(backend, d):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, d))
    y = (X[:, :4] + rng.gumbel(size=(400, 4))).argmax(axis=1)
    model = Model(**{} if backend is None else {"backend": backend})
    model.learn_many(X, y)
    session = runtime.InferenceSession(export.make_onnx(model))
    labels, P = session.run(None, {"X": X[:50]})
    np.testing.assert_allclose(P, model.predict_proba(X[:50]), rtol=0.0, atol=_CLOSE)
    assert labels.dtype == np.int64
    assert labels.tolist() == model.predict(X[:50])


def test_what_stands_for_a_missing_number_does_so_in_the_file():
    rows = [{"x": float(i % 7), "y": "ab"[i % 7 > 3]} for i in range(100)]
    rows += [{"x": -999.0, "y": "a"}] * 9
    model = Model(missing=-999)
    model.run(rows, "y")
    check_equal(model, [{"x": -999.0}, {"x": 2.0}, {"x": np.nan}])


def test_crosses():
    rows = make_rows(300)
    pipes = np.random.default_rng(1).choice(["steel", "copper"], len(rows))
    rows = [row | {"pipe": pipe} for row, pipe in zip(rows, pipes, strict=True)]
    crosses = [("x", "z"), ("colour", "z"), ("x", "pipe"), ("colour", "pipe")]
    model = Model(crosses=crosses)
    model.run(rows, "y")
    asked = without_labels(rows[:40])
    asked[0]["colour"], asked[1]["pipe"], asked[2]["z"] = "", "", np.nan
    check_equal(model, asked)


def test_further_categories_have_to_be_listed():
    names = [f"city {i}" for i in range(150)]
    rows = [{"city": names[i % 150], "y": "ab"[i % 2]} for i in range(450)]
    model = Model()
    model.run(rows, "y")
    with pytest.raises(InvalidInputError, match="further categories of city share places by a"):
        export.make_onnx(model)
    check_equal(model, without_labels(rows[:150]), categories={"city": names})


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({}, [{"text": "one two three four", "y": "a"}, {"text": "a b c d", "y": "b"}], "text"),
        ({}, [{"a": 1.0, "y": "a"}], "before two classes"),
        ({}, [{"label": 1.0, "y": y} for y in "ab"], "like an output of the file"),
        ({"learner": "gaf"}, [{"a": 1.0, "y": y} for y in "ab"], "Gaf predicts by a rule"),
    ],
)
def test_what_cannot_be_exported_is_refused(settings, rows, message):
    classes = [] if settings.get("learner") is None else ["a", "b"]
    model = Model(classes=classes, **settings)
    for row in rows:
        model.learn_one({name: row[name] for name in row if name != "y"}, row["y"])
    with pytest.raises(InvalidInputError, match=message):
        export.make_onnx(model)


def test_equal_models_give_equal_files_and_none_is_left_half_written(tmp_path):
    model, path, saved = Model(), tmp_path / "m.onnx", tmp_path / "m.folk"
    model.run(make_rows(100), "y")
    model.export(path)
    assert path.read_bytes() == export.make_onnx(model)
    model.save(saved, inference=True)
    assert path.read_bytes() == export.make_onnx(load(saved))
    with pytest.raises(InvalidInputError, match="nothing yet"):
        Model().export(tmp_path / "other.onnx")
    assert {file.name for file in tmp_path.iterdir()} == {"m.folk", "m.onnx"}
