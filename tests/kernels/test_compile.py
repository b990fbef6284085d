"""Compiled kernels must not outlive the sources that they call, and be compiled once."""

import ast
import gc
import importlib.util
import inspect
import signal
import sys
import time
import tokenize
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from folklearn import kernels
from folklearn.kernels import compile as compiling
from folklearn.kernels.simplex import softmax

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


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
    compiled = compiling.keep_until_code_changes(njit(cache=True)(function), sources)
    assert compiled(1.5) == 3.0
    return sum(compiled.stats.cache_hits.values()) == 1


def test_they_stay_as_long_as_no_source_changes(function):
    assert not loaded_from_disk(function, "before")
    assert loaded_from_disk(function, "before")


def test_they_go_with_any_change(function):
    assert not loaded_from_disk(function, "before")
    assert not loaded_from_disk(function, "after")
    assert loaded_from_disk(function, "after")


def digest_folder(folder):
    return compiling.digest_code(*sorted(folder.glob("*.py")))


@pytest.mark.parametrize("change", ["edit", "rename", "add"])
def test_every_source_counts(tmp_path, change):
    (tmp_path / "caller.py").write_text("1")
    (tmp_path / "called.py").write_text("2")
    before = digest_folder(tmp_path)
    assert digest_folder(tmp_path) == before
    if change == "edit":
        (tmp_path / "called.py").write_text("3")
    elif change == "rename":
        (tmp_path / "called.py").rename(tmp_path / "renamed.py")
    else:
        (tmp_path / "more.py").write_text("")
    assert digest_folder(tmp_path) != before


def test_what_is_not_compiled_does_not_count(tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text("def twice(x):\n    return 2 * x\n")
    before = compiling.digest_code(source)
    source.write_text('"""Text."""\n\n\ndef twice(x):\n    """Text."""\n    return 2 * x  # text\n')
    assert compiling.digest_code(source) == before


@pytest.mark.parametrize("path", sorted(Path(kernels.__file__).parent.glob("*.py")), ids=str)
def test_only_comments_and_docstrings_are_left_out_of_a_digest(path):
    """It takes what follows a hash sign for a comment, and what is in three quotes for text."""
    with path.open("rb") as file:
        strings = [t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.STRING]
    texts = ast.walk(ast.parse(path.read_bytes()))
    n_docstrings = sum(isinstance(t, _DOCUMENTED) and bool(ast.get_docstring(t)) for t in texts)
    assert sum(text.startswith('"""') for text in strings) == n_docstrings
    others = [text for text in strings if not text.startswith('"""') and text != 'b"#"']
    assert not any("#" in text for text in others)


def test_our_kernels_carry_the_digest_of_all_of_them():
    """Fails when Numba renames what `keep_until_code_changes` sets."""
    folder = Path(kernels.__file__).parent
    assert softmax._cache._cache_file._source_stamp == digest_folder(folder)


_STOREYS = """
from folklearn.kernels.compile import *

@{inner}
def doubled(x):
    return 2.0 * x

@{outer}
def raised(x):
    return doubled(x) + doubled(1) + 1.0
"""


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("kernel", "fast_kernel"),
        ("inner_kernel", "kernel"),
        ("shared_kernel('f8(f8)')", "kernel"),
        ("kernel", "shared_kernel('f8(f8)', fast=True)"),
        ("shared_kernel('f8(f8)', fast=True)", "shared_kernel('f8(f8)')"),
    ],
)
def test_kernels_of_every_kind_call_each_other_and_are_called_from_python(module, inner, outer):
    storeys = module(_STOREYS.format(inner=inner, outer=outer))
    assert storeys.raised(1.5) == 6.0
    assert storeys.doubled(2.5) == 5.0
    assert storeys.raised(2.5) == 8.0


_SHARED = """
import numpy as np
from folklearn.kernels.compile import kernel, shared_kernel

@shared_kernel("Tuple((f8, b1))(f8[::1], i8)")
def total(x, i):
    return x.sum() + x[i], True

@shared_kernel("void(f8[::1])")
def never_called(x):
    x[0] = 0.0

@kernel
def first(x):
    if x.shape[0] == 0:
        never_called(x)
    return total(x, 0)

@kernel
def last(x):
    return total(x, x.shape[0] - 1)
"""


def test_a_shared_kernel_is_compiled_once_when_it_is_called_and_kept_on_disk(module):
    for is_kept in (False, True):
        shared = module(_SHARED)
        cells = {
            cell._function.__name__: cell
            for cell in compiling._CELLS.values()
            if cell._function.__module__ == "written"
        }
        assert shared.first(np.array([1.0, 2.0])) == (4.0, True)
        compiled = cells["total"].compiled
        assert shared.last(np.array([1.0, 2.0])) == (5.0, True)
        assert cells["total"].compiled is compiled
        assert bool(compiled.cache_hits) == is_kept
        assert cells["never_called"].content[0] == 0


def test_a_shared_kernel_takes_arrays_that_are_read_only(module):
    x = np.array([1.0, 2.0])
    x.flags.writeable = False
    assert module(_SHARED).first(x) == (4.0, True)


def test_an_interrupt_while_a_shared_kernel_is_compiled_waits_until_it_is(module, monkeypatch):
    shared = module(_SHARED)
    compile_now = compiling.CFunc.compile
    interrupts = [KeyboardInterrupt]

    def interrupted(self):
        if interrupts:
            raise interrupts.pop()
        compile_now(self)

    monkeypatch.setattr(compiling.CFunc, "compile", interrupted)

    def use():
        shared.first(np.array([1.0, 2.0]))
        time.sleep(60.0)  # the interrupt comes when Python goes on

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            use()
    finally:
        signal.signal(signal.SIGINT, before)
    assert shared.first(np.array([1.0, 2.0])) == (4.0, True)


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
