"""Compiled kernels must not outlive the sources that they call."""

import importlib.util
from pathlib import Path

import pytest
from numba import njit

from folklearn import numerics
from folklearn.numerics import compile as compiling
from folklearn.numerics.simplex import softmax


@pytest.fixture
def function(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "doubled.py"
    path.write_text("def doubled(x):\n    return 2.0 * x\n")
    spec = importlib.util.spec_from_file_location("doubled", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.doubled


def loaded_from_disk(function, sources):
    compiled = compiling.keep_until_sources_change(njit(cache=True)(function), sources)
    assert compiled(1.5) == 3.0
    return sum(compiled.stats.cache_hits.values()) == 1


def test_they_stay_as_long_as_no_source_changes(function):
    assert not loaded_from_disk(function, "before")
    assert loaded_from_disk(function, "before")


def test_they_go_with_any_change(function):
    assert not loaded_from_disk(function, "before")
    assert not loaded_from_disk(function, "after")
    assert loaded_from_disk(function, "after")


@pytest.mark.parametrize("change", ["edit", "rename", "add"])
def test_every_source_counts(tmp_path, change):
    (tmp_path / "caller.py").write_text("1")
    (tmp_path / "called.py").write_text("2")
    before = compiling.sources_of(tmp_path)
    assert compiling.sources_of(tmp_path) == before
    if change == "edit":
        (tmp_path / "called.py").write_text("3")
    elif change == "rename":
        (tmp_path / "called.py").rename(tmp_path / "renamed.py")
    else:
        (tmp_path / "more.py").write_text("")
    assert compiling.sources_of(tmp_path) != before


def test_our_kernels_carry_the_digest_of_all_of_them():
    """Fails when Numba renames what `keep_until_sources_change` sets."""
    folder = Path(numerics.__file__).parent
    assert softmax._cache._cache_file._source_stamp == compiling.sources_of(folder)
