"""Numbers around a learner: raw rows and class numbers in, probabilities out; it grows."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.kernels.blas import OWN, device_named
from folklearn.learners import catalogue
from folklearn.learners.base import Learner
from folklearn.learners.catalogue import WIDE, select_backend
from folklearn.learners.leader import ExpertLearner
from folklearn.learners.sparse_sgd import StackedSgd
from folklearn.model.batch import RawBatch
from folklearn.model.holdout import HoldoutWeights, ScaledLearner
from folklearn.model.labels import encode_labels
from folklearn.model.stream_evidence import StreamEvidence
from folklearn.model.terms import FIRST_OPENING, review_terms
from folklearn.scaler import SPACE, MixedScaler, OnlineScaler, SparseScaler
from folklearn.serialization import Record, revive
from folklearn.sparse import check_columns
from folklearn.validation import Rows

TERMS = ("auto", "none", "all")


class OnlinePipeline(ScaledLearner):
    r"""A scaler and a learner that grow with what the stream brings, and the hold-out record.

    The part of `folklearn.Model` that knows no names. Class numbers are in order of appearance.
    A class that was never seen has the probability `unseen_probability`,

    .. math:: u = \frac{m + 1/2}{t + 1}

    where m of the t examples so far brought a new class (the estimator of Krichevsky and Trofimov
    for "is it new?"), and 1 while no class is known. The known classes share 1 - u as the learner
    says: the loss of a stream is always finite. With the second class a learner begins, with every
    further one it grows.

    `predict_row`, `predict_next` and `run` weigh the experts as the learner does now, for rows
    whose labels come soon; `predict` as the hold-out does, for rows that the model will not
    follow. After `refit` all are that fit.

    Parameters
    ----------
    learner, settings, terms, device : as for `folklearn.Model`; sparse and unscaled rows have no
        terms, and a learner that cannot grow must know all classes.
    n_features : number of raw features so far, at least 1, or of slots; `grow` adds more.
        `n_numbers` of the slots hold numbers.
    n_classes : number of classes declared in advance, at least 0; these are never "new".
    scale, intercept, windows : as for `OnlineScaler`, or `SparseScaler`; of `StreamEvidence`.
    sparse : keep rows sparse all the way (`SparseInput`, `SparseScaler`); "auto" is a `SparseSgd`.
    dense : of rows with words, a pipeline that has learned nothing and learns the other columns
        next to them (`MixedScaler`); "auto" is a `StackedSgd`.
    """

    def __init__(
        self,
        learner: str = "auto",
        settings: Mapping[str, Any] | None = None,
        *,
        n_features: int,
        n_numbers: int = 0,
        n_classes: int = 0,
        scale: bool = True,
        intercept: bool = True,
        sparse: bool = False,
        dense: "OnlinePipeline | None" = None,
        windows: bool = False,
        terms: str = "none",
        device: str = OWN,
    ) -> None:
        self.terms = validation.choice("terms", terms, TERMS)
        self.name, self.sparse, self.device = learner, bool(sparse), device
        self.settings = dict(settings or {})
        self.n_classes = validation.count("n_classes", n_classes, 0)
        if self.n_classes < 2:
            catalogue.check_grows(self.name)
        if self.sparse and learner != "auto":
            raise InvalidInputError(
                f'{learner!r} takes no words and no wide rows: choose the learner "auto"'
            )
        self.n_rounds, self.n_new = 0, 0
        # Of every row of the last `run`: the hold-out loss after it, the classes known before it.
        self.holdout_losses, self.n_known = np.empty(0), np.empty(0, np.int64)
        self._n_classes_ahead = 0  # with the rows of this `run`: a learner is chosen for them all
        self._is_wide = True  # its evidence, which needs predictions then; False once it says so
        switches = {"scale": scale, "intercept": intercept}
        sizes: dict[str, Any] = {"n_features": n_features, "n_numbers": n_numbers}
        self.scaler: OnlineScaler | SparseScaler
        if dense is not None:
            self.scaler = MixedScaler(dense=dense, **sizes, **switches)
        elif self.sparse:
            self.scaler = SparseScaler(**sizes, **switches)
        else:
            self.scaler = OnlineScaler(n_features=n_features, gaps=True, **switches)
        # The round after which terms are chosen, or dropped; 0 for never.
        has_terms = self.terms != "none" and scale and not self.sparse
        self._next_opening = FIRST_OPENING * has_terms
        self.holdout = HoldoutWeights(wide=self.sparse)
        self.evidence = StreamEvidence(sparse=self.sparse, windows=windows, **switches)
        self.evidence.numeric, self.evidence.n_classes = [True] * n_features, self.n_classes
        first = self._make(self.scaler.n_columns, max(2, self.n_classes))  # checks the settings
        self.max_weight = first.max_weight
        self.learner: Learner | None = first if self.n_classes >= 2 else None

    def _make(self, n_columns: int, n_classes: int) -> Learner:
        settings = self.settings
        if self.name == "auto":  # for the classes that are coming with these rows too
            size = n_columns, max(n_classes, self._n_classes_ahead)
            backend = WIDE if self.sparse else select_backend(*size, device_named(self.device))
            settings = {"backend": backend, **settings}
        if "certify" in catalogue.settings_of(self.name):  # the evidence is here
            settings = {"certify": False, **settings}
        if not self.sparse:
            catalogue.check_size(self.name, n_columns, n_classes)
        learner = catalogue.make(self.name, n_columns, n_classes, settings, self.device)
        if self.dense is None:
            return learner
        return StackedSgd(**{word: getattr(learner, word) for word in StackedSgd.PARAMS})

    def to(self, device: str) -> Self:
        """Move the sums of the learner to a device, or back to the "cpu"; return self."""
        self.device = device
        if self.dense is not None:
            self.dense.to(device)
        lines = None if self.learner is None else self.learner.lines
        if isinstance(lines, ExpertLearner):
            lines.to(device)
        return self

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen."""
        return (self.n_new + 0.5) / (self.n_rounds + 1.0) if self.n_classes else 1.0

    def copy_to_predict(self) -> Self:
        """Return a copy that predicts as this pipeline does now, and must not learn."""
        copied = self._shallow()
        copied.scaler = copy.deepcopy(self.scaler)
        copied.learner = None if self.learner is None else self.learner.copy_to_predict()
        copied.holdout = self.holdout._shallow()
        copied.holdout._drop_stripe()
        copied.evidence = StreamEvidence()  # a copy that learns nothing proves nothing
        copied.evidence.numeric = list(self.evidence.numeric)
        return copied

    def without_rows(self) -> "OnlinePipeline":
        """Return a pipeline that goes on as this one does, and holds no row that it learned."""
        copied = _revive_pipeline(self.to_record(), self.device)  # nor one in room for scratch
        copied._release_rows()
        return copied

    def _release_rows(self) -> None:
        if self.dense is not None:
            self.dense._release_rows()
        self.scaler.release_rows()
        self.evidence.release_rows()
        self.holdout.release_rows()
        if self.learner is not None:
            self.learner._release_rows()
        self._share_holdout()

    def learn_row(self, x: Array, y: Any, weight: float = 1.0) -> tuple[Array, float]:
        """Learn one raw row of floats, not checked but for its norm, which must not change then.

        y is a class number, or a soft label: probabilities of the known classes (K,) and of new
        ones behind them. Returns what was predicted, and `unseen_probability` of before. It is
        `run` without its arrays; whatever is unusual goes that way.
        """
        scaler, learner, n_classes = self.scaler, self.learner, self.n_classes
        is_hard = type(y) is int and 0 <= y < n_classes
        if (
            not (is_hard or np.shape(y) == (n_classes,))
            or learner is None
            or self.batch_fit is not None
            or self._is_wide
            or self.n_rounds >= self.holdout.next_round
            or self.n_rounds + 1 == self._next_opening
            or not isinstance(scaler, OnlineScaler)
            or x.size != scaler.n_features
        ):
            weight = validation.weight(weight)
            OnlineScaler.check_usable(x)
            fitted = None if self.batch_fit is None else self.predict_row(x)
            P, u = self.run(x[None], np.asarray(y)[None], weight=[weight])
            return P[0, :n_classes] if fitted is None else fitted, float(u[0])
        if weight != 1.0:
            weight = validation.weight(weight)
            if weight > self.max_weight:
                validation.check_max_weight(weight, self.max_weight)
        label, soft = y, validation.NO_SOFT
        if not is_hard:
            label, soft = -1, encode_labels(np.asarray(y)[None], 1, n_classes)[1][0]
            y = soft
        z = scaler.scale_row(x, True)
        row, p = self._predicted
        if row is not x and (row is None or row.tobytes() != x.tobytes()):
            p = learner._predict(z)
        self._predicted = None, None
        unseen = (self.n_new + 0.5) / (self.n_rounds + 1.0)
        self.n_rounds += 1
        learner._learn(z, label, soft, weight)
        self.evidence.rows.add_row(x, y, weight)
        if self.holdout.is_open:
            self.holdout.rows.add_row(x, y, weight)
            if self.holdout.end(self.n_rounds):
                self._share_holdout()
        if self.evidence.rows.n_rows == self.evidence.chunk_rows:
            self.evidence.settle()
        return p, unseen

    def _share_holdout(self) -> None:
        if self.learner is not None:
            self.learner._set_standing(dict(self.holdout.losses))

    def _review_terms(self) -> None:
        numeric = self.evidence.numeric
        rows = self.evidence.rows.batch(numeric)
        rows = None if rows is None else rows.resize(len(numeric), self.n_classes, numeric)
        assert isinstance(self.scaler, OnlineScaler)
        self.scaler, self.learner, self._next_opening = review_terms(
            self.scaler, self.learner, rows, self.n_rounds, every=self.terms == "all"
        )
        self._predicted = None, None
        self._share_holdout()

    def grow(
        self,
        *,
        n_features: int = 0,
        n_numbers: int = 0,
        n_classes: int = 0,
        late_missing: Sequence[bool] = (),
        late_numeric: Sequence[bool] = (),
    ) -> None:
        """Make room for features, and for classes that are declared, not seen; 0 leaves them.

        New features were 0 so far, or missing where `late_missing`; they are numbers, or indicators
        where not `late_numeric`. Should memory not suffice, nothing grows.
        """
        scaler, learner, sizes = self.scaler, self.learner, (self.n_features, self.n_classes)
        d = validation.count("n_features", n_features or sizes[0], sizes[0])
        K = validation.count("n_classes", n_classes or sizes[1], sizes[1])
        if (d, K) == sizes:
            return
        catalogue.check_grows(self.name)
        n_late = d - scaler.n_features
        if self.dense is not None:
            self.dense.grow(n_classes=K)
        n_columns = scaler.n_columns + n_late * (SPACE if self.sparse else 1)
        if learner is None and K >= 2:
            learner = self._make(n_columns, K)
        elif learner is not None:
            if not self.sparse:
                catalogue.check_size(self.name, n_columns, K)
            learner = learner.grown(n_features=n_columns, n_classes=K)
            if isinstance(scaler, OnlineScaler) and sizes[1] < K:
                # At a score of 0 it would be as likely as any other, however rare it was.
                score = -math.log1p(self.n_rounds / sizes[1])
                learner._begin_classes(sizes[1], scaler.place - n_columns, score / scaler.unit)
        if n_late and isinstance(scaler, SparseScaler):
            scaler.grow(d, max(n_numbers, scaler.n_numbers))
        elif n_late and isinstance(scaler, OnlineScaler):
            scaler.grow(d, late_missing[-n_late:])
        late = list(late_numeric[-n_late:]) if n_late else []
        self.evidence.numeric += late if len(late) == n_late else [True] * n_late
        self.evidence.n_classes = K
        self.learner, self.n_classes, self.batch_fit, self._is_wide = learner, K, None, True
        self._predicted = None, None
        self._share_holdout()

    def run(
        self, X: Any, y: ArrayLike, *, weight: ArrayLike | None = None, **late: Sequence[bool]
    ) -> tuple[Array, Array]:
        """Predict, then learn, raw rows X (T, d) with class numbers y (T,), one by one.

        A number equal to `n_classes` is a new class, and columns beyond `n_features` are new
        features, `late` as for `grow`. y may be soft labels (T, K), with new classes last. Returns
        P (T, K) and u (T,) of before each label was learned: probabilities of the known classes,
        and that the example is of none of them. Every row is checked before the first round.
        """
        X = self._check_rows(X)
        labels, soft = encode_labels(y, len(X), self.n_classes)
        weights = validation.weights(weight, len(X))
        return self.run_checked(X, labels, soft, weights, **late)

    def run_checked(
        self, X: Any, labels: Labels, soft: Array, weights: Array, **late: Any
    ) -> tuple[Array, Array]:
        """Run checked rows; labels are classes (T,), or all -1 where `soft` (T, K) has rows."""
        if weights.max(initial=0.0) > min(self.max_weight, validation.MAX_WEIGHT):
            validation.check_max_weight(validation.weights(weights, len(X)), self.max_weight)
        n_needed = labels + 1  # classes that must be known after each row
        if len(soft):
            n_needed = soft.shape[1] - np.argmax(soft[:, ::-1] > 0.0, axis=1)
        n_known = np.maximum.accumulate(np.maximum(n_needed, self.n_classes))
        self._n_classes_ahead = n_classes = int(n_known.max(initial=self.n_classes))
        if n_classes > self.n_classes:
            catalogue.check_grows(self.name)
        if isinstance(self.scaler, MixedScaler) or X.shape[1] > self.scaler.n_features:
            self._grow_features(X, **late)
        T = len(X)
        P, u, self.holdout_losses = np.zeros((T, n_classes)), np.empty(T), np.empty(T)
        self.n_known = np.concatenate([[self.n_classes], n_known[:-1]])[:T]
        holdout, evidence, start = self.holdout, self.evidence, 0
        while start < T:
            if self.n_rounds == holdout.next_round:
                holdout.begin(self.n_rounds, self.learner, self.scaler)
            stop = start + evidence.chunk_rows - evidence.rows.n_rows
            for due in filter(None, (holdout.next_round, self._next_opening)):
                stop = min(stop, start + max(1, due - self.n_rounds))
            is_new = n_known[start:stop] > self.n_classes
            if is_new.any():  # a chunk is rows of known classes, or one row with a new class
                stop = start + max(1, int(is_new.argmax()))
            chunk = slice(start, min(stop, T))
            start, n_rows, X_chunk = chunk.stop, chunk.stop - start, X[chunk]
            Z: Any = self.scaler.scale_rows(X_chunk, learn=True)
            self._predicted, self.batch_fit = (None, None), None
            u[chunk] = (self.n_new + 0.5) / (self.n_rounds + np.arange(n_rows) + 1.0)
            if is_new[0]:
                u[chunk.start] = self.unseen_probability
                self._admit_class(X_chunk, Z, int(n_known[chunk.start]), P[chunk])
            self.n_rounds += n_rows
            of_rows = labels[chunk], soft[chunk], weights[chunk]
            known = of_rows[0], np.ascontiguousarray(soft[chunk, : self.n_classes]), of_rows[2]
            if isinstance(self.scaler, MixedScaler):
                P_dense, _ = self.scaler.dense.run_checked(X_chunk.dense, *known)
                Z = self.scaler.stack(Z, X_chunk, P_dense)
            rows, learner = Rows(Z, *known), self.learner
            predicted = 1.0 if learner is None else learner._run(rows, None)
            if not is_new[0]:
                P[chunk, : self.n_classes] = predicted
            self.holdout_losses[chunk] = holdout.loss
            self._is_wide = self._is_wide and evidence.is_wide
            batch = RawBatch.of(X_chunk, *of_rows, P[chunk] if self._is_wide else P[:0])
            evidence.rows.add(batch._replace(X=batch.X.sparse) if self.sparse else batch)
            if evidence.rows.n_rows == evidence.chunk_rows:
                evidence.settle()
            if holdout.is_open:
                holdout.rows.add(batch)
            if self.n_rounds == holdout.next_round and holdout.end(self.n_rounds):
                self._share_holdout()
            self.holdout_losses[start - 1] = holdout.loss
            if self.n_rounds == self._next_opening:
                self._review_terms()
        self._n_classes_ahead = 0
        return P, u

    def _grow_features(self, X: Any, dense: Mapping[str, Any] | None = None, **late: Any) -> None:
        """Make room for all features of rows, `dense` of columns next to words."""
        if isinstance(self.scaler, MixedScaler):
            n_dense = max(X.dense.shape[1], self.scaler.dense.n_features)
            self.scaler.dense.grow(n_features=n_dense, **(dense or {}))
        if X.shape[1] > self.n_features:
            n_numbers = len(X.slots) if self.sparse else 0
            self.grow(n_features=X.shape[1], n_numbers=n_numbers, **late)

    def _admit_class(self, X: Any, Z: Any, n_classes: int, P: Array) -> None:
        """Predict a row without knowing of its new class, then make room for the class."""
        if self.learner is not None:
            Z = Z if self.dense is None else self.scale(X)
            P[:, : self.n_classes] = self.learner._predict_rows(Z)
        else:
            P[:, : self.n_classes] = 1.0
        self.grow(n_classes=n_classes)
        self.n_new += 1

    @property
    def n_bytes(self) -> int:
        """About how much memory the learner and the rows that are kept take."""
        parts = self.learner, self.evidence, self.holdout, self.dense
        return sum(sized.n_bytes for sized in parts if sized is not None)

    def certificate(self, loss: float, columns: str = "standardised by {by}") -> Certificate | None:
        """Return what is proven about a total loss; see `StreamEvidence.certificate`."""
        return self.evidence.certificate(loss, self.n_rounds, columns)

    PARAMS = ("name", "settings", "terms")
    COUNTERS = ("n_classes", "n_rounds", "n_new", "_next_opening")
    STATE: ClassVar[Mapping[str, Any]] = {
        "scaler": OnlineScaler | SparseScaler, "holdout": HoldoutWeights,
        "evidence": StreamEvidence, "learner": Learner, "_is_wide": bool,
    }  # fmt: skip

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        # As small as can be: its parts are replaced by those of the record.
        name, n_classes = words["name"], 0 if catalogue.grows(words["name"]) else 2
        terms = words["terms"]
        return cls(name, words["settings"], n_features=1, n_classes=n_classes, terms=terms)

    def to_record(self) -> Record:
        record = super().to_record()
        if isinstance(self.batch_fit, ColumnModel):
            record.arrays["fitted_columns"] = self.batch_fit.columns.copy()
            record.arrays["fitted_weights"] = self.batch_fit.weights.copy()
        elif self.batch_fit is not None:
            record.arrays["refitted"] = self.batch_fit.copy()
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        scaler, learner, d, K = self.scaler, self.learner, self.scaler.n_columns, self.n_classes
        self.sparse, dense = isinstance(scaler, SparseScaler), self.dense
        if len(self.evidence.numeric) != scaler.n_features or self.evidence.n_classes > K:
            raise record.error("holds evidence of another size")
        sizes = None if learner is None else (learner.n_features, learner.n_classes)
        if sizes != ((d, K) if K >= 2 else None):
            raise record.error("lacks its learner, or holds one of another size")
        is_whole = dense is None or (dense.n_classes, dense.n_rounds) == (K, self.n_rounds)
        if not is_whole or (learner and isinstance(learner, StackedSgd) != (dense is not None)):
            raise record.error("has words and other columns that do not belong together")
        n_terms = 0 if learner is None else learner.n_terms
        if n_terms != scaler.n_terms:
            raise record.error("holds terms that its learner does not know")
        can_open = self.terms != "none" and isinstance(scaler, OnlineScaler) and scaler.scale
        if self._next_opening and not (can_open and self._next_opening > self.n_rounds):
            raise record.error("opens terms at a round that is over, or has no place for them")
        if "refitted" in record.arrays:
            width = record.arrays["refitted"].shape[-1]
            self.batch_fit = record.part("refitted", (K, d if width == d else n_terms + d))
        elif "fitted_columns" in record.arrays:
            columns = record.part("fitted_columns", (None,), np.int64)
            check_columns(columns, d)
            weights = record.part("fitted_weights", (len(columns), K))
            self.batch_fit = ColumnModel(columns, weights)
        self._share_holdout()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the record, of which a prediction changes no byte."""
        return _revive_pipeline, (self.to_record(), self.device)


def _revive_pipeline(record: Record, device: str) -> OnlinePipeline:
    pipeline = revive(record)
    assert isinstance(pipeline, OnlinePipeline)
    return pipeline.to(device)
