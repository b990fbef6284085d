"""`Model`, `FolkloreClassifier` and the command line on a device."""

import copy
import csv
import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

import folklearn
from folklearn import FolkloreClassifier, Model
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.cli.app import main
from folklearn.learners.auto import Auto
from folklearn.learners.mixture import Mixture
from folklearn.learners.sparse_sgd import SparseSgd

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

NUMBER = r"\d+\.?\d*"
KEPT = 60  # rows that are kept


@pytest.fixture(autouse=True)
def _early(monkeypatch):
    monkeypatch.setattr("folklearn.learners.auto.KEPT", KEPT)


def records(n, n_late=0):
    """Dictionaries and labels; columns and a class that come late."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    y = np.array(["red", "green", "blue"])[np.argmax(X + rng.gumbel(size=X.shape), axis=1)]
    rows = [dict(zip("abc", x.tolist(), strict=True)) for x in X]
    for t, row in enumerate(rows[:n_late]):
        del row["c"]
        y[t] = "red" if y[t] == "blue" else y[t]
    return rows, y.tolist()


def labelled(rows, y):
    return [{**row, "y": label} for row, label in zip(rows, y, strict=True)]


def models(device, learner="auto", **words):
    return Model(learner, **words), Model(learner, **words, device=device.name)


def is_there(model):
    return model.pipeline.learner.lines._sums is not None


def assert_same(found, expected):
    rows, _ = records(20)
    assert found.n_rounds == expected.n_rounds
    assert found.labels == expected.labels
    assert found.metrics.loss == pytest.approx(expected.metrics.loss, rel=1e-9)
    assert found.metrics.holdout_loss == pytest.approx(expected.metrics.holdout_loss, rel=1e-9)
    np.testing.assert_allclose(found.predict_proba(rows), expected.predict_proba(rows), rtol=1e-9)
    assert found.predict_proba_one(rows[0]) == pytest.approx(
        expected.predict_proba_one(rows[0]), rel=1e-9
    )
    one, other = found.certificate(), expected.certificate()
    assert one.regret_bound == pytest.approx(other.regret_bound, abs=1e-9 * other.loss)


@pytest.mark.parametrize("learner", ["auto", "leader"])
def test_it_learns_as_on_the_cpu(learner, device, tmp_path):
    rows, y = records(400, n_late=150)
    words = {"kept": KEPT} if learner == "leader" else {}
    here, there = models(device, learner, **words)
    for model in (here, there):
        for row, label in zip(rows[:100], y[:100], strict=True):
            model.learn_one(row, label)
        model.run(
            [{**row, "y": label} for row, label in zip(rows[100:], y[100:], strict=True)], "y"
        )
    assert is_there(there)
    assert there.pipeline.learner.lines.device == there.device == device.name
    assert_same(there, here)
    there.save(tmp_path / "there.folk")
    loaded = folklearn.load(tmp_path / "there.folk")
    assert loaded.device == loaded.pipeline.learner.lines.device == "cpu"
    assert loaded.settings == here.settings
    assert_same(loaded, here)
    mine, theirs = here.to_record(), loaded.to_record()
    assert mine.config.keys() == theirs.config.keys()
    assert {name: part.shape for name, part in mine.arrays.items()} == {
        name: part.shape for name, part in theirs.arrays.items()
    }
    assert loaded.to(device.name) is loaded
    assert is_there(loaded)
    assert not is_there(loaded.to("cpu"))
    assert_same(loaded, here)


def test_copies_stay_on_the_device(device):
    rows, y = records(200)
    here, there = models(device)
    for model in (here, there):
        model.learn_many(rows, y)
    for twice in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert twice.pipeline.learner.lines.device == device.name
        assert_same(twice, here)
    expected = here.predict_proba(rows)  # of a copy to predict the evidence is not asked
    np.testing.assert_allclose(there.copy_to_predict().predict_proba(rows), expected, rtol=1e-9)


def test_what_was_learned_is_forgotten_and_the_device_is_not(device):
    rows, y = records(200)
    _, there = models(device)
    there.learn_many(rows, y)
    there._forget()
    there.learn_many(rows, y)
    assert is_there(there)


def test_a_fit_is_made_where_the_model_is(device, monkeypatch):
    source = labelled(*records(150))
    here, there = models(device)
    here.fit(source, "y")
    assert_same(there.fit(source, "y"), here)
    assert_same(Model().fit(source, "y", device=device.name), here)
    monkeypatch.setattr("folklearn.evidence.passes.add_expanded", None)
    with pytest.raises(TypeError):  # so that is where they were made
        there.fit(source, "y")


def test_windows_have_the_same_floors(device):
    rows, y = records(300)
    here, there = models(device, windows=True)
    for model in (here, there):
        model.learn_many(rows, y)
    for one, other in zip(there.windows(), here.windows(), strict=True):
        # Passes over the first rows end at a tolerance, and not at the same point.
        assert one.lower_bound == pytest.approx(other.lower_bound, abs=1e-8 * other.loss)


@pytest.fixture
def narrow_cpu(monkeypatch):
    """Nothing but the smallest problems fit the first backend of the CPU."""
    monkeypatch.setattr("folklearn.learners.catalogue._MAX_PAIR_PRODUCTS", 10)


@pytest.mark.usefixtures("narrow_cpu")
@pytest.mark.parametrize("kind", ["matrix", "sparse matrix", "svmlight"])
def test_the_lane_is_that_of_the_device(kind, device, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)), rng.integers(3, size=30)
    path = tmp_path / "rows.svm"
    dump_svmlight_file(X, y, str(path))
    found = []
    for model in models(device):
        if kind == "svmlight":
            model.run(str(path))
        else:
            model.learn_many(X if kind == "matrix" else sparse.csr_array(X), y)
        found.append(type(model.pipeline.learner))
    assert found == [Mixture if kind == "matrix" else SparseSgd, Auto]


@pytest.mark.usefixtures("narrow_cpu")
def test_a_fit_on_a_device_is_of_second_order_whoever_learned(device):
    source = labelled(*records(60))
    here, there = Model().fit(source, "y"), Model().fit(source, "y", device=device.name)
    assert isinstance(here.pipeline.batch_fit, ColumnModel)
    assert isinstance(there.pipeline.batch_fit, np.ndarray)


def test_the_classifier(device):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    y = np.argmax(X + rng.gumbel(size=X.shape), axis=1)
    here, there = (FolkloreClassifier(device=place).fit(X, y) for place in (None, device.name))
    assert is_there(there.model_)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), rtol=1e-9)
    for one in (here, there):
        one.partial_fit(X, y)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), rtol=1e-9)
    again = pickle.loads(pickle.dumps(there))
    assert again.model_.device == "cpu"
    np.testing.assert_allclose(again.predict_proba(X), here.predict_proba(X), rtol=1e-9)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    rows = labelled(*records(200))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def printed(capsys, *words):
    """What a command says, but for the time that it took."""
    code = main([str(word) for word in words])
    text = capsys.readouterr().err
    assert code == 0, text
    return re.sub(r"in \d+\.\d+ s| +\d+$", "", text, flags=re.MULTILINE)


def test_the_command_line(device, table, capsys, tmp_path):
    def in_both_places(command, words):
        texts = [
            printed(capsys, command, table, "--target", "y", *words(place), "--device", place)
            for place in ("cpu", device.name)
        ]
        without = [re.sub(rf"{NUMBER}|cpu|{device.name}", "", text) for text in texts]
        assert without[0] == without[1]
        numbers = [list(map(float, re.findall(NUMBER, text))) for text in texts]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=1e-4)  # last digits differ

    in_both_places(
        "run", lambda place: ["--save", tmp_path / f"{place}.folk", "-p", tmp_path / "p.csv"]
    )
    here, other = (folklearn.load(tmp_path / f"{place}.folk") for place in ("cpu", device.name))
    assert_same(other, here)
    in_both_places("run", lambda place: ["--load", tmp_path / f"{place}.folk", "--quiet"])
    in_both_places("audit", lambda _: ["-p", tmp_path / "p.csv", "--exact"])


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("command", ["run", "audit"])
def test_the_command_line_refuses_what_is_no_device(command, table, capsys):
    words = ["-p", table] if command == "audit" else []
    code = main([command, table, "--target", "y", *words, "--device", "tpu"])
    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith("folklearn: --device tpu cannot be used: ")
    assert said.count("\n") == 1
