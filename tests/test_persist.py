import contextlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from safetensors.numpy import save_file

import folklearn
from folklearn import Folklore
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.serialization import Record, as_bytes, write
from folklearn.sparse import SparseRows
from tests import crafted


@pytest.fixture
def model(rng):
    model = Folklore(n_features=3, n_classes=4, B=7.0, gamma=0.01)
    model.run(rng.normal(size=(30, 3)), rng.integers(0, 4, 30))
    return model


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    return path


def test_everything_comes_back(model, saved):
    loaded = folklearn.load(str(saved))
    assert repr(loaded) == repr(model)
    assert loaded.certificate() == model.certificate()
    np.testing.assert_array_equal(loaded.coef(), model.coef())


def test_completion_shows_what_is_for_users(model):
    shown = {name for name in dir(model) if not name.startswith("_")}
    assert {name for name in shown if name.isupper()} == {"B", "R"}
    assert {"certificate", "gamma", "run", "save"} <= shown


def test_truncated_at_any_place(saved):
    content = saved.read_bytes()
    for length in [0, 3, 8, 50, len(content) // 2, len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(StateFileError, match=r"it is cut off or damaged"):
            folklearn.load(saved)


def test_any_flipped_byte_is_noticed(saved):
    content = saved.read_bytes()
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0x11
        saved.write_bytes(damaged)
        with pytest.raises(StateFileError, match="model.safetensors"):
            folklearn.load(saved)


def test_foreign_files(tmp_path):
    path = tmp_path / "foreign"
    with pytest.raises(FileNotFoundError, match="foreign"):
        folklearn.load(path)
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(StateFileError, match="or another program wrote it"):
        folklearn.load(path)
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(StateFileError, match="not one that folklearn wrote"):
        folklearn.load(path)
    save_file({"a": np.zeros(3)}, path, metadata={"folklearn": "no JSON"})
    with pytest.raises(StateFileError, match="header cannot be read"):
        folklearn.load(path)


def test_a_newer_format_is_named(tmp_path):
    path = tmp_path / "newer"
    save_file({"a": np.zeros(3)}, path, metadata={"folklearn": json.dumps({"version": 99})})
    with pytest.raises(StateFileError, match="format version 99.*upgrade"):
        folklearn.load(path)


def test_wrong_content_in_a_sound_file(model, tmp_path):
    path = tmp_path / "wrong"
    record = model.to_record()
    write(path, Record("Unheard", record.config, record.arrays))
    with pytest.raises(StateFileError, match="unknown kind of object: Unheard"):
        folklearn.load(path)
    write(path, Record("Folklore", record.config, {"S": np.zeros(3)}))
    with pytest.raises(StateFileError, match="needs float64 S of shape"):
        folklearn.load(path)
    write(path, Record("Folklore", {"n_features": 3}, record.arrays))
    with pytest.raises(StateFileError, match="n_classes"):
        folklearn.load(path)


def test_a_failed_save_leaves_the_old_file(model, saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*arguments, **keywords):
        raise OSError("disk full")

    monkeypatch.setattr("folklearn.serialization.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_others_may_read_what_the_umask_lets_them(tmp_path):
    (tmp_path / "plain").touch()
    Folklore(n_features=2, n_classes=2).save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode


# --- Files that nobody saved, with a digest that is right ---------------------------------------


def loaded(record):
    return folklearn.load(as_bytes(record))


def test_the_crafted_files_are_of_every_kind_that_saves_itself():
    records = [crafted.record_of(kind) for kind in crafted.KINDS]
    within = {kind for record in records for kind in crafted.kinds_within(record.config)}
    of_no_file = {"Agent", "Booster", "LinearAgent"}  # what agents and boosters share
    assert crafted.registered() - of_no_file == within | {record.kind for record in records}
    for kind, record in zip(crafted.KINDS, records, strict=True):
        assert crafted.check(kind, record)


@settings(max_examples=int(os.environ.get("FOLKLEARN_FUZZ", "200")))
@given(crafted.changes())
def test_a_changed_file_is_refused_or_can_be_used(case):
    crafted.check(*case)


@pytest.mark.parametrize(
    ("kind", "path", "value", "sentence"),
    [
        ("Evidence", ("n_features",), 10**18, "an Evidence state of its sizes has .* numbers or"),
        ("Evidence", ("n_features",), 2**63, "an Evidence state of its sizes has"),
        ("Evidence", ("n_features",), 2.5, "n_features must be an integer"),
        ("Auto", ("memories",), [], "a panel of its sizes has .* numbers, not"),
        ("Auto", ("folklore", "config", "n_features"), 1, "needs float64 S of shape"),
        ("Auto", ("n_classes",), 10**6, "a panel of its sizes has"),
        ("Aggregating", ("n_particles",), 10**9, "an Aggregating state of its sizes has"),
        ("Gaf", ("n_points",), 10**9, "n_points must be at most 1,048,576"),
        ("Certifier", ("evidence",), {"kind": "Ogd", "config": {}}, "an Ogd state needs"),
        ("Certifier", ("n_features",), 4, "holds the evidence of another problem"),
        ("Model", ("labels",), [1, 1, 1], "a Model state cannot be restored .TypeError"),
        ("Model", ("labels",), [["int", 1]] * 3, "have the same label"),
        ("Model", ("metrics",), [], "a Model state has no record for metrics"),
        (
            "Model",
            ("metrics",),
            {"kind": "RowBuffer", "config": {}},
            "a RowBuffer state needs",
        ),
        ("Model", ("pipeline", "config", "n_rounds"), 2**60, "n_rounds must be at most"),
        ("Model", ("labels",), [["str", "cat"]], "recent rows of classes that it does not have"),
    ],
)
def test_entries_that_nobody_saves(kind, path, value, sentence):
    record = crafted.record_of(kind)
    crafted.replace(record.config, path, value)
    with pytest.raises(StateFileError, match=sentence):
        loaded(record)


def test_a_part_of_another_kind_is_named():
    record = crafted.record_of("Model")
    record.config["recent"] = record.config["metrics"]
    with pytest.raises(StateFileError, match="a Model state has no record for recent|a Metrics"):
        loaded(record)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e101])
def test_numbers_that_cannot_be_computed_with(number):
    record = crafted.record_of("Evidence")
    S = record.arrays["S"].copy()
    S[0, 0, 0] = number
    record.arrays["S"] = S
    with pytest.raises(StateFileError, match="an Evidence state has a number in S that is not"):
        loaded(record)


def test_a_loss_may_be_infinite_and_a_count_may_not():
    record = crafted.record_of("Certifier")
    record.arrays["totals"] = np.array([np.inf, 1.0, 5.0])
    assert loaded(record).certificate().loss == np.inf
    record.arrays["totals"] = np.array([np.inf, 1.0, np.inf])
    with pytest.raises(StateFileError, match="infinitely many rounds"):
        loaded(record)


def test_evidence_that_no_rows_give_is_refused_where_it_is_asked():
    record = crafted.record_of("Evidence")
    record.arrays["S"] = -1e6 * np.ones_like(record.arrays["S"])
    evidence = loaded(record)
    for asked in (evidence, evidence + evidence, evidence.grown(n_features=4)):
        with pytest.raises(InvalidInputError, match="this evidence has no minimum"):
            asked.lower_bound()


def test_evidence_that_no_rows_give_is_refused_where_rows_enter_it():
    record = crafted.record_of("Evidence")
    record.arrays["S"] = -1e6 * np.ones_like(record.arrays["S"])
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInputError, match="this evidence has no minimum"):
        loaded(record).add(rng.normal(size=(7000, 3)), rng.integers(3, size=7000))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak")
def test_no_size_in_a_file_takes_memory_that_the_file_does_not_show():
    seen = set()
    for kind in crafted.KINDS:
        valid = crafted.record_of(kind)
        for path in crafted.leaves(valid.config):
            old = crafted.entry(valid.config, path)
            owner = crafted.owner(valid, path), path[-1]
            if type(old) is not int or owner in seen or "generator" in path:
                continue
            seen.add(owner)
            for value in (30_000, 10**9, 10**18, 2**63):
                record = crafted.record_of(kind)
                crafted.replace(record.config, path, value)
                before = peak_since_now()
                with contextlib.suppress(StateFileError):
                    loaded(record)
                assert peak_now() - before < 100, (kind, path, value)
    assert len(seen) > 60


def peak_since_now():
    """Let the kernel forget the peak of the memory; return what there is, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_now()


def peak_now():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024


def test_headers_that_nobody_writes(tmp_path):
    path = tmp_path / "header"
    good = {"version": 1, "kind": "Ogd", "config": {}, "digest": ""}
    for change, sentence in [
        ({"config": float("nan")}, "its header cannot be read"),
        ({"version": float("inf")}, "its header cannot be read"),
        ({"kind": ["Ogd"]}, "its header cannot be read"),
        ({"config": []}, "its header cannot be read"),
        ({"digest": "0"}, "does not match its digest"),
    ]:
        save_file({"a": np.zeros(3)}, path, metadata={"folklearn": json.dumps(good | change)})
        with pytest.raises(StateFileError, match=sentence):
            folklearn.load(path)
    nested = '{"version": 1, "config": ' + "[" * 100_000
    save_file({"a": np.zeros(3)}, path, metadata={"folklearn": nested})
    with pytest.raises(StateFileError, match="its header cannot be read"):
        folklearn.load(path)


SPARSE = {
    "indptr": np.array([0, 2, 2, 3]),
    "indices": np.array([1, 4, 0], np.int32),
    "values": np.array([1.0, 2.0, 3.0]),
    "width": np.array([5]),
}


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("indptr", np.array([0, 2, 2, 4])),
        ("indptr", np.array([1, 2, 2, 3])),
        ("indptr", np.array([0, 3, 2, 3])),
        ("indptr", np.array([0, 2, 2, 3], np.int32)),
        ("indices", np.array([1, 5, 0], np.int32)),
        ("indices", np.array([-1, 4, 0], np.int32)),
        ("indices", np.array([4, 1, 0], np.int32)),
        ("indices", np.array([1, 1, 0], np.int32)),
        ("indices", np.array([1, 4], np.int32)),
        ("values", np.array([1.0, np.nan, 3.0])),
        ("values", np.array([[1.0], [2.0], [3.0]])),
    ],
)
def test_sparse_rows_that_lead_outside_their_arrays(name, array):
    assert SparseRows.of_arrays(SPARSE).dense()[2].tolist() == [3, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="sparse rows"):
        SparseRows.of_arrays(SPARSE | {name: array})
