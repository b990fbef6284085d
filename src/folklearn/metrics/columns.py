"""Counts of values by column: what has changed more than by chance, what gives the class away."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, xlogy

from folklearn.arrays import Array
from folklearn.arrays import Labels as Numbers
from folklearn.errors import StateFileError
from folklearn.kernels import metrics as kernels
from folklearn.serialization import Record, Serializable

FALSE_ALARMS = 0.01  # the probability that any column is ever said to have changed, if none has
_HEAD_ROWS = 256  # that set the bins, and are not counted
_WINDOW_ROWS = 64
_PRIOR = 0.5  # of a bin, by Krichevsky and Trofimov
_MAX_CLASSES = 50

Counts = NDArray[np.int64]


class ColumnPlaces(NamedTuple):
    """The places of a column in an encoded row."""

    name: str
    role: str
    places: Sequence[int]
    categories: Sequence[str] | None = None  #: one for each place; empty where rows stay sparse
    is_feature: bool = False  #: of a matrix, in which 0 is no value and NaN is a gap


class Shift(NamedTuple):
    """A change in a column that is more than chance: what, since when, how often before and now."""

    what: str  #: "has no value", "is above 3.5", "is 'DE'", "has a value that came late"
    since: int  #: about the first row after it, counted from 0
    before: float  #: shares of the rows, of those with a value where it is about values
    now: float

    def in_words(self) -> str:
        """Return the change as the end of a sentence."""
        now, before = (f"in {100.0 * share:.3g} %" for share in (self.now, self.before))
        return f"{self.what} {now} of the rows since about row {self.since:,}, {before} before"


class _Test(NamedTuple):
    """A question about a column: counts of its answers (S, n) in every span of the rows."""

    spans: Counts
    what: Sequence[str]  # that an answer beyond the first i + 1 means, for i = 0, 1, ...


class ColumnCounts(Serializable):
    """Counts of the values in every place of a row, by which columns are found that have changed.

    The first 256 rows set 7 quantiles of every number; what comes later is counted in the bins
    between them, in spans of rows that double in length, and by class.

    Guarantee: if the rows after the first 256 are independent with one distribution, the
    probability that a column is ever said to have changed is at most 1 %. The test, of every
    question (is there a value? in which bin? is it this category?), and its proof are in
    docs/theory/monitoring.md, section 7.

    Time a row: some nanoseconds for every place; memory O(log T) of a place, and K.
    """

    ARRAYS = ("edges", "spans", "lengths", "by_class", "head")

    def __init__(self) -> None:
        self._head: Array = np.zeros((0, 0))  # the first rows, until there are enough
        self._edges: Array = np.zeros((0, kernels.N_EDGES))
        # The last span is that of up to 63 rows; before it at most two of each length.
        self._spans: Counts = np.zeros((1, 0, kernels.N_VALUE_BINS), np.int64)
        self._lengths: Counts = np.zeros(1, np.int64)  # of the spans, in rows
        self._by_class: Counts = np.zeros((0, 0, kernels.N_VALUE_BINS), np.int64)
        self._n_first_places = 0  # that the head had: what comes later is no question of its own
        self._n_before = 0  # rows that were not counted: the first ones, and what was let go of

    def add(self, X: Array, is_number: Any, labels: Numbers) -> None:
        """Count rows X (T, d) of class numbers (T,)."""
        d, start = X.shape[1], 0
        if not d:
            return
        if not self._n_first_places:
            start = min(len(X), _HEAD_ROWS - len(self._head))
            late = np.where(is_number[self._head.shape[1] :], math.nan, 0.0)
            before = np.c_[self._head, np.tile(late, (len(self._head), 1))]
            self._head = np.concatenate([before, X[:start]])
            self._n_before += start
            if len(self._head) < _HEAD_ROWS:
                return
            self._set_edges(is_number)
        n_classes = int(labels.max(initial=-1)) + 1
        self._grow(d, max(n_classes, len(self._by_class)))
        while start < len(X):
            stop = min(len(X), start + _WINDOW_ROWS - int(self._lengths[-1]))
            kernels.count_bins(
                X[start:stop], is_number, self._edges, labels[start:stop], self._spans[-1],
                self._by_class,
            )  # fmt: skip
            self._lengths[-1] += stop - start
            if self._lengths[-1] == _WINDOW_ROWS:
                self._close_span()
            start = stop

    def release_rows(self) -> None:
        """Let go of the first rows: later ones set the bins. Bins that are set stay."""
        self._head = np.zeros((0, 0))

    def _set_edges(self, is_number: Any) -> None:
        is_value = ~np.isnan(self._head) & (is_number | (self._head != 0.0))
        # Places of later rows may be there already, depending on how rows are portioned.
        self._n_first_places = int(np.flatnonzero(is_value.any(axis=0)).max(initial=0)) + 1
        self._grow(self._head.shape[1], 0)
        for j in np.flatnonzero(is_value.any(axis=0)):
            values = self._head[is_value[:, j], j]
            if is_number[j] or len(np.unique(values)) > 1:
                self._edges[j] = np.quantile(values, np.linspace(0.0, 1.0, kernels.N_EDGES))
        self._head = np.zeros((0, 0))

    def _grow(self, d: int, n_classes: int) -> None:
        """Make room for places, of which earlier rows had no value, and for classes."""
        n_late = d - len(self._edges)
        if n_late > 0:
            self._edges = np.pad(self._edges, ((0, n_late), (0, 0)), constant_values=math.inf)
            self._spans = np.pad(self._spans, ((0, 0), (0, n_late), (0, 0)))
            self._spans[:, -n_late:, kernels.NO_VALUE] = self._lengths[:, None]
            n_rows = self._by_class[:, 0].sum(axis=1) if self._by_class.size else 0
            self._by_class = np.pad(self._by_class, ((0, 0), (0, n_late), (0, 0)))
            self._by_class[:, -n_late:, kernels.NO_VALUE] += np.reshape(n_rows, (-1, 1))
        if n_classes > _MAX_CLASSES:
            self._by_class = self._by_class[:0]
        elif n_classes > len(self._by_class):
            n_new = n_classes - len(self._by_class)
            self._by_class = np.pad(self._by_class, ((0, n_new), (0, 0), (0, 0)))

    def _close_span(self) -> None:
        spans, lengths = [*self._spans], self._lengths.tolist()
        length = _WINDOW_ROWS
        while lengths.count(length) > 2:
            i = lengths.index(length)
            spans[i : i + 2], lengths[i : i + 2] = [spans[i] + spans[i + 1]], [2 * length]
            length *= 2
        self._spans = np.array([*spans, np.zeros_like(spans[0])])
        self._lengths = np.array([*lengths, 0])

    def find_shifts(self, columns: Sequence[ColumnPlaces]) -> dict[str, Shift]:
        """Return what has changed in which column, of each what is the surest."""
        tests = [(column.name, test) for column in columns for test in self._tests(column)]
        threshold = math.log(max(1, len(tests)) / FALSE_ALARMS)
        surest: dict[str, tuple[float, Shift]] = {}
        for n_answers in {test.spans.shape[1] for _, test in tests}:
            alike = [(name, test) for name, test in tests if test.spans.shape[1] == n_answers]
            spans = np.stack([test.spans for _, test in alike])
            for (name, test), (evidence, at) in zip(alike, self._weigh(spans), strict=True):
                if evidence >= max(threshold, surest.get(name, (0.0,))[0]):
                    surest[name] = evidence, self._describe(test, at)
        return {column.name: surest[column.name][1] for column in columns if column.name in surest}

    def _tests(self, column: ColumnPlaces) -> Iterator[_Test]:
        first = [at for at in column.places if at < self._n_first_places]
        if not first or not self._lengths.any():
            return
        counts = self._spans[:, first]
        if column.categories:
            for i, category in enumerate(column.categories[: len(first)]):
                yield _two_answers(self._lengths, counts[:, i, 1:].sum(axis=1), f"is {category!r}")
            late = self._spans[:, list(column.places[len(first) :]), 1:].sum(axis=(1, 2))
            yield _two_answers(self._lengths, late, "has a value that came late")
            return
        missing = "is 0 or has no value" if column.is_feature else "has no value"
        yield _two_answers(self._lengths, counts[:, 0, kernels.NO_VALUE], missing)
        edges = self._edges[first[0]]
        is_bin = np.r_[True, edges[1:] > edges[:-1], math.isfinite(edges[-1])]
        if column.role == "number" and is_bin.sum() > 1:
            what = [f"is above {edge:.6g}" for edge in edges[is_bin[:-1]]]
            yield _Test(counts[:, 0, 1:][:, is_bin], what)

    def _weigh(self, spans: Counts) -> list[tuple[float, int]]:
        """Return ln E of tests (M, S, n), and the span after which the change fits best."""
        total = spans.sum(axis=1, keepdims=True)
        before = np.cumsum(spans, axis=1)[:, :-1]
        if not before.shape[1]:
            return [(-math.inf, 0)] * len(spans)
        looks = np.cumsum(self._lengths)[:-1] // _WINDOW_ROWS
        weights = 1.0 / np.log2(looks + 2.0) - 1.0 / np.log2(looks + 3.0)
        best_fit = xlogy(total, total / np.maximum(1, total.sum(axis=2, keepdims=True)))
        gains = _log_mixture(before) + _log_mixture(total - before) - best_fit.sum(axis=2)
        gains += np.log(weights)
        best = gains.argmax(axis=1).tolist()
        return list(zip(logsumexp(gains, axis=1).tolist(), best, strict=True))

    def _describe(self, test: _Test, at: int) -> Shift:
        halves = test.spans[: at + 1].sum(axis=0), test.spans[at + 1 :].sum(axis=0)
        shares = [1.0 - counts.cumsum()[:-1] / max(1, counts.sum()) for counts in halves]
        i = int(np.abs(shares[1] - shares[0]).argmax())
        since = self._n_before + int(self._lengths[: at + 1].sum())
        return Shift(test.what[i], since, float(shares[0][i]), float(shares[1][i]))

    def explained_share(self, column: ColumnPlaces) -> float:
        """Return how much of the entropy of the classes a column alone explains; NaN if not known.

        It is their mutual information over the entropy, less what chance explains.
        """
        places = [at for at in column.places if at < self._by_class.shape[1]]
        if not len(self._by_class) or not places:
            return math.nan
        places = places if column.categories else places[:1]  # which a number or a date fills
        cells = self._by_class[:, places, 1:].reshape(len(self._by_class), -1)
        of_class = self._by_class[:, places[0]].sum(axis=1)
        cells = np.c_[cells, np.maximum(0, of_class - cells.sum(axis=1))]
        n = of_class.sum()
        entropy = -xlogy(of_class, of_class / max(1, n)).sum()
        if not entropy > 0.0:
            return math.nan
        of_cell = cells.sum(axis=0)
        rest = -xlogy(cells, cells / np.maximum(1, of_cell)).sum()
        by_chance = 0.5 * (np.count_nonzero(of_cell) - 1) * (np.count_nonzero(of_class) - 1)
        return float(1.0 - (rest + by_chance) / entropy)

    COUNTERS = ("_n_first_places", "_n_before")

    def _restore(self, record: Record) -> None:
        d = len(record.part("edges", (None, kernels.N_EDGES), most=math.inf))
        n_spans = len(record.part("lengths", (None,), np.int64, least=0))
        n_classes = len(record.part("by_class", (None, d, kernels.N_VALUE_BINS), np.int64, least=0))
        record.part("spans", (n_spans, d, kernels.N_VALUE_BINS), np.int64, least=0)
        for name in ("edges", "spans", "lengths", "by_class"):
            setattr(self, f"_{name}", record.arrays[name].copy())
        self._head = record.part("head", (None, None), gaps=True).copy()
        self._n_first_places = record.count("n_first_places")
        self._n_before = record.count("n_before")
        fits = self._n_first_places <= d and len(self._head) < _HEAD_ROWS
        if not (n_spans and n_classes <= _MAX_CLASSES and fits):
            raise StateFileError("a ColumnCounts state does not fit its counts")


def _two_answers(lengths: Counts, n_yes: Counts, what: str) -> _Test:
    return _Test(np.stack([lengths - n_yes, n_yes], axis=1), [what])


def _log_mixture(counts: Counts) -> Any:
    """Return ln m(c) of counts (..., n), the probability of rows if each is predicted by them."""
    n_all, prior = counts.sum(axis=-1), _PRIOR * counts.shape[-1]
    of_bins = gammaln(_PRIOR + counts) - gammaln(_PRIOR)
    return gammaln(prior) - gammaln(prior + n_all) + of_bins.sum(axis=-1)
