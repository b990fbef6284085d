r"""What of a pipeline predicts, and its hold-out: recent rows, predicted as if it were saved.

Progressive predictions are made just before each label comes. A model that is saved and used later
does not follow the labels: an expert that tracks the last few is good in the first setting and bad
in the second. So in stripes of the stream, given by the number of the round, rows are predicted by
the experts *as they were when the stripe began*, and these losses, with decay, decide how the
experts are weighted in whatever predicts many rows at once.
"""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import validation
from folklearn.arrays import TINY, Array, Labels, log_losses, softmax
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError
from folklearn.learners.base import Learner
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.model.batch import BatchBuffer, RawBatch, SparseInput
from folklearn.scaler import MixedScaler, OnlineScaler, SparseScaler
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRows

if TYPE_CHECKING:
    from folklearn.model.pipeline import OnlinePipeline

_FIRST_STRIPE_START = 64  # rounds
_MAX_STRIPE_ROWS = 288
_LEAST_STRIPE_ROWS = 64  # that are scored if rows are let go of before a stripe ends
_STRIPE_SHARE = 4  # a stripe is at most a quarter as long as the rounds before it
_WIDE_SPACING = 16  # wide models: a stripe begins after a sixteenth of the rounds so far
_DECAY = 0.8  # of the record, from one stripe to the next
_DEGRADED_FACTOR, _DEGRADED_NATS = 1.2, 0.05  # excess over the progressive loss that is reported
_SHARPNESS = 10.0  # rows of a stripe are alike: a nat of their mean counts as ten, not as 288


def holdout_warning(loss: float, holdout_loss: float) -> str:
    """Return what to say of a model that would do clearly worse once saved, "" of any other."""
    if not holdout_loss > _DEGRADED_FACTOR * loss + _DEGRADED_NATS:
        return ""
    return (
        f"the saved model will do worse than the running one. Rows ahead, it had an average loss "
        f"of {holdout_loss:.4f}, where predictions with every label known had {loss:.4f}: what is "
        "learned here goes out of date, so go on learning while you predict"
    )


class HoldoutWeights(Serializable):
    """Weights of the experts of a learner, by their losses on rows that they did not follow.

    Attributes
    ----------
    loss : average loss of the weighted experts in recent stripes, NaN before the first.
    losses : the decayed losses of the experts by name.
    is_open : whether a stripe is under way; `rows` are its rows so far.
    next_round : the number of rounds at which a stripe begins or ends.
    """

    PARAMS = ("wide",)
    COUNTERS = ("_start", "_stop")

    _learner: Learner | None  # as it was when the stripe began
    _scaler: Any

    def __init__(self, *, wide: bool = False) -> None:
        self.wide = bool(wide)
        self._start, self._stop = _FIRST_STRIPE_START, 0
        self.losses: dict[str, float] = {}
        self._set_totals(np.zeros(2))
        self._drop_stripe()

    def begin(self, n_rounds: int, learner: Learner | None, scaler: Any) -> None:
        """Begin a stripe if it is time."""
        self.next_round = self._start
        if n_rounds != self._start:
            return
        n_rows = min(_MAX_STRIPE_ROWS, n_rounds // _STRIPE_SHARE)
        self._start += max(2 * n_rows, n_rounds // _WIDE_SPACING if self.wide else 0)
        self._stop, self.next_round = n_rounds + n_rows, self._start
        if learner is not None:
            self._learner, self._scaler = learner.copy_to_predict(), copy.deepcopy(scaler)
            self.is_open, self.next_round = True, self._stop

    def end(self, n_rounds: int) -> bool:
        """Score the rows of a stripe if it is complete; tell whether it was."""
        if n_rounds != self._stop:
            return False
        if self.is_open:
            self._close(1)
        return True

    def release_rows(self) -> None:
        """End the open stripe now: its rows are scored, or dropped if they are few."""
        if self.is_open:
            self._close(_LEAST_STRIPE_ROWS)

    def _close(self, least_rows: int) -> None:
        batch, learner, scaler = self.rows.batch(), self._learner, self._scaler
        self._drop_stripe()
        if learner is not None and batch is not None and len(batch.weights) >= least_rows:
            self._score(learner, scaler, batch)

    def _drop_stripe(self) -> None:
        self._learner, self._scaler = None, None
        self.rows, self.is_open, self.next_round = BatchBuffer(), False, self._start

    def _score(self, learner: Learner, scaler: Any, batch: RawBatch) -> None:
        batch = _cut(batch, scaler, learner.n_classes)
        if not len(batch.weights):
            return
        Z = scaler.transform(batch.X)
        P = learner._expert_predictions(Z)
        labels, soft = batch.Y.argmax(axis=1), batch.Y
        if (batch.Y.max(axis=1) == 1.0).all():
            soft = soft[:0]
        names, shares = learner._expert_names(), self.weights(learner)
        if shares is None:
            shares = np.full(len(names), 1.0 / len(names))
        losses = log_losses(P, labels, soft, TINY) @ batch.weights
        mixture_loss = log_losses(np.tensordot(shares, P, 1), labels, soft, TINY) @ batch.weights
        weight = batch.weights.sum()
        past = self.losses if self.losses.keys() >= set(names) else {}  # of other experts
        averages = zip(names, (losses / weight).tolist(), strict=True)
        self.losses = {name: _DECAY * past.get(name, 0.0) + loss for name, loss in averages}
        self._set_totals(_DECAY * self._totals + np.array([mixture_loss, weight]))

    def _set_totals(self, totals: Array) -> None:
        self._totals = totals  # loss and weight of recent stripes
        total, weight = totals.tolist()
        self.loss = total / weight if weight > 0.0 else float("nan")

    def weights(self, learner: Learner) -> Array | None:
        """Return the weights of a learner's experts by their losses; None if some have none."""
        names = learner._expert_names()
        if not self.losses or not self.losses.keys() >= set(names):
            return None
        return softmax(-_SHARPNESS * np.array([self.losses[name] for name in names]))

    @property
    def n_bytes(self) -> int:
        return self.rows.n_bytes + (0 if self._learner is None else self._learner.n_bytes)

    def to_record(self) -> Record:
        record = super().to_record()
        record.config["names"] = list(self.losses)
        record.arrays.update(losses=np.array([*self.losses.values()]), totals=self._totals.copy())
        if self._learner is not None:
            put_inside(record, "learner", self._learner)
            put_inside(record, "scaler", self._scaler)
            batch = self.rows.batch()
            if batch is not None:
                batch = _cut(batch, self._scaler, self._learner.n_classes)
                record.arrays.update(batch.arrays("batch."))
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        names = [str(name) for name in record.word("names")]
        losses = record.part("losses", (len(names),)).tolist()
        self.losses = dict(zip(names, losses, strict=True))
        self._set_totals(record.part("totals", (2,)))
        self.next_round = self._start
        if "learner" in record.config:
            self._learner = record.inner("learner", Learner)
            self._scaler = record.inner("scaler", OnlineScaler | SparseScaler)
            dense = self._scaler.dense if isinstance(self._scaler, MixedScaler) else None
            if dense is not None and dense.n_classes != self._learner.n_classes:
                raise record.error("has words and other columns of different classes")
            self.is_open, self.next_round = True, self._stop
            batch = RawBatch.of_record(
                record, "batch.", n_features=self._scaler.n_features,
                n_classes=self._learner.n_classes, sparse=isinstance(self._scaler, SparseScaler),
            )  # fmt: skip
            if batch is not None:
                self.rows.add(batch)


class ScaledLearner(Serializable):
    """A scaler, a learner and the weights of its experts: what of a pipeline predicts."""

    sparse: bool
    n_classes: int
    scaler: OnlineScaler | SparseScaler
    learner: Learner | None
    holdout: HoldoutWeights
    # What predicts after `refit` until something is learned: weights (K, columns), or of some.
    batch_fit: Array | ColumnModel | None = None
    _predicted: tuple[Any, Any] = None, None  # the last row, and its probabilities

    @property
    def dense(self) -> "OnlinePipeline | None":
        """What learns the columns other than words, None where there are none."""
        return self.scaler.dense if isinstance(self.scaler, MixedScaler) else None

    @property
    def n_features(self) -> int:
        """The number of raw features so far, or of slots."""
        return self.scaler.n_features

    def predict(self, X: Any) -> Array:
        """Return the probabilities (T, K) of the known classes, as the hold-out weighs experts."""
        return self._predict_scaled(self.scale(X, by_holdout=True), by_holdout=True)

    def predict_next(self, X: Any) -> Array:
        """Return the probabilities of the known classes for rows that come next: (T, d), (T, K)."""
        return self._predict_scaled(self.scale(X))

    def _predict_scaled(self, Z: Any, *, by_holdout: bool = False) -> Array:
        if self.learner is None:  # there is one class at most
            return np.ones((len(Z), self.n_classes))
        if isinstance(self.batch_fit, ColumnModel):
            return self.batch_fit.predict(Z)
        if self.batch_fit is not None:
            return softmax(Z[:, -self.batch_fit.shape[1] :] @ self.batch_fit.T)
        weights = self.holdout.weights(self.learner) if by_holdout else None
        if weights is None:
            return self.learner._predict_rows(Z)
        P = self.learner._expert_predictions(Z)
        np.maximum(P, TINY, out=P)
        return np.tensordot(weights, P, 1)

    def scale(self, X: Any, *, by_holdout: bool = False) -> Any:
        """Return raw rows as the learner takes them; `by_holdout` is for columns next to words."""
        X = self._check_rows(X, self.n_features)
        Z: Any = self.scaler.scale_rows(X, learn=False)
        if not isinstance(self.scaler, MixedScaler):
            return Z
        dense = self.scaler.dense
        if by_holdout:
            return self.scaler.stack(Z, X, dense.predict(X.dense))
        # One by one: sums over several rows round otherwise.
        P = [dense.predict_row(x) for x in dense._check_rows(X.dense, dense.n_features)]
        return self.scaler.stack(Z, X, np.array(P).reshape(len(X), dense.n_classes))

    def predict_row(self, x: Array) -> Array:
        """Return `predict_next` of one raw row of floats, not checked but for its norm."""
        scaler, learner = self.scaler, self.learner
        assert isinstance(scaler, OnlineScaler)
        z = scaler.scale_row(x, False)
        if learner is None or self.batch_fit is not None:
            return self._predict_scaled(z[None])[0]
        p = learner._predict(z)
        self._predicted = x, p
        return p

    @property
    def feature_columns(self) -> Labels:
        """The columns (d,) of raw features of dense rows, see `OnlineScaler`."""
        assert isinstance(self.scaler, OnlineScaler)
        return self.scaler.feature_columns

    def coef(self) -> Array:
        """Return the weights (K, columns) of the linear model that it is, or leans on most."""
        if isinstance(self.batch_fit, np.ndarray):
            return self.batch_fit[:, -self.scaler.n_columns :]
        if isinstance(self.batch_fit, ColumnModel):
            W = np.zeros((self.n_classes, self.scaler.n_columns))
            W[:, self.batch_fit.columns] = self.batch_fit.weights.T
            return W
        if self.learner is None:
            raise InvalidInputError("there are no weights before the second class")
        return self.learner.coef()

    def linear(self) -> tuple[Array, Array]:
        """Return weights (K, d), constants (K,) of raw features: `coef`, without clipping."""
        scaler, W = self.scaler, self.coef()
        assert isinstance(scaler, OnlineScaler)
        a, b = scaler.line()
        of_features = W[:, self.feature_columns]
        constants = of_features @ b
        if scaler.intercept:
            constants = constants + W[:, scaler.place] * scaler.unit
        return of_features * a, constants

    def n_places(self, X: SparseInput | None = None) -> int:
        """Count the columns that occurred in a wide model, or will have with X."""
        if not isinstance(self.learner, SparseSgd):
            return 0 if X is None else len(np.unique(X.cells.compact().indices))
        if X is None:
            return self.learner.n_columns
        return self.learner.n_columns_with(X.cells.compact().indices)

    def column_weights(self) -> tuple[Any, Array]:
        """Return the columns (n,) of a wide model that occurred, and their weights (n, K)."""
        if isinstance(self.batch_fit, ColumnModel):
            return self.batch_fit.columns, self.batch_fit.weights
        assert isinstance(self.learner, SparseSgd)
        return self.learner.column_weights()

    def _check_rows(self, X: Any, n_features: int | None = None) -> Any:
        if self.sparse:
            if not isinstance(X, SparseInput):
                X = SparseInput.of_rows(SparseRows.checked(X))
            validation.contexts(X.numbers, len(X.slots), gaps=True)
            return X
        X = validation.numbers("X", X)
        width = max(X.shape[1] if X.ndim == 2 else 0, self.n_features)
        return validation.contexts(X, n_features or width, gaps=True)

    @property
    def intercept_column(self) -> int | None:
        return self.scaler.place if self.scaler.intercept else None


def _cut(batch: RawBatch, scaler: Any, n_classes: int) -> RawBatch:
    """Return the rows of weight that a scaler and a learner of `n_classes` could have seen."""
    is_later = (batch.Y[:, n_classes:] > 0.0).any(axis=1)
    sized = batch.resize(scaler.n_features, n_classes)
    if isinstance(scaler, MixedScaler):
        sized = sized._replace(X=sized.X.of_slots(scaler.n_features, scaler.dense.n_features))
    return sized.take(~is_later & (batch.weights > 0.0))
