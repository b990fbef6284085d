import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import folklearn
from folklearn import Folklore
from folklearn.errors import StateFileError
from folklearn.persist import Record, write


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

    monkeypatch.setattr("folklearn.persist.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_others_may_read_what_the_umask_lets_them(tmp_path):
    (tmp_path / "plain").touch()
    Folklore(n_features=2, n_classes=2).save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode
