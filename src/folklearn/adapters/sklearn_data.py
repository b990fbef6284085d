"""Rows, labels and weights as scikit-learn has them, as a model takes them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.dataset import as_table
from folklearn.model.labels import BALANCED, balance_class_weight
from folklearn.model.model import Model
from folklearn.model.roles import IGNORED
from folklearn.readers.memory import is_frame
from folklearn.readers.open import open_reader
from folklearn.readers.table import Table
from folklearn.sparse import SparseRows

ClassLabels = NDArray[Any]

_MAX_DENSE_NUMBERS = 2**21  # numbers of sparse rows that are dense at a time
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
    _check_norms(X)
    lines = np.arange(1, X.shape[0] + 1)
    if first:
        estimator._names = None
    if estimator._names is None:
        return Table({}, lines, SparseRows.of(X) if scipy.sparse.issparse(X) else X)
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    return Table(dict(zip(estimator._names, dense.T, strict=True)), lines)


def slice_rows(table: Table) -> Iterator[slice]:
    """Yield slices of rows that are small enough to be dense."""
    features = table.features
    width = len(table.columns) if features is None else features.shape[1]
    if isinstance(features, SparseRows):
        width = max(width if width < _MAX_DENSE_NUMBERS else 1, features.nnz // len(features))
    size = max(1, _MAX_DENSE_NUMBERS // max(1, width))
    for start in range(0, len(table), size):
        yield slice(start, min(start + size, len(table)))


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


def _check_norms(X: Any) -> None:
    """Raise for a row whose norm is too large for the arithmetic, before any row is learned."""
    values = X.data if scipy.sparse.issparse(X) else X
    largest = max(np.fmax.reduce(values, None, initial=0), -np.fmin.reduce(values, None, initial=0))
    if largest < validation.MAX_NORM / math.sqrt(2 * X.shape[1]):
        return
    for i in range(X.shape[0]):
        row = np.nan_to_num(X[[i]].data if scipy.sparse.issparse(X) else X[i])
        if math.hypot(*row) >= validation.MAX_NORM * (1.0 - 1e-9):
            validation.check_context(row, f"row {i} of X")


@dataclass(frozen=True)
class Target:
    """Labels (T,), or soft ones (T, K) and the names of their columns, if they have any."""

    values: ClassLabels
    columns: ClassLabels | None = None

    @classmethod
    def read(cls, y: Any) -> "Target":
        """Check labels or soft labels."""
        if y is None:
            raise InvalidInputError(
                "FolkloreClassifier requires y to be passed, but the target y is None"
            )
        columns = getattr(y, "columns", None)
        array = np.asarray(y)
        if array.ndim == 2 and array.shape[1] > 1:
            kinds = "fb" if columns is not None else "f"
            if array.dtype.kind not in kinds:  # integers would be an indicator matrix
                raise InvalidInputError(
                    "y should be a 1d array of labels, or a 2d array of floats, which are soft "
                    f"labels: got an array of shape {array.shape} and dtype {array.dtype}"
                )
            points = validation.numbers("y", array)
            validation.labels(points, *points.shape)
            names = None if columns is None else _check_labels("the columns of y", list(columns))
            return cls(points, names)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        return cls(_check_labels("y", y))

    @property
    def is_soft(self) -> bool:
        """Whether these are probabilities."""
        return self.values.ndim == 2

    def names(self) -> ClassLabels:
        """Return the labels that occur, sorted."""
        if self.is_soft:
            return np.sort(self._column_names())
        return np.unique(self.values)

    def _column_names(self) -> ClassLabels:
        return np.arange(self.values.shape[1]) if self.columns is None else self.columns

    def join(self, known: ClassLabels, classes: Any) -> tuple["Target", ClassLabels]:
        """Return the target in the type of the labels so far, and the classes to declare."""
        declared = known[:0]
        if classes is not None and np.size(classes):
            declared = _convert_labels("classes", _check_labels("classes", classes), known)
        union = np.concatenate([known, declared]) if len(known) else declared
        if not self.is_soft:
            return Target(_convert_labels("y", self.values, union)), _new_labels(declared, known)
        columns = self.columns
        if columns is None:
            columns = self._name_columns(np.unique(union), declared)
        columns = _convert_labels("the columns of y", columns, union)
        union = np.unique(union) if len(union) else np.sort(columns)
        if not np.array_equal(union, np.sort(columns)):
            raise InvalidInputError(
                f"the columns of y are {columns.tolist()}, but the classes {union.tolist()}: soft "
                "labels need a column for each class, and no other; declare new ones by classes"
            )
        return Target(self.values, columns), _new_labels(union, known)

    def _name_columns(self, union: ClassLabels, declared: ClassLabels) -> ClassLabels:
        """Return the classes of the columns of an array of soft labels: the sorted labels."""
        K = self.values.shape[1]
        if (declared[1:] < declared[:-1]).any():
            raise InvalidInputError(
                "classes must be sorted where y is an array of soft labels, whose columns are in "
                "the order of classes_: sort both, or pass y as a data frame"
            )
        if len(union) and len(union) != K:
            raise InvalidInputError(
                f"y has {K} columns of soft labels, but there are {len(union)} classes: it must "
                "have one for each, in the order of classes_; declare new ones by classes"
            )
        return union if len(union) else np.arange(K)

    def for_model(self, model: Model) -> ClassLabels:
        """Return labels, or soft labels whose columns are in the order of the model."""
        if not self.is_soft:
            return self.values
        places = {label: k for k, label in enumerate(self._column_names().tolist())}
        return self.values[:, [places[label] for label in model.labels]]


def _check_labels(name: str, values: Any) -> ClassLabels:
    """Return labels (T,) of one type."""
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


def _new_labels(labels: ClassLabels, known: ClassLabels) -> ClassLabels:
    return np.setdiff1d(labels, known) if len(known) else labels


def check_weights(sample_weight: Any, n_rows: int) -> Array:
    """Return the weight of every row (T,)."""
    if sample_weight is not None and np.isscalar(sample_weight):
        sample_weight = np.full(n_rows, sample_weight)
    return validation.weights(sample_weight, n_rows)


def decide_class_weight(
    class_weight: Any, target: Target, classes: ClassLabels, weights: Array
) -> Any:
    """Return the weights of classes as a model takes them, with "balanced" computed."""
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown and not set(classes.tolist()) <= set(class_weight):
            raise InvalidInputError(f"class_weight names {unknown}, which y does not hold")
    if not isinstance(class_weight, str) or class_weight != BALANCED:
        return class_weight
    if target.is_soft:
        order = np.argsort(target._column_names(), kind="stable")
        totals: Any = (weights @ target.values)[order]
    else:
        totals = np.bincount(np.searchsorted(classes, target.values), weights, len(classes))
    return balance_class_weight(dict(zip(classes.tolist(), totals.tolist(), strict=True)))
