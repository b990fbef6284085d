"""AdaBoost.OLM: online multiclass boosting with gradient steps (Jung, Goetz and Tewari 2017)."""

import math

import numpy as np

from folklearn.arrays import Array
from folklearn.boosting.booster import Booster, Round
from folklearn.boosting.contract import WeakLearners
from folklearn.kernels import boosting as kernels


class AdaBoostOLM(Booster):
    r"""Adaptive online multiclass boosting with one coefficient a learner.

    Use it to compare with `AdaBoostOLMpp`, which replaces its gradient steps by a regression
    with logarithmic regret and needs fewer rounds.

    From :math:`s^0 = 0`, :math:`s^i = s^{i-1} + \alpha_i e_{l_i}` with the costs of the
    *pairwise* logistic loss :math:`\sum_{k \ne y} \ln(1 + e^{s_k - s_y})` (`pairwise_costs`), and

    .. math:: \alpha_i \leftarrow \mathrm{clip}\Big(\alpha_i
        - \frac{2\sqrt2}{(K-1)\sqrt t} f_i'(\alpha_i),\ \pm 2\Big)

    for that loss of :math:`s^i` as a function of :math:`\alpha_i`. A sample weight multiplies
    the step. Hedge over the prefixes gives the label. Differs from the paper in offering the
    Bayes mixture of softmax(s^i), and in costs divided by K (K-1), so that their rows have an
    L1 norm of at most 1 as the weak learning condition asks.

    Time O(N K^2) a round beside the weak learners; memory one number a learner, and N K^2
    for the last prediction.

    Guarantee, cited from the paper and not checked here: mistakes :math:`\tilde O((K-1) T /
    \sum_i \gamma_i^2 + K N^2 / \sum_i \gamma_i^2)` for the empirical edges. Nothing in this library
    computes or relies on it; what is derived here is `AdaBoostOLMpp`'s.

    Parameters
    ----------
    n_features : number of features d.
    n_classes : number of classes K, at least 2.
    n_learners : number of weak learners N.
    weak_learner : as in `AdaBoostOLMpp`.
    seed : of the generators that the weak learners are made with, and of Hedge.

    Examples
    --------
    >>> from folklearn.boosting import AdaBoostOLM, NaiveBayes, Probabilistic
    >>> def weak(i, rng):
    ...     return Probabilistic(NaiveBayes(n_features=1, n_classes=3))
    >>> model = AdaBoostOLM(n_features=1, n_classes=3, n_learners=5, weak_learner=weak)
    >>> losses = [model.update([float(t % 3)], t % 3) for t in range(60)]
    >>> [model.predict_label([float(k)]) for k in range(3)]
    [0, 1, 2]

    References
    ----------
    Jung, Goetz and Tewari (2017), "Online multiclass boosting", Adaboost.OLM.
    """

    PARAMS = ("n_features", "n_classes", "n_learners", "seed")
    ARRAYS = ("alphas",)

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        n_learners: int = 20,
        weak_learner: WeakLearners | None = None,
        seed: int = 0,
    ) -> None:
        self._start(n_features, n_classes, n_learners, weak_learner, seed)
        self._alphas: Array = np.zeros(self.n_learners)

    def _cost(self, i: int, s: Array) -> Array:
        C: Array = kernels.pairwise_costs(s)
        C /= self.n_classes * (self.n_classes - 1)
        return C

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        out[:] = s
        out[label] += self._alphas[i]

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        step = 2.0 * math.sqrt(2.0) / ((self.n_classes - 1) * math.sqrt(self._n_rounds + 1))
        kernels.step_pairwise(self._alphas, seen.scores, seen.labels, y, weight * step)

    @property
    def alphas(self) -> Array:
        """The coefficient of each weak learner, (N,), in [-2, 2]."""
        return self._alphas.copy()
