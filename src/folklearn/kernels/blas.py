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
from pathlib import Path
from threading import Lock
from typing import Any

import llvmlite.binding
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from threadpoolctl import ThreadpoolController

from folklearn.errors import InvalidInputError
from folklearn.kernels.compile import inline_kernel
from folklearn.kernels.on_torch import Device

OWN = "cpu"  # this library's compiled code, no device
THREADED_N = 4000  # below this many state rows one thread is fastest
NEVER_SPLIT = 200_000  # multiply-adds; matrix products this small stay on one thread
TRANSPOSED, PLAIN, UPPER, LEFT, RIGHT = (ord(letter) for letter in "TNULR")


def _bind(name: str, n_arguments: int, library: str = "cython_blas") -> Any:
    symbol = f"folklearn_{name}"
    address = get_cython_function_address(f"scipy.linalg.{library}", name)
    llvmlite.binding.add_symbol(symbol, address)
    return types.ExternalFunction(symbol, types.void(*[types.voidptr] * n_arguments))


_dgemm = _bind("dgemm", 13)
_dsymm = _bind("dsymm", 12)
_dsyrk = _bind("dsyrk", 10)
_dtrmm = _bind("dtrmm", 11)
_dpotrf = _bind("dpotrf", 5, "cython_lapack")
_dpotrs = _bind("dpotrs", 8, "cython_lapack")


@intrinsic
def _ref(typing_context, value):
    """Return the address of a scalar kept on the stack: BLAS takes everything by reference."""

    def generate(context, builder, signature, arguments):
        slot = cgutils.alloca_once_value(builder, arguments[0])
        return builder.bitcast(slot, context.get_value_type(types.voidptr))

    return types.voidptr(value), generate


@intrinsic
def address(typing_context, array, offset):
    """Return the address of element `offset` of a contiguous array."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(
            builder.gep(data, [arguments[1]]), context.get_value_type(types.voidptr)
        )

    return types.voidptr(array, types.intp), generate


@inline_kernel
def gemm(trans_a, trans_b, m, n, k, alpha, A, a0, lda, B, b0, ldb, beta, C, c0, ldc):
    """C = alpha op(A) op(B) + beta C: m x n with inner size k; x0 offsets, ldx strides."""
    _dgemm(
        _ref(np.int8(trans_a)), _ref(np.int8(trans_b)),
        _ref(np.int32(m)), _ref(np.int32(n)), _ref(np.int32(k)),
        _ref(alpha), address(A, a0), _ref(np.int32(lda)), address(B, b0), _ref(np.int32(ldb)),
        _ref(beta), address(C, c0), _ref(np.int32(ldc)),
    )  # fmt: skip


@inline_kernel
def symm(m, n, A, a0, lda, B, b0, ldb, C, c0, ldc):
    """C = A B for a symmetric m x m matrix A given by its upper triangle."""
    _dsymm(
        _ref(np.int8(LEFT)), _ref(np.int8(UPPER)), _ref(np.int32(m)), _ref(np.int32(n)),
        _ref(1.0), address(A, a0), _ref(np.int32(lda)), address(B, b0), _ref(np.int32(ldb)),
        _ref(0.0), address(C, c0), _ref(np.int32(ldc)),
    )  # fmt: skip


@inline_kernel
def syrk(trans, n, k, alpha, A, a0, lda, C, c0, ldc):
    """C += alpha op(A) op(A)' in the upper triangle of the n x n matrix C; op(A) is n x k."""
    _dsyrk(
        _ref(np.int8(UPPER)), _ref(np.int8(trans)), _ref(np.int32(n)), _ref(np.int32(k)),
        _ref(alpha), address(A, a0), _ref(np.int32(lda)),
        _ref(1.0), address(C, c0), _ref(np.int32(ldc)),
    )  # fmt: skip


@inline_kernel
def trmm(side, trans, m, n, alpha, A, a0, lda, B, b0, ldb):
    """B = alpha op(A) B or alpha B op(A) in place, A upper triangular, B m x n."""
    _dtrmm(
        _ref(np.int8(side)), _ref(np.int8(UPPER)), _ref(np.int8(trans)), _ref(np.int8(PLAIN)),
        _ref(np.int32(m)), _ref(np.int32(n)), _ref(alpha),
        address(A, a0), _ref(np.int32(lda)), address(B, b0), _ref(np.int32(ldb)),
    )  # fmt: skip


@inline_kernel
def potrf(n, A, a0, lda):
    """Factor A = U'U in place in the upper triangle of the n x n matrix A.

    Return 0, or the number of the first leading minor that is not positive definite.
    """
    info = np.empty(1, np.int32)
    _dpotrf(
        _ref(np.int8(UPPER)), _ref(np.int32(n)), address(A, a0), _ref(np.int32(lda)),
        address(info, 0),
    )  # fmt: skip
    return info[0]


@inline_kernel
def potrs(n, nrhs, A, a0, lda, B, b0, ldb):
    """B = A^-1 B in place for n x nrhs B, given the factor that `potrf` left; return 0."""
    info = np.empty(1, np.int32)
    _dpotrs(
        _ref(np.int8(UPPER)), _ref(np.int32(n)), _ref(np.int32(nrhs)),
        address(A, a0), _ref(np.int32(lda)), address(B, b0), _ref(np.int32(ldb)),
        address(info, 0),
    )  # fmt: skip
    return info[0]


@cache
def _blas_libraries(everywhere: bool) -> list[Any]:
    """The BLAS that SciPy calls, if it can be told apart; every BLAS of the process."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    of_scipy = [each for each in libraries if Path(each.filepath).parent.name == "scipy.libs"]
    return libraries if everywhere or not of_scipy else of_scipy


_HOLDING = Lock()
_HELD: dict[str, tuple[int, int]] = {}  # by file: how many hold it to one thread, threads before


class OneThread:
    """Hold BLAS to one thread inside a with block; the last to leave restores the setting.

    The setting is one for all threads of Python: if each remembered its own, one would restore it
    under another, or keep what another had set.

    everywhere : NumPy's own BLAS too, not only the one that compiled code calls.
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


def threads_for(n: int) -> OneThread | nullcontext[None]:
    """Return a context for work on n x n matrices: one BLAS thread, unless n is large."""
    return nullcontext() if n >= THREADED_N else OneThread()


def device_named(name: str | None) -> Device | None:
    """Return a device, or None for this library's own compiled code."""
    if name is None or name == OWN:
        return None
    if not isinstance(name, str):
        raise InvalidInputError(f"device must be a name such as 'cuda', got {name!r}")
    return Device(name)
