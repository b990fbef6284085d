"""`Metrics`: totals over a stream, its segments and recent windows, classes and columns."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import StateFileError
from folklearn.kernels import metrics as kernels
from folklearn.metrics.columns import ColumnCounts, ColumnPlaces, Shift
from folklearn.metrics.predictions import PredictionBatch
from folklearn.metrics.scores import CalibrationCurve
from folklearn.serialization import Record, Serializable
from folklearn.utils import count_of

_FIRST_SEGMENT_ROWS = 32  # before neighbours are joined
_MAX_CLASSES_OF_TABLES = 50  # with confusion, calibration and AUC
_MIN_ROWS_OF_CONSTANT = 64
_MAX_PENDING_ROWS = 256  # added one by one, before they are counted
MIN_BOUNDED_ROWS = 512  # of a lower bound: of fewer rows little can be proven


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of a stream, from `start` to before `stop`: totals; NaN if not known."""

    start: int
    stop: int
    loss: float  #: weighted
    n_errors: int
    weight: float
    lower_bound: float = math.nan  #: nats a row that no linear model is below, about here
    holdout_loss: float = math.nan  #: a row, when the segment ended


@dataclass(frozen=True)
class Window(Segment):
    """The last rounds of a stream: `lower_bound` is below every total loss with its penalty."""

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return self.stop - self.start

    @property
    def could_gain(self) -> float:
        """The most that any linear model, penalty counted, could have gained a round, in nats."""
        return (self.loss - self.lower_bound) / max(self.n_rounds, 1)


@dataclass(frozen=True)
class EvidenceSpan:
    """The evidence of consecutive rounds: of 1, 2, 4, ... blocks, at most two of each length."""

    start: int
    stop: int
    evidence: Any  # a sum that can be added to another

    @property
    def n_rounds(self) -> int:
        return self.stop - self.start

    def __add__(self, later: "EvidenceSpan") -> "EvidenceSpan":
        return EvidenceSpan(self.start, later.stop, self.evidence + later.evidence)


def add_to_ladder(ladder: list[EvidenceSpan], span: EvidenceSpan) -> None:
    """Append a span; of three of one length the two older ones become one."""
    ladder.append(span)
    last = len(ladder) - 1
    while last >= 2 and len({rung.n_rounds for rung in ladder[last - 2 : last + 1]}) == 1:
        ladder[last - 2 : last] = [ladder[last - 2] + ladder[last - 1]]
        last -= 2


def join_suffixes(spans: Sequence[EvidenceSpan]) -> list[EvidenceSpan]:
    """Return every union of the newest spans, the shortest first."""
    return [*accumulate(reversed(spans), lambda later, span: span + later)]


@dataclass(frozen=True)
class ClassRecord:
    """Counts of the rows of one class, and of predictions of it.

    Rates weigh rows, without weights of classes, and are NaN where there is nothing to know them
    by. For AUC and average precision probabilities are equal within a hundredth, and below .1, or
    above .9, if they, or what is left to 1, differ by less than an eighth or are below 1.5e-6.
    """

    n_rows: int
    n_predicted: int  #: as the class
    n_right: int  #: that are both
    precision: float  #: n_right / n_predicted
    recall: float  #: n_right / n_rows
    auc: float = math.nan  #: of the probability of the class, against all other rows
    average_precision: float = math.nan  #: over all thresholds, by the recall that each one adds
    calibration_error: float = math.nan  #: mean distance of predicted and observed frequency

    def in_words(self, n_rows: int) -> str:
        """Return the counts and rates in words; `n_rows` are those of all classes."""
        rates = [("AUC", self.auc, ".3f"), ("average precision", self.average_precision, ".3f")]
        rates += [("recall", self.recall, ".1%"), ("precision", self.precision, ".1%")]
        words = [f"{name} {rate:{form}}" for name, rate, form in rates if not math.isnan(rate)]
        return "; ".join([f"{self.n_rows} of {count_of(n_rows, 'row')}", ", ".join(words)])


@dataclass(frozen=True)
class ColumnRecord:
    """Quality of the data in one column."""

    name: str
    role: str
    first: int | None  #: the row of its first value, counted from 0
    n_missing: int
    n_outliers: int = 0  #: more than 5 standard deviations from the mean of those before
    n_categories: int = 0  #: with a place, their own or shared
    new_categories: tuple[str, ...] = ()  #: that came after the first segment
    is_constant: bool = False
    shift: Shift | None = None  #: a change of its values that is more than chance
    explained: float = math.nan  #: the share of the entropy of the classes that it alone explains


class Metrics(Serializable):
    """Totals of predictions made before their labels: of all rows, segments, windows, classes.

    On the same machine and build the same rows give the same bytes, one by one, in batches, or
    with a file in between; only lower bounds are those of the end of the call that completed a
    segment.

    Of more than 50 classes there is no confusion, no calibration, no AUC and no average precision.
    Categories are not counted where rows stay sparse.
    """

    ARRAYS = (
        "totals", "segments", "windows", "classes", "class_weights", "confusion", "scores",
        "probability_sums", "counts", "moments",
    )  # fmt: skip
    STATE: ClassVar = {"_columns": ColumnCounts}

    def __init__(self) -> None:
        self._n_counted, self._segment_rows = 0, _FIRST_SEGMENT_ROWS
        self._totals = np.zeros(4)
        self._segments = np.zeros((5, kernels.N_SEGMENTS))
        self._segments[kernels.LOWER_BOUND :] = math.nan
        self._windows = np.zeros((1 + 2 * kernels.N_WINDOW_LEVELS, 3))
        self._classes, self._class_weights = np.zeros((3, 0), np.int64), np.zeros((3, 0))
        self._confusion = np.zeros((0, 0), np.int64)
        self._scores = np.zeros((0, 2, kernels.N_SCORES))  # of others, and of the class
        self._probability_sums = np.zeros((0, kernels.N_BINS))
        self._counts = np.zeros((4, 0), np.int64)
        self._moments = np.zeros((2, 0))
        self._columns = ColumnCounts()
        self._pending: list[tuple[Any, ...]] = []  # rows that came one by one, not counted yet
        self._absent, self._n_known = np.zeros(0), 0  # of rows that came one by one

    @property
    def holdout_loss(self) -> float:
        """The hold-out loss a row of recent stripes, after the last row; NaN if not measured."""
        if self._pending:
            return float(self._pending[-1][4])
        last = (self._n_counted - 1) // self._segment_rows
        return float(self._segments[kernels.HOLDOUT, last])

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

        Rows are counted in batches: a kernel call for each would cost more than learning it.
        """
        # With a new place or class rows have other sizes, and an empty place may hold numbers.
        if absent is not self._absent or p.size != self._n_known:
            self._count_pending()
            self._absent, self._n_known = absent, p.size
        self._pending.append((p, unseen, label, weight, holdout, row))
        if len(self._pending) >= _MAX_PENDING_ROWS:
            self._count_pending()

    def add(self, batch: PredictionBatch) -> None:
        """Add rows with labels."""
        if self._pending:
            self._count_pending()
        P, X, known = batch.P, batch.values, batch.known
        n_classes = max(P.shape[1], int(batch.labels.max(initial=-1)) + 1)
        if n_classes > self._classes.shape[1] or X.shape[1] > self._counts.shape[1]:
            self._grow(n_classes, X.shape[1])
        soft = np.zeros((0, 0))
        if batch.targets.ndim == 2:
            soft = np.require(batch.targets[:, : P.shape[1]], np.float64, ["C", "W"])
        self._segment_rows = kernels.count_predictions(
            P, batch.p_label, batch.unseen, batch.new_mass, batch.labels, soft, batch.predicted,
            known, batch.weights, batch.row_weights, batch.holdout, self._n_counted,
            self._segment_rows, self._totals, self._segments, self._windows, self._classes,
            self._class_weights, self._confusion, self._scores, self._probability_sums,
        )  # fmt: skip
        is_number = np.isnan(batch.absent[: X.shape[1]])
        kernels.count_values(X, is_number, self._n_counted, self._counts, self._moments)
        self._columns.add(X, is_number, batch.labels)
        self._n_counted += len(P)

    def note_lower_bounds(self, windows: Callable[[int], list[Any]], n_rows: int = 1) -> None:
        """Set the lower bound of the segments that ended within the last `n_rows`.

        `windows` returns the shortest window of at least as many rows as it is given, with the
        lower bound on the loss there: `Model.windows`.
        """
        if self.n_rows // self._segment_rows == (self.n_rows - n_rows) // self._segment_rows:
            return
        self._count_pending()
        n, size = self._n_counted, self._segment_rows
        (window,) = windows(max(size, MIN_BOUNDED_ROWS))
        if window.weight > 0.0 and math.isfinite(window.lower_bound):
            bound = window.lower_bound / window.weight
            self._segments[kernels.LOWER_BOUND, (n - n_rows) // size : n // size] = bound

    def _count_pending(self) -> None:
        if not self._pending:
            return
        P, unseen, labels, weights, holdout, X = zip(*self._pending, strict=True)
        self._pending = []
        n, numbers = len(labels), np.array([unseen, weights, holdout])
        self.add(
            PredictionBatch.of(
                np.concatenate(P).reshape(n, -1), numbers[0], np.array(labels),
                np.full(n, P[0].size), numbers[1], numbers[2], np.concatenate(X).reshape(n, -1),
                self._absent,
            )
        )  # fmt: skip

    def _grow(self, n_classes: int, n_places: int) -> None:
        """Make room for more classes and places; too many classes end the tables."""
        n_new = max(0, n_classes - self._classes.shape[1])
        late = (0, 0), (0, n_new)
        self._classes = np.pad(self._classes, late)
        self._class_weights = np.pad(self._class_weights, late)
        if self._classes.shape[1] > _MAX_CLASSES_OF_TABLES:
            self._confusion, self._scores = self._confusion[:0, :0], self._scores[:0]
            self._probability_sums = self._probability_sums[:0]
        else:
            self._confusion = np.pad(self._confusion, (0, n_new))
            self._scores = np.pad(self._scores, ((0, n_new), (0, 0), (0, 0)))
            self._probability_sums = np.pad(self._probability_sums, ((0, n_new), (0, 0)))
        wider = (0, 0), (0, max(0, n_places - self._counts.shape[1]))
        self._counts, self._moments = np.pad(self._counts, wider), np.pad(self._moments, wider)

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

    @property
    def brier(self) -> float:
        """The mean squared distance of probabilities and label, 0 to 2, by weight as the loss."""
        weight = self.weight
        return self._total(kernels.BRIER) / weight if weight > 0.0 else math.nan

    @property
    def auc(self) -> float:
        """The mean of the AUC of the classes, each against all others."""
        values = [record.auc for record in self.by_class() if not math.isnan(record.auc)]
        return math.fsum(values) / len(values) if values else math.nan

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

    def windows(self, n_rows: int | None = None) -> list[Window]:
        """Return the last 64, 128, 256, ... rows or a few more, the shortest first, and all.

        `n_rows` asks for one: the shortest of at least as many rows, or of all.
        """
        self._count_pending()
        n = start = self._n_counted
        n_closed, n_open = divmod(n, kernels.WINDOW_ROWS)
        ladder = [(0, n_open)] if n_open else []  # indices and their rows, the newest first
        index, size = 1, kernels.WINDOW_ROWS
        while n_closed:
            n_here = 2 - n_closed % 2
            ladder += [(index + i, size) for i in reversed(range(n_here))]
            index, size, n_closed = index + 2, 2 * size, (n_closed - n_here) // 2
        windows, wanted, totals = [], kernels.WINDOW_ROWS, np.zeros(3)
        for index, size in ladder:
            start -= size
            totals = totals + self._windows[index]
            if n - start >= wanted or start == 0:
                loss, n_errors, weight = totals.tolist()
                windows.append(Window(start, n, loss, int(n_errors), weight, -math.inf))
            while wanted <= n - start:
                wanted *= 2
        if n_rows is None:
            return windows
        return [*(w for w in windows if w.stop - w.start >= n_rows), *windows[-1:]][:1]

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Rows of a class (first) that were predicted as a class (second), (K, K)."""
        self._count_pending()
        return self._confusion.copy()

    @property
    def calibration(self) -> Array:
        """Rows, sum of probabilities, and rows of the class, by weight: (3, K, 10), K by bins."""
        self._count_pending()
        bins = np.add.reduceat(self._scores, kernels.FIRST_SCORES, axis=2)
        others, hits = bins.transpose(1, 0, 2)
        return np.array([others + hits, self._probability_sums, hits])

    def calibration_curves(self) -> list[CalibrationCurve]:
        """Return the calibration curve of every class."""
        return [CalibrationCurve.of_bins(*bins) for bins in self.calibration.transpose(1, 0, 2)]

    def by_class(self) -> list[ClassRecord]:
        """Return the counts of every class, in the order of their numbers."""
        self._count_pending()
        of_class, predicted, right = self._class_weights
        rates = np.full((5, self._classes.shape[1]), math.nan)
        for rate, weights in zip(rates, (predicted, of_class), strict=False):
            np.divide(right, weights, out=rate, where=weights > 0.0)
        for k, curve in enumerate(self.calibration_curves()):
            rates[2:, k] = *_rank(*self._scores[k]), curve.error
        records = zip(self._classes.T.tolist(), rates.T.tolist(), strict=True)
        return [ClassRecord(*counts, *shares) for counts, shares in records]

    def by_column(self, encoder: Any) -> list[ColumnRecord]:
        """Return the data quality of every column learned from; `encoder` is the model's."""
        self._count_pending()
        layout = encoder.column_places(self._counts.shape[1])
        shifts = self._columns.find_shifts(layout)
        return [self._column_record(column, shifts.get(column.name)) for column in layout]

    def find_shifts(self, encoder: Any) -> dict[str, Shift]:
        """Return what has changed in which column more than by chance, by its name."""
        self._count_pending()
        return self._columns.find_shifts(encoder.column_places(self._counts.shape[1]))

    def _column_record(self, column: ColumnPlaces, shift: Shift | None) -> ColumnRecord:
        places, n = list(column.places), self._n_counted
        n_values, gaps, firsts, outliers = self._counts[:, places]
        first = int(firsts[n_values > 0].min()) if n_values.any() else None
        n_missing, n_outliers, seen = n - int(n_values.max(initial=0)), 0, list[int]()
        # The place of words says that there are some, not which.
        is_constant = not n_missing and n >= _MIN_ROWS_OF_CONSTANT and column.role != "words"
        if column.categories is not None:
            seen = np.flatnonzero(n_values).tolist() if column.categories else []
            n_missing, is_constant = n - int(n_values.sum()), is_constant and len(seen) == 1
        else:
            is_constant &= bool(self._moments[kernels.SQUARES, places[0]] == 0.0)
            if column.is_feature:
                n_missing = int(gaps[0])
            if column.is_feature or column.role == "number":
                n_outliers = int(outliers.sum())
        names, explained = column.categories or (), self._columns.explained_share(column)
        new = tuple(names[i] for i in seen if firsts[i] >= self._segment_rows)
        return ColumnRecord(
            column.name, column.role, first, n_missing, n_outliers, len(seen), new, is_constant,
            shift, explained,
        )  # fmt: skip

    def release_rows(self) -> None:
        """Let go of the first rows, which wait to say what values columns usually have."""
        self._count_pending()
        self._columns.release_rows()

    def without_columns(self) -> "Metrics":
        """Return the same totals without what is kept to find changed columns: values of rows."""
        self._count_pending()  # once: the copy shares the totals
        copied = self._shallow()
        copied._columns = ColumnCounts()
        return copied

    def to_record(self) -> Record:
        self._count_pending()
        record = super().to_record()
        record.config.update(n_rows=self._n_counted, segment_rows=self._segment_rows)
        return record

    def _restore(self, record: Record) -> None:
        self._n_counted = record.count("n_rows")
        self._segment_rows = record.count("segment_rows", 1)
        if self._n_counted > kernels.N_SEGMENTS * self._segment_rows:
            raise StateFileError("a Metrics state has more rows than its segments hold")
        n_classes = record.part("classes", (3, None), np.int64).shape[1]
        self._grow(n_classes, record.part("counts", (4, None), np.int64).shape[1])
        for name, empty in self._parts().items():
            empty[...] = record.part(name, empty.shape, empty.dtype, gaps=name == "segments")
        self._columns = record.inner("columns", ColumnCounts)

    def __getstate__(self) -> dict[str, Any]:
        self._count_pending()  # so that the bytes do not depend on what was read before
        return self.__dict__

    def __repr__(self) -> str:
        return f"Metrics of {self.n_rows} rows"


def _rank(others: Array, hits: Array) -> tuple[float, float]:
    n_pairs = float(others.sum() * hits.sum())
    if not n_pairs > 0.0:
        return math.nan, math.nan
    auc = float(hits @ (np.cumsum(others) - 0.5 * others)) / n_pairs
    above, all_rows = np.cumsum(hits[::-1]), np.cumsum((others + hits)[::-1])
    precision = np.divide(above, all_rows, out=np.zeros_like(above), where=above > 0.0)
    return auc, float(hits[::-1] @ precision) / float(hits.sum())
