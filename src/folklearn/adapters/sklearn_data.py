"""Rows and labels as scikit-learn has them, as a model takes them."""

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.labels import BALANCED, balance_class_weight
from folklearn.model.roles import IGNORED
from folklearn.readers.columnar import is_frame
from folklearn.readers.open import as_table, open_reader
from folklearn.readers.table import Table
from folklearn.sparse import SparseRows

ClassLabels = NDArray[Any]

_MAX_LABEL = 2**53  # from here on, neighbouring integers are the same float
_LABEL_KINDS = {"b": "truth values", "i": "numbers", "u": "numbers", "f": "numbers"}
_ACCEPTED = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}


def read_rows(estimator: Any, X: Any, first: bool = False) -> Table:
    """Return the rows of X, checked as scikit-learn checks them.

    The first rows of an estimator decide whether columns have names. Later ones are taken by
    position, as scikit-learn compares names.
    """
    is_named = first or estimator._names is not None
    if is_named and is_frame(X) and find_spec("narwhals") and find_spec("pyarrow"):
        validate_data(estimator, X, reset=first, skip_check_array=True)
        table = _read_frame(X, estimator)
        if first:
            estimator._names = list(table.columns)
        columns = zip(estimator._names or (), table.columns.values(), strict=True)
        return Table(dict(columns), table.lines)
    if first and (estimator.roles or estimator.crosses):
        raise InvalidInputError("roles and crosses are for the columns of a data frame")
    _check_no_text(X)
    X = validate_data(estimator, X, reset=first, **_ACCEPTED)
    (T, d), rows = X.shape, SparseRows.of(X) if issparse(X) else X
    if isinstance(rows, SparseRows):
        values = np.nan_to_num(rows.values, nan=0.0)
        validation.rows_of_contexts(SparseRows(rows.indptr, rows.indices, values, d), d)
    else:
        validation.contexts(X, d, gaps=True)
    if first:
        estimator._names = None
    if estimator._names is None:
        return Table({}, np.arange(1, T + 1), rows)
    dense = rows.dense() if isinstance(rows, SparseRows) else rows
    return Table(dict(zip(estimator._names, dense.T, strict=True)), np.arange(1, T + 1))


def _read_frame(X: Any, estimator: Any) -> Table:
    import narwhals.stable.v2 as nw

    frame, reader = nw.from_native(X, eager_only=True), open_reader(X)
    roles = estimator.roles or {}
    names = {str(name): name for name in frame.columns}
    unknown = [name for name in roles if name not in names]
    if unknown:
        raise InvalidInputError(f"X has no column {unknown[0]!r}, which was given a role")
    for name in names:
        is_ignored = name in reader.names or roles.get(name) == IGNORED
        if is_ignored or frame[names[name]].is_null().all():
            continue
        raise InvalidInputError(
            f"column {name!r} is of type {frame.schema[names[name]]}, and only numbers, truth "
            "values, text, categories, dates and durations can be read: convert or drop it, or "
            f"say by roles that it is {IGNORED!r}"
        )
    if not len(frame):
        raise InvalidInputError(
            f"Found array with 0 sample(s) (shape={(0, len(names))}) while a minimum of 1 is "
            f"required by {type(estimator).__name__}."
        )
    table = as_table(X, reader.left_out)  # all of them are ignored, or empty
    gap = np.full(len(table), math.nan)
    return Table({name: table.columns.get(name, gap) for name in names}, table.lines)


def _check_no_text(X: Any) -> None:
    """Raise for an array or a list with text, which scikit-learn would parse."""
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


def read_labels(y: Any, known: ClassLabels, classes: Any) -> tuple[ClassLabels, ClassLabels]:
    """Return labels (T,) in the type of those known, and the classes to declare."""
    if y is None:
        raise InvalidInputError(
            "FolkloreClassifier requires y to be passed, but the target y is None"
        )
    values = column_or_1d(y, warn=True)
    assert_all_finite(values, input_name="y")
    labels, declared = _check_labels("y", values), known[:0]
    if classes is not None and np.size(classes):
        declared = _convert_labels("classes", _check_labels("classes", classes), known)
    all_known = np.concatenate([known, declared]) if len(known) else declared
    new = np.setdiff1d(declared, known) if len(known) else declared
    return _convert_labels("y", labels, all_known), new


def decide_class_weight(class_weight: Any, labels: ClassLabels, weights: Array) -> Any:
    """Return the weights of classes as a model takes them, with "balanced" computed."""
    classes = np.unique(labels)
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown and not set(classes.tolist()) <= set(class_weight):
            raise InvalidInputError(f"class_weight names {unknown}, which y does not hold")
    if not isinstance(class_weight, str) or class_weight != BALANCED:
        return class_weight
    totals = weights @ (labels[:, None] == classes)
    return balance_class_weight(dict(zip(classes.tolist(), totals.tolist(), strict=True)))


def _check_labels(name: str, values: Any) -> ClassLabels:
    labels = np.asarray(values)
    kind = labels.dtype.kind
    if labels.ndim != 1:
        raise InvalidInputError(f"{name} must be a list of labels, got shape {labels.shape}")
    if kind in "biuU":
        return labels
    if kind == "f" and (np.abs(labels) < _MAX_LABEL).all() and not (labels % 1.0).any():
        return labels
    if kind in "OT" and all(isinstance(label, str) for label in labels):
        return labels.astype(object)
    raise InvalidInputError(
        f"Unknown label type: {name} must hold integers, truth values or text, "
        f"got dtype {labels.dtype}"
    )


def _convert_labels(name: str, labels: ClassLabels, known: ClassLabels) -> ClassLabels:
    """Return labels in the type of others; whole floats and integers are one kind."""
    if not len(known):
        return labels
    kind, known_kind = (_LABEL_KINDS.get(array.dtype.kind, "text") for array in (labels, known))
    if kind != known_kind:
        verb = "holds" if name == "y" else "are"
        raise InvalidInputError(
            f"{name} {verb} {kind}, but the labels so far are {known_kind}: convert one to the "
            "other first"
        )
    if kind != "numbers" or (labels.dtype.kind == "f") == (known.dtype.kind == "f"):
        return labels
    converted = labels.astype(np.float64 if known.dtype.kind == "f" else np.int64)
    return _check_labels("all labels together", converted)
