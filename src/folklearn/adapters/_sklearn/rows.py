"""Rows of numbers, dense or sparse: what is accepted, and how much is dense at a time."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from folklearn import problem
from folklearn.errors import InvalidInputError

Rows = Any  # (T, d): an array, or a sparse one in rows

ACCEPTED = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}
_BLOCK = 2**21  # numbers that are dense at a time


def refuse_text(X: Any) -> None:
    """Raise for an array or a list with text: scikit-learn would parse it, or not say why not."""
    if isinstance(X, list | tuple) or hasattr(X, "columns"):
        try:
            X = np.asarray(X)
        except ValueError:  # scikit-learn says what is wrong with its shape
            return
    if not isinstance(X, np.ndarray):
        return
    kind = X.dtype.kind
    if kind in "UST" or (kind == "O" and any(isinstance(value, str | bytes) for value in X.flat)):
        raise InvalidInputError(
            "X holds text, which is taken from data frames only: pass one (of pandas, polars or "
            "Arrow; it is read with narwhals), or convert the text to numbers"
        )


def refuse_huge(X: Any) -> None:
    """Raise for a row whose norm is too large for the arithmetic, as a learner would."""
    values = X.data if scipy.sparse.issparse(X) else X
    largest = max(np.fmax.reduce(values, None, initial=0), -np.fmin.reduce(values, None, initial=0))
    if largest < problem.MAX_NORM / math.sqrt(2 * X.shape[1]):
        return
    for i in range(X.shape[0]):
        row = np.nan_to_num(taken(X[i : i + 1], sparse=False)[0])
        if math.hypot(*row) >= problem.MAX_NORM * (1.0 - 1e-9):
            problem.refuse_context(row, f"row {i} of X")


def blocks(X: Any, sparse: bool = False) -> Iterator[slice]:
    """Yield the rows of X, as many at a time as may be dense, or as are few if they stay sparse."""
    n_rows, width = X.shape
    if sparse and scipy.sparse.issparse(X):
        width = X.nnz // max(n_rows, 1) + 1
    size = max(1, _BLOCK // width)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def taken(X: Any, sparse: bool) -> Any:
    """Return rows of X as a model takes them: dense, unless it is one of sparse rows."""
    return X if sparse or not scipy.sparse.issparse(X) else X.toarray()
