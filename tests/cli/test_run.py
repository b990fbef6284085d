"""`folklearn run`: what it learns is what the library learns, and what it says is true."""

import csv
import gzip
import io
import re

import numpy as np
import pytest

from folklearn import Folklore, Model, load
from folklearn.cli.options import LEARNERS
from folklearn.metrics.scores import score
from folklearn.scaler import OnlineScaler
from tests.cli.conftest import KINDS

TARGET = ["--target", "kind"]
FOLKLORE = ["--learner", "folklore"]
COLUMNS = ["predicted", "probability", "p_label", "unseen"]


def read_predictions(text):
    """The lines of a file of predictions as dictionaries, and the probabilities of classes."""
    lines = list(csv.DictReader(io.StringIO(text)))
    names = [name for name in lines[0] if name.startswith("p:")]
    P = np.array([[float(line[name]) for name in names] for line in lines])
    return lines, [name.removeprefix("p:") for name in names], P


def table_rows(stderr):
    """The lines of the table as lists of cells."""
    lines = [line.split() for line in stderr.splitlines()]
    return [cells for cells in lines if len(cells) == 5 and cells[0].isdecimal()]


def test_predictions_are_those_of_the_library(folklearn, pets, as_arrays, rows, tmp_path):
    X, y, labels = as_arrays
    outcome = folklearn("run", pets, *TARGET, *FOLKLORE, "-p", tmp_path / "p.csv")
    assert outcome.code == 0
    assert outcome.stdout == ""
    learner = Folklore(
        n_features=4,
        n_classes=3,
    )
    expected = learner.run(OnlineScaler(n_features=3).learn_transform(X), y)
    lines, found, P = read_predictions((tmp_path / "p.csv").read_text("utf-8"))
    assert found == list(dict.fromkeys(row[-1] for row in rows))  # as they appear
    assert list(lines[0]) == ["row", "label", *COLUMNS, *(f"p:{label}" for label in found)]
    assert [line["row"] for line in lines] == [str(number) for number in range(2, 302)]
    assert [line["label"] for line in lines] == [labels[k] for k in y]
    order = [labels.index(label) for label in found]
    np.testing.assert_allclose(P, expected[:, order], rtol=0, atol=1e-9)
    best = [labels[k] for k in expected.argmax(axis=1)]
    assert [line["predicted"] for line in lines][1:] == best[1:]  # the first is a tie
    most = [float(line["probability"]) for line in lines]
    np.testing.assert_allclose(most, expected.max(axis=1), atol=1e-9)
    given = [float(line["p_label"]) for line in lines]
    np.testing.assert_allclose(given, expected[np.arange(300), y], atol=1e-9)
    assert {line["unseen"] for line in lines} == {"0.0"}


def test_the_table_tells_the_losses_of_the_library(folklearn, pets, as_arrays):
    X, y, _ = as_arrays
    outcome = folklearn("run", pets, *TARGET, "--learner", "folklore")
    rows = table_rows(outcome.stderr)
    assert [int(row[0]) for row in rows] == [64, 128, 256, 300]
    learner = Folklore(n_features=4, n_classes=3)
    P = learner.run(OnlineScaler(n_features=3).learn_transform(X), y)
    losses = -np.log(P[np.arange(300), y])
    for row in rows:
        n = int(row[0])
        assert float(row[1]) == pytest.approx(losses[:n].mean(), abs=6e-5)
        assert (row[2] == "-") == (n == 64)
        wrong = np.mean(P[:n].argmax(axis=1) != y[:n])
        assert float(row[3].rstrip("%")) == pytest.approx(
            100 * wrong, abs=101 / n
        )  # the first row is a tie
    last = outcome.stderr.splitlines()[-1]
    averages = f"log loss {losses.mean():.4f}, Brier score {score(P, y).brier:.4f}."
    assert last == f"Over all 300 rows: error {rows[-1][3]}, average {averages}"


def test_the_first_screen_has_no_jargon(folklearn, pets):
    said = folklearn("run", pets, *TARGET).stderr
    assert said.startswith(f"data      {pets}: 300 rows\n")
    assert "predicted kind, 3 classes: " in said
    assert "number    'weight (kg)', 'größe [red]', age\n" in said
    assert "loss: average log loss, each row predicted before it was learned; hold-out: " in said
    assert "Lower bound: every fixed linear model of the columns" in said
    assert "In hindsight: a logistic regression of the columns" in said
    for word in ("regret", "scaled", "certificate", "expert", "auto", "round"):
        assert word not in said.lower()


def test_options_reach_the_learner_and_are_echoed(folklearn, pets, tmp_path):
    settings = ["--set", "R=2", "--set", "lam=0.7", "--set", "gamma=0.01", "--learner", "folklore"]
    folklearn("run", pets, *TARGET, *settings, "--save", tmp_path / "m")
    learner = load(tmp_path / "m").pipeline.learner
    assert (learner.R, learner.lam, learner.gamma) == (2.0, 0.7, 0.01)
    said = folklearn("inspect", tmp_path / "m").stdout
    assert "learner   folklore, R=2, gamma=0.01, lam=0.7\n" in said
    folklearn("run", pets, *TARGET, "--set", "R=2", "--terms", "none", "--save", tmp_path / "m")
    assert load(tmp_path / "m").pipeline.learner.R == 2.0


def test_names_are_shown_as_they_are(folklearn, pets):
    stderr = folklearn("run", pets, *TARGET).stderr
    assert "[bold]cat" in stderr
    assert "犬" in stderr


def test_the_digits_need_no_file(folklearn):
    outcome = folklearn("run", "--learner", "folklore")
    assert outcome.code == 0
    assert "learning" not in outcome.stderr  # no bar, this is not a terminal
    rows = table_rows(outcome.stderr)
    assert rows[-1][0] == "1797"
    assert float(rows[-1][1]) < 0.5
    assert re.search(
        r"Lower bound: every fixed linear model of the columns .* has an average log loss of at "
        r"least 0\.\d+ on these rows, its penalty \(C = 1\) counted; this model had 0\.\d+",
        outcome.stderr,
    )


def test_a_short_run_has_a_bound_by_the_penalty(folklearn, write_csv, rows):
    path = write_csv("short.csv", rows[:4])
    said = folklearn("run", path, *TARGET).stderr
    assert 0.0 < float(re.search(r"of at least (0\.\d+) on these rows, its penalty", said)[1]) < 0.7


def test_the_bound_does_not_depend_on_the_learner(folklearn, pets, tmp_path):
    """It is a property of the rows: learners without a certificate of their own have it too."""
    classic = "--learner", "folklore", "--set"
    said = [folklearn("run", pets, *TARGET).stderr]
    said.append(folklearn("run", pets, *TARGET, *classic, "gamma=0.5").stderr)
    said.append(folklearn("run", pets, *TARGET, *classic, "memory=50", "-f", tmp_path / "m").stderr)
    assert load(tmp_path / "m").pipeline.learner.memory == 50
    bounds = [re.search(r"of at least (0\.\d+) on these rows", one)[1] for one in said]
    assert [float(one) for one in bounds] == pytest.approx([float(bounds[0])] * 3, rel=1e-2)


def test_quiet_says_nothing(folklearn, pets, tmp_path):
    outcome = folklearn("run", pets, *TARGET, "--quiet", "--save", tmp_path / "m")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")
    assert (tmp_path / "m").exists()


def test_predictions_to_standard_output_and_to_nowhere(folklearn, pets, tmp_path):
    folklearn("run", pets, *TARGET, "-p", tmp_path / "p.csv")
    outcome = folklearn("run", pets, *TARGET, "-p", "-")
    assert outcome.stdout == (tmp_path / "p.csv").read_text("utf-8")
    nowhere = folklearn("run", pets, *TARGET, "-p", "/dev/null")
    assert (nowhere.code, nowhere.stdout) == (0, "")


def test_save_and_load_equal_one_uninterrupted_run(
    folklearn, pets, write_csv, rows, columns, tmp_path
):
    """Cut where a block ends; the second part has its columns in another order."""
    first = write_csv("first.csv", rows[:128])
    order = [3, 1, 0, 2]
    names = [columns[i] for i in order]
    second = write_csv("second.csv", [[row[i] for i in order] for row in rows[128:]], names)
    whole = folklearn("run", pets, *TARGET, "-p", "-", "--save", tmp_path / "whole")
    start = folklearn("run", first, *TARGET, "-p", "-", "--save", tmp_path / "part")
    end = folklearn(
        "run", second, "--load", tmp_path / "part", "-p", "-", "--save", tmp_path / "part"
    )
    assert end.code == 0
    P = read_predictions(whole.stdout)[2]
    parts = [read_predictions(part.stdout)[2] for part in (start, end)]
    np.testing.assert_array_equal(np.vstack(parts), P)
    one, other = load(tmp_path / "part"), load(tmp_path / "whole")
    assert (one.metrics.loss, one.metrics.holdout_loss, one.metrics.n_errors) == (
        other.metrics.loss, other.metrics.holdout_loss, other.metrics.n_errors,
    )  # fmt: skip
    assert "after 128 rows; the table counts the new ones" in end.stderr
    lines, _, P = read_predictions(end.stdout)
    loss = np.mean([-np.log(float(line["p_label"])) for line in lines])
    error = np.mean([line["predicted"] != line["label"] for line in lines])
    rows, *cells = table_rows(end.stderr)[-1]
    assert (rows, cells[0], cells[2]) == (str(len(P)), f"{loss:.4f}", f"{error:.2%}")
    assert end.stderr.splitlines()[-1] == whole.stderr.splitlines()[-1]  # over all rows


def test_a_cut_anywhere_else_agrees_closely(folklearn, pets, write_csv, rows, tmp_path):
    first, second = write_csv("first.csv", rows[:101]), write_csv("second.csv", rows[101:])
    folklearn("run", first, *TARGET, "--save", tmp_path / "m")
    end = folklearn("run", second, *TARGET, "--load", tmp_path / "m", "-p", "-")
    whole = folklearn("run", pets, *TARGET, "-p", "-")
    np.testing.assert_allclose(
        read_predictions(end.stdout)[2], read_predictions(whole.stdout)[2][101:], atol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "magic"),
    [("out.png", b"\x89PNG\r\n\x1a\n"), ("out.PDF", b"%PDF"), ("o.svg", b"<?xml")],
)
def test_plots(folklearn, pets, tmp_path, name, magic):
    outcome = folklearn("run", pets, *TARGET, "--plot", tmp_path / name)
    assert outcome.code == 0
    assert (tmp_path / name).read_bytes().startswith(magic)


@pytest.mark.parametrize("settings", [["--terms", "none"], ["--learner", "ogd"], ["--windows"]])
def test_a_plot_of_very_few_rounds(folklearn, write_csv, rows, tmp_path, settings):
    """The name of the file would be a formula, in a script without glyphs, if drawn naively."""
    one_of_each = {row[-1]: row for row in rows}.values()
    path = write_csv("犬 $x_$.csv", one_of_each)
    plot = tmp_path / "out.png"
    assert folklearn("run", path, *TARGET, "--plot", plot, *settings).code == 0
    assert plot.stat().st_size > 10_000


@pytest.fixture
def two_kinds(write_csv, rows):
    """The pets without the dogs: what every learner can learn."""
    return write_csv("two.csv", [row for row in rows if row[-1] != KINDS[1]])


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_runs_saves_and_goes_on(folklearn, two_kinds, tmp_path, name):
    arguments = ["run", two_kinds, *TARGET]
    first = folklearn(*arguments, "--learner", name, "-f", tmp_path / "m", "-p", tmp_path / "p")
    assert first.code == 0
    model = load(tmp_path / "m")
    lines, _, P = read_predictions((tmp_path / "p").read_text("utf-8"))
    assert len(P) == model.n_rounds
    given = [float(line["p_label"]) for line in lines]
    assert -np.log(given).sum() == pytest.approx(model.metrics.loss, rel=1e-9)
    certificate = model.certificate()
    if not certificate.valid:
        assert f"Nothing is proven: {certificate.reason}." in " ".join(first.stderr.split())
    again = folklearn(*arguments, "-i", tmp_path / "m", "-f", tmp_path / "m", "-p", "-")
    assert again.code == 0
    assert f"after {len(P)} rows" in again.stderr
    assert load(tmp_path / "m").n_rounds == 2 * len(P)
    assert table_rows(again.stderr)[-1][0] == str(len(P))


def test_roles_are_found_shown_and_changed(folklearn, refusal, tmp_path):
    lines = ["id,size,zip,text,day,kind"]
    for i in range(60):
        text = f"so very nice a thing {i}" if i % 2 else f"what a bad one it is {i}"
        lines.append(f"{i},{i % 7},{10115 + i % 3},{text},2024-05-{1 + i % 28:02},{'ab'[i % 2]}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    said = folklearn("run", path, *TARGET).stderr
    for line in ("number    size, zip", "words     text", "date      day"):
        assert f"\n{line}\n" in said
    assert "\nid        id  (carried along, not learned from)\n" in said
    changed = ["--role", "zip=category", "--role", "text=ignored", "--drop", "day"]
    said = folklearn("run", path, *TARGET, *changed, "-f", tmp_path / "m", "-p", "-")
    assert "\nnumber    size\ncategory  zip\n" in said.stderr
    assert "\nignored   text, day\n" in said.stderr
    assert said.stdout.startswith("row,id,label,predicted,")
    assert said.stdout.splitlines()[3].startswith("4,2,a,")
    assert load(tmp_path / "m").roles == {
        "id": "id", "size": "number", "zip": "category", "text": "ignored", "day": "ignored",
        "kind": "target",
    }  # fmt: skip
    again = folklearn("run", path, "-i", tmp_path / "m")  # as it is already
    assert "\nignored   text, day\n" in again.stderr
    assert refusal("run", path, "-i", tmp_path / "m", "--drop", "size") == (
        "--drop cannot be combined with --load"
    )


def test_crosses_are_learned_and_remembered(folklearn, refusal, tmp_path, rng):
    path = tmp_path / "xor.csv"
    cells = rng.integers(2, size=(400, 2)).tolist()
    path.write_text("a:x,b,kind\n" + "".join(f"{'pq'[a]},{'rs'[b]},{a ^ b}\n" for a, b in cells))
    options = *TARGET, "--terms", "none", "-f", tmp_path / "m"
    alone = folklearn("run", path, *options)
    assert float(table_rows(alone.stderr)[-1][3].rstrip("%")) > 30.0
    crossed = folklearn("run", path, *options, "--cross", "a:x:b")
    assert "\ncrosses   a:x:b\n" in crossed.stderr
    assert float(table_rows(crossed.stderr)[-1][3].rstrip("%")) < 10.0
    assert load(tmp_path / "m").crosses == [("a:x", "b")]
    assert "\ncrosses   a:x:b\n" in folklearn("run", path, "-i", tmp_path / "m").stderr
    assert refusal("run", path, *TARGET, "--cross", "b:c").startswith("--cross 'b:c' must be A:B")


def test_classes_that_are_known_in_advance(folklearn, refusal, pets, rows, tmp_path):
    names = tmp_path / "classes.txt"
    names.write_text("bird\n\n" + "\n".join(KINDS) + "\n", "utf-8")
    options = ["--one-pass", "--classes", names, "-p", "-"]
    outcome = folklearn("run", pets, *TARGET, *options, "-f", tmp_path / "m")
    lines, found, P = read_predictions(outcome.stdout)
    assert found == ["bird", *KINDS]
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
    assert {line["unseen"] for line in lines} == {"0.0"}
    assert load(tmp_path / "m").labels == ("bird", *KINDS)
    said = refusal("run", pets, *TARGET, "--classes", names, "-f", names)
    assert "it would replace the input" in said
    assert folklearn("run", pets, *TARGET, *options, "--learner", "ons").code == 0
    names.write_text("\n")
    assert "is empty; expected one label a line" in refusal(
        "run", pets, *TARGET, "--classes", names
    )


def test_weights_of_a_column(folklearn, refusal, tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("a,w,kind\n" + "1,2,x\n2,1,y\n3,,x\n" * 20)
    weighed = folklearn("run", path, *TARGET, "--weight", "w", "-f", tmp_path / "m")
    assert weighed.code == 0
    assert load(tmp_path / "m").metrics.weight == 80.0
    folklearn("run", path, *TARGET, "--role", "w=weight", "-f", tmp_path / "n")
    assert load(tmp_path / "n").metrics.loss == load(tmp_path / "m").metrics.loss
    path.write_text("a,w,kind\n1,2,x\n2,-1,y\n3,1,x\n")
    assert "line 3 of" in refusal("run", path, *TARGET, "--weight", "w", "--quiet")
    skipped = folklearn("run", path, *TARGET, "--weight", "w", "--on-bad-row", "skip")
    assert "Learned 2 rows in " in skipped.stderr
    assert "; 1 bad row skipped." in skipped.stderr


def test_rare_classes_are_spoken_of_and_weighed(folklearn, refusal, tmp_path, rng):
    """Nothing where classes are balanced: `test_the_table_tells_the_losses_of_the_library`."""
    x = rng.normal(size=500)
    kinds = np.where(x + rng.logistic(size=500) > 3.0, "fraud=", "ok")
    path, saved = tmp_path / "f.csv", tmp_path / "m"
    lines = [f"{value},{kind}" for value, kind in zip(x, kinds, strict=True)]
    path.write_text("\n".join(["x,kind", *lines]))
    last = folklearn("run", path, *TARGET, *FOLKLORE, "-f", saved).stderr.splitlines()[-1]
    one = load(saved).metrics.by_class()[load(saved).labels.index("fraud=")]
    assert last == (
        f"fraud=: {sum(kinds == 'fraud=')} of 500 rows; AUC {one.auc:.3f}, average precision "
        f"{one.average_precision:.3f}, recall {one.recall:.1%}, precision {one.precision:.1%}."
    )
    assert f"rare      {last}" in folklearn("inspect", saved).stdout
    for option, class_weight in (["fraud==7.5"], {"fraud=": 7.5}), (["balanced"], "balanced"):
        options = "--class-weight", *option, "-f", saved
        assert folklearn("run", path, *TARGET, *FOLKLORE, *options).code == 0
        expected = Model("folklore", class_weight=class_weight)
        expected.run(str(path), "kind")
        assert load(saved).metrics.loss == expected.metrics.loss
        assert load(saved).metrics.n_errors == expected.metrics.n_errors
    run = "run", path, *TARGET, "--quiet", "--class-weight"
    sentence = "--class-weight 'Fraud': there is no such class; the classes are: "
    assert refusal(*run, "Fraud=2").startswith(sentence)
    assert "must be a label and a number: LABEL=N" in refusal(*run, "fraud=much")
    assert "needs all labels first" in refusal(*run, "balanced", "--one-pass")
    assert "--class-weight cannot be combined with --load" in refusal(*run, "ok=2", "-i", saved)


def test_sorted_labels_are_warned_of_and_shuffled(folklearn, write_csv, rows, tmp_path):
    path = write_csv("sorted.csv", sorted(rows, key=lambda row: row[-1]))
    said = folklearn("run", path, *TARGET)
    assert said.stderr.count("Warning: the labels come sorted") == 1
    assert "--shuffle" in said.stderr
    assert folklearn("run", path, *TARGET, "--quiet").stderr == ""
    shuffled = folklearn("run", path, *TARGET, "--shuffle", "-p", "-")
    assert "Warning" not in shuffled.stderr
    lines, _, _ = read_predictions(shuffled.stdout)
    numbers = [int(line["row"]) for line in lines]
    assert numbers != sorted(numbers)
    assert sorted(numbers) == list(range(2, 302))
    again = folklearn("run", path, *TARGET, "--shuffle", "-p", "-")
    assert again.stdout == shuffled.stdout
    assert folklearn("run", path, *TARGET, "--shuffle", "--seed", "1", "-p", "-") != again


def test_rows_without_a_label_are_predicted_only(folklearn, pets, write_csv, rows, tmp_path):
    rows[10][-1] = rows[11][-1] = ""
    path = write_csv("some.csv", rows)
    outcome = folklearn("run", path, *TARGET, "-f", tmp_path / "m", "-p", "-")
    assert "no label  2 rows where it is empty: pred" in outcome.stderr
    assert "Learned 298 rows in " in outcome.stderr
    assert "; 2 rows without a label predicted only." in outcome.stderr
    assert load(tmp_path / "m").n_rounds == 298
    lines, _, P = read_predictions(outcome.stdout)
    assert [lines[10]["label"], lines[10]["p_label"]] == ["", ""]
    assert lines[10]["predicted"] in KINDS
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)


def test_a_model_that_goes_out_of_date_is_warned_of(folklearn, tmp_path):
    """Labels that a constant follows, and that the rows do not tell: the frozen model is lost."""
    path = tmp_path / "turns.csv"
    rows = "".join(f"{i % 2},{'xy'[i // 60 % 2]}\n" for i in range(3000))
    path.write_text(f"a,kind\n{rows}")
    said = folklearn("run", path, *TARGET).stderr
    assert "Warning: the saved model will do worse than the running one." in said
    loss, frozen = map(float, table_rows(said)[-1][1:3])
    assert frozen > 1.2 * loss + 0.05


def test_windows(folklearn, pets, tmp_path):
    outcome = folklearn("run", pets, *TARGET, "--windows", "-f", tmp_path / "m")
    model = load(tmp_path / "m")
    shown = [line.split() for line in outcome.stderr.splitlines()]
    shown = [cells for cells in shown if len(cells) == 4 and cells[0].isdecimal()]
    windows = model.windows()
    assert [int(cells[0]) for cells in shown] == [window.n_rounds for window in windows]
    for cells, window in zip(shown, windows, strict=True):
        assert float(cells[1]) == pytest.approx(window.loss / window.n_rounds, abs=6e-5)
        assert (cells[2] == "-") == (window.lower_bound <= 0.0)


def test_alarms_are_said_as_they_come(folklearn, tmp_path, rng):
    """Labels that follow the column, and from row 3000 on nothing."""
    x = rng.integers(2, size=5000)
    labels = np.where(np.arange(5000) < 3000, x, rng.integers(2, size=5000))
    path = tmp_path / "breaks.csv"
    path.write_text(
        "a,kind\n" + "".join(f"{a},{'xy'[b]}\n" for a, b in zip(x, labels, strict=True))
    )
    said = folklearn("run", path, *TARGET, "--monitor", "-f", tmp_path / "m").stderr
    (alarm,) = load(tmp_path / "m").monitor().alarms
    assert 2900 < alarm.since < alarm.row < 3300
    assert f"\n{alarm.in_words()}\n" in said
    assert said.index(alarm.in_words()) < said.index("Learned 5000 rows")
    assert "has risen" not in folklearn("run", path, *TARGET).stderr


def test_texts_are_learned_by_words(folklearn, tmp_path, rng):
    """As banking77 is: sentences, and an intent each, sorted, packed."""
    words = {"card": "where is my new card", "rate": "what exchange rate do you use today"}
    words["top up"] = "my top up has failed again"
    fill = ["please", "hello", "can you tell me", "i would like to know", "urgent", "thanks"]
    lines = [
        f'"{fill[rng.integers(6)]} {text} {fill[rng.integers(6)]}",{intent}\n'
        for intent, text in words.items()
        for _ in range(60)
    ]
    path = tmp_path / "banking.csv.gz"
    path.write_bytes(gzip.compress(f"text,intent\n{''.join(lines)}".encode()))
    options = ["--target", "intent", "--shuffle", "-f", tmp_path / "m"]
    outcome = folklearn("run", path, *options)
    assert "\nwords     text\n" in outcome.stderr
    assert float(table_rows(outcome.stderr)[-1][3].rstrip("%")) < 15.0
    new = tmp_path / "new.csv"
    new.write_text("text\nnew card please\nexchange rate now\n")
    predicted = folklearn("predict", tmp_path / "m", new).stdout
    assert [line["predicted"] for line in read_predictions(predicted)[0]] == ["card", "rate"]


def test_a_checkpoint_is_what_was_learned_by_then(folklearn, pets, tmp_path, monkeypatch):
    saved = []
    save = Model.save
    monkeypatch.setattr(
        Model, "save", lambda self, path: (saved.append(self.n_rounds), save(self, path))
    )
    options = ["-f", tmp_path / "m", "--checkpoint", "0s"]
    assert folklearn("run", pets, *TARGET, *options).code == 0
    assert saved == [64, 128, 256, 300, 300]
    saved.clear()
    assert folklearn("run", pets, *TARGET, "-f", tmp_path / "m", "--checkpoint", "1.5h").code == 0
    assert saved == [300]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "pets.csv"]
