"""`folklearn audit`: the predictions of any model, certified or refused with a sentence."""

import csv
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from folklearn.evaluate.auditing import Certifier
from folklearn.evaluate.regression import logistic_regression
from folklearn.metrics.scores import score
from tests.cli.conftest import standardise
from tests.evaluate.peers import constant, river, vw

TARGET = ["--target", "kind"]


@pytest.fixture
def write_predictions(tmp_path):
    def write(P, names, rows=None, name="preds.csv"):
        path = tmp_path / name
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([names, *(rows if rows is not None else np.asarray(P).tolist())])
        return path

    return write


@pytest.fixture
def refused(folklearn):
    def call(*arguments):
        outcome = folklearn("audit", *arguments)
        assert outcome.code == 2
        assert outcome.stdout == ""
        assert outcome.stderr.startswith("folklearn: ")
        assert outcome.stderr.count("\n") == 1
        return outcome.stderr.removeprefix("folklearn: ").rstrip("\n")

    return call


def expected_certificate(X, y, P, K):
    watcher = Certifier(n_features=X.shape[1] + 1, n_classes=K, constant=0)
    watcher.observe_many(standardise(X), y, P)
    return watcher.certificate()


@pytest.mark.parametrize("peer", [constant, river, vw])
@pytest.mark.parametrize("form", ["{}", "p:{}"])
def test_predictions_of_any_model(folklearn, pets, as_arrays, write_predictions, peer, form):
    X, y, labels = as_arrays
    P = peer(standardise(X), y, 3)
    names = [form.format(label) for label in labels]
    outcome = folklearn("audit", pets, *TARGET, "-p", write_predictions(P, names))
    assert outcome.code == 0
    assert outcome.stdout == ""
    scores, certificate = score(P, y), expected_certificate(X, y, P, 3)
    assert "Audited 300 predictions in " in outcome.stderr
    assert f"average log loss {scores.log_loss:.4f} nats" in outcome.stderr
    assert f"error rate {scores.error_rate:.2%}" in outcome.stderr
    assert f"expected calibration error {scores.calibration_error:.4f}" in outcome.stderr
    assert (
        replace(certificate, models="the columns (numbers standardised by all rows)").in_words()
        in outcome.stderr
    )
    assert "counted as" not in outcome.stderr


def test_what_run_writes_can_be_audited(folklearn, pets, as_arrays, tmp_path):
    path = tmp_path / "p.csv"
    run = folklearn("run", pets, *TARGET, "--learner", "folklore", "-p", path)
    outcome = folklearn("audit", pets, *TARGET, "-p", path)
    assert outcome.code == 0
    average = re.search(r"average log loss ([0-9.]+), Brier score", run.stderr)[1]
    assert f"average log loss {average} nats" in outcome.stderr

    def least(text):
        return float(re.search(r"average log loss of at least ([0-9.]+) on these rows", text)[1])

    assert least(run.stderr) == pytest.approx(least(outcome.stderr), rel=1e-3)
    exact = folklearn("audit", pets, *TARGET, "-p", path, "--exact")
    X, y, _ = as_arrays
    fit = logistic_regression(standardise(X), y, n_classes=3, constant=0)
    best = (fit.loss + fit.penalty) / len(y)
    assert least(outcome.stderr) <= least(exact.stderr) <= best
    assert least(exact.stderr) == pytest.approx(best, rel=1e-3)  # of four digits
    passes = [line for line in exact.stderr.splitlines() if line.startswith("  pass ")]
    assert passes
    none_below = re.search(r"none below ([0-9.]+)", passes[-1])[1]
    assert float(none_below) == pytest.approx(best, rel=1e-5)


def test_threads_print_the_same(folklearn, refused, write_csv, write_predictions, rng):
    n = 40_000  # more than one thread has something to do
    x = rng.normal(size=n).round(3)
    coin = (x + rng.logistic(size=n) > 0).astype(int)
    path = write_csv("many.csv", zip(x, coin, strict=True), columns=("x", "coin"))
    given = write_predictions(np.full((n, 2), 0.5), ["0", "1"])
    words = path, "--target", "coin", "-p", given, "--exact"
    one, other = (
        folklearn("audit", *words, "--jobs", jobs).stderr.partition("Reading the rows again")[2]
        for jobs in (1, 2)
    )
    assert "pass 2" in one
    assert re.sub(r"in \d+\.\d\d s", "", one) == re.sub(r"in \d+\.\d\d s", "", other)
    assert refused(*words, "--jobs", "0").startswith("n_jobs must be a number of threads")


def test_a_pipe_is_stored(folklearn, pets, as_arrays, write_predictions, monkeypatch):
    path = write_predictions(np.full((300, 3), 1 / 3), as_arrays[2])
    stored = folklearn("audit", pets, *TARGET, "-p", path, "--exact")
    with open(pets, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        piped = folklearn("audit", "-", *TARGET, "-p", path, "--exact")
    assert piped.code == 0
    assert piped.stderr.splitlines()[-2:] == stored.stderr.splitlines()[-2:]


def test_its_own_file_of_another_table_is_noticed(folklearn, refused, write_csv, rows, tmp_path):
    path = tmp_path / "p.csv"
    folklearn("run", write_csv("a.csv", rows), *TARGET, "-p", path, "--quiet")
    outcome = folklearn("audit", write_csv("b.csv", rows[::-1]), *TARGET, "-p", path, "--quiet")
    assert outcome.code == 2
    assert "its rows are not those of this table, in order" in outcome.stderr


def test_predictions_that_no_linear_model_reaches(folklearn, write_csv, write_predictions, rng):
    rows = [[repr(rng.normal()), str(rng.integers(2))] for _ in range(500)]
    path = write_csv("coin.csv", rows, columns=("x", "coin"))
    P = [[0.95, 0.05] if row[1] == "0" else [0.05, 0.95] for row in rows]
    outcome = folklearn("audit", path, "--target", "coin", "-p", write_predictions(P, ["0", "1"]))
    assert "a lower loss than every such linear model with its penalty." in outcome.stderr


def test_columns_in_any_order_and_beside_others(folklearn, pets, as_arrays, write_predictions, rng):
    _, y, labels = as_arrays
    P = rng.dirichlet(np.ones(4), size=300)
    # The model knows a class that never occurs, and the file numbers its rows.
    names = ["row", *(f"p:{label}" for label in [*labels[::-1], "zebra"])]
    rows = [[t, *p] for t, p in enumerate(P.tolist())]
    outcome = folklearn("audit", pets, *TARGET, "-p", write_predictions(None, names, rows))
    known = [P[:, 2], P[:, 1], P[:, 0]]
    loss = -np.log(np.column_stack(known)[np.arange(300), y]).mean()
    assert f"average log loss {loss:.4f} nats" in outcome.stderr
    assert "predicted kind, 4 classes: " in outcome.stderr


def test_zero_and_rounded_probabilities_are_spoken_of(
    folklearn, pets, as_arrays, write_predictions
):
    _, y, labels = as_arrays
    P = np.full((300, 3), 0.333)
    P[12] = np.roll(np.eye(3), 1, axis=1)[y[12]]
    outcome = folklearn("audit", pets, *TARGET, "-p", write_predictions(P, labels))
    assert outcome.code == 0
    assert "In 1 rounds, first in row 13, the label was given less than 1e-15" in outcome.stderr
    assert "299 rows did not sum to 1 within 1e-06 and were divided" in outcome.stderr
    loss = (299 * np.log(3) - np.log(1e-15)) / 300
    assert f"average log loss {loss:.4f} nats" in outcome.stderr


def test_the_digits_and_quiet(folklearn, tmp_path):
    path = tmp_path / "digits.csv"
    folklearn("run", "--learner", "ogd", "-p", path, "--quiet")
    outcome = folklearn("audit", "-p", path, "--quiet")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")


def test_the_help_names_every_option(folklearn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    outcome = folklearn("audit", "--help")
    for option in ("target", "predictions", "exact", "quiet"):
        assert f"--{option} " in outcome.stdout


def third(count=300):
    return [["0.25", "0.25", "0.5"] for _ in range(count)]


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("0.7.1", "column '[bold]cat': '0.7.1' is not a number"),
        ("", "column '[bold]cat': nan is not from 0 to 1"),
        ("-0.1", "column '[bold]cat': -0.1 is not from 0 to 1"),
        ("nan", "column '[bold]cat': nan is not from 0 to 1"),
        ("1_0", "column '[bold]cat': '1_0' is not a number"),
        ("0.5", "the probabilities sum to 1.25; expected 1, up to rounding of 0.01"),
    ],
)
def test_a_bad_row_is_named(refused, pets, as_arrays, write_predictions, cell, sentence):
    labels = as_arrays[2]
    rows = third()
    rows[4][labels.index("[bold]cat")] = cell
    if labels.index("[bold]cat") == 2:
        pytest.fail("the third column holds a half")
    path = write_predictions(None, labels, rows)
    said = refused(pets, *TARGET, "-p", path)
    assert said.startswith(f"line 6 of {path}")
    assert said.endswith(sentence)


def test_the_index_of_a_data_frame_is_no_class(folklearn, pets, as_arrays, write_predictions):
    labels = as_arrays[2]
    path = write_predictions(None, ["", *labels], [[i, *row] for i, row in enumerate(third())])
    assert "Audited 300 predictions in " in folklearn("audit", pets, *TARGET, "-p", path).stderr


def test_wrong_files(refused, pets, as_arrays, write_predictions, tmp_path):
    labels = as_arrays[2]
    path = write_predictions(None, labels, third(299))
    assert "has 299 rows of predictions, and" in refused(pets, *TARGET, "-p", path)
    path = write_predictions(None, labels[:2], [["0.5", "0.5"]] * 300)
    said = refused(pets, *TARGET, "-p", path)
    assert f"has no column for the label {labels[2]!r} of column 'kind' of " in said
    path = write_predictions(None, [*labels, "id"], [[*row, "0"] for row in third()])
    said = refused(pets, *TARGET, "-p", path)
    assert "has the column 'id', which is no label of column 'kind'" in said
    path = write_predictions(None, labels, [["0.5", "0.5"], *third()])
    said = refused(pets, *TARGET, "-p", path)
    assert said == f"line 2 of {path}: it has 2 cells, the header 3"
    path = write_predictions(None, labels, [])
    assert "has 0 rows of predictions" in refused(pets, *TARGET, "-p", path)
    assert "no such file" in refused(pets, *TARGET, "-p", tmp_path / "none.csv")
    assert "is a directory" in refused(pets, *TARGET, "-p", tmp_path)


def test_wrong_options(refused, pets, as_arrays, write_predictions):
    path = write_predictions(None, as_arrays[2], third())
    assert "Missing option '-p' / '--predictions'" in refused(pets, *TARGET)
    assert "Name it: --target COLUMN" in refused(pets, "-p", path)
    assert "No such option: --B" in refused(pets, *TARGET, "-p", path, "--B", "-1")
