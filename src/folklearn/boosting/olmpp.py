"""AdaBoost.OLM++ (Foster et al. 2018) with the regression of Agarwal, Kale and Zimmert (2021)."""

import math
from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.boosting.booster import Booster, Round
from folklearn.kernels import boosting as kernels

_REGRESSIONS = ("folklore", "aioli", "offset")  # as `kernels.boosting` numbers them


class AdaBoostOLMpp(Booster):
    r"""Online multiclass boosting that needs no edge, no learning rate and no horizon.

    Use it to combine weak classifiers into a strong one; the weight of each is learned, and a
    useless one costs little. Prefer a single learner where a linear model is enough.

    From :math:`s^0 = 0`, for i = 1..N, learner i predicts a label :math:`l_i` under the costs
    :math:`C^i(y, k) = (\sigma_k + 1 - \sigma_y) / K` for k other than y and 0 for y, with
    :math:`\sigma = \mathrm{softmax}(s^{i-1})`: the gradient of the log loss, shifted. Then

    .. math:: s^i = \mathrm{BoostReg}_i(s^{i-1}, l_i), \qquad \hat y^i = \arg\max_k s^i_k

    by a regression that competes with the best constant :math:`\alpha \in [-2, 2]` in
    :math:`s + \alpha e_l`: binary FOLKLORE, of "l is right" against the rest.

    `predict_label` follows a prefix i drawn by Hedge, `predict` mixes the probabilities of all.
    Differs from the paper's Algorithms 3 and 4, as printed, in playing :math:`\hat s`, in the
    curvature, and in sign and index order of the costs (docs/theory/boosting.md); and in
    :math:`\lambda = 1` and offering probabilities. Time O(N K^2) a round plus the weak learners.

    Guarantee, for unit weights and labels that do not depend on the draws of Hedge, with
    probability :math:`1 - \delta`, for the empirical edges :math:`\gamma_i` (``edges``) and the
    regret bounds :math:`R_i` (``regret_bounds``):

    .. math:: \text{mistakes} \le \frac{16 (T \ln K + \sum_i R_i)}{\sum_i \gamma_i^2}
        + 2.05 \ln(N/\delta)

    and the log loss of `predict` is at most that of the best prefix plus ln N.

    Parameters
    ----------
    n_features, n_classes, n_learners, weak_learner, seed : as for `Booster`.
    horizon : number of rounds T if known; clips at ln T instead of the growing ln(t+1).
    regression : "folklore", "aioli" (its ancestor, which pulls twice as much to even odds),
        or "offset": one-dimensional, without clipping; about half of the regret if the scores are
        calibrated, but it cannot rescale scores that are not.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.boosting import AdaBoostOLMpp, NaiveBayes, Probabilistic
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # naive Bayes alone is right half the time
    >>> weak = [Probabilistic(NaiveBayes(n_features=2, n_classes=2)) for _ in range(10)]
    >>> model = AdaBoostOLMpp(n_features=2, n_classes=2, n_learners=10, weak_learner=weak)
    >>> model.run(X, y).shape, model.predict_label(X[0]) in (0, 1), model.hedge_weights.shape
    ((300, 2), True, (10,))

    References
    ----------
    Foster, Kale, Luo, Mohri and Sridharan (2018), "Logistic regression: the importance of
    being improper", Theorem 8. Agarwal, Kale and Zimmert (2021), Algorithms 3 and 4, Theorem 4.
    """

    PARAMS = (*Booster.PARAMS, "horizon", "regression")
    ARRAYS = (*Booster.ARRAYS, "rows")

    def __init__(
        self, *, horizon: int | None = None, regression: str = "folklore", **parameters: Any
    ) -> None:
        super().__init__(**parameters)
        self.regression = validation.choice("regression", regression, _REGRESSIONS)
        self.horizon = None if horizon is None else validation.count("horizon", horizon, 1)
        self._kind = _REGRESSIONS.index(self.regression)
        self._rows: Array = np.zeros((self.n_learners, kernels.N_NUMBERS))
        self._rows[:, [kernels.A00, kernels.A11]] = kernels.RIDGE[self._kind]

    @property
    def _clip(self) -> float:
        return math.log(self.n_rounds + 2 if self.horizon is None else self.horizon)

    def _cost(self, i: int, s: Array) -> Array:
        return kernels.logistic_costs(s)

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        kernels.regress(self._rows[i], self._kind, self._clip, s, label, out)

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        kernels.learn_regressions(
            self._rows, self._kind, self._clip, seen.scores, seen.labels, y, weight
        )

    def _regret_bounds(self, alpha: float) -> Array:
        """Return what every regression proves against alpha, (N,): ridge, brackets, clipping."""
        comparator = alpha**2 if self._kind == kernels.OFFSET else 4.0 + alpha**2
        sums: Array = self._rows[:, kernels.BRACKET] + self._rows[:, kernels.CLIPPED]
        return kernels.RIDGE[self._kind] * comparator + sums

    @property
    def regret_bounds(self) -> Array:
        """What is proven of each regression against every alpha in [-2, 2], (N,)."""
        return self._regret_bounds(kernels.REACH)

    @property
    def edges(self) -> Array:
        r"""The empirical edge of each weak learner, (N,): how much better than guessing.

        .. math:: \gamma_i = \sum_t (1\{l = y\}(1-\sigma_y) - 1\{l \ne y\}\sigma_l)
            \Big/ \sum_t (1-\sigma_y)

        with the label l of learner i and the scores before it; 0 before the first round.
        """
        tried = self._rows[:, kernels.TRIED]
        return self._rows[:, kernels.GAINED] / np.where(tried > 0.0, tried, 1.0)
