"""What a model remembers of its life, so that a page can be drawn from a saved file alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.arrays import Labels as Numbers
from folklearn.errors import StateFileError
from folklearn.kernels import segments as counting
from folklearn.serialization import Record, Serializable

_FIRST_SIZE = 32  # rows of a piece, before neighbours are joined
_MOST_CLASSES = 50  # of which confusion and calibration are recorded
LEAST_BOUNDED_ROWS = 512  # rows that a floor speaks of: of fewer, little can be proven
_FEW = 256  # rows that were learned one by one, before they are counted


class PredictionBatch(NamedTuple):
    """Rows that were learned, and what was predicted for them before.

    P : (T, K) probabilities of the classes known then, which share 1 - unseen.
    chance : (T,) what was given to the label; of a soft label exp(-loss).
    labels : (T,) class numbers; the most likely one of a soft label.
    best : (T,) the most likely class, -1 while none was known.
    known : (T,) how many classes were known.
    weights : (T,) of the rows.
    frozen : (T,) the frozen loss of the model by then.
    X : (T, d) what the columns held, place by place.
    is_number : (d,) whether a place holds a number that has a name, which may be missing.
    """

    P: Array
    chance: Array
    labels: Numbers
    best: Numbers
    known: Numbers
    weights: Array
    frozen: Array
    X: Array
    is_number: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        P: Array,
        unseen: Array,
        labels: Numbers,
        known: Numbers,
        weights: Array,
        frozen: Array,
        X: Any,
        absent: Array,
    ) -> "PredictionBatch":
        """Return rows by what was predicted if the class is known, P, and that it is not."""
        T, K = P.shape
        P = P * (1.0 - unseen)[:, None]
        chance, best = unseen.copy(), np.full(T, -1)
        if K:
            is_old = labels < known
            chance[is_old] = P[is_old, labels[is_old]]
            best = np.where(known > 0, P.argmax(axis=1), -1)
        X = np.require(X, np.float64, ["C", "W"])  # as counting is compiled for
        is_number = np.isnan(absent[: X.shape[1]])
        return cls(P, chance, labels, best, known, weights, frozen, X, is_number)


@dataclass(frozen=True)
class Segment:
    """Rows of a life that lie side by side, from `start` to before `stop`: totals.

    Attributes
    ----------
    loss, n_errors, weight : totals; the loss is weighted.
    floor : nats a row that no linear model gets below, in about this piece; NaN if not known.
    holdout_loss : the frozen loss a row, when the piece ended.
    """

    start: int
    stop: int
    loss: float
    n_errors: int
    weight: float
    floor: float
    holdout_loss: float


@dataclass(frozen=True)
class ClassRecord:
    """What came of the rows of one class, and of predictions of it.

    Attributes
    ----------
    n_rows, n_predicted, n_right : rows of the class; rows taken for it; rows that are both.
    auc : how often a row of the class was given more than one of another class; NaN if not known.
    calibration_error : mean distance of the probability given to what came true; NaN if not known.
    """

    n_rows: int
    n_predicted: int
    n_right: int
    auc: float = math.nan
    calibration_error: float = math.nan

    @property
    def precision(self) -> float:
        """The share of the rows taken for the class that were of it."""
        return self.n_right / self.n_predicted if self.n_predicted else math.nan

    @property
    def recall(self) -> float:
        """The share of the rows of the class that were taken for it."""
        return self.n_right / self.n_rows if self.n_rows else math.nan


@dataclass(frozen=True)
class ColumnRecord:
    """What a column of the data held.

    Attributes
    ----------
    name, role : of the column.
    first : the row that brought its first value, counted from 0; None before that.
    n_missing : rows without a value.
    n_outliers : numbers more than 5 standard deviations from the mean of those before.
    n_categories : that had a place of their own, or shared one; 0 for other roles, and for words.
    new_categories : those that came after the first piece.
    """

    name: str
    role: str
    first: int | None
    n_missing: int
    n_outliers: int = 0
    n_categories: int = 0
    new_categories: tuple[str, ...] = ()


class ColumnPlaces(NamedTuple):
    """Where the values of a column stand in an encoded row.

    categories : of a category column, one for each place; empty where rows stay sparse.
    is_feature : whether it is a column of a matrix, in which 0 is no value and NaN is a gap.
    """

    name: str
    role: str
    places: Sequence[int]
    categories: Sequence[str] | None = None
    is_feature: bool = False


class Metrics(Serializable):
    """The life of a model in up to 64 segments, and counts by class and by column over all of it.

    On the same machine and build the same rows give the same bytes, one by one, in blocks, or
    with a file in between; only floors are those of the end of the call that a piece was
    learned in.

    Of more than 50 classes there is no confusion, no calibration and no AUC. Categories are not
    counted where rows stay sparse.

    Attributes
    ----------
    n_rows : the number of rows.
    segments : the rows in up to 64 segments of one length.
    confusion : (K, K) rows of a class (first) that were taken for a class (second).
    calibration : (3, K, 10) by class and bin of the probability: rows, the sum of what was given,
        and rows of the class.
    """

    def __init__(self) -> None:
        self._n_counted, self._size = 0, _FIRST_SIZE
        self._segments = np.zeros((5, counting.N_PIECES))
        self._segments[counting.FLOOR :] = math.nan
        self._classes = np.zeros((3, 0), np.int64)
        self._tables = _tables(0)  # confusion, scores, what was given
        self._counts = np.zeros((4, 0), np.int64)
        self._moments = np.zeros((2, 0))
        self._singles: list[tuple[Any, ...]] = []  # rows that came one by one, not yet counted
        self._absent: Array = np.zeros(0)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self._n_counted + len(self._singles)

    def add_one(
        self,
        p: Array,
        label: int,
        unseen: float,
        weight: float,
        frozen: float,
        row: Array,
        absent: Array,
    ) -> None:
        """Count a row of a dense model: its prediction p (K,) of the classes known, and values.

        `absent` is a row of which nothing is known: NaN for numbers.
        """
        if absent is not self._absent:  # a place that nothing had may be that of a number now
            self._settle()
        self._absent = absent
        self._singles.append((p, unseen, label, weight, frozen, row))
        if len(self._singles) >= _FEW:
            self._settle()

    def add(self, rows: PredictionBatch) -> None:
        """Count rows."""
        self._settle()
        self._count(rows)

    def note_lower_bounds(self, bound_of_last: Callable[[int], float], n_rows: int = 1) -> None:
        """Set the lower bound of the segments that ended within the last `n_rows`.

        `bound_of_last` returns the bound in nats a row over at least as many rows as it is given,
        NaN where none is known.
        """
        if self.n_rows // self._size == (self.n_rows - n_rows) // self._size:
            return
        self._settle()
        ended = slice((self._n_counted - n_rows) // self._size, self._n_counted // self._size)
        bound = bound_of_last(max(self._size, LEAST_BOUNDED_ROWS))
        if math.isfinite(bound):
            self._segments[counting.FLOOR, ended] = bound

    def _settle(self) -> None:
        """Count rows that came one by one."""
        if not self._singles:
            return
        P, unseen, labels, weights, frozen, X = zip(*self._singles, strict=True)
        self._singles = []
        sizes = list(zip(map(len, P), map(len, X), strict=True))
        for (K, d), alike in groupby(range(len(sizes)), key=sizes.__getitem__):
            places = list(alike)
            n, own = len(places), slice(places[0], places[-1] + 1)
            scores = np.array([unseen[own], weights[own], frozen[own]])
            self._count(
                PredictionBatch.of(
                    np.concatenate(P[own]).reshape(n, K), scores[0], np.array(labels[own]),
                    np.full(n, K), scores[1], scores[2],
                    np.concatenate(X[own]).reshape(n, d), self._absent,
                )
            )  # fmt: skip

    def _count(self, rows: PredictionBatch) -> None:
        self._make_room(rows)
        confusion, scores, given = self._tables
        self._size = counting.count_predictions(
            *rows[:-2], self._n_counted, self._size, self._segments, self._classes,
            confusion, scores, given,
        )  # fmt: skip
        counting.count_values(rows.X, rows.is_number, self._n_counted, self._counts, self._moments)
        self._n_counted += len(rows.labels)

    def _make_room(self, rows: PredictionBatch) -> None:
        """Grow for classes and columns that come; too many classes end the tables."""
        K, d = max(rows.P.shape[1], int(rows.labels.max(initial=-1)) + 1), rows.X.shape[1]
        more = K - self._classes.shape[1]
        if more > 0:
            self._classes = np.pad(self._classes, ((0, 0), (0, more)))
            if K > _MOST_CLASSES:
                self._tables = _tables(0)
            else:
                grown = _tables(K)
                for new, old in zip(grown, self._tables, strict=True):
                    new[tuple(map(slice, old.shape))] = old
                self._tables = grown
        more = d - self._counts.shape[1]
        if more > 0:
            wider = (0, 0), (0, more)
            self._counts, self._moments = np.pad(self._counts, wider), np.pad(self._moments, wider)

    # What it tells.

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The rows in up to 64 segments of one length, the last one perhaps shorter."""
        self._settle()
        n, size = self._n_counted, self._size
        found = []
        for i, start in enumerate(range(0, n, size)):
            loss, n_errors, weight, floor, frozen = self._segments[:, i].tolist()
            stop = min(n, start + size)
            found.append(Segment(start, stop, loss, int(n_errors), weight, floor, frozen))
        return tuple(found)

    @property
    def loss(self) -> float:
        """The loss of all rows."""
        self._settle()
        return float(self._segments[counting.LOSS].sum())

    @property
    def n_errors(self) -> int:
        """The rows whose most likely class was wrong."""
        self._settle()
        return int(self._segments[counting.ERRORS].sum())

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        self._settle()
        return float(self._segments[counting.WEIGHT].sum())

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Rows of a class (first) that were taken for a class (second)."""
        self._settle()
        table: NDArray[np.int64] = self._tables[0].copy()
        return table

    @property
    def calibration(self) -> Array:
        """Rows, the sum of what was given, and rows of the class, by class and bin."""
        self._settle()
        _, scores, given = self._tables
        others, own = _in_bins(scores)
        return np.array([others + own, given, own])

    def by_class(self) -> list[ClassRecord]:
        """Return what came of every class, in the order of their numbers."""
        self._settle()
        records = [ClassRecord(*counts) for counts in self._classes.T.tolist()]
        _, scores, _ = self._tables
        if not len(scores):
            return records
        errors = _calibration_errors(self.calibration)
        return [
            ClassRecord(one.n_rows, one.n_predicted, one.n_right, auc, error)
            for one, auc, error in zip(records, _aucs(scores), errors, strict=True)
        ]

    def by_column(self, encoder: Any) -> list[ColumnRecord]:
        """Return what every column held that the model learned from; `encoder` is the model's."""
        self._settle()
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
            new = tuple(column.categories[i] for i in seen if firsts[i] >= self._size)
            return ColumnRecord(column.name, column.role, first, n_missing, 0, len(seen), new)
        # The places of a date are filled together, or not.
        n_missing = self._n_counted - int(n_values.max())
        n_outliers = int(outliers.sum()) if column.role == "number" else 0
        return ColumnRecord(column.name, column.role, first, n_missing, n_outliers)

    # How it is kept.

    def to_record(self) -> Record:
        """Return everything as a record."""
        self._settle()
        record = super().to_record()
        record.config.update(n_rows=self._n_counted, size=self._size)
        names = "segments", "classes", "counts", "moments"
        record.arrays.update({name: getattr(self, f"_{name}").copy() for name in names})
        for name, table in zip(_TABLES, self._tables, strict=True):
            record.arrays[name] = table.copy()
        return record

    def _restore(self, record: Record) -> None:
        self._n_counted, self._size = record.count("n_rows"), record.count("size", 1)
        if self._n_counted > counting.N_PIECES * self._size:
            raise StateFileError("a Metrics state has more rows than its segments hold")
        self._segments = record.part("segments", self._segments.shape, gaps=True)
        self._classes = record.part("classes", (3, None), np.int64)
        self._counts = record.part("counts", (4, None), np.int64)
        self._moments = record.part("moments", (2, self._counts.shape[1]))
        K = self._classes.shape[1]
        tables = zip(_TABLES, _tables(K if K <= _MOST_CLASSES else 0), strict=True)
        self._tables = tuple(record.part(name, own.shape, own.dtype) for name, own in tables)

    def __getstate__(self) -> dict[str, Any]:
        self._settle()  # so that what is pickled does not depend on who has looked
        return self.__dict__

    def __repr__(self) -> str:
        return f"Metrics of {self.n_rows} rows"


_TABLES = "confusion", "scores", "given"


def _tables(K: int) -> tuple[Any, ...]:
    """Return empty tables of K classes."""
    return (
        np.zeros((K, K), np.int64),
        np.zeros((K, 2, counting.N_SCORES), np.int64),  # of rows of others, and of the class
        np.zeros((K, counting.N_BINS)),
    )


def _in_bins(scores: NDArray[np.int64]) -> Array:
    """Return how many rows of others and of the class (2, K, bins) a bin of calibration holds."""
    each = counting.N_SCORES // counting.N_BINS
    pooled = scores.reshape(len(scores), 2, counting.N_BINS, each).sum(axis=3)
    counts: Array = pooled.transpose(1, 0, 2).astype(np.float64)
    return counts


def _calibration_errors(calibration: Array) -> list[float]:
    rows, given, own = calibration
    totals = rows.sum(axis=1)
    distance = np.abs(given - own).sum(axis=1)
    return [
        d / n if n else math.nan for d, n in zip(distance.tolist(), totals.tolist(), strict=True)
    ]


def _aucs(scores: NDArray[np.int64]) -> list[float]:
    """Return of every class how often its rows were given more than others; ties count half."""
    found = []
    for others, own in scores.astype(np.float64):
        below = np.cumsum(others) - others
        pairs = float(others.sum() * own.sum())
        found.append(float(own @ (below + 0.5 * others)) / pairs if pairs else math.nan)
    return found
