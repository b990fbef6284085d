"""A pytest plugin that lets kernels run as plain Python, for tools that change them often.

``NUMBA_DISABLE_JIT=1 python -m pytest -p tests.interpreted ...`` compiles nothing. What plain
Python cannot call, BLAS by address and views of raw memory, is replaced here.
"""

import os

import numpy as np
from numpy.lib.stride_tricks import as_strided

from folklearn.kernels import blas, experts, second_order, simplex

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


def _dgemm(ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
    out = _matrix(C, m, n, ldc)
    product = alpha * (_op(ta, A, m, k, lda) @ _op(tb, B, k, n, ldb))
    out[:] = product if beta == 0.0 else product + beta * out


def _dsymm(side, uplo, m, n, alpha, A, lda, B, ldb, beta, C, ldc):
    _matrix(C, m, n, ldc)[:] = _symmetric(A, m, lda) @ _matrix(B, m, n, ldb)


def _dsyrk(uplo, trans, n, k, alpha, A, lda, beta, C, ldc):
    out, half = _matrix(C, n, n, ldc), _op(trans, A, n, k, lda)
    places = np.triu_indices(n)
    out[places] = (alpha * half @ half.T + beta * out)[places]


def _dtrmm(side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb):
    out = _matrix(B, m, n, ldb)
    order = m if side == blas.LEFT else n
    triangle = np.triu(_matrix(A, order, order, lda))
    triangle = triangle.T if trans == blas.TRANSPOSED else triangle
    out[:] = alpha * (triangle @ out if side == blas.LEFT else out @ triangle)


def _dpotrf(uplo, n, A, lda, info):
    out = _matrix(A, n, n, lda)
    places = np.triu_indices(n)
    out[places] = np.linalg.cholesky(_symmetric(A, n, lda)).T[places]
    info[0] = 0


def _dpotrs(uplo, n, nrhs, A, lda, B, ldb, info):
    U, out = np.triu(_matrix(A, n, n, lda)), _matrix(B, n, nrhs, ldb)
    out[:] = np.linalg.solve(U, np.linalg.solve(U.T, out))
    info[0] = 0


def _address(array, offset):
    return array.reshape(-1)[offset:]


def _carray(flat, shape, dtype):
    return flat[: int(np.prod(shape))].view(dtype).reshape(shape)


blas._ref = lambda value: value
for _module in (blas, second_order, experts, simplex):
    _module.address = _address
    _module.carray = _carray
for _routine in (_dgemm, _dsymm, _dsyrk, _dtrmm, _dpotrf, _dpotrs):
    setattr(blas, _routine.__name__, _routine)
