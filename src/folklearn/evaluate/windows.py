"""Lower bounds for linear models on the last 64, 128, 256, ... rounds of a stream."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add, attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.evidence import LowerBound
from folklearn.kernels.blas import device_named
from folklearn.learners.backends import PAIRS, select_backend
from folklearn.learners.leader import Leader
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.metrics.scores import checked_row, checked_rows, label_mass
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRows
from folklearn.validation import Rows

_SIZES = ("n_features", "n_classes", "B")


@dataclass(frozen=True)
class Window:
    """The last rounds of a stream, from `start` to before `stop`, counted from 0.

    Attributes
    ----------
    loss, n_errors, weight : totals over the window; the loss is weighted.
    lower_bound : no linear model of row norm at most B has a total loss below it on these rounds.
    B : the row norm that the statement covers.
    """

    start: int
    stop: int
    loss: float
    n_errors: float
    weight: float
    lower_bound: float
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
        """The number of rounds."""
        return self.stop - self.start

    def __add__(self, later: "EvidenceSpan") -> "EvidenceSpan":
        """Return the span of both, which are neighbours."""
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


class Windows(Serializable):
    r"""Losses, errors and lower bounds of the last 64, 128, 256, ... rounds of any model.

    Use it to see whether a model has become beatable *lately*: if the predictions lose more than
    the lower bound allows in a short window and not in a long one, the stream has changed and the
    model has not followed.

    Evidence is kept for spans of ``block``, 2 ``block``, 4 ``block``, ... rounds, at most two of
    each length; of three the older two become one. So the last :math:`2^j` rounds are a sum of
    :math:`O(\log T)` spans, nothing is ever subtracted, and a window covers at least what was
    asked for and less than twice that. A block is expanded at the model of a reference learner:
    the leader of the class, or `SparseSgd` where that does not fit.

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

    PARAMS = ("n_features", "n_classes", "B", "R", "block")

    def __init__(
        self, *, n_features: int, n_classes: int, B: float = 10.0, R: float = 1.0, block: int = 64
    ) -> None:
        self._reference = make_reference_learner(
            n_features=n_features, n_classes=n_classes, B=B, R=R
        )
        self.n_features, self.n_classes = self._reference.n_features, self._reference.n_classes
        self.B, self.R = self._reference.B, self._reference.R
        self.block = validation.count("block", block, 1)
        self._ladder: list[EvidenceSpan] = []
        # The rounds of a block that is not full yet: rows, and loss, error and weight (3, T).
        self._waiting: list[tuple[Rows, Array]] = []
        self._n_waiting = 0

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        return self._n_in_ladder + self._n_waiting

    @property
    def _n_in_ladder(self) -> int:
        return self._ladder[-1].stop if self._ladder else 0

    def observe(self, x: Any, y: Any, p: ArrayLike, *, weight: float = 1.0) -> float:
        """Observe one round; return the log loss -ln p[y] of the prediction, unweighted."""
        P = checked_row(p, self.n_classes)[None]
        if validation.is_sparse_context(x):
            indices, values = validation.sparse_context(x, self.n_features)
            X: Any = SparseRows(np.array([0, len(indices)]), indices, values, self.n_features)
        else:
            X = validation.numbers("x", x)[None]
        return float(self.observe_many(X, np.asarray(y)[None], P, weight=[weight])[0])

    def observe_many(
        self, X: Any, y: ArrayLike, P: ArrayLike, *, weight: ArrayLike | None = None
    ) -> Array:
        """Observe rounds X (T, d), y (T,) or (T, K), P (T, K); return their losses (T,)."""
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        rows = Rows.checked(X, y, weight, **sizes)
        P = checked_rows(P, len(rows.X), self.n_classes)
        losses = log_losses(P, rows.labels, rows.soft)
        errors = 1.0 - label_mass(P, rows.labels, rows.soft)
        scores, start = np.array([losses, errors, rows.weights]), 0
        while start < len(losses):
            stop = min(start + self.block - self._n_waiting, len(losses))
            self._waiting.append((rows.part(start, stop), scores[:, start:stop]))
            self._n_waiting += stop - start
            if self._n_waiting == self.block:
                span = self._waiting_span()
                for batch in self._waiting_rows():
                    self._reference._run_all(batch, None)
                add_to_ladder(self._ladder, span)
                self._waiting, self._n_waiting = [], 0
            start = stop
        return losses

    def _waiting_span(self) -> EvidenceSpan:
        """Return the evidence of the rounds that wait, expanded at the reference learner."""
        losses, errors, weights = np.hstack([scores for _, scores in self._waiting])
        counted = weights > 0.0  # a round of weight 0 does not count, even if its loss is infinite
        totals = np.array([weights[counted] @ losses[counted], errors.sum(), weights.sum()])
        evidence = functools.reduce(add, map(self._reference.expanded, self._waiting_rows()))
        start = self._n_in_ladder
        return EvidenceSpan(start, start + self._n_waiting, evidence, totals)

    def _waiting_rows(self) -> list[Rows]:
        return Rows.joined([rows for rows, _ in self._waiting])

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
        newest = [self._waiting_span()] if self._n_waiting else []
        return join_suffixes([*self._ladder, *newest])

    def _window(self, span: EvidenceSpan) -> Window:
        loss, n_errors, weight = span.totals.tolist()
        bound = span.evidence.lower_bound()
        return Window(span.start, span.stop, loss, n_errors, weight, bound, self.B)

    @property
    def n_bytes(self) -> int:
        """About how much memory the evidence, the reference learner and the rows take."""
        sums: int = sum(span.evidence.n_bytes for span in self._ladder)
        waiting = [rows.arrays().values() for rows, _ in self._waiting]
        rows: int = sum(array.nbytes for arrays in waiting for array in arrays)
        return self._reference.n_bytes + sums + rows

    def to_record(self) -> Record:
        """Return everything as a record, rows that wait included."""
        record = super().to_record()
        spans = [(span.start, span.stop) for span in self._ladder]
        record.arrays["spans"] = np.array(spans, np.int64).reshape(-1, 2)
        record.arrays["totals"] = np.array([span.totals for span in self._ladder]).reshape(-1, 3)
        scores = np.hstack([np.zeros((3, 0)), *(scores for _, scores in self._waiting)])
        batches, start = self._waiting_rows(), 0
        record.config["n_waiting"] = len(batches)
        for i, rows in enumerate(batches):
            record.arrays[f"waiting{i}.scores"] = scores[:, start : start + len(rows.X)]
            record.arrays.update(rows.arrays(f"waiting{i}."))
            start += len(rows.X)
        put_inside(record, "reference", self._reference)
        put_inside(record, "evidence", [span.evidence for span in self._ladder])
        return record

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct with a small reference learner: `_restore` takes that of the file."""
        windows = cls(**words | {"n_features": 1, "n_classes": 2})
        windows.n_features, windows.n_classes = validation.sizes(words)
        return windows

    def _restore(self, record: Record) -> None:
        spans = record.part("spans", (None, 2), np.int64)
        totals = record.part("totals", (len(spans), 3), most=np.inf)
        self._reference = record.inner("reference", Leader, SparseSgd)
        evidence = record.inner("evidence")
        if not all(isinstance(sums, LowerBound) for sums in evidence):
            raise StateFileError("windows have something else for evidence")
        sizes = {attrgetter(*_SIZES)(child) for child in (self._reference, *evidence)}
        if len(evidence) != len(spans) or sizes != {attrgetter(*_SIZES)(self)}:
            raise StateFileError("windows lack their evidence")
        parts = zip(spans.tolist(), evidence, totals, strict=True)
        self._ladder = [EvidenceSpan(start, stop, *rest) for (start, stop), *rest in parts]
        sizes_of_rows = {"n_features": self.n_features, "n_classes": self.n_classes}
        for i in range(record.count("n_waiting")):
            scores = record.part(f"waiting{i}.scores", (3, None), most=np.inf)
            rows = Rows.of_arrays(record.arrays, f"waiting{i}.", **sizes_of_rows)
            if len(rows.X) != scores.shape[1]:
                raise StateFileError("windows have other rows than scores")
            self._waiting.append((rows, scores))
            self._n_waiting += scores.shape[1]


def make_reference_learner(
    *, n_features: int, n_classes: int, B: float, R: float, device: str | None = None
) -> Leader | SparseSgd:
    """Return a learner at whose predictions rows are expanded, as tight as the size allows.

    Its evidence is about models of row norm at most B. `_learn` and `_run_all` take any weight.
    """
    B = validation.positive("B", B)
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    if select_backend(d, K, device_named(device)) == PAIRS:
        most = validation.MAX_WEIGHT
        return Leader(
            n_features=d, n_classes=K, ridges=(), B=B, R=R, max_weight=most, device=device
        )
    return SparseSgd(n_features=d, n_classes=K, B=B, R=R)
