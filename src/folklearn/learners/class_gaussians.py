"""Class blocks: one Gaussian per class under a joint softmax, for few features and many classes."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import StateFileError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.kernels.class_gaussians import (
    LOSS,
    N_BLOCK_TOTALS,
    N_VECTORS,
    UNSOLVED,
    block_round,
    block_rounds,
    predict_blocks,
    predict_blocks_rows,
)
from folklearn.kernels.evidence import N_TOTALS, ROUNDS, n_products
from folklearn.learners.base import Learner, WarmStart
from folklearn.learners.mixture import DEFAULT_B
from folklearn.progress import Report
from folklearn.serialization import Record
from folklearn.validation import Rows

_CHUNK_FLOPS = 1e8  # work between two chances to report progress or to be interrupted


class ClassGaussians(Learner):
    r"""Online logistic regression that keeps a covariance per class, and none between classes.

    Use it where classes are many and features few: for K = 500 and d = 20 all pairs of classes
    are (K d)^2 = 10^8 numbers, and this learner keeps 1.2 10^5. Where the pairs fit, prefer
    `Leader` or `auto`.

    Every class has a Gaussian :math:`N(w_i, P_i)`, at first :math:`N(0, I / 2\lambda)`. A round
    predicts :math:`p = \mathrm{softmax}(z)`, :math:`z_i = \langle w_i, x\rangle`. With
    :math:`s_i = x^\top P_i x`, its label moves the logits by an implicit step, to

    .. math:: z' = \arg\min_{z'}\; w\,\ell(z', y) + \sum_i \frac{(z'_i - z_i)^2}{2 s_i},
        \qquad p' = \mathrm{softmax}(z'),

    .. math:: w_i \leftarrow w_i - w\,(p'_i - y_i)\,P_i x, \qquad
        P_i^{-1} \leftarrow P_i^{-1} + w\,p'_i (1 - p'_i)\,x x^\top.

    The mean predicts, not the average over the Gaussians: of the logits divided by
    :math:`\sqrt{1 + \pi s_i/8}` the loss, each at its best ridge, was lower by .002 to .016 on
    three streams, and higher by .007 and .18 on two (letter, pendigits, covtype; 500 classes,
    digits). The curvature is that after the step: that before it, or the mean of both, loses .008
    to .04 on letter, pendigits and digits, and gains .004 at most on covtype.

    Time O(d^2 K) and memory 4 d^2 K bytes.

    Guarantee: none in advance. Live: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, for any B, whatever the learner does. It is evidence of first
    order (docs/theory/large-problems.md): looser than that of `Leader`.

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    ridge : :math:`\lambda` for contexts of norm R, positive. The default is for many classes with
        few rows each; where rows per class are hundreds, .003 is better.
    R : typical norm of x, positive; the ridge is multiplied by R^2.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import ClassGaussians
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 5)) / 2
    >>> y = np.argmax(X @ rng.normal(size=(5, 40)), axis=1)
    >>> model = ClassGaussians(n_features=5, n_classes=40, ridge=0.01)
    >>> P = model.run(X, y)
    >>> bool(np.mean(P[2000:].argmax(axis=1) == y[2000:]) > 0.8), model.certificate().valid
    (True, True)

    References
    ----------
    Spiegelhalter and Lauritzen (1990), "Sequential updating of conditional probabilities on
    directed graphical structures"; Kulis and Bartlett (2010), "Implicit Online Learning".
    """

    PARAMS = ("n_features", "n_classes", "ridge", "R")
    COUNTERS = ("_first_classes",)
    ARRAYS = ("W", "P", "G", "totals", "limit")
    UNBOUNDED = ("limit",)

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * (d * (d + 1) // 2)  # where compiled code would overflow

    def __init__(
        self, *, n_features: int, n_classes: int, ridge: float = 0.1, R: float = 1.0
    ) -> None:
        self._size(n_features, n_classes)
        self.ridge = validation.positive("ridge", ridge)
        self.R = validation.positive("R", R)
        self._first_classes = self.n_classes
        d, K = self.n_features, self.n_classes
        # Classes come last: every loop of a round runs over them.
        self._W: Array = np.zeros((d, K))
        self._P: Array = np.zeros((n_products(d), K))
        self._P[_diagonal(d)] = 0.5 / (self.ridge * self.R**2)
        self._G: Array = np.zeros((d, K))
        self._totals: Array = np.zeros(N_BLOCK_TOTALS)
        self._limit: Array = np.array([math.inf])  # B that the evidence holds for
        self._spread: Array = np.empty((d, K))
        self._work: Array = np.empty((N_VECTORS, K))

    def _begin(self, start: WarmStart) -> None:
        """Take over, having learned nothing."""
        d = self.n_features
        for i, curvature in enumerate(start.curvature):
            prior = 2.0 * self.ridge * self.R**2 * np.eye(d)
            self._P[:, i] = np.linalg.inv(curvature + prior)[np.tril_indices(d)]
        self._W[:] = start.W.T
        self._G[start.past.columns] = start.past.G
        self._totals[:N_TOTALS] = start.past._totals
        self._totals[ROUNDS], self._totals[LOSS] = start.n_rounds, start.loss
        self._limit[:] = start.past.largest_B
        self._first_classes = start.past._first_classes

    def _predict(self, x: Array) -> Array:
        p = np.empty(self.n_classes)
        if not predict_blocks(self._W, x, validation.MAX_NORM, p):
            validation.check_context(x)
        return p

    def _predict_rows(self, X: Array, norms: Array) -> Array:
        P = np.empty((len(X), self.n_classes))
        predict_blocks_rows(self._W, X, P)
        return P

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        loss: float = block_round(
            self._W, self._P, self._G, self._totals, self._spread, self._work,
            x, label, soft, weight, validation.MAX_NORM,
        )  # fmt: skip
        return loss

    def _run(self, rows: Rows, report: Report | None) -> Array:
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        chunk = max(1, int(_CHUNK_FLOPS / (4 * self._P.size + 1e3)))
        for start in range(0, T, chunk):
            stop = min(start + chunk, T)
            X, _, labels, soft, weights = rows.part(start, stop)
            block_rounds(
                self._W, self._P, self._G, self._totals, self._spread, self._work,
                X, labels, soft, weights, P[start:stop],
            )  # fmt: skip
            if report is not None:
                report(stop)
        return P

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return int(self._totals[ROUNDS])

    @property
    def n_unsolved(self) -> int:
        """Rounds whose implicit step was not found; a certificate holds all the same."""
        return int(self._totals[UNSOLVED])

    @property
    def loss(self) -> float:
        """The total (weighted) loss so far."""
        return float(self._totals[LOSS])

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state takes at other sizes."""
        return int(8 * n_classes * (n_products(n_features) + 2 * n_features))

    def coef(self) -> Array:
        """Return the mean weights W (K, d) that the next prediction uses."""
        return np.ascontiguousarray(self._W.T)

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for the class of any B, 10 by default, or for one W (K, d)."""
        return self.evidence().certificate_or_invalid(self.loss, W, B)

    def covers(self, B: float) -> bool:
        """Whether `certificate` can speak of a class: of any, unless it took over."""
        return bool(self._limit[0] * (1.0 + 1e-9) >= B)

    def evidence(self, *, B: float | None = None) -> LinearEvidence:
        """Return the evidence of all rounds so far, to be merged or sent, for any B."""
        return LinearEvidence.of(
            np.arange(self.n_features),
            self._G,
            self._totals[:N_TOTALS],
            n_features=self.n_features,
            B=DEFAULT_B if B is None else validation.positive("B", B),
            first_classes=self._first_classes,
            limit=float(self._limit[0]),
        )

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far. New classes come last, know
        nothing yet, and were not there before.
        """
        larger = self._larger(n_features, n_classes)
        d, K = self.n_features, self.n_classes
        larger._W[:d, :K] = self._W
        larger._G[:d, :K] = self._G
        larger._P[: len(self._P), :K] = self._P
        larger._totals[:] = self._totals
        larger._limit[:] = self._limit
        larger._first_classes = self._first_classes if self.n_rounds else larger.n_classes
        return larger

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        if not 2 <= self._first_classes <= self.n_classes:
            raise StateFileError("a ClassGaussians state has a bad number of first classes")


def _diagonal(d: int) -> NDArray[np.int64]:
    """Return where the diagonal lies in a lower triangle that is stored by rows."""
    a = np.arange(d)
    places: NDArray[np.int64] = a * (a + 3) // 2
    return places
