"""A pytest plugin that lets kernels run as plain Python, for tools that change them often.

``NUMBA_DISABLE_JIT=1 python -m pytest -p tests.interpreted ...`` compiles nothing. What plain
Python cannot call, BLAS by address and views of raw memory, is replaced here.
"""

import os

import numba
import numpy as np
from numpy.lib.stride_tricks import as_strided

from folklearn.kernels import blas

assert os.environ.get("NUMBA_DISABLE_JIT") == "1"


def _matrix(flat, m, n, ld):
    """The column-ordered m x n matrix with leading dimension ld at the start of `flat`."""
    return as_strided(flat, (m, n), (flat.itemsize, ld * flat.itemsize))


def _op(trans, flat, m, n, ld):
    """Op(A), of shape m x n."""
    return _matrix(flat, n, m, ld).T if trans == blas.TRANSPOSED else _matrix(flat, m, n, ld)


def _symmetric(flat, n, ld):
    upper = np.triu(_matrix(flat, n, n, ld))
    return upper + np.triu(upper, 1).T


def gemm(ta, tb, m, n, k, alpha, A, a0, lda, B, b0, ldb, beta, C, c0, ldc):
    out = _matrix(_from(C, c0), m, n, ldc)
    product = alpha * (_op(ta, _from(A, a0), m, k, lda) @ _op(tb, _from(B, b0), k, n, ldb))
    out[:] = product if beta == 0.0 else product + beta * out


def symm(m, n, A, a0, lda, B, b0, ldb, C, c0, ldc):
    product = _symmetric(_from(A, a0), m, lda) @ _matrix(_from(B, b0), m, n, ldb)
    _matrix(_from(C, c0), m, n, ldc)[:] = product


def syrk(trans, n, k, alpha, A, a0, lda, C, c0, ldc):
    out, half = _matrix(_from(C, c0), n, n, ldc), _op(trans, _from(A, a0), n, k, lda)
    places = np.triu_indices(n)
    out[places] += (alpha * half @ half.T)[places]


def trmm(side, trans, m, n, alpha, A, a0, lda, B, b0, ldb):
    out = _matrix(_from(B, b0), m, n, ldb)
    order = m if side == blas.LEFT else n
    triangle = np.triu(_matrix(_from(A, a0), order, order, lda))
    triangle = triangle.T if trans == blas.TRANSPOSED else triangle
    out[:] = alpha * (triangle @ out if side == blas.LEFT else out @ triangle)


def potrf(n, A, a0, lda):
    flat = _from(A, a0)
    places = np.triu_indices(n)
    _matrix(flat, n, n, lda)[places] = np.linalg.cholesky(_symmetric(flat, n, lda)).T[places]
    return 0


def potrs(n, nrhs, A, a0, lda, B, b0, ldb):
    U, out = np.triu(_matrix(_from(A, a0), n, n, lda)), _matrix(_from(B, b0), n, nrhs, ldb)
    out[:] = np.linalg.solve(U, np.linalg.solve(U.T, out))
    return 0


def _from(array, offset):
    return array.reshape(-1)[offset:]


def _carray(flat, shape, dtype):
    return flat[: int(np.prod(shape))].view(dtype).reshape(shape)


for _routine in (gemm, symm, syrk, trmm, potrf, potrs):
    setattr(blas, _routine.__name__, _routine)
blas.address = _from
numba.carray = _carray

from folklearn.kernels import experts, leaders, second_order, simplex  # noqa: E402 (they import it)

for _module in (experts, leaders, second_order, simplex):
    assert _module.address is _from
    assert _module.carray is _carray
