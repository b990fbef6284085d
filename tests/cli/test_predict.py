"""`folklearn predict` and files of every format on the command line."""

import csv
import gzip
import io
import json
import re
import sys

import numpy as np
import pytest
from rich.console import Console

from folklearn import load
from folklearn.cli.learning import bar

FEATURES = ["weight (kg)", "größe [red]", "age"]


@pytest.fixture
def saved(folklearn, pets, tmp_path):
    learned = folklearn("run", pets, "--target", "kind", "--B", "5", "-f", tmp_path / "m")
    assert learned.code == 0
    return tmp_path / "m"


def read(text):
    header, *rows = csv.reader(io.StringIO(text))
    return header, [row[0] for row in rows], np.array([[float(p) for p in row[1:]] for row in rows])


def test_predictions_are_those_of_the_model(folklearn, pets, saved, as_arrays, tmp_path):
    X, _, labels = as_arrays
    before = saved.read_bytes()
    outcome = folklearn("predict", saved, pets)
    assert outcome.code == 0
    header, predicted, P = read(outcome.stdout)
    expected = load(saved).predict(X)
    assert header == ["predicted", *(f"p({label})" for label in labels)]
    assert predicted == [labels[k] for k in expected.argmax(axis=1)]
    np.testing.assert_allclose(P, expected, rtol=0, atol=1e-12)
    assert saved.read_bytes() == before
    assert "ignored" not in outcome.stderr  # the target goes without saying
    quiet = folklearn("predict", saved, pets, "-o", tmp_path / "out.csv", "--quiet")
    assert (quiet.code, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (tmp_path / "out.csv").read_text("utf-8") == outcome.stdout


def test_columns_are_found_by_name(folklearn, pets, saved, write_csv, rows):
    """No label, another order, and text that the model never asked for."""
    others = [[row[2], "a note", row[0], row[1]] for row in rows]
    path = write_csv("others.csv", others, ["age", "note", "weight (kg)", "größe [red]"])
    outcome = folklearn("predict", saved, path)
    assert outcome.stdout == folklearn("predict", saved, pets).stdout
    assert "ignored   1 column unknown to the model: note\n" in outcome.stderr


def test_the_score(folklearn, pets, saved, as_arrays):
    X, y, _ = as_arrays
    P = load(saved).predict(X)
    outcome = folklearn("predict", saved, pets, "--score")
    found = re.search(r"average log loss (\S+) nats, error rate (\S+)%", outcome.stderr)
    assert float(found[1]) == pytest.approx(-np.log(P[np.arange(300), y]).mean(), abs=6e-5)
    assert float(found[2]) == pytest.approx(100 * (P.argmax(axis=1) != y).mean(), abs=6e-3)


def test_standard_input_of_any_format(folklearn, pets, saved, rows, monkeypatch):
    text = "".join(
        json.dumps(dict(zip(FEATURES, map(float, row[:3]), strict=True))) + "\n" for row in rows
    )
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(text.encode())))
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = folklearn("predict", saved, "-")
    assert "standard input, 300 examples" in outcome.stderr
    assert outcome.stdout == folklearn("predict", saved, pets).stdout


def test_the_digits_need_no_file(folklearn, tmp_path):
    folklearn("run", "--learner", "ogd", "-f", tmp_path / "m")
    assert "error rate" in folklearn("predict", tmp_path / "m", "--score").stderr


def test_predict_refuses(refusal, pets, saved, write_csv, rows, tmp_path):
    lacking = write_csv("lacking.csv", [row[:2] for row in rows], FEATURES[:2])
    assert refusal("predict", saved, lacking) == (
        f"{lacking} lacks 1 column of those needed: age; its columns are: 'weight (kg)', "
        "'größe [red]'"
    )
    assert refusal("predict", saved, lacking, "--score").startswith(f"{lacking} has no column 'ki")
    rows[5][1] = "tall"
    bad = write_csv("bad.csv", rows)
    assert refusal("predict", saved, bad, "-o", tmp_path / "o") == (
        f"line 7 of {bad}, column 'größe [red]': 'tall' is not a number; if the column holds "
        "text, declare it: --text 'größe [red]'"
    )
    rows[5][1], rows[8][3] = "1", "bird"
    strange = write_csv("strange.csv", rows)
    assert refusal("predict", saved, strange, "--score").startswith(
        f"line 10 of {strange} has the label 'bird', which the model does not know"
    )
    assert "--target is of use only with --score" in refusal(
        "predict", saved, pets, "--target", "kind"
    )
    assert f"{pets} is no folklearn model; folklearn predict takes what" in refusal(
        "predict", pets, pets
    )
    assert "it would replace the input" in refusal("predict", saved, pets, "-o", saved)
    assert refusal("predict", saved).startswith("the columns of scikit-learn's digits are not")
    assert refusal("predict", tmp_path / "no", pets) == f"there is no file {tmp_path / 'no'}"


VW = "".join(
    f"{'spam' if i % 3 else 'ham'} {1 + i % 2} |w a:{i % 3} b:{(i * 7) % 5}\n" for i in range(40)
)


@pytest.fixture
def mails(tmp_path):
    path = tmp_path / "mails.vw"
    path.write_text(VW)
    return path


def test_weights_reach_the_learner(folklearn, mails, tmp_path):
    outcome = folklearn("run", mails, "--learner", "folklore", "-f", tmp_path / "m")
    assert outcome.code == 0
    assert "weights   60 in total; losses are weighted averages" in outcome.stderr
    model = load(tmp_path / "m")
    assert model.total_weight == 60.0
    assert model.loss == pytest.approx(model.certificate().loss, rel=1e-9)
    assert f"average log loss {model.loss / 60:.4f}" in outcome.stderr
    plain = tmp_path / "plain.vw"
    plain.write_text(re.sub(r" \d \|", " |", VW))
    folklearn("run", plain, "--learner", "folklore", "-f", tmp_path / "n")
    assert load(tmp_path / "n").loss != pytest.approx(model.loss, rel=1e-3)


def test_the_default_learner_takes_the_heaviest_weight(folklearn, refusal, mails, tmp_path):
    assert folklearn("run", mails, "-f", tmp_path / "m", "--plot", tmp_path / "o.png").code == 0
    assert load(tmp_path / "m").learner.max_weight == 2.0
    heavier = tmp_path / "heavier.vw"
    heavier.write_text(VW.replace(" 2 |", " 3 |"))
    assert "weight is 3, above max_weight=2" in refusal("run", heavier, "-i", tmp_path / "m")


def test_absent_is_zero_in_sparse_files(folklearn, refusal, mails, tmp_path):
    folklearn("run", mails, "-f", tmp_path / "m")
    some = tmp_path / "some.vw"
    some.write_text("|w a:2\n'tagged |w a:1 unheard:3\nham |w a\n")
    outcome = folklearn("predict", tmp_path / "m", some)
    P = load(tmp_path / "m").predict([[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(read(outcome.stdout)[2], P, rtol=0, atol=1e-12)
    assert "ignored   1 column unknown to the model: w^unheard" in outcome.stderr
    assert "line 1 of" in refusal("predict", tmp_path / "m", some, "--score")
    some.write_text("ham |w a:2\nspam |w a:1\n")
    assert folklearn("run", some, "-i", tmp_path / "m").code == 0


def test_weights_of_0_before_any_other(folklearn, tmp_path):
    path = tmp_path / "zero.vw"
    path.write_text("a 0 |w x:1\nb 0 |w x:2\n" + "a 1 |w x:3\nb 2 |w x:1\n" * 3)
    outcome = folklearn("run", path, "--plot", tmp_path / "o.png")
    assert outcome.code == 0
    assert re.search(r"^ +1 +- +- ", outcome.stderr, flags=re.M)


@pytest.mark.parametrize("command", ["compare", "bandit", "boost", "audit"])
def test_weights_elsewhere_are_refused(refusal, mails, command):
    more = ["-p", mails] if command == "audit" else []
    sentence = refusal(command, mails, *more)
    assert sentence.startswith(f"line 2 of {mails} has a weight, and folklearn {command} takes")


@pytest.mark.parametrize("command", ["run", "compare", "bandit", "boost", "predict", "audit"])
def test_every_command_knows_the_formats(folklearn, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "csv|svmlight|vw|parquet|arrow|jsonl" in folklearn(command, "--help").stdout


def test_formats_and_targets(refusal, mails, pets):
    assert "there is no format 'xls'" in refusal("run", pets, "--format", "xls")
    assert "where every line starts with its label" in refusal("run", mails, "--target", "w^a")
    assert "line 1 of" in refusal("run", pets, "--format", "vw")
    assert "no file was given" in refusal("run", "--format", "vw")


def test_a_format_that_the_name_does_not_tell(folklearn, mails, tmp_path):
    path = tmp_path / "mails.csv"
    path.write_text(VW)
    by_option = folklearn("run", path, "--format", "vw", "-p", "-")
    assert by_option.stdout == folklearn("run", mails, "-p", "-").stdout


def test_a_separator_that_is_no_comma_is_spoken_of(folklearn, pets, tmp_path):
    path = tmp_path / "semicolons.csv"
    with open(pets, encoding="utf-8", newline="") as file, open(path, "w", encoding="utf-8") as out:
        csv.writer(out, delimiter=";").writerows(csv.reader(file))
    outcome = folklearn("run", path, "--target", "kind", "-p", "-")
    assert f"{path}, 300 examples, separated by semicolons\n" in outcome.stderr
    assert outcome.stdout == folklearn("run", pets, "--target", "kind", "-p", "-").stdout


def test_pyarrow_may_be_missing(refusal, tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'folklearn[df]'" in refusal("run", tmp_path / "a.parquet", "--target", "y")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_tells_rate_and_time_left_on_a_terminal(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has no bars
    file = Terminal() if terminal else io.StringIO()
    clock = iter(range(1000))
    console = Console(file=file, width=120, force_terminal=terminal)
    with bar(console) as progress:
        progress.get_time = lambda: float(next(clock))
        task = progress.add_task("learning", total=1_000_000)
        progress.advance(task, 1000)
        progress.advance(task, 3000)
        progress.refresh()
    said = file.getvalue()
    assert bool(re.search(r"learning.*4000/1000000.*rows/s.*\d:\d\d:\d\d.*left", said)) == terminal
