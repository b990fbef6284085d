"""Numbers around a learner: raw rows and class numbers in, probabilities out; it grows."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import serialization, validation
from folklearn.arrays import TINY, Array, Labels, softmax
from folklearn.batch.penalised import MAX_PASSES
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.map_reduce import MapReduce
from folklearn.evidence.passes import LocalPasses, Passes
from folklearn.kernels.blas import OWN, device_named
from folklearn.kernels.on_torch.device import Device
from folklearn.learners import catalogue
from folklearn.learners.backends import PAIRS, WIDE, select_backend
from folklearn.learners.base import Learner
from folklearn.learners.experts import ExpertLearner
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.model.holdout import HeldRows, HoldoutWeights
from folklearn.model.labels import encode_labels
from folklearn.model.refit import at_hand, freed, refit_dense, refit_wide
from folklearn.model.sparse_scaler import SPACE, SparseInput, SparseScaler
from folklearn.model.stream_evidence import COLUMNS, StreamEvidence
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRows, check_columns
from folklearn.validation import Rows

Raw = Callable[[], Iterable[tuple[Any, ArrayLike, ArrayLike]]]  # X, y, weights


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
        # Of features that come late, whether they are numbers, which were missing until then;
        # others, categories and what svmlight leaves out, were 0.
        self.late_numbers: Sequence[bool] = ()
        self.late_numeric: Sequence[bool] = ()  # and which are numbers and no indicators
        self.B = B
        self._asked: tuple[Any, Any] = None, None  # the row predicted last, and what was predicted
        self._n_coming = 0  # classes that the rows in hand bring: a learner is chosen for them all
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
        # What predicts after `refit`, a dense one is (K, columns).
        self._refitted: Array | ColumnModel | None = None
        first = self._make(self._scaler.n_columns, max(2, self.n_classes))  # hears bad settings
        self.max_weight = first.max_weight  # above which it refuses
        if self.n_classes >= 2:
            self.learner = first

    def _check_growing(self) -> None:
        if not self.can_grow:
            raise InvalidInputError(
                f"{self.name!r} is no learner that takes classes as they come, or features; those "
                f"are: {', '.join(catalogue.growing())}"
            )

    @property
    def can_grow(self) -> bool:
        """Whether its learner takes classes and features that come late."""
        return catalogue.grows(self.name)

    def _make(self, n_columns: int, n_classes: int) -> Learner:
        settings = self.settings
        if self.name == "auto":  # for the classes that are coming with these rows too
            size = n_columns, max(n_classes, self._n_coming)
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

    def _is_wide(self, device: Device | None) -> bool:
        """Tell whether a fit is too large for sums over all pairs of classes."""
        if isinstance(self.learner, ExpertLearner):
            return False
        return self.sparse or select_backend(self.n_columns, self.n_classes, device) != PAIRS

    @property
    def n_features(self) -> int:
        """The number of raw features so far, or of slots."""
        scaler = self._scaler
        return scaler.n_slots if isinstance(scaler, SparseScaler) else scaler.n_features

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen."""
        return float(self._unseen(self.n_rounds))

    def _unseen(self, n_rounds: Any) -> Any:
        """Return it after so many rounds (one number, or several) without a new class since."""
        return (self.n_new + 0.5) / (n_rounds + 1.0) if self.n_classes else 1.0

    def predict(self, X: Any) -> Array:
        """Return the probabilities of the known classes, given that it is one: (T, d), (T, K).

        Of experts that were judged, as the frozen record weighs them.
        """
        Z, learner = self._scaler.transform(self._raw(X, self.n_features)), self.learner
        if learner is None:
            return np.ones((len(Z), self.n_classes))
        if isinstance(self._refitted, ColumnModel):
            return self._refitted.predict(Z)
        if self._refitted is not None:
            return softmax(Z @ self._refitted.T)
        norms = validation.norms(Z)
        if not self.holdout.has_judged(learner):
            return learner._predict_all(Z, norms)
        P = learner._expert_predictions(Z, norms)
        np.maximum(P, TINY, out=P)
        mixed: Array = np.tensordot(self.holdout.weights(learner), P, 1)
        return mixed

    def predict_next(self, X: Any) -> Array:
        """Return the probabilities of the known classes for rows that come next: (T, d), (T, K)."""
        if self.learner is None or self._refitted is not None:
            return self.predict(X)
        Z = self._scaler.transform(self._raw(X, self.n_features))
        return self.learner._predict_all(Z, validation.norms(Z))

    def predicting(self) -> Self:
        """Return a copy that predicts as this pipeline does now, and must not learn."""
        own = self._shallow()
        own._scaler, own.learner = copy.deepcopy((self._scaler, self.learner))
        own.holdout = self.holdout.record_only()
        own.evidence = StreamEvidence()  # a copy that learns nothing proves nothing
        return own

    def predict_row(self, x: Array) -> Array:
        """Return `predict_next` of one raw row of floats, not checked but for its norm."""
        scaler, learner = self._scaler, self.learner
        assert isinstance(scaler, OnlineScaler)
        z = scaler.one(x, False)
        if isinstance(self._refitted, ColumnModel):
            p: Array = self._refitted.predict(z[None, :])[0]
            return p
        if self._refitted is not None:
            return softmax(self._refitted @ z)
        if learner is None:
            return np.ones(self.n_classes)
        p = learner._predict(z)
        self._asked = x, p
        return p

    def learn_row(self, x: Array, y: Any, weight: float = 1.0) -> Array:
        """Learn one raw row of floats, not checked but for its norm; return what was predicted.

        y is a class number, or a soft label: probabilities of the known classes (K,) and of new
        ones behind them. After `predict_row` of the same row nothing is computed again.
        """
        scaler, n_classes = self._scaler, self.n_classes
        assert isinstance(scaler, OnlineScaler)
        label, soft = y, validation.NO_SOFT
        if type(y) is not int or not 0 <= y < n_classes:
            labels, softs, known = encode_labels([y], 1, n_classes)
            label, n_classes = int(labels[0]), int(known[0])
            soft = softs[0, :n_classes] if len(softs) else soft
        if type(weight) is not float or weight != 1.0:
            weight = validation.weight(weight)
        if weight > self.max_weight:
            validation.check_max_weight(weight, self.max_weight)
        if x.size > scaler.n_features:
            scaler.check_usable(x)
            if self.learner is not None:  # of both, before any of them grows
                n_columns = scaler.n_columns + x.size - scaler.n_features
                catalogue.check_size(self.name, n_columns, n_classes)
            self._make_room(x.size, 0, self.n_classes)
        if self.holdout.rows_ahead(self.n_rounds) <= 0:
            scaler.check_usable(x)
            self.holdout.begin(self.n_rounds, self.learner, scaler, None)
        p, is_new = _ALL, n_classes > self.n_classes
        if is_new:  # predicted by those who do not know of it
            p = self.predict_row(x) if self.n_classes else _NOTHING
            self._make_room(self.n_features, 0, n_classes)
        elif self._refitted is not None:
            p = self.predict_row(x)
        z, learner = scaler.one(x, True), self.learner
        if not is_new and learner is not None and self._refitted is None:
            asked, p = self._asked
            if asked is not x and (asked is None or asked.tobytes() != x.tobytes()):
                p = learner._predict(z)
        self._asked = None, None
        self.n_new += is_new
        self.n_rounds += 1
        self._refitted = None
        if learner is not None:
            learner._learn(z, label, soft, weight)
        self.evidence.n_classes = self.n_classes
        self.evidence.hold_row(x, label, soft, weight)
        if not self.evidence.rows_ahead:
            self.evidence.settle(self.expansion_line)
        if self.holdout.is_open and self.holdout.hold_row(self.n_rounds, x, label, soft, weight):
            self._tell()
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
        """What the constant is in a scaled row, if there is one."""
        return self._scaler.constant if isinstance(self._scaler, SparseScaler) else self.unit

    def coef(self) -> Array:
        """Return the weights (K, columns) of the linear model that it is, or leans on most."""
        if isinstance(self._refitted, np.ndarray):
            return self._refitted
        if isinstance(self._refitted, ColumnModel):
            W = np.zeros((self.n_classes, self.n_columns))
            W[:, self._refitted.columns] = self._refitted.weights.T
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
        if isinstance(self._refitted, ColumnModel):
            return self._refitted.columns, self._refitted.weights
        assert isinstance(self.learner, SparseSgd)
        return self.learner.column_weights()

    def _tell(self) -> None:
        """Let the learner know how its experts stand in the frozen record."""
        if self.learner is not None:
            self.holdout.tell(self.learner)

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
        self._make_room(
            validation.count("n_features", d, self.n_features),
            0 if n_numbers is None else n_numbers,
            validation.count("n_classes", K, self.n_classes),
        )

    def _make_room(self, n_features: int, n_numbers: int, n_classes: int) -> None:
        """Grow to these sizes, or, should memory not suffice, not at all."""
        scaler = self._scaler
        if (n_features, n_classes) == (self.n_features, self.n_classes):
            return
        self._check_growing()
        more = n_features - self.n_features
        step = scaler.n_columns // (scaler.n_slots + 1) if isinstance(scaler, SparseScaler) else 1
        n_columns = scaler.n_columns + step * more
        learner = self.learner
        if learner is None and n_classes >= 2:
            learner = self._make(n_columns, n_classes)
        elif learner is not None:
            if not self.sparse:
                catalogue.check_size(self.name, n_columns, n_classes)
            learner = learner.grown(n_features=n_columns, n_classes=n_classes)
        if more and isinstance(scaler, SparseScaler):
            scaler.grow(n_features, max(n_numbers, scaler.n_numbers))
        elif more and isinstance(scaler, OnlineScaler):
            scaler.grow(n_features, self.late_numbers[-more:])
        late = list(self.late_numeric[-more:]) if more else []
        self.evidence.numeric += late if len(late) == more else [True] * more
        self.learner, self.n_classes, self._refitted = learner, n_classes, None
        self._asked = None, None
        self._tell()

    def run(self, X: Any, y: ArrayLike, *, weight: ArrayLike | None = None) -> tuple[Array, Array]:
        """Predict, then learn, raw rows X (T, d) with class numbers y (T,), one by one.

        A number equal to `n_classes` is a new class, and columns beyond `n_features` are new
        features, 0 so far. y may be soft labels (T, K): classes beyond `n_classes` are new, and
        known from the first row that gives them, or a later class, probability. Returns P (T, K)
        and u (T,), each row from before its label was learned: P[t, k] is the probability of
        class k if class k is known by then and the example is of a known class, and u[t] that
        it is not. Every row is checked before the first round.
        """
        X = self._raw(X)
        T = len(X)
        labels, soft, known = encode_labels(y, T, self.n_classes)
        n_classes = int(known.max(initial=self.n_classes))
        weights = validation.weights(weight, T)
        validation.check_max_weight(weights, self.max_weight)
        if n_classes > self.n_classes:
            self._check_growing()
        self._n_coming = n_classes
        self._make_room(*self._sizes(X), self.n_classes)
        P, u = np.zeros((T, n_classes)), np.empty(T)
        self.holdout_losses = np.empty(T)
        start, frozen, judged, end = 0, self.holdout, None, 0
        while start < T:
            if frozen.rows_ahead(self.n_rounds) <= 0:
                end = start + frozen.length
                whole = _held(X, labels, soft, weights, slice(start, end)) if end <= T else None
                judged = frozen.begin(self.n_rounds, self.learner, self._scaler, whole)
            n_ahead = frozen.rows_ahead(self.n_rounds) if judged is None else end - start
            part = slice(start, min(start + n_ahead, start + self.evidence.rows_ahead, T))
            Z = self._scaler.learn_checked(X[part])
            rows = Rows(Z, validation.norms(Z), labels[part], soft[part], weights[part])
            self._learn_rows(rows, known[part], P[part], u[part])
            self.holdout_losses[part] = frozen.loss
            start = part.stop
            self._hold(X[part], rows, P[part])
            if judged is not None and start == end:  # as if the rows had been held until now
                frozen.take_in(judged)
                judged = None
                self._tell()
            elif frozen.is_open and frozen.hold(
                self.n_rounds, _held(X, labels, soft, weights, part).copy()
            ):
                self._tell()
            self.holdout_losses[start - 1] = frozen.loss
        self._n_coming = 0
        return P, u

    def _hold(self, X: Any, rows: Rows, P: Array) -> None:
        """Let the evidence have raw rows that were learned, at most as many as it takes."""
        self.evidence.n_classes = self.n_classes
        self.evidence.hold(X, rows.labels, rows.soft, rows.weights, P)
        if not self.evidence.rows_ahead:
            self.evidence.settle(self.expansion_line)

    def _learn_rows(self, rows: Rows, known: Labels, P: Array, u: Array) -> None:
        """Predict into P and u, then learn, rows after which so many classes are known."""
        T, start = len(P), 0
        while start < T:
            news = np.flatnonzero(known[start:] > self.n_classes)
            stop = start + int(news[0]) if news.size else T
            P[start:stop, : self.n_classes] = self._learn(rows.part(start, stop), u[start:stop])
            if stop < T:
                new = rows.part(stop, stop + 1)
                self._learn_new(new, int(known[stop]), P[stop], u[stop : stop + 1])
                stop += 1
            start = stop

    def _raw(self, X: Any, n_features: int | None = None) -> Any:
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

    def _sizes(self, X: Any) -> tuple[int, int]:
        """Return the features, or slots, that there are with these rows, and numbers of slots."""
        if isinstance(X, SparseInput):
            n_slots = max(self.n_features, *X.slots, *X.parts)
            return n_slots, X.numbers.shape[1]
        return X.shape[1], 0

    def refit(
        self,
        blocks: Raw,
        *,
        most_passes: int = MAX_PASSES,
        seed: int = 0,
        n_jobs: int = 1,
        device: str | None = None,
    ) -> None:
        """Fit all rows once more, together: penalised maximum likelihood, see `penalised`.

        `blocks` returns the rows that were learned, raw, anew for every pass: an iterable of X
        (T, d), class numbers (T,) or soft labels (T, K), and weights (T,). They are scaled as the
        next row would be, the constant ten times as large so that the penalty hardly counts for
        it, and the fit predicts until something more is learned; learner and certificate do not
        change. Without a learner there is nothing to fit. `n_jobs` threads share every pass, -1 for
        as many as there are cores, with the same result to the last bit; ``device`` is where the
        sums are made, by default that of the learner.

        Problems too large for all pairs of classes, and sparse rows, are fitted by `fit_sparse`. It
        takes memory for K numbers a row and for the values that are not 0; should this machine not
        have it, nothing is fitted, and a line says so. One thread does it, whatever `n_jobs` is.
        """
        engine = MapReduce.from_options(n_jobs, self.device if device is None else device)
        if self.learner is None:
            return

        limits = {"most_passes": most_passes, "seed": seed}
        if not self._is_wide(engine.device):
            rows = at_hand(lambda: (self.rows_to_fit(*block) for block in blocks()))
            self.refit_over(LocalPasses(rows, engine), **limits)
            return

        def scaled() -> Iterator[Rows]:
            return (self._scaled(*block) for block in blocks())

        fitted = refit_wide(scaled, self.learner, self._constant, **limits)
        self._refitted = self._refitted if fitted is None else fitted

    def refit_over(self, passes: Passes, *, most_passes: int = MAX_PASSES, seed: int = 0) -> None:
        """Do so with dense rows wherever they lie, as `rows_to_fit` returns them."""
        if self.learner is None:
            return
        self.check_fit_size(passes.device)
        self._refitted = refit_dense(
            passes, self.learner, self._constant, most_passes=most_passes, seed=seed
        )

    def check_fit_size(self, device: Device | None = None) -> None:
        """Raise if there is too much for sums over all pairs of classes, as `refit_over` makes."""
        if self._is_wide(device):
            raise InvalidInputError(
                f"{self.n_classes} classes of {self.n_columns} columns are too many for sums over "
                "all pairs of classes, and words are too: fit them on one machine, `Model.fit`"
            )

    def rows_to_fit(self, X: Any, y: ArrayLike, weight: ArrayLike) -> Rows:
        """Return raw rows, which must be dense, as `refit_over` takes them."""
        return freed(self._scaled(X, y, weight), self._constant)

    def _scaled(self, X: Any, y: ArrayLike, weight: ArrayLike) -> Rows:
        """Return raw rows scaled as the next one would be, without those of weight 0."""
        Z: Any = self._scaler.transform(self._raw(X, self.n_features))
        weights = validation.weights(weight, len(Z))
        labels, soft = validation.labels(y, len(Z), self.n_classes)
        rows = Rows(Z, validation.norms(Z), labels, soft, weights)
        return rows.of(weights > 0.0)  # the others must not even decide the folds

    @property
    def _constant(self) -> int | None:
        """The column of the constant, if there is one."""
        return self._scaler.place if self._scaler.intercept else None

    def _learn(self, rows: Rows, u: Array) -> Array:
        """Learn rows of known classes; return their probabilities."""
        T = len(rows.X)
        self._asked = None, None
        u[:] = self._unseen(self.n_rounds + np.arange(T))
        self.n_rounds += T
        self._refitted = None
        if self.learner is None:
            return np.ones((T, self.n_classes))
        return self.learner._run_all(self._of_known(rows), None)

    def _of_known(self, rows: Rows) -> Rows:
        """Return rows whose soft labels have a column for every known class, in C order."""
        return rows._replace(soft=np.ascontiguousarray(rows.soft[:, : self.n_classes]))

    def _learn_new(self, row: Rows, n_classes: int, p: Array, u: Array) -> None:
        """Learn the first example of new classes, predicted without knowing of them."""
        if self.learner is not None:
            p[: self.n_classes] = self.learner._predict(_context(row.X, self.learner))
        elif self.n_classes:
            p[: self.n_classes] = 1.0
        u[0] = self.unseen_probability
        self._make_room(self.n_features, 0, n_classes)
        self.n_new += 1
        self.n_rounds += 1
        if self.learner is not None:
            X, _, labels, soft, weights = self._of_known(row)
            one = soft[0] if len(soft) else validation.NO_SOFT
            x = _context(X, self.learner)
            self.learner._learn(x, int(labels[0]), one, float(weights[0]))

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
        """Return the full state as a record; learner, scaler and frozen record lie inside."""
        config = {"learner": self.name, "settings": self.settings, "n_classes": self.n_classes}
        config |= {"n_rounds": self.n_rounds, "n_new": self.n_new, "B": self.B}
        record = Record("OnlinePipeline", config, {})
        serialization.put_inside(record, "scaler", self._scaler)
        serialization.put_inside(record, "holdout", self.holdout)
        serialization.put_inside(record, "evidence", self.evidence)
        if self.learner is not None:
            serialization.put_inside(record, "state", self.learner)
        if isinstance(self._refitted, ColumnModel):
            record.arrays["fitted_columns"] = self._refitted.columns.copy()
            record.arrays["fitted_weights"] = self._refitted.weights.copy()
        elif self._refitted is not None:
            record.arrays["refitted"] = self._refitted.copy()
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
                raise StateFileError("a OnlinePipeline state holds a learner of another size")
        elif n_classes >= 2:
            raise StateFileError("a OnlinePipeline state lacks its learner")
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
            raise StateFileError("a OnlinePipeline state holds evidence of another size")
        model.n_rounds, model.n_new = record.count("n_rounds"), record.count("n_new")
        if learner is not None:
            if "refitted" in record.arrays:
                model._refitted = record.part("refitted", (n_classes, scaler.n_columns))
            if "fitted_columns" in record.arrays:
                columns = record.part("fitted_columns", (None,), np.int64)
                with serialization.state_file_errors(record.kind):
                    check_columns(columns, scaler.n_columns)
                weights = record.part("fitted_weights", (len(columns), n_classes))
                model._refitted = ColumnModel(columns, weights)
        model._tell()
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the record, of which a prediction changes no byte."""
        return _revived, (self.to_record(), self.device)

    def __repr__(self) -> str:
        return f"OnlinePipeline({self.name!r}, {self.settings}, n_features={self.n_features})"


def _revived(record: Record, device: str) -> OnlinePipeline:
    return OnlinePipeline.from_record(record).to(device)


_NOTHING: Array = np.empty(0)  # predicted while no class is known
_ALL: Array = np.ones(1)  # predicted while one class is


def _held(X: Any, labels: Labels, soft: Array, weights: Array, part: slice) -> HeldRows:
    """Return a part of the rows, as a stripe keeps them."""
    return HeldRows(X[part], labels[part], soft[part], weights[part])


def _context(X: Any, learner: Learner) -> Any:
    """Return the only row of X as the learner takes it."""
    if not isinstance(X, SparseRows):
        return X[0]
    return X.row(0) if learner.takes_sparse else X.dense()[0]
