"""AdaBoost.OLM (Jung, Goetz and Tewari 2017), the online booster before AdaBoost.OLM++."""

import math
from typing import Any

import numpy as np
from scipy.special import expit

from folklearn.arrays import Array
from folklearn.baselines import kernels
from folklearn.boosting.booster import Booster, Round
from folklearn.kernels.boosting import REACH


class AdaBoostOLM(Booster):
    r"""Adaptive online multiclass boosting with one coefficient a learner.

    Use it to compare with `AdaBoostOLMpp`, which replaces its gradient steps by a regression.

    From :math:`s^0 = 0`, :math:`s^i = s^{i-1} + \alpha_i e_{l_i}` with the gradient of the
    *pairwise* logistic loss :math:`\sum_{k \ne y} \ln(1 + e^{s_k - s_y})` as costs,

    .. math:: C(y, k) = c_k + \sum_{j \ne y} c_j, \quad c_k = \frac1{1 + e^{s_y - s_k}}
        \quad (k \ne y), \qquad \alpha_i \leftarrow \mathrm{clip}\Big(\alpha_i
        - \frac{2\sqrt2}{(K-1)\sqrt t} f_i'(\alpha_i),\ \pm 2\Big)

    for that loss of :math:`s^i` as a function of :math:`\alpha_i`; a sample weight multiplies
    the step. Differs from the paper in offering the Bayes mixture of softmax(s^i), and in costs
    divided by K (K-1). Time O(N K^2) a round plus the weak learners. Parameters are `Booster`'s.

    Guarantee, cited from the paper and not checked here: mistakes :math:`\tilde O((K-1) T /
    \sum_i \gamma_i^2 + K N^2 / \sum_i \gamma_i^2)` for the empirical edges.

    Examples
    --------
    >>> from folklearn.baselines import AdaBoostOLM
    >>> from folklearn.boosting import NaiveBayes, Probabilistic
    >>> weak = [Probabilistic(NaiveBayes(n_features=1, n_classes=3)) for _ in range(5)]
    >>> model = AdaBoostOLM(n_features=1, n_classes=3, n_learners=5, weak_learner=weak)
    >>> losses = [model.update([float(t % 3)], t % 3) for t in range(60)]
    >>> [model.predict_label([float(k)]) for k in range(3)]
    [0, 1, 2]

    References
    ----------
    Jung, Goetz and Tewari (2017), "Online multiclass boosting", Adaboost.OLM.
    """

    ARRAYS = (*Booster.ARRAYS, "alphas")

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._alphas: Array = np.zeros(self.n_learners)

    def _cost(self, i: int, s: Array) -> Array:
        return kernels.pairwise_costs(s) / (self.n_classes * (self.n_classes - 1))

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        out[:] = s
        out[label] += self._alphas[i]

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        pace = (self.n_classes - 1) * math.sqrt(self._n_rounds + 1)
        step = weight * (2.0 * math.sqrt(2.0) / pace)
        # f' is sigma(s_l - s_y) of the scores after a wrong label l, and the sum of
        # -sigma(s_k - s_y) over all other k after a right one.
        N = np.arange(self.n_learners)
        after = seen.scores[:-1].copy()
        after[N, seen.labels] += self._alphas
        chances = expit(after - after[:, y, None])
        chances[:, y] = 0.0
        slopes = np.where(seen.labels == y, -chances.sum(axis=1), chances[N, seen.labels])
        self._alphas[:] = np.clip(self._alphas - step * slopes, -REACH, REACH)
