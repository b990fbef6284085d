"""Where matrix products run: SciPy's BLAS and LAPACK, callable from inside compiled code.

Large ones may run on a device of PyTorch instead (`device_named`, `folklearn.kernels.on_torch`).

The routines of ``scipy.linalg.cython_blas`` and ``cython_lapack`` are bound by symbol name, not
by address, so kernels that call them stay cacheable on disk. All matrices are in BLAS's column
order; a C-ordered array of shape (a, b) is the column-ordered b x a matrix, and a lower triangle
stored by rows is an upper triangle stored by columns.

Threads: BLAS splits small products across threads at a loss, so callers state how many
threads a piece of work deserves (`one_thread`), and the previous setting is restored.
"""

from contextlib import nullcontext
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from threading import Lock
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from threadpoolctl import ThreadpoolController

from folklearn.errors import InvalidInputError
from folklearn.kernels.on_torch import Device

OWN = "cpu"  # this library's compiled code, no device
THREADED_N = 4000  # below this many state rows one thread is fastest
NEVER_SPLIT = 200_000  # multiply-adds; matrix products this small stay on one thread
TRANSPOSED, PLAIN, LEFT, RIGHT = (ord(letter) for letter in "TNLR")


def _bind(name: str, arguments: str, library: str = "cython_blas") -> Any:
    """Return a routine that kernels call by value, with its arguments in the order of BLAS.

    c is a character, i an integer, d a number, a an array and the offset of its first element, o
    what the routine reports and returns. A capital or a digit is always that argument.
    """
    symbol, kinds = f"folklearn_{name}", arguments.split()
    llvmlite.binding.add_symbol(
        symbol, get_cython_function_address(f"scipy.linalg.{library}", name)
    )
    free = [kind for kind in "".join(kinds).replace("a", "ai") if kind in "cida"]
    scalars = {"c": types.int64, "i": types.int64, "d": types.float64}

    def routine(typing_context, *given):
        typed = [scalars.get(kind, own) for kind, own in zip(free, given, strict=True)]

        def generate(context, builder, signature, values):
            pointer, left = ir.IntType(8).as_pointer(), iter(range(len(values)))

            def refer(value):
                return builder.bitcast(cgutils.alloca_once_value(builder, value), pointer)

            def pass_argument(kind):
                if kind.isupper():
                    return refer(ir.IntType(8)(ord(kind)))
                if kind.isdigit():
                    return refer(ir.DoubleType()(float(kind)))
                if kind == "o":
                    return builder.bitcast(info, pointer)
                here = next(left)
                if kind == "d":
                    return refer(values[here])
                if kind != "a":
                    return refer(builder.trunc(values[here], ir.IntType(8 if kind == "c" else 32)))
                array = context.make_array(signature.args[here])(context, builder, values[here])
                return builder.bitcast(builder.gep(array.data, [values[next(left)]]), pointer)

            info = cgutils.alloca_once_value(builder, ir.IntType(32)(0))
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [pointer] * len(kinds)), symbol
            )
            builder.call(function, [pass_argument(kind) for kind in kinds])
            return builder.sext(builder.load(info), ir.IntType(64))

        return types.int64(*typed), generate

    names = [f"argument_{number}" for number in range(len(free))]
    parameters = [Parameter(each, Parameter.POSITIONAL_ONLY) for each in ("context", *names)]
    routine.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(routine)


# In the comments x0 is the offset of an array, ldx the stride of its columns.
# C = alpha op(A) op(B) + beta C, m x n with inner size k:
# trans_a, trans_b, m, n, k, alpha, A, a0, lda, B, b0, ldb, beta, C, c0, ldc
gemm = _bind("dgemm", "c c i i i d a i a i d a i")
# C = A B for a symmetric m x m matrix A given by its upper triangle:
# m, n, A, a0, lda, B, b0, ldb, C, c0, ldc
symm = _bind("dsymm", "L U i i 1 a i a i 0 a i")
# y = A x for a symmetric n x n matrix A given by its upper triangle:
# n, A, a0, lda, x, x0, stride of x, y, y0, stride of y
symv = _bind("dsymv", "U i 1 a i a i 0 a i")
# C += alpha op(A) op(A)' in the upper triangle of the n x n matrix C; op(A) is n x k:
# trans, n, k, alpha, A, a0, lda, C, c0, ldc
syrk = _bind("dsyrk", "U c i i d a i 1 a i")
# B = alpha op(A) B or alpha B op(A) in place, A upper triangular, B m x n:
# side, trans, m, n, alpha, A, a0, lda, B, b0, ldb
trmm = _bind("dtrmm", "c U c N i i d a i a i")
# Factor A = U'U in place in the upper triangle of the n x n matrix A; return 0, or the number of
# the first leading minor that is not positive definite: n, A, a0, lda
potrf = _bind("dpotrf", "U i a i o", "cython_lapack")
# B = A^-1 B in place for n x nrhs B, given the factor that `potrf` left; return 0:
# n, nrhs, A, a0, lda, B, b0, ldb
potrs = _bind("dpotrs", "U i i a i a i o", "cython_lapack")


@intrinsic
def address(typing_context, array, offset):
    """Return the address of element `offset` of a contiguous array."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(
            builder.gep(data, [arguments[1]]), context.get_value_type(types.voidptr)
        )

    return types.voidptr(array, types.intp), generate


@cache
def _blas_libraries(everywhere: bool) -> list[Any]:
    """The BLAS that SciPy calls, if it can be recognised; every BLAS of the process."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    of_scipy = [each for each in libraries if Path(each.filepath).parent.name == "scipy.libs"]
    return libraries if everywhere or not of_scipy else of_scipy


_HOLDING = Lock()
_HELD: dict[str, tuple[int, int]] = {}  # by file: how many hold it to one thread, threads before


class OneThread:
    """Hold BLAS to one thread inside a with block; the last thread to leave restores the setting.

    `everywhere` holds NumPy's own BLAS too, not only the one that compiled code calls.
    """

    __slots__ = ("_everywhere",)

    def __init__(self, *, everywhere: bool = False) -> None:
        self._everywhere = everywhere

    def __enter__(self) -> None:
        with _HOLDING:
            for library in _blas_libraries(self._everywhere):
                n_holders, n_threads = _HELD.get(library.filepath, (0, 1))
                if n_holders == 0:
                    n_threads = library.get_num_threads()
                    if n_threads != 1:
                        library.set_num_threads(1)
                _HELD[library.filepath] = n_holders + 1, n_threads

    def __exit__(self, *error: object) -> None:
        with _HOLDING:
            for library in _blas_libraries(self._everywhere):
                n_holders, n_threads = _HELD[library.filepath]
                _HELD[library.filepath] = n_holders - 1, n_threads
                if n_holders == 1 and n_threads != 1:
                    library.set_num_threads(n_threads)


def one_thread(n: int, rank: int) -> OneThread | None:
    """Return a context for single rank updates of an n x n state, or None if none is needed."""
    return OneThread() if n * n * rank > NEVER_SPLIT else None


def threads_for(n: int, *, everywhere: bool = False) -> OneThread | nullcontext[None]:
    """Return a context for work on n x n matrices: one BLAS thread, unless n is large."""
    return nullcontext() if n >= THREADED_N else OneThread(everywhere=everywhere)


def device_named(name: str | None) -> Device | None:
    """Return a device, or None for this library's own compiled code."""
    if name is None or name == OWN:
        return None
    if not isinstance(name, str):
        raise InvalidInputError(f"device must be a name such as 'cuda', got {name!r}")
    return Device(name)
