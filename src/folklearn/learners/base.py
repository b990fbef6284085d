"""The contract of every learner.

Public methods check their input, once. Callers that have checked it already (a mixture, a model of
raw rows, an agent) call the methods with an underscore.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError, warn_of_data
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.kernels.evidence import N_TOTALS, ROUNDS
from folklearn.kernels.linear_models import predict_linear, predict_linear_rows
from folklearn.progress import Progress, Report, report_progress
from folklearn.serialization import Serializable
from folklearn.sparse import SparseRows, dense_row, is_sparse
from folklearn.validation import Rows


class WarmStart(NamedTuple):
    """What a learner takes over from another one."""

    W: Array  # (K, d), the model to begin with
    curvature: Array  # (K, d, d), of every class: the sum of w p_i (1 - p_i) xx'
    past: LinearEvidence  # of first order, of the rounds so far
    loss: float  # of these rounds
    n_rounds: int


class LeadingModel(NamedTuple):
    """The linear model of largest weight in a mixture, and what it sees of one context."""

    name: str
    share: float  # its weight
    columns: NDArray[Any]  # (n,) of the context
    values: Array  # (n,)
    W: Array  # (K, n), its weights there
    bias: Array  # (K,), what else it adds to the logits
    is_on_top: bool = False  # added to the logits of another model, see `StackedSgd`


CHUNK_FLOPS = 1e8  # work between two chances to report progress or to be interrupted
_MAX_NORM_RATIO = 30.0  # of the median row to R, above which there is a warning
_CLEARLY_WORSE, _GOOD_ENOUGH = 1.05, 1.3  # times the least loss


class Learner(Serializable, ABC):
    """What every learner does; `predict` never changes what comes after it.

    It is for one thread at a time: a prediction may be kept for the update that follows it. How to
    write one is in ARCHITECTURE.md.
    """

    n_features: int
    n_classes: int
    max_weight: float = math.inf  # the largest sample weight that it accepts
    B: float = math.inf  # the largest row norm of its class, of learners of the paper
    R: float = math.inf  # the norm of x up to which `regret_bound` holds
    takes_sparse: bool = False  # if not, sparse contexts are made dense, a chunk at a time
    n_terms: int = 0  # at the beginning of a context, see `TermMixture`
    # Losses of its experts by name on the hold-out rows (`folklearn.model.holdout`): where another
    # one is best there, those that are good there do not retire here. Not saved, not `grown`.
    standing: Mapping[str, float] = MappingProxyType({})
    _shape: tuple[int]  # of a context
    _n_rounds: int = 0
    _round_flops: float = math.inf  # about, of compiled rounds
    _warned = False

    def _size(self, n_features: int, n_classes: int, **numbers: float) -> None:
        """Set the sizes, and parameters that are positive numbers."""
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self._shape = (self.n_features,)
        for name, value in numbers.items():
            setattr(self, name, validation.positive(name, value))

    @property
    def _sizes(self) -> dict[str, Any]:
        return {"n_features": self.n_features, "n_classes": self.n_classes}

    @abstractmethod
    def _predict(self, x: Array) -> Array:
        """Return the probabilities (K,) of a context that is checked but for its norm."""

    @abstractmethod
    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        """Learn one example, return its loss; NaN, all unchanged, if |x| is unusable.

        The label is a class, or -1 and its probabilities are in `soft` (K,).
        """

    def _predict_batch(self, X: Any) -> Array:
        """Return the probabilities (T, K) of checked contexts, all from the current state."""
        return np.array([self._predict(x) for x in X]).reshape(-1, self.n_classes)

    def _predict_rows(self, X: Any) -> Array:
        """Return the probabilities (T, K) of checked contexts, dense or sparse."""
        if self.takes_sparse or not isinstance(X, SparseRows):
            return self._predict_batch(X)
        P = np.empty((len(X), self.n_classes))
        for rows in X.dense_parts():
            P[rows] = self._predict_batch(X[rows].dense())
        return P

    def _expert_names(self) -> list[str]:
        """Return what it mixes, by name: a learner that mixes nothing is its only expert."""
        return [type(self).__name__]

    def _expert_predictions(self, X: Any) -> Array:
        """Return the probabilities (E, T, K) of each of its experts for checked contexts."""
        return self._predict_rows(X)[None]

    def _mixed_models(self, weights: Array | None = None) -> list[tuple[float, Any]]:
        """Return what it mixes, with shares: weights (K, n + 1) of softmax models, or itself.

        They are of the last n columns and a constant 1; the experts' `weights` by default its own.
        """
        return [(1.0, self)]

    def _worth_keeping(self, hopeless: Any, weights: Array) -> NDArray[np.bool_]:
        """Tell which of the hopeless experts (E,) stay, because they are good on the hold-out rows.

        That is so if the expert of the largest weight is clearly not the best one there.
        """
        losses = np.array(self._standings())
        best = losses.min()
        if not losses[int(weights.argmax())] > _CLEARLY_WORSE * best:
            return np.zeros(len(losses), bool)
        return np.asarray(hopeless, bool) & (losses <= _GOOD_ENOUGH * best)

    def _standings(self) -> list[float]:
        """Return the losses on the hold-out rows of the experts that may retire, inf if unknown."""
        return [self.standing.get(name, math.inf) for name in self._expert_names()]

    def _set_standing(self, losses: Mapping[str, float]) -> None:
        self.standing = losses

    def _run(self, rows: Rows, report: Report | None) -> Array:
        """Predict, then learn, checked rows, dense or sparse; return the predictions (T, K)."""
        P = np.empty((len(rows.X), self.n_classes))
        done = 0
        is_whole = self.takes_sparse or not isinstance(rows.X, SparseRows)
        for batch in [rows] if is_whole else rows.dense_parts():
            start = 0
            while start < len(batch.X):
                stop = min(start + self._rows_at_once(batch), len(batch.X))
                chunk = batch if stop - start == len(batch.X) else batch.part(start, stop)
                self._run_chunk(chunk, P[done : done + stop - start])
                done, start = done + stop - start, stop
                if report is not None:
                    report(done)
        return P

    def _rows_at_once(self, rows: Rows) -> int:
        """Return the rows up to where it next reports progress, or can be interrupted."""
        return max(1, int(CHUNK_FLOPS / self._round_flops))

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        """Predict checked rows into P, each before it is learned."""
        soft = rows.soft if len(rows.soft) else [validation.NO_SOFT] * len(P)
        for t, x in enumerate(rows.X):
            P[t] = self._predict(x)
            self._learn(x, int(rows.labels[t]), soft[t], float(rows.weights[t]))

    def predict(self, x: Any) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out.

        Rows of a matrix, which may be sparse, are all predicted from the current state; one sparse
        row is a pair (indices, values).
        """
        if not validation.is_context(x, self._shape):
            if validation.is_sparse_context(x):
                return self._predict(self._own_context(x))
            if is_sparse(x):
                return self._predict_rows(validation.rows_of_contexts(x, *self._shape))
            x = validation.numbers("x", x)
            if x.ndim == 2:
                return self._predict_rows(validation.contexts(x, *self._shape))
            x = validation.context(x, *self._shape)
        return self._predict(x)

    def _own_context(self, x: Any) -> Any:
        """Return a checked context, dense or a pair, as `_predict` and `_learn` take it."""
        if not validation.is_sparse_context(x):
            return validation.context(x, *self._shape)
        x = validation.sparse_context(x, *self._shape)
        return x if self.takes_sparse else dense_row(x, *self._shape)

    def update(self, x: Any, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example and return its log loss -ln p[y], predicted before learning.

        x is (d,), or a pair (indices, values) of a sparse row; y a class 0..K-1 or a point of
        the simplex (K,). The example counts `weight` times; the returned loss is unweighted. A
        label may arrive long after `predict(x)`: the round is then predicted again from the
        present state, and that prediction is the one that loss and certificate count.
        """
        if not validation.is_context(x, self._shape):
            x = self._own_context(x)
        label, soft = validation.label(y, self.n_classes)
        if type(weight) is not float or weight != 1.0:
            weight = validation.weight(weight)
        if weight > self.max_weight:
            validation.check_max_weight(weight, self.max_weight)
        loss = self._learn(x, label, soft, weight)
        if loss != loss:
            validation.check_context(x)
        return loss

    def run(
        self, X: Any, y: ArrayLike, *, weight: ArrayLike | None = None, progress: Progress = False
    ) -> Array:
        """Predict, then learn, row by row; return the predictions (T, K).

        Equal to the loop over `predict` and `update`, in compiled blocks. Every row is checked
        before the first round. X is (T, d), dense or a sparse array of SciPy, and y (T,) classes or
        (T, K) soft labels; `progress` is True for a bar or a function of the rounds done.
        """
        rows = self._check_rows(X, y, weight)
        self._warn_of_long(validation.norms(rows.X))
        with report_progress(progress, len(rows.X), "learning") as report:
            return self._run(rows, report)

    def _warn_of_long(self, norms: Array) -> None:
        """Warn, once, if rows are far longer than the learner was made for."""
        if len(norms) and not self._warned and np.median(norms) > _MAX_NORM_RATIO * self.R:
            self._warned = True
            warn_of_data(
                f"the rows of X have norms of about {np.median(norms):.3g}, and "
                f"{type(self).__name__} was made for norms of about R = {self.R:g}: probabilities "
                "will be extreme; scale the features, or use folklearn.Model, which does"
            )

    def _check_rows(self, X: Any, y: ArrayLike, weight: ArrayLike | None) -> Rows:
        sizes = {"n_features": self._shape[0], "n_classes": self.n_classes}
        return Rows.checked(X, y, weight, **sizes, max_weight=self.max_weight)

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return self._n_rounds

    @property
    def lines(self) -> "Learner | None":
        """The learner of the columns alone: itself, unless terms are mixed in (`TermMixture`)."""
        return self

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays of the state."""
        return sum(array.nbytes for array in self._parts().values())

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state of such a learner takes at other sizes."""
        return 8 * n_classes * n_features

    def certificate(self, W: ArrayLike | None = None) -> Certificate:
        """Return the certificate for every model that it is about, or for one W (K, d).

        Of a learner that proves nothing it is not valid, and says why.
        """
        reason = f"{type(self).__name__} proves nothing about other models"
        return Certificate(math.nan, math.inf, self.n_rounds, valid=False, reason=reason)

    def coef(self) -> Array:
        """Return the weights (K, d) of the linear model that it is, or leans on most."""
        raise InvalidInputError(f"{type(self).__name__} leans on no single linear model")

    def _leading_model(self, x: Any, weights: Array | None = None) -> LeadingModel:
        """Return the linear model of largest weight, by default of its own weights."""
        (name,), share = self._expert_names(), 1.0 if weights is None else float(weights[0])
        no_bias = np.zeros(self.n_classes)
        return LeadingModel(name, share, np.arange(len(x)), x, self.coef(), no_bias)

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds`, known in advance: here infinity."""
        return math.inf

    def copy_to_predict(self) -> Self:
        """Return a copy that predicts as this learner does now, and must not learn."""
        return copy.deepcopy(self)

    @property
    def can_grow(self) -> bool:
        """Whether `grown` makes room for features and classes that come late."""
        return type(self).grown is not Learner.grown

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> "Learner":
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far; new classes come last. It may
        be of another kind, if that is what the size calls for.
        """
        raise InvalidInputError(f"{self!r} cannot grow: it must know all classes and features")

    def _begin_classes(self, first: int, constant: int, weight: float) -> None:
        """Give late classes, from the first on, a weight of the constant, counted from the end.

        At 0 one would be as likely as any other at once.
        """

    def _release_rows(self) -> None:
        """Let the rows that are kept enter the sums; most learners keep none."""

    def _begin(self, start: WarmStart) -> None:
        """Take over from another learner, having learned nothing."""
        raise InvalidInputError(f"{self!r} cannot take over from another learner")

    def _larger(self, n_features: int | None, n_classes: int | None) -> Self:
        words = {word: self._word(word) for word in self.PARAMS}
        return self._construct(**words | self._larger_sizes(n_features, n_classes))

    def _grow_arrays(self, n_features: int | None, n_classes: int | None) -> Self:
        """Return a larger learner whose arrays begin with those of this one."""
        larger = self._larger(n_features, n_classes)
        for name, array in larger._parts().items():
            smaller = self._parts()[name]
            array[tuple(map(slice, smaller.shape))] = smaller
        return larger

    def _larger_sizes(self, n_features: int | None, n_classes: int | None) -> dict[str, int]:
        sizes = self._sizes
        for name, wanted in (("n_features", n_features), ("n_classes", n_classes)):
            if wanted is not None:
                sizes[name] = validation.count(name, wanted, sizes[name])
        return sizes


class LinearLearner(Learner):
    """A learner that predicts softmax(W x) with weights W (K, d), by two kernels."""

    _W: Array
    _predict_row: ClassVar = staticmethod(predict_linear)
    _predict_all: ClassVar = staticmethod(predict_linear_rows)

    def _predict(self, x: Array) -> Array:
        p = np.empty(self.n_classes)
        if not self._predict_row(self._W, x, validation.MAX_NORM, p):
            validation.check_context(x)
        return p

    def _predict_batch(self, X: Array) -> Array:
        P = np.empty((len(X), self.n_classes))
        self._predict_all(self._W, X, P)
        return P

    def coef(self) -> Array:
        return self._W.copy()

    def _mixed_models(self, weights: Array | None = None) -> list[tuple[float, Any]]:
        return [(1.0, np.pad(self.coef(), ((0, 0), (0, 1))))]


class FixedLearner(Learner):
    """A copy of a learner that only predicts."""

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        raise InvalidInputError("a copy that was made to predict cannot learn")

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        raise InvalidInputError("a copy that was made to predict cannot learn")


class FirstOrderCertified(Learner):
    """A learner whose rounds leave planes below the losses: a certificate of first order.

    `_totals` begins with those of the evidence, and `_planes` returns its sums.
    """

    _totals: Array
    loss: Any  # total (weighted) loss so far

    def _begin_evidence(self, start: WarmStart) -> None:
        self._totals[:N_TOTALS] = start.past._totals
        self._totals[ROUNDS] = start.n_rounds

    @abstractmethod
    def _planes(self) -> tuple[NDArray[np.int64], Array, Array]:
        """Return the columns (n,) that occurred, the sum G (n, K) and the totals."""

    @property
    def n_rounds(self) -> int:
        return int(self._totals[ROUNDS])

    def evidence(self) -> LinearEvidence:
        """Return the evidence of all rounds so far, to be merged or sent."""
        return LinearEvidence.of(*self._planes(), n_features=self.n_features)

    def certificate(self, W: ArrayLike | None = None) -> Certificate:
        return self.evidence().certificate(self.loss, W)


def rows_to_review(n_rounds: int, first: int) -> int:
    """Return the rounds until experts are reviewed: after `first`, and at every doubling."""
    return (first << (n_rounds // first).bit_length()) - n_rounds


def check_is_learner(name: str, value: Any) -> None:
    """Raise if something is no learner: another object, or a class in place of one."""
    if not isinstance(value, Learner):
        raise InvalidInputError(f"{name} is {value!r}, not a learner")


def check_weights(kind: str, weights: Array) -> None:
    """Raise if the weights of experts in a file are no distribution, up to rounding."""
    if not ((weights >= 0.0).all() and 0.5 <= weights.sum() <= 2.0):
        raise StateFileError(f"a {kind} state has weights of experts that are none")
