"""A sweep is the runs that one would make one after the other."""

import math
from functools import partial

import numpy as np
import pytest

from folklearn import Model, Ogd, scale, synthetic
from folklearn.errors import InvalidInputError
from folklearn.evaluate.progressive import progressive
from folklearn.learners import catalogue
from tests.scale import tasks

LEARNERS = {"auto": {}, "folklore": {"B": [1.0, 10.0]}, "ogd": {}}


@pytest.fixture
def rows(seed):
    return synthetic.stochastic(seed, 400, d=3, K=3)


@pytest.fixture
def files(rows, tmp_path):
    X, y = rows
    paths = []
    for part in np.array_split(np.arange(len(y)), 2):
        cells = zip(*X[part].T.tolist(), y[part], strict=True)
        lines = [f"{a!r},{b!r},class{k}" for a, b, _, k in cells]
        paths.append(tmp_path / f"{part[0]}.csv")
        paths[-1].write_text("\n".join(["a,b,kind", *lines]) + "\n")
    return paths


def test_each_row_is_a_run_of_its_own(rows):
    X, y = rows
    swept = scale.sweep(LEARNERS, X, y)
    assert [row.learner for row in swept.rows] == ["auto", "folklore", "folklore", "ogd"]
    assert [row.settings for row in swept.rows] == [{}, {"B": 1.0}, {"B": 10.0}, {}]
    for row in swept.rows:
        learner = catalogue.make(row.learner, 3, 3, row.settings)
        scores = progressive(learner, X, y)
        assert (row.n_rounds, row.data, row.order) == (400, "", None)
        assert (row.loss, row.error) == (scores.log_loss, scores.error_rate)
        assert row.regret_bound == learner.certificate().regret_bound / 400


def test_processes_change_nothing(rows):
    one = scale.sweep(LEARNERS, *rows, n_orders=2, seed=5)
    two = scale.sweep(LEARNERS, *rows, n_orders=2, seed=5, n_jobs=2)
    assert one == two


def test_all_learners_see_the_same_random_orders(rows):
    X, y = rows
    swept = scale.sweep(["auto", "ogd"], X, y, n_orders=3)
    orders = [row.order for row in swept.rows]
    assert orders[:3] == orders[3:]
    assert len(set(orders)) == 3
    order = np.random.default_rng(orders[4]).permutation(400)
    scores = progressive(Ogd(n_features=3, n_classes=3), X[order], y[order])
    assert swept.rows[4].loss == scores.log_loss
    assert scale.sweep("ogd", X, y, n_orders=3, seed=1).rows[1].loss != scores.log_loss


def test_means_and_the_best_of_them(rows):
    swept = scale.sweep({"ogd": {"B": [0.1, 10.0]}, "auto": {}}, *rows, n_orders=2)
    assert [mean.loss for mean in swept.means] == sorted(mean.loss for mean in swept.means)
    assert swept.best == swept.means[0]
    own = [row for row in swept.rows if row.learner == "auto"]
    (mean,) = [mean for mean in swept.means if mean.learner == "auto"]
    assert mean.n_runs == 2
    assert mean.loss == math.fsum(row.loss for row in own) / 2
    assert repr(swept).startswith("Sweep of 6 runs; best: ")
    assert "<td>B=0.1</td>" in swept._repr_html_()


def test_factories(rows):
    swept = scale.sweep({tasks.steep: {"B": [2.0]}, partial(tasks.steep, B=2.0): {}}, *rows)
    row, same = swept.rows
    assert row.learner == same.learner == "steep"
    assert row.loss == same.loss == progressive(tasks.steep(3, 3, B=2.0), *rows).log_loss


def test_files(files):
    swept = scale.sweep({"auto": {}, "folklore": {"B": [2.0]}}, files, target="kind", n_jobs=2)
    assert [row.data for row in swept.rows] == 2 * [str(file) for file in files]
    run = Model("folklore", B=2.0).run(str(files[1]), "kind")
    row = swept.rows[3]
    assert (row.n_rounds, row.loss, row.error) == (200, run.loss, run.error)
    assert row.regret_bound == run.certificate.regret_bound / 200
    (one,) = scale.sweep("auto", files[0], target="kind", n_orders=1).rows
    assert one.loss == Model().run(str(files[0]), "kind", shuffle=True, seed=one.order).loss


def test_it_becomes_a_data_frame(rows):
    frame = pytest.importorskip("pandas").DataFrame(scale.sweep("ogd", *rows).rows)
    assert list(frame.columns) == list(scale.Swept._fields)


@pytest.mark.parametrize(
    ("learners", "options", "sentence"),
    [
        ("sgd", {}, "there is no learner 'sgd'"),
        ({"ogd": {"gamma": [1.0]}}, {}, "ogd does not take the setting 'gamma'"),
        ("ogd", {"n_orders": -1}, "n_orders must be"),
        ("ogd", {"target": "kind"}, "target is about files, and the rows are arrays"),
        ([], {}, "a sweep needs a learner and a file at least"),
    ],
)
def test_refusals(rows, learners, options, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        scale.sweep(learners, *rows, **options)


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        ([1.0, 2.0], [0, 1], "X has shape .2,.; expected .rows, features."),
        ([[1.0], [2.0]], ["a", "b"], "labels y must be integers"),
        ([[1.0], [2.0]], [0], "expected one label per row of X"),
        ([[1.0], [2.0]], [0, -1], "label y.1. is -1"),
    ],
)
def test_rows_that_are_none_are_refused_before_anything_runs(X, y, sentence):
    with pytest.raises(InvalidInputError, match=sentence) as caught:
        scale.sweep("ogd", X, y)
    assert not hasattr(caught.value, "__notes__")


def test_lists_are_rows(rows):
    X, y = rows
    lists = X.tolist(), y.tolist()
    assert scale.sweep("ogd", *lists, n_orders=1).rows == scale.sweep("ogd", *rows, n_orders=1).rows


def test_files_need_names(files):
    with pytest.raises(InvalidInputError, match="steep is no name, and files need learners by"):
        scale.sweep(tasks.steep, files, target="kind")
