"""Lower bounds for linear models on the last 64, 128, 256, ... rounds of a stream."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add, attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.evidence import LowerBound
from folklearn.kernels.blas import device_named
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.learners.leader import Leader
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.metrics.scores import check_probabilities, label_mass
from folklearn.progress import Progress, Report, report_progress
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRow, SparseRows
from folklearn.validation import Rows


@dataclass(frozen=True)
class Window:
    """The last rounds of a stream, from `start` to before `stop`, counted from 0."""

    start: int
    stop: int
    loss: float  # weighted; totals over the window
    n_errors: float
    weight: float
    lower_bound: float  # no linear model of row norm at most B has a total loss below it
    B: float

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return self.stop - self.start

    @property
    def could_gain(self) -> float:
        """The most that any linear model of the class could have gained, a round, in nats."""
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
    """Observes rounds of any model, and expands their rows at the predictions of its own learner.

    That learner is as tight as the size allows, and its evidence is about models of row norm at
    most B. Its `_learn` and `_run` take any weight.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "B", "R")
    STATE: ClassVar = {"_reference": Leader | SparseSgd}  # by the memory of the machine it began on

    def __init__(
        self, n_features: int, n_classes: int, B: float, R: float, device: str | None = None
    ) -> None:
        B = validation.positive("B", B)
        d = self.n_features = validation.count("n_features", n_features, 1)
        K = self.n_classes = validation.count("n_classes", n_classes, 2)
        self._reference: Leader | SparseSgd
        if select_backend(d, K, device_named(device)) == PAIRS:
            most = validation.MAX_WEIGHT
            self._reference = Leader(
                **self._sizes, ridges=(), B=B, R=R, max_weight=most, device=device
            )
        else:
            self._reference = SparseSgd(n_features=d, n_classes=K, B=B, R=R)
        self.B, self.R = self._reference.B, self._reference.R

    @property
    def _sizes(self) -> dict[str, int]:
        return {"n_features": self.n_features, "n_classes": self.n_classes}

    def observe(self, x: Any, y: Any, p: ArrayLike, weight: float = 1.0) -> float:
        """Observe one round; return the log loss -ln p[y] of the prediction, unweighted.

        y is a class or a soft label, p (K,) the prediction. Everything is checked before
        anything changes.
        """
        x = validation.usable(self._reference._own_context(x))
        p = check_probabilities(p, self.n_classes)
        label, soft = validation.label(y, self.n_classes)
        weights = np.array([validation.weight(weight)])
        if isinstance(x, SparseRow):
            X: Any = SparseRows(np.array([0, len(x.indices)]), *x, self.n_features)
        else:
            X = x[None]
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
        """Construct with a small learner, which is replaced by that of the file."""
        observer = cls(**words | {"n_features": 1, "n_classes": 2})
        observer.n_features, observer.n_classes = validation.sizes(words)
        return observer

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        params_of = attrgetter(*RoundObserver.PARAMS)
        if params_of(self._reference) != params_of(self):
            raise StateFileError(f"a {record.kind} state holds the learner of another problem")


class Windows(RoundObserver):
    r"""Losses, errors and lower bounds of the last 64, 128, 256, ... rounds of any model.

    Use it to see whether a model has become beatable *lately*: if the predictions lose more than
    the lower bound allows in a short window and not in a long one, the stream has changed and the
    model has not followed.

    Evidence is kept for spans of ``block``, 2 ``block``, 4 ``block``, ... rounds, at most two of
    each length; of three the older two become one. A window is a sum of :math:`O(\log T)` of them
    and covers at least what was asked for and less than twice that. A block is expanded at the
    model of a reference learner, `Leader`, or `SparseSgd` where that does not fit.
    Time as that learner; memory :math:`O(\log T)` sums of evidence.

    Guarantee: every lower bound is a theorem about the rounds of its window
    (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    B : largest row norm of the models that are bounded, positive.
    R : typical norm of x, positive.
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
        self, *, n_features: int, n_classes: int, B: float = 10.0, R: float = 1.0, block: int = 64
    ) -> None:
        super().__init__(n_features, n_classes, B, R)
        self.block = validation.count("block", block, 1)
        self._ladder: list[EvidenceSpan] = []
        self._start_block()

    def _start_block(self) -> None:
        # The rounds of a block that is not full yet: rows, and total loss, errors and weight.
        self._waiting: list[Rows] = []
        self._totals: Array = np.zeros(3)

    @property
    def _n_waiting(self) -> int:
        return sum(len(rows.X) for rows in self._waiting)

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        return self._n_waiting + (self._ladder[-1].stop if self._ladder else 0)

    def _observe(self, rows: Rows, P: Array, report: Report | None) -> Array:
        losses = log_losses(P, rows.labels, rows.soft)
        errors = 1.0 - label_mass(P, rows.labels, rows.soft)
        # A round of weight 0 does not count, even if its loss is infinite.
        weighted = np.zeros_like(losses)
        np.multiply(rows.weights, losses, out=weighted, where=rows.weights > 0.0)
        scores, start = np.array([weighted, errors, rows.weights]), 0
        while start < len(losses):
            stop = min(start + self.block - self._n_waiting, len(losses))
            self._waiting.append(rows.part(start, stop))
            self._totals += scores[:, start:stop].sum(axis=1)
            if self._n_waiting == self.block:
                add_to_ladder(self._ladder, self._waiting_span())
                for batch in Rows.join(self._waiting):
                    self._reference._run(batch, None)
                self._start_block()
            start = stop
            if report is not None:
                report(start)
        return losses

    def _waiting_span(self) -> EvidenceSpan:
        batches = Rows.join(self._waiting)
        evidence = functools.reduce(add, map(self._reference.evidence_of, batches))
        start = self.n_rounds - self._n_waiting
        return EvidenceSpan(start, self.n_rounds, evidence, self._totals)

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
        newest = [self._waiting_span()] if self._waiting else []
        return join_suffixes([*self._ladder, *newest])

    def _window(self, span: EvidenceSpan) -> Window:
        loss, n_errors, weight = span.totals.tolist()
        bound = span.evidence.lower_bound()
        return Window(span.start, span.stop, loss, n_errors, weight, bound, self.B)

    def to_record(self) -> Record:
        """Return everything as a record, rows that wait included."""
        record = super().to_record()
        spans = [(span.start, span.stop) for span in self._ladder]
        record.arrays["spans"] = np.array(spans, np.int64).reshape(-1, 2)
        totals = [span.totals for span in self._ladder]
        record.arrays["span_totals"] = np.array(totals).reshape(-1, 3)
        batches = Rows.join(self._waiting)
        record.config["n_waiting"] = len(batches)
        for i, rows in enumerate(batches):
            record.arrays.update(rows.arrays(f"waiting{i}."))
        put_inside(record, "evidence", [span.evidence for span in self._ladder])
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        spans = record.part("spans", (None, 2), np.int64)
        totals = record.part("span_totals", (len(spans), 3), most=np.inf)
        evidence = record.inner("evidence", list[LowerBound])
        sizes_of = attrgetter("n_features", "n_classes", "B")
        if list(map(sizes_of, evidence)) != [sizes_of(self)] * len(spans):
            raise StateFileError("windows lack their evidence")
        parts = zip(spans.tolist(), evidence, totals, strict=True)
        self._ladder = [EvidenceSpan(start, stop, *rest) for (start, stop), *rest in parts]
        for i in range(record.count("n_waiting")):
            self._waiting.append(Rows.of_arrays(record.arrays, f"waiting{i}.", **self._sizes))
        if self._n_waiting >= self.block:
            raise StateFileError("windows have more rows that wait than a block")
