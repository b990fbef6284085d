"""The online Newton step (Hazan, Agarwal and Kale 2007), and its certificate."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.baselines import bounds
from folklearn.baselines.kernels import (
    FAR,
    HEAVY,
    LOSS,
    LOST,
    N_ONS_TOTALS,
    NEWTON,
    ROUNDS,
    SLACK,
    UNSOLVED,
    ons_round,
    ons_rounds,
)
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.learners.sgd import ProperLearner
from folklearn.validation import Rows

_MIN_ALPHA = 1e-270  # below it, one over it overflows in the bound


class Ons(ProperLearner):
    r"""Online Newton step: proper predictions with logarithmic regret, exponential in B R.

    Use it for small B R (up to about 2), where its steps are not tiny, or to compare with:
    `Folklore` has the same dependence on T without the factor :math:`e^{2BR}`, at a lower
    cost. At the default B = 10 it hardly moves, as its theory demands.

    .. math::
        W_{t+1} = \Pi_{A_t}\left(W_t - \tfrac1\beta A_t^{-1} \nabla_t\right), \qquad
        A_t = A_{t-1} + \nabla_t \nabla_t^\top, \quad A_0 = \frac{I}{\beta^2 D^2}, \quad
        \nabla_t = w_t (p_t - y_t) \otimes x_t

    with :math:`p_t = \mathrm{softmax}(W_t x_t)`, :math:`W_1 = 0`,
    :math:`\alpha = e^{-2BR}/(K-1)`, :math:`G = \sqrt 2 R`, :math:`D = 2B\sqrt K`,
    :math:`\beta = \frac12 \min(\frac1{4GD}, \alpha)` and :math:`\Pi_A` the projection onto row
    norms at most B in the norm of A. Differs from the paper's Figure 2 in that the projection is
    iterative (until it stands still, at most 1e-10 nats from exact or what rounding allows),
    and in that :math:`(\beta D)^2 A` is stored, which starts as the identity, and its
    inverse, which follows by Sherman and Morrison's formula.

    Time O((K d)^2) per round, times the iterations of the projection (some tens to hundreds)
    where a row would leave its ball; memory 16 (K d)^2 bytes.

    Guarantee, for every stream with :math:`|x_t| \le R`, hard or soft labels and weights at
    most 1: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, itself at most `folklearn.baselines.bounds.ons` plus the
    projections' errors.

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    B : largest row norm of the weights and of the models to compete with, positive.
    R : bound on the norm of x. Longer contexts are learned all the same, but void the
        certificate. B R is limited to about 300, where :math:`\alpha` underflows.

    Examples
    --------
    >>> from folklearn import Ons, synthetic
    >>> X, y = synthetic.separable(0, 500, d=4, K=3)
    >>> model = Ons(n_features=4, n_classes=3, B=2.0)
    >>> P = model.run(X, y)
    >>> bool((P.argmax(axis=1) == y).mean() > 0.8), model.certificate().valid
    (True, True)

    References
    ----------
    Hazan, Agarwal and Kale (2007), "Logarithmic Regret Algorithms for Online Convex
    Optimization", Figure 2 and Theorem 2. See docs/theory/baselines.md.
    """

    ARRAYS = ("W", "matrices", "totals")

    max_certified_weight = 1.0

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return 2 * (K * d) ** 2

    def __init__(self, *, n_features: int, n_classes: int, B: float = 10.0, R: float = 1.0) -> None:
        super().__init__(n_features, n_classes, B, R)
        alpha = math.exp(-2.0 * self.B * self.R) / (self.n_classes - 1)
        if alpha < _MIN_ALPHA:
            raise InvalidInputError(
                f"B R = {self.B * self.R:g} is too large for the online Newton step: its steps "
                "are proportional to exp(-2 B R), which underflows; use Folklore or a smaller B"
            )
        self._D = 2.0 * self.B * math.sqrt(self.n_classes)
        self._beta = 0.5 * min(1.0 / (4.0 * math.sqrt(2.0) * self.R * self._D), alpha)
        n = self._W.size
        self._matrices: Array = np.stack([np.eye(n), np.eye(n)])  # (beta D)^2 A and its inverse
        self._totals: Array = np.zeros(N_ONS_TOTALS)
        self._work: Array = np.empty(2 * self.n_classes + 6 * n)
        self._chunk = max(1, int(1e8 / (100 * n * n + 1000)))

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        loss: float = ons_round(
            self._W, self._matrices, self._totals, self._work, x, label, soft, weight,
            self.B, self.R, self._D, self._beta, validation.MAX_NORM,
        )  # fmt: skip
        return loss

    def _learn_chunk(self, rows: Rows, P: Array, losses: Array) -> None:
        X, _, labels, soft, weights = rows
        ons_rounds(
            self._W, self._matrices, self._totals, self._work, X, labels, soft, weights,
            self.B, self.R, self._D, self._beta, P, losses,
        )  # fmt: skip

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with contexts of norm at most R."""
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        return bounds.ons(n_rounds, **sizes, B=self.B, R=self.R)

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for the class, a smaller class, or one W (K, d).

        The bound is the sum of gradient' A_t^-1 gradient, plus K B^2 / D^2 (|W|_F^2 / D^2
        for one W), over 2 beta, plus what the projections lack. ``B`` may be smaller than
        the learner's.
        """
        totals = self._totals
        covered, norm = validation.comparators(W, B, self.B, self.n_classes, self.n_features)
        reason = self._why_invalid()
        bound = (totals[NEWTON] + totals[SLACK] + norm / self._D**2) / (2.0 * self._beta)
        return Certificate(
            loss=float(totals[LOSS]),
            regret_bound=float(bound),
            B=covered,
            n_rounds=self.n_rounds,
            valid=not reason,
            reason=reason,
        )

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return int(self._totals[ROUNDS])

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state of such a learner takes at other sizes."""
        return 16 * (n_classes * n_features) ** 2

    def _why_invalid(self) -> str:
        totals = self._totals
        of_rounds = f"of {totals[ROUNDS]:.0f} rounds"
        if totals[FAR]:
            return f"x was longer than R={self.R:g} in {totals[FAR]:.0f} {of_rounds}"
        if totals[HEAVY]:
            return (
                f"the weight was above 1 in {totals[HEAVY]:.0f} {of_rounds}: "
                "divide all weights by the largest"
            )
        if totals[LOST]:
            return f"rounding prevented learning in {totals[LOST]:.0f} {of_rounds}"
        return ""

    @property
    def n_unsolved(self) -> int:
        """Rounds whose projection did not converge; the certificate counts its error."""
        return int(self._totals[UNSOLVED])
