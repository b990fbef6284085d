"""OnlineMBBM: online multiclass boost-by-majority (Jung, Goetz and Tewari 2017)."""

import math

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.boosting.booster import Booster, Round
from folklearn.boosting.contract import WeakLearners
from folklearn.errors import InvalidInputError
from folklearn.kernels import boosting as kernels

_MOST_SAMPLES = 10**5


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

    Time O(n_samples N K^2) a round beside the weak learners; memory n_samples N K bytes or so.

    Guarantee, up to the error of the sampled potentials, about :math:`1/\sqrt{n\_samples}`:
    mistakes :math:`\le (K-1) e^{-\gamma^2 N/2} T + \sum_i S_i`, where :math:`S_i` is by how much
    the costs of learner i exceed those of a guess with edge :math:`\gamma`; derived in
    docs/theory/reductions.md. That the last sum is :math:`\tilde O(K^{5/2} \sqrt N S)` is from
    the paper, not checked here.

    Parameters
    ----------
    n_features : number of features d.
    n_classes : number of classes K, at least 2.
    n_learners : number of weak learners N.
    weak_learner : as in `AdaBoostOLMpp`.
    edge : :math:`\gamma` in (0, 1), how much better than guessing every weak learner is.
    n_samples : number of futures.
    seed : of the futures, and of the generators that the weak learners are made with.

    Examples
    --------
    >>> from folklearn.boosting import NaiveBayes, OnlineMBBM, Probabilistic
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
        self.n_samples = validation.count("n_samples", n_samples, 1, _MOST_SAMPLES)
        vote = math.log1p(
            validation.count("n_classes", n_classes, 2) * self.edge / (1.0 - self.edge)
        )
        self._start(n_features, n_classes, n_learners, weak_learner, seed, scale=vote)
        self._futures = self._drawn()

    def _drawn(self) -> NDArray[np.int32]:
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
