"""Labels as scikit-learn has them: names of one kind, or probabilities of classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.model import Model

Labels = NDArray[Any]

_LARGEST_LABEL = 2**53  # from here on, neighbouring integers are the same float
_KINDS = {"b": "truth values", "i": "numbers", "u": "numbers", "f": "numbers"}


@dataclass(frozen=True)
class Target:
    """Labels (T,), or soft ones (T, K) and what their columns are called, if they are."""

    values: Labels
    columns: Labels | None = None

    @property
    def is_soft(self) -> bool:
        """Whether these are probabilities."""
        return self.values.ndim == 2

    def names(self) -> Labels:
        """Return the labels that there are, sorted."""
        if self.is_soft:
            K = self.values.shape[1]
            return np.arange(K) if self.columns is None else np.sort(self.columns)
        return np.unique(self.values)

    def beside(self, so_far: Labels, classes: Any) -> tuple["Target", Labels]:
        """Return the same in the kind of the labels so far, and what has to be declared."""
        declared = so_far[:0]
        if classes is not None and np.size(classes):
            declared = _of_kind("classes", _labels("classes", classes), so_far)
        told = declared if not len(so_far) else np.concatenate([so_far, declared])
        if not self.is_soft:
            return Target(_of_kind("y", self.values, told)), _new(declared, so_far)
        columns = self.columns
        if columns is None:
            columns = self._unnamed(np.unique(told), declared)
        columns = _of_kind("the columns of y", columns, told)
        told = np.unique(told) if len(told) else np.sort(columns)
        if not np.array_equal(told, np.sort(columns)):
            raise InvalidInputError(
                f"the columns of y are {columns.tolist()}, but the classes {told.tolist()}: soft "
                "labels need a column for each class, and no other; declare new ones by classes"
            )
        return Target(self.values, columns), _new(told, so_far)

    def _unnamed(self, told: Labels, declared: Labels) -> Labels:
        """Return what the columns of an array of soft labels stand for: the sorted labels."""
        K = self.values.shape[1]
        if (declared[1:] < declared[:-1]).any():
            raise InvalidInputError(
                "classes must be sorted where y is an array of soft labels, whose columns are in "
                "the order of classes_: sort both, or pass y as a data frame"
            )
        if len(told) and len(told) != K:
            raise InvalidInputError(
                f"y has {K} columns of soft labels, but there are {len(told)} classes: it must "
                "have one for each, in the order of classes_; declare new ones by classes"
            )
        return told if len(told) else np.arange(K)

    def of_model(self, model: Model) -> Labels:
        """Return labels, or soft labels whose columns are in the order of the model."""
        if not self.is_soft:
            return self.values
        columns = self.names() if self.columns is None else self.columns
        places = {label: place for place, label in enumerate(columns.tolist())}
        return self.values[:, [places[label] for label in model.labels]]


def read(y: Any) -> Target:
    """Return whatever labels were given."""
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
                "y should be a 1d array of labels, or a 2d array of floats, which are soft labels: "
                f"got an array of shape {array.shape} and dtype {array.dtype}"
            )
        points = validation.numbers("y", array)
        validation.labels(points, *points.shape)
        names = None if columns is None else _labels("the columns of y", list(columns))
        return Target(points, names)
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    return Target(_labels("y", y))


def _labels(name: str, values: Any) -> Labels:
    """Return labels (T,) of one kind."""
    found = np.asarray(values)
    kind = found.dtype.kind
    if found.ndim != 1:
        raise InvalidInputError(f"{name} must be a list of labels, got shape {found.shape}")
    if kind in "biuU":
        return found
    if kind == "f" and (np.abs(found) < _LARGEST_LABEL).all() and not (found % 1.0).any():
        return found
    if kind in "OT" and all(isinstance(label, str) for label in found):
        return found.astype(object)
    raise InvalidInputError(
        f"Unknown label type: {name} must hold integers, truth values or text, "
        f"got dtype {found.dtype}"
    )


def _of_kind(name: str, labels: Labels, known: Labels) -> Labels:
    """Return labels as others are; whole floats and integers are one kind."""
    if not len(known):
        return labels
    mine, theirs = (_KINDS.get(one.dtype.kind, "text") for one in (labels, known))
    if mine != theirs:
        verb = "holds" if name == "y" else "are"
        raise InvalidInputError(
            f"{name} {verb} {mine}, but the labels so far are {theirs}: convert one to the other "
            "first"
        )
    if mine != "numbers" or (labels.dtype.kind == "f") == (known.dtype.kind == "f"):
        return labels
    converted = labels.astype(np.float64 if known.dtype.kind == "f" else np.int64)
    return _labels("all labels together", converted)


def _new(labels: Labels, so_far: Labels) -> Labels:
    return np.setdiff1d(labels, so_far) if len(so_far) else labels


def check_targets(y: Target) -> None:
    """Raise, or warn, for what scikit-learn would not call classes."""
    if not y.is_soft:
        check_classification_targets(y.values)


def weights(sample_weight: Any, n_rows: int) -> Array:
    """Return the weight of every row."""
    if sample_weight is not None and np.isscalar(sample_weight):
        sample_weight = np.full(n_rows, sample_weight)
    return validation.weights(sample_weight, n_rows)


def class_weights(given: Any, y: Target, known: Labels, weights: Array) -> Any:
    """Return the weights of classes as a model takes them, those that balance counted out."""
    if isinstance(given, Mapping):
        strangers = [label for label in given if label not in known.tolist()]
        if strangers and not set(known.tolist()) <= set(given):
            raise InvalidInputError(f"class_weight names {strangers}, which y does not hold")
    if not isinstance(given, str) or given != "balanced":
        return given
    if y.is_soft:
        order = np.argsort(y.names() if y.columns is None else y.columns, kind="stable")
        totals: Any = (weights @ y.values)[order]
    else:
        totals = np.bincount(np.searchsorted(known, y.values), weights, len(known))
    balance = np.divide(
        totals.sum() / len(known), totals, out=np.zeros(len(known)), where=totals > 0
    )
    return dict(zip(known.tolist(), balance.tolist(), strict=True))


def sorted_names(model: Model, like: Labels) -> Labels:
    """Return the labels of a model, sorted, in an array of the type of others."""
    kind = like.dtype if like.dtype.kind in "bO" else None
    return np.sort(np.array(model.labels, kind))


def numbers_of(model: Model, known: Labels) -> list[int]:
    """Return the numbers that labels have in a model."""
    return [model.labels.index(label) for label in known.tolist()]
