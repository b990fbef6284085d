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
from folklearn.metrics.scores import score
from folklearn.progress import show_bar
from tests.cli.conftest import KINDS
from tests.cli.test_run import read_predictions

FEATURES = ["weight (kg)", "größe [red]", "age"]


FOLKLORE = ["--learner", "folklore"]


@pytest.fixture
def saved(folklearn, pets, tmp_path):
    learned = folklearn("run", pets, "--target", "kind", *FOLKLORE, "-f", tmp_path / "m")
    assert learned.code == 0
    return tmp_path / "m"


@pytest.fixture
def expected(saved, rows):
    """What the saved model says of the pets, by the library."""
    records = [dict(zip(FEATURES, map(float, row[:3]), strict=True)) for row in rows]
    return load(saved).predict_proba(records)


def test_predictions_are_those_of_the_model(folklearn, pets, saved, expected, rows, tmp_path):
    before = saved.read_bytes()
    outcome = folklearn("predict", saved, pets)
    assert outcome.code == 0
    lines, labels, P = read_predictions(outcome.stdout)
    own = ["row", "label", "predicted", "probability", "p_label", "unseen"]
    assert list(lines[0]) == [*own, *(f"p:{label}" for label in load(saved).labels)]
    assert [line["predicted"] for line in lines] == [labels[k] for k in expected.argmax(axis=1)]
    assert [line["label"] for line in lines] == [row[-1] for row in rows]
    np.testing.assert_allclose(P, expected, rtol=0, atol=1e-12)
    assert saved.read_bytes() == before
    assert "ignored" not in outcome.stderr  # the target goes without saying
    quiet = folklearn("predict", saved, pets, "-o", tmp_path / "out.csv", "--quiet")
    assert (quiet.code, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (tmp_path / "out.csv").read_text("utf-8") == outcome.stdout
    nowhere = folklearn("predict", saved, pets, "-o", "/dev/null")
    assert (nowhere.code, nowhere.stdout) == (0, "")


def test_explained_predictions_say_why(folklearn, pets, rows, tmp_path):
    assert folklearn("run", pets, "--target", "kind", "-f", tmp_path / "m").code == 0
    outcome = folklearn("predict", tmp_path / "m", pets, "--explain")
    assert outcome.code == 0
    lines, labels, P = read_predictions(outcome.stdout)
    assert [*lines[0]][6:8] == ["against", "why"]
    model = load(tmp_path / "m")
    for line, p, row in list(zip(lines, P, rows, strict=True))[:5]:
        explained = model.explain(dict(zip(FEATURES, map(float, row[:3]), strict=True)))
        assert line["against"] == explained.against == labels[np.argsort(-p)[1]]
        reasons = [reason.rpartition(" ")[::2] for reason in line["why"].split("; ")]
        top = explained.top(3)
        assert [name for name, _ in reasons] == [str(one) for one in top]
        assert [float(nats) for _, nats in reasons] == [round(one.nats, 2) for one in top]
    outcome = folklearn("predict", tmp_path / "m", pets, "--explain", "--costs", f"{KINDS[0]}=1e12")
    decided = read_predictions(outcome.stdout)[0]
    assert {line["predicted"] for line in decided} == {KINDS[0]}
    for line, p in zip(decided, P, strict=True):
        assert line["against"] == next(labels[k] for k in np.argsort(-p) if labels[k] != KINDS[0])
    plain = folklearn("predict", tmp_path / "m", pets).stdout.splitlines()[0]
    assert "why" not in plain


def test_columns_are_found_by_name(folklearn, saved, expected, write_csv, rows):
    """No label, another order, and columns that the model never asked for, numbers and not."""
    others = [[row[2], "7" if i else "x", row[0], row[1]] for i, row in enumerate(rows)]
    path = write_csv("others.csv", others, ["age", "note", "weight (kg)", "größe [red]"])
    outcome = folklearn("predict", saved, path)
    lines, _, P = read_predictions(outcome.stdout)
    np.testing.assert_allclose(P, expected, rtol=0, atol=1e-12)
    assert "label" not in lines[0]
    assert "p_label" not in lines[0]
    assert "ignored   columns that the model does not know: note\n" in outcome.stderr


@pytest.mark.parametrize("pipe", [False, True])
def test_values_that_were_never_learned_are_counted(folklearn, tmp_path, monkeypatch, pipe):
    path, new = tmp_path / "t.csv", tmp_path / "new.csv"
    rows = [f"{i % 5},{('yes', 'no')[i % 3 == 0]},{'ab'[i % 2]}" for i in range(90)]
    path.write_text("\n".join(["size,active,kind", *rows]))
    learned = folklearn("run", path, "--target", "kind", "-f", tmp_path / "m")
    new.write_text("\n".join(["size,active,kind", *rows]).replace("yes", "maybe"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(new.read_bytes())))
    outcome = folklearn("predict", tmp_path / "m", "-" if pipe else new)
    assert (
        outcome.stderr.count(
            "Warning: 60 rows have a value of 'active' that was never learned (maybe): such values "
            "count as missing.\n"
        )
        == 1
    )
    assert "never learned" not in learned.stderr
    assert "never learned" not in folklearn("predict", tmp_path / "m", path).stderr
    assert folklearn("predict", tmp_path / "m", new, "-o", "/dev/null", "--quiet").stderr == ""


def test_sets_are_written_and_summed_up(folklearn, refusal, tmp_path):
    path, model = tmp_path / "t.csv", tmp_path / "m"
    rows = [f"{i % 7},{('a|b', 'c', 'd')[(i * i) % 3]}" for i in range(200)]
    path.write_text("\n".join(["size,kind", *rows]))
    declared = ["--coverage", "0.99", "--coverage", "0.6"]
    learned = folklearn("run", path, "--target", "kind", "-f", model, *FOLKLORE, *declared)
    sets = load(model).sets
    assert sets.coverage == (0.6, 0.99)
    assert sets.in_words() in learned.stderr
    assert sets.in_words() in folklearn("inspect", model).stdout
    lines, _, _ = read_predictions(folklearn("predict", model, path, "--coverage", ".99").stdout)
    expected = load(model).predict_set([{"size": i % 7} for i in range(200)], 0.99)
    assert max(map(len, expected)) > 1
    texts = [[label.replace("|", "\\|") for label in chosen] for chosen in expected]
    assert [line["set"] for line in lines] == ["|".join(chosen) for chosen in texts]
    said = refusal("predict", model, path, "--coverage", "0.9")
    assert said.startswith("coverage 0.9 was not declared; declared: 0.6, 0.99.")
    by_class = ["--coverage-by", "class"]
    said = refusal("run", path, "--target", "kind", "-i", model, *by_class)
    assert said.startswith("--coverage-by cannot be combined with --load")
    folklearn("run", path, "--target", "kind", "-f", model, *FOLKLORE, *by_class)
    assert len(load(model).sets.by_class(0.9)) == 2


def test_ids_are_carried_through(folklearn, tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"c{i},{i},{i % 3},{'ab'[i % 2]}\n" for i in range(80))
    path.write_text(f"customer,row,size,kind\n{rows}")
    learned = folklearn("run", path, "--target", "kind", "-f", tmp_path / "m", "-p", "-")
    assert "id        customer, row  (carried along, not learned from)\n" in learned.stderr
    assert learned.stdout.startswith("row,customer,id:row,label,predicted,")
    new = tmp_path / "new.csv"
    new.write_text("size,customer,row\n1,anna,17\n2,berta,\n")
    lines = folklearn("predict", tmp_path / "m", new).stdout.splitlines()
    assert lines[0].startswith("row,customer,id:row,predicted,")
    assert [line.split(",")[:3] for line in lines[1:]] == [["2", "anna", "17"], ["3", "berta", ""]]


def test_the_score(folklearn, pets, saved, expected, rows, write_csv):
    labels = list(load(saved).labels)
    y = np.array([labels.index(row[-1]) for row in rows])
    outcome = folklearn("predict", saved, pets)
    last = outcome.stderr.splitlines()[-1]
    said = r"Over 300 rows with a label: error (\S+)%, average log loss (\S+), Brier score (\S+)\.$"
    found = re.search(said, last)
    assert float(found[3]) == pytest.approx(score(expected, y).brier, abs=6e-5)
    assert float(found[2]) == pytest.approx(-np.log(expected[np.arange(300), y]).mean(), abs=6e-5)
    assert float(found[1]) == pytest.approx(100 * (expected.argmax(axis=1) != y).mean(), abs=6e-3)
    rows[8][3], rows[9][3] = "bird", ""
    some = folklearn("predict", saved, write_csv("some.csv", rows), "-o", "/dev/null")
    said = "Over 299 rows with a label, 1 of them of classes that the model does not know: error "
    assert said in some.stderr


def test_costs_decide(folklearn, refusal, pets, saved, rows, expected):
    model, cat = load(saved), KINDS[0]
    costs = {cat: 20.0, (KINDS[1], cat): 3.0}
    options = "--costs", f"{cat}=20", "--costs", f"{KINDS[1]}:{cat}=3"
    outcome = folklearn("predict", saved, pets, *options)
    decided = [line["predicted"] for line in csv.DictReader(io.StringIO(outcome.stdout))]
    labels = np.array(model.labels)
    assert decided != labels[expected.argmax(axis=1)].tolist()
    assert decided == model.predict(str(pets), costs=costs)
    pairs = [(row[-1], kind) for row, kind in zip(rows, decided, strict=True)]
    cost = sum(costs.get((a, b), costs.get(a, 1.0)) for a, b in pairs if a != b) / 300
    assert f", average cost {cost:.4g}." in outcome.stderr
    sentence = refusal("predict", saved, pets, "--costs", "bird=2", "--quiet")
    assert sentence.startswith("--costs 'bird': there is no such class; the classes are: ")


def test_standard_input_of_any_format(folklearn, pets, saved, rows, expected, monkeypatch):
    text = "".join(
        json.dumps(dict(zip(FEATURES, map(float, row[:3]), strict=True))) + "\n" for row in rows
    )
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(text.encode())))
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = folklearn("predict", saved, "-")
    assert "standard input: read as it comes" in outcome.stderr
    np.testing.assert_allclose(read_predictions(outcome.stdout)[2], expected, atol=1e-12)


def test_the_digits_need_no_file(folklearn, tmp_path):
    folklearn("run", "--learner", "ogd", "-f", tmp_path / "m")
    assert "average log loss" in folklearn("predict", tmp_path / "m").stderr


def test_predict_refuses(folklearn, refusal, pets, saved, write_csv, rows, tmp_path):
    lacking = write_csv("lacking.csv", [row[:2] for row in rows], FEATURES[:2])
    assert refusal("predict", saved, lacking) == (
        f"{lacking} lacks columns of the model: age; it has: 'weight (kg)', 'größe [red]'"
    )
    unlabelled = write_csv("unlabelled.csv", [row[:3] for row in rows], FEATURES)
    assert "log loss" not in folklearn("predict", saved, unlabelled).stderr
    rows[5][1] = "tall"
    bad = write_csv("bad.csv", rows)
    assert refusal("predict", saved, bad, "-o", tmp_path / "o", "--quiet").startswith(
        f"line 7 of {bad}, column 'größe [red]': 'tall' is not a number; to leave bad rows out: "
        "--on-bad-row skip"
    )
    skipped = folklearn("predict", saved, bad, "--on-bad-row", "skip", "-o", "/dev/null")
    assert "Predicted 299 rows in " in skipped.stderr
    assert "; 1 bad row skipped." in skipped.stderr
    assert refusal("predict", saved, pets, "--target", "age") == (
        "'age' is not what the model predicts, which is the column 'kind': leave --target age out"
    )
    assert f"{pets} is no folklearn model; folklearn predict takes what" in refusal(
        "predict", pets, pets
    )
    assert "it would replace the input" in refusal("predict", saved, pets, "-o", saved)
    assert refusal("predict", saved).startswith("scikit-learn's digits lacks columns of the model")
    assert (
        refusal("predict", tmp_path / "no", pets) == f"{tmp_path / 'no'}: No such file or directory"
    )


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
    model = load(tmp_path / "m")
    assert model.metrics.weight == 60.0
    assert model.metrics.loss == pytest.approx(model.certificate().loss, rel=1e-9)
    assert f", average log loss {model.metrics.loss / 60:.4f}, Brier score" in outcome.stderr
    plain = tmp_path / "plain.vw"
    plain.write_text(re.sub(r" \d \|", " |", VW))
    folklearn("run", plain, "--learner", "folklore", "-f", tmp_path / "n")
    assert load(tmp_path / "n").metrics.loss != pytest.approx(model.metrics.loss, rel=1e-3)


def test_the_default_learner_takes_the_heaviest_weight(folklearn, refusal, mails, tmp_path):
    assert folklearn("run", mails, "-f", tmp_path / "m", "--plot", tmp_path / "o.png").code == 0
    assert load(tmp_path / "m").max_weight == 2.0
    heavier = tmp_path / "heavier.vw"
    heavier.write_text(VW.replace(" 2 |", " 3 |"))
    said = refusal("run", heavier, "-i", tmp_path / "m", "--quiet")
    assert f"line 2 of {heavier} has the weight 3, and this model was made for weights of" in said


def test_absent_is_zero_in_sparse_files(folklearn, mails, tmp_path):
    folklearn("run", mails, "-f", tmp_path / "m")
    some = tmp_path / "some.vw"
    some.write_text("|w a:2\n'tagged |w a:1 unheard:3\nham |w a\n")
    outcome = folklearn("predict", tmp_path / "m", some)
    other = tmp_path / "other.vw"
    other.write_text("|w a:2 b:0\n|w a:1\n|w a:1 b:0\n")
    P = read_predictions(folklearn("predict", tmp_path / "m", other).stdout)[2]
    np.testing.assert_allclose(read_predictions(outcome.stdout)[2], P, rtol=0, atol=1e-12)
    tags = [line["tag"].lstrip("'") for line in read_predictions(outcome.stdout)[0]]
    assert tags == ["", "tagged", ""]
    some.write_text("ham |w a:2\nspam |w a:1\n")
    assert folklearn("run", some, "-i", tmp_path / "m").code == 0


def test_svmlight(folklearn, tmp_path):
    path = tmp_path / "s.svm"
    path.write_text("".join(f"{'+1' if i % 3 else '-1'} {1 + i % 3}:1 7:{i}\n" for i in range(90)))
    outcome = folklearn("run", path, "-f", tmp_path / "m")
    assert "features  4 of the rows\n" in outcome.stderr
    assert load(tmp_path / "m").labels == ("-1", "+1")
    assert "average log loss" in folklearn("predict", tmp_path / "m", path).stderr
    (tmp_path / "p.csv").write_text("p:-1,p:+1\n" + "0.5,0.5\n" * 90)
    audited = folklearn("audit", path, "-p", tmp_path / "p.csv")
    assert "numbers standardised by all rows" in audited.stderr


def test_weights_of_0_before_any_other(folklearn, tmp_path):
    path = tmp_path / "zero.vw"
    path.write_text("a 0 |w x:1\nb 0 |w x:2\n" + "a 1 |w x:3\nb 2 |w x:1\n" * 3)
    outcome = folklearn("run", path, "--plot", tmp_path / "o.png")
    assert outcome.code == 0


def test_an_audit_takes_no_weights(refusal, mails):
    sentence = refusal("audit", mails, "-p", mails)
    assert sentence.startswith(f"{mails} has weights, and an audit takes none")


def test_an_audit_takes_no_words(folklearn, refusal, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("my text,kind\n" + "what a nice thing,x\nsuch a bad thing,y\n" * 10)
    (tmp_path / "p.csv").write_text("x,y\n" + "0.5,0.5\n" * 20)
    arguments = ["audit", path, "--target", "kind", "-p", tmp_path / "p.csv"]
    assert refusal(*arguments) == (
        "column 'my text' holds words, and an audit takes none: --role 'my text=ignored', or "
        "--role 'my text=category'"
    )
    assert folklearn(*arguments, "--role", "my text=category").code == 0


def test_an_audit_refuses_bad_rows_without_a_false_remedy(refusal, pets, tmp_path):
    pets.write_text(pets.read_text("utf-8").replace("\n", "\n,,,\n1,2\n", 1), "utf-8")
    assert refusal("audit", pets, "--target", "kind", "-p", tmp_path / "p.csv") == (
        f"line 3 of {pets}: it has 2 cells, the header 4"
    )


@pytest.mark.parametrize("command", ["run", "predict", "audit"])
def test_every_command_knows_the_formats(folklearn, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "csv|jsonlines|svmlight|vw|parquet|arrow" in folklearn(command, "--help").stdout


def test_formats_and_targets(refusal, mails, pets):
    assert "there is no format 'xls'" in refusal("run", pets, "--format", "xls")
    assert "has no column 'w^a'; its columns are: label" in refusal("run", mails, "--target", "w^a")
    assert "line 1 of" in refusal("run", pets, "--format", "vw")
    assert "no file was given" in refusal("run", "--format", "vw")


def test_a_format_that_the_name_does_not_tell(folklearn, mails, tmp_path):
    path = tmp_path / "mails.csv"
    path.write_text(VW)
    by_option = folklearn("run", path, "--format", "vw", "-p", "-")
    assert by_option.stdout == folklearn("run", mails, "-p", "-").stdout


def test_a_separator_and_decimals_that_are_found_are_spoken_of(folklearn, pets, tmp_path):
    path = tmp_path / "semicolons.csv"
    with open(pets, encoding="utf-8", newline="") as file, open(path, "w", encoding="utf-8") as out:
        rows = [[cell.replace(".", ",") for cell in row] for row in csv.reader(file)]
        csv.writer(out, delimiter=";").writerows(rows)
    outcome = folklearn("run", path, "--target", "kind", "-p", "-")
    assert f"{path}: 300 rows, separated by semicolons, decimal comma\n" in outcome.stderr
    P = read_predictions(folklearn("run", pets, "--target", "kind", "-p", "-").stdout)[2]
    np.testing.assert_array_equal(read_predictions(outcome.stdout)[2], P)
    options = ["--delimiter", ";", "--decimal", ",", "--encoding", "utf-8"]
    said = folklearn("run", path, "--target", "kind", "-p", "-", *options)
    assert said.stdout == outcome.stdout
    assert f"{path}: 300 rows\n" in said.stderr


def test_pyarrow_may_be_missing(refusal, tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'folklearn[cli]'" in refusal("run", tmp_path / "a.parquet", "--target", "y")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_tells_rate_and_time_left_on_a_terminal(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has no bars
    file = Terminal() if terminal else io.StringIO()
    clock = iter(range(1000))
    console = Console(file=file, width=120, force_terminal=terminal)
    monkeypatch.setattr("folklearn.progress.working_time", lambda: float(next(clock)))
    with show_bar(console, "learning", 1_000_000) as report:
        report(1000)
        report(4000)
    said = file.getvalue()
    assert bool(re.search(r"learning.*\d:\d\d:\d\d.*4000/1000000", said)) == terminal


def test_a_saved_model_can_be_looked_at(folklearn, saved, pets, tmp_path):
    outcome = folklearn("inspect", saved)
    model = load(saved)
    assert (outcome.code, outcome.stderr) == (0, "")
    said = outcome.stdout
    for line in (
        "model     learned 300 rows",
        "learner   folklore",
        "predicted kind",
        "number    'weight (kg)', 'größe [red]', age",
        f"loss      {model.metrics.average_loss:.4f}, each row predicted before it was learned",
        f"hold-out  {model.metrics.holdout_loss:.4f}, of rows ahead by the model as saved",
    ):
        assert f"{line}\n" in said
    assert all(label in said for label in KINDS)
    assert model.certificate().in_words() in said
    assert "Most important columns (what the loss of 256 rows rises by without each):" in said
    model.ask({"age": 3.0})
    model.save(saved)
    assert "waiting   1 row for their labels\n" in folklearn("inspect", saved).stdout
    model.pipeline.learner.save(tmp_path / "learner")
    assert (
        "holds a Folklore; folklearn inspect takes"
        in folklearn("inspect", tmp_path / "learner").stderr
    )
    new = type(model)()
    new.save(tmp_path / "new")
    assert "learned 0 rows" in folklearn("inspect", tmp_path / "new").stdout


def test_a_bad_row_of_a_pipe_can_be_skipped(folklearn, saved, monkeypatch):
    text = "weight (kg),größe [red],age\n1,2,3\n1,x,3\n3,2,1\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    outcome = folklearn("predict", saved, "-", "--on-bad-row", "skip")
    assert [line.split(",")[0] for line in outcome.stdout.splitlines()] == ["row", "2", "4"]
    assert "Predicted 2 rows" in outcome.stderr
    assert "1 bad row skipped" in outcome.stderr
