"""`Metrics`: totals over a stream, its segments and recent windows, classes and columns."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import StateFileError
from folklearn.kernels import metrics as kernels
from folklearn.metrics.records import (
    ClassRecord,
    ColumnPlaces,
    ColumnRecord,
    PredictionBatch,
    Segment,
)
from folklearn.metrics.scores import CalibrationCurve
from folklearn.serialization import Record, Serializable

_FIRST_SEGMENT_ROWS = 32  # before neighbours are joined
_MAX_CLASSES_OF_TABLES = 50  # with confusion, calibration and AUC
_MAX_PENDING_ROWS = 256  # added one by one, before they are counted
MIN_BOUNDED_ROWS = 512  # of a lower bound: of fewer rows little can be proven


class Metrics(Serializable):
    """Totals of predictions made before their labels: of all rows, segments, windows, classes.

    On the same machine and build the same rows give the same bytes, one by one, in batches, or
    with a file in between; only lower bounds are those of the end of the call that completed a
    segment.

    Of more than 50 classes there is no confusion, no calibration and no AUC. Categories are not
    counted where rows stay sparse.

    Attributes
    ----------
    n_rows, n_errors : rows, and rows whose most likely class was wrong.
    loss, loss_of_new, weight : weighted loss, its part due to classes that were not known, and
        weight of all rows.
    segments : the rows in up to 64 segments of one length.
    confusion : (K, K) rows of a class (first) that were predicted as a class (second).
    """

    def __init__(self) -> None:
        self._n_counted, self._segment_rows = 0, _FIRST_SEGMENT_ROWS
        self._totals = np.zeros(3)
        self._segments = np.zeros((5, kernels.N_SEGMENTS))
        self._segments[kernels.LOWER_BOUND :] = math.nan
        self._windows = np.zeros((1 + 2 * kernels.N_WINDOW_LEVELS, 3))
        self._classes = np.zeros((3, 0), np.int64)
        self._confusion, self._scores, self._probability_sums = _tables(0)
        self._counts = np.zeros((4, 0), np.int64)
        self._moments = np.zeros((2, 0))
        self._pending: list[tuple[Any, ...]] = []  # rows that came one by one, not counted yet
        self._absent: Array = np.zeros(0)

    @property
    def holdout_loss(self) -> float:
        """The hold-out loss a row of recent stripes, after the last row; NaN if not measured."""
        if self._pending:
            return float(self._pending[-1][4])
        return self.segments[-1].holdout_loss if self._n_counted else math.nan

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self._n_counted + len(self._pending)

    def add_one(
        self,
        p: Array,
        label: int,
        unseen: float,
        weight: float,
        holdout: float,
        row: Array,
        absent: Array,
    ) -> None:
        """Add a dense row: its prediction p (K,) of the classes known, and encoded values (d,).

        `absent` is an encoded row without values, NaN for numbers. Rows are counted in batches:
        a kernel call for each would cost more than learning it.
        """
        if absent is not self._absent:  # a place that was empty may be that of a number now
            self._count_pending()
        self._absent = absent
        self._pending.append((p, unseen, label, weight, holdout, row))
        if len(self._pending) >= _MAX_PENDING_ROWS:
            self._count_pending()

    def add(self, batch: PredictionBatch) -> None:
        """Add rows."""
        self._count_pending()
        self._count(batch)

    def note_lower_bounds(self, bound_of_last: Callable[[int], float], n_rows: int = 1) -> None:
        """Set the lower bound of the segments that ended within the last `n_rows`.

        `bound_of_last` returns the bound in nats a row over at least as many rows as it is given,
        NaN where none is known.
        """
        if self.n_rows // self._segment_rows == (self.n_rows - n_rows) // self._segment_rows:
            return
        self._count_pending()
        n, size = self._n_counted, self._segment_rows
        bound = bound_of_last(max(size, MIN_BOUNDED_ROWS))
        if math.isfinite(bound):
            self._segments[kernels.LOWER_BOUND, (n - n_rows) // size : n // size] = bound

    def _count_pending(self) -> None:
        if not self._pending:
            return
        P, unseen, labels, weights, holdout, X = zip(*self._pending, strict=True)
        self._pending = []
        sizes = list(zip(map(len, P), map(len, X), strict=True))
        for (K, d), group in groupby(range(len(sizes)), key=sizes.__getitem__):
            indices = list(group)
            n, rows = len(indices), slice(indices[0], indices[-1] + 1)
            numbers = np.array([unseen[rows], weights[rows], holdout[rows]])
            self._count(
                PredictionBatch.of(
                    np.concatenate(P[rows]).reshape(n, K), numbers[0], np.array(labels[rows]),
                    np.full(n, K), numbers[1], numbers[2],
                    np.concatenate(X[rows]).reshape(n, d), self._absent,
                )
            )  # fmt: skip

    def _count(self, batch: PredictionBatch) -> None:
        n_classes = max(batch.P.shape[1], int(batch.labels.max(initial=-1)) + 1)
        self._grow(n_classes, batch.X.shape[1])
        self._segment_rows = kernels.count_predictions(
            *batch[:-2], self._n_counted, self._segment_rows, self._totals, self._segments,
            self._windows, self._classes, self._confusion, self._scores, self._probability_sums,
        )  # fmt: skip
        columns = batch.X, batch.is_number
        kernels.count_values(*columns, self._n_counted, self._counts, self._moments)
        self._n_counted += len(batch.labels)

    def _grow(self, n_classes: int, n_places: int) -> None:
        """Make room for more classes and places; too many classes end the tables."""
        n_new = n_classes - self._classes.shape[1]
        if n_new > 0:
            self._classes = np.pad(self._classes, ((0, 0), (0, n_new)))
            tables = self._confusion, self._scores, self._probability_sums
            grown = _tables(n_classes)
            if n_classes <= _MAX_CLASSES_OF_TABLES:
                for new, old in zip(grown, tables, strict=True):
                    new[tuple(map(slice, old.shape))] = old
            self._confusion, self._scores, self._probability_sums = grown
        n_new = n_places - self._counts.shape[1]
        if n_new > 0:
            wider = (0, 0), (0, n_new)
            self._counts, self._moments = np.pad(self._counts, wider), np.pad(self._moments, wider)

    # Totals.

    def _total(self, kind: int) -> float:
        self._count_pending()
        return float(self._totals[kind])

    @property
    def loss(self) -> float:
        """The weighted loss of all rows."""
        return self._total(kernels.LOSS)

    @property
    def loss_of_new(self) -> float:
        """The part of the loss that is due to classes that were not known."""
        return self._total(kernels.NEW_CLASSES)

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return self._total(kernels.WEIGHT)

    @property
    def n_errors(self) -> int:
        """The rows whose most likely class was wrong."""
        self._count_pending()
        return self._n_counted - int(self._classes[kernels.N_RIGHT].sum())

    @property
    def average_loss(self) -> float:
        """The loss per unit of weight, NaN before the first row."""
        weight = self.weight
        return self.loss / weight if weight > 0.0 else math.nan

    @property
    def error_rate(self) -> float:
        """The share of rows whose most likely class was wrong, NaN before the first row."""
        return self.n_errors / self.n_rows if self.n_rows else math.nan

    # Over time.

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The rows in up to 64 segments of one length, the last one perhaps shorter."""
        self._count_pending()
        n, size = self._n_counted, self._segment_rows
        segments = []
        for start, column in zip(range(0, n, size), self._segments.T.tolist(), strict=False):
            loss, n_errors, weight, lower_bound, holdout = column
            totals = loss, int(n_errors), weight
            segments.append(Segment(start, min(n, start + size), *totals, lower_bound, holdout))
        return tuple(segments)

    def windows(self) -> list[Segment]:
        """Return the last 64, 128, 256, ... rows or a few more, the shortest first, and all."""
        windows, wanted = [], kernels.WINDOW_ROWS
        for window in self._suffixes():
            n_rows = window.stop - window.start
            if n_rows >= wanted or window.start == 0:
                windows.append(window)
                while wanted <= n_rows:
                    wanted *= 2
        return windows

    def last_window(self, n_rows: int) -> Segment | None:
        """Return the shortest window of at least `n_rows`, or all rows; None before the first."""
        last = None
        for last in self._suffixes():
            if last.stop - last.start >= n_rows:
                break
        return last

    def _suffixes(self) -> Iterator[Segment]:
        """Yield all windows that end with the last row, the shortest first."""
        self._count_pending()
        n = start = self._n_counted
        totals = np.zeros(3)
        for place, n_rows in _window_places(n):
            start -= n_rows
            totals = totals + self._windows[place]
            loss, n_errors, weight = totals.tolist()
            yield Segment(start, n, loss, int(n_errors), weight)

    # By class and column.

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Rows of a class (first) that were predicted as a class (second), (K, K)."""
        self._count_pending()
        return self._confusion.copy()

    @property
    def calibration(self) -> Array:
        """Rows, sum of probabilities, and rows of the class, (3, K, 10) by class and bin."""
        self._count_pending()
        shape = len(self._scores), 2, kernels.N_BINS, kernels.N_SCORES // kernels.N_BINS
        others, hits = self._scores.reshape(shape).sum(axis=3).transpose(1, 0, 2)
        return np.array([others + hits, self._probability_sums, hits], np.float64)

    def calibration_curves(self) -> list[CalibrationCurve]:
        """Return the calibration curve of every class."""
        return [CalibrationCurve.of_bins(*bins) for bins in self.calibration.transpose(1, 0, 2)]

    def by_class(self) -> list[ClassRecord]:
        """Return the counts of every class, in the order of their numbers."""
        self._count_pending()
        records = [ClassRecord(*counts) for counts in self._classes.T.tolist()]
        if not len(self._scores):
            return records
        tables = zip(records, self._scores, self.calibration_curves(), strict=True)
        return [
            replace(record, auc=_auc(scores), calibration_error=curve.error)
            for record, scores, curve in tables
        ]

    def by_column(self, encoder: Any) -> list[ColumnRecord]:
        """Return the data quality of every column learned from; `encoder` is the model's."""
        self._count_pending()
        layout = encoder.column_places(self._counts.shape[1])
        return [self._column_record(column) for column in layout]

    def _column_record(self, column: ColumnPlaces) -> ColumnRecord:
        n_values, gaps, firsts, outliers = self._counts[:, list(column.places)]
        first = int(firsts[n_values > 0].min()) if n_values.any() else None
        if column.is_feature:
            return ColumnRecord(column.name, column.role, first, int(gaps[0]), int(outliers[0]))
        if column.categories is not None:
            n_missing = self._n_counted - int(n_values.sum())
            seen = [i for i, n in enumerate(n_values.tolist()) if n and column.categories]
            new = tuple(column.categories[i] for i in seen if firsts[i] >= self._segment_rows)
            return ColumnRecord(column.name, column.role, first, n_missing, 0, len(seen), new)
        # The places of a date are filled together, or not.
        n_missing = self._n_counted - int(n_values.max())
        n_outliers = int(outliers.sum()) if column.role == "number" else 0
        return ColumnRecord(column.name, column.role, first, n_missing, n_outliers)

    # State.

    def to_record(self) -> Record:
        """Return the full state as a record."""
        self._count_pending()
        arrays = {name: getattr(self, f"_{name}").copy() for name in _ARRAYS}
        config = {"n_rows": self._n_counted, "segment_rows": self._segment_rows}
        return Record("Metrics", config, arrays)

    def _restore(self, record: Record) -> None:
        self._n_counted = record.count("n_rows")
        self._segment_rows = record.count("segment_rows", 1)
        if self._n_counted > kernels.N_SEGMENTS * self._segment_rows:
            raise StateFileError("a Metrics state has more rows than its segments hold")
        n_classes = record.part("classes", (3, None), np.int64).shape[1]
        self._grow(n_classes, record.part("counts", (4, None), np.int64).shape[1])
        for name in _ARRAYS:
            empty = getattr(self, f"_{name}")
            part = record.part(name, empty.shape, empty.dtype, gaps=name == "segments")
            setattr(self, f"_{name}", part)

    def __getstate__(self) -> dict[str, Any]:
        self._count_pending()  # so that the bytes do not depend on what was read before
        return self.__dict__

    def __repr__(self) -> str:
        return f"Metrics of {self.n_rows} rows"


_ARRAYS = (
    "totals", "segments", "windows", "classes", "confusion", "scores", "probability_sums",
    "counts", "moments",
)  # fmt: skip


def _tables(n_classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Return empty tables: confusion, counts of probabilities, and their sums by bin."""
    K = n_classes if n_classes <= _MAX_CLASSES_OF_TABLES else 0
    return (
        np.zeros((K, K), np.int64),
        np.zeros((K, 2, kernels.N_SCORES), np.int64),  # of rows of others, and of the class
        np.zeros((K, kernels.N_BINS)),
    )


def _window_places(n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the place and the rows of every window of the ladder, the newest first."""
    n_closed, size = divmod(n_rows, kernels.WINDOW_ROWS)
    if size:
        yield 0, size
    place, size = 1, kernels.WINDOW_ROWS
    while n_closed:
        n_here = 2 - n_closed % 2
        for i in reversed(range(n_here)):
            yield place + i, size
        place, size, n_closed = place + 2, 2 * size, (n_closed - n_here) // 2


def _auc(scores: NDArray[np.int64]) -> float:
    """Return the AUC of a class by counts of its probability, (2, bins); ties count half."""
    others, hits = scores.astype(np.float64)
    below = np.cumsum(others) - others
    n_pairs = float(others.sum() * hits.sum())
    return float(hits @ (below + 0.5 * others)) / n_pairs if n_pairs else math.nan
