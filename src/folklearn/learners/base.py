"""The contract of every learner.

Whoever calls the public verbs is checked, once; whoever has checked already (a mixture, a
model of raw rows, an agent) calls the verbs with an underscore.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, warn_of_data
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.progress import Progress, Report, report_progress
from folklearn.serialization import Serializable
from folklearn.sparse import SparseRows, dense_row, is_sparse
from folklearn.validation import Rows


class WarmStart(NamedTuple):
    """What is known of the rounds so far.

    W : (K, d), the model to begin with.
    curvature : (K, d, d), of every class: the sum of w p_i (1 - p_i) xx'.
    past : their evidence, of first order.
    loss, n_rounds : of the learner that is taken over from.
    """

    W: Array
    curvature: Array
    past: LinearEvidence
    loss: float
    n_rounds: int


_FAR_LONGER = 30.0  # times R
_CLEARLY, _NEARLY = 1.05, 1.3  # times the least loss: worse, and good enough


class Learner(Serializable, ABC):
    """The verbs that every learner shares; `predict` never changes what comes after it.

    A learner validates its parameters, calls `_size`, and brings `_predict` and `_learn`;
    compiled ones bring `_predict_rows` and `_run` too. What it keeps is declared, see
    `Serializable`. One learner is for one thread at a time, predictions included:
    a prediction may be kept for the update that follows it.

    Attributes
    ----------
    n_features, n_classes : sizes of the problem, d and K.
    max_weight : largest sample weight that it accepts.
    max_certified_weight : above this a weight voids the certificate.
    B : largest row norm of the models that a certificate covers, if there is one.
    R : the norm of x up to which `regret_bound` holds.
    takes_sparse : whether the verbs with an underscore take sparse contexts; where they do not,
        those that check make them dense, a part at a time.
    standing : losses of its experts by name in another game (`folklearn.model.holdout`). If that
        has another winner, who is good there does not retire here. Whoever sets it sets it again
        for a learner that was loaded or has grown.
    """

    n_features: int
    n_classes: int
    max_weight: float = math.inf
    max_certified_weight: float = math.inf
    B: float = math.inf
    R: float = math.inf
    takes_sparse: bool = False
    standing: Mapping[str, float] = MappingProxyType({})
    _shape: tuple[int, ...]  # of a context
    _n_rounds: int = 0
    _warned = False

    def _size(self, n_features: int, n_classes: int) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self._shape = (self.n_features,)

    @abstractmethod
    def _predict(self, x: Array) -> Array:
        """Return the probabilities (K,) of a context that is checked but for its norm."""

    @abstractmethod
    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        """Learn one example, return its loss; NaN, all unchanged, if |x| is unusable.

        The label is a class, or -1 and its probabilities are in `soft` (K,).
        """

    def _predict_rows(self, X: Array, norms: Array) -> Array:
        """Return the probabilities (T, K) of checked contexts, all from the current state."""
        P = np.empty((len(X), self.n_classes))
        for x, p in zip(X, P, strict=True):
            p[:] = self._predict(x)
        return P

    def _expert_names(self) -> list[str]:
        """Return what it mixes, by name: a learner that mixes nothing is its only expert."""
        return [type(self).__name__]

    def _worth_keeping(self, hopeless: Any, weights: Array) -> NDArray[np.bool_]:
        """Tell which of the hopeless experts (E,) stay, because another game needs them.

        That is so if the expert of the largest weight is clearly not the best one there.
        """
        losses = np.array([self.standing.get(name, math.inf) for name in self._expert_names()])
        best = losses.min()
        if not losses[int(weights.argmax())] > _CLEARLY * best:
            return np.zeros(len(losses), bool)
        kept: NDArray[np.bool_] = np.asarray(hopeless, bool) & (losses <= _NEARLY * best)
        return kept

    def _expert_predictions(self, X: Any, norms: Array) -> Array:
        """Return the probabilities (E, T, K) of each of its experts for checked contexts."""
        return self._predict_all(X, norms)[None]

    def _run(self, rows: Rows, report: Report | None) -> Array:
        """Predict, then learn, checked rows; return the predictions (T, K)."""
        P = np.empty((len(rows.X), self.n_classes))
        soft = rows.soft if len(rows.soft) else [validation.NO_SOFT] * len(P)
        for t, x in enumerate(rows.X):
            P[t] = self._predict(x)
            self._learn(x, int(rows.labels[t]), soft[t], float(rows.weights[t]))
            if report is not None:
                report(t + 1)
        return P

    def predict(self, x: Any) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out.

        Rows of a matrix are all predicted from the current state. It may be a sparse array of
        SciPy; one sparse row is a pair (indices, values).
        """
        if not validation.is_context(x, self._shape):
            if validation.is_sparse_context(x):
                return self._predict(self._own_context(x))
            if is_sparse(x):
                return self._predict_all(*validation.rows_of_contexts(x, self.n_features))
            x = validation.numbers("x", x)
            if x.ndim == 2:
                return self._predict_rows(*validation.contexts(x, self.n_features))
            x = validation.context(x, self.n_features)
        return self._predict(x)

    def _own_context(self, x: Any) -> Any:
        """Return a context, dense or a pair, as the verbs with an underscore take it."""
        if not validation.is_sparse_context(x):
            return validation.context(x, self.n_features)
        x = validation.sparse_context(x, self.n_features)
        return x if self.takes_sparse else dense_row(x, self.n_features)

    def _predict_all(self, X: Any, norms: Array) -> Array:
        """Return the probabilities (T, K) of checked contexts, sparse ones dense if need be."""
        if self.takes_sparse or not isinstance(X, SparseRows):
            return self._predict_rows(X, norms)
        P = np.empty((len(X), self.n_classes))
        for part in X.dense_parts():
            P[part] = self._predict_rows(X[part].dense(), norms[part])
        return P

    def _run_all(self, rows: Rows, report: Report | None) -> Array:
        """Predict, then learn, checked rows, sparse ones dense if need be."""
        if self.takes_sparse or not isinstance(rows.X, SparseRows):
            return self._run(rows, report)
        P = np.empty((len(rows.X), self.n_classes))
        for part, dense in rows.dense_parts():
            P[part] = self._run(dense, None)
            if report is not None:
                report(part.stop)
        return P

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
        self,
        X: Any,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> Array:
        """Predict, then learn, row by row; return the predictions (T, K).

        Equal to the loop over `predict` and `update`, at the speed of compiled blocks where
        the learner has them. Every row is checked before the first round. X is (T, d), dense or
        a sparse array of SciPy, and y (T,) classes or (T, K) soft labels; `progress` is True for
        a bar or a function of the number of rounds done.
        """
        rows = self._checked(X, y, weight)
        self._warn_of_long(rows.norms)
        with report_progress(progress, len(rows.X), "learning") as report:
            return self._run_all(rows, report)

    def _warn_of_long(self, norms: Array) -> None:
        """Say so, once, if rows are far longer than the learner was made for."""
        if self._warned or not len(norms) or not np.median(norms) > _FAR_LONGER * self.R:
            return
        self._warned = True
        warn_of_data(
            f"the rows of X have norms of about {np.median(norms):.3g}, and {type(self).__name__} "
            f"was made for norms of about R = {self.R:g}: probabilities will be extreme; scale the "
            "features, or use folklearn.Model, which does"
        )

    def _checked(self, X: Any, y: ArrayLike, weight: ArrayLike | None) -> Rows:
        """Return examples for this learner, checked."""
        return Rows.checked(
            X,
            y,
            weight,
            n_features=self.n_features,
            n_classes=self.n_classes,
            max_weight=self.max_weight,
        )

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return self._n_rounds

    @property
    def n_unsolved(self) -> int:
        """Rounds that were not solved to full precision; a certificate holds all the same."""
        return 0

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays of the state."""
        return sum(array.nbytes for array in self._parts().values())

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state of such a learner takes at other sizes."""
        return 8 * n_classes * n_features

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return a certificate that is not valid, and says why: nothing is proven here."""
        return Certificate(
            loss=math.nan,
            regret_bound=math.inf,
            B=self.B if B is None else validation.positive("B", B),
            n_rounds=self.n_rounds,
            valid=False,
            reason=f"{type(self).__name__} proves nothing about other models",
        )

    def covers(self, B: float) -> bool:
        """Whether `certificate` can speak of models of row norm up to B."""
        return self.B >= B / (1.0 + 1e-9)

    def coef(self) -> Array:
        """Return the weights (K, d) of the linear model that it is, or leans on most."""
        raise InvalidInputError(f"{type(self).__name__} leans on no single linear model")

    def expansion_point(self) -> Array:
        """Return the weights (K, d) at which evidence about linear models is tight: `coef`."""
        return self.coef()

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds`, known in advance: here infinity."""
        return math.inf

    @property
    def can_grow(self) -> bool:
        """Whether `grown` makes room for features and classes that come late."""
        return type(self).grown is not Learner.grown

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> "Learner":
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far; new classes come last
        and were not there before. It may be of another kind, if that is what the size calls for.
        """
        raise InvalidInputError(f"{self!r} cannot grow: it must know all classes and features")

    def _begin(self, start: WarmStart) -> None:
        """Take over from another learner, having learned nothing."""
        raise InvalidInputError(f"{self!r} cannot take over from another learner")

    def _larger(self, n_features: int | None, n_classes: int | None) -> Self:
        """Return a learner of larger sizes that has learned nothing; they cannot shrink."""
        words = {word: self._word(word) for word in self.PARAMS}
        return self._construct(**words | self._larger_sizes(n_features, n_classes))

    def _larger_sizes(self, n_features: int | None, n_classes: int | None) -> dict[str, int]:
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        for name, wanted in (("n_features", n_features), ("n_classes", n_classes)):
            if wanted is not None:
                sizes[name] = validation.count(name, wanted, sizes[name])
        return sizes


def check_is_learner(name: str, value: Any) -> None:
    """Raise if something is no learner: another object, or a class in place of one."""
    if not isinstance(value, Learner):
        raise InvalidInputError(f"{name} is {value!r}, not a learner")
