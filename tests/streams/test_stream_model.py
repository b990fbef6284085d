"""A model with its scaler and names: the same as its parts, and the same after a file."""

import numpy as np
import pytest

import folklearn
from folklearn import Folklore
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.persist import Record
from folklearn.streams.model import StreamModel
from folklearn.streams.scaler import OnlineScaler
from folklearn.streams.scanned import FileTable
from folklearn.streams.table import Weights

COLUMNS = ("size", "größe [red]", "x")
LABELS = ("cat", "[bold]", "犬")


def new_model(**settings):
    learner = Folklore(n_features=4, n_classes=3, **settings)
    return StreamModel(learner, columns=COLUMNS, target="kind", labels=LABELS)


@pytest.fixture
def stream(rng):
    X = rng.normal(size=(200, 3))
    return X * [1.0, 1e3, 1e-3] + [5.0, 0.0, 1.0], X.argmax(axis=1)


def test_it_is_its_parts(stream):
    X, y = stream
    model, learner = new_model(B=3.0), Folklore(n_features=4, n_classes=3, B=3.0)
    P, losses = model.run_block(X, y)
    expected = learner.run(OnlineScaler(3).learn_transform(X), y)
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
        ([[1.0, 2.0, np.nan]], [0], "row 0 of X has nan at feature 2"),
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
        P, learner.run(OnlineScaler(3).learn_transform(X), y, weight=weight)
    )
    assert model.loss == pytest.approx(weight @ losses, rel=1e-12)
    assert model.loss == pytest.approx(model.certificate().loss, rel=1e-9)
    assert model.total_weight == pytest.approx(weight.sum(), rel=1e-12)
    model.save(tmp_path / "model")
    assert folklearn.load(tmp_path / "model").total_weight == model.total_weight


def test_a_file_of_a_time_without_weights(stream):
    X, y = stream
    model = new_model()
    model.run_block(X, y)
    record = model.to_record()
    del record.config["total_weight"]
    assert StreamModel.from_record(record).total_weight == 200.0


def test_a_weight_that_a_mixture_was_not_made_for_changes_nothing():
    learner = folklearn.auto(n_features=4, n_classes=3, max_weight=2.0)
    model = StreamModel(learner, columns=COLUMNS, target="kind", labels=LABELS)
    before = model.to_record()
    with pytest.raises(InvalidInputError, match="the weight 3, and this model was made for"):
        model.run_block([[1.0, 2.0, 3.0]], [0], weight=[3.0])
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(model.to_record().arrays[name], array)
    with pytest.raises(InvalidInputError, match="of at most 2"):
        model.refuse_unless_it_fits(table(COLUMNS, {"cat": 2}, Weights(10.0, 3.0, 4)))


def test_a_learner_of_other_sizes_is_refused():
    with pytest.raises(InvalidInputError, match="need 4 and 3"):
        StreamModel(
            Folklore(n_features=3, n_classes=3), columns=COLUMNS, target="kind", labels=LABELS
        )


def test_an_unknown_learner_in_a_file_is_refused():
    record = new_model().to_record()
    record.config["learner"]["kind"] = "Oracle"
    with pytest.raises(StateFileError, match="an unknown kind of object: Oracle"):
        StreamModel.from_record(record)


def test_a_record_without_its_arrays_is_refused():
    record = new_model().to_record()
    arrays = {name: array for name, array in record.arrays.items() if name != "scaler.mean"}
    with pytest.raises(StateFileError, match="needs mean"):
        StreamModel.from_record(Record(record.kind, record.config, arrays))


def test_a_record_without_its_loss_is_refused():
    record = new_model().to_record()
    del record.config["loss"]
    with pytest.raises(StateFileError, match="a StreamModel state needs loss"):
        StreamModel.from_record(record)


@pytest.mark.parametrize("kind", [folklearn.Ogd, folklearn.Laplace, folklearn.auto])
def test_any_learner(stream, tmp_path, kind):
    X, y = stream
    learner = kind(n_features=4, n_classes=3)
    model = StreamModel(learner, columns=COLUMNS, target="kind", labels=LABELS)
    P, losses = model.run_block(X, y)
    expected = kind(n_features=4, n_classes=3).run(OnlineScaler(3).learn_transform(X), y)
    np.testing.assert_array_equal(P, expected)
    assert model.n_rounds == 200
    assert model.loss == pytest.approx(losses.sum(), rel=1e-12)
    assert (model.certificate() is None) == (kind is not folklearn.auto)
    model.save(tmp_path / "model")
    again = folklearn.load(tmp_path / "model")
    assert (again.n_rounds, again.loss, again.n_mistakes) == (200, model.loss, model.n_mistakes)
    np.testing.assert_array_equal(again.predict(X[:5]), model.predict(X[:5]))


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


def test_an_unknown_label_is_named_with_its_first_line():
    lines = {"cat": 2, "bird": 40, "[red]": 7}
    with pytest.raises(InvalidInputError, match=r"line 7 of new.csv has the label '\[red\]'"):
        new_model().refuse_unless_it_fits(table(COLUMNS, lines))
