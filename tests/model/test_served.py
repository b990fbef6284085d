"""What the service needs of a model: copies that predict, rows that wait elsewhere, equal bytes."""

import pickle

import numpy as np
import pytest

import folklearn
from folklearn import serialization
from folklearn.model.labels import PendingPrediction


def rows(n, seed=0):
    """Return rows whose categories and classes grow on the way."""
    rng = np.random.default_rng(seed)
    return [
        (
            {"a": float(rng.normal()), "c": str(rng.integers(3 if t < 50 else 6))},
            "xyz"[rng.integers(1 + (t > 5) + (t > 150))],
        )
        for t in range(n)
    ]


def test_windows_do_not_depend_on_who_looked_when():
    models = [folklearn.Model(windows=True) for _ in range(3)]
    for t, (x, y) in enumerate(rows(300)):
        for model in models:
            model.learn_one(x, y)
        if t % 7 == 0:
            models[1].windows()
            models[1].to_record()
        if t % 37 == 0:
            models[2] = serialization.revive(models[2].to_record())
    digests = {model.to_record().digest for model in models}
    assert len(digests) == 1


def test_windows_are_there_from_the_first_class_on():
    model = folklearn.Model(windows=True)
    model.learn_one({"a": 3, "c": "one"}, "x")
    assert model.windows()[0].stop == 1
    model.learn_one({"a": 9, "c": "another"}, "y")  # a class and a category come together
    assert 0.0 < model.windows()[0].lower_bound < 2.0 * np.log(2.0)  # to tell them apart costs


@pytest.mark.parametrize("settings", [{}, {"windows": True}, {"roles": {"c": "words"}}])
def test_a_copy_predicts_and_stays_as_it_is(settings):
    model, asked = folklearn.Model(**settings), {"a": 1.0, "c": "1"}
    for x, y in rows(200):
        model.learn_one(x, y)
    before = model.to_record().digest
    copy = model.copy_to_predict()
    said = copy.predict_proba_one(asked)
    assert said == model.predict_proba_one(asked)
    block = [x for x, _ in rows(20, seed=1)]
    frozen = copy.predict_proba(block)
    assert np.array_equal(frozen, model.predict_proba(block))
    assert model.to_record().digest == before
    for x, y in rows(200, seed=2):
        model.learn_one({**x, "late": 1.0}, y + "!")
    assert copy.predict_proba_one(asked) == said
    assert np.array_equal(copy.predict_proba(block), frozen)
    assert len(copy.labels) == 3
    assert len(model.labels) == 6


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("settings", [{}, {"terms": "none"}, {"roles": {"c": "words"}}])
def test_a_model_saved_for_inference_predicts_the_same_and_learns_nothing(
    settings, fitted, tmp_path
):
    model = folklearn.Model(windows=True, **settings)
    known = rows(400)
    if fitted:
        model.fit([x | {"y": y} for x, y in known], "y")
    else:
        model.learn_many([x for x, _ in known[:330]], [y for _, y in known[:330]])
    asked, block = {"a": 1.0, "c": "1"}, [x for x, _ in rows(20, seed=1)]
    model.ask(asked)
    model.monitor()
    model.save(tmp_path / "whole")
    model.save(tmp_path / "small", inference=True)
    sizes = [(tmp_path / name).stat().st_size for name in ("whole", "small")]
    assert sizes[1] < 0.75 * sizes[0]
    small = folklearn.load(tmp_path / "small")
    again = folklearn.load(small.to_bytes())
    before = small.to_record().digest
    for one in (small, again, pickle.loads(pickle.dumps(small)), small.copy_to_predict()):
        assert one.predict_proba(block).tobytes() == model.predict_proba(block).tobytes()
        assert one.predict_proba_one(asked) == model.predict_proba_one(asked)
        assert one.explain(asked) == model.explain(asked)
        labelled = [x | {"y": y} for x, y in known]
        assert one.score(labelled, "y").loss == model.score(labelled, "y").loss
    for learn in (
        lambda: small.learn_one(asked, "x"),
        lambda: small.learn_one(asked | {"late": 2.0}, "new"),
        lambda: small.learn_many(block, ["x"] * 20),
        lambda: small.run([x | {"y": y} for x, y in known], "y"),
        lambda: small.run([x | {"y": y + "!"} for x, y in known], "y"),
    ):
        with pytest.raises(
            folklearn.errors.FolklearnError, match="saved with inference=True only predicts"
        ):
            learn()
    assert small.to_record().digest == before
    assert not small.certificate().valid
    assert "inference=True" in small.certificate().reason
    assert small.explain().importance == {}
    assert small.metrics.loss == model.metrics.loss


@pytest.mark.parametrize("n", [100, 330])  # a few, and amid a stripe of the hold-out
@pytest.mark.parametrize("settings", [{}, {"roles": {"c": "words"}}])
def test_a_file_for_inference_holds_no_row(settings, n):
    """Of lines; terms have knots at some of the values."""
    model, known = folklearn.Model(terms="none", **settings), rows(400)
    for x, y in known[:n]:
        model.learn_one(x, y)
    model.ask({"a": known[0][0]["a"]})
    values = [x["a"] for x, _ in known]

    def holds_values(record):
        arrays = [a for a in record.arrays.values() if a.dtype == np.float64]
        return any(np.isin(values, array).any() for array in arrays) or known[0][0]["a"] in [
            value for _, row, *_ in record.config["pending"] for value in row.values()
        ]

    assert holds_values(model.to_record())
    assert not holds_values(model._copy_to_save().to_record())


def test_a_row_that_waits_elsewhere_is_learned_as_one_that_waits_here():
    here, there = folklearn.Model(), folklearn.Model()
    late = []
    for t, (x, y) in enumerate(rows(120)):
        p, number = here.ask(x)
        given = there.predict_proba_one(x)
        assert given == p
        asked = PendingPrediction(
            x, np.array(list(given.values())), there.unseen_probability, there.sets.thresholds
        )
        late.append((number, asked, y))
        if t % 5 == 4:
            for number, asked, label in reversed(late):
                here.tell(number, label)
                there.tell(asked, label)
            late = []
    assert here.metrics.loss == there.metrics.loss
    records = here.to_record(), there.to_record()
    for record in records:
        record.config.pop("pending")
        record.config.pop("n_asked")
    assert records[0].digest == records[1].digest


def test_a_record_as_bytes():
    model = folklearn.Model()
    for x, y in rows(30):
        model.learn_one(x, y)
    record = model.to_record()
    content = serialization.as_bytes(record)
    assert serialization.of_bytes(content).digest == record.digest
    with pytest.raises(folklearn.errors.StateFileError):
        serialization.of_bytes(content[:-1])


def test_saving_what_predicts_leaves_the_model_as_it_is(tmp_path):
    """Rows that were learned one by one are not counted twice."""
    model, other = folklearn.Model(terms="none"), folklearn.Model(terms="none")
    for x, y in rows(50):
        model.learn_one(x, y)
        other.learn_one(x, y)
        model.save(tmp_path / "small.folk", inference=True)
    assert model.to_record().digest == other.to_record().digest
