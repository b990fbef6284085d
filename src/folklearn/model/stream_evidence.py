"""Evidence about linear models of the columns of a stream, standardised once.

The learner sees columns that are standardised on line and clipped, which change with the stream:
a fixed linear model of them is no fixed linear model of the data. So what is proven here is about
the coordinates of `FixedScaler`, set by the first rows and then left alone.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import StateFileError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.evidence import Evidence
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.lower_bound import round_loss_up
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.metrics.accumulator import EvidenceSpan, add_to_ladder, join_suffixes
from folklearn.model.batch import BatchBuffer, RawBatch, SparseInput
from folklearn.scaler import SPACE, FixedScaler, Moments
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.validation import Rows

HEAD_ROWS = 2048  # that set the coordinates
_SPARSE_HEAD_ROWS = 256
_LEAST_HEAD_ROWS = 256  # whose means do not tell what single rows were
_CHUNK_ROWS = 1024  # that are added at a time, later
_WINDOW_ROWS = 64  # where windows have bounds, as `Metrics` counts them
_NO_MOMENTS = Moments(*np.zeros((3, 0)))
_SLACK = 1e-9  # by which the sum of probabilities may differ from 1

Sums = Evidence | LinearEvidence


class StreamEvidence(Serializable):
    r"""A lower bound on the loss of every linear model of the columns, kept next to a learner.

    The first 2,048 rows set means and deviations of numbers (`FixedScaler`), or fewer if they are
    let go of (`release_rows`). They and all later rows enter `Evidence`; where matrices of all
    pairs of classes are too large `LinearEvidence`, with planes at what was predicted. Rows enter
    in batches of 1,024 that end at fixed numbers: it does not matter in what portions they come.

    A class that comes late counts as if its rows had been 0 before: the softmax over fewer classes
    has the smaller loss, so that the bound is one for models of all classes that are known now.

    Guarantee: the bound is at most the total loss of every fixed linear model in these
    coordinates, its penalty counted, in floating point too (docs/theory/evidence.md).
    """

    PARAMS = ("C", "scale", "intercept", "sparse", "windows")
    COUNTERS = ("n_classes", "_n_settled", "_n_head", "_n_first_columns")
    STATE: ClassVar = {"_sums": Evidence | LinearEvidence}

    def __init__(
        self,
        *,
        C: float = 1.0,
        scale: bool = True,
        intercept: bool = True,
        sparse: bool = False,
        windows: bool = False,
    ) -> None:
        self.C = validation.positive("C", C)
        self.scale, self.intercept = bool(scale), bool(intercept)
        self.sparse, self.windows = bool(sparse), bool(windows)
        self.n_classes = 0  # known so far
        self.numeric: list[bool] = []  # of every raw column, whether it is a number
        self._n_settled = 0  # rows that do not wait any more
        self._n_head = 0  # rows that have set the coordinates
        self._n_first_columns = 0  # that they have opened
        self._scaler: FixedScaler | None = None  # None until the head is complete
        self._past = _NO_MOMENTS  # of rows that were let go of before that
        self._sums: Sums | None = None
        self._ladder: list[EvidenceSpan] = []
        self._begin_batch()

    @property
    def n_rows(self) -> int:
        """The number of rows so far."""
        return self._n_settled + self.rows.n_rows

    def _begin_batch(self) -> None:
        n, size = self._n_settled, _WINDOW_ROWS if self.windows else _CHUNK_ROWS
        n_head = _SPARSE_HEAD_ROWS if self.sparse else HEAD_ROWS
        self.rows = BatchBuffer()
        self.chunk_rows = n_head - n if self._scaler is None else size - n % size

    def settle(self) -> None:
        """Let the rows that wait enter the sums."""
        batch = self.rows.batch(self.numeric)
        assert batch is not None
        scaler = self._open_columns(batch)
        self._sums = self._add(self._size(self._sums, scaler), scaler, batch)
        if self.windows:
            self._ladder = self._extend_ladder(scaler, batch)
        self._n_settled += len(batch.weights)
        if self._scaler is None:
            self._n_head, self._n_first_columns = self._n_settled, scaler.n_open
        self._scaler, self._past = scaler, _NO_MOMENTS
        self._begin_batch()

    def release_rows(self) -> None:
        """Let go of all rows: what they prove now enters the sums.

        Of too few to set the coordinates only moments are left: no loss is negative, so that a
        bound without them holds. Windows lose last rows without a sum, and begin anew if large.
        """
        batch = self.rows.batch(self.numeric)
        if batch is not None and self._scaler is None and self.n_rows < _LEAST_HEAD_ROWS:
            self._past = self._moments(batch)
            self._n_settled += len(batch.weights)
            self._begin_batch()
        elif batch is not None:
            self.settle()
        self._ladder = [span for span in self._ladder if span.stop % _WINDOW_ROWS == 0]
        if isinstance(self._sums, Evidence):
            self._sums._release_rows()
            for i, span in enumerate(self._ladder):
                if self._sums.is_large:
                    empty = self._size(None, self._open_columns(None))
                    self._ladder[i] = replace(span, evidence=empty)
                elif isinstance(span.evidence, Evidence):
                    span.evidence._release_rows()

    def _moments(self, batch: RawBatch) -> Moments:
        if isinstance(batch.X, SparseInput):
            X = batch.X.numbers
        else:
            X = batch.resize(len(self.numeric), 0, self.numeric).X
        width = X.shape[1]
        past = (np.pad(part[:width], (0, max(0, width - len(part)))) for part in self._past)
        return Moments(*past) + Moments.of(X)

    def _open_columns(self, batch: RawBatch | None) -> FixedScaler:
        """Return the scaler with the columns opened that these rows are the first to have."""
        scaler = self._scaler or FixedScaler(scale=self.scale, intercept=self.intercept)
        moments = self._past if batch is None else self._moments(batch)
        if batch is None and not len(moments.counts):
            return scaler
        numeric = [True] * len(moments.counts) if self.sparse else self.numeric
        return scaler.opened(moments, numeric[: len(moments.counts)])

    def _transform(self, scaler: FixedScaler, batch: RawBatch) -> tuple[Rows, Array]:
        """Return rows in these coordinates, and what was predicted for them."""
        X, Y, weights, P = batch.resize(len(self.numeric), self._K, self.numeric)
        if isinstance(X, SparseInput):
            numbers = scaler.transform(X.numbers)[:, int(self.intercept) :]
            length, constant = (1.0 if is_set else None for is_set in (self.scale, self.intercept))
            Z: Any = X.scale_cells(numbers, length, constant, (len(self.numeric) + 1) * SPACE)
        else:
            Z = scaler.transform(X)
        norms = validation.norms(Z)  # too long for the arithmetic: left out, no loss is negative
        rows = Rows(Z, np.full(len(norms), -1), Y, weights)
        usable = norms <= validation.MAX_NORM
        return (rows, P) if usable.all() else (rows.of(usable), P[usable])

    @property
    def _K(self) -> int:
        return max(2, self.n_classes)

    @property
    def is_wide(self) -> bool:
        """Whether rows need their predictions: there is too much for sums of second order."""
        d = len(self.numeric) + self.intercept
        return self.sparse or select_backend(d, self._K) != PAIRS

    def _size(self, sums: Sums | None, scaler: FixedScaler) -> Sums:
        d, K = scaler.n_columns, self._K
        if self.sparse:
            d = (len(self.numeric) + 1) * SPACE
        if sums is None:
            kind = LinearEvidence if self.is_wide else Evidence
            constant = 0 if self.intercept else None
            return kind(n_features=d, n_classes=K, C=self.C, constant=constant)
        if isinstance(sums, Evidence) and self.is_wide:
            sums = LinearEvidence.tangent_to(sums)
        if (sums.n_features, sums.n_classes) == (d, K):
            return sums
        return sums.grown(n_features=d, n_classes=K)

    def _add(self, sums: Sums, scaler: FixedScaler, batch: RawBatch) -> Sums:
        rows, P = self._transform(scaler, batch)
        if isinstance(sums, Evidence):
            sums._add(rows)
        else:
            sums._add_balanced(rows, _distributions(P, self._K))
        return sums

    def _extend_ladder(self, scaler: FixedScaler, batch: RawBatch) -> list[EvidenceSpan]:
        ladder = [
            replace(span, evidence=self._size(span.evidence, scaler)) for span in self._ladder
        ]
        n, last = self._n_settled, self._n_settled + len(batch.weights)
        # Rows that were let go of without a sum of their own leave a place for them.
        for start in range(ladder[-1].stop if ladder else 0, last, _WINDOW_ROWS):
            stop = min(start + _WINDOW_ROWS, last)
            rows = batch.take(slice(max(0, start - n), max(0, stop - n)))
            span = EvidenceSpan(start, stop, self._add(self._size(None, scaler), scaler, rows))
            if stop - start == _WINDOW_ROWS:
                add_to_ladder(ladder, span)
            else:
                ladder.append(span)
        return ladder

    def suffixes(self, first: int = 0) -> dict[int, Sums]:
        """Return the evidence of all rows since certain ones, none before `first`, by number."""
        waiting = self.rows.batch(self.numeric)
        if self.n_classes < 2 or (waiting is None and not self._ladder):
            return {}
        scaler, ladder = self._open_columns(waiting), self._ladder
        if waiting is not None:
            ladder = self._extend_ladder(scaler, waiting)
        spans = join_suffixes([span for span in ladder if span.start >= first])
        return {span.start: span.evidence for span in spans}

    def certificate(self, loss: float, n_rounds: int, columns: str) -> Certificate | None:
        """Return what is proven next to a total loss; None before two classes.

        `columns` says what models are linear in, with a place for the rows that scaled them.
        """
        waiting = self.rows.batch(self.numeric)
        if self.n_classes < 2 or not self.n_rows:
            return None
        scaler = self._open_columns(waiting)
        sums = self._size(self._sums, scaler)
        if waiting is not None:
            sums = self._add(sums * 1.0, scaler, waiting)  # a copy
        by = f"the first {self._n_head:,} rows" if self._n_head else "these rows"
        if self._scaler is not None and scaler.n_open > self._n_first_columns:
            by += ", and those that came later by the rows that brought them"
        certificate = sums.certificate(loss)
        bound = round_loss_up(loss, n_rounds) - sums.lower_bound()
        models = f"the columns ({columns.format(by=by)})"
        return replace(certificate, regret_bound=bound, n_rounds=n_rounds, models=models)

    @property
    def n_bytes(self) -> int:
        sums = [self._sums, *(span.evidence for span in self._ladder)]
        return self.rows.n_bytes + sum(int(each.n_bytes) for each in sums if each is not None)

    def to_record(self) -> Record:
        record = super().to_record()
        record.arrays["numeric"] = np.array(self.numeric, bool)
        waiting = self.rows.batch(self.numeric)
        if waiting is not None:
            record.arrays.update(waiting.arrays("waiting."))
        record.arrays["past"] = np.array(self._past)
        if self._scaler is not None:
            record.arrays["means"] = self._scaler.means.copy()
            record.arrays["deviations"] = self._scaler.deviations.copy()
        if self._ladder:
            spans = [(span.start, span.stop) for span in self._ladder]
            record.arrays["spans"] = np.array(spans, np.int64)
            put_inside(record, "ladder", [span.evidence for span in self._ladder])
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self.numeric = record.part("numeric", (None,), np.bool_).tolist()
        if "means" in record.arrays:
            self._scaler = scaler = FixedScaler(scale=self.scale, intercept=self.intercept)
            scaler.means = record.part("means", (None,))
            scaler.deviations = record.part("deviations", (len(scaler.means),))
        counts, means, squares = record.part("past", (3, None))
        is_none = min(counts.min(initial=0.0), squares.min(initial=0.0)) < 0.0
        if is_none or len(counts) > len(self.numeric):
            raise StateFileError("the moments of evidence are none")
        self._past = Moments(counts, means, squares)
        self._begin_batch()
        sizes = {"n_features": len(self.numeric), "n_classes": self.n_classes}
        waiting = RawBatch.of_record(record, "waiting.", sparse=self.sparse, **sizes)
        if waiting is not None:
            self.rows.add(waiting)
        if self.rows.n_rows >= self.chunk_rows:
            raise StateFileError("the rows of evidence do not fit its counts")
        if "ladder" in record.config:
            spans = record.part("spans", (None, 2), np.int64).tolist()
            evidence = record.inner("ladder", list[Sums])
            for (start, stop), sums in zip(spans, evidence, strict=True):
                self._ladder.append(EvidenceSpan(start, stop, sums))


def _distributions(P: Array, n_classes: int) -> Array:
    """Return predictions with those made distributions that are none: no class was known."""
    if P.shape[1] < n_classes:
        P = np.pad(P, ((0, 0), (0, n_classes - P.shape[1])))
    missing = np.abs(P.sum(axis=1) - 1.0) > _SLACK
    return np.where(missing[:, None], 1.0 / n_classes, P)
