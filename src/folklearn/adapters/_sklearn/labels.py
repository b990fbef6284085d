"""Labels: names of any one kind, or probabilities of classes, by the numbers of a model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from folklearn import problem
from folklearn.adapters._sklearn import frames
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError

Labels = NDArray[Any]
# Class numbers (T,), or soft labels (T, K) whose columns are in the order of the numbers.
Target = NDArray[Any]

_LARGEST_LABEL = 2**53  # from here on, neighbouring integers are the same float


def read(y: Any) -> tuple[Labels, Labels | None]:
    """Return labels (T,) and None; or soft labels (T, K), and what their columns are called."""
    if y is None:
        raise InvalidInputError(
            "FolkloreClassifier requires y to be passed, but the target y is None"
        )
    frame = frames.opened(y)
    shape = np.asarray(y).shape if frame is None else frame.shape
    if len(shape) == 2 and shape[1] > 1:
        return _soft(y) if frame is None else _soft_frame(frame)
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    return kind_of("y", y)[0], None


def _soft(y: Any) -> tuple[Array, None]:
    if hasattr(y, "columns"):
        raise InvalidInputError(
            "to read a data frame of soft labels, narwhals is needed: pip install 'folklearn[df]'"
        )
    points = np.asarray(y)
    if points.dtype.kind != "f":  # integers would be several labels per row: an indicator matrix
        raise InvalidInputError(
            "y should be a 1d array of labels, or a 2d array of floats, which are soft labels: "
            f"got an array of shape {points.shape} and dtype {points.dtype}"
        )
    return _points(points), None


def _soft_frame(frame: Any) -> tuple[Array, Labels]:
    if frames.text_columns(frame).any():
        raise InvalidInputError("y is a data frame with text in it; soft labels are numbers")
    return _points(frame.to_numpy()), kind_of("the columns of y", frame.columns)[0]


def _points(y: Any) -> Array:
    """Return soft labels as given: the model divides them by their sum, which is almost 1."""
    points = problem.numbers("y", y)
    problem.labels(points, *points.shape)
    return points


def kind_of(name: str, values: Any) -> tuple[Labels, str]:
    """Return labels (T,), and their kind in words."""
    labels = np.asarray(values)
    kind = labels.dtype.kind
    if labels.ndim != 1:
        raise InvalidInputError(f"{name} must be a list of labels, got shape {labels.shape}")
    if kind == "b":
        return labels, "truth values"
    if kind in "iu":
        return labels, "numbers"
    if kind == "f" and (np.abs(labels) < _LARGEST_LABEL).all() and not (labels % 1.0).any():
        return labels, "numbers"
    if kind == "U" or (kind in "OT" and all(isinstance(label, str) for label in labels)):
        return labels if kind == "U" else labels.astype(object), "text"
    raise InvalidInputError(
        f"Unknown label type: {name} must hold integers, truth values or text, "
        f"got dtype {labels.dtype}"
    )


def sort(y: Labels, columns: Labels | None) -> tuple[Labels, Target]:
    """Return the labels that there are, sorted, and y by their places."""
    if y.ndim == 2:
        known, _, target = enrol(y, columns, np.empty(0), None)
        return known, target
    check_classification_targets(y)
    known, numbers = np.unique(y, return_inverse=True)
    return known, numbers


def enrol(
    y: Labels, columns: Labels | None, so_far: Labels, classes: Any
) -> tuple[Labels, int, Target]:
    """Return the labels by number, the count of those that y does not bring, y by number.

    ``so_far`` are the labels that have numbers already, in this order.
    """
    if y.ndim == 2:
        told, target = _enrol_soft(y, columns, so_far, classes)
        return told, len(told), target
    told = _told("y", y, so_far, classes)
    names, places = np.unique(y, return_index=True)
    names = names[np.argsort(places)]
    known = np.concatenate([told, names[~np.isin(names, told)]])
    known, _ = kind_of("all labels together", known)  # integers may have become floats
    order = np.argsort(known, kind="stable")
    return known, len(told), order[np.searchsorted(known[order], y)]


def _enrol_soft(
    y: Array, columns: Labels | None, so_far: Labels, classes: Any
) -> tuple[Labels, Array]:
    """Return the labels by number, and y with its columns in their order."""
    if columns is None:
        columns = _unnamed(y.shape[1], so_far, classes)
    told = _told("the columns of y", columns, so_far, classes)
    told = told if len(told) else np.sort(columns)
    if not np.array_equal(np.sort(told), np.sort(columns)):
        raise InvalidInputError(
            f"the columns of y are {columns.tolist()}, but the classes {told.tolist()}: soft "
            "labels need a column for each class, and no other; declare new ones by classes"
        )
    order = np.argsort(columns, kind="stable")
    return told, y[:, order[np.searchsorted(columns[order], told)]]


def _told(whose: str, labels: Labels, so_far: Labels, classes: Any) -> Labels:
    """Return the labels so far, then those declared now; refuse any of another kind."""
    labels, kind = kind_of(whose, labels)
    told = so_far if len(so_far) else labels[:0]
    for name, more in (("the labels so far", so_far), ("classes", classes)):
        if more is None or np.size(more) == 0:
            continue
        more, theirs = kind_of(name, more)
        if theirs != kind:
            ours = f"{whose} {'holds' if whose == 'y' else 'are'} {kind}"
            raise InvalidInputError(
                f"{ours}, but {name} are {theirs}: convert one to the other first"
            )
        told = np.concatenate([told, np.setdiff1d(more, told)])
    return told


def _unnamed(n_columns: int, so_far: Labels, classes: Any) -> Labels:
    """Return what the columns of an array of soft labels stand for: the sorted labels."""
    if classes is not None and np.size(classes):
        classes, _ = kind_of("classes", classes)
        if (classes[1:] < classes[:-1]).any():
            raise InvalidInputError(
                "classes must be sorted where y is an array of soft labels, whose columns are in "
                "the order of classes_: sort both, or pass y as a data frame"
            )
        so_far = _told("classes", classes, so_far, classes)
    if not len(so_far):
        return np.arange(n_columns)
    if len(so_far) != n_columns:
        raise InvalidInputError(
            f"y has {n_columns} columns of soft labels, but there are {len(so_far)} classes: "
            "it must have one for each, in the order of classes_; declare new ones by classes"
        )
    return np.sort(so_far)
