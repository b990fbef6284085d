"""How kernels are compiled, and when what was compiled before may be used again.

Kernels release the GIL, divide by zero as NumPy does, and are kept on disk. A fast kernel may
also add up in another order and fuse multiplications with additions, nothing else: NaN and
infinity keep their meaning.

Numba compiles a `kernel` into every kernel that calls it, again and again. A `shared_kernel` is
compiled once, when it is first called: callers, which may themselves be compiled, hold the name
of a cell with its address. So what a call does not use is not compiled, and the result of a fast
kernel has the same last bit in every caller.
"""

import _thread
import ctypes
import functools
import gc
import hashlib
import inspect
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import config, jit, types
from numba.core import cgutils, event, sigutils
from numba.core.ccallback import CFunc
from numba.extending import lower_builtin, register_jitable, type_callable

from folklearn.progress import COMPILATION

# Without a word about it a kernel would be as fast as the one that is compiled with it first.
_STRICT: dict[str, Any] = {
    "nopython": True, "nogil": True, "error_model": "numpy", "fastmath": False,
}  # fmt: skip
_FAST = _STRICT | {"fastmath": {"reassoc", "contract"}}
_ARRAYS = {"vector": "f8[::1]", "matrix": "f8[:,::1]", "cube": "f8[:,:,::1]", "integers": "i8[::1]"}
_COMPILE_SYMBOL = "folklearn_compile"
_SECONDS_BETWEEN_LOOKS = 0.001  # at a kernel that is compiled although an interrupt came


class _CompilerListener(event.Listener):  # type: ignore[misc]
    """Tells `Compilation` when Numba compiles a kernel of this library, and nobody else's."""

    def on_start(self, happening: Any) -> None:
        """Called before a kernel is compiled; not before one is loaded from disk."""
        if _is_ours(happening):
            COMPILATION.begin()

    def on_end(self, happening: Any) -> None:
        """Called when it is compiled, or cannot be."""
        if _is_ours(happening):
            COMPILATION.end()


def _is_ours(happening: Any) -> bool:
    module: str = happening.data["dispatcher"].py_func.__module__
    return module.startswith("folklearn.")


event.register("numba:compile", _CompilerListener())


def sources_of(folder: Path) -> str:
    """Return a digest of the Python sources of a folder."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_SOURCES = sources_of(Path(__file__).parent)


def keep_until_sources_change(dispatcher: Any, sources: str = _SOURCES) -> Any:
    """Let a cached kernel live as long as all sources of kernels stay as they are.

    Numba compares what it finds on disk with the file of the kernel itself: without this a
    kernel would go on computing with what the kernels that it calls said before an edit or an
    update. Numba has no public name for the stamp that it compares.
    """
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = sources
    return dispatcher


def _sources_of_kernel(function: Callable[..., Any]) -> str:
    return _sources_with(function.__code__.co_filename)


@functools.cache  # a file with many kernels is read once
def _sources_with(name: str) -> str:
    """Return a digest of all kernels, and of a file that lies elsewhere."""
    file = Path(name)
    if file.parent == Path(__file__).parent or not file.exists():
        return _SOURCES
    return _SOURCES + hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def _compile_lazily(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    return keep_until_sources_change(
        jit(function, cache=True, **options), _sources_of_kernel(function)
    )


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, or load it from disk."""
    return _compile_lazily(function, _STRICT)


def fast_kernel(function: Callable[..., Any]) -> Any:
    """Compile as `kernel` does; sums may be reordered and multiplications fused with additions."""
    return _compile_lazily(function, _FAST)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """Compile into the kernels that call the function; called from Python it is plain Python."""
    return register_jitable(**_STRICT)(function)


def fast_inner_kernel(function: Callable[..., Any]) -> Any:
    """Compile as `inner_kernel` does; sums may be reordered."""
    return register_jitable(**_FAST)(function)


def inline_kernel(function: Callable[..., Any]) -> Any:
    """Compile as a part of each caller: for a few statements that are not worth a call."""
    return _compile_lazily(function, _STRICT | {"inline": "always"})


def shared_kernel(signature: str, *, fast: bool = False) -> Callable[..., Any]:
    """Compile a function of a given signature once, for all kernels that call it.

    The signature is Numba's, with `_ARRAYS` by name: "f8(matrix, vector, i8)".
    """
    for name, array in _ARRAYS.items():
        signature = re.sub(rf"\b{name}\b", array, signature)

    def decorate(function: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return function
        return _share(function, signature, _FAST if fast else _STRICT)

    return decorate


class _Cell:
    """Eight bytes for the address of a shared kernel, 0 until it is compiled."""

    def __init__(
        self, function: Callable[..., Any], signature: Any, options: dict[str, Any]
    ) -> None:
        self._function, self._signature, self._options = function, signature, options
        self._content = np.zeros(1, np.int64)
        self.address = self._content.ctypes.data
        self.symbol = f"{function.__module__}.{function.__qualname__}".replace(".", "_")
        llvmlite.binding.add_symbol(self.symbol, self.address)

    @property
    def is_filled(self) -> bool:
        return bool(self._content[0])

    def fill(self) -> None:
        """Compile the kernel, or load it from disk."""
        compiled = CFunc(self._function, self._signature, {}, dict(self._options))
        compiled.enable_caching()
        keep_until_sources_change(compiled, _sources_of_kernel(self._function))
        collects = gc.isenabled()
        gc.disable()  # searching what the compiler holds takes a tenth of its time, in vain
        COMPILATION.begin()
        try:
            compiled.compile()
        finally:
            COMPILATION.end()
            if collects:
                gc.enable()
        self._compiled = compiled  # keeps the code at the address
        self._content[0] = int(compiled.address or 0)


_CELLS: dict[int, _Cell] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_int64)
def _fill_cell(address: int) -> None:
    """Compile in the midst of a kernel, which cannot go on without: exceptions have to wait."""
    is_returning: list[bool] = []
    while not _CELLS[address].is_filled:
        try:
            _CELLS[address].fill()
        except KeyboardInterrupt:
            if not is_returning:
                is_returning.append(False)
                threading.Thread(target=_interrupt_later, args=(is_returning,), daemon=True).start()
        except BaseException:
            traceback.print_exc()
            os._exit(70)
    if is_returning:
        # The last statement: Python raises nothing between it and the return to the kernel.
        is_returning[0] = True


def _interrupt_later(is_returning: list[bool]) -> None:
    """Raise KeyboardInterrupt in the main thread, once it is on its way out of the compiler."""
    while not is_returning[0]:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if hasattr(signal, "pthread_kill"):  # which also wakes a main thread that waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


llvmlite.binding.add_symbol(_COMPILE_SYMBOL, ctypes.cast(_fill_cell, ctypes.c_void_p).value)


def _argument_type(actual: Any, declared: Any) -> Any:
    """Return the declared type, or that of an array which differs in being read-only alone."""
    is_read_only = isinstance(actual, types.Array) and not actual.mutable
    return actual if is_read_only and actual.copy(readonly=False) == declared else declared


def _share(function: Callable[..., Any], signature: str, options: dict[str, Any]) -> Any:
    arguments, result = sigutils.normalize_signature(signature)
    cell = _Cell(function, (arguments, result), options)
    _CELLS[cell.address] = cell

    @functools.wraps(function)
    def shared(*values: Any) -> Any:
        return from_python(*values)

    from_python = _compile_lazily(lambda *values: shared(*values), _STRICT)

    @type_callable(shared)
    def type_call(context: Any) -> Any:
        def type_arguments(*actual: Any) -> Any:
            return result(*map(_argument_type, actual, arguments))

        type_arguments.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return type_arguments

    @lower_builtin(shared, types.VarArg(types.Any))
    def lower_call(context: Any, builder: Any, _: Any, values: Any) -> Any:
        integer = ir.IntType(64)
        content = builder.module.globals.get(cell.symbol)
        if content is None:
            content = ir.GlobalVariable(builder.module, integer, cell.symbol)
        address = cgutils.alloca_once_value(builder, builder.load(content))
        is_empty = builder.icmp_unsigned("==", builder.load(address), integer(0))
        with builder.if_then(is_empty, likely=False):
            fill = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [integer]), _COMPILE_SYMBOL
            )
            builder.call(fill, [builder.ptrtoint(content, integer)])
            builder.store(builder.load(content), address)
        kind = ir.FunctionType(
            context.get_value_type(result), [context.get_value_type(each) for each in arguments]
        )
        pointer = builder.inttoptr(builder.load(address), kind.as_pointer())
        returned = builder.call(pointer, values)
        return context.get_dummy_value() if result is types.void else returned

    return shared
