"""Lower bounds for linear models on the last 64, 128, 256, ... rounds of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.evidence import Evidence
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.kernels.blas import device_named
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.metrics.scores import check_probabilities, label_mass
from folklearn.progress import Progress, Report, report_progress
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRow, SparseRows, dense_row
from folklearn.validation import Rows

_CHUNK_ROWS = 4096  # between two chances to report or to be interrupted

Sums = Evidence | LinearEvidence


@dataclass(frozen=True)
class Window:
    """The last rounds of a stream, from `start` to before `stop`, counted from 0."""

    start: int
    stop: int
    loss: float  # weighted; totals over the window
    n_errors: float
    weight: float
    lower_bound: float  # no linear model has a total loss and a penalty below it
    C: float = 1.0  # inverse of the penalty

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
    """The evidence of consecutive rounds, and totals that are added up with it."""

    start: int
    stop: int
    evidence: Any  # a sum that can be added to another
    totals: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def n_rounds(self) -> int:
        return self.stop - self.start

    def __add__(self, later: "EvidenceSpan") -> "EvidenceSpan":
        evidence = self.evidence + later.evidence
        return EvidenceSpan(self.start, later.stop, evidence, self.totals + later.totals)


def add_to_ladder(ladder: list[EvidenceSpan], span: EvidenceSpan) -> None:
    """Append a span; of three of one length the two older ones become one."""
    ladder.append(span)
    last = len(ladder) - 1
    while last >= 2 and len({rung.n_rounds for rung in ladder[last - 2 : last + 1]}) == 1:
        ladder[last - 2 : last] = [ladder[last - 2] + ladder[last - 1]]
        last -= 2


def join_suffixes(spans: Sequence[EvidenceSpan]) -> list[EvidenceSpan]:
    """Return every union of the newest spans, the shortest first."""
    suffixes: list[EvidenceSpan] = []
    for span in reversed(spans):
        suffixes.append(span + suffixes[-1] if suffixes else span)
    return suffixes


class RoundObserver(Serializable):
    """Observes rounds of any model, and adds their rows to evidence.

    Where `Evidence` does not fit it is `LinearEvidence`, whose planes touch at the predictions of
    a learner of the same rows. Its `_run` takes any weight.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "C", "constant")
    # Which of them by the memory of the machine it began on.
    STATE: ClassVar = {"_evidence": Evidence | LinearEvidence, "_learner": SparseSgd}

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        C: float,
        constant: int | None,
        device: str | None = None,
    ) -> None:
        d = self.n_features = validation.count("n_features", n_features, 1)
        K = self.n_classes = validation.count("n_classes", n_classes, 2)
        self._evidence: Sums
        self._learner: SparseSgd | None = None
        if select_backend(d, K, device_named(device)) == PAIRS:
            self._evidence = Evidence(**self._sizes, C=C, constant=constant, device=device)
        else:
            self._evidence = LinearEvidence(**self._sizes, C=C, constant=constant)
            self._learner = SparseSgd(n_features=d, n_classes=K)
        self.C, self.constant = self._evidence.C, self._evidence.constant

    @property
    def _sizes(self) -> dict[str, int]:
        return {"n_features": self.n_features, "n_classes": self.n_classes}

    def _add(self, rows: Rows, report: Report | None = None) -> None:
        """Add checked rows to the evidence."""
        evidence, n = self._evidence, len(rows.X)
        if isinstance(evidence, LinearEvidence):
            assert self._learner is not None
            evidence._add_planes(rows, self._learner._run(rows, report))
        elif n == 1 and isinstance(rows.X, np.ndarray):
            soft = rows.soft[0] if len(rows.soft) else rows.soft
            evidence._append(rows.X[0], int(rows.labels[0]), soft, float(rows.weights[0]))
        else:
            for start in range(0, n, _CHUNK_ROWS):
                evidence._add(rows.part(start, start + _CHUNK_ROWS))
                if report is not None:
                    report(min(start + _CHUNK_ROWS, n))

    def observe(self, x: Any, y: Any, p: ArrayLike, weight: float = 1.0) -> float:
        """Observe one round; return the log loss -ln p[y] of the prediction, unweighted.

        y is a class or a soft label, p (K,) the prediction. Everything is checked before
        anything changes.
        """
        d = self.n_features
        if validation.is_sparse_context(x):
            row: SparseRow = validation.usable(validation.sparse_context(x, d))
            X: Any = SparseRows(np.array([0, len(row.indices)]), *row, d)
            if self._learner is None:
                X = dense_row(row, d)[None]
        else:
            X = validation.usable_context(x, d)[None]
        p = check_probabilities(p, self.n_classes)
        label, soft = validation.label(y, self.n_classes)
        weights = np.array([validation.weight(weight)])
        Y = soft[None] if soft.size else np.empty((0, self.n_classes))
        rows = Rows(X, validation.norms(X), np.array([label]), Y, weights)
        return float(self._observe(rows, p[None], None)[0])

    def observe_many(
        self,
        X: Any,
        y: ArrayLike,
        P: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        progress: Progress = False,
    ) -> Array:
        """Observe rounds X (T, d), y (T,) or (T, K), P (T, K); return their losses (T,).

        Equal to the loop over `observe`. Every row is checked before the first round.
        """
        rows = Rows.checked(X, y, weight, **self._sizes)
        P = check_probabilities(P, len(rows.X), self.n_classes)
        with report_progress(progress, len(rows.X), "certifying") as report:
            return self._observe(rows, P, report)

    def _observe(self, rows: Rows, P: Array, report: Report | None) -> Array:
        raise NotImplementedError

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct with small evidence, which is replaced by that of the file."""
        observer = cls(**words | {"n_features": 1, "n_classes": 2, "constant": None})
        observer.n_features, observer.n_classes = validation.sizes(words)
        observer.constant = words["constant"]
        return observer

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._check_problem([self._evidence], record)

    def _check_problem(self, sums: Sequence[Any], record: Record) -> None:
        params_of, kind = attrgetter(*RoundObserver.PARAMS), type(self._evidence)
        if any(type(each) is not kind or params_of(each) != params_of(self) for each in sums):
            raise StateFileError(f"a {record.kind} state holds the evidence of another problem")
        if kind is LinearEvidence and (
            self._learner is None or self._learner._sizes != self._sizes
        ):
            raise StateFileError(f"a {record.kind} state holds the learner of another problem")


class Windows(RoundObserver):
    r"""Losses, errors and lower bounds of the last 64, 128, 256, ... rounds of any model.

    Use it to see whether a model has become beatable *lately*: if the predictions lose more than
    the lower bound allows in a short window and not in a long one, the stream has changed and the
    model has not followed.

    Evidence is kept for spans of ``block``, 2 ``block``, 4 ``block``, ... rounds, at most two of
    each length; of three the older two become one. A window is a sum of :math:`O(\log T)` of them
    and covers at least what was asked for and less than twice that.
    Time and memory those of :math:`O(\log T)` objects `Evidence`; where that does not fit, of
    `LinearEvidence` and of `SparseSgd`, at whose predictions its planes touch.

    Guarantee: every lower bound is at most the total loss plus penalty of every linear model on
    the rounds of its window, in floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    C, constant : of the penalty, as of `Evidence`.
    block : rounds of the shortest window, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.evaluate import Windows
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> y[700:] = 1 - y[700:]  # concept drift at row 700
    >>> P = np.where(X[:, :1] > 0, [0.05, 0.95], [0.95, 0.05])  # a model that does not follow
    >>> windows = Windows(n_features=2, n_classes=2)
    >>> losses = windows.observe_many(X, y, P)
    >>> last = windows.last(128)
    >>> last.n_rounds >= 128, last.n_errors == last.n_rounds, last.could_gain > 1.0
    (True, True, True)
    """

    PARAMS = (*RoundObserver.PARAMS, "block")
    ARRAYS = ("totals",)
    UNBOUNDED = ("totals",)  # predictions of 0 lose infinitely much

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        C: float = 1.0,
        constant: int | None = None,
        block: int = 64,
    ) -> None:
        super().__init__(n_features, n_classes, C, constant)  # evidence of a block
        self.block = validation.count("block", block, 1)
        self._ladder: list[EvidenceSpan] = []
        self._totals: Array = np.zeros(3)  # loss, errors and weight of the block

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        return self._newest_span().stop

    def _observe(self, rows: Rows, P: Array, report: Report | None) -> Array:
        losses = log_losses(P, rows.labels, rows.soft)
        errors = 1.0 - label_mass(P, rows.labels, rows.soft)
        # A round of weight 0 does not count, even if its loss is infinite.
        weighted = np.zeros_like(losses)
        np.multiply(rows.weights, losses, out=weighted, where=rows.weights > 0.0)
        scores, start = np.array([weighted, errors, rows.weights]), 0
        while start < len(losses):
            stop = min(start + self.block - self._evidence.n_rounds, len(losses))
            self._totals += scores[:, start:stop].sum(axis=1)
            self._add(rows.part(start, stop))
            if self._evidence.n_rounds == self.block:
                add_to_ladder(self._ladder, self._newest_span())
                self._evidence, self._totals = self._evidence._empty(), np.zeros(3)
            start = stop
            if report is not None:
                report(start)
        return losses

    def _newest_span(self) -> EvidenceSpan:
        """Return the block that is not full yet."""
        start = self._ladder[-1].stop if self._ladder else 0
        stop = start + self._evidence.n_rounds
        return EvidenceSpan(start, stop, self._evidence, self._totals)

    def last(self, n_rounds: int) -> Window:
        """Return the shortest window that covers the last `n_rounds`."""
        wanted = validation.count("n_rounds", n_rounds, 1)
        if wanted > self.n_rounds:
            raise InvalidInputError(f"there were {self.n_rounds} rounds, not {wanted}")
        return self._window(next(span for span in self._suffixes() if span.n_rounds >= wanted))

    def all(self) -> list[Window]:
        """Return the windows of at least 1, 2, 4, ... blocks, the shortest first, and the whole."""
        windows, wanted = [], self.block
        for suffix in self._suffixes():
            if suffix.n_rounds >= wanted or suffix.start == 0:
                windows.append(self._window(suffix))
                while wanted <= suffix.n_rounds:
                    wanted *= 2
        return windows

    def _suffixes(self) -> list[EvidenceSpan]:
        newest = self._newest_span()
        return join_suffixes([*self._ladder, newest] if newest.n_rounds else self._ladder)

    def _window(self, span: EvidenceSpan) -> Window:
        loss, n_errors, weight = span.totals.tolist()
        bound = span.evidence.lower_bound()
        return Window(span.start, span.stop, loss, n_errors, weight, bound, self.C)

    def to_record(self) -> Record:
        """Return everything as a record."""
        record = super().to_record()
        spans = [(span.start, span.stop) for span in self._ladder]
        record.arrays["spans"] = np.array(spans, np.int64).reshape(-1, 2)
        totals = [span.totals for span in self._ladder]
        record.arrays["span_totals"] = np.array(totals).reshape(-1, 3)
        put_inside(record, "ladder", [span.evidence for span in self._ladder])
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        spans = record.part("spans", (None, 2), np.int64)
        totals = record.part("span_totals", (len(spans), 3), most=np.inf)
        evidence = record.inner("ladder", list[Sums])
        self._check_problem(evidence, record)
        if len(evidence) != len(spans) or self._evidence.n_rounds >= self.block:
            raise StateFileError("windows lack their evidence, or a block has too many rows")
        parts = zip(spans.tolist(), evidence, totals, strict=True)
        self._ladder = [EvidenceSpan(start, stop, *rest) for (start, stop), *rest in parts]
