"""AdaBoost.OLM++ (Foster et al. 2018) with the regression of Agarwal, Kale and Zimmert (2021)."""

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.boosting.booster import Booster, Round, WeakLearners, checked_scores
from folklearn.boosting.regression import clip, kind_of, regret_bound
from folklearn.kernels import boosting as kernels


class AdaBoostOLMpp(Booster):
    r"""Online multiclass boosting that needs no edge, no learning rate and no horizon.

    Use it to combine weak classifiers into a strong one; the weight of each is learned, and a
    useless one costs little. Prefer a single learner of this
    library when a linear model is enough, and `OnlineMBBM` only if the edge is known.

    From :math:`s^0 = 0`, for i = 1..N: the costs of learner i are the logistic gradient at
    :math:`s^{i-1}` (`logistic_costs`), its label is :math:`l_i`, and

    .. math:: s^i = \mathrm{BoostReg}_i(s^{i-1}, l_i), \qquad \hat y^i = \arg\max_k s^i_k

    by its own `BoostingRegression`. `predict_label` follows a prefix i drawn by Hedge,
    `predict` mixes the probabilities of all prefixes. Differs from the paper's Algorithm 4
    in the sign and the index order of the costs, which are wrong as printed, and in offering
    probabilities.

    Time O(N K^2) a round for the costs and O(N K) for the regressions, plus the weak
    learners; memory ten numbers a learner, and N K^2 for the last prediction.

    Guarantee, for unit weights and labels that do not depend on the draws of Hedge, with
    probability :math:`1 - \delta`, for the empirical edges
    :math:`\gamma_i` (``edges``) and the regret bounds :math:`R_i` (``regret_bounds``):

    .. math:: \text{mistakes} \le \frac{16 (T \ln K + \sum_i R_i)}{\sum_i \gamma_i^2}
        + 2.05 \ln(N/\delta)

    and the log loss of `predict` is at most that of the best prefix plus ln N.

    Parameters
    ----------
    n_features, n_classes, n_learners, weak_learner, seed : as `Booster` has them.
    horizon : number of rounds T if known; see `BoostingRegression`.
    regression : "folklore", "aioli" or "offset"; see `BoostingRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.boosting import AdaBoostOLMpp, NaiveBayes, Probabilistic
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # naive Bayes alone is right half the time
    >>> def weak(i, rng):
    ...     return Probabilistic(NaiveBayes(n_features=2, n_classes=2))
    >>> model = AdaBoostOLMpp(n_features=2, n_classes=2, n_learners=10, weak_learner=weak)
    >>> P = model.run(X, y)
    >>> P.shape, model.predict_label(X[0]) in (0, 1), model.hedge_weights.shape
    ((300, 2), True, (10,))

    References
    ----------
    Foster, Kale, Luo, Mohri and Sridharan (2018), "Logistic regression: the importance of
    being improper", Theorem 8. Agarwal, Kale and Zimmert (2021), Algorithm 4 and its
    proposition.
    """

    PARAMS = ("n_features", "n_classes", "n_learners", "horizon", "regression", "seed")
    ARRAYS = (*Booster.ARRAYS, "rows")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        n_learners: int = 20,
        weak_learner: WeakLearners | None = None,
        horizon: int | None = None,
        regression: str = "folklore",
        seed: int = 0,
    ) -> None:
        self._kind = kind_of(regression)
        self.regression = regression
        self.horizon = None if horizon is None else validation.count("horizon", horizon, 1)
        self._start(n_features, n_classes, n_learners, weak_learner, seed)
        self._rows: Array = kernels.initial_rows(self.n_learners, self._kind)

    def _cost(self, i: int, s: Array) -> Array:
        C: Array = kernels.logistic_costs(s)
        return C

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        kernels.regress(self._rows[i], self._kind, self._clip, s, label, out)

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        kernels.learn_regressions(
            self._rows, self._kind, self._clip, seen.scores, seen.labels, y, weight
        )

    @property
    def _clip(self) -> float:
        return clip(self.horizon, self.n_rounds)

    @property
    def regret_bounds(self) -> Array:
        """What is proven of each regression against every alpha in [-2, 2], (N,)."""
        bounds = [regret_bound(row, self._kind, kernels.REACH) for row in self._rows]
        return np.array(bounds)

    @property
    def edges(self) -> Array:
        r"""The empirical edge of each weak learner, (N,): how much better than guessing.

        .. math:: \gamma_i = \sum_t (1\{l = y\}(1-\sigma_y) - 1\{l \ne y\}\sigma_l)
            \Big/ \sum_t (1-\sigma_y)

        with the label l of learner i and the scores before it; 0 before the first round.
        """
        tried = self._rows[:, kernels.TRIED]
        edges: Array = self._rows[:, kernels.GAINED] / np.where(tried > 0.0, tried, 1.0)
        return edges


def logistic_costs(s: ArrayLike) -> Array:
    r"""Return the costs (K, K) of AdaBoost.OLM++ for scores s (K,).

    The gradient of :math:`-\ln \sigma_y` at s, shifted to zero at y and divided by K:

    .. math:: C(y, k) = (\sigma_k + 1 - \sigma_y) / K \quad (k \ne y), \qquad C(y, y) = 0

    Row y has the L1 norm :math:`1 - \sigma_y` exactly.

    Examples
    --------
    >>> logistic_costs([0.0, 0.0])
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    C: Array = kernels.logistic_costs(checked_scores(s))
    return C
