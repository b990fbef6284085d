"""Sets of classes that miss the label at a declared rate, on any sequence of rows."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import metrics as kernels
from folklearn.serialization import Record, Serializable

COVERAGE = (0.8, 0.9, 0.95)  # declared where nothing else is
GROUPS = ("all", "class")
_ROUNDING = 1e-9  # of a probability that may be above 1
_MAX_WAITING_ROWS = 256  # observed one by one, before their thresholds move
# Before the first row every class is in the set; rows, misses, threshold, lowest, highest.
_FIRST = np.array([0.0, 0.0, 1.0, 1.0, 1.0])


class CoverageRecord(NamedTuple):
    """How often sets missed the label, before the most probable class was added to them."""

    coverage: float  #: the declared share of labels in their sets
    n_rows: int  #: whose label came
    n_misses: int
    bound: float  #: the miss rate is within this of 1 - coverage, whatever the rows were

    @property
    def miss_rate(self) -> float:
        """The share of rows whose set did not have the label, NaN before the first row."""
        return self.n_misses / self.n_rows if self.n_rows else math.nan

    def plain(self) -> dict[str, float | None]:
        """Return it as JSON holds it."""
        return {**self._asdict(), "miss_rate": self.miss_rate if self.n_rows else None}


class PredictionSets(Serializable):
    r"""Thresholds that follow a stream, so that sets of classes miss the label as often as said.

    Use it as `Model.sets`, or with the probabilities of any other model whose labels come later.
    It assumes nothing, and improves nothing: sets of a bad model are large.

    The set of row t has the classes whose score :math:`1 - p_t(k)` is at most the threshold
    :math:`q_t`. When the label comes, with :math:`m_t = 1` if the set did not have it and else 0,

    .. math:: q_{t+1} = q_t + \eta_t (m_t - \alpha), \qquad \eta_t = \max(t^{-0.6} / 2, 0.01)

    where :math:`1 - \alpha` is the coverage and :math:`q_1 = 1`. Sets that are shown have the most
    probable class added, so that none is empty; the thresholds follow those without it. Each row
    counts once, whatever its weight, and a soft label as its most probable class, as for the error
    rate. Time a row: 0.1 microseconds for each coverage; memory: 5 numbers for each and each class.

    Guarantee: for every sequence of rows, with no assumption on data or model, after T labels that
    each came before the next row

    .. math:: \Big| \frac1T \sum_t m_t - \alpha \Big| \le \frac{3/2}{\eta_T T}

    which is 0.03 at T = 5,000. If up to D other rows wait for their label when one comes, and each
    counts with the set that it was given, 3/2 becomes (3 + D)/2 (docs/theory/sets.md).

    Parameters
    ----------
    coverage : the share of labels that sets should have, or several; between 0 and 1.
    by : "all" for one threshold, or "class" for one of the rows of each class: then the guarantee
        holds for every class, with T its rows.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.evaluate import PredictionSets
    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet(np.ones(3), size=5000)
    >>> y = (P.cumsum(axis=1) > rng.random((5000, 1))).argmax(axis=1)
    >>> sets = PredictionSets(0.9)
    >>> sets.observe_many(P[np.arange(5000), y], y)
    >>> sets.choose([[0.5, 0.41, 0.09]], "abc", 0.9)
    [('a', 'b')]
    >>> print(sets.in_words())
    Prediction sets for 90 % missed 10.0 % of 5,000 labels; on any data within 3.0 points of 10 %.
    """

    PARAMS = ("coverage", "by")
    ARRAYS = ("state",)

    def __init__(self, coverage: float | Iterable[float] = COVERAGE, *, by: str = "all") -> None:
        declared: Iterable[Any] = coverage if np.iterable(coverage) else (coverage,)
        shares = {validation.probability("coverage", share) for share in declared}
        self.coverage, self.by = tuple(sorted(shares)), validation.choice("by", by, GROUPS)
        self._miss_rates = 1.0 - np.array(self.coverage)
        self.forget()

    def forget(self) -> None:
        """Begin anew, at the first row of another stream."""
        self._waiting: list[tuple[float, int]] = []
        n_groups = 1 if self.by == "all" else 0
        self._state = np.tile(_FIRST[:, None, None], (1, len(self.coverage), n_groups))

    def observe(self, p_label: float, label: int, issued: Array | None = None) -> None:
        """Observe the label of a row, a class number, which had the probability `p_label`.

        `issued` are the `thresholds` that its set had, if labels of other rows came in between.
        """
        if issued is not None:
            return self.observe_many([p_label], [label], issued)
        self._waiting.append((p_label, label))
        return self._follow_waiting() if len(self._waiting) == _MAX_WAITING_ROWS else None

    def observe_many(
        self, p_label: ArrayLike, labels: ArrayLike, issued: Array | None = None
    ) -> None:
        """Observe labels (T,), class numbers, in order, and the probabilities (T,) they had.

        Without `issued` the set of each row has the thresholds after the row before.
        """
        p, y = np.array(p_label, np.float64), np.array(labels)
        are_numbers = y.dtype.kind in "iu" and p.ndim == 1 and y.shape == p.shape
        if not are_numbers or y.min(initial=0) < 0 or ((p < 0.0) | (p > 1.0 + _ROUNDING)).any():
            raise InvalidInputError(
                "expected for every row a probability from 0 to 1 and the number of a class"
            )
        if self._waiting:
            self._follow_waiting()
        groups = np.zeros(len(y), np.int64) if self.by == "all" else y.astype(np.int64)
        n_groups = int(groups.max(initial=-1)) + 1
        if n_groups > self._state.shape[2]:
            self._state = _pad_groups(self._state, n_groups, _FIRST[:, None, None])
        limits = np.empty((0, len(self.coverage)))
        if issued is not None:
            of_rows = _pad_groups(issued, n_groups, _FIRST[kernels.THRESHOLD])[:, groups]
            limits = np.ascontiguousarray(of_rows.T)
        kernels.follow_labels(p, groups, limits, self._miss_rates, self._state)

    def _follow_waiting(self) -> None:
        if self._waiting:
            p_label, labels = zip(*self._waiting, strict=True)
            self._waiting = []
            self.observe_many(p_label, labels)

    @property
    def thresholds(self) -> Array:
        """The thresholds (C, G) of now: for every coverage, of all rows or of every class."""
        self._follow_waiting()
        return self._state[kernels.THRESHOLD].copy()

    def _at_coverage(self, coverage: float) -> Array:
        if coverage not in self.coverage:
            declared = ", ".join(map(str, self.coverage)) or "none"
            raise InvalidInputError(
                f"coverage {coverage!r} was not declared; declared: {declared}. Thresholds follow "
                f"the rows from the first one on: begin with coverage=({coverage!r},)"
            )
        self._follow_waiting()
        return self._state[:, self.coverage.index(coverage)]

    def choose(self, P: ArrayLike, labels: Sequence[Any], coverage: float) -> list[tuple[Any, ...]]:
        """Return the set of every row of P (T, K), the most probable of the `labels` first."""
        P, limits = np.asarray(P, np.float64), self._at_coverage(coverage)[kernels.THRESHOLD]
        if self.by == "class":
            limits = _pad_groups(limits, P.shape[1], _FIRST[kernels.THRESHOLD])
        order = np.argsort(-P, axis=1, kind="stable")
        are_in = np.take_along_axis(np.clip(1.0 - P, 0.0, 1.0) <= limits, order, axis=1)
        are_in[:, :1] = True
        return [
            tuple(labels[k] for k in row[kept].tolist())
            for row, kept in zip(order, are_in, strict=True)
        ]

    def records(self) -> list[CoverageRecord]:
        """Return for every coverage how often sets missed the label, over all rows."""
        totals = []
        for share in self.coverage:
            records = self.by_class(share)
            n_rows = sum(record.n_rows for record in records)
            n_misses = sum(record.n_misses for record in records)
            slack = sum(record.n_rows * record.bound for record in records)
            bound = slack / n_rows if n_rows else 1.0
            totals.append(CoverageRecord(share, n_rows, n_misses, bound))
        return totals

    def by_class(self, coverage: float) -> list[CoverageRecord]:
        """Return a record for every class, in order; for all rows with ``by="all"``."""
        records, thresholds = [], self._at_coverage(coverage)
        for n, misses, _, lowest, highest in thresholds.T.tolist():
            # If no label waits, thresholds stay in an interval as long as 1 and the first step.
            width = max(1.0 + kernels.step_of_threshold(1.0), highest - lowest)
            bound = width / (kernels.step_of_threshold(n) * n) if n else 1.0
            records.append(CoverageRecord(coverage, int(n), int(misses), min(1.0, bound)))
        return records

    def in_words(self) -> str:
        """Return how often sets missed the label, as a sentence; empty before the first row."""
        records = self.records()
        if not records or not records[0].n_rows:
            return ""
        shares = ", ".join(f"{100.0 * record.coverage:g}" for record in records)
        missed = ", ".join(f"{100.0 * record.miss_rate:.1f}" for record in records)
        nominal = ", ".join(f"{100.0 * (1.0 - record.coverage):g}" for record in records)
        bound = 100.0 * max(record.bound for record in records)
        return (
            f"Prediction sets for {shares} % missed {missed} % of {records[0].n_rows:,} labels; "
            f"on any data within {bound:.1f} points of {nominal} %."
        )

    def copy(self) -> Self:
        """Return a copy that follows on its own."""
        self._follow_waiting()
        copied = self._shallow()
        copied._state, copied._waiting = self._state.copy(), []
        return copied

    def to_record(self) -> Record:
        self._follow_waiting()
        return super().to_record()

    def _restore(self, record: Record) -> None:
        shape = *self._state.shape[:2], 1 if self.by == "all" else None
        self._state = record.part("state", shape).copy()
        if (self._state[[kernels.ROWS, kernels.MISSES]] < 0.0).any():
            raise record.error("has a count below 0")


def _pad_groups(state: Array, n_groups: int, first: Any) -> Array:
    """Return a state (..., n) with that of classes that had no row yet, (..., n_groups)."""
    n_new = max(0, n_groups - state.shape[-1])
    new = np.broadcast_to(first, (*state.shape[:-1], n_new))
    return np.concatenate([state, new], axis=-1)
