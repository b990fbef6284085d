"""Reports of models, runs and predictions: whole pages from what is saved."""

import re

import numpy as np
import pytest

import folklearn
from folklearn import Model
from folklearn.errors import InvalidInputError
from tests.report.test_html import Reader

SECTIONS = [
    "In short",
    "Loss, piece by piece",
    "What could still be gained",
    "Drift",
    "Classes",
    "Confusion",
    "Calibration",
    "Columns and their weights",
    "The data",
]
SCRIPT = "<script>alert(1)</script>"


def headings(page):
    return re.findall(r"<h2>(.*?)</h2>", page)


@pytest.fixture
def rows(rng):
    found = []
    for t, v in enumerate(rng.normal(size=600).tolist()):
        label = SCRIPT if v + rng.logistic() > 0 else "plain"
        found.append({SCRIPT: v, "kind": SCRIPT if t % 3 else None, "y": label})
    return found


def test_a_saved_model_reports_as_the_one_that_was_saved(rows, tmp_path):
    model = Model("folklore")
    run = model.run(rows, "y")
    model.save(tmp_path / "model")
    page = folklearn.load(tmp_path / "model").report(tmp_path / "report.html")
    assert page == model.report()
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert headings(page) == SECTIONS
    assert "Lower bound: every fixed linear model of the columns" in page
    assert "Of 600 rows" in page
    assert "Column kind is empty in 33.2 % of the rows." in page
    assert "script" not in Reader(page).tags
    own = run.report(tmp_path / "run.html")
    assert headings(own) == [*SECTIONS, "Speed"]


def test_a_model_of_another_time_says_that_its_rows_were_not_recorded(rows):
    model = Model("folklore")
    model.run(rows, "y")
    model.metrics = type(model.metrics)()
    page = model.report()
    assert "Of 600 rows learned before there is no record here." in page
    assert headings(page) == SECTIONS


def test_nothing_learned_is_nothing_to_report():
    with pytest.raises(InvalidInputError, match="learned nothing yet"):
        Model().report()
    one = Model("folklore")
    one.learn_one({"a": 1.0}, "only")
    assert "Nothing is proven before there is a second class." in one.report()


def test_words_and_matrices_report_too(rng):
    words = Model(roles={"note": "words"})
    words.learn_many([{"note": f"word{t % 2} more"} for t in range(90)], [t % 2 for t in range(90)])
    assert "note" in words.report()
    matrix = Model("folklore")
    matrix.learn_many(rng.normal(size=(50, 2)), rng.integers(0, 2, 50))
    assert np.isfinite(matrix.average_loss)
    assert headings(matrix.report()) == SECTIONS
