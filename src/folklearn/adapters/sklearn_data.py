"""Rows, labels and weights as scikit-learn has them, as a model takes them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
from folklearn.model.model import Model
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


@dataclass(frozen=True)
class Target:
    """Labels (T,), or soft labels (T, K) and the classes of their columns."""

    values: ClassLabels
    columns: ClassLabels | None = None

    @classmethod
    def read(cls, y: Any, known: ClassLabels, classes: Any) -> tuple["Target", ClassLabels]:
        """Check labels; return them in the type of those known, and the classes to declare."""
        if y is None:
            raise InvalidInputError(
                "FolkloreClassifier requires y to be passed, but the target y is None"
            )
        columns, values = getattr(y, "columns", None), np.asarray(y)
        is_soft = values.ndim == 2 and values.shape[1] > 1
        if is_soft:
            if values.dtype.kind not in ("f" if columns is None else "fb"):
                raise InvalidInputError(  # integers would be an indicator matrix
                    "y should be a 1d array of labels, or a 2d array of floats, which are soft "
                    f"labels: got an array of shape {values.shape} and dtype {values.dtype}"
                )
            values = validation.numbers("y", values)
            validation.labels(values, *values.shape)
        else:
            values = column_or_1d(y, warn=True)
            assert_all_finite(values, input_name="y")
            values = _check_labels("y", values)
        declared = known[:0]
        if classes is not None and np.size(classes):
            declared = _convert_labels("classes", _check_labels("classes", classes), known)
        union = np.concatenate([known, declared]) if len(known) else declared
        if is_soft:
            columns = _name_columns(values.shape[1], columns, union, declared)
            target, declared = cls(values, columns), np.sort(columns)
        else:
            target = cls(_convert_labels("y", values, union))
        return target, np.setdiff1d(declared, known) if len(known) else declared

    @property
    def classes(self) -> ClassLabels:
        """The labels that occur, sorted."""
        return np.unique(self.values if self.columns is None else self.columns)

    def for_model(self, model: Model) -> ClassLabels:
        """Return labels, or soft labels whose columns are in the order of the model."""
        if self.columns is None:
            return self.values
        places = {label: k for k, label in enumerate(self.columns.tolist())}
        return self.values[:, [places[label] for label in model.labels]]

    def decide_class_weight(self, class_weight: Any, weights: Array) -> Any:
        """Return the weights of classes as a model takes them, with "balanced" computed."""
        classes = self.classes
        if isinstance(class_weight, Mapping):
            unknown = [label for label in class_weight if label not in classes.tolist()]
            if unknown and not set(classes.tolist()) <= set(class_weight):
                raise InvalidInputError(f"class_weight names {unknown}, which y does not hold")
        if not isinstance(class_weight, str) or class_weight != BALANCED:
            return class_weight
        columns, targets = self.columns, self.values
        if columns is None:
            columns, targets = classes, self.values[:, None] == classes
        totals = weights @ targets
        return balance_class_weight(dict(zip(columns.tolist(), totals.tolist(), strict=True)))


def _name_columns(K: int, names: Any, union: ClassLabels, declared: ClassLabels) -> ClassLabels:
    """Return the classes of K columns of soft labels: of an array, the sorted labels."""
    classes = np.unique(union)
    if names is not None:
        columns = _check_labels("the columns of y", list(names))
        columns = _convert_labels("the columns of y", columns, union)
    elif (declared[1:] < declared[:-1]).any():
        raise InvalidInputError(
            "classes must be sorted where y is an array of soft labels, whose columns are in "
            "the order of classes_: sort both, or pass y as a data frame"
        )
    elif len(classes) and len(classes) != K:
        raise InvalidInputError(
            f"y has {K} columns of soft labels, but there are {len(classes)} classes: it must "
            "have one for each, in the order of classes_; declare new ones by classes"
        )
    else:
        return classes if len(classes) else np.arange(K)
    if len(classes) and not np.array_equal(classes, np.sort(columns)):
        raise InvalidInputError(
            f"the columns of y are {columns.tolist()}, but the classes {classes.tolist()}: soft "
            "labels need a column for each class, and no other; declare new ones by classes"
        )
    return columns


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
