"""What `Metrics` takes and returns: batches of predictions, and records by segment and column."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import TINY, Array
from folklearn.arrays import Labels as Numbers


class PredictionBatch(NamedTuple):
    """Labelled rows with what was predicted for them before their labels were known.

    P : (T, K) probabilities of the classes known then, which share 1 - unseen.
    p_label : (T,) probability of the label; of a soft label exp(-loss).
    unseen : (T,) probability of a class that was never seen.
    new_mass : (T,) share of the label that is of classes not known: 0 or 1 if it is hard.
    labels : (T,) class numbers; the most likely class of a soft label.
    best : (T,) most likely class of the prediction, -1 while none was known.
    known : (T,) number of classes known.
    weights : (T,) of the rows.
    holdout : (T,) hold-out loss of the model by then, NaN if not measured.
    X : (T, d) encoded values, place by place.
    is_number : (d,) whether a place holds a number with a name, which is missing where it is NaN.
    """

    P: Array
    p_label: Array
    unseen: Array
    new_mass: Array
    labels: Numbers
    best: Numbers
    known: Numbers
    weights: Array
    holdout: Array
    X: Array
    is_number: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        P: Array,
        unseen: Array,
        labels: Any,
        known: Numbers,
        weights: Array,
        holdout: Array,
        X: Any,
        absent: Array,
    ) -> "PredictionBatch":
        """Make a batch of P (T, K), the probabilities given that the class is known.

        Labels are class numbers (T,), or soft (T, K). `absent` (d,) is an encoded row without
        values: NaN for numbers.
        """
        n_classes, soft = P.shape[1], labels if labels.ndim == 2 else None
        if soft is not None:
            labels = soft.argmax(axis=1)
            soft = soft[:, :n_classes]
            is_known = np.arange(n_classes) < known[:, None]
            costs = -np.log(
                np.maximum(P, TINY), where=is_known & (soft > 0.0), out=np.zeros_like(P)
            )
            new_mass = np.where(is_known, 0.0, soft).sum(axis=1)
            cost_of_new = -np.log(np.maximum(unseen, TINY))
            cost_of_known = -np.log1p(-np.where(unseen >= 1.0, 0.0, unseen))
            losses = new_mass * cost_of_new + (1.0 - new_mass) * cost_of_known
            p_label = np.exp(-losses - (soft * costs).sum(axis=1))
            P = P * (1.0 - unseen)[:, None]
        else:
            P = P * (1.0 - unseen)[:, None]
            is_old = labels < known
            p_label, new_mass = unseen.copy(), (~is_old).astype(np.float64)
            p_label[is_old] = P[is_old, labels[is_old]]
        best = np.where(known > 0, P.argmax(axis=1), -1) if n_classes else np.full(len(P), -1)
        X = np.require(X, np.float64, ["C", "W"])  # as the kernel is compiled for
        is_number = np.isnan(absent[: X.shape[1]])
        return cls(
            P, p_label, unseen, new_mass, labels, best, known, weights, holdout, X, is_number
        )

    @property
    def losses(self) -> Array:
        """The unweighted log losses (T,)."""
        losses: Array = -np.log(np.maximum(self.p_label, TINY))
        return losses


def loss_of_row(p: Array, label: int, unseen: float) -> float:
    """Return the log loss of a prediction p (K,) of the classes known, which share 1 - unseen."""
    p_label = unseen if label >= p.size else float(p[label]) * (1.0 - unseen)
    return -math.log(max(p_label, TINY))


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of a stream, from `start` to before `stop`: totals.

    Attributes
    ----------
    loss, n_errors, weight : totals; the loss is weighted.
    lower_bound : nats a row that no linear model is below, over about these rows; NaN if not known.
    holdout_loss : a row, when the segment ended; NaN if not known.
    """

    start: int
    stop: int
    loss: float
    n_errors: int
    weight: float
    lower_bound: float = math.nan
    holdout_loss: float = math.nan


@dataclass(frozen=True)
class ClassRecord:
    """Counts of the rows of one class, and of predictions of it.

    Attributes
    ----------
    n_rows, n_predicted, n_right : rows of the class; rows predicted as it; rows that are both.
    auc : share of pairs in which a row of the class had a higher probability of it than a row of
        another class; NaN if not known.
    calibration_error : mean distance of predicted and observed frequency; NaN if not known.
    """

    n_rows: int
    n_predicted: int
    n_right: int
    auc: float = math.nan
    calibration_error: float = math.nan

    @property
    def precision(self) -> float:
        """The share of the rows predicted as the class that were of it."""
        return self.n_right / self.n_predicted if self.n_predicted else math.nan

    @property
    def recall(self) -> float:
        """The share of the rows of the class that were predicted as it."""
        return self.n_right / self.n_rows if self.n_rows else math.nan


@dataclass(frozen=True)
class ColumnRecord:
    """Quality of the data in one column.

    Attributes
    ----------
    name, role : of the column.
    first : the row of its first value, counted from 0; None before that.
    n_missing : rows without a value.
    n_outliers : numbers more than 5 standard deviations from the mean of those before.
    n_categories : with a place of their own, or a shared one; 0 for other roles, and for words.
    new_categories : those that came after the first segment.
    """

    name: str
    role: str
    first: int | None
    n_missing: int
    n_outliers: int = 0
    n_categories: int = 0
    new_categories: tuple[str, ...] = ()


class ColumnPlaces(NamedTuple):
    """The places of a column in an encoded row.

    categories : of a category column, one for each place; empty where rows stay sparse.
    is_feature : whether it is a column of a matrix, in which 0 is no value and NaN is a gap.
    """

    name: str
    role: str
    places: Sequence[int]
    categories: Sequence[str] | None = None
    is_feature: bool = False
