"""AdaBoost.OLM++ (Foster et al. 2018) with the regression of Agarwal, Kale and Zimmert (2021)."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.boosting.booster import Booster, Round
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.kernels import boosting as kernels
from folklearn.serialization import Serializable

_KINDS = {"folklore": kernels.FOLKLORE, "aioli": kernels.AIOLI, "offset": kernels.OFFSET}


class _RegressionRows:
    """The state of boosting regressions, a row each; `n_rounds` is its owner's."""

    n_rounds: int

    def _set_regression(self, regression: str, horizon: int | None, n_learners: int) -> None:
        self.regression = validation.choice("regression", regression, tuple(_KINDS))
        self.horizon = None if horizon is None else validation.count("horizon", horizon, 1)
        self._kind = _KINDS[regression]
        self._rows: Array = np.zeros((n_learners, kernels.N_NUMBERS))
        self._rows[:, [kernels.A00, kernels.A11]] = kernels.RIDGE[self._kind]

    @property
    def _clip(self) -> float:
        """The largest |x_1| of the next round: ln T, or ln(t+1) where T is unknown."""
        return math.log(self.n_rounds + 2 if self.horizon is None else self.horizon)

    def _regret_bounds(self, alpha: float) -> Array:
        """Return what every row proves against alpha, (N,): ridge, brackets, clipping."""
        comparator = alpha**2 if self._kind == kernels.OFFSET else 4.0 + alpha**2
        sums: Array = self._rows[:, kernels.BRACKET] + self._rows[:, kernels.CLIPPED]
        return kernels.RIDGE[self._kind] * comparator + sums


class BoostingRegression(_RegressionRows, Serializable):
    r"""Learn how far to trust a label: scores s and a label l in, better scores out.

    Use it as the step of a boosting algorithm, as `AdaBoostOLMpp` does N at a time. It competes
    with the best constant :math:`\alpha \in [-2, 2]` in :math:`s + \alpha e_l`, in hindsight.

    K classes collapse to "l is right" against the rest, with the margin
    :math:`o = s_l - \ln \sum_{k \ne l} e^{s_k}`. Binary FOLKLORE sees
    :math:`\tilde x = (\mathrm{clip}(o/2), 1)` and plays a margin m; the label gets
    :math:`\sigma(\hat s)_l = 1/(1 + e^{-m})` and the others stay proportional. Differs from the
    paper's Algorithm 3, which prints s where :math:`\hat s` is played, in that, in the corrected
    curvature :math:`\gamma^*(2|\tilde x_1| + 2)`, and in :math:`\lambda = 1`. Time O(K), memory
    ten numbers.

    Guarantee, on every stream: the loss is at most that of any :math:`\alpha` in [-2, 2] plus
    ``certificate(alpha).regret_bound``, which is O(ln(T)^2).

    Parameters
    ----------
    n_classes : number of classes K, at least 2.
    regression : "folklore", "aioli" (its ancestor, which pulls twice as much to even odds),
        or "offset": one-dimensional, :math:`m = o + \alpha_t`, without clipping; about half of
        the regret if the scores are calibrated, but it cannot rescale scores that are not.
    horizon : number of rounds T if known; clips at ln T instead of the growing ln(t+1).

    Examples
    --------
    >>> from folklearn.boosting import BoostingRegression
    >>> model = BoostingRegression(n_classes=3)
    >>> losses = [model.update([0.0, 0.0, 0.0], label=1, y=1) for _ in range(100)]
    >>> bool(losses[-1] < 0.1), model.certificate(2.0).valid
    (True, True)

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression", Algorithm 3 and Theorem 4; docs/theory/boosting.md.
    """

    PARAMS = ("n_classes", "regression", "horizon")
    COUNTERS = ("n_rounds",)
    ARRAYS = ("rows",)

    def __init__(
        self, *, n_classes: int, regression: str = "folklore", horizon: int | None = None
    ) -> None:
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.n_rounds = 0
        self._set_regression(regression, horizon, 1)

    def predict(self, s: ArrayLike, label: int) -> Array:
        """Return the regressed scores (K,) for scores s (K,) and a label, modulo constants."""
        s, label = self._check_input(s, label)
        out = np.empty(self.n_classes)
        kernels.regress(self._rows[0], self._kind, self._clip, s, label, out)
        return out

    def update(self, s: ArrayLike, label: int, y: int, *, weight: float = 1.0) -> float:
        """Learn that y was true; return the log loss of the regressed scores before learning.

        The round counts `weight` times in state and certificate; the returned loss does not.
        """
        s, label = self._check_input(s, label)
        y = validation.count("y", y, 0, self.n_classes - 1)
        loss: float = kernels.learn_regression(
            self._rows[0], self._kind, self._clip, s, label, y, validation.weight(weight)
        )
        self.n_rounds += 1
        return loss

    def certificate(self, alpha: float | None = None) -> Certificate:
        """Return what is proven against one alpha in [-2, 2], by default against all.

        ``B`` is the largest |alpha| that it covers, and ``best_linear_at_least`` bounds the
        total loss of s + alpha e_l from below. What clipping costs is summed as it happens.
        """
        covered = kernels.REACH if alpha is None else abs(float(alpha))
        if not covered <= kernels.REACH:
            raise InvalidInputError(f"alpha is {alpha}; the certificate covers -2 to 2")
        return Certificate(
            loss=float(self._rows[0, kernels.LOSS]),
            regret_bound=float(self._regret_bounds(covered)[0]), B=covered, n_rounds=self.n_rounds,
        )  # fmt: skip

    def _check_input(self, s: ArrayLike, label: int) -> tuple[Array, int]:
        s = validation.numbers("s", s)
        if s.shape != (self.n_classes,) or not (np.abs(s) <= validation.MAX_NORM).all():
            raise InvalidInputError(
                f"s must hold n_classes={self.n_classes} scores between "
                f"{-validation.MAX_NORM:g} and {validation.MAX_NORM:g}, got {s!r}"
            )
        return s, validation.count("label", label, 0, self.n_classes - 1)


class AdaBoostOLMpp(_RegressionRows, Booster):
    r"""Online multiclass boosting that needs no edge, no learning rate and no horizon.

    Use it to combine weak classifiers into a strong one; the weight of each is learned, and a
    useless one costs little. Prefer a single learner of this library when a linear model is
    enough.

    From :math:`s^0 = 0`, for i = 1..N, learner i predicts a label :math:`l_i` under the costs
    :math:`C^i(y, k) = (\sigma_k + 1 - \sigma_y) / K` for k other than y and 0 for y, with
    :math:`\sigma = \mathrm{softmax}(s^{i-1})`: the gradient of the log loss, shifted. Then

    .. math:: s^i = \mathrm{BoostReg}_i(s^{i-1}, l_i), \qquad \hat y^i = \arg\max_k s^i_k

    by its own `BoostingRegression`. `predict_label` follows a prefix i drawn by Hedge,
    `predict` mixes the probabilities of all prefixes. Differs from the paper's Algorithm 4
    in the sign and the index order of the costs, which are wrong as printed, and in offering
    probabilities. Time O(N K^2) a round plus the weak learners; memory ten numbers a learner.

    Guarantee, for unit weights and labels that do not depend on the draws of Hedge, with
    probability :math:`1 - \delta`, for the empirical edges :math:`\gamma_i` (``edges``) and the
    regret bounds :math:`R_i` (``regret_bounds``):

    .. math:: \text{mistakes} \le \frac{16 (T \ln K + \sum_i R_i)}{\sum_i \gamma_i^2}
        + 2.05 \ln(N/\delta)

    and the log loss of `predict` is at most that of the best prefix plus ln N.

    Parameters
    ----------
    n_features, n_classes, n_learners, weak_learner, seed : as `Booster` has them.
    horizon, regression : as `BoostingRegression` has them.

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
    being improper", Theorem 8. Agarwal, Kale and Zimmert (2021), Algorithm 4.
    """

    PARAMS = (*Booster.PARAMS, "horizon", "regression")
    ARRAYS = (*Booster.ARRAYS, "rows")

    def __init__(
        self, *, horizon: int | None = None, regression: str = "folklore", **parameters: Any
    ) -> None:
        super().__init__(**parameters)
        self._set_regression(regression, horizon, self.n_learners)

    def _cost(self, i: int, s: Array) -> Array:
        return kernels.logistic_costs(s)

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        kernels.regress(self._rows[i], self._kind, self._clip, s, label, out)

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        kernels.learn_regressions(
            self._rows, self._kind, self._clip, seen.scores, seen.labels, y, weight
        )

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
