"""A model that is watched."""

import numpy as np
import pytest

import folklearn
from folklearn import Model
from folklearn.errors import InvalidInputError


def rows_of(rng, n_rows=3000, change=2000):
    """Rows and labels; after the change, labels are drawn by lot."""
    X = rng.normal(size=(n_rows, 2))
    labels = np.where(X[:, 0] + 0.2 * rng.normal(size=n_rows) > 0, "up", "down")
    lot = rng.choice(["up", "down"], size=n_rows)
    labels = np.where(np.arange(n_rows) < change, labels, lot).tolist()
    return [{"a": a, "b": b} for a, b in X.tolist()], labels


def learned(way, rows, labels):
    model, heard = Model("ogd"), []
    monitor = model.monitor(heard.append)
    if way == "one by one":
        for x, y in zip(rows, labels, strict=True):
            model.learn_one(x, y)
    elif way == "told later":
        for x, y in zip(rows, labels, strict=True):
            model.tell(model.ask(x)[1], y)
    elif way == "in blocks":
        for start in range(0, len(rows), 500):
            model.learn_many(rows[start : start + 500], labels[start : start + 500])
    else:
        model.run(({**x, "y": y} for x, y in zip(rows, labels, strict=True)), target="y")
    assert monitor.alarms == heard
    return monitor


def test_every_way_of_learning_is_watched(rng):
    rows, labels = rows_of(rng)
    found = [learned(way, rows, labels) for way in ("one by one", "told later", "in blocks", "run")]
    (first,) = found[0].alarms
    assert 1900 <= first.since <= 2100
    assert 2000 < first.row < 2300
    for monitor in found[1:]:
        np.testing.assert_allclose(monitor.alarms, [first], rtol=1e-6)
        assert monitor.n_rows == 3000


def test_a_sparse_row_and_a_soft_label_are_watched():
    model = Model()
    monitor = model.monitor()
    model.learn_one({"text": "a row of several words, which are learned one by one"}, "x")
    model.learn_one({"text": "another row of several words that nobody has seen"}, "y")
    model.learn_one({"text": "and a third one, so that there are three"}, {"x": 0.5, "y": 0.5})
    assert monitor.n_rows == 3
    assert sum(monitor._waiting) == pytest.approx(model.metrics.loss)


def test_it_begins_when_it_is_asked_for(rng):
    rows, labels = rows_of(rng)
    model = Model("ogd")
    model.learn_many(rows[:1000], labels[:1000])
    monitor = model.monitor()
    model.learn_many(rows[1000:], labels[1000:])
    (alarm,) = monitor.alarms
    assert 1900 <= alarm.since <= 2100
    assert 2000 < alarm.row < 2300


def test_a_saved_model_goes_on_being_watched(rng, tmp_path):
    rows, labels = rows_of(rng)
    whole, halves, heard = Model("ogd"), Model("ogd"), []
    for model in (whole, halves):
        model.monitor(heard.append, alpha=0.05)
        model.learn_many(rows[:2010], labels[:2010])
    assert not heard
    halves.save(tmp_path / "m")
    halves = folklearn.load(tmp_path / "m")
    halves.learn_many(rows[2010:], labels[2010:])
    assert not heard  # a file holds no function
    assert halves.monitor(heard.append, alpha=0.05).alarms
    whole.learn_many(rows[2010:], labels[2010:])
    assert len(heard) == 1
    whole.save(tmp_path / "whole")
    halves.save(tmp_path / "halves")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "halves").read_bytes()


def test_other_settings_begin_anew():
    model = Model("ogd")
    first = model.monitor(alpha=0.05)
    assert model.monitor() is first
    assert model.monitor(alpha=0.05) is first
    assert model.monitor(alpha=0.01) is not first


def test_an_alert_is_a_function():
    model = Model()
    with pytest.raises(InvalidInputError, match="alert must be a function of an alarm, got 3"):
        model.monitor(3)
    assert model.monitor().alert is None


def test_a_model_that_nobody_watches_has_none(tmp_path):
    model = Model("ogd")
    model.learn_one({"a": 1.0}, "x")
    assert "monitor" not in model.to_record().config


def test_what_is_forgotten_is_watched_from_the_start(rng):
    rows, labels = rows_of(rng)
    model = Model("ogd")
    monitor = model.monitor()
    model.learn_many(rows, labels)
    model._forget()
    assert monitor.state()["rows"] == 0
    assert not monitor.alarms
    model.learn_many(rows[:100], labels[:100])
    assert monitor.n_rows == 100


def test_a_row_is_told_once_even_if_its_alert_fails(rng):
    """The alert comes last, when the model is whole."""

    class NoLineError(Exception):
        pass

    def fail(alarm):
        raise NoLineError

    rows, labels = rows_of(rng)
    model, n_failed = Model("ogd"), 0
    model.monitor(fail)
    for x, y in zip(rows, labels, strict=True):
        _, number = model.ask(x)
        try:
            model.tell(number, y)
        except NoLineError:
            n_failed += 1
            assert model.pending == {}
    assert n_failed == 1
    assert model.n_rounds == 3000
