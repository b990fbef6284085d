"""The rows of X, arrays, sparse ones or data frames, as blocks of a model."""

import math
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.model.dataset import block_of
from folklearn.model.roles import IGNORED
from folklearn.readers.frames import is_frame
from folklearn.readers.open import open_reader
from folklearn.readers.table import Table
from folklearn.sparse import SparseRows

_ACCEPTED = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}
_BLOCK = 2**21  # numbers that are dense at a time


class Rows:
    """The rows of X, checked as scikit-learn checks them.

    The first rows of an estimator decide whether columns have names. Later ones are taken by
    position, as scikit-learn compares names.
    """

    def __init__(self, block: Table) -> None:
        self.whole = block

    @classmethod
    def of(cls, estimator: Any, X: Any, first: bool = False) -> "Rows":
        """Read X for an estimator."""
        named = first or estimator._names is not None
        if named and is_frame(X) and find_spec("narwhals") and find_spec("pyarrow"):
            validate_data(estimator, X, reset=first, skip_check_array=True)
            block = _block_of_frame(X, estimator)
            if first:
                estimator._names = list(block.columns)
            columns = zip(estimator._names, block.columns.values(), strict=True)
            return cls(Table(dict(columns), block.lines))
        if first and (estimator.roles or estimator.crosses):
            raise InvalidInputError("roles and crosses are for the columns of a data frame")
        _check_no_text(X)
        X = validate_data(estimator, X, reset=first, **_ACCEPTED)
        _check_huge(X)
        lines = np.arange(1, X.shape[0] + 1)
        if first:
            estimator._names = None
        if estimator._names is None:
            features = SparseRows.of(X) if scipy.sparse.issparse(X) else X
            return cls(Table({}, lines, features))
        dense = X.toarray() if scipy.sparse.issparse(X) else X
        return cls(Table(dict(zip(estimator._names, dense.T, strict=True)), lines))

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def is_checked(self) -> bool:
        """Whether no row can be refused any more after others were learned."""
        return not self.whole.columns or len(list(self.parts())) == 1

    def parts(self) -> Iterator[slice]:
        """Yield all rows, as many at a time as may be dense."""
        features = self.whole.features
        width = len(self.whole.columns) if features is None else features.shape[1]
        if isinstance(features, SparseRows):
            width = max(width if width < _BLOCK else 1, features.nnz // len(features))
        size = max(1, _BLOCK // max(1, width))
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))


def _block_of_frame(X: Any, estimator: Any) -> Table:
    import narwhals.stable.v2 as nw

    frame, reader = nw.from_native(X, eager_only=True), open_reader(X)
    roles = estimator.roles or {}
    own = {str(name): name for name in frame.columns}
    strange = [name for name in roles if name not in own]
    if strange:
        raise InvalidInputError(f"X has no column {strange[0]!r}, which was given a role")
    for name in own:
        if name in reader.names or roles.get(name) == IGNORED or frame[own[name]].is_null().all():
            continue
        raise InvalidInputError(
            f"column {name!r} is of type {frame.schema[own[name]]}, and only numbers, truth "
            "values, text, categories, dates and durations can be read: convert or drop it, or "
            f"say by roles that it is {IGNORED!r}"
        )
    if not len(frame):
        raise InvalidInputError(
            f"Found array with 0 sample(s) (shape={(0, len(own))}) while a minimum of 1 is "
            f"required by {type(estimator).__name__}."
        )
    block = block_of(X, reader.left_out)  # all of them are ignored, or empty
    gap = np.full(len(block), math.nan)
    return Table({name: block.columns.get(name, gap) for name in own}, block.lines)


def _check_no_text(X: Any) -> None:
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
            "X holds text, which is taken from data frames only, if the first rows came in one: "
            "pass one (of pandas, polars or Arrow; it is read with narwhals and pyarrow), or "
            "convert the text to numbers"
        )


def _check_huge(X: Any) -> None:
    """Raise for a row whose norm is too large for the arithmetic, as a learner would."""
    values = X.data if scipy.sparse.issparse(X) else X
    largest = max(np.fmax.reduce(values, None, initial=0), -np.fmin.reduce(values, None, initial=0))
    if largest < validation.MAX_NORM / math.sqrt(2 * X.shape[1]):
        return
    for i in range(X.shape[0]):
        row = X[[i]].data if scipy.sparse.issparse(X) else X[i]
        row = np.nan_to_num(row)
        if math.hypot(*row) >= validation.MAX_NORM * (1.0 - 1e-9):
            validation.check_context(row, f"row {i} of X")
