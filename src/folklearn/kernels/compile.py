"""How kernels are compiled, and when what was compiled before may be used again.

Kernels release the GIL, divide by zero as NumPy does, and are kept on disk. A fast kernel may
also add up in another order and fuse multiplications with additions, nothing else: NaN and
infinity keep their meaning.

Numba compiles a `kernel` into every kernel that calls it, again and again. A `shared_kernel` is
compiled once, when it is first called: callers, which may themselves be compiled, hold the name
of a cell with its address. So what a call does not use is not compiled, and the result of a fast
kernel has the same last bit in every caller. With plain kernels instead, the first prediction and
update of `auto` compiled three times as long.

`a[:] = b` for two arrays takes three seconds to compile, because of its error message; a loop 10
ms, an element of an array 2 ms.
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
_WITHIN_KERNELS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # which take their time
_ARRAYS = {"vector": "f8[::1]", "matrix": "f8[:,::1]", "cube": "f8[:,:,::1]", "integers": "i8[::1]"}
_COMPILE_SYMBOL = "folklearn_compile"
_SECONDS_TO_INTERRUPT = 0.05  # after a compilation, by when its kernel goes on


def _is_ours(compilation: Any) -> bool:
    # A function that was made by `exec` may have no module.
    return str(compilation.data["dispatcher"].py_func.__module__).startswith("folklearn.")


class _CompilerListener(event.Listener):  # type: ignore[misc]
    """Tells `Compilation` when Numba compiles, not loads, a kernel of this library."""

    def on_start(self, compilation: Any) -> None:
        if _is_ours(compilation):
            COMPILATION.begin()

    def on_end(self, compilation: Any) -> None:
        if _is_ours(compilation):
            COMPILATION.end()


event.register("numba:compile", _CompilerListener())


def digest_code(*sources: Path) -> str:
    """Return a digest of Python files without their comments, docstrings and empty lines."""
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        code = b"".join(source.read_bytes().split(b'"' * 3)[::2])
        lines = (line.partition(b"#")[0].rstrip() for line in code.splitlines())
        digest.update(b"\n".join([source.name.encode(), *filter(None, lines), b""]))
    return digest.hexdigest()


_FOLDER = Path(__file__).parent
_OF_ALL_KERNELS = digest_code(*sorted(_FOLDER.glob("*.py")))


@functools.cache  # a file with many kernels is read once
def _stamp_of(file: str) -> str:
    """Return a digest of all kernels, and of a file that lies elsewhere."""
    source = Path(file)
    is_elsewhere = source.parent != _FOLDER and source.exists()
    return _OF_ALL_KERNELS + (digest_code(source) if is_elsewhere else "")


def keep_until_code_changes(compiled: Any, stamp: str) -> Any:
    """Let a cached kernel live as long as the code of all kernels, not of its own file alone.

    Numba has no public name for the stamp that it compares.
    """
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = stamp
    return compiled


def _compile_lazily(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    compiled = jit(function, cache=True, no_cfunc_wrapper=True, **options)
    return keep_until_code_changes(compiled, _stamp_of(function.__code__.co_filename))


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, or load it from disk."""
    return _compile_lazily(function, _STRICT)


def fast_kernel(function: Callable[..., Any]) -> Any:
    """Compile as `kernel` does; sums may be reordered and multiplications fused with additions."""
    return _compile_lazily(function, _FAST)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """Compile into the kernels that call the function; called from Python it is plain Python."""
    return register_jitable(**_STRICT, **_WITHIN_KERNELS)(function)


def helper_kernel(function: Callable[..., Any]) -> Any:
    """Compile once for all kernels that call the function, which Python cannot.

    Numba copies an `inner_kernel` for all options of callers, this one for every constant argument.
    """
    return jit(function, **_STRICT, **_WITHIN_KERNELS)


class _Cell:
    """Eight bytes for the address of a shared kernel, 0 until it is compiled."""

    def __init__(self, function: Any, signature: Any, options: dict[str, Any]) -> None:
        self._function, self._signature, self._options = function, signature, options
        self.content = np.zeros(1, np.int64)
        self.symbol = f"{function.__module__}.{function.__qualname__}".replace(".", "_")
        llvmlite.binding.add_symbol(self.symbol, self.content.ctypes.data)

    def fill(self) -> None:
        """Compile the kernel, or load it from disk."""
        compiled = CFunc(self._function, self._signature, {}, dict(self._options))
        compiled.enable_caching()
        keep_until_code_changes(compiled, _stamp_of(self._function.__code__.co_filename))
        collects = gc.isenabled()
        gc.disable()  # searching what the compiler holds takes a tenth of its time, in vain
        COMPILATION.begin()
        try:
            compiled.compile()
        finally:
            COMPILATION.end()
            if collects:
                gc.enable()
        self.compiled = compiled  # keeps the code at the address
        self.content[0] = int(compiled.address or 0)


_CELLS: dict[int, _Cell] = {}  # by the address of their content
_FILLING = threading.RLock()


@ctypes.CFUNCTYPE(None, ctypes.c_int64)
def _fill_cell(address: int) -> None:
    """Compile in the midst of a kernel, which cannot go on without: an interrupt has to wait."""
    cell = _CELLS[address]
    while True:
        try:
            with _FILLING:  # a second copy would replace the code that another thread runs
                if not cell.content[0]:
                    cell.fill()
            return  # Python raises nothing between the last call and this
        except KeyboardInterrupt:
            threading.Timer(_SECONDS_TO_INTERRUPT, _interrupt_later, [cell]).start()
        except BaseException:
            traceback.print_exc()
            os._exit(70)


def _interrupt_later(cell: _Cell) -> None:
    """Raise KeyboardInterrupt in the main thread, if a cell is full, or else try again."""
    if not cell.content[0]:
        threading.Timer(_SECONDS_TO_INTERRUPT, _interrupt_later, [cell]).start()
    elif hasattr(signal, "pthread_kill"):  # which also wakes a main thread that waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


llvmlite.binding.add_symbol(_COMPILE_SYMBOL, ctypes.cast(_fill_cell, ctypes.c_void_p).value)


def _argument_type(actual: Any, declared: Any) -> Any:
    """Return the declared type, or that of an array which differs in being read-only alone."""
    is_read_only = isinstance(actual, types.Array) and not actual.mutable
    return actual if is_read_only and actual.copy(readonly=False) == declared else declared


def shared_kernel(signature: str, *, fast: bool = False) -> Callable[..., Any]:
    """Compile a function of a given signature once, for all kernels that call it.

    The signature is Numba's, with `_ARRAYS` by name: "f8(matrix, vector, i8)".
    """
    for name, array in _ARRAYS.items():
        signature = re.sub(rf"\b{name}\b", array, signature)
    return functools.partial(_share, signature=signature, options=_FAST if fast else _STRICT)


def _share(function: Callable[..., Any], signature: str, options: dict[str, Any]) -> Any:
    if config.DISABLE_JIT:
        return function
    arguments, result = sigutils.normalize_signature(signature)
    cell = _Cell(function, (arguments, result), options)
    _CELLS[cell.content.ctypes.data] = cell

    @functools.wraps(function)
    def call_shared(*values: Any) -> Any:
        return from_python(*values)

    from_python = _compile_lazily(lambda *values: call_shared(*values), _STRICT)

    @type_callable(call_shared)
    def type_call(context: Any) -> Any:
        def type_arguments(*actual: Any) -> Any:
            return result(*map(_argument_type, actual, arguments))

        type_arguments.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return type_arguments

    @lower_builtin(call_shared, types.VarArg(types.Any))
    def lower_call(context: Any, builder: Any, _: Any, values: Any) -> Any:
        integer = ir.IntType(64)
        content = builder.module.globals.get(cell.symbol)
        if content is None:
            content = ir.GlobalVariable(builder.module, integer, cell.symbol)
        is_empty = builder.icmp_unsigned("==", builder.load(content), integer(0))
        with builder.if_then(is_empty, likely=False):
            fill = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [integer]), _COMPILE_SYMBOL
            )
            builder.call(fill, [builder.ptrtoint(content, integer)])
        kind = ir.FunctionType(
            context.get_value_type(result), [context.get_value_type(each) for each in arguments]
        )
        pointer = builder.inttoptr(builder.load(content), kind.as_pointer())
        # The caller keeps the arrays alive: without an owner nothing in there counts references,
        # by locked instructions, which took half the time of a round of few features.
        values = list(values)
        for n, each in enumerate(arguments):
            if isinstance(each, types.Array):
                no_owner = ir.Constant(values[n].type.elements[0], None)
                values[n] = builder.insert_value(values[n], no_owner, 0)
        returned = builder.call(pointer, values)
        return context.get_dummy_value() if result is types.void else returned

    return call_shared
