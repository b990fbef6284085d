"""Compiled kernels must not outlive the sources that they call, and be compiled once."""

import gc
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest
from numba import njit, version_info

from folklearn import kernels
from folklearn.kernels import compile as compiling
from folklearn.kernels import parts
from folklearn.kernels.simplex import softmax


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that makes a module of its own, with a cache of its own, from a source."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "cache"))

    def made(source):
        path = tmp_path / "written.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("written", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "written", module)  # by this name Numba finds it again
        spec.loader.exec_module(module)
        return module

    return made


@pytest.fixture
def function(module):
    return module("def doubled(x):\n    return 2.0 * x\n").doubled


def loaded_from_disk(function, sources):
    gc.collect()  # as in a new process: nothing is left of what was compiled before
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
    folder = Path(kernels.__file__).parent
    assert softmax._cache._cache_file._source_stamp == compiling.sources_of(folder)


_STOREYS = """
from folklearn.kernels.compile import fast_kernel, kernel

@{inner}
def doubled(x):
    return 2.0 * x

@{outer}
def raised(x):
    return doubled(x) + doubled(1) + 1.0
"""


@pytest.mark.skipif(version_info.short not in compiling.KNOWN, reason="Numba compiles by itself")
@pytest.mark.parametrize(
    ("inner", "outer", "n_alone"),
    [
        ("kernel", "kernel", 0),
        ("kernel", "fast_kernel", 0),
        ("fast_kernel", "fast_kernel", 0),
        ("fast_kernel", "kernel", 2),  # for a float, and for an integer
    ],
)
def test_a_kernel_is_no_machine_code_for_the_kernels_that_call_it(module, inner, outer, n_alone):
    storeys = module(_STOREYS.format(inner=inner, outer=outer))
    assert storeys.raised(1.5) == 6.0
    assert len(storeys.doubled.signatures) == n_alone
    assert storeys.doubled(2.5) == 5.0  # Python calls it all the same
    assert storeys.raised(2.5) == 8.0


def test_an_unknown_numba_compiles_the_same_kernels_by_itself(module, monkeypatch):
    monkeypatch.setattr(compiling, "KNOWN", ())
    storeys = module(_STOREYS.format(inner="kernel", outer="fast_kernel"))
    assert storeys.raised(1.5) == 6.0
    assert len(storeys.doubled.signatures) == 2


def test_kernels_can_run_as_plain_python(module, monkeypatch):
    """With NUMBA_DISABLE_JIT, as `tests.mutants` runs them."""
    monkeypatch.setattr("numba.core.config.DISABLE_JIT", True)
    storeys = module(_STOREYS.format(inner="kernel", outer="fast_kernel"))
    assert inspect.isfunction(storeys.raised)
    assert storeys.raised(1.5) == 6.0


def test_it_is_known_when_kernels_of_ours_are_compiled(module, tmp_path, monkeypatch):
    """Fails when Numba no longer tells, or tells of kernels of others, or of what is loaded."""
    told = []
    monkeypatch.setattr(compiling.COMPILATION, "begin", lambda: told.append("begin"))
    monkeypatch.setattr(compiling.COMPILATION, "end", lambda: told.append("end"))

    def use(name, cache):
        monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / cache))
        del told[:]
        storeys = module(_STOREYS.format(inner="fast_kernel", outer="kernel"))
        for kernel in (storeys.raised, storeys.doubled):
            kernel.py_func.__module__ = name
        assert storeys.raised(1.5) == 6.0
        return told

    assert use("somebody.else", "theirs") == []
    first = use("folklearn.kernels.written", "ours")
    assert (first[0], first[-1], first.count("begin")) == ("begin", "end", first.count("end"))
    assert use("folklearn.kernels.written", "ours") == []  # it was loaded


def test_numba_still_has_the_steps_that_a_part_is_spared():
    """Fails when Numba renames them: parts would be optimised again and again, unnoticed."""
    steps = {name for name in vars(parts._Translated) if name.endswith("_final_module")}
    assert len(steps) == 2
    assert steps <= {*dir(parts.JITCodeLibrary)}
