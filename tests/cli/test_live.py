"""`folklearn run -`: one pass, classes as they come, every line answered at once."""

import contextlib
import csv
import gzip
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn import load
from folklearn.cli.app import main
from folklearn.model.open import OpenModel
from folklearn.streams.model import StreamModel
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
    assert header.endswith("p(bird),p(fish),p(unseen)")


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


@pytest.mark.parametrize("source", ["file", "-"])
def test_any_number_of_buckets(folklearn, feed, tmp_path, source):
    model = StreamModel("ogd", columns=["a", "t"], target="kind", text=["t"], n_buckets=8)
    model.run_block(model.inputs([[1.0, "x"], [2.0, "y"]]), ["p", "q"])
    model.save(tmp_path / "m8")
    content = "t,a,kind\nx,1,p\nz,2,q\n"
    path = tmp_path / "q.csv"
    path.write_text(content)
    feed(content.encode())
    name = path if source == "file" else "-"
    assert folklearn("run", name, "-i", tmp_path / "m8", "-f", tmp_path / "m").code == 0
    model.run_block(model.inputs([[1.0, "x"], [2.0, "z"]]), ["p", "q"])
    assert load(tmp_path / "m").loss == pytest.approx(model.loss, rel=1e-12)
    outcome = folklearn("predict", tmp_path / "m", path)
    found = [float(cell) for cell in outcome.stdout.splitlines()[1].split(",")[1:3]]
    np.testing.assert_allclose(found, model.predict(model.inputs([[1.0, "x"]]))[0])


def test_only_models_of_sparse_lines_take_new_features(folklearn, refusal, feed, tmp_path):
    feed(b"1,kind\n1,x\n2,y\n")
    folklearn("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    feed(b"x 1:2\ny 1:3\n")
    assert folklearn("run", "-", "-i", tmp_path / "m").code == 0  # known by name
    feed(b"x 1:2\ny 1:3\nx 1:1 2:3\n")
    assert refusal("run", "-", "-i", tmp_path / "m", "-f", tmp_path / "n", "--quiet") == (
        "line 3 of standard input names the feature '2', which the model does not know, and only "
        "a model made from svmlight or VW text takes new ones; its columns are: 1"
    )
    (tmp_path / "s.svm").write_text("x 1:2\ny 1:3\n")
    folklearn("run", tmp_path / "s.svm", "-f", tmp_path / "s", "--learner", "ogd")
    feed(b"x 1:2 2:3\n")
    assert folklearn("run", "-", "-i", tmp_path / "s", "-f", tmp_path / "s").code == 0
    assert load(tmp_path / "s").columns == ("1", "2")


def test_weights_that_are_all_0(folklearn, feed, tmp_path):
    feed(b"1 0.0 | a:1\n2 0.0 | b:1\n")
    outcome = folklearn("run", "-", "--learner", "folklore", "-f", tmp_path / "m")
    assert outcome.code == 2
    said = outcome.stderr.splitlines()[-1]
    assert said == "folklearn: every example of standard input has the weight 0"
    assert os.listdir(tmp_path) == []


def test_the_summary_and_the_table_have_one_denominator(folklearn, feed):
    feed(b"a,kind\n1,x\n2,x\n3,y\n")
    outcome = folklearn("run", "-", *TARGET, "--learner", "folklore")
    per_round = float(re.search(r"regret bound (\S+) per round", outcome.stderr)[1])
    total = float(re.search(r"per round, (\S+) in total", outcome.stderr)[1])
    assert per_round == pytest.approx(total / 3, rel=1e-3)
    assert float(table_rows(outcome.stderr)[-1][4]) == pytest.approx(per_round, rel=1e-3)


@pytest.mark.skipif(os.name == "nt", reason="closing streams is POSIX")
@pytest.mark.parametrize(
    ("closed", "said"),
    [("<&-", "standard input is closed: give a file"), (">&-", "standard output is closed: name")],
)
@pytest.mark.parametrize("command", ["run", "predict"])
def test_streams_that_are_closed(folklearn, pets, tmp_path, closed, said, command):
    folklearn("run", pets, *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    file = "-" if closed == "<&-" else str(pets)
    options = ["run", file, *TARGET, "-p", "-", "--learner", "ogd"]
    if command == "predict":
        options = ["predict", str(tmp_path / "m"), file]
    call = shlex.join([*COMMAND, *options, "--quiet"])
    done = subprocess.run(["sh", "-c", f"{call} {closed}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="closing streams is POSIX")
def test_a_closed_standard_output_that_nobody_needs(pets):
    call = shlex.join([*COMMAND, "run", str(pets), *TARGET, "--learner", "ogd", "--quiet"])
    done = subprocess.run(["sh", "-c", f"{call} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_the_stream(tmp_path):
    """While it waits for more; what was learned is saved."""
    save = ["-f", str(tmp_path / "m")]
    process = subprocess.Popen(
        [*COMMAND, "run", "-", *TARGET, "-p", "-", "--learner", "ogd", *save],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever runs the tests may ignore the signal, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    guard = threading.Timer(120.0, process.kill)
    guard.start()
    with process:
        rows = "".join(f"{i % 2},{'cat' if i % 2 else 'dog'}\n" for i in range(40))
        process.stdin.write(f"a,kind\n{rows}".encode())
        process.stdin.flush()
        for _ in range(41):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.wait()
        said = process.stderr.read().decode()
    guard.cancel()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "\nInterrupted: the stream ends here.\nLearned 40 examples in " in said
    assert load(tmp_path / "m").n_rounds == 40
    assert os.listdir(tmp_path) == ["m"]


@pytest.fixture
def heard():
    """Whoever runs the tests may ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_does_not_cut_a_block(folklearn, feed, tmp_path, monkeypatch):
    run_block = StreamModel.run_block

    def interrupted(self, *arguments, **words):
        if self.n_rounds == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return run_block(self, *arguments, **words)

    monkeypatch.setattr(StreamModel, "run_block", interrupted)
    feed(b"a,kind\n" + b"1,x\n2,y\n" * 8)
    outcome = folklearn("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    assert outcome.code == 130
    assert load(tmp_path / "m").n_rounds == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("heard")
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_twice_while_a_block_is_learned(folklearn, feed, tmp_path, monkeypatch):
    def interrupted(self, *arguments, **words):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(StreamModel, "run_block", interrupted)
    feed(b"a,kind\n1,x\n2,y\n")
    outcome = folklearn("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "ogd", "--quiet")
    assert (outcome.code, os.listdir(tmp_path)) == (130, [])
    assert outcome.stderr == "folklearn: interrupted: nothing was written\n"


def test_the_first_row_decides_what_is_text(refusal, feed):
    advice = "missing in the first row, it became a column of numbers; if the column holds text"
    feed(b"a,b,kind\n1,,x\n2,red,y\n")
    assert f"'red' is not a number; {advice}, declare it: --text b" in refusal(
        "run", "-", *TARGET, "--quiet"
    )
    feed(b'{"a": 1, "b": null, "kind": "x"}\n{"a": 1, "b": "red", "kind": "y"}\n')
    assert f"text, not a number; {advice}, declare it: --text b" in refusal(
        "run", "-", *TARGET, "--quiet"
    )
    feed(b"a,b,kind\n1,2,x\n2,red,y\n")
    assert advice not in refusal("run", "-", *TARGET, "--quiet")


def test_columns_left_out(folklearn, refusal, feed, tmp_path):
    text = "id,a,kind\n" + "".join(f"r{i},{i % 3},{'pq'[i % 2]}\n" for i in range(40))
    plain = "".join(line.partition(",")[2] + "\n" for line in text.splitlines())
    (tmp_path / "ids.csv").write_text(text)
    (tmp_path / "plain.csv").write_text(plain)
    drop = ["--drop", "id"]
    for source in (tmp_path / "ids.csv", "-"):
        feed(text.encode())
        without = folklearn("run", source, *TARGET, *drop, "-p", "-", "-f", tmp_path / "m")
        feed(plain.encode())
        other = "-" if source == "-" else tmp_path / "plain.csv"
        assert without.stdout == folklearn("run", other, *TARGET, "-p", "-").stdout
        assert load(tmp_path / "m").columns == ("a",)
        feed(text.encode())
        unknown = refusal("run", source, "-i", tmp_path / "m")
        assert unknown.endswith("the model does not know: id")
        feed(text.encode())
        assert folklearn("run", source, "-i", tmp_path / "m", *drop).code == 0
    ignored = folklearn("predict", tmp_path / "m", tmp_path / "ids.csv")
    assert "ignored   1 column unknown to the model: id" in ignored.stderr
    (tmp_path / "guesses.csv").write_text("p,q\n" + "0.5,0.5\n" * 40)
    for command in (
        ["compare", "--learners", "ogd"],
        ["bandit", "--agent", "banditron"],
        ["boost", "--weak", "naive-bayes", "--n-learners", "2"],
        ["audit", "-p", tmp_path / "guesses.csv"],
    ):
        said = folklearn(*command, tmp_path / "ids.csv", *TARGET, *drop).stderr
        assert "features  1 column, scaled on line, and a constant\n" in said
    lines = [f"{'pq'[i % 2]} | id{i}:1 a:{i % 3} x\n" for i in range(20)]
    drops = [word for i in range(20) for word in ("--drop", f"id{i}")]
    (tmp_path / "a.vw").write_text("".join(lines))
    for source in (tmp_path / "a.vw", "-"):
        feed("".join(lines).encode())
        assert folklearn("run", source, *drops, "-f", tmp_path / "v").code == 0
        assert load(tmp_path / "v").columns == ("a", "x")


def test_a_class_never_seen_has_a_column(folklearn, feed, pets, rows, tmp_path):
    feed(pets.read_bytes())
    folklearn("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "folklore")
    path = tmp_path / "p.csv"
    assert folklearn("predict", tmp_path / "m", pets, "-o", path).code == 0
    with open(path, encoding="utf-8", newline="") as file:
        header, *predicted = csv.reader(file)
    P = np.array([[float(cell) for cell in row[1:]] for row in predicted])
    assert header[-1] == "p(unseen)"
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(P[:, -1], load(tmp_path / "m").unseen_probability)
    audited = folklearn("audit", pets, *TARGET, "-p", path)
    assert audited.code == 0
    assert "The column p(unseen) was left out, the other probabilities divided" in audited.stderr
    true = [row[-1] for row in rows]
    known = P[:, :-1] / P[:, :-1].sum(axis=1, keepdims=True)
    p = known[np.arange(300), [header.index(f"p({label})") - 1 for label in true]]
    assert f"average log loss {-np.log(p).mean():.4f} nats" in audited.stderr
    path.write_text(path.read_text("utf-8").replace(f",{predicted[0][-1]}\n", ",0.5\n"), "utf-8")
    assert "the probabilities sum to 1.4" in folklearn("audit", pets, *TARGET, "-p", path).stderr
    rest = ["", *["0.0"] * 3, "1.0"]
    lines = [header, *[rest] * 300]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    assert "line 2 of" in folklearn("audit", pets, *TARGET, "-p", path).stderr
