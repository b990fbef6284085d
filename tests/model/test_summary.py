"""Reports of models, runs and predictions: whole pages from what is saved."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

import folklearn
from folklearn import Model
from folklearn.errors import InvalidInputError
from folklearn.metrics import Metrics
from folklearn.model.summary import ModelSummary, describe_drift, describe_problems, render_report
from tests.report.test_rendering import HOSTILE, Reader, check_is_safe_and_alone

SECTIONS = [
    "In short",
    "Loss over time",
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
    assert headings(own) == SECTIONS


@pytest.mark.filterwarnings("ignore:the saved model will do worse")
def test_rows_before_a_run_are_said_to_be_missing(rows):
    model = Model("folklore")
    model.run(rows[:400], "y")
    page = model.run(rows[400:], "y").report()
    assert "Of 400 rows learned before there is no record here." in page
    assert "Of 200 rows the average loss" in page


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
    assert np.isfinite(matrix.metrics.average_loss)
    assert headings(matrix.report()) == SECTIONS


def segments(losses, size=100):
    return [
        {"start": size * i, "stop": size * (i + 1), "loss": loss} for i, loss in enumerate(losses)
    ]


def of_class(**changes):
    record = {"n_rows": 100, "recall": 0.9, "calibration_error": 0.01}
    return SimpleNamespace(**record | changes)


def of_column(**changes):
    record = {"name": "age", "role": "number", "first": 0, "n_missing": 0, "n_outliers": 0}
    return SimpleNamespace(
        **record
        | {
            "n_categories": 0,
            "new_categories": (),
            "is_constant": False,
            "shift": None,
            "explained": 0.0,
        }
        | changes
    )


@pytest.mark.parametrize(
    ("late", "said"), [(0.5, "No drift"), (0.9, "become higher"), (0.2, "become lower")]
)
def test_drift_is_told_from_the_noise_of_segments(late, said):
    noise = 0.01 * np.tile([-1.0, 1.0], 32)
    losses = np.where(np.arange(64) < 56, 0.5, late) + noise
    assert said in describe_drift(segments(losses.tolist()))
    assert "In the last 800 rows" in describe_drift(segments(losses.tolist()))


def test_a_bad_beginning_is_no_drift():
    assert "No drift" in describe_drift(segments([3.0] * 16 + [0.5] * 48))
    assert "too few rows" in describe_drift(segments([0.5] * 20))
    assert "too few rows" in describe_drift([])


def test_accuracy_and_loss_are_compared_with_guessing():
    P, y = np.tile([0.9, 0.1], (1000, 1)), np.arange(1000) % 2
    facts = ModelSummary.of_predictions("ab", P, y)
    assert facts.accuracy == (
        "About 50 % of all rows were predicted right; always predicting 'a' would have been right "
        "for about 50 %."
    )
    assert "Of 1,000 rows the average loss was 1.204 nats" in facts.loss
    assert "would have lost 0.693." in facts.loss
    one = ModelSummary.of_predictions("ab", P[:5], 0 * y[:5])
    assert "too few rows" in one.accuracy
    assert "would have" not in one.loss


def test_attention_names_what_is_wrong_and_nothing_else():
    assert describe_problems([("a", of_class()), ("b", of_class())], [of_column()], 100) == []
    found = describe_problems(
        [
            ("a", of_class(recall=0.2)),
            ("b", of_class(calibration_error=0.3, recall=math.nan)),
        ],
        [
            of_column(n_missing=50),
            of_column(name="late", first=50, n_missing=50),
            of_column(name="far", n_outliers=2),
            of_column(name="new", new_categories=("x", "y")),
            of_column(name="none", first=None, n_missing=100),
        ],
        100,
    )
    assert found == [
        "Of 100 rows of class a only 20 % were found.",
        "Probabilities of class b are off by 30 % on average.",
        "Column age is empty in 50 % of the rows.",
        "Column far has 2 outliers.",
        "Column new had 2 values that came late.",
        "Column none never had a value.",
    ]


def test_what_is_missing_is_a_sentence():
    page = render_report("nothing", ModelSummary((), Metrics(), ()))
    assert "<img" not in page
    assert headings(page) == SECTIONS
    for sentence in (
        "No rows were recorded.",
        "Nothing was recorded by class.",
        "there are too many classes.",
        "Calibration was not recorded.",
        "There are no weights yet.",
        "What the columns held was not recorded.",
        "Nothing stands out.",
    ):
        assert sentence in page


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_class_or_a_column_becomes_a_tag(name, rng):
    model = Model("folklore", classes=[name, "b"], roles={name: "category"})
    rows = [{name: name if t % 2 else "c", "n": float(t % 3)} for t in range(90)]
    model.learn_many(rows, [name if t % 3 else "b" for t in range(90)])
    page = model.report(title=name)
    reader = check_is_safe_and_alone(page)
    assert re.findall(r"<h(\d)", page) == ["1", *"2" * len(SECTIONS)]
    alts = [value for key, value in reader.attributes if key == "alt"]
    assert len(alts) == 5
    assert all(len(alt) > 10 for alt in alts)


def test_the_table_of_segments_says_what_the_figure_shows(rows):
    model = Model("folklore", windows=True)
    model.run(rows, "y")
    page = model.report()
    assert "<summary>The same as a table</summary>" in page
    segment = model.metrics.segments[1]
    loss = f"{segment.loss / segment.weight:.3f}"
    assert f'<td>32 to 64</td><td class="n">{loss}</td>' in page
    assert "Hatched is a proven lower bound" in page
    quiet = Model("folklore")
    quiet.run(rows, "y")
    assert "a model made with windows=True keeps them" in quiet.report()


def test_bounds_stay_true_when_they_are_rounded(rows):
    model = Model("folklore", windows=True)
    model.run(rows, "y")
    certificate = model.certificate()
    row = rf"<td>{re.escape(certificate.bound_name)}</td><td class=\"n\">(\S+)</td>"
    bound = float(re.search(row, model.report())[1])
    assert bound <= certificate.best_linear_at_least / model.metrics.weight < bound + 1e-3


def test_the_page_is_dark_where_the_reader_likes_it(rows):
    """The figures have no background, and one rule turns their colours."""
    model = Model("folklore")
    model.run(rows, "y")
    page = model.report()
    assert "@media screen and (prefers-color-scheme:dark)" in page
    assert "main.fl img{filter:invert(1) hue-rotate(180deg)}" in page
