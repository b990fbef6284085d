"""Outputs appear whole and together, or not at all."""

import os

import pytest

from folklearn.cli.display import new_console
from folklearn.cli.endings import AtomicOutputs
from folklearn.errors import FolklearnError

QUIET = new_console(quiet=True)


def test_nothing_shows_before_the_commit(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    with AtomicOutputs() as outputs:
        outputs.reserve("model", str(target)).write_text("new")
        assert target.read_text() == "old"
        outputs.commit(QUIET)
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_nothing_is_left_after_a_failure(tmp_path):
    def fail_half_way():
        with AtomicOutputs() as outputs:
            outputs.reserve("model", str(tmp_path / "out")).write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_half_way()
    assert os.listdir(tmp_path) == []


def test_a_link_keeps_pointing(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with AtomicOutputs() as outputs:
        outputs.reserve("model", str(tmp_path / "link")).write_text("new")
        outputs.commit(QUIET)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_an_output_is_as_readable_as_any_new_file(tmp_path):
    with AtomicOutputs() as outputs:
        outputs.reserve("plot", str(tmp_path / "out"))
        outputs.commit(QUIET)
    (tmp_path / "ordinary").touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/out", "there is no folder"),
        ("folder", "it exists and is not a file"),
        ("/", "it exists and is not a file"),
        ("input", "it would replace the input"),
        ("twice", "two outputs cannot share one file"),
        ("x" * 300, "[Ff]ile name too long"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "input").touch()
    with AtomicOutputs() as outputs:
        outputs.protect(str(tmp_path / "input"), None)
        outputs.reserve("plot", str(tmp_path / "twice"))
        with pytest.raises(FolklearnError, match=reason):
            outputs.reserve("model", str(tmp_path / name))


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with AtomicOutputs() as outputs, pytest.raises(FolklearnError, match="permission denied"):
        outputs.reserve("model", str(tmp_path / "closed" / "out"))


def test_an_option_that_was_not_given_promises_nothing():
    with AtomicOutputs() as outputs:
        assert outputs.reserve("model", None) is None
        outputs.commit(QUIET)


def test_a_file_can_be_put_in_place_on_the_way(tmp_path):
    def fail_later():
        with AtomicOutputs() as outputs:
            path = outputs.reserve("model", str(tmp_path / "out"))
            path.write_text("first")
            outputs.publish(path)
            path.write_text("second, half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_later()
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "first"


@pytest.mark.skipif(os.name == "nt", reason="devices of POSIX")
def test_a_device_is_written_to_as_it_is():
    with AtomicOutputs() as outputs:
        assert str(outputs.reserve("predictions", "/dev/null")) == "/dev/null"
        assert str(outputs.reserve("plot", "/dev/null")) == "/dev/null"
        with pytest.raises(FolklearnError, match="it exists and is not a file"):
            outputs.reserve("model", "/dev/null", as_file=True)
        outputs.commit(QUIET)
