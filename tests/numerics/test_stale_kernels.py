"""Compiled kernels must not outlive the sources that they call."""

import os

import pytest

from folklearn.numerics import _forget_stale_kernels


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "caller.py").write_text("1")
    (tmp_path / "called.py").write_text("2")
    for name in ("caller.f-1.nbi", "caller.f-1.1.nbc", "called.cpython-311.pyc"):
        (tmp_path / "__pycache__" / name).write_text("")
    return tmp_path


def cached(folder):
    return sorted(path.suffix for path in (folder / "__pycache__").glob("c*"))


def test_they_stay_as_long_as_no_source_changes(folder):
    _forget_stale_kernels(folder)
    assert cached(folder) == [".pyc"]  # of unknown age
    (folder / "__pycache__" / "caller.f-1.nbi").write_text("")
    _forget_stale_kernels(folder)
    assert cached(folder) == [".nbi", ".pyc"]


@pytest.mark.parametrize("change", ["edit", "touch", "add"])
def test_they_go_with_any_change(folder, change):
    _forget_stale_kernels(folder)
    (folder / "__pycache__" / "caller.f-1.nbi").write_text("")
    if change == "edit":
        (folder / "called.py").write_text("two")
    elif change == "touch":
        os.utime(folder / "called.py", ns=(1, 1))
    else:
        (folder / "more.py").write_text("3")
    _forget_stale_kernels(folder)
    assert cached(folder) == [".pyc"]


def test_a_folder_without_a_cache_is_left_alone(tmp_path):
    (tmp_path / "caller.py").write_text("1")
    _forget_stale_kernels(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["caller.py"]
