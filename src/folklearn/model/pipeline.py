"""Numbers around a learner: raw rows and class numbers in, probabilities out; it grows."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import serialization, validation
from folklearn.arrays import TINY, Array, softmax
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.certificate import Certificate
from folklearn.kernels.blas import OWN, device_named
from folklearn.learners import catalogue
from folklearn.learners.backends import WIDE, select_backend
from folklearn.learners.base import Learner
from folklearn.learners.experts import ExpertLearner
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.model.batch import RawBatch
from folklearn.model.holdout import HoldoutWeights
from folklearn.model.labels import encode_labels
from folklearn.model.sparse_scaler import SPACE, SparseInput, SparseScaler
from folklearn.model.stream_evidence import COLUMNS, StreamEvidence
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRows, check_columns
from folklearn.validation import Rows


class OnlinePipeline(Serializable):
    r"""A scaler and a learner that grow with what the stream brings, and the frozen record.

    The part of `folklearn.Model` that knows no names. Class numbers are in order of appearance.
    A class that was never seen has the probability `unseen_probability`,

    .. math:: u = \frac{m + 1/2}{t + 1}

    where m of the t examples so far brought a new class, or several in one soft label (the
    estimator of Krichevsky and Trofimov for "is it new?"), and 1 while no class is known. The
    known classes share 1 - u as the learner says. So the strict loss of a stream is
    :math:`-\ln((1-u)\,p_y)` for a known class, :math:`-\ln u` for a new one, and always finite.

    The first class needs no learner; with the second one begins, and with every further one
    it grows (`Folklore.grown`). Missing values (NaN) become the mean of their feature.

    Two ways to predict: `predict_row`, and `run`, as the learner weighs its experts now, for a row
    whose label comes soon; and `predict`, as the hold-out weighs them (`HoldoutWeights`), for rows
    that the model will not follow. After `refit` both are that fit.

    With ``sparse=True`` rows stay sparse all the way (`SparseInput`, `SparseScaler`), and
    ``"auto"`` is a `SparseSgd`. Time and memory are then those of what is not 0.

    Parameters
    ----------
    learner : name of a learner, see `folklearn.learners.catalogue`; one that cannot grow must
        be told all classes, and refuses further ones.
    settings : its parameters, such as ``{"B": 10.0}``.
    n_features : number of raw features so far, at least 1, or of slots; `grow` adds more.
    n_numbers : how many of the slots hold numbers.
    n_classes : number of classes declared in advance, at least 0; these are never "new".
    scale, intercept : as for `OnlineScaler`, or `SparseScaler`.
    sparse : keep rows sparse.
    B, windows : of `StreamEvidence`; a learner that takes a B is made for the same class.
    device : of the learner, see `auto` and `Leader`. It is not saved: what is loaded is on the CPU.

    Examples
    --------
    >>> model = OnlinePipeline("folklore", n_features=1)
    >>> P, u = model.run([[0.0], [1.0], [0.1], [0.9]], [0, 1, 0, 1])
    >>> P.shape, u.round(2).tolist(), model.n_classes
    ((4, 2), [1.0, 0.75, 0.83, 0.62], 2)
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
        B: float | None = None,
        windows: bool = False,
        device: str = OWN,
    ) -> None:
        self.name, self.sparse, self.device = learner, bool(sparse), device
        self.settings = dict(settings or {})
        self.n_classes = validation.count("n_classes", n_classes, 0)
        if self.n_classes < 2:
            self._check_growing()
        if self.sparse and learner != "auto":
            raise InvalidInputError(
                f'{learner!r} takes no words and no wide rows: choose the learner "auto"'
            )
        self.n_rounds = 0
        self.n_new = 0
        self.holdout_losses: Array = np.empty(0)  # after every row of the last `run`
        self.B = B
        self._predicted: tuple[Any, Any] = None, None  # the row predicted last, its probabilities
        self._n_classes_ahead = 0  # with the rows of this `run`: a learner is chosen for them all
        self._scaler: OnlineScaler | SparseScaler
        if self.sparse:
            self._scaler = SparseScaler(
                n_slots=n_features, n_numbers=n_numbers, scale=scale, intercept=intercept
            )
        else:
            self._scaler = OnlineScaler(
                n_features=n_features, scale=scale, intercept=intercept, gaps=True
            )
        self.holdout = HoldoutWeights(wide=self.sparse)
        self.evidence = StreamEvidence(
            B=B, scale=scale, intercept=intercept, sparse=self.sparse, windows=windows
        )
        self.evidence.numeric = [True] * n_features
        self.learner: Learner | None = None
        # What predicts after `refit` until something is learned: weights (K, columns), or of some.
        self.batch_fit: Array | ColumnModel | None = None
        first = self._make(self._scaler.n_columns, max(2, self.n_classes))  # checks the settings
        self.max_weight = first.max_weight
        if self.n_classes >= 2:
            self.learner = first

    def _check_growing(self) -> None:
        if not catalogue.grows(self.name):
            raise InvalidInputError(
                f"{self.name!r} is no learner that takes classes as they come, or features; those "
                f"are: {', '.join(catalogue.growing())}"
            )

    def _make(self, n_columns: int, n_classes: int) -> Learner:
        settings = self.settings
        if self.name == "auto":  # for the classes that are coming with these rows too
            size = n_columns, max(n_classes, self._n_classes_ahead)
            backend = WIDE if self.sparse else select_backend(*size, device_named(self.device))
            settings = {"backend": backend, **settings}
        if self.B is not None and "B" in catalogue.settings_of(self.name):
            settings = {"B": self.B / self.unit, **settings}
        if not self.sparse:
            catalogue.check_size(self.name, n_columns, n_classes)
        return catalogue.make(self.name, n_columns, n_classes, settings, self.device)

    def to(self, device: str) -> Self:
        """Move the sums of the learner to a device, or back to the "cpu"; return self."""
        self.device = device
        if isinstance(self.learner, ExpertLearner):
            self.learner.to(device)
        return self

    @property
    def n_features(self) -> int:
        """The number of raw features so far, or of slots."""
        scaler = self._scaler
        return scaler.n_slots if isinstance(scaler, SparseScaler) else scaler.n_features

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen."""
        return (self.n_new + 0.5) / (self.n_rounds + 1.0) if self.n_classes else 1.0

    def predict(self, X: Any) -> Array:
        """Return the probabilities of the known classes, given that it is one: (T, d), (T, K).

        Of experts that were judged, as the frozen record weighs them.
        """
        Z, learner = self.scale(X), self.learner
        if learner is None:
            return np.ones((len(Z), self.n_classes))
        if isinstance(self.batch_fit, ColumnModel):
            return self.batch_fit.predict(Z)
        if self.batch_fit is not None:
            return softmax(Z @ self.batch_fit.T)
        norms = validation.norms(Z)
        if not self.holdout.has_scores_of(learner):
            return learner._predict_all(Z, norms)
        P = learner._expert_predictions(Z, norms)
        np.maximum(P, TINY, out=P)
        mixed: Array = np.tensordot(self.holdout.weights(learner), P, 1)
        return mixed

    def predict_next(self, X: Any) -> Array:
        """Return the probabilities of the known classes for rows that come next: (T, d), (T, K)."""
        if self.learner is None or self.batch_fit is not None:
            return self.predict(X)
        Z = self.scale(X)
        return self.learner._predict_all(Z, validation.norms(Z))

    def scale(self, X: Any) -> Any:
        """Return raw rows scaled as if each came next."""
        return self._scaler.transform(self._check_rows(X, self.n_features))

    def copy_to_predict(self) -> Self:
        """Return a copy that predicts as this pipeline does now, and must not learn."""
        copied = self._shallow()
        copied._scaler, copied.learner = copy.deepcopy((self._scaler, self.learner))
        copied.holdout = self.holdout.without_stripe()
        copied.evidence = StreamEvidence()  # a copy that learns nothing proves nothing
        return copied

    def predict_row(self, x: Array) -> Array:
        """Return `predict_next` of one raw row of floats, not checked but for its norm."""
        scaler, learner = self._scaler, self.learner
        assert isinstance(scaler, OnlineScaler)
        z = scaler.one(x, False)
        if isinstance(self.batch_fit, ColumnModel):
            p: Array = self.batch_fit.predict(z[None, :])[0]
            return p
        if self.batch_fit is not None:
            return softmax(self.batch_fit @ z)
        if learner is None:
            return np.ones(self.n_classes)
        p = learner._predict(z)
        self._predicted = x, p
        return p

    def learn_row(self, x: Array, y: Any, weight: float = 1.0) -> Array:
        """Learn one raw row of floats, not checked but for its norm; return what was predicted.

        y is a class number, or a soft label: probabilities of the known classes (K,) and of new
        ones behind them. After `predict_row` of the same row nothing is computed again. What `run`
        does for a batch, without its arrays; whatever is unusual goes that way.
        """
        scaler, learner, n_classes = self._scaler, self.learner, self.n_classes
        if (
            type(y) is not int
            or not 0 <= y < n_classes
            or learner is None
            or self.batch_fit is not None
            or self.n_rounds >= self.holdout.next_round
            or not isinstance(scaler, OnlineScaler)
            or x.size != scaler.n_features
        ):
            weight = validation.weight(weight)
            OnlineScaler.check_usable(x)
            p = None if self.batch_fit is None else self.predict_row(x)
            P, _ = self.run(x[None], np.asarray(y)[None], weight=[weight])
            return P[0, :n_classes] if p is None else p
        if weight != 1.0:
            weight = validation.weight(weight)
            if weight > self.max_weight:
                validation.check_max_weight(weight, self.max_weight)
        z = scaler.one(x, True)
        row, p = self._predicted
        if row is not x and (row is None or row.tobytes() != x.tobytes()):
            p = learner._predict(z)
        self._predicted = None, None
        self.n_rounds += 1
        learner._learn(z, y, validation.NO_SOFT, weight)
        evidence = self.evidence
        evidence.n_classes = n_classes
        evidence.add_row(x, y, validation.NO_SOFT, weight)
        if not evidence.rows_ahead:
            evidence.settle(self.expansion_line)
        if self.holdout.is_open and self.holdout.add_row(
            self.n_rounds, x, y, validation.NO_SOFT, weight
        ):
            self._share_holdout()
        return p

    @property
    def n_columns(self) -> int:
        """The number of columns that the learner sees."""
        return self._scaler.n_columns

    def column_of(self, feature: int) -> int:
        """Return the column of a raw feature: those that came late lie behind the constant."""
        scaler = self._scaler
        return feature + (scaler.intercept and feature >= scaler.place)

    @property
    def unit(self) -> float:
        """What one deviation of a feature becomes."""
        return self._scaler.unit

    @property
    def constant(self) -> float:
        """The value of the constant in a scaled row, if there is one."""
        return self._scaler.constant if isinstance(self._scaler, SparseScaler) else self.unit

    def coef(self) -> Array:
        """Return the weights (K, columns) of the linear model that it is, or leans on most."""
        if isinstance(self.batch_fit, np.ndarray):
            return self.batch_fit
        if isinstance(self.batch_fit, ColumnModel):
            W = np.zeros((self.n_classes, self.n_columns))
            W[:, self.batch_fit.columns] = self.batch_fit.weights.T
            return W
        if self.learner is None:
            raise InvalidInputError("there are no weights before the second class")
        return self.learner.coef()

    def expansion_line(self) -> tuple[Array, Array]:
        """Return `linear` of the model at which the evidence expands rows; 0 without a learner."""
        if self.learner is None:
            return np.zeros((1, self.n_features)), np.zeros(1)
        return self.linear(self.learner.expansion_point())

    def linear(self, W: Array | None = None) -> tuple[Array, Array]:
        """Return weights (K, d) of raw features, and constants (K,): logits, but for clipping.

        Of a model (K, columns) of the scaled columns, by default `coef`.
        """
        scaler = self._scaler
        assert isinstance(scaler, OnlineScaler)
        W = self.coef() if W is None else W
        a, b = scaler.line()
        own = W[:, [self.column_of(j) for j in range(self.n_features)]]
        constants = own @ b
        if scaler.intercept:
            constants = constants + W[:, scaler.place] * self.unit
        return own * a, constants

    @property
    def n_places(self) -> int:
        """The number of columns that occurred in a wide model; each has weights of every class."""
        return self.learner.n_columns if isinstance(self.learner, SparseSgd) else 0

    def n_places_with(self, X: SparseInput) -> int:
        """Return how many columns will have occurred in a wide model with these raw rows."""
        places = [np.array([0, *X.slots]) * SPACE]  # of the constant and of numbers
        places += [rows.indices + np.int64(slot) * SPACE for slot, rows in X.parts.items()]
        found = np.concatenate(places)
        if isinstance(self.learner, SparseSgd):
            return self.learner.n_columns_with(found)
        return len(np.unique(found))

    def column_weights(self) -> tuple[Any, Array]:
        """Return the columns (n,) of a wide model that occurred, and their weights (n, K)."""
        if isinstance(self.batch_fit, ColumnModel):
            return self.batch_fit.columns, self.batch_fit.weights
        assert isinstance(self.learner, SparseSgd)
        return self.learner.column_weights()

    def _share_holdout(self) -> None:
        """Let the learner keep experts that the hold-out puts before all others."""
        if self.learner is not None:
            self.learner.standing = self.holdout.losses_by_expert()

    def grow(
        self,
        *,
        n_features: int | None = None,
        n_numbers: int | None = None,
        n_classes: int | None = None,
    ) -> None:
        """Make room for features, 0 so far, and for classes that are declared, not seen."""
        d = self.n_features if n_features is None else n_features
        K = self.n_classes if n_classes is None else n_classes
        self._grow(
            validation.count("n_features", d, self.n_features),
            0 if n_numbers is None else n_numbers,
            validation.count("n_classes", K, self.n_classes),
        )

    def _grow(
        self,
        n_features: int,
        n_numbers: int,
        n_classes: int,
        late_missing: Sequence[bool] = (),
        late_numeric: Sequence[bool] = (),
    ) -> None:
        """Grow to these sizes, or, should memory not suffice, not at all."""
        scaler, learner = self._scaler, self.learner
        if (n_features, n_classes) == (self.n_features, self.n_classes):
            return
        self._check_growing()
        n_late = n_features - self.n_features
        step = scaler.n_columns // (scaler.n_slots + 1) if isinstance(scaler, SparseScaler) else 1
        n_columns = scaler.n_columns + step * n_late
        if learner is None and n_classes >= 2:
            learner = self._make(n_columns, n_classes)
        elif learner is not None:
            if not self.sparse:
                catalogue.check_size(self.name, n_columns, n_classes)
            learner = learner.grown(n_features=n_columns, n_classes=n_classes)
        if n_late and isinstance(scaler, SparseScaler):
            scaler.grow(n_features, max(n_numbers, scaler.n_numbers))
        elif n_late and isinstance(scaler, OnlineScaler):
            scaler.grow(n_features, late_missing[-n_late:])
        late = list(late_numeric[-n_late:]) if n_late else []
        self.evidence.numeric += late if len(late) == n_late else [True] * n_late
        self.learner, self.n_classes, self.batch_fit = learner, n_classes, None
        self._predicted = None, None
        self._share_holdout()

    def run(
        self,
        X: Any,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        late_missing: Sequence[bool] = (),
        late_numeric: Sequence[bool] = (),
    ) -> tuple[Array, Array]:
        """Predict, then learn, raw rows X (T, d) with class numbers y (T,), one by one.

        A number equal to `n_classes` is a new class, and columns beyond `n_features` are new
        features: 0 so far, or missing where `late_missing`; numbers, or indicators where not
        `late_numeric`. y may be soft labels (T, K): classes beyond `n_classes` are new, and
        known from the first row that gives them, or a later class, probability. Returns P (T, K)
        and u (T,), each row from before its label was learned: P[t, k] is the probability of
        class k if class k is known by then and the example is of a known class, and u[t] that
        it is not. Every row is checked before the first round.
        """
        X = self._check_rows(X)
        T, n_features, n_numbers = len(X), self.n_features, 0
        if isinstance(X, SparseInput):
            n_features, n_numbers = max(n_features, *X.slots, *X.parts), X.numbers.shape[1]
        else:
            n_features = X.shape[1]
        labels, soft, known = encode_labels(y, T, self.n_classes)
        n_classes = int(known.max(initial=self.n_classes))
        weights = validation.weights(weight, T)
        validation.check_max_weight(weights, self.max_weight)
        if n_classes > self.n_classes:
            self._check_growing()
        self._n_classes_ahead = n_classes
        self._grow(n_features, n_numbers, self.n_classes, late_missing, late_numeric)
        P, u = np.zeros((T, n_classes)), np.empty(T)
        self.holdout_losses = np.empty(T)
        holdout, evidence, scores, stripe_end, start = self.holdout, self.evidence, None, 0, 0
        while start < T:
            if scores is None and self.n_rounds >= holdout.next_round:
                stripe_end, ahead = start + holdout.stripe_rows, None
                if stripe_end <= T:
                    stripe = slice(start, stripe_end)
                    ahead = RawBatch.of(X[stripe], labels[stripe], soft[stripe], weights[stripe])
                scores = holdout.begin(self.n_rounds, self.learner, self._scaler, ahead)
            n_ahead = holdout.next_round - self.n_rounds if scores is None else stripe_end - start
            stop = min(start + n_ahead, start + evidence.rows_ahead, T)
            is_new = known[start:stop] > self.n_classes
            if is_new.any():  # a part is rows of known classes, or one row with a new class
                stop = start + max(1, int(is_new.argmax()))
            part = slice(start, stop)
            Z = self._scaler.learn_checked(X[part])
            rows = Rows(Z, validation.norms(Z), labels[part], soft[part], weights[part])
            if is_new[0]:
                u[start] = self.unseen_probability
                self._learn_new(rows, int(known[start]), P[start])
            else:
                u[part] = (self.n_new + 0.5) / (self.n_rounds + np.arange(stop - start) + 1.0)
                P[part, : self.n_classes] = self._learn_known(rows)
            self.holdout_losses[part] = holdout.loss
            batch = RawBatch.of(X[part], *rows[2:], P[part] if self.sparse else P[:0])
            evidence.n_classes = self.n_classes
            evidence.add(batch)
            if not evidence.rows_ahead:
                evidence.settle(self.expansion_line)
            start = stop
            if scores is not None and start == stripe_end:  # as if the rows had been kept till now
                holdout.add_scores(scores)
                scores = None
                self._share_holdout()
            elif holdout.is_open and holdout.add(self.n_rounds, batch):
                self._share_holdout()
            self.holdout_losses[start - 1] = holdout.loss
        self._n_classes_ahead = 0
        return P, u

    def _learn_known(self, rows: Rows) -> Array:
        """Learn rows of known classes; return their probabilities."""
        self._predicted, self.batch_fit = (None, None), None
        self.n_rounds += len(rows.X)
        if self.learner is None:
            return np.ones((len(rows.X), self.n_classes))
        soft = np.ascontiguousarray(rows.soft[:, : self.n_classes])
        return self.learner._run_all(rows._replace(soft=soft), None)

    def _learn_new(self, row: Rows, n_classes: int, p: Array) -> None:
        """Learn the first example of new classes, predicted into p without knowing of them."""
        if self.learner is not None:
            p[: self.n_classes] = self.learner._predict(_context(row.X, self.learner))
        elif self.n_classes:
            p[: self.n_classes] = 1.0
        self._grow(self.n_features, 0, n_classes)
        self.n_new += 1
        self.n_rounds += 1
        if self.learner is not None:
            soft = np.ascontiguousarray(row.soft[0, :n_classes]) if len(row.soft) else _NO_SOFT
            x, label = _context(row.X, self.learner), int(row.labels[0])
            self.learner._learn(x, label, soft, float(row.weights[0]))

    def _check_rows(self, X: Any, n_features: int | None = None) -> Any:
        """Return checked raw rows, of as many features as there are, or at least so many."""
        if self.sparse:
            if not isinstance(X, SparseInput):
                X = SparseInput.of_rows(SparseRows.checked(X))
            for rows in X.parts.values():
                validation.rows_of_contexts(rows, rows.shape[1])
            validation.contexts(X.numbers, X.numbers.shape[1], gaps=True)
            return X
        X = validation.numbers("X", X)
        d = X.shape[1] if X.ndim == 2 else 0
        return validation.contexts(X, n_features or max(d, self.n_features), gaps=True)[0]

    @property
    def intercept_column(self) -> int | None:
        """The column of the constant, if there is one."""
        return self._scaler.place if self._scaler.intercept else None

    @property
    def n_bytes_to_predict(self) -> int:
        """About how much memory a copy takes that `copy_to_predict` returns."""
        return 0 if self.learner is None else self.learner.n_bytes

    @property
    def n_bytes(self) -> int:
        """About how much memory the learner and the rows that are kept take."""
        return self.n_bytes_to_predict + self.evidence.n_bytes + self.holdout.n_bytes

    def certificate(
        self, loss: float, columns: str = COLUMNS, *, B: float | None = None
    ) -> Certificate | None:
        """Return what is proven beside a total loss, None before the second class.

        See `StreamEvidence.certificate`.
        """
        own = None if self.learner is None or self.sparse else self.linear
        return self.evidence.certificate(
            loss, self.n_rounds, self.expansion_line, columns, own=own, B=B
        )

    def to_record(self) -> Record:
        """Return the full state as a record; with learner, scaler, hold-out and evidence."""
        config = {"learner": self.name, "settings": self.settings, "n_classes": self.n_classes}
        config |= {"n_rounds": self.n_rounds, "n_new": self.n_new, "B": self.B}
        record = Record("OnlinePipeline", config, {})
        serialization.put_inside(record, "scaler", self._scaler)
        serialization.put_inside(record, "holdout", self.holdout)
        serialization.put_inside(record, "evidence", self.evidence)
        if self.learner is not None:
            serialization.put_inside(record, "state", self.learner)
        if isinstance(self.batch_fit, ColumnModel):
            record.arrays["fitted_columns"] = self.batch_fit.columns.copy()
            record.arrays["fitted_weights"] = self.batch_fit.weights.copy()
        elif self.batch_fit is not None:
            record.arrays["refitted"] = self.batch_fit.copy()
        return record

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a model that goes on exactly where the recorded one stopped."""
        scaler = record.inner("scaler", OnlineScaler, SparseScaler)
        n_classes = record.count("n_classes")
        learner = None
        if "state" in record.config:
            learner = record.inner("state", Learner)
            if (learner.n_features, learner.n_classes) != (scaler.n_columns, n_classes):
                raise StateFileError("an OnlinePipeline state holds a learner of another size")
        elif n_classes >= 2:
            raise StateFileError("an OnlinePipeline state lacks its learner")
        with serialization.state_file_errors(record.kind):
            name = record.word("learner")
            # A learner of full size would be made only to be replaced by the recorded one; those
            # that cannot grow insist on it.
            known = 0 if catalogue.grows(name) else n_classes
            settings, sparse = record.word("settings"), isinstance(scaler, SparseScaler)
            model = cls(name, settings, n_features=1, n_classes=known, sparse=sparse)
            model.B = (
                None if record.word("B") is None else validation.positive("B", record.word("B"))
            )
        model._scaler, model.learner, model.n_classes = scaler, learner, n_classes
        model.holdout = record.inner("holdout", HoldoutWeights)
        model.evidence = record.inner("evidence", StreamEvidence)
        if len(model.evidence.numeric) != model.n_features or model.evidence.n_classes > n_classes:
            raise StateFileError("an OnlinePipeline state holds evidence of another size")
        model.n_rounds, model.n_new = record.count("n_rounds"), record.count("n_new")
        if learner is not None:
            if "refitted" in record.arrays:
                model.batch_fit = record.part("refitted", (n_classes, scaler.n_columns))
            if "fitted_columns" in record.arrays:
                columns = record.part("fitted_columns", (None,), np.int64)
                with serialization.state_file_errors(record.kind):
                    check_columns(columns, scaler.n_columns)
                weights = record.part("fitted_weights", (len(columns), n_classes))
                model.batch_fit = ColumnModel(columns, weights)
        model._share_holdout()
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the record, of which a prediction changes no byte."""
        return _revive_pipeline, (self.to_record(), self.device)

    def __repr__(self) -> str:
        return f"OnlinePipeline({self.name!r}, {self.settings}, n_features={self.n_features})"


def _revive_pipeline(record: Record, device: str) -> OnlinePipeline:
    return OnlinePipeline.from_record(record).to(device)


_NO_SOFT = validation.NO_SOFT


def _context(X: Any, learner: Learner) -> Any:
    """Return the only row of X as the learner takes it."""
    if not isinstance(X, SparseRows):
        return X[0]
    return X.row(0) if learner.takes_sparse else X.dense()[0]
