"""`folklearn run`: what it learns is what the library learns, and what it says is true."""

import csv
import io
import math
import re

import numpy as np
import pytest

from folklearn import Folklore, load
from folklearn.cli import learners
from folklearn.learners.auto import Auto
from folklearn.model.scaler import OnlineScaler
from tests.cli.conftest import KINDS


def read_predictions(text):
    header, *rows = csv.reader(io.StringIO(text))
    labels = [row[0] for row in rows], [row[1] for row in rows]
    return header, *labels, np.array([[float(cell) for cell in row[2:]] for row in rows])


def table_rows(stderr):
    """The lines of the table as lists of cells."""
    lines = [line.split() for line in stderr.splitlines()]
    return [cells for cells in lines if len(cells) == 6 and cells[0].isdecimal()]


def test_predictions_are_those_of_the_library(folklearn, pets, as_arrays, tmp_path):
    X, y, labels = as_arrays
    outcome = folklearn(
        "run", pets, "--target", "kind", "--B", "4", "--predictions", tmp_path / "p.csv"
    )
    assert outcome.code == 0
    assert outcome.stdout == ""
    learner = Folklore(n_features=4, n_classes=3, B=4.0)
    expected = learner.run(OnlineScaler(n_features=3).learn_transform(X), y)
    header, true, predicted, P = read_predictions((tmp_path / "p.csv").read_text("utf-8"))
    assert header == ["label", "predicted", *(f"p({label})" for label in labels)]
    assert true == [labels[k] for k in y]
    assert predicted == [labels[k] for k in expected.argmax(axis=1)]
    np.testing.assert_allclose(P, expected, rtol=0, atol=1e-9)


def test_the_table_tells_the_losses_of_the_library(folklearn, pets, as_arrays):
    X, y, _ = as_arrays
    outcome = folklearn("run", pets, "--target", "kind", "--learner", "folklore")
    rows = table_rows(outcome.stderr)
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    learner = Folklore(n_features=4, n_classes=3)
    X = OnlineScaler(n_features=3).learn_transform(X)
    P, last, total = [], 0, 0.0
    for row in rows:
        n = int(row[0])
        P.append(learner.run(X[last:n], y[last:n]))
        certificate = learner.certificate()
        assert float(row[1]) == pytest.approx((certificate.loss - total) / (n - last), abs=6e-5)
        assert float(row[2]) == pytest.approx(certificate.loss / n, abs=6e-5)
        wrong = np.mean(np.vstack(P).argmax(axis=1) != y[:n])
        assert float(row[3].rstrip("%")) == pytest.approx(100 * wrong, abs=6e-3)
        assert float(row[4]) == pytest.approx(certificate.regret_bound / n, abs=6e-5)
        last, total = n, certificate.loss


def test_options_reach_the_learner_and_are_echoed(folklearn, pets, tmp_path):
    settings = ["--B", "3", "--R", "2", "--lam", "0.7", "--gamma", "0.01"]
    outcome = folklearn("run", pets, "--target", "kind", *settings, "--save", tmp_path / "m")
    learner = load(tmp_path / "m").learner
    assert (learner.B, learner.R, learner.lam, learner.gamma) == (3.0, 2.0, 0.7, 0.01)
    chosen = "Folklore, B=3, R=2, lam=0.7, gamma=0.01 (for its options; without them, auto)"
    assert chosen in outcome.stderr


def test_names_are_shown_as_they_are(folklearn, pets):
    stderr = folklearn("run", pets, "--target", "kind").stderr
    assert "3 in column kind: " in stderr
    assert "[bold]cat" in stderr
    assert "犬" in stderr


def test_the_digits_need_no_file(folklearn):
    outcome = folklearn("run", "--learner", "folklore")
    assert outcome.code == 0
    assert "learning" not in outcome.stderr  # no bar, this is not a terminal
    rows = table_rows(outcome.stderr)
    assert rows[-1][0] == "1797"
    assert float(rows[-1][2]) < 0.5
    assert re.search(
        r"Certificate: no linear model of these 64 scaled features and a constant with row norms "
        r"at most 10 could have had an average log loss below 0\.\d+ in hindsight",
        outcome.stderr,
    )


def test_a_short_run_admits_that_nothing_is_excluded_yet(folklearn, write_csv, rows):
    path = write_csv("short.csv", rows[:4])
    assert "does not yet exclude a perfect linear model of these 3 scaled features and" in (
        folklearn("run", path, "--target", "kind").stderr
    )


def test_a_gamma_that_is_too_large_certifies_nothing(folklearn, pets):
    stderr = folklearn("run", pets, "--target", "kind", "--gamma", "0.5").stderr
    assert "Nothing is certified: gamma=0.5 was above the valid constant" in stderr
    assert {row[4] for row in table_rows(stderr)} == {"none"}


def test_quiet_says_nothing(folklearn, pets, tmp_path):
    outcome = folklearn("run", pets, "--target", "kind", "--quiet", "--save", tmp_path / "m")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")
    assert (tmp_path / "m").exists()


def test_predictions_to_standard_output(folklearn, pets, tmp_path):
    folklearn("run", pets, "--target", "kind", "-p", tmp_path / "p.csv")
    outcome = folklearn("run", pets, "--target", "kind", "-p", "-")
    assert outcome.stdout == (tmp_path / "p.csv").read_text("utf-8")


def test_a_memory_forgets_and_certifies_nothing(folklearn, pets, tmp_path):
    outcome = folklearn("run", pets, "--target", "kind", "--memory", "50", "-f", tmp_path / "m")
    assert load(tmp_path / "m").learner.memory == 50
    assert "learner   Folklore, B=10, R=1, lam=0.2, memory=50, gamma=" in outcome.stderr
    assert "Nothing is certified: a learner that forgets (memory=50)" in outcome.stderr


def test_save_and_load_equal_one_uninterrupted_run(
    folklearn, pets, write_csv, rows, columns, tmp_path
):
    """Cut at a stop of the run (round 128); the second part has its columns in another order."""
    first = write_csv("first.csv", rows[:128])
    order = [3, 1, 0, 2]
    names = [columns[i] for i in order]
    second = write_csv("second.csv", [[row[i] for i in order] for row in rows[128:]], names)
    whole = folklearn("run", pets, "--target", "kind", "-p", "-", "--save", tmp_path / "whole")
    start = folklearn("run", first, "--target", "kind", "-p", "-", "--save", tmp_path / "part")
    end = folklearn(
        "run", second, "--load", tmp_path / "part", "-p", "-", "--save", tmp_path / "part"
    )
    assert end.code == 0
    assert start.stdout + end.stdout.split("\n", 1)[1] == whole.stdout
    assert (tmp_path / "part").read_bytes() == (tmp_path / "whole").read_bytes()
    for last_row in zip(table_rows(end.stderr), table_rows(whole.stderr)[-2:], strict=True):
        assert last_row[0][:5] == last_row[1][:5]
    assert "after 128 rounds" in end.stderr


def test_a_cut_anywhere_else_agrees_closely(folklearn, pets, write_csv, rows, tmp_path):
    first, second = write_csv("first.csv", rows[:101]), write_csv("second.csv", rows[101:])
    folklearn("run", first, "--target", "kind", "--save", tmp_path / "m")
    end = folklearn("run", second, "--target", "kind", "--load", tmp_path / "m", "-p", "-")
    whole = folklearn("run", pets, "--target", "kind", "-p", "-")
    np.testing.assert_allclose(
        read_predictions(end.stdout)[3], read_predictions(whole.stdout)[3][101:], atol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "magic"),
    [("out.png", b"\x89PNG\r\n\x1a\n"), ("out.PDF", b"%PDF"), ("o.svg", b"<?xml")],
)
def test_plots(folklearn, pets, tmp_path, name, magic):
    outcome = folklearn("run", pets, "--target", "kind", "--plot", tmp_path / name)
    assert outcome.code == 0
    assert (tmp_path / name).read_bytes().startswith(magic)


@pytest.mark.parametrize("settings", [["--gamma", "0.5"], []], ids=["no bound", "bounds"])
def test_a_plot_of_very_few_rounds(folklearn, write_csv, rows, tmp_path, settings):
    """The name of the file would be a formula, in a script without glyphs, if drawn naively."""
    one_of_each = {row[-1]: row for row in rows}.values()
    path = write_csv("犬 $x_$.csv", one_of_each)
    plot = tmp_path / "out.png"
    assert folklearn("run", path, "--target", "kind", "--plot", plot, *settings).code == 0
    assert plot.stat().st_size > 10_000


def test_the_plot_draws_what_was_measured(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from folklearn.cli.moments import Moment
    from folklearn.cli.plot import draw

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    moments = [Moment(0, 0.0, 9.0, 0), Moment(10, 8.0, 9.0, 2), Moment(20, 12.0, 10.0, 3)]
    draw(moments, 5.0, "title", tmp_path / "unused", ".png")
    top, bottom = drawn[0].axes
    lines = {line.get_label().split(":")[0]: line.get_xydata().tolist() for line in top.lines}
    assert lines["learner, each example predicted before it is learned"] == [[10, 0.8], [20, 0.6]]
    assert lines["certified"] == [[20, 0.1]]
    assert any("of these scaled features" in line.get_label() for line in top.lines)
    assert (top.get_legend(), bottom.get_legend(), len(drawn[0].legends)) == (None, None, 1)
    assert bottom.lines[0].get_xydata().tolist() == [[10, 0.9], [20, 0.5]]
    assert (top.get_title(), bottom.get_xlabel(), top.get_xscale()) == ("title", "rounds", "linear")
    draw([Moment(1, 1.0, None, 0), Moment(10, 8.0, None, 2)], None, "title", tmp_path, ".png")
    assert drawn[1].axes[1].get_xscale() == "log"
    assert drawn[1].axes[1].texts[0].get_text() == "nothing is certified"


@pytest.fixture
def two_kinds(write_csv, rows):
    """The pets without the dogs: what every learner can learn."""
    return write_csv("two.csv", [row for row in rows if row[-1] != KINDS[1]])


@pytest.mark.parametrize("name", learners.NAMES)
def test_every_learner_runs_saves_and_goes_on(folklearn, two_kinds, tmp_path, name):
    arguments = ["run", two_kinds, "--target", "kind"]
    first = folklearn(*arguments, "--learner", name, "-f", tmp_path / "m", "-p", tmp_path / "p")
    assert first.code == 0
    model = load(tmp_path / "m")
    P = read_predictions((tmp_path / "p").read_text("utf-8"))[3]
    assert len(P) == model.n_rounds
    assert table_rows(first.stderr)[-1][2] == f"{model.loss / model.n_rounds:.4f}"
    certificate = model.certificate()
    last_cell = table_rows(first.stderr)[-1][4]
    if name == "ogd":
        assert math.isnan(certificate.loss)
    else:
        assert certificate.loss == pytest.approx(model.loss, rel=1e-9)
    assert (last_cell == "none") == (not certificate.valid)
    if not certificate.valid:
        assert f"Nothing is certified: {certificate.reason}." in " ".join(first.stderr.split())
    again = folklearn(*arguments, "-i", tmp_path / "m", "-f", tmp_path / "m", "-p", "-")
    assert again.code == 0
    assert f"after {len(P)} rounds" in again.stderr
    assert load(tmp_path / "m").n_rounds == 2 * len(P)
    assert table_rows(again.stderr)[-1][0] == str(2 * len(P))


def test_the_default_is_auto_and_tells_of_its_experts(folklearn, pets, tmp_path):
    outcome = folklearn("run", pets, "--target", "kind", "--save", tmp_path / "m")
    model = load(tmp_path / "m").learner
    assert isinstance(model, Auto)
    assert "learner   auto, R=1: second order, all pairs of classes\n" in outcome.stderr
    found = re.search(
        r"Leading expert: (.*) \(\d+% of the weight\)\. (\d+) experts are left: (.*)\.",
        outcome.stderr,
    )
    assert int(found[2]) == len(model.experts)
    assert found[1] in found[3]
    assert "with row norms at most 10" in outcome.stderr


def test_the_norm_of_features_leaves_the_default(folklearn, pets):
    stderr = folklearn("run", pets, "--target", "kind", "--R", "2").stderr
    assert "auto, R=2: second order" in stderr


def test_one_column_is_singular(folklearn, write_csv, rows):
    path = write_csv("one.csv", [row[2:] for row in rows[:20]], ["age", "kind"])
    stderr = folklearn("run", path, "--target", "kind").stderr
    assert "features  1 column, scaled on line, and a constant" in stderr
    assert "these 1 scaled feature and a constant" in stderr


def test_a_plot_without_a_certificate(folklearn, pets, tmp_path):
    arguments = ["run", pets, "--target", "kind", "--learner", "ogd", "--plot", tmp_path / "o.png"]
    assert folklearn(*arguments).code == 0
    assert (tmp_path / "o.png").stat().st_size > 10_000
