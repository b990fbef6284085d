"""`folklearn run -`: one pass, classes as they come, every line answered at once."""

import contextlib
import csv
import gzip
import io
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn import load
from folklearn.cli.app import main
from folklearn.streams.open import OpenModel
from tests.cli.test_app import COMMAND
from tests.cli.test_run import table_rows

TARGET = ["--target", "kind"]


@pytest.fixture
def feed(monkeypatch):
    """Let standard input hold these bytes."""

    def feed(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def read(text):
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["label", "predicted", "p(predicted)", "p(label)", "p(unseen)"]
    numbers = np.array([[float(cell) for cell in row[2:]] for row in rows])
    return [row[0] for row in rows], [row[1] for row in rows], *numbers.T


@pytest.mark.parametrize("packed", [False, True])
def test_predictions_are_those_of_an_open_model(folklearn, feed, pets, rows, packed):
    content = pets.read_bytes()
    feed(gzip.compress(content) if packed else content)
    outcome = folklearn("run", "-", *TARGET, "--learner", "folklore", "-p", "-")
    assert outcome.code == 0
    true, predicted, best, p, u = read(outcome.stdout)
    labels = list(dict.fromkeys(row[-1] for row in rows))
    y = [labels.index(row[-1]) for row in rows]
    X = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    P, unseen = OpenModel("folklore", n_features=3).run(X, y)
    assert true == [row[-1] for row in rows]
    assert predicted == ["", *(labels[k] for k in P.argmax(axis=1)[1:])]
    np.testing.assert_allclose(u, unseen, atol=1e-9)
    np.testing.assert_allclose(best, (1.0 - unseen) * P.max(axis=1), atol=1e-9)
    expected = (1.0 - unseen) * P[np.arange(300), y]
    first = [y.index(k) for k in range(3)]
    expected[first] = unseen[first]
    np.testing.assert_allclose(p, expected, atol=1e-9)
    assert "data      standard input, learned as it comes\n" in outcome.stderr
    assert "classes   in column kind, as they come\n" in outcome.stderr
    last = table_rows(outcome.stderr)[-1]
    assert (last[0], last[2]) == ("300", f"{-np.log(p).mean():.4f}")
    new = -np.log(unseen[first]).sum() - np.log1p(-np.delete(unseen, first)).sum()
    assert f"{new / 300:.4f} of them for classes that were new" in outcome.stderr
    assert "Scope: the classes grew from 2 to 3" in outcome.stderr
    assert [int(row[0]) for row in table_rows(outcome.stderr)] == [
        *(2**j for j in range(9)),
        300,
    ]


def test_a_run_goes_on_and_known_classes_stay_first(folklearn, feed, write_csv, rows, tmp_path):
    """From a file to standard input and back; only here may a class be new to the model."""
    first = write_csv("first.csv", rows[:100])
    folklearn("run", first, *TARGET, "-f", tmp_path / "m", "--learner", "folklore")
    known = load(tmp_path / "m").labels
    rows[150][-1] = "bird"
    feed(write_csv("second.csv", rows[100:200]).read_bytes())
    second = folklearn("run", "-", "-i", tmp_path / "m", "-f", tmp_path / "m")
    assert second.code == 0
    assert "as they come; known: " in second.stderr
    model = load(tmp_path / "m")
    assert (model.labels, model.n_rounds, model.open) == ((*known, "bird"), 200, True)
    rows[250][-1] = "fish"
    third = write_csv("third.csv", rows[200:])
    outcome = folklearn("run", third, "-i", tmp_path / "m", "-f", tmp_path / "m", "-p", "-")
    assert load(tmp_path / "m").labels == (*known, "bird", "fish")
    assert read(outcome.stdout)[0] == [row[-1] for row in rows[200:]]
    scored = folklearn("predict", tmp_path / "m", third, "--score")
    assert "unseen    a class that was never seen has the probability 0.0083" in scored.stderr
    header = scored.stdout.partition("\n")[0]
    assert header.endswith("p(bird),p(fish)")


def test_features_and_weights_as_they_come(folklearn, refusal, feed, tmp_path):
    lines = [f"{'spam' if i % 3 else 'ham'} |w f{i % 7}:{i % 5} bias\n" for i in range(60)]
    feed("".join(lines).encode())
    outcome = folklearn("run", "-", "-f", tmp_path / "m", "--plot", tmp_path / "o.png")
    assert outcome.code == 0
    assert "features  2 columns at first, more as they come, scaled on line" in outcome.stderr
    model = load(tmp_path / "m")
    assert model.columns == ("w^f0", "w^bias", *(f"w^f{i}" for i in range(1, 7)))
    assert "these 8 scaled features" in outcome.stderr
    feed(b"ham |w f0 f9\nspam 2 |w f0\n")
    assert refusal("run", "-", "--quiet").endswith(
        "line 2 of standard input has the weight 2, and this model was made for weights of at "
        "most 1: give it a file, or choose --learner folklore"
    )
    feed(b"ham |w f0 f9\nspam 2 |w f0\n")
    assert folklearn("run", "-", "--learner", "folklore", "-f", tmp_path / "m").code == 0
    assert load(tmp_path / "m").total_weight == 3.0


def test_a_row_that_is_refused_ends_the_run(folklearn, feed, pets, tmp_path):
    content = pets.read_bytes().splitlines(keepends=True)
    content[200] = b"1,2,x,y\n"
    feed(b"".join(content))
    saved, before = tmp_path / "m", os.listdir(tmp_path)
    outcome = folklearn("run", "-", *TARGET, "-f", saved, "-p", "-", "--learner", "ogd")
    assert outcome.code == 2
    assert outcome.stderr.splitlines()[-1].startswith(
        "folklearn: line 201 of standard input, column 'age': 'x' is not a number; if the column"
    )
    assert os.listdir(tmp_path) == before
    # Whole blocks: what was predicted was also learned.
    assert len(read(outcome.stdout)[0]) == 192


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (b"a,kind\n1,x\n", [], "--target is needed with a file: name the column that holds the c"),
        (b"a,kind\n", TARGET, "standard input has no examples"),
        (b"", TARGET, "standard input is empty; expected a header"),
        (b"a,kind\n1,x\n", [*TARGET, "--learner", "ons"], "ons must know all classes beforehand"),
        (b"a,kind\n1,x\n", [*TARGET, "--format", "xls"], "there is no format 'xls'"),
        (b"1 | a\n", TARGET, "standard input is read as vw, where every line starts with its"),
        (b"PAR1", TARGET, "standard input cannot be read: "),
    ],
)
def test_what_is_refused(refusal, feed, content, arguments, sentence):
    feed(content)
    assert refusal("run", "-", "--quiet", *arguments).startswith(sentence)


def test_a_saved_model_needs_its_columns(folklearn, refusal, feed, pets, tmp_path):
    folklearn("run", pets, *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    feed(b"weight (kg),age,kind\n1,2,x\n")
    assert "lacks 1 column of those needed" in refusal("run", "-", "-i", tmp_path / "m")
    text = pets.read_text("utf-8")
    feed("\n".join(f"{line},7" for line in text.splitlines()).encode())
    assert refusal("run", "-", "-i", tmp_path / "m") == (
        "the columns of standard input are not those of the model; the model does not know: 7"
    )


def test_one_class_alone(folklearn, feed, tmp_path):
    feed(b"a,kind\n1,x\n2,x\n")
    outcome = folklearn("run", "-", *TARGET, "-f", tmp_path / "m")
    assert outcome.code == 0
    assert "Learning begins with the second class: nothing is certified." in outcome.stderr
    feed(b"a,kind\n1,x\n2,y\n")
    assert folklearn("run", "-", "-i", tmp_path / "m", "-f", tmp_path / "m").code == 0
    assert load(tmp_path / "m").labels == ("x", "y")


def test_text_and_gaps(folklearn, feed, tmp_path):
    text = "size,colour,zip,kind\n" + "1,red,10115,a\n,blue,80331,b\n3,NA,10115,a\n" * 20
    path = tmp_path / "t.csv"
    path.write_text(text)
    said = "text      2 columns, hashed into 128: colour, zip\n"
    gaps = "40 values in 2 columns; each becomes the mean of its column so far, in text nothing"
    options = [*TARGET, "--text", "zip"]
    outcome = folklearn("run", path, *options, "-f", tmp_path / "m", "--learner", "folklore")
    assert said in outcome.stderr
    assert f"missing   {gaps}\n" in outcome.stderr
    assert "these 129 scaled features" in outcome.stderr
    feed(text.encode())
    live = folklearn("run", "-", *options, "--learner", "folklore")
    assert said in live.stderr
    assert f"Missing: {gaps}.\n" in live.stderr
    new = tmp_path / "new.csv"
    new.write_text("zip,colour,size\n10115,7,\n80331,,3\n")
    outcome = folklearn("predict", tmp_path / "m", new)
    P = load(tmp_path / "m").predict(
        load(tmp_path / "m").inputs([[None, "7", "10115"], [3.0, None, "80331"]])
    )
    found = [[float(cell) for cell in line.split(",")[1:]] for line in outcome.stdout.split()[1:]]
    np.testing.assert_allclose(found, P, atol=1e-12)
    assert folklearn("run", path, "-i", tmp_path / "m").code == 0
    for command in (["compare", "--learners", "ogd"], ["bandit", "--agent", "banditron"]):
        assert said in folklearn(*command, path, *options).stderr
    weak = ["--weak", "naive-bayes", "--n-learners", "2"]
    assert said in folklearn("boost", path, *options, *weak).stderr
    guesses = tmp_path / "guesses.csv"
    guesses.write_text("a,b\n" + "0.5,0.5\n" * 60)
    audited = folklearn("audit", path, *options, "-p", guesses)
    assert "these 129 scaled features" in audited.stderr


def test_parquet_is_copied(folklearn, feed, rows, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    sizes = [float(row[0]) for row in rows]
    pq.write_table(pa.table({"a": sizes, "kind": [row[-1] for row in rows]}), sink)
    feed(sink.getvalue())
    outcome = folklearn("run", "-", *TARGET, "--learner", "ogd")
    assert "data      standard input, 300 examples\n" in outcome.stderr


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_every_line_is_answered_at_once():
    """Each line is written only after the one before it was answered: no clock is needed."""
    process = subprocess.Popen(
        [*COMMAND, "run", "-", *TARGET, "-p", "-", "--quiet", "--learner", "ogd"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    guard = threading.Timer(120.0, process.kill)
    guard.start()
    with process:
        process.stdin.write(b"a,kind\n")
        answers = []
        for number in range(40):
            process.stdin.write(f"{number % 2},{'cat' if number % 2 else 'dog'}\n".encode())
            process.stdin.flush()
            if not number:
                assert process.stdout.readline().startswith(b"label,predicted")
            answers.append(process.stdout.readline().decode().split(","))
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
    guard.cancel()
    assert process.returncode == 0
    assert [answer[0] for answer in answers] == ["dog", "cat"] * 20
    assert [answer[1] for answer in answers[-4:]] == ["dog", "cat"] * 2


@given(
    content=st.binary(max_size=50)
    | st.lists(
        st.sampled_from(["a,kind", "1,p", "2,q", "x,q", ",q", "1,", "p |a:1", "1 2:3", "nan,p"])
    ).map(lambda lines: "\n".join(lines).encode()),
    target=st.sampled_from([[], TARGET]),
)  # fmt: skip
def test_bytes_of_any_kind_give_a_result_or_a_sentence(content, target):
    said, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(content))
    try:
        with contextlib.redirect_stderr(said):
            code = main(["run", "-", "--quiet", "--learner", "ogd", *target])
    finally:
        sys.stdin = stdin
    assert code in (0, 2)
    assert bool(re.fullmatch(r"folklearn: [^\n]+\n", said.getvalue())) == (code == 2)
