"""Evidence about linear models of the columns of a stream, standardised once.

The learner sees columns that are standardised on line and clipped, which change with the stream:
a fixed linear model of them is no fixed linear model of the data. So what is proven here is about
the coordinates of `FixedScaler`, set by the first rows and then left alone.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from folklearn import validation
from folklearn.arrays import Array, logit_losses
from folklearn.errors import StateFileError
from folklearn.evaluate.best_linear import refine
from folklearn.evaluate.windows import EvidenceSpan, add_to_ladder, join_suffixes
from folklearn.evidence.certificate import Certificate, round_down
from folklearn.evidence.evidence import Evidence, round_loss_up
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.passes import LocalPasses
from folklearn.kernels.lower_bound import project_into_class
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.model.batch import BatchBuffer, RawBatch, SparseInput
from folklearn.scaler import SPACE, FixedScaler, Moments
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.validation import Rows

HEAD_ROWS = 2048  # that set the coordinates, and are kept as rows
_SPARSE_HEAD_ROWS = 256
_CHUNK_ROWS = 1024  # that are added at a time, later
_WINDOW_ROWS = 64  # where windows have bounds, as `Windows` counts them
_TOLERANCE, _MOST_PASSES = 1e-4, 12  # over the head, to expand it where that proves most
_LEAST_UNIT = 1e-9  # of rows in a file
_SLACK = 1e-9  # by which the sum of probabilities may differ from 1
DEFAULT_B = 10.0  # norm of weights for rows of norm about 1

Sums = Evidence | LinearEvidence
Line = Callable[[], tuple[Array, Array]]  # weights (K, d) of raw values and constants (K,)


class StreamEvidence(Serializable):
    r"""A lower bound on the loss of every linear model of the columns, kept next to a learner.

    The first 2,048 rows are kept as they came. They set means and deviations of numbers
    (`FixedScaler`), and are expanded anew whenever a bound is asked for. Later rows enter the sums
    of `Evidence` in batches of 1,024, expanded at the learner's own model; where matrices of all
    pairs of classes are too large those of `LinearEvidence`, and for sparse rows these at what was
    predicted.
    Blocks end at fixed numbers of rows, so that it does not matter in what portions rows come.

    A class that comes late counts as if its rows had been 0 before: the softmax over fewer classes
    has the smaller loss, so that the bound is one for models of all classes that are known now.

    Guarantee: `floor` is at most the total loss of every fixed linear model of norm at most B for
    each class, in these coordinates, in floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    B : largest norm of the weights of a class, per standard deviation; None for 10 over the norm
        of a typical row, so that logits reach 10.
    scale, intercept, sparse : as for the model.
    windows : keep bounds for the last 64, 128, 256, ... rows too.
    """

    PARAMS = ("B", "scale", "intercept", "sparse", "windows")
    COUNTERS = ("n_classes", "_n_settled", "_n_first_columns")
    STATE: ClassVar = {"_sums": Evidence | LinearEvidence}

    def __init__(
        self,
        *,
        B: float | None = None,
        scale: bool = True,
        intercept: bool = True,
        sparse: bool = False,
        windows: bool = False,
    ) -> None:
        self.B = None if B is None else validation.positive("B", B)
        self.scale, self.intercept = bool(scale), bool(intercept)
        self.sparse, self.windows = bool(sparse), bool(windows)
        self.n_classes = 0  # known so far
        self.numeric: list[bool] = []  # of every raw column, whether it is a number
        self._n_settled = 0  # rows in the kept ones and in the sums
        self._n_first_columns = 0  # that the head has opened
        self._scaler: FixedScaler | None = None  # None until the head is complete
        self._kept: RawBatch | None = None  # the head
        self._sums: Sums | None = None
        self._ladder: list[EvidenceSpan] = []
        self.rows = BatchBuffer()
        self._n_head = _SPARSE_HEAD_ROWS if self.sparse else HEAD_ROWS
        self.chunk_rows = self._n_head

    @property
    def n_rows(self) -> int:
        """The number of rows so far."""
        return self._n_settled + self.rows.n_rows

    def _waiting(self) -> RawBatch | None:
        return self.rows.batch(self.numeric)

    def settle(self, line: Line) -> None:
        """Let the rows that wait enter the sums, once there are `chunk_rows`."""
        batch = self._waiting()
        assert batch is not None
        self.rows = BatchBuffer()
        scaler = self._open_columns(batch)
        if self._scaler is None:
            self._kept, self._n_first_columns = batch, scaler.n_open
            self.chunk_rows = _WINDOW_ROWS if self.windows else _CHUNK_ROWS
            if self.windows:
                self._ladder, _ = self._head_spans(scaler, batch, line)
        else:
            sums = self._sized(self._sums, scaler)
            if isinstance(sums, LinearEvidence) and self._kept is not None:
                # To expand planes anew gains next to nothing.
                sums, self._kept = _sum(sums, self._evidence_of(scaler, self._kept, line)), None
            added = self._evidence_of(scaler, batch, line)
            self._sums = _sum(sums, added)
            if self.windows:
                self._ladder = self._sized_ladder(scaler)
                add_to_ladder(self._ladder, self._span(self._n_settled, batch, added))
        self._scaler = scaler
        self._n_settled += len(batch.weights)

    # Coordinates.

    @property
    def _switches(self) -> dict[str, bool]:
        return {"scale": self.scale, "intercept": self.intercept}

    @property
    def _K(self) -> int:
        return max(2, self.n_classes)

    def _open_columns(self, batch: RawBatch | None) -> FixedScaler:
        """Return the scaler with the columns opened that these rows are the first to have."""
        scaler = self._scaler or FixedScaler(**self._switches)
        if batch is None:
            return scaler
        X = batch.X
        if not isinstance(X, SparseInput):
            X = batch.resize(len(self.numeric), 0, self.numeric).X
            return scaler.opened(Moments.of(X), self.numeric)
        opened = scaler.opened(Moments.of(X.numbers), [True] * X.numbers.shape[1])
        # Every text, and every hashed column, has the length 1.
        opened.mean_square = scaler.mean_square or float(len(self.numeric) + self.intercept)
        return opened

    def _transformed(self, scaler: FixedScaler, batch: RawBatch) -> tuple[Rows, Array]:
        """Return rows in these coordinates and what was predicted for them.

        Rows that are too long for the arithmetic are left out: no loss is negative.
        """
        X, Y, weights, P = batch.resize(len(self.numeric), self._K, self.numeric)
        if isinstance(X, SparseInput):
            numbers = scaler.transform(X.numbers)[:, int(self.intercept) :]
            length, constant = (
                scaler.unit if is_there else None for is_there in (self.scale, self.intercept)
            )
            Z: Any = X.scale_cells(numbers, length, constant, (len(self.numeric) + 1) * SPACE)
        else:
            Z = scaler.transform(X)
        norms = validation.norms(Z)
        rows = Rows(Z, norms, np.full(len(norms), -1), Y, weights)
        usable = norms <= validation.MAX_NORM
        return (rows, P) if usable.all() else (rows.of(usable), P[usable])

    # Sums.

    def _norm(self, scaler: FixedScaler) -> float:
        """Return B for rows in these coordinates, which have a norm of about 1."""
        return DEFAULT_B if self.B is None else self.B / scaler.unit

    def _sized(self, sums: Sums | None, scaler: FixedScaler) -> Sums:
        """Return sums for the columns and classes that there are now."""
        d, K = scaler.n_columns, self._K
        if self.sparse:
            d = (len(self.numeric) + 1) * SPACE
        is_wide = self.sparse or select_backend(d, K) != PAIRS
        if sums is None:
            kind = LinearEvidence if is_wide else Evidence
            return kind(n_features=d, n_classes=K, B=self._norm(scaler))
        if isinstance(sums, Evidence) and is_wide:
            sums = LinearEvidence.tangent_to(sums)
        if (sums.n_features, sums.n_classes) == (d, K):
            return sums
        return sums.grown(n_features=d, n_classes=K)

    def _evidence_of(
        self, scaler: FixedScaler, batch: RawBatch, line: Line, at: Array | None = None
    ) -> Sums:
        """Return the evidence of rows alone, expanded at a model, by default the learner's."""
        sums = self._sized(None, scaler)
        rows, P = self._transformed(scaler, batch)
        if self.sparse:
            assert isinstance(sums, LinearEvidence)
            sums._add_planes(rows, _distributions(P))
        else:
            sums._add(rows, self._point(scaler, line) if at is None else at)
        return sums

    def _point(self, scaler: FixedScaler, line: Line) -> Array:
        """Return a model (K, columns) of the class near the learner's own."""
        W = np.zeros((self._K, scaler.n_columns))
        learned = np.nan_to_num(scaler.model(*line()), posinf=0.0, neginf=0.0)
        W[: len(learned)] = learned - learned.mean(axis=0)
        return project_into_class(W, self._norm(scaler))

    def _of_head(self, scaler: FixedScaler, batch: RawBatch, line: Line, sums: Sums) -> Sums:
        """Return sums and the head, expanded where that proves most."""
        if not isinstance(sums, Evidence):
            return _sum(sums, self._evidence_of(scaler, batch, line))
        rows, _ = self._transformed(scaler, batch)
        at, B = self._point(scaler, line), self._norm(scaler)
        losses = logit_losses(rows.X @ at.T, rows.labels, rows.soft)
        if not rows.weights @ losses < float(rows.weights.sum()) * math.log(self._K):
            at = np.zeros_like(at)  # a learner that is worse than no model at all
        if sums.n_rounds:
            return sums._with(rows, at, B=B)
        refined = refine(
            LocalPasses(lambda: [rows]), n_features=scaler.n_columns, n_classes=self._K, B=B,
            at=at, tol=_TOLERANCE, most_passes=_MOST_PASSES,
        ).evidence  # fmt: skip
        assert isinstance(refined, Evidence)
        return refined

    # Windows.

    def _span(self, start: int, batch: RawBatch, evidence: Sums) -> EvidenceSpan:
        return EvidenceSpan(start, start + len(batch.weights), evidence)

    def _sized_ladder(self, scaler: FixedScaler) -> list[EvidenceSpan]:
        """Return the ladder with evidence of the sizes that there are now."""
        return [replace(span, evidence=self._sized(span.evidence, scaler)) for span in self._ladder]

    def _head_spans(
        self, scaler: FixedScaler, batch: RawBatch, line: Line
    ) -> tuple[list[EvidenceSpan], list[EvidenceSpan]]:
        """Return the ladder of the head, and the span that is not full yet, if any."""
        whole = self._of_head(scaler, batch, line, self._sized(None, scaler))
        at = whole.minimise().W if isinstance(whole, Evidence) else None
        ladder: list[EvidenceSpan] = []
        for start in range(0, len(batch.weights), _WINDOW_ROWS):
            chunk = batch.take(slice(start, start + _WINDOW_ROWS))
            span = self._span(start, chunk, self._evidence_of(scaler, chunk, line, at))
            if len(chunk.weights) < _WINDOW_ROWS:
                return ladder, [span]
            add_to_ladder(ladder, span)
        return ladder, []

    def suffixes(self, line: Line) -> dict[int, Sums]:
        """Return the evidence of all rows since certain ones, by the number of the first."""
        waiting = self._waiting()
        if self.n_classes < 2 or (waiting is None and not self._ladder):
            return {}
        scaler = self._open_columns(waiting)
        spans = self._sized_ladder(scaler)
        if waiting is not None and self._scaler is None:
            ladder, newest = self._head_spans(scaler, waiting, line)
            spans = [*ladder, *newest]
        elif waiting is not None:
            evidence = self._evidence_of(scaler, waiting, line)
            spans.append(self._span(self._n_settled, waiting, evidence))
        return {span.start: span.evidence for span in join_suffixes(spans)}

    # What is proven.

    def certificate(
        self,
        loss: float,
        n_rounds: int,
        line: Line,
        columns: str,
        *,
        predictor: tuple[Array, Array] | None = None,
        B: float | None = None,
    ) -> Certificate | None:
        """Return what is proven next to a total loss; None before two classes.

        It is about the class, or a smaller B. `columns` says what models are linear in, with a
        place for the rows that set the coordinates; `predictor` is the model that predicts now:
        weights (K, d) of raw values and constants (K,).
        """
        waiting, head = self._waiting(), self._kept
        if self.n_classes < 2 or (waiting is None and self._scaler is None):
            return None
        scaler = self._open_columns(waiting)
        covered = self._norm(scaler)
        asked = covered if B is None else validation.positive("B", B) / scaler.unit
        norm = asked * scaler.unit
        if asked > covered * (1.0 + 1e-9):
            kept = round_down(covered * scaler.unit)
            return Certificate(
                loss, math.inf, norm, n_rounds, valid=False,
                reason=f"bounds are kept for weights of norm at most {kept} per standard "
                f"deviation, not {norm:g}: make the model with B={norm:g}",
            )  # fmt: skip
        sums = self._sized(self._sums, scaler)
        if self._scaler is None:
            head, waiting = waiting, None
        if waiting is not None:
            sums = _sum(sums, self._evidence_of(scaler, waiting, line))
        if head is not None:
            sums = self._of_head(scaler, head, line, sums)
        least = sums.lower_bound(B=min(asked, covered))
        by = "these rows" if self._scaler is None else f"the first {self._n_head:,} rows"
        if self._scaler is not None and scaler.n_open > self._n_first_columns:
            by += ", and those that came later by the rows that brought them"
        models, length = class_in_words(columns.format(by=by), norm, self.intercept), math.nan
        if predictor is not None:  # the norm of its largest row, centred, in the unit of B
            W = scaler.model(*predictor) * scaler.unit
            length = validation.longest_row(W - W.mean(axis=0))
        bound = round_loss_up(loss, n_rounds) - least
        return Certificate(loss, bound, norm, n_rounds, models=models, norm=length)

    def norm(self) -> float:
        """Return B per standard deviation."""
        scaler = self._open_columns(self._waiting())
        return self._norm(scaler) * scaler.unit

    # How it is kept.

    @property
    def n_bytes(self) -> int:
        """About how much memory the sums and the rows that are kept take."""
        n_bytes = self.rows.n_bytes
        if self._kept is not None:
            n_bytes += sum(array.nbytes for array in self._kept.arrays().values())
        sums = [self._sums, *(span.evidence for span in self._ladder)]
        return n_bytes + sum(int(evidence.n_bytes) for evidence in sums if evidence is not None)

    def to_record(self) -> Record:
        """Return the full state as a record."""
        record = super().to_record()
        record.arrays["numeric"] = np.array(self.numeric, bool)
        for name, batch in (("kept", self._kept), ("waiting", self._waiting())):
            if batch is not None:
                record.arrays.update(batch.arrays(f"{name}."))
        if self._scaler is not None:
            record.config["mean_square"] = self._scaler.mean_square
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
            self._scaler = scaler = FixedScaler(**self._switches)
            scaler.mean_square = validation.fraction(
                "mean_square", record.word("mean_square"), 1.0 / _LEAST_UNIT**2
            )
            scaler.means = record.part("means", (None,))
            scaler.deviations = record.part("deviations", (len(scaler.means),))
            self.chunk_rows = _WINDOW_ROWS if self.windows else _CHUNK_ROWS
        sizes = {"n_features": len(self.numeric), "n_classes": self.n_classes}
        self._kept = RawBatch.of_record(record, "kept.", sparse=self.sparse, **sizes)
        waiting = RawBatch.of_record(record, "waiting.", sparse=self.sparse, **sizes)
        if waiting is not None:
            self.rows.add(waiting)
        is_head_kept = self._kept is not None and self._scaler is None
        if self.rows.n_rows >= self.chunk_rows or is_head_kept:
            raise StateFileError("the rows of evidence do not fit its counts")
        if "ladder" in record.config:
            spans = record.part("spans", (None, 2), np.int64).tolist()
            evidence = record.inner("ladder", list[Sums])
            for (start, stop), sums in zip(spans, evidence, strict=True):
                self._ladder.append(EvidenceSpan(start, stop, sums))

    def __getstate__(self) -> dict[str, Any]:
        self._waiting()  # so that what is pickled does not depend on who has looked
        return self.__dict__


def class_in_words(columns: str, norm: float, intercept: bool = True) -> str:
    """Return a model of the class: linear in the columns, of a norm per standard deviation."""
    return (
        f"linear model of the columns ({columns}) with weights{' and constant' * intercept} of "
        f"norm at most {round_down(norm)}{' per standard deviation' * ('standardised' in columns)} "
        "for each class"
    )


def _sum(one: Sums, other: Sums) -> Sums:
    """Return the evidence of both, which are of one kind and size."""
    both: Sums = one + other  # type: ignore[operator]
    return both


def _distributions(P: Array) -> Array:
    """Return predictions with those made distributions that are none: no class was known."""
    missing = np.abs(P.sum(axis=1) - 1.0) > _SLACK
    return np.where(missing[:, None], 1.0 / P.shape[1], P)
