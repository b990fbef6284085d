"""Online boosters before AdaBoost.OLM++: AdaBoost.OLM, AdaBoost.OL and boost-by-majority."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.baselines import kernels
from folklearn.boosting.booster import Booster, Round, WeakLearners, checked_scores
from folklearn.errors import InvalidInputError
from folklearn.kernels.boosting import logistic_costs


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

    Time O(N K^2) a round plus the weak learners; memory one number a learner, and N K^2
    for the last prediction.

    Guarantee, cited from the paper and not checked here: mistakes :math:`\tilde O((K-1) T /
    \sum_i \gamma_i^2 + K N^2 / \sum_i \gamma_i^2)` for the empirical edges.

    Parameters
    ----------
    n_features, n_classes, n_learners, weak_learner, seed : as `Booster` has them.

    Examples
    --------
    >>> from folklearn.baselines import AdaBoostOLM
    >>> from folklearn.boosting import NaiveBayes, Probabilistic
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
    ARRAYS = (*Booster.ARRAYS, "alphas")

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
        step = weight * self._step_size(self._n_rounds + 1)
        kernels.step_pairwise(self._alphas, seen.scores, seen.labels, y, step)

    def _step_size(self, t: int) -> float:
        return 2.0 * math.sqrt(2.0) / ((self.n_classes - 1) * math.sqrt(t))

    @property
    def alphas(self) -> Array:
        """The coefficient of each weak learner, (N,), in [-2, 2]."""
        return self._alphas.copy()


class AdaBoostOL(AdaBoostOLM):
    r"""Adaptive online boosting for two classes, the ancestor of `AdaBoostOLM`.

    Use it to compare on two classes; for anything else use `AdaBoostOLMpp`.

    With labels as signs and one margin :math:`h`, :math:`h^i = h^{i-1} + \alpha_i l_i`; a
    mistake of learner i costs :math:`w_i = 1/(1 + e^{y h^{i-1}})`, and

    .. math:: \alpha_i \leftarrow \mathrm{clip}\Big(\alpha_i
        + \frac{4}{\sqrt t} \frac{y\, l_i}{1 + e^{y h^i}},\ \pm 2\Big).

    The scores are :math:`s = (-h/2, h/2)`, so that softmax(s) is the sigmoid of h. A sample
    weight multiplies the step. Hedge over the prefixes gives the label. Differs from the
    paper in importance weights where it draws examples, and in the Bayes mixture.

    Time O(N) a round plus the weak learners; memory one number a learner.

    Guarantee, cited from the paper and not checked here: mistakes :math:`\tilde O(T / \sum_i
    \gamma_i^2 + N^2 / \sum_i \gamma_i^2)` for the empirical edges.

    Parameters
    ----------
    n_features, n_learners, weak_learner, seed : as `Booster` has them.
    n_classes : must be 2.

    Examples
    --------
    >>> from folklearn.baselines import AdaBoostOL
    >>> from folklearn.boosting import NaiveBayes, Probabilistic
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
        super().__init__(
            n_features=n_features,
            n_classes=n_classes,
            n_learners=n_learners,
            weak_learner=weak_learner,
            seed=seed,
        )

    def _cost(self, i: int, s: Array) -> Array:
        C: Array = logistic_costs(s)  # for two classes, 1 - sigma_y off the diagonal
        return C

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        half = 0.5 * self._alphas[i]
        out[label] = s[label] + half
        out[1 - label] = s[1 - label] - half

    def _step_size(self, t: int) -> float:
        return 4.0 / math.sqrt(t)  # of the logistic loss: the pairwise loss of one pair


_MAX_SAMPLES = 10**5


class OnlineMBBM(Booster):
    r"""Boost-by-majority: every weak learner has one vote, and the costs look ahead.

    Use it when the edge of the weak learners is known and they all have it: it then needs the
    fewest learners. Otherwise use `AdaBoostOLMpp`, which finds the edges out.

    With votes :math:`s^i = s^{i-1} + e_{l_i}`, the potential :math:`\phi_m^y(s)` is the
    probability that y does not win outright after m more votes, each y with probability
    :math:`\gamma + (1-\gamma)/K` and any other class with :math:`(1-\gamma)/K`:

    .. math:: \phi_0^y(s) = 1\{\max_{k \ne y} s_k \ge s_y\}, \qquad
        \phi_{m+1}^y(s) = E\, \phi_m^y(s + e_l), \qquad
        C^i(y, l) = \frac{\phi_{N-i}^y(s^{i-1} + e_l) - \phi_{N-i}^y(s^{i-1} + e_y)}{K - 1}

    The label is :math:`\arg\max_k s^N_k`. Differs from the paper in costs that are shifted
    and divided, which changes no comparison but gives importance weights a meaning; in
    potentials over ``n_samples`` futures drawn once from the seed, the same for every label
    and every round; and in probabilities: softmax(:math:`\eta s^i`) is what votes are worth if they
    fall as above, :math:`\eta = \ln(1 + K\gamma/(1-\gamma))`, and `predict` mixes the prefixes.

    Time O(n_samples N K^2) a round plus the weak learners; memory n_samples N K bytes or so.

    Guarantee, up to the error of the sampled potentials, about :math:`1/\sqrt{n\_samples}`:
    mistakes :math:`\le (K-1) e^{-\gamma^2 N/2} T + \sum_i S_i`, where :math:`S_i` is by how much
    the costs of learner i exceed those of a guess with edge :math:`\gamma`; derived in
    docs/theory/reductions.md. That the last sum is :math:`\tilde O(K^{5/2} \sqrt N S)` is from
    the paper, not checked here.

    Parameters
    ----------
    n_features, n_classes, n_learners, weak_learner : as `Booster` has them.
    edge : :math:`\gamma` in (0, 1), how much better than guessing every weak learner is.
    n_samples : number of futures.
    seed : of the futures, and of the generators that the weak learners are made with.

    Examples
    --------
    >>> from folklearn.baselines import OnlineMBBM
    >>> from folklearn.boosting import NaiveBayes, Probabilistic
    >>> def weak(i, rng):
    ...     return Probabilistic(NaiveBayes(n_features=1, n_classes=3))
    >>> model = OnlineMBBM(n_features=1, n_classes=3, n_learners=5, weak_learner=weak)
    >>> losses = [model.update([float(t % 3)], t % 3) for t in range(60)]
    >>> [model.predict_label([float(k)]) for k in range(3)]
    [0, 1, 2]

    References
    ----------
    Jung, Goetz and Tewari (2017), "Online multiclass boosting", OnlineMBBM.
    """

    PARAMS = ("n_features", "n_classes", "n_learners", "edge", "n_samples", "seed")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        n_learners: int = 20,
        weak_learner: WeakLearners | None = None,
        edge: float = 0.1,
        n_samples: int = 200,
        seed: int = 0,
    ) -> None:
        self.edge = validation.positive("edge", edge)
        if self.edge >= 1.0:
            raise InvalidInputError(f"edge must be below 1, got {edge!r}")
        self.n_samples = validation.count("n_samples", n_samples, 1, _MAX_SAMPLES)
        vote = math.log1p(
            validation.count("n_classes", n_classes, 2) * self.edge / (1.0 - self.edge)
        )
        self._start(n_features, n_classes, n_learners, weak_learner, seed, scale=vote)
        self._futures = self._draw_futures()

    def _draw_futures(self) -> NDArray[np.int32]:
        """Return votes (N, n_samples, K) that m = 0..N-1 more learners add, class 0 the true one.

        A future of m + 1 votes goes on from that of m: potentials of neighbours differ by
        what one vote does, not by what two independent samples do.
        """
        rng = np.random.default_rng((self.seed, 0))
        K, n = self.n_classes, self.n_samples
        chances = np.full(K, (1.0 - self.edge) / K)
        chances[0] += self.edge
        votes = np.zeros((self.n_learners, n, K), dtype=np.int32)
        for m in range(1, self.n_learners):
            votes[m] = votes[m - 1]
            votes[m, np.arange(n), rng.choice(K, size=n, p=chances)] += 1
        return votes

    def potentials(self, i: int, s: Array) -> Array:
        """Return phi^y(s + e_l) after the votes of the learners behind i = 0..N-1, as (K, K)."""
        phi: Array = kernels.potentials(s, self._futures[self.n_learners - 1 - i])
        return phi

    def _cost(self, i: int, s: Array) -> Array:
        phi = self.potentials(i, s)
        C: Array = (phi - phi.diagonal()[:, None]) / (self.n_classes - 1)
        return C

    def _advance(self, i: int, s: Array, label: int, out: Array) -> None:
        out[:] = s
        out[label] += 1.0

    def _absorb(self, seen: Round, y: int, weight: float) -> None:
        """Every vote counts one; there is nothing to learn."""

    def _leader(self) -> int:
        return self.n_learners

    @property
    def hedge_weights(self) -> Array:
        """All on the last prefix, (N,): this booster follows the vote of all learners."""
        weights = np.zeros(self.n_learners)
        weights[-1] = 1.0
        return weights


def pairwise_costs(s: ArrayLike) -> Array:
    r"""Return the costs (K, K) of AdaBoost.OLM for scores s (K,).

    The gradient of :math:`\sum_{k \ne y} \ln(1 + e^{s_k - s_y})`, shifted to zero at y:

    .. math:: C(y, k) = c_k + \sum_{j \ne y} c_j, \qquad
        c_k = 1 / (1 + e^{s_y - s_k}) \quad (k \ne y), \qquad C(y, y) = 0

    Row y has the L1 norm :math:`K \sum_{j \ne y} c_j`, at most K (K-1).

    Examples
    --------
    >>> pairwise_costs([0.0, 0.0])
    array([[0., 1.],
           [1., 0.]])
    """
    C: Array = kernels.pairwise_costs(checked_scores(s))
    return C
