"""Data frames, whatever library made them: which columns hold text, and what it says."""

import importlib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_array

from folklearn.errors import InvalidInputError
from folklearn.model.hashing import TextHasher

Flags = NDArray[np.bool_]

nw: Any
try:
    nw = importlib.import_module("narwhals.stable.v1")
except ImportError:  # older versions of scikit-learn do without: frames are arrays then
    nw = None

_NUMBERS = (Real, Decimal, np.bool_)


def opened(X: Any) -> Any:
    """Return X as a frame of narwhals, or None if it is no data frame."""
    if nw is None or not nw.dependencies.is_into_dataframe(X):
        return None
    return nw.from_native(X, eager_only=True)


def text_columns(frame: Any) -> Flags:
    """Return which columns hold text (d,); refuse those that hold neither text nor numbers."""
    return np.array([_is_text(column) for column in frame.iter_columns()], bool)


def _is_text(column: Any) -> bool:
    """Tell by the type of the column or, where that says nothing, by its values."""
    dtype = column.dtype
    own = getattr(column.to_native(), "dtype", dtype)
    if dtype.is_numeric() or dtype == nw.Boolean or getattr(own, "kind", "O") in "biuf":
        return False
    if own == np.dtype(object) or dtype in (nw.Object, nw.Unknown):
        values = [value for value, gap in _cells(column) if not gap]
        if all(isinstance(value, _NUMBERS) for value in values):
            return False
        if all(isinstance(value, (str, *_NUMBERS)) for value in values):
            return True
    elif dtype in (nw.String, nw.Categorical, nw.Enum):
        return True
    raise InvalidInputError(
        f"column {column.name!r} is of type {own}, and only numbers, truth values, text and "
        "categories can be used: convert or drop it"
    )


def _cells(column: Any) -> Iterator[tuple[Any, bool]]:
    """Yield every value, and whether it is missing."""
    return zip(column.to_list(), column.is_null().to_list(), strict=True)


def refuse_new_text(frame: Any, new_text: Flags) -> None:
    """Raise for text in a column that began with numbers."""
    if new_text.any():
        raise InvalidInputError(
            f"column {frame.columns[new_text.argmax()]!r} holds text, but held none in the first "
            "rows: convert it to numbers or, to have it taken as text, begin with text in it"
        )


def as_numbers(
    frame: Any, is_text: Flags, names: Iterable[Any], n_buckets: int, **checks: Any
) -> Any:
    """Return a frame as numbers (T, n): its columns of numbers, then the buckets of its text.

    With text they are sparse, because of the buckets few are not 0. ``names`` are those that
    the columns of text had in the first rows, and ``checks`` are for `check_array`.
    """
    if not is_text.any():
        return check_array(frame.to_native(), **checks)
    parts = [_hashed(frame, is_text, names, TextHasher(n_buckets))]
    if not is_text.all():
        numbers = frame[:, np.flatnonzero(~is_text).tolist()].to_native()
        parts.insert(0, scipy.sparse.csr_array(check_array(numbers, **checks)))
    return check_array(scipy.sparse.hstack(parts, format="csr"), **checks)


def _hashed(frame: Any, is_text: Flags, names: Iterable[Any], hasher: TextHasher) -> Any:
    """Return the columns of text as sparse numbers (T, n_buckets), see `TextHasher`."""
    shape = (frame.shape[0], hasher.n_buckets)
    total = scipy.sparse.csr_array(shape)
    for name, place in zip(names, np.flatnonzero(is_text).tolist(), strict=True):
        entries = [
            (row, *hasher.place(name, str(value)))
            for row, (value, gap) in enumerate(_cells(frame[:, place]))
            if not gap and value == value  # NaN is no gap where it is a number
        ]
        rows, buckets, signs = np.array(entries).reshape(-1, 3).T
        total += scipy.sparse.coo_array((signs, (rows.astype(int), buckets.astype(int))), shape)
    return total
