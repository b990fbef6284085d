"""Prediction sets of a model: those that it issued are those that count."""

import numpy as np
import pytest

import folklearn
from folklearn import Model
from folklearn.errors import InvalidInputError
from tests.reference import prediction_sets as reference

COVERAGE = 0.7


def rows_of(rng, n_rows=400):
    """Rows and labels; the third class comes late."""
    X = rng.normal(size=(n_rows, 2))
    scores = X @ rng.normal(size=(2, 3)) + rng.gumbel(size=(n_rows, 3))
    scores[: n_rows // 4, 2] = -np.inf
    rows = [{"a": a, "b": b} for a, b in X.tolist()]
    return rows, [f"class {k}" for k in scores.argmax(axis=1)]


def score_of(model, row, label):
    unseen = model.unseen_probability
    p = {name: p * (1.0 - unseen) for name, p in model.predict_proba_one(row).items()}
    return min(max(1.0 - p.get(label, unseen), 0.0), 1.0)


@pytest.mark.parametrize("name", ["ogd", "folklore"])
def test_every_way_of_learning_follows_the_probabilities_that_were_issued(name, rng):
    rows, labels = rows_of(rng)
    single, many, run, told = (Model(name, coverage=COVERAGE) for _ in range(4))
    scores = []
    for x, y in zip(rows, labels, strict=True):
        scores.append(score_of(single, x, y))
        single.learn_one(x, y)
        told.tell(told.ask(x)[1], y)
    many.learn_many(rows[:150], labels[:150])
    many = folklearn.load(many.to_bytes())
    many.learn_many(rows[150:], labels[150:])
    run.run([{**x, "y": y} for x, y in zip(rows, labels, strict=True)], target="y", one_pass=True)
    q, misses = reference.follow(scores, 1.0 - COVERAGE)
    for model in (single, many, run, told):
        assert model.sets.thresholds[0, 0] == pytest.approx(q[-1], abs=1e-9)
        (record,) = model.sets.records()
        assert (record.n_rows, record.n_misses) == (400, sum(misses))
    assert single.sets.to_bytes() == many.sets.to_bytes()


@pytest.mark.parametrize("by", ["all", "class"])
def test_late_labels_count_with_the_set_that_was_issued(by, rng):
    rows, labels = rows_of(rng)
    model, waiting, n_missed, n_otherwise = Model("ogd", coverage=0.7, coverage_by=by), [], 0, 0
    for t, (x, y) in enumerate(zip(rows, labels, strict=True)):
        issued = model.copy_to_predict()
        waiting.append((model.ask(x)[1], x, y, issued))
        if t % 20 == 19:
            for number, row, label, then in waiting:
                k = model.labels.index(label) if label in model.labels else len(model.labels)
                missed = []
                for sets in (then.sets.thresholds[0], model.sets.thresholds[0]):
                    q = 1.0 if by == "class" and k >= len(sets) else sets[k if by == "class" else 0]
                    missed.append(score_of(then, row, label) > q)
                n_missed, n_otherwise = n_missed + missed[0], n_otherwise + missed[1]
                model.tell(number, label)
            waiting = []
            model = folklearn.load(model.to_bytes())
    assert model.sets.records()[0].n_misses == n_missed != n_otherwise


def test_what_is_shown_has_the_most_probable_class_and_the_threshold_of_now(rng):
    rows, labels = rows_of(rng)
    model = Model("ogd", coverage=(0.2, 0.9))
    assert model.predict_set({"a": 1.0}) == ()
    model.learn_many(rows, labels)
    for coverage in (0.2, 0.9):
        q = model.sets.thresholds[model.sets.coverage.index(coverage), 0]
        for x in rows[:30]:
            inside = {y for y in model.labels if score_of(model, x, y) <= q}
            assert {*model.predict_set(x, coverage)} == inside | {model.predict_one(x)}
    table = model.predict_set(rows[:30])
    assert [chosen[0] for chosen in table] == model.predict(rows[:30])
    with pytest.raises(InvalidInputError, match=r"0.95 was not declared; declared: 0.2, 0.9\."):
        model.predict_set(rows[0], 0.95)


def test_a_soft_label_is_its_most_probable_class_and_weights_do_not_count(rng):
    rows, labels = rows_of(rng)
    hard, soft = Model("ogd", coverage=0.8), Model("ogd", coverage=0.8)
    for model in (hard, soft):
        model.learn_many(rows, labels)
    score = score_of(hard, rows[0], labels[0])
    rest = [y for y in hard.labels if y != labels[0]]
    hard.learn_one(rows[0], labels[0], weight=0.0)
    soft.learn_one(rows[0], {labels[0]: 0.6, rest[0]: 0.4})
    assert hard.sets.to_bytes() == soft.sets.to_bytes()
    assert hard.sets.records()[0].n_rows == 401
    assert 0.0 < score < 1.0


def test_no_coverage_no_sets_and_a_fit_begins_anew(rng):
    rows, labels = rows_of(rng, 100)
    model = Model("ogd", coverage=())
    model.learn_many(rows, labels)
    model.learn_one(rows[0], labels[0])
    assert model.sets.records() == []
    with pytest.raises(InvalidInputError, match="declared: none"):
        model.predict_set(rows[0])
    table = [{**x, "y": y} for x, y in zip(rows, labels, strict=True)]
    model = Model("ogd")
    for _ in range(2):
        assert model.fit(table, target="y").sets.records()[0].n_rows == 100
