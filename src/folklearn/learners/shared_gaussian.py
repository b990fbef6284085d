"""One covariance for all classes: second order at a price that does not grow with the classes."""

from typing import Any, ClassVar, Self

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.kernels import shared_gaussian as kernels
from folklearn.kernels.blas import threads_for
from folklearn.kernels.shared_gaussian import BLOCK, ROUNDS
from folklearn.learners.base import CHUNK_FLOPS, FixedLearner, LinearLearner
from folklearn.serialization import Record
from folklearn.validation import Rows

_MOST_ROUNDS = 2.0**53


class SharedGaussian(LinearLearner):
    r"""Online logistic regression that keeps one covariance, which all classes share.

    Use it where features are hundreds: for K = 26 and d = 500 all pairs of classes are 10^8
    numbers, a covariance per class (`ClassGaussians`) 6 10^6, and this learner keeps 2.5 10^5, at
    nearly the same loss. Where the pairs fit, prefer `Leader` or `auto`.

    The weights of every class have the covariance P, at first :math:`I / 2\lambda`. A round
    predicts :math:`p = \mathrm{softmax}(Wx)`. With :math:`u = Px` and :math:`s = x^\top P x`, its
    label moves the logits by an implicit step, and P by a curvature for all classes:

    .. math:: z' = Wx - w\,s\,(p' - y), \qquad p' = \mathrm{softmax}(z'),

    .. math:: W \leftarrow W - w\,(p' - y)\,u^\top, \qquad
        P^{-1} \leftarrow P^{-1} + \frac w{\sqrt{2K}} \sum_k p'_k (1 - p'_k)\, x x^\top.

    For two classes that is the curvature of each; for more it is the geometric mean of the average
    over the classes, which is too little for the few that a label is about, and of half the sum. A
    stream that drifts wants a `leak`: with it P returns to its prior by that share a round (every
    32 rounds, by all of it), so that what was learned long ago can be learned anew.

    Time O(d^2 + K d) a round, memory 8 d^2 bytes. `run` agrees with the loop over `update` up to
    rounding, and with itself in every bit, however the rows are portioned.

    Guarantee: none. Mix it with a learner that has one.

    Parameters
    ----------
    ridge : :math:`\lambda` for contexts of norm R, positive.
    leak : share of its prior that the covariance regains each round, from 0 to 1/2.
    R : typical norm of x, positive; the ridge is multiplied by R^2.

    Examples
    --------
    >>> from folklearn import SharedGaussian, synthetic
    >>> X, y = synthetic.stochastic(0, 1000, d=4, K=3)
    >>> model = SharedGaussian(n_features=4, n_classes=3)
    >>> P = model.run(X, y)
    >>> P.shape, bool((P.argmax(axis=1) == y).mean() > 0.6)
    ((1000, 3), True)

    References
    ----------
    Those of `ClassGaussians`; docs/theory/terms.md, section 2.
    """

    PARAMS = ("n_features", "n_classes", "ridge", "leak", "R")
    ARRAYS: ClassVar[tuple[str, ...]] = ("W", "U", "kappas", "diagonal", "totals")
    FEWEST_NUMBERS = staticmethod(lambda d, K: d * max((d + 1) // 2, K))

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        ridge: float = 0.003,
        leak: float = 0.0,
        R: float = 1.0,
    ) -> None:
        self._size(n_features, n_classes, R=R)
        self.ridge = validation.positive("ridge", ridge)
        self.leak = validation.fraction("leak", leak)
        d, K = self.n_features, self.n_classes
        self._prior = 0.5 / (self.ridge * self.R**2)
        self._keep = (1.0 - self.leak) ** BLOCK
        self._W: Array = np.zeros((K, d))
        self._P: Array = np.zeros((d, d))
        np.fill_diagonal(self._P, self._prior)
        self._diagonal: Array = np.full(d, self._prior)
        # What the rounds of a block that is not complete take away from P.
        self._U: Array = np.zeros((BLOCK, d))
        self._kappas: Array = np.zeros(BLOCK)
        self._totals: Array = np.zeros(kernels.N_SHARED_TOTALS)
        self._vectors: Array = np.empty((kernels.N_SHARED_VECTORS, K))

    @property
    def _state(self) -> tuple[Any, ...]:
        return (
            self._W, self._P, self._U, self._kappas, self._diagonal, self._totals,
            self._prior, self._keep, self._vectors,
        )  # fmt: skip

    def _expert_names(self) -> list[str]:
        return [f"terms, ridge {self.ridge:g}, leak {self.leak:g}"]

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        with threads_for(self.n_features):
            loss = kernels.learn_shared(*self._state, x, label, soft, weight, validation.MAX_NORM)
        return float(loss)

    def _rows_at_once(self, rows: Rows) -> int:
        d, K = self.n_features, self.n_classes
        return BLOCK * max(1, int(CHUNK_FLOPS / (BLOCK * (3 * d * d + 4 * K * d + 1e3))))

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        X, *labels_and_weights = rows
        with threads_for(self.n_features):
            kernels.run_shared(*self._state, X, *labels_and_weights, P)

    @property
    def n_rounds(self) -> int:
        return int(self._totals[ROUNDS])

    @property
    def loss(self) -> float:
        return float(self._totals[kernels.LOSS])

    def covariance(self) -> Array:
        """Return P (d, d) as it is now, the rounds of an unfinished block included."""
        lower = np.tril(self._P)
        taken = (self._U.T * self._kappas) @ self._U
        return lower + np.tril(lower, -1).T - taken

    def _release_rows(self) -> None:
        """Take the rows of an unfinished block out of P now: they would tell what they were."""
        with threads_for(self.n_features):
            self._P[:] = np.tril(self.covariance())
        np.fill_diagonal(self._P, np.maximum(self._P.diagonal(), 0.0))
        self._diagonal[:] = self._P.diagonal()
        self._U[:], self._kappas[:] = 0.0, 0.0

    @property
    def n_bytes(self) -> int:
        return super().n_bytes + self._P.nbytes

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        return 8 * n_features * (n_features + n_classes + BLOCK)

    def to_record(self) -> Record:
        record = super().to_record()
        record.arrays["P"] = self._P[np.tril_indices(len(self._P))]
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        d = len(self._P)
        self._P[np.tril_indices(d)] = record.part("P", (d * (d + 1) // 2,))
        if min(self._P.diagonal().min(initial=0.0), self._kappas.min()) < 0.0:
            raise record.error("has a covariance that none can be")
        if not (self._totals[ROUNDS].is_integer() and 0.0 <= self._totals[ROUNDS] <= _MOST_ROUNDS):
            raise record.error("has no whole number of rounds")

    def copy_to_predict(self) -> "SharedGaussian":
        fixed = FixedGaussian._construct(**{word: getattr(self, word) for word in self.PARAMS})
        fixed._W[:] = self._W
        return fixed

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        larger = self._grow_arrays(n_features, n_classes)
        larger._P[: self.n_features, : self.n_features] = self._P
        return larger

    def _begin_classes(self, first: int, constant: int, weight: float) -> None:
        self._W[first:, constant] += weight


class FixedGaussian(FixedLearner, SharedGaussian):
    """A `SharedGaussian` that only predicts: its mean, without the covariance."""

    ARRAYS = ("W",)
    FEWEST_NUMBERS = staticmethod(lambda d, K: d * K)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        fixed = cls(**words | {"n_features": 1, "n_classes": 2})
        fixed._size(*validation.sizes(words))
        fixed._W, fixed._P = np.zeros((fixed.n_classes, fixed.n_features)), np.empty((0, 0))
        return fixed
