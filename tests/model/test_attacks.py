"""What somebody found who tried to break the model; each line was a bug once."""

import numpy as np
import pytest

import folklearn
from folklearn import DataWarning, Model
from folklearn.errors import InvalidInputError


def words_model():
    model = Model()
    for i in range(100):
        row = {"t": f"word{i % 7} is what", "a": float(i % 3), "b": float(i % 5)}
        model.learn_one(row, "pq"[i % 2])
    return model


def test_a_refused_row_does_not_spoil_a_wide_model():
    model = words_model()
    before = model.predict_proba_one({"t": "word1 is what"})
    with pytest.raises(InvalidInputError):
        model.learn_one({"a": 9e14, "b": 9e14, "late": 1.0}, "p")
    assert model.predict_proba_one({"t": "word1 is what"}) == before
    assert model.n_rounds == 100


def test_a_number_that_comes_late_was_missing_not_zero():
    rng = np.random.default_rng(0)
    rows = [{"a": rng.normal(), "b": rng.normal() + 50.0} for _ in range(400)]
    y = ["pq"[int(row["b"] > 50.0)] for row in rows]
    late = [row if i >= 100 else {"a": row["a"]} for i, row in enumerate(rows)]
    one_by_one, at_once, known = Model(), Model(), Model()
    for row, label in zip(late, y, strict=True):
        one_by_one.learn_one(row, label)
    at_once.learn_many(late, y)
    known.learn_many(rows[100:], y[100:])
    assert one_by_one.metrics.loss == pytest.approx(at_once.metrics.loss, rel=0.02)
    before = sum(Model().learn_many(late[:100], y[:100]).losses)
    assert (
        one_by_one.metrics.loss - before < known.metrics.loss + 40.0
    )  # nats: what is late is learned at once


def test_an_interrupt_leaves_no_rows_for_later_floors(monkeypatch):
    rng = np.random.default_rng(0)
    model = Model("folklore", windows=True, classes=["p", "q"])
    X = rng.normal(size=(600, 3))
    model.learn_many(X[:300], rng.choice(["p", "q"], 300).tolist())
    monkeypatch.setattr(model.metrics, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.learn_many(X[300:400], rng.choice(["p", "q"], 100).tolist())
    monkeypatch.undo()
    model.learn_many(X[400:], ["pq"[int(x > 0)] for x in X[400:, 0]])
    assert all(window.lower_bound == -np.inf for window in model.windows())
    assert "was interrupted" in model.certificate().reason
    assert not model.certificate().valid


def test_weights_of_rows_do_not_lift_the_floors_of_a_run(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"a": rng.normal(), "w": 10.0, "y": "pq"[i]} for i in rng.integers(2, size=600)]
    model = Model(windows=True)
    run = model.run(rows, "y", weight="w")
    assert all(not one.lower_bound > 0.75 for one in run.metrics.segments)  # nats: a coin has .69


def test_fitting_again_forgets_what_other_rows_decided():
    few = [{"a": float(i), "y": "p" if i % 10 else "q"} for i in range(100)]
    even = [{"a": float(i), "y": "rs"[i % 2], "w": 5.0} for i in range(100)]
    model = Model(class_weight="balanced").fit(few, "y")
    model.fit(even, "y", weight="w")
    assert model.labels == ("r", "s")
    assert model.label_encoder.class_weight == {"r": 1.0, "s": 1.0}


def test_labels_of_numbers_are_known_in_files_too(tmp_path):
    rows = [{"a": float(i % 2), "y": i % 2} for i in range(100)]
    model = Model()
    model.run(rows, "y")
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "".join(f"{row['a']},{row['y']}\n" for row in rows))
    assert model.score(str(path)).error < 0.1
    model.run(str(path))
    assert model.labels == (0, 1)
    other = Model()
    other.run(iter(rows), "y")
    assert other.labels == (0, 1)


def test_soft_labels_of_dictionaries_can_be_run():
    rows = [
        {"a": float(i % 2), "y": {"p": 0.9, "q": 0.1} if i % 2 else {"q": 1.0}} for i in range(50)
    ]
    model = Model()
    assert model.run(rows, "y").n_rows == 50
    assert set(model.labels) == {"p", "q"}


def test_what_cannot_be_meant_is_refused():
    rows = [{"a": float(i), "b": 1.0, "a:b": 2.0, "y": "pq"[i % 2]} for i in range(20)]
    with pytest.raises(InvalidInputError, match="like a cross"):
        Model(crosses=[("a", "b")]).run(rows, "y")
    model = Model()
    model.run([{"a": float(i), "y": "pq"[i % 2]} for i in range(20)], "y")
    with pytest.raises(InvalidInputError, match="have names"):
        model.predict(np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match="never asked for"):
        model.tell(99, "p")
    assert model.learn_many([], []).P.shape[0] == 0
    assert Model(class_weight={}).run(rows, "y").n_rows == 20


def test_after_a_fit_the_loss_is_that_of_what_was_predicted():
    rows = [{"a": float(i % 2), "y": "pq"[i % 2]} for i in range(200)]
    model = Model().fit(rows, "y")
    given = model.predict_proba_one({"a": 1.0})["q"]
    before = model.metrics.loss
    model.learn_one({"a": 1.0}, "q")
    assert model.metrics.loss - before == pytest.approx(-np.log(given), rel=1e-6)


def test_a_number_to_be_estimated_is_refused_unless_it_is_called_a_target():
    rows = [{"a": float(i), "y": str(i * 1.7)} for i in range(100)]
    model = Model()
    with pytest.raises(InvalidInputError, match=r"classes all the same: roles=\{'y': 'target'\}"):
        model.run(rows, "y")
    assert (model.n_rounds, model.labels) == (0, ())
    with pytest.warns(DataWarning, match="different numbers"):
        Model(roles={"y": "target"}).run(rows, "y")


@pytest.mark.filterwarnings("ignore:the saved model will do worse")
def test_sorted_labels_are_said():
    rows = [{"a": float(i), "y": "pq"[i >= 100]} for i in range(200)]
    with pytest.warns(DataWarning, match="sorted"):
        Model().run(rows, "y")
    assert folklearn.Model is Model


def test_settings_that_are_numbers_of_numpy_are_saved(tmp_path):
    model = Model("leader", memory=np.int64(3))
    for k in range(6):
        model.learn_one({"a": k % 2, "b": 1}, "ab"[k % 2])
    model.save(tmp_path / "m")
    assert folklearn.load(tmp_path / "m").settings == {"memory": 3}


def test_a_row_that_waits_may_have_a_date_that_is_missing(tmp_path):
    import pandas as pd

    model = Model()
    for k in range(6):
        model.learn_one({"a": k % 2, "when": pd.Timestamp(2024, 1, 1 + k)}, "ab"[k % 2])
    _, number = model.ask({"a": 1, "when": pd.NaT})
    model.save(tmp_path / "m")
    other = folklearn.load(tmp_path / "m")
    for one in (model, other):
        one.tell(number, "b")
    assert other.metrics.loss == model.metrics.loss


def test_weights_of_words_are_those_of_the_model_without_scaling_too():
    model = Model(scale=False, roles={"text": "words"})
    for k in range(40):
        model.learn_one({"text": ["good good", "bad"][k % 2]}, "+-"[k % 2])
    found = model.explain(importance=False)
    named = dict(zip(found.names, found.weights[:, 0], strict=True))
    _, weights = model.pipeline.column_weights()
    assert np.abs(weights[:, 0] - weights[:, 1]).max() / 2 == pytest.approx(
        max(map(abs, named.values()))
    )


def test_many_large_cells_are_no_row_that_stops_a_run(tmp_path):
    """What a reader lets through, the scaler takes: a row that is too large is a bad one."""
    path = tmp_path / "t.csv"
    names = [f"x{j}" for j in range(150)]
    rows = [["1"] * 150, ["9e12"] * 150, ["9e13"] * 150, ["2"] * 150] * 3
    lines = [",".join([*row, "ab"[i % 2]]) for i, row in enumerate(rows)]
    path.write_text("\n".join([",".join([*names, "y"]), *lines]))
    bad = []
    run = Model("ogd").run(path, "y", on_bad=bad.append)
    assert (run.n_rows, [row.line for row in bad]) == (9, [4, 8, 12])
