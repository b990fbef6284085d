"""A model with its scaler and names: the same as its parts, and the same after a file."""

import numpy as np
import pytest

import folklearn
from folklearn import Folklore
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.model.hashing import TextHasher
from folklearn.model.open import OpenModel
from folklearn.model.scaler import OnlineScaler
from folklearn.persist import Record
from folklearn.streams.model import StreamModel
from folklearn.streams.scanned import FileTable
from folklearn.streams.table import Weights

COLUMNS = ("size", "größe [red]", "x")
LABELS = ("cat", "[bold]", "犬")


def new_model(learner="folklore", **settings):
    return StreamModel(learner, settings, columns=COLUMNS, target="kind", labels=LABELS)


@pytest.fixture
def stream(rng):
    X = rng.normal(size=(200, 3))
    return X * [1.0, 1e3, 1e-3] + [5.0, 0.0, 1.0], X.argmax(axis=1)


def test_it_is_its_parts(stream):
    X, y = stream
    model, learner = new_model(B=3.0), Folklore(n_features=4, n_classes=3, B=3.0)
    P, losses = model.run_block(X, y)
    expected = learner.run(OnlineScaler(n_features=3).learn_transform(X), y)
    np.testing.assert_array_equal(P, expected)
    np.testing.assert_array_equal(losses, -np.log(expected[np.arange(200), y]))
    assert losses.sum() == pytest.approx(model.learner.certificate().loss, rel=1e-12)
    assert model.n_mistakes == np.sum(expected.argmax(axis=1) != y)


def test_predict_is_what_the_next_round_predicts_and_learns_nothing(stream):
    X, y = stream
    model = new_model()
    model.run_block(X[:100], y[:100])
    p = model.predict(X[100])
    many = model.predict(X[100:110])
    np.testing.assert_allclose(many[0], p, atol=1e-12)
    P, _ = model.run_block(X[100:101], y[100:101])
    np.testing.assert_allclose(P[0], p, atol=1e-12)


def test_it_learns_the_raw_scales(stream):
    X, y = stream
    model = new_model()
    _, losses = model.run_block(X, y)
    assert losses[-50:].mean() < 0.5 * np.log(3)


def test_a_saved_model_goes_on_exactly(stream, tmp_path):
    X, y = stream
    whole, first = new_model(), new_model()
    whole.run_block(X[:77], y[:77])
    first.run_block(X[:77], y[:77])
    first.save(tmp_path / "model")
    second = folklearn.load(tmp_path / "model")
    assert (second.columns, second.target, second.labels) == (COLUMNS, "kind", LABELS)
    expected, resumed = whole.run_block(X[77:], y[77:]), second.run_block(X[77:], y[77:])
    assert resumed[0].tobytes() == expected[0].tobytes()
    assert second.learner.certificate() == whole.learner.certificate()
    assert second.n_mistakes == whole.n_mistakes
    second.save(tmp_path / "second")
    whole.save(tmp_path / "whole")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        ([[1.0, 2.0, 3.0]], [3], r"label y\[0\] is 3"),
        ([[1.0, 2.0, np.inf]], [0], "row 0 of X has inf at feature 2"),
        ([[1.0, 2.0, 3.0]], ["bird"], "y has the label 'bird', which the model does not know"),
        ([[1.0, 2.0]], [0], "X has shape"),
        ([[1.0, 2.0, 3.0]], [[1.0, 0.0, 0.0]], "not soft labels"),
    ],
)
def test_a_refused_block_changes_nothing(X, y, sentence):
    model, untouched = new_model(), new_model()
    with pytest.raises(InvalidInputError, match=sentence):
        model.run_block(X, y)
    model.run_block([[4.0, 5.0, 6.0]], [1])
    untouched.run_block([[4.0, 5.0, 6.0]], [1])
    for name, array in untouched.to_record().arrays.items():
        np.testing.assert_array_equal(model.to_record().arrays[name], array)


def test_weights_reach_the_learner_and_the_loss(stream, tmp_path):
    X, y = stream
    weight = np.linspace(0.0, 3.0, len(y))
    model, learner = new_model(), Folklore(n_features=4, n_classes=3)
    P, losses = model.run_block(X, y, weight=weight)
    np.testing.assert_array_equal(
        P, learner.run(OnlineScaler(n_features=3).learn_transform(X), y, weight=weight)
    )
    assert model.loss == pytest.approx(weight @ losses, rel=1e-12)
    assert model.loss == pytest.approx(model.certificate().loss, rel=1e-9)
    assert model.total_weight == pytest.approx(weight.sum(), rel=1e-12)
    model.save(tmp_path / "model")
    assert folklearn.load(tmp_path / "model").total_weight == model.total_weight


def test_a_weight_that_a_mixture_was_not_made_for_changes_nothing():
    model = new_model("auto", max_weight=2.0)
    before = model.to_record()
    with pytest.raises(InvalidInputError, match=r"weight\[0\] is 3, above max_weight=2"):
        model.run_block([[1.0, 2.0, 3.0]], [0], weight=[3.0])
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(model.to_record().arrays[name], array)
    with pytest.raises(InvalidInputError, match="weight is 3, above max_weight=2"):
        model.refuse_unless_it_fits(table(COLUMNS, {"cat": 2}, Weights(10.0, 3.0, 4)))


def test_names_that_cannot_be():
    with pytest.raises(InvalidInputError, match="columns has 'a' twice"):
        StreamModel(columns=["a", "a"], target="kind")
    with pytest.raises(InvalidInputError, match="labels has 'x' twice"):
        StreamModel(columns=["a"], target="kind", labels=["x", "x"])
    with pytest.raises(InvalidInputError, match="text names 'b', which is none of the columns"):
        StreamModel(columns=["a"], target="kind", text=["b"])
    with pytest.raises(InvalidInputError, match="'aioli' is no learner that takes classes"):
        StreamModel("aioli", columns=["a"], target="kind")


def test_an_unknown_learner_in_a_file_is_refused():
    record = new_model().to_record()
    record.config["model"]["config"]["state"]["kind"] = "Oracle"
    with pytest.raises(StateFileError, match="an unknown kind of object: Oracle"):
        StreamModel.from_record(record)


def test_a_record_without_its_arrays_is_refused():
    record = new_model().to_record()
    arrays = {
        name: array for name, array in record.arrays.items() if name != "model.scaler.moments"
    }
    with pytest.raises(StateFileError, match="needs float64 moments"):
        StreamModel.from_record(Record(record.kind, record.config, arrays))


def test_a_record_without_its_loss_is_refused():
    record = new_model().to_record()
    del record.config["loss"]
    with pytest.raises(StateFileError, match="a StreamModel state needs loss"):
        StreamModel.from_record(record)


@pytest.mark.parametrize("kind", [folklearn.Ogd, folklearn.Laplace, folklearn.auto])
def test_any_learner(stream, tmp_path, kind):
    X, y = stream
    model = new_model(kind.__name__.lower())
    P, losses = model.run_block(X, y)
    expected = kind(n_features=4, n_classes=3).run(OnlineScaler(n_features=3).learn_transform(X), y)
    np.testing.assert_array_equal(P, expected)
    assert model.n_rounds == 200
    assert model.loss == pytest.approx(losses.sum(), rel=1e-12)
    assert model.certificate().valid == (kind is folklearn.auto)
    model.save(tmp_path / "model")
    again = folklearn.load(tmp_path / "model")
    assert (again.n_rounds, again.loss, again.n_mistakes) == (200, model.loss, model.n_mistakes)
    np.testing.assert_array_equal(again.predict(X[:5]), model.predict(X[:5]))


def numbered(y):
    return [LABELS[k] for k in y]


def test_labels_may_be_named(stream):
    X, y = stream
    by_number, by_name = new_model(), new_model()
    P, _ = by_number.run_block(X, y)
    np.testing.assert_array_equal(by_name.run_block(X, numbered(y))[0], P)
    assert by_name.n_mistakes == by_number.n_mistakes


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (["cat", 1], "the label 1 among text"),
        (["cat"], "y has 1 labels for 2 rows"),
        ([0.5, 1.0], "must be integers"),
    ],
)
def test_labels_that_cannot_be(y, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        new_model().run_block([[1.0, 2.0, 3.0]] * 2, y)


def test_labels_may_end_in_anything():
    model = StreamModel("ogd", columns=["a"], target="kind")
    model.run_block([[1.0], [2.0], [3.0]], ["x", "x\0", "x "])
    assert model.labels == ("x", "x\0", "x ")


def test_classes_as_they_come_cost_the_strict_loss(stream):
    """As the open model inside, block after block, and after a file."""
    X, y = stream
    order = list(dict.fromkeys(y.tolist()))
    expected = OpenModel("folklore", n_features=3)
    P, u = expected.run(X, [order.index(k) for k in y])
    model = StreamModel("folklore", columns=COLUMNS, target="kind")
    blocks = [model.run_block(X[a:b], numbered(y[a:b])) for a, b in ((0, 1), (1, 9), (9, 200))]
    assert model.labels == tuple(LABELS[k] for k in order)
    losses = np.concatenate([losses for _, losses in blocks])
    p = (1.0 - u) * P[np.arange(200), [order.index(k) for k in y]]
    first = [y.tolist().index(k) for k in order]
    p[first] = u[first]
    np.testing.assert_allclose(np.exp(-losses), p, rtol=1e-9)
    assert model.loss == pytest.approx(-np.log(p).sum(), rel=1e-9)
    rest = np.setdiff1d(np.arange(200), first)
    new = -np.log(u[first]).sum() - np.log1p(-u[rest]).sum()
    assert model.loss_of_new == pytest.approx(new, rel=1e-9)
    assert (model.unseen_probability, model.n_rounds) == (expected.unseen_probability, 200)
    np.testing.assert_allclose(blocks[2][0].sum(axis=1), 1.0 - u[9:], rtol=1e-9)
    wrong = P.argmax(axis=1) != [order.index(k) for k in y]
    wrong[first] = True
    assert model.n_mistakes == wrong.sum()


def test_an_open_model_after_a_file(stream, tmp_path):
    X, y = stream
    whole = StreamModel("folklore", columns=COLUMNS, target="kind")
    whole.run_block(X[:1], numbered(y[:1]))
    whole.save(tmp_path / "model")
    again = folklearn.load(tmp_path / "model")
    assert (again.open, again.learner) == (True, None)
    P, _ = whole.run_block(X[1:], numbered(y[1:]))
    np.testing.assert_array_equal(again.run_block(X[1:], numbered(y[1:]))[0], P)
    assert (again.loss, again.loss_of_new) == (whole.loss, whole.loss_of_new)


def test_a_model_with_labels_may_be_opened(stream):
    X, y = stream
    model = new_model()
    model.run_block(X, y)
    model.open = True
    model.run_block(X[:1], ["bird"])
    assert model.labels == (*LABELS, "bird")
    assert model.predict(X[0]).shape == (4,)
    assert model.predict(X[:2]).sum(axis=1) == pytest.approx(1.0 - model.unseen_probability)


def test_text_and_gaps():
    model = StreamModel("ogd", columns=["a", "b", "c"], target="y", text=["c", "a"], n_buckets=8)
    X = model.inputs([["red", 1.0, "x"], [None, None, "y"]])
    expected = TextHasher(8).columns({"a": ["red", None], "c": ["x", "y"]})
    np.testing.assert_array_equal(X, np.column_stack([[1.0, np.nan], expected]))
    assert (model.text, model.n_inputs) == (("a", "c"), 9)
    model.run_block(X, ["p", "q"])
    assert np.isfinite(model.loss)
    with pytest.raises(InvalidInputError, match="a row has 2 values for 3 columns"):
        model.inputs([["red", 1.0]])
    with pytest.raises(InvalidInputError, match="behind those of text"):
        model.add_columns(["d"])


def test_columns_that_come_late(tmp_path):
    model = StreamModel("folklore", columns=["a"], target="y")
    model.run_block([[1.0], [2.0]], ["p", "q"])
    model.add_columns(["b"])
    model.run_block([[1.0, 5.0], [2.0, 0.0]], ["p", "q"])
    assert (model.columns, model.n_inputs) == (("a", "b"), 2)
    model.save(tmp_path / "m")
    assert folklearn.load(tmp_path / "m").columns == ("a", "b")


class Source:
    name, unit, sparse, note = "new.csv", "line", False, ""


class SparseSource(Source):
    sparse = True


def table(columns, first_lines, weights=None, source=Source):
    return FileTable(source(), columns, "kind", first_lines, 10, weights)


def test_a_table_fits_in_any_order_of_columns_and_with_fewer_labels():
    new_model().refuse_unless_it_fits(table(COLUMNS[::-1], {"cat": 2}))


def test_a_column_may_be_absent_from_a_sparse_table():
    new_model().refuse_unless_it_fits(table(COLUMNS[:1], {"cat": 2}, source=SparseSource))


def test_a_table_of_other_columns_is_refused_with_the_difference():
    with pytest.raises(InvalidInputError) as caught:
        new_model().refuse_unless_it_fits(table(("size", "x", "weight"), {"cat": 2}))
    assert str(caught.value) == (
        "the columns of new.csv are not those of the model; it lacks: 'größe [red]'; "
        "the model does not know: weight"
    )


def test_text_where_the_model_has_numbers_is_refused():
    strange = FileTable(Source(), COLUMNS, "kind", {"cat": 2}, 10, text=("x",))
    with pytest.raises(InvalidInputError, match="text here or there, not in both: x"):
        new_model().refuse_unless_it_fits(strange)


def test_an_unknown_label_is_named_with_its_first_line():
    lines = {"cat": 2, "bird": 40, "[red]": 7}
    with pytest.raises(InvalidInputError, match=r"line 7 of new.csv has the label '\[red\]'"):
        new_model().refuse_unless_it_fits(table(COLUMNS, lines))


def test_what_is_missing_in_text():
    model = StreamModel("ogd", columns=["t"], target="y", text=["t"], n_buckets=8)
    for gap in (None, float("nan"), np.nan, "", " NA", "nan", "null", "n/a"):
        assert not model.inputs([[gap]]).any()
    np.testing.assert_array_equal(model.inputs([[" red "]]), model.inputs([["red"]]))


def test_whether_it_was_made_from_sparse_rows_is_saved(tmp_path):
    model = StreamModel("ogd", columns=["a"], target="y", sparse=True)
    model.save(tmp_path / "m")
    assert folklearn.load(tmp_path / "m").sparse


def test_the_advice_for_a_new_label_is_for_learners_that_can_grow():
    with pytest.raises(InvalidInputError, match=r"folklearn run - \(standard input\) takes new"):
        new_model().refuse_unless_it_fits(table(COLUMNS, {"bird": 7}))
    with pytest.raises(InvalidInputError, match="its labels are: .*犬$"):
        new_model("ons").refuse_unless_it_fits(table(COLUMNS, {"bird": 7}))
