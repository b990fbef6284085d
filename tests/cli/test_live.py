"""`folklearn run -`: one pass, classes as they come, every line answered at once."""

import contextlib
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

from folklearn import DataWarning, Model, load
from folklearn.cli.app import main
from folklearn.model.pipeline import OnlinePipeline
from tests.cli.test_app import COMMAND
from tests.cli.test_run import read_predictions, table_rows

TARGET = ["--target", "kind"]
posix = pytest.mark.skipif(os.name == "nt", reason="signals and pipes of POSIX")


@pytest.fixture
def feed(monkeypatch):
    """Let standard input hold these bytes."""

    def feed(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def read(text):
    lines = read_predictions(text)[0]
    header = list(lines[0])
    assert header[:6] == ["row", "label", "predicted", "probability", "p_label", "unseen"]
    numbers = np.array([[float(line[name]) for name in header[3:6]] for line in lines])
    return [line["label"] for line in lines], [line["predicted"] for line in lines], *numbers.T


@pytest.mark.parametrize("packed", [False, True])
def test_predictions_are_those_of_an_open_model(folklearn, feed, pets, rows, packed):
    content = pets.read_bytes()
    feed(gzip.compress(content) if packed else content)
    outcome = folklearn("run", "-", *TARGET, "--learner", "folklore", "-p", "-")
    assert outcome.code == 0
    true, predicted, best, p, u = read(outcome.stdout)
    assert outcome.stdout.startswith("row,label,predicted,probability,p_label,unseen\n")
    labels = list(dict.fromkeys(row[-1] for row in rows))
    y = [labels.index(row[-1]) for row in rows]
    X = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    P, unseen = OnlinePipeline("folklore", n_features=3).run(X, y)
    assert true == [row[-1] for row in rows]
    assert predicted == ["", *(labels[k] for k in P.argmax(axis=1)[1:])]
    np.testing.assert_allclose(u, unseen, atol=1e-9)
    np.testing.assert_allclose(best, (1.0 - unseen) * P.max(axis=1), atol=1e-9)
    expected = (1.0 - unseen) * P[np.arange(300), y]
    first = [y.index(k) for k in range(3)]
    expected[first] = unseen[first]
    np.testing.assert_allclose(p, expected, atol=1e-9)
    assert "data      standard input: read as it comes\n" in outcome.stderr
    assert "predicted kind, classes as they come\n" in outcome.stderr
    last = table_rows(outcome.stderr)[-1]
    assert (last[0], last[1]) == ("300", f"{-np.log(p).mean():.4f}")
    new = -np.log(unseen[first]).sum() - np.log1p(-np.delete(unseen, first)).sum()
    assert f"{new / 300:.4f} of the loss was paid for their being new" in outcome.stderr
    assert "Lower bound: every fixed linear model of the columns" in outcome.stderr


def test_a_run_goes_on_and_known_classes_stay_first(folklearn, feed, write_csv, rows, tmp_path):
    """From a file to standard input and back; new classes may come anywhere."""
    first = write_csv("first.csv", rows[:100])
    folklearn("run", first, *TARGET, "-f", tmp_path / "m", "--learner", "folklore")
    known = load(tmp_path / "m").labels
    rows[150][-1] = "bird"
    feed(write_csv("second.csv", rows[100:200]).read_bytes())
    second = folklearn("run", "-", "-i", tmp_path / "m", "-f", tmp_path / "m", "-p", "-")
    assert second.code == 0
    assert "classes as they come; known are 3 classes: " in second.stderr
    assert read_predictions(second.stdout)[1] == list(known)
    model = load(tmp_path / "m")
    assert (model.labels, model.n_rounds, model.is_open) == ((*known, "bird"), 200, True)
    rows[250][-1] = "fish"
    third = write_csv("third.csv", rows[200:])
    outcome = folklearn("run", third, "-i", tmp_path / "m", "-f", tmp_path / "m", "-p", "-")
    assert load(tmp_path / "m").labels == (*known, "bird", "fish")
    assert read(outcome.stdout)[0] == [row[-1] for row in rows[200:]]
    scored = folklearn("predict", tmp_path / "m", third)
    assert "unseen    a class that was never seen has the probability 0.0083" in scored.stderr
    header = scored.stdout.partition("\n")[0]
    assert header.endswith("p:bird,p:fish")


def test_features_and_weights_as_they_come(folklearn, refusal, feed, tmp_path):
    lines = [f"{'spam' if i % 3 else 'ham'} |w f{i % 7}:{i % 5} bias\n" for i in range(60)]
    feed("".join(lines).encode())
    outcome = folklearn("run", "-", "-f", tmp_path / "m", "--plot", tmp_path / "o.png")
    assert outcome.code == 0
    assert "features  those of the rows, as they come" in outcome.stderr
    names = load(tmp_path / "m").explain(importance=False).names
    assert {"w^bias", "w^f1", "w^f6"} <= set(names)
    feed(b"ham |w f0 f9\nspam 2 |w f0\n")
    assert "line 2 of standard input has the weight 2, and this model was made for" in refusal(
        "run", "-", "--quiet"
    )
    feed(b"ham |w f0 f9\nspam 2 |w f0\n")
    assert folklearn("run", "-", "--learner", "folklore", "-f", tmp_path / "m").code == 0
    assert load(tmp_path / "m").metrics.weight == 3.0


@pytest.fixture
def spoiled(pets):
    """The pets, with a row that cannot be read in line 201."""
    content = pets.read_bytes().splitlines(keepends=True)
    content[200] = b"1,2,x,y\n"
    return b"".join(content)


def test_a_bad_row_ends_the_run_and_the_model_is_kept(folklearn, feed, spoiled, pets, tmp_path):
    feed(spoiled)
    saved = tmp_path / "m"
    outputs = ["-f", saved, "-p", tmp_path / "p.csv", "--plot", tmp_path / "o.png"]
    outcome = folklearn("run", "-", *TARGET, *outputs)
    assert outcome.code == 2
    said = outcome.stderr.splitlines()[-1]
    assert said.startswith("folklearn: line 201 of standard input, column 'age': 'x' is not a num")
    assert "; to leave bad rows out: --on-bad-row skip; " in said
    assert said.endswith(f"the model of the 199 rows before it was saved to {saved}")
    assert load(saved).n_rounds == 199
    assert len(read((tmp_path / "p.csv").read_text("utf-8"))[0]) == 199
    assert sorted(os.listdir(tmp_path)) == ["m", "p.csv", "pets.csv"]


def test_a_bad_row_without_a_model_to_keep_leaves_nothing(folklearn, feed, spoiled, tmp_path):
    feed(spoiled)
    before = os.listdir(tmp_path)
    outcome = folklearn("run", "-", *TARGET, "-p", tmp_path / "p.csv", "--learner", "ogd")
    assert outcome.code == 2
    assert "was saved" not in outcome.stderr
    assert os.listdir(tmp_path) == before


@pytest.mark.parametrize("source", ["file", "pipe"])
def test_bad_rows_are_skipped_counted_and_written(folklearn, feed, spoiled, tmp_path, source):
    (tmp_path / "bad.csv").write_bytes(spoiled + b"1,2\n3,4,5,x,6\n")
    feed((tmp_path / "bad.csv").read_bytes())
    file = "-" if source == "pipe" else tmp_path / "bad.csv"
    skipped = tmp_path / "skipped.csv"
    options = ["--on-bad-row", "skip", "--bad-rows", skipped, "--learner", "ogd"]
    outcome = folklearn("run", file, *TARGET, *options, "-p", "-")
    assert outcome.code == 0
    assert ("bad       3 rows cannot be read\n" in outcome.stderr) == (source == "file")
    assert "; 3 bad rows skipped.\n" in outcome.stderr
    assert "201" not in [line["row"] for line in read_predictions(outcome.stdout)[0]]
    assert skipped.read_text("utf-8").splitlines() == [
        "line,column,reason,text",
        "201,age,'x' is not a number,\"1,2,x,y\"",
        '302,,"it has 2 cells, the header 4","1,2"',
        '303,,"it has 5 cells, the header 4","3,4,5,x,6"',
    ]
    assert outcome.stderr.splitlines()[-2] == f"Wrote the bad rows to {skipped}."


def test_a_file_is_checked_before_anything_is_learned(folklearn, spoiled, tmp_path):
    (tmp_path / "bad.csv").write_bytes(spoiled)
    outcome = folklearn("run", tmp_path / "bad.csv", *TARGET, "-f", tmp_path / "m")
    assert outcome.code == 2
    assert not (tmp_path / "m").exists()
    options = ["-f", tmp_path / "m", "--one-pass"]
    once = folklearn("run", tmp_path / "bad.csv", *TARGET, *options)
    assert "the model of the 199 rows before it was saved to" in once.stderr


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (b"a,kind\n1,x\n", [], "which column of standard input holds the class? Name it: --target"),
        (b"a,kind\n", TARGET, "standard input has no rows"),
        (b"a,kind\n1,\n2,\n", TARGET, "standard input has no row with a label"),
        (b"", TARGET, "standard input is empty; expected a header"),
        (b"a,kind\n1,x\n", [*TARGET, "--learner", "ons"], "ons must know all classes beforehand"),
        (b"a,kind\n1,x\n", [*TARGET, "--format", "xls"], "there is no format 'xls'"),
        (b"PAR1", TARGET, "standard input cannot be read: "),
    ],
)
def test_what_is_refused(refusal, feed, content, arguments, sentence):
    feed(content)
    assert refusal("run", "-", "--quiet", *arguments).startswith(sentence)


def test_a_saved_model_needs_its_columns(folklearn, refusal, feed, pets, tmp_path):
    folklearn("run", pets, *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    feed(b"weight (kg),age,kind\n1,2,x\n")
    assert "lacks columns of the model: 'größe [red]'" in refusal("run", "-", "-i", tmp_path / "m")


def test_one_class_alone(folklearn, feed, tmp_path):
    feed(b"a,kind\n1,x\n2,x\n")
    outcome = folklearn("run", "-", *TARGET, "-f", tmp_path / "m")
    assert outcome.code == 0
    assert "Nothing is proven before there is a second class." in outcome.stderr
    feed(b"a,kind\n1,x\n2,y\n")
    assert folklearn("run", "-", "-i", tmp_path / "m", "-f", tmp_path / "m").code == 0
    assert load(tmp_path / "m").labels == ("x", "y")


def test_categories_and_gaps(folklearn, feed, tmp_path):
    text = "size,colour,zip,kind\n" + "1,red,10115,a\n?,blue,80331,b\n3,NA,10115,a\n" * 20
    path = tmp_path / "t.csv"
    path.write_text(text)
    said = "\ncategory  colour, zip\n"
    gaps = "missing   40 values in size, colour; a missing number counts as the mean of its column"
    options = [*TARGET, "--role", "zip=category", "--missing", "NA", "--missing", "x"]
    outcome = folklearn("run", path, *options, "-f", tmp_path / "m", "--learner", "folklore")
    assert load(tmp_path / "m").missing == ("NA", "x")
    assert said in outcome.stderr
    assert gaps in outcome.stderr
    told = "Warning: taken for a missing value: '?' in 'size'; for a category of its own"
    assert outcome.stderr.count(told) == 1
    feed(text.encode())
    outcome = folklearn("run", "-", *options, "--learner", "folklore")
    assert said in outcome.stderr
    assert outcome.stderr.count(told) == 1
    new = tmp_path / "new.csv"
    new.write_text("zip,colour,size\n10115,7,\n80331,,3\n")
    outcome = folklearn("predict", tmp_path / "m", new)
    rows = [{"size": None, "colour": "7", "zip": "10115"}, {"size": 3.0, "zip": "80331"}]
    with pytest.warns(DataWarning, match=r"1 row has a value of 'colour' .* \(7\)"):
        P = load(tmp_path / "m").predict_proba(rows)
    np.testing.assert_allclose(read_predictions(outcome.stdout)[2], P, atol=1e-12)
    assert folklearn("run", path, "-i", tmp_path / "m").code == 0
    guesses = tmp_path / "guesses.csv"
    guesses.write_text("a,b\n" + "0.5,0.5\n" * 60)
    audited = folklearn("audit", path, *options, "-p", guesses)
    assert "categories as 0 or 1" in audited.stderr


def test_parquet_is_copied(folklearn, feed, rows):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    sizes = [float(row[0]) for row in rows]
    pq.write_table(pa.table({"a": sizes, "kind": [row[-1] for row in rows]}), sink)
    feed(sink.getvalue())
    outcome = folklearn("run", "-", *TARGET, "--learner", "ogd")
    assert "data      standard input: 300 rows\n" in outcome.stderr


@pytest.fixture
def started():
    """Start the command line with pipes, to be killed if a test fails."""
    processes = []

    def start(*arguments):
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Whoever runs the tests may ignore signals, and children inherit that.
            preexec_fn=_hear_signals,
        )
        guard = threading.Timer(120.0, process.kill)
        guard.start()
        processes.append((process, guard))
        return process

    yield start
    for process, guard in processes:
        guard.cancel()
        process.kill()
        with process:
            pass


def _hear_signals():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def say(process, text):
    process.stdin.write(text.encode())
    process.stdin.flush()


def pairs(n):
    return "".join(f"{i % 2},{'cat' if i % 2 else 'dog'}\n" for i in range(n))


@posix
def test_every_line_is_answered_at_once(started):
    """Each line is written only after the one before it was answered: no clock is needed."""
    process = started("run", "-", *TARGET, "-p", "-", "--quiet", "--learner", "ogd")
    say(process, "a,kind\n")
    answers = []
    for number in range(40):
        say(process, f"{number % 2},{'cat' if number % 2 else 'dog'}\n")
        if not number:
            assert process.stdout.readline().startswith(b"row,label,predicted")
        answers.append(process.stdout.readline().decode().split(","))
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.stderr.read() == b""
    assert process.wait() == 0
    assert [answer[1] for answer in answers] == ["dog", "cat"] * 20
    assert [answer[2] for answer in answers[-4:]] == ["dog", "cat"] * 2


@posix
def test_predict_answers_line_by_line(folklearn, started, tmp_path):
    (tmp_path / "t.csv").write_text(f"a,kind\n{pairs(40)}")
    folklearn("run", tmp_path / "t.csv", *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    process = started("predict", tmp_path / "m", "-", "--quiet")
    say(process, "id,a\n")
    for number in range(5):
        say(process, f"r{number},{number % 2}\n")
        if not number:
            assert process.stdout.readline() == b"row,predicted,probability,unseen,p:dog,p:cat\n"
        answer = process.stdout.readline().decode().split(",")
        assert answer[:2] == [str(number + 2), "cat" if number % 2 else "dog"]
    process.stdin.close()
    assert process.wait() == 0


@posix
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_stream(started, tmp_path, sent, code):
    """While it waits for more; what was learned is saved."""
    process = started("run", "-", *TARGET, "-p", "-", "--learner", "ogd", "-f", tmp_path / "m")
    say(process, f"a,kind\n{pairs(40)}")
    for _ in range(41):
        process.stdout.readline()
    process.send_signal(sent)
    process.wait()
    said = process.stderr.read().decode()
    assert process.returncode == code
    assert "Traceback" not in said
    assert "\nInterrupted: the stream ends here.\nLearned 40 rows in " in said
    assert said.splitlines()[-1].startswith("Over all 40 rows: error ")
    assert load(tmp_path / "m").n_rounds == 40
    assert os.listdir(tmp_path) == ["m"]


@posix
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_anything_was_learned(started, tmp_path, sent, code):
    process = started("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    say(process, "a,kind\n1,x\n")
    for line in process.stderr:
        if line.startswith(b"loss:"):
            break
    say(process, "")
    process.send_signal(sent)
    process.wait()
    assert process.returncode == code
    assert b"Traceback" not in process.stderr.read()


@posix
def test_a_checkpoint_survives_being_killed(started, tmp_path):
    options = ["--checkpoint", "0s", "-f", tmp_path / "m", "-p", "-", "--learner", "ogd"]
    process = started("run", "-", *TARGET, *options)
    say(process, f"a,kind\n{pairs(40)}")
    for _ in range(41):
        process.stdout.readline()
    say(process, "1,cat\n")
    process.stdout.readline()  # by now the rows before are kept
    process.kill()
    process.wait()
    assert 40 <= load(tmp_path / "m").n_rounds <= 41
    # What lies beside it is what was being written.
    assert all(name.startswith(".m.") for name in os.listdir(tmp_path) if name != "m")


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


def test_weights_that_are_all_0(folklearn, feed, tmp_path):
    feed(b"1 0.0 | a:1\n2 0.0 | b:1\n")
    outcome = folklearn("run", "-", "--learner", "folklore", "-f", tmp_path / "m")
    assert outcome.code == 2
    said = outcome.stderr.splitlines()[-1]
    assert said == "folklearn: every row of standard input has the weight 0"
    assert os.listdir(tmp_path) == []


@posix
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


@posix
def test_a_closed_standard_output_that_nobody_needs(pets):
    call = shlex.join([*COMMAND, "run", str(pets), *TARGET, "--learner", "ogd", "--quiet"])
    done = subprocess.run(["sh", "-c", f"{call} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def heard():
    """Whoever runs the tests may ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@posix
@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_does_not_cut_a_block(
    folklearn, write_csv, rows, tmp_path, monkeypatch, sent, code
):
    learn_table = Model._learn_table

    def interrupted(self, *arguments, **named):
        if self.n_rounds == 64:
            os.kill(os.getpid(), sent)
        return learn_table(self, *arguments, **named)

    path = write_csv("t.csv", rows)
    monkeypatch.setattr(Model, "_learn_table", interrupted)
    outcome = folklearn("run", path, *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    assert outcome.code == code
    assert load(tmp_path / "m").n_rounds == 128
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@posix
@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_model_is_saved(folklearn, pets, tmp_path, monkeypatch, sent, code):
    save = Model.save

    def interrupted(self, path):
        os.kill(os.getpid(), sent)
        save(self, path)

    monkeypatch.setattr(Model, "save", interrupted)
    outcome = folklearn("run", pets, *TARGET, "-f", tmp_path / "m", "--learner", "ogd")
    assert outcome.code == code
    assert load(tmp_path / "m").n_rounds == 300
    assert sorted(os.listdir(tmp_path)) == ["m", "pets.csv"]


@posix
@pytest.mark.usefixtures("heard")
def test_ctrl_c_twice_while_a_block_is_learned(folklearn, feed, tmp_path, monkeypatch):
    def interrupted(self, *arguments, **named):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Model, "_learn_table", interrupted)
    feed(b"a,kind\n1,x\n2,y\n")
    outcome = folklearn("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "ogd", "--quiet")
    assert (outcome.code, os.listdir(tmp_path)) == (130, [])
    assert outcome.stderr == "folklearn: interrupted: nothing was written\n"


def test_the_first_rows_decide_what_a_column_is(refusal, feed):
    feed(b"a,b,kind\n1,2,x\n" * 1)
    feed(b"a,b,kind\n" + b"1,2,x\n2,3,y\n" * 600 + b"2,red,y\n")
    said = refusal("run", "-", *TARGET, "--quiet")
    assert "'red' is not a number; for a column of text: --role b=category" in said


def test_columns_left_out(folklearn, feed, tmp_path):
    text = "note,a,kind\n" + "".join(f"r{i % 5},{i % 3},{'pq'[i % 2]}\n" for i in range(40))
    plain = "".join(line.partition(",")[2] + "\n" for line in text.splitlines())
    (tmp_path / "notes.csv").write_text(text)
    (tmp_path / "plain.csv").write_text(plain)
    drop = ["--drop", "note"]
    for source in (tmp_path / "notes.csv", "-"):
        feed(text.encode())
        without = folklearn("run", source, *TARGET, *drop, "-p", "-", "-f", tmp_path / "m")
        feed(plain.encode())
        other = "-" if source == "-" else tmp_path / "plain.csv"
        assert without.stdout == folklearn("run", other, *TARGET, "-p", "-").stdout
        assert load(tmp_path / "m").encoder.learned == ["a"]
        feed(text.encode())
        assert folklearn("run", source, "-i", tmp_path / "m").code == 0
    (tmp_path / "guesses.csv").write_text("p,q\n" + "0.5,0.5\n" * 40)
    audit = "audit", "-p", tmp_path / "guesses.csv"
    said = folklearn(*audit, tmp_path / "notes.csv", *TARGET, *drop).stderr
    assert "\nnumber    a\nignored   note\n" in said


def test_predictions_of_an_open_model_can_be_audited(folklearn, feed, pets, rows, tmp_path):
    feed(pets.read_bytes())
    folklearn("run", "-", *TARGET, "-f", tmp_path / "m", "--learner", "folklore")
    path = tmp_path / "p.csv"
    assert folklearn("predict", tmp_path / "m", pets, "-o", path).code == 0
    lines, labels, P = read_predictions(path.read_text("utf-8"))
    unseen = np.array([float(line["unseen"]) for line in lines])
    np.testing.assert_allclose(P.sum(axis=1) + unseen, 1.0, atol=1e-12)
    np.testing.assert_array_equal(unseen, load(tmp_path / "m").unseen_probability)
    audited = folklearn("audit", pets, *TARGET, "-p", path)
    assert audited.code == 0
    assert "The column unseen was left out, the other probabilities divided" in audited.stderr
    known = P / P.sum(axis=1, keepdims=True)
    p = known[np.arange(300), [labels.index(row[-1]) for row in rows]]
    assert f"average log loss {-np.log(p).mean():.4f} nats" in audited.stderr
    u = lines[0]["unseen"]
    path.write_text(path.read_text("utf-8").replace(f",{u},", ",0.5,"), "utf-8")
    assert "the probabilities sum to 1.4" in folklearn("audit", pets, *TARGET, "-p", path).stderr
    header = ",".join(f'"p:{label}"'.replace('"dog"', '""dog""') for label in labels)
    path.write_text(f"unseen,{header}\n" + "1.0,0,0,0\n" * 300, "utf-8")
    assert "no class but an unseen one" in folklearn("audit", pets, *TARGET, "-p", path).stderr
