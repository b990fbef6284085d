"""How kernels are compiled, and when what was compiled before may be used again.

Kernels release the GIL, divide by zero as NumPy does, and are kept on disk. A `fast_kernel` may
also add up in another order and fuse multiplications with additions, nothing else: NaN and
infinity keep their meaning.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, jit, version_info
from numba.core import event

from folklearn.progress import COMPILATION

# Versions of Numba whose inner workings `folklearn.kernels.parts` was tried with. With any other
# kernels are compiled as Numba does it by itself: the same results, after a longer wait.
KNOWN = frozenset({(0, 68)})

_STRICT: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": "numpy"}
_FAST = _STRICT | {"fastmath": {"reassoc", "contract"}}


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
    """Return a digest of all kernels, and of the file of this one if it lies elsewhere."""
    file = Path(function.__code__.co_filename)
    if file.parent == Path(__file__).parent or not file.exists():
        return _SOURCES
    return _SOURCES + hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    sources = _sources_of_kernel(function)
    if version_info.short in KNOWN and not config.DISABLE_JIT:
        from folklearn.kernels.parts import Kernel

        return keep_until_sources_change(Kernel(function, options), sources)
    return keep_until_sources_change(jit(function, cache=True, **options), sources)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, or load it from disk."""
    return _compiled(function, _STRICT)


def fast_kernel(function: Callable[..., Any]) -> Any:
    """Compile as `kernel` does; sums may be reordered and multiplications fused with additions."""
    return _compiled(function, _FAST)
