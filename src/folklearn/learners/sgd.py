"""Online gradient descent (Zinkevich 2003): the cheapest learner with a guarantee."""

import math
from typing import ClassVar, Self

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.kernels.linear_models import N_OGD_TOTALS, ogd_round, ogd_rounds
from folklearn.learners.base import LinearLearner
from folklearn.validation import Rows


class ProperLearner(LinearLearner):
    """Rounds that move W; a learner has `_learn`, `_run_chunk` and the arrays of its state."""

    PARAMS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "B", "R")
    FEWEST_NUMBERS = staticmethod(lambda d, K: K * d)

    def __init__(self, n_features: int, n_classes: int, B: float, R: float) -> None:
        self._size(n_features, n_classes, B=B, R=R)
        self._W: Array = np.zeros((self.n_classes, self.n_features))


class Ogd(ProperLearner):
    r"""Online gradient descent on the log loss, projected on row norms at most B.

    Use it where a state of K d numbers is all that fits, or as the baseline that any other
    learner should beat. Where ((K-1) d)^2 numbers fit, prefer `Folklore`: its regret grows
    with ln T instead of :math:`\sqrt T`.

    .. math::
        W_{t+1} = \Pi\left(W_t - \frac{D}{G\sqrt{V_t}}\, w_t (p_t - y_t) \otimes x_t\right),
        \qquad V_t = \sum_{s \le t} w_s^2, \quad G = \sqrt 2 R, \quad D = 2B\sqrt K

    with :math:`p_t = \mathrm{softmax}(W_t x_t)`, :math:`W_1 = 0` and :math:`\Pi` shortening
    every row to norm B. With weights, :math:`V_t` takes the place of t, so that multiplying all of
    them by a constant changes nothing.

    Time O(d K) and memory 8 d K bytes per round.

    Guarantee, for every stream with :math:`|x_t| \le R`, hard or soft labels and any weights:
    regret against every W of row norm at most B is at most
    :math:`1.5\, G D \sqrt{\sum_t w_t^2}`.

    Parameters
    ----------
    B : largest row norm of the weights and of the models to compete with, positive.
    R : bound on the norm of x. Longer contexts are learned all the same, without guarantee.
    rate : a constant step in place of :math:`D/(G\sqrt{V_t})`, which tracks a drifting stream
        and carries no guarantee; positive, or None.

    Examples
    --------
    >>> from folklearn import Ogd, synthetic
    >>> X, y = synthetic.stochastic(0, 500, d=4, K=3)
    >>> model = Ogd(n_features=4, n_classes=3, B=10.0)
    >>> P = model.run(X, y)
    >>> P.shape, bool((P.argmax(axis=1) == y).mean() > 0.6)
    ((500, 3), True)

    References
    ----------
    Zinkevich (2003), "Online Convex Programming and Generalized Infinitesimal Gradient
    Ascent", Theorem 1. Hazan, Agarwal and Kale (2007), "Logarithmic Regret Algorithms for
    Online Convex Optimization", for the step sizes. See docs/theory/baselines.md.
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "rate")
    COUNTERS = ("_n_rounds",)
    ARRAYS = ("W", "totals")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        rate: float | None = None,
    ) -> None:
        super().__init__(n_features, n_classes, B, R)
        self.rate = None if rate is None else validation.positive("rate", rate)
        D, G = 2.0 * self.B * math.sqrt(self.n_classes), math.sqrt(2.0) * self.R
        self._rate = self.rate or D / G
        self._decay = self.rate is None
        self._totals: Array = np.zeros(N_OGD_TOTALS)
        self._work: Array = np.empty((2, self.n_classes))
        self._round_flops = self._W.size + 100.0

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        loss: float = ogd_round(
            self._W, self._totals, self._work, x, label, soft, weight,
            self.B, self._rate, self._decay, validation.MAX_NORM,
        )  # fmt: skip
        if loss == loss:
            self._n_rounds += 1
        return loss

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        X, labels, soft, weights = rows
        ogd_rounds(
            self._W, self._totals, self._work, X, labels, soft, weights,
            self.B, self._rate, self._decay, P,
        )  # fmt: skip
        self._n_rounds += len(X)

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        larger = self._grow_arrays(n_features, n_classes)
        larger._n_rounds = self._n_rounds
        return larger

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return :math:`1.5\, G D \sqrt T`, for unit weights and :math:`|x|\le R`.

        A constant rate has no such guarantee. Derived in docs/theory/baselines.md.
        """
        T = validation.count("n_rounds", n_rounds, 0)
        if self.rate is not None:
            return math.inf
        root_K, root_T = math.sqrt(self.n_classes), math.sqrt(T)
        return 1.5 * math.sqrt(2.0) * self.R * 2.0 * self.B * root_K * root_T
