"""Words need a learner that takes wide rows; other columns beside them keep their own."""

import math
import random
import warnings

import numpy as np
import pytest

import folklearn
from folklearn.errors import DataWarning, InvalidInputError, StateFileError
from folklearn.model.pipeline import OnlinePipeline
from folklearn.serialization import Record

CLASSES = ("no", "yes")


def tickets(seed, n, *, text=0.5, late=False):
    """Rows of a number, a category and a note, each of which tells of the class."""
    rng, rows, labels = random.Random(seed), [], []
    for t in range(n):
        k = rng.randrange(2)
        told = k if rng.random() < text else rng.randrange(2)
        words = [rng.choice(("card", "app")), f"word{told}", f"filler{rng.randrange(20)}"]
        row = {"x": rng.gauss(k, 1.0), "kind": "pq"[rng.random() < 0.3 + 0.3 * k]}
        row["note"] = " ".join(rng.sample(words, 3))
        if t % 11 == 5:
            row["x"] = None
        if t % 13 == 7:
            del row["note"]
        if late and t > 120:
            row |= {"z": rng.gauss(k, 1.0), "reply": f"never said {k}"}
        if late and t > 150 and t % 5 == 0:
            row["kind"], k = "rare", 2
        rows.append(row)
        labels.append((*CLASSES, "late")[k])
    return rows, labels


def without(rows, *names):
    return [{name: row[name] for name in row if name not in names} for row in rows]


def learned(rows, labels, cuts=(), **settings):
    """Return a model that learned rows in portions, saved and loaded between them."""
    model = folklearn.Model(classes=CLASSES, **settings)
    for start, stop in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        if start:
            model = folklearn.load(model.to_bytes())
        model.learn_many(rows[start:stop], labels[start:stop])
    return model


def test_a_learner_that_takes_no_words_says_so_at_once():
    with pytest.raises(InvalidInputError, match="'ogd' takes no words and no wide rows"):
        OnlinePipeline("ogd", n_features=1, n_classes=2, sparse=True)


def test_columns_beside_words_are_learned_as_if_there_were_none():
    rows, labels = tickets(0, 700)
    beside = learned(rows, labels).pipeline.dense
    alone = learned(without(rows, "note"), labels).pipeline
    assert beside.learner.n_terms > 0
    assert beside.to_bytes() == alone.to_bytes()
    words = learned(without(rows, "x", "kind"), labels)
    assert words.pipeline.dense is None  # nothing beside them: as wide rows always were
    assert type(words.pipeline.learner) is folklearn.SparseSgd


def test_neither_columns_nor_text_lose_by_the_other():
    for seed, text in [(1, 0.6), (2, 0.0), (3, 1.0)]:
        rows, labels = tickets(seed, 900, text=text)
        loss = learned(rows, labels).metrics.loss
        columns = learned(without(rows, "note"), labels).metrics.loss
        alone = learned(without(rows, "x", "kind"), labels).metrics.loss
        assert loss <= columns + math.log(20) + math.log(900)  # the theorem of the mixture
        assert loss <= min(columns, alone) + 0.01 * 900
        assert text in (0.0, 1.0) or loss < min(columns, alone) - 0.02 * 900


@pytest.mark.parametrize("cuts", [(64, 65, 80), (250, 257, 300), (10, 100, 280)])
def test_portions_saved_and_loaded_are_the_model_that_went_on(cuts):
    rows, labels = tickets(4, 400)
    whole, parts = learned(rows, labels), learned(rows, labels, cuts)
    assert parts.pipeline.to_bytes() == whole.pipeline.to_bytes()
    assert parts.pipeline.holdout.losses == whole.pipeline.holdout.losses
    ahead = whole.predict_proba(rows[:50])
    assert (folklearn.load(parts.to_bytes()).predict_proba(rows[:50]) == ahead).all()
    assert (whole.copy_to_predict().predict_next(rows[:9]) == whole.predict_next(rows[:9])).all()


def test_a_stream_row_by_row_brings_columns_categories_and_classes():
    rows, labels = tickets(5, 330, late=True)
    straight, stopped = (folklearn.Model() for _ in range(2))
    for t, (row, label) in enumerate(zip(rows, labels, strict=True)):
        straight.learn_one(row, label)
        stopped.learn_one(row, label)
        if t in (0, 3, 70, 119, 125, 156, 300):  # within stripes of the hold-out and between
            stopped = folklearn.load(stopped.to_bytes())
    assert stopped.to_bytes() == straight.to_bytes()
    assert straight.roles == {
        "kind": "category", "note": "words", "x": "number", "reply": "words", "z": "number"
    }  # fmt: skip
    one = straight.predict_proba_one(rows[-1])
    assert list(one.values()) == straight.predict_next(rows[-1:])[0].tolist()
    before = straight.to_bytes()
    with pytest.raises(InvalidInputError, match="'x'"):
        straight.learn_one(rows[0] | {"x": 1e200, "kind": "new"}, "yes")
    assert straight.to_bytes() == before


def test_a_fit_is_that_of_the_columns_with_words_on_top():
    rows, labels = tickets(6, 900)
    tables = [row | {"y": label} for row, label in zip(rows, labels, strict=True)]
    fits = [without(tables, *names) for names in ((), ("note",), ("x", "kind"))]
    losses = []
    for table in fits:
        model = folklearn.Model().fit(table[:600], target="y", exact=False)
        P = model.predict_proba(without(table[600:], "y"))
        places = [model.labels.index(label) for label in labels[600:]]
        losses.append(-np.log(P[np.arange(300), places]).mean())
        again = folklearn.load(model.to_bytes())
        assert (again.predict_proba(without(table[600:], "y")) == P).all()
    assert losses[0] < min(losses[1:]) - 0.02


def test_a_damaged_state_of_words_and_columns_is_refused():
    record = learned(*tickets(7, 80)).pipeline.to_record()
    record.config["scaler"]["config"]["dense"]["config"]["n_rounds"] = 79
    with pytest.raises(StateFileError, match="do not belong together"):
        OnlinePipeline.from_record(Record(record.kind, record.config, record.arrays))


def test_a_text_of_few_sentences_is_a_category_and_is_said_to_be():
    said = ["paid in full", "paid too late", "not yet paid", "paid by somebody else"]
    rows = [{"x": float(t % 7), "note": said[t % 4], "y": "ab"[t % 4 < 2]} for t in range(80)]
    with pytest.warns(DataWarning, match="'note' has 4 different texts in 80 rows: each is taken"):
        run = folklearn.Model().run(rows, target="y")
    assert run.model.roles["note"] == "category"
    asked = folklearn.Model(roles={"note": "words"})
    asked.run(rows, target="y")
    assert asked.roles["note"] == "words"


def test_sentences_in_a_column_that_began_with_a_word_are_told_once():
    rng, model = random.Random(0), folklearn.Model()
    rows = [{"note": "hello"}] + [
        {"note": " ".join(rng.sample([f"w{i}" for i in range(30)], 4))} for _ in range(200)
    ]
    asked = folklearn.Model(roles={"note": "category"})
    told = []
    for t, row in enumerate(rows):
        asked.learn_one(row, "ab"[t % 2])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.learn_one(row, "ab"[t % 2])
        told += [str(warning.message) for warning in caught]
    assert told == [
        "column 'note' was taken for a category by its first value, and its texts turn out to be "
        "sentences: to learn their words: roles={'note': 'words'}"
    ]
