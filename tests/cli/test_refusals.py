"""Everything that is refused: exit code 2, one sentence, nothing written."""

import sys
from functools import partial

import pytest

from folklearn import Folklore, load, utils

TRAINED = ["--target", "kind"]


@pytest.fixture
def refused(refusal):
    return partial(refusal, "run")


@pytest.fixture
def outputs(tmp_path):
    return ["--save", tmp_path / "m", "-p", tmp_path / "p.csv", "--plot", tmp_path / "o.png"]


@pytest.fixture
def saved(folklearn, pets, tmp_path):
    folklearn("run", pets, *TRAINED, "--save", tmp_path / "saved")
    return tmp_path / "saved"


def test_a_file_needs_a_target(refused, pets, outputs):
    assert refused(pets, *outputs) == (
        f"which column of {pets} holds the class? Name it: --target COLUMN; its "
        "columns are: 'weight (kg)', 'größe [red]', age, kind"
    )


def test_a_target_needs_a_file(refused):
    assert refused("--target", "kind").endswith("but no file was given")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "{} is empty"),
        ("a,kind\n", "{} has no rows"),
        ("a,b\n1,2\n", "{} has no column 'kind'; its columns are: a, b"),
        ("a,kind\n1,x\n2,x\n", "column 'kind' of {} has only the label 'x'; learning needs"),
        ("a,kind\n1,\n2,\n", "column 'kind' of {} has no label; learning needs at least two"),
        ("a,kind\n1,x\n2,y,z\n", "line 3 of {}: it has 3 cells, the header 2"),
        ("a,kind\n1,x\ninf,y\n", "line 3 of {}, column 'a': 'inf' is not finite"),
        ("a,kind\n" + "1,x\n" * 30 + "two,y\n", "line 32 of {}, column 'a': 'two' is not a numb"),
        ("a;kind\n1;x\n", "column 'kind' of {} has only the label 'x'"),
        ("a,[red]\n1,x\n2,y\n", "{} has no column 'kind'; its columns are: a, [red]"),
    ],
)
def test_bad_data(refused, outputs, tmp_path, content, sentence):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert refused(path, *TRAINED, *outputs).startswith(sentence.format(path))


def test_a_file_that_is_not_there(refused, tmp_path):
    assert refused(tmp_path / "no.csv", *TRAINED) == (
        f"{tmp_path / 'no.csv'} cannot be read: no such file or directory"
    )
    assert refused(tmp_path, *TRAINED) == f"{tmp_path} cannot be read: is a directory"
    assert refused("--load", tmp_path / "no") == f"{tmp_path / 'no'}: No such file or directory"


@pytest.mark.parametrize("name", ["R", "lam", "gamma"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e200"])
def test_settings_must_be_positive_and_sane(refused, name, value):
    # The file is not there: settings are looked at before anything is read.
    words = "--learner", "folklore", "--set", f"{name}={value}"
    sentence = refused("no.csv", *TRAINED, *words)
    assert sentence.startswith(f"{name} must be a positive number")


@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_memory_has_rounds(refused, value):
    words = "--learner", "folklore", "--set", f"memory={value}"
    assert refused("no.csv", *TRAINED, *words) == f"memory must be at least 1, got {value}"


def test_roles_that_cannot_be(refused, pets, saved):
    columns = "its columns are: 'weight (kg)', 'größe [red]', age, kind"
    for option in ("--drop=fur", "--role=fur=category"):
        assert refused(pets, *TRAINED, option) == (
            f"{pets} has no column 'fur', which was given a role; {columns}"
        )
    assert refused(pets, *TRAINED, "--role", "age") == (
        "--role 'age' must be a column and its role: COLUMN=ROLE"
    )
    assert refused(pets, *TRAINED, "--role", "age=feature").startswith(
        "column 'age' cannot have the role 'feature'; roles are: number, category"
    )
    for option in ("--cross=age:kind", "--classes=x", "--role=age=category", "--drop=age"):
        assert refused(pets, "--load", saved, option) == (
            f"{option.split('=')[0]} cannot be combined with --load"
        )


def test_nothing_to_learn_from(folklearn, tmp_path):
    """Without any column the classes are told apart by their frequencies alone."""
    (tmp_path / "a.csv").write_text("note,kind\n" + "1,x\n2,y\n1,x\n" * 20)
    assert folklearn("run", tmp_path / "a.csv", *TRAINED, "--drop", "note").code == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--checkpoint", "60s"], "--checkpoint is of use only with --save"),
        (["--save", "m", "--checkpoint", "often"], "--checkpoint 'often' must be a time such as"),
        (["--save", "m", "--checkpoint", "-1s"], "--checkpoint '-1s' must be a time such as 60s"),
        (["--save", "m", "--checkpoint", "s"], "--checkpoint 's' must be a time such as 60s, 5m"),
        (["--bad-rows", "b.csv"], "--bad-rows is of use only with --on-bad-row skip"),
        (["--on-bad-row", "ignore"], "--on-bad-row must be stop or skip, got 'ignore'"),
    ],
)
def test_options_that_make_no_sense(refused, pets, options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(pets, *TRAINED, *options).startswith(sentence)


def test_a_device_without_pytorch(refused, refusal, pets, saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it could not be imported
    sentence = "--device cuda needs PyTorch: pip install 'folklearn[gpu]'"
    assert refused(pets, *TRAINED, "--device", "cuda").startswith(sentence)
    assert refused(pets, "--load", saved, "--device", "cuda").startswith(sentence)
    audited = refusal("audit", pets, *TRAINED, "-p", pets, "--device", "cuda")
    assert audited.startswith(sentence)
    other = refused(pets, *TRAINED, "--learner", "folklore", "--device", "cuda")
    assert other.startswith("folklore does not take the setting 'device'")


@pytest.mark.parametrize(
    "arguments",
    [["--seed", "ten"], ["--B", "3"], ["--nope"], ["a.csv", "b.csv"], ["--save"], ["--target"]],
)
def test_wrong_options(refused, arguments):
    refused(*arguments)


def test_places_that_cannot_be_written_are_refused_before_learning(refused, pets, tmp_path):
    gone = tmp_path / "gone" / "out.png"
    for option, what in (("--save", "model"), ("-p", "predictions"), ("--plot", "plot")):
        assert refused(pets, *TRAINED, option, gone) == (
            f"cannot write the {what} to {gone}: there is no folder {gone.parent}"
        )
    assert "it would replace the input" in refused(pets, *TRAINED, "--predictions", pets)
    assert "standard output" in refused(pets, *TRAINED, "--save", "-")
    same = tmp_path / "same.png"
    assert "share one file" in refused(pets, *TRAINED, "--save", same, "--plot", same)


def test_a_plot_of_unknown_format(refused, pets, tmp_path):
    assert "must end in .png" in refused(pets, *TRAINED, "--plot", tmp_path / "out.txt")


def test_a_plot_without_matplotlib(refused, pets, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert refused(pets, *TRAINED, "--plot", tmp_path / "out.png") == (
        "pictures need matplotlib: pip install 'folklearn[plots]'"
    )


def test_a_saved_model_keeps_its_settings(refused, pets, saved):
    assert refused(pets, *TRAINED, "--load", saved, "--set", "R=3") == (
        "--set cannot be combined with --load"
    )


def test_a_saved_model_keeps_its_learner(refused, pets, saved):
    assert refused(pets, *TRAINED, "--load", saved, "--learner", "ogd") == (
        "--learner cannot be combined with --load"
    )


def test_a_setting_that_the_learner_does_not_take(refused):
    for name, setting in {"auto": "gamma", "ogd": "lam", "gaf": "memory"}.items():
        words = "--learner", name, "--set", f"{setting}=1"
        assert refused("no.csv", *TRAINED, *words).startswith(
            f"{name} does not take the setting {setting!r}; it takes: "
        )
    assert refused("no.csv", *TRAINED, "--set", "R") == (
        "--set 'R' must be a name and a number: NAME=N"
    )


def test_a_learner_that_does_not_exist(refused):
    assert refused("no.csv", *TRAINED, "--learner", "sgd") == (
        "there is no learner 'sgd'; choose one of: auto, folklore, aioli, leader, blocks, gaf, "
        "laplace, ogd, ons"
    )


def test_a_learner_of_two_classes(refused, pets):
    assert refused(pets, *TRAINED, "--learner", "aioli", "--quiet").startswith(
        "Aioli is for two classes, got n_classes=3"
    )


def test_predictions_do_not_replace_the_model_that_was_loaded(refused, pets, saved):
    assert "it would replace the input" in refused(pets, "--load", saved, "-p", saved)


def test_a_saved_model_needs_its_columns(refused, write_csv, rows, saved, outputs):
    other = write_csv("other.csv", rows, ["weight (kg)", "height", "age", "kind"])
    assert refused(other, "--load", saved, *outputs) == (
        f"{other} lacks columns of the model: 'größe [red]'; it has: 'weight (kg)', height, age, "
        "kind"
    )


def test_a_saved_model_takes_new_classes_and_columns(folklearn, write_csv, rows, columns, saved):
    rows = [[*row, str(i % 7)] for i, row in enumerate(rows)]
    rows[40][-2] = "[b]bird"
    other = write_csv("other.csv", rows, [*columns, "fur"])
    assert folklearn("run", other, "--load", saved, "--save", saved).code == 0
    assert load(saved).labels[-1] == "[b]bird"
    assert load(saved).roles["fur"] == "number"


def test_a_saved_model_keeps_its_target(refused, pets, saved):
    sentence = (
        "'age' is not what the model predicts, which is the column 'kind': leave --target age out"
    )
    assert refused(pets, "--load", saved, "--target", "age") == sentence


def test_a_renamed_target(folklearn, write_csv, rows, columns, saved):
    other = write_csv("other.csv", rows, [*columns[:-1], "sort"])
    assert folklearn("run", other, "--load", saved, "--target", "sort").code == 0


def test_a_saved_model_does_not_meet_the_digits(refused, saved):
    assert refused("--load", saved).startswith("scikit-learn's digits lacks columns of the model")


def test_what_is_not_a_saved_run(refused, pets, tmp_path):
    Folklore(n_features=2, n_classes=2).save(tmp_path / "bare")
    assert refused(pets, *TRAINED, "--load", tmp_path / "bare") == (
        f"{tmp_path / 'bare'} holds a Folklore; --load takes what `folklearn run --save` wrote"
    )
    for name, content in (("no", pets.read_bytes()), ("short", b"abc"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        assert refused(pets, *TRAINED, "--load", tmp_path / name) == (
            f"{tmp_path / name} is no folklearn model; --load takes what `folklearn run --save` "
            "wrote"
        )


def test_a_state_that_does_not_fit_in_memory(refused, write_csv, monkeypatch):
    monkeypatch.setattr(utils, "bytes_present", lambda: 900.0)
    path = write_csv("wide.csv", [["1", str(i)] for i in range(20)], ["a", "kind"])
    for name in ("auto", "folklore", "ons"):
        said = refused(path, *TRAINED, "--learner", name, "--quiet")
        assert said.startswith(f"learner={name!r} needs 0.0 GB of memory for ")
        assert "and this machine has 0.0 GB" in said


def test_a_failure_while_learning_leaves_nothing(refused, pets, outputs, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "p.csv")

    monkeypatch.setattr("folklearn.cli.predict.PredictionWriter.write", fail)
    assert refused(pets, *TRAINED, "--quiet", *outputs) == "p.csv: No space left on device"
