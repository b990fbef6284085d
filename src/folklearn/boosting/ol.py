"""AdaBoost.OL: adaptive online boosting of two classes (Beygelzimer, Kale and Luo 2015)."""

import math

import numpy as np

from folklearn.arrays import Array
from folklearn.boosting.booster import Booster, Round
from folklearn.boosting.contract import WeakLearners
from folklearn.errors import InvalidInputError
from folklearn.kernels import boosting as kernels


class AdaBoostOL(Booster):
    r"""Adaptive online boosting for two classes, the ancestor of `AdaBoostOLM`.

    Use it to compare on two classes; for anything else use `AdaBoostOLMpp`.

    With labels as signs and one margin :math:`h`, :math:`h^i = h^{i-1} + \alpha_i l_i`; a
    mistake of learner i costs :math:`w_i = 1/(1 + e^{y h^{i-1}})`, and

    .. math:: \alpha_i \leftarrow \mathrm{clip}\Big(\alpha_i
        + \frac{4}{\sqrt t} \frac{y\, l_i}{1 + e^{y h^i}},\ \pm 2\Big).

    The scores are :math:`s = (-h/2, h/2)`, so that softmax(s) is the sigmoid of h. A sample
    weight multiplies the step. Hedge over the prefixes gives the label. Differs from the
    paper in importance weights where it draws examples, and in the Bayes mixture.

    Time O(N) a round beside the weak learners; memory one number a learner.

    Guarantee, cited from the paper and not checked here: mistakes :math:`\tilde O(T / \sum_i
    \gamma_i^2 + N^2 / \sum_i \gamma_i^2)` for the empirical edges. Nothing in this library computes
    or relies on it; what is derived here is `AdaBoostOLMpp`'s.

    Parameters
    ----------
    n_features : number of features d.
    n_classes : must be 2.
    n_learners : number of weak learners N.
    weak_learner : as in `AdaBoostOLMpp`.
    seed : of the generators that the weak learners are made with, and of Hedge.

    Examples
    --------
    >>> from folklearn.boosting import AdaBoostOL, NaiveBayes, Probabilistic
    >>> def weak(i, rng):
    ...     return Probabilistic(NaiveBayes(n_features=1, n_classes=2))
    >>> model = AdaBoostOL(n_features=1, n_learners=5, weak_learner=weak)
    >>> losses = [model.update([float(t % 2)], t % 2) for t in range(40)]
    >>> [model.predict_label([float(k)]) for k in range(2)]
    [0, 1]

    References
    ----------
    Beygelzimer, Kale and Luo (2015), "Optimal and adaptive algorithms for online boosting",
    AdaBoost.OL.
    """

    PARAMS = ("n_features", "n_classes", "n_learners", "seed")
    ARRAYS = ("alphas",)

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int = 2,
        n_learners: int = 20,
        weak_learner: WeakLearners | None = None,
        seed: int = 0,
    ) -> None:
        if n_classes != 2:
            raise InvalidInputError(
                f"AdaBoostOL is for two classes, got n_classes={n_classes!r}: use "
                "AdaBoostOLMpp, which is for any number"
            )
        self._start(n_features, n_classes, n_learners, weak_learner, seed)
        self._alphas: Array = np.zeros(self.n_learners)

    def _cost(self, i: int, s: Array) -> Array:
        C: Array = kernels.logistic_costs(s)  # for two classes, 1 - sigma_y off the diagonal
        return C

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        half = 0.5 * self._alphas[i]
        out[label] = s[label] + half
        out[1 - label] = s[1 - label] - half

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        # One pair of classes: the pairwise loss is the logistic loss.
        step = 4.0 / math.sqrt(self._n_rounds + 1)
        kernels.step_pairwise(self._alphas, seen.scores, seen.labels, y, weight * step)

    @property
    def alphas(self) -> Array:
        """The coefficient of each weak learner, (N,), in [-2, 2]."""
        return self._alphas.copy()
