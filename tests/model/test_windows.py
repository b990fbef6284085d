"""Floors of recent windows, while columns and classes come."""

import math

import folklearn
from folklearn import Model


def test_windows_follow_what_grows(tmp_path):
    """A row of one class, then a column and a class that are new: no row is lost."""
    model = Model("ogd", windows=True)
    model.learn_one({"a": 1.0}, "x")
    assert [window.n_rounds for window in model.windows()] == [1]
    model.learn_many([{"b": "red"}, {"a": 2.0}], ["y", "x"])
    for i in range(200):
        model.learn_one({"a": i % 2, "b": "red"}, "xy"[i % 2])
    model.save(tmp_path / "m")
    windows = folklearn.load(tmp_path / "m").windows()
    assert windows == model.windows()
    assert windows[-1].n_rounds == 203
    assert windows[0].n_rounds < 130


def test_windows_of_rows_that_come_in_blocks(rng, tmp_path):
    model = Model(windows=True, classes=["a", "b"])
    X = rng.normal(size=(300, 3))
    labels = ["ab"[int(x > 0)] for x in X[:, 0] + rng.normal(size=300)]
    model.learn_many(X[:50], labels[:50])
    model.save(tmp_path / "m")  # before the first stretch is full
    assert folklearn.load(tmp_path / "m").windows() == model.windows()
    model.learn_many(X[50:], labels[50:])
    whole = model.windows()[-1]
    assert (whole.start, whole.stop) == (0, 300)
    assert 0.0 < whole.lower_bound < whole.loss


def test_a_run_ends_with_what_is_proven(rng):
    """Also where no floors were kept on the way, so that the picture shows it."""
    x = rng.normal(size=512)  # the last row is a doubling, too
    rows = [{"x": v, "y": "ab"[int(v > 0)]} for v in x + rng.normal(size=512)]
    run = Model().run(rows, target="y")
    *before, last = run.checkpoints
    assert last.n_rounds == 512
    assert all(math.isnan(one.lower_bound) for one in before)
    assert last.lower_bound == run.certificate.best_linear_at_least / 512
