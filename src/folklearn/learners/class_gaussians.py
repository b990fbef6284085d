"""Class blocks: one Gaussian per class under a joint softmax, for few features and many classes."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.kernels import class_gaussians as kernels
from folklearn.kernels.evidence import N_TOTALS, n_products
from folklearn.learners.base import FirstOrderCertified, LinearLearner, WarmStart
from folklearn.validation import Rows


class ClassGaussians(FirstOrderCertified, LinearLearner):
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

    The mean predicts, not the average over the Gaussians, which was better by at most .016 on three
    streams and worse by up to .18 on two. The curvature is that after the step: that before it
    loses .008 to .04 on letter, pendigits and digits.

    Time O(d^2 K) and memory 4 d^2 K bytes.

    Guarantee: regret against every W, its penalty counted, is at most
    ``certificate().regret_bound``, of first order (docs/theory/large-problems.md).

    Parameters
    ----------
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
    ARRAYS = ("W", "P", "G", "totals")
    FEWEST_NUMBERS = staticmethod(lambda d, K: K * (d * (d + 1) // 2))  # n_products may overflow
    _predict_row = staticmethod(kernels.predict_blocks)
    _predict_all = staticmethod(kernels.predict_blocks_rows)

    def __init__(
        self, *, n_features: int, n_classes: int, ridge: float = 0.1, R: float = 1.0
    ) -> None:
        self._size(n_features, n_classes, R=R)
        self.ridge = validation.positive("ridge", ridge)
        self._totals: Array = np.zeros(kernels.N_BLOCK_TOTALS)
        d, K = self.n_features, self.n_classes
        # Classes come last: every loop of a round runs over them.
        self._W: Array = np.zeros((d, K))
        self._P: Array = np.zeros((n_products(d), K))
        diagonal = np.cumsum(np.arange(1, d + 1)) - 1  # of lower triangles by rows
        self._round_flops = 4 * self._P.size + 1e3
        self._P[diagonal] = 0.5 / (self.ridge * self.R**2)
        self._G: Array = np.zeros((d, K))
        self._spread: Array = np.empty((d, K))
        self._work: Array = np.empty((kernels.N_VECTORS, K))

    def _begin(self, start: WarmStart) -> None:
        d = self.n_features
        for i, curvature in enumerate(start.curvature):
            prior = 2.0 * self.ridge * self.R**2 * np.eye(d)
            self._P[:, i] = np.linalg.inv(curvature + prior)[np.tril_indices(d)]
        self._W[:] = start.W.T
        self._G[start.past.columns] = start.past.G
        self._begin_evidence(start)
        self._totals[kernels.LOSS] = start.loss

    @property
    def _state(self) -> tuple[Array, ...]:
        return self._W, self._P, self._G, self._totals, self._spread, self._work

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        return kernels.block_round(*self._state, x, label, soft, weight, validation.MAX_NORM)

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        X, labels, soft, weights = rows
        kernels.block_rounds(*self._state, X, labels, soft, weights, P)

    @property
    def loss(self) -> float:
        return float(self._totals[kernels.LOSS])

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        return int(8 * n_classes * (n_products(n_features) + 2 * n_features))

    def coef(self) -> Array:
        return np.ascontiguousarray(self._W.T)

    def _planes(self) -> tuple[NDArray[np.int64], Array, Array]:
        return np.arange(self.n_features), self._G, self._totals[:N_TOTALS]

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        return self._grow_arrays(n_features, n_classes)

    def _begin_classes(self, first: int, constant: int, weight: float) -> None:
        self._W[constant, first:] += weight
