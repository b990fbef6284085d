"""`folklearn compare`: the table says what the library measures."""

from dataclasses import replace

import pytest

from folklearn import progressive, utils
from folklearn.evaluate.regression import logistic_regression
from folklearn.learners import catalogue
from tests.cli.conftest import standardise

TARGET = ["--target", "kind"]


def table_of(stdout):
    """The rows of the table: learner, log loss, error rate, regret, time."""
    titles, rows = stdout.splitlines()[:2], stdout.splitlines()[2:]
    assert titles[1].split()[:3] == ["learner", "log", "loss"]
    assert len({len(line) for line in [*titles, *rows]}) == 1
    return {name: cells for name, *cells in map(str.split, rows)}


def test_the_table(folklearn, pets, as_arrays):
    outcome = folklearn("compare", pets, *TARGET)
    assert outcome.code == 0
    X, y, _ = as_arrays
    X = standardise(X)
    best = logistic_regression(X, y, n_classes=3, constant=0)
    table = table_of(outcome.stdout)
    assert list(table) == ["auto", "folklore", "ogd"]
    for name in table:  # rows of four deviations have the norm 2
        settings = {"R": 2.0, "B": 5.0}
        takes = catalogue.settings_of(name)
        settings = {word: value for word, value in settings.items() if word in takes}
        scores = progressive(catalogue.make(name, 4, 3, settings), X, y)
        assert float(table[name][0]) == pytest.approx(scores.log_loss, abs=6e-5)
        assert table[name][1] == f"{scores.error_rate:.2%}"
        regret = scores.loss - best.loss - best.penalty
        assert float(table[name][2]) == pytest.approx(regret, abs=6e-3)
        assert float(table[name][3]) > 0.0
    features = "the columns (numbers standardised by all rows)"
    assert replace(best, features=features).in_words() in outcome.stderr
    assert "300 rows" in outcome.stderr
    assert "all rows are in memory" in outcome.stderr


def test_learners_by_name_and_quiet(folklearn, pets):
    outcome = folklearn("compare", pets, *TARGET, "--learners", "laplace, ogd", "--quiet")
    assert list(table_of(outcome.stdout)) == ["laplace", "ogd"]
    assert outcome.stderr == ""


def test_the_digits(folklearn):
    outcome = folklearn("compare", "--learners", "ogd")
    assert "scikit-learn's digits: 1797 rows" in outcome.stderr


def test_learners_at_once_have_the_same_numbers(folklearn, pets):
    alone, together = (folklearn("compare", pets, *TARGET, "--jobs", jobs) for jobs in (1, 2))
    tables = [table_of(outcome.stdout) for outcome in (alone, together)]
    one, two = ({name: row[:3] for name, row in table.items()} for table in tables)
    assert one == two
    note = "Times were measured while learners ran at once"
    assert note in together.stderr
    assert note not in alone.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--learners", "ogd,sgd"], "there is no learner 'sgd'; choose one of: auto, folklore"),
        (["--learners", ""], "there is no learner ''"),
        (["--learners", "ogd,aioli"], "Aioli is for two classes, got n_classes=3"),
        (["--jobs", "0"], "--jobs must be a number of threads, or -1 for as many as there are"),
        (["--B", "1"], "No such option: --B"),
    ],
)
def test_refusals(folklearn, pets, arguments, sentence):
    outcome = folklearn("compare", pets, *TARGET, *arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"folklearn: {sentence}")
    assert outcome.stderr.count("\n") == 1


def test_data_that_do_not_fit_in_memory(folklearn, pets, monkeypatch):
    monkeypatch.setattr(utils, "bytes_present", lambda: 900.0)
    outcome = folklearn("compare", pets, *TARGET, "--learners", "ogd")
    assert outcome.code == 2
    assert "of memory to fit a logistic regression to 300 rows, and" in outcome.stderr
