"""Kernels that are compiled once: as a part of the kernels that call them.

Numba optimises a function and turns it into machine code before any function that calls it, and
then once more as a part of each of them: most of the time to compile a tower of small kernels.
A kernel that is called by another is therefore only translated, and optimised with its caller.
A fast kernel that is called by one that is not is optimised by itself, once: its sums have the
same last bit whoever calls it.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.core.targetconfig import ConfigStack


class _Translated(JITCodeLibrary):  # type: ignore[misc]
    """Code that is optimised where it is linked to, and has no machine code of its own."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Translator(Compiler):  # type: ignore[misc]
    """Numba's compiler up to the step in which machine code is made."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, *rest: Any
    ) -> None:
        flags.no_compile = True
        library = _Translated(target.codegen(), "part of a kernel")
        super().__init__(typing, target, library, args, result, flags, *rest)

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        done = super().compile_extra(function)
        self.state.targetctx.insert_user_function(done.library, done.fndesc, [done.library])
        return done._replace(entry_point=done.library)


class _Part(CPUDispatcher):  # type: ignore[misc]
    """A kernel as a part of those that call it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        options = options | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=_Translator)

    def add_overload(self, done: Any) -> None:
        self.overloads[tuple(done.signature.args)] = done  # and nothing for Python to call

    def get_call_template(self, args: Any, kws: Any) -> Any:
        # Numba would translate it anew for every constant that it is called with.
        return super().get_call_template([types.unliteral(one) for one in args], kws)


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel as Python calls it; what other kernels call is its part."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions=options)
        self.enable_caching()

    @cached_property
    def _part(self) -> _Part:
        return _Part(self.py_func, self.targetoptions)

    @property
    def _is_part(self) -> bool:
        return "fastmath" not in self.targetoptions or bool(ConfigStack().top().fastmath)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        called: Any = self._part if self._is_part else super()
        return called.get_call_template(args, kws)

    def get_overload(self, signature: Any) -> Any:
        called: Any = self._part if self._is_part else super()
        return called.get_overload(signature)
