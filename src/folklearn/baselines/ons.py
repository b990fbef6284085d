"""The online Newton step (Hazan, Agarwal and Kale 2007), and its certificate."""

import math

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.baselines import kernels
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.learners.sgd import ProperLearner
from folklearn.validation import Rows

_MIN_ALPHA = 1e-270  # below it, one over it overflows in the bound


class Ons(ProperLearner):
    r"""Online Newton step: proper predictions with logarithmic regret, exponential in B R.

    Use it to compare with `Folklore`, which has the same dependence on T without the factor
    :math:`e^{2BR}`, or for B R up to about 2, where its steps are not tiny.

    .. math::
        W_{t+1} = \Pi_{A_t}\left(W_t - \tfrac1\beta A_t^{-1} \nabla_t\right), \qquad
        A_t = A_{t-1} + \nabla_t \nabla_t^\top, \quad A_0 = \frac{I}{\beta^2 D^2}, \quad
        \nabla_t = w_t (p_t - y_t) \otimes x_t

    with :math:`p_t = \mathrm{softmax}(W_t x_t)`, :math:`\alpha = e^{-2BR}/(K-1)`,
    :math:`G = \sqrt 2 R`, :math:`D = 2B\sqrt K`, :math:`\beta = \frac12 \min(\frac1{4GD}, \alpha)`
    and :math:`\Pi_A` the projection onto row norms at most B in the norm of A, which is iterative,
    at most 1e-10 nats from exact or what rounding allows. Time O((K d)^2) per round, times some
    tens to hundreds where a row would leave its ball; memory 16 (K d)^2 bytes.

    Guarantee, for every stream with :math:`|x_t| \le R`, hard or soft labels and weights at
    most 1: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, itself at most `regret_bound` plus the projections' errors.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.
    B : largest row norm of the weights and of the models to compete with, positive.
    R : bound on the norm of x; longer contexts void the certificate. B R is at most about 300.

    Examples
    --------
    >>> from folklearn import Ons, synthetic
    >>> X, y = synthetic.separable(0, 500, d=4, K=3)
    >>> model = Ons(n_features=4, n_classes=3, B=2.0)
    >>> bool((model.run(X, y).argmax(axis=1) == y).mean() > 0.8), model.certificate().valid
    (True, True)

    References
    ----------
    Hazan, Agarwal and Kale (2007), "Logarithmic Regret Algorithms for Online Convex
    Optimization", Figure 2 and Theorem 2. See docs/theory/baselines.md.
    """

    ARRAYS = ("W", "matrices", "totals")
    FEWEST_NUMBERS = staticmethod(lambda d, K: 2 * (K * d) ** 2)

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
        self._norms = self.B, self.R, self._D, self._beta
        n = self._W.size
        self._matrices: Array = np.stack([np.eye(n), np.eye(n)])  # (beta D)^2 A and its inverse
        self._totals: Array = np.zeros(kernels.N_ONS_TOTALS)
        self._round_flops = 100.0 * n * n + 1000.0

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        state = self._W, self._matrices, self._totals
        return kernels.ons_round(*state, x, label, soft, weight, *self._norms, validation.MAX_NORM)

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        X, *targets = rows
        state = self._W, self._matrices, self._totals
        kernels.ons_rounds(*state, X, *targets, *self._norms, P)

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return a bound on the regret after `n_rounds` of weight at most 1, :math:`|x| \le R`.

        .. math:: \frac1{2\beta} \left[n \ln\left(1 + \frac{\beta^2 D^2 G^2 T}{n}\right)
            + \frac14\right], \qquad n = (K-1) d

        Below the paper's :math:`5(1/\alpha + GD) K d \ln T`; see docs/theory/baselines.md.
        """
        T = validation.count("n_rounds", n_rounds, 0)
        n, G = (self.n_classes - 1) * self.n_features, math.sqrt(2.0) * self.R
        growth = math.log1p((self._beta * G * self._D) ** 2 * T / n)
        return (n * growth + 0.25) / (2.0 * self._beta)

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for the class, a smaller class, or one W (K, d)."""
        totals = self._totals
        covered, norm = validation.comparators(W, B, self.B, self.n_classes, self.n_features)
        reason = self._why_invalid()
        proven = totals[kernels.NEWTON] + totals[kernels.SLACK] + norm / self._D**2
        return Certificate(
            float(totals[kernels.LOSS]), float(proven / (2.0 * self._beta)), self.n_rounds,
            B=covered, valid=not reason, reason=reason,
        )  # fmt: skip

    @property
    def n_rounds(self) -> int:
        return int(self._totals[kernels.ROUNDS])

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        return 16 * (n_classes * n_features) ** 2

    def _why_invalid(self) -> str:
        totals = self._totals
        for counter, what, remedy in (
            (kernels.FAR, f"x was longer than R={self.R:g}", ""),
            (kernels.HEAVY, "the weight was above 1", ": divide all weights by the largest"),
            (kernels.LOST, "rounding prevented learning", ""),
        ):
            if totals[counter]:
                n_rounds = f"{totals[counter]:.0f} of {totals[kernels.ROUNDS]:.0f} rounds"
                return f"{what} in {n_rounds}{remedy}"
        return ""
