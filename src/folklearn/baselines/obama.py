"""OBAMA: the Bayesian mixture of all linear models under bandit feedback (Foster et al. 2018)."""

from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Agent, Decision
from folklearn.bandits.exploration import choose_exploration, explore
from folklearn.baselines.aggregating import Aggregating
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence import bounds
from folklearn.serialization import Record, put_inside


class Obama(Agent):
    r"""The aggregating algorithm on importance-weighted losses.

    Use it as a reference on small problems, K d up to about 20: its dependence on B is
    logarithmic, and every correct outcome teaches, not only those of explorations. For
    everything else use `BanditReduction` over `folklearn.Folklore`.

    .. math:: p = E_{W \sim P_t} \mathrm{softmax}(W x), \qquad \tilde y \sim P = (1-\mu) p +
        \frac\mu K, \qquad P_t(W) \propto \mathrm{prior}(W) \exp\Big(-\frac\mu K \sum_s
        \frac{1\{\tilde y_s = y_s\}}{P_s(y_s)} \ell_s(W)\Big)

    with the uniform prior on row norms at most B and :math:`\mu` the exploration. A correct
    outcome is thus an example of weight :math:`(\mu/K) / P_s(y_s) \le 1`, of mean
    :math:`\mu/K`, with the propensity of its own decision; a wrong one teaches nothing.
    Differs from Foster et al. in the integral, by particles.

    Time and memory of the aggregating algorithm: O(n_particles K d) a round, and a pass over
    the whole history, O(n_particles n_moves t K d), when the particles move.

    Guarantee, for the exact integral, contexts of norm at most R and outcomes without delay:
    for every W of row norms at most B, expected mistakes are at most :math:`\sum_t \ell_t(W)
    + \mu T + K R(T) / \mu`, R(T) the regret bound `baselines.bounds.aggregating_uniform`.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.
    exploration : :math:`\mu`, above 0 and at most 1; by default 0.1, the best of
        0.03 to 0.6 on streams with and without noise.
    horizon : number of rounds T, which sets :math:`\mu = \min(1, \sqrt{K R(T) / T})`: it makes
        the last two terms equal, and is cautious.
    B : largest row norm of the linear models to compete with, positive.
    R : bound on the norm of x, for the horizon only.
    n_particles : number of particles, at least 2; rounded up to a multiple of K.
    n_moves : Metropolis moves after each resampling, at least 1.
    seed : an integer, or a NumPy Generator, which is then used and advanced; it feeds the
        actions, and its first number the particles.
    max_pending : decisions that may wait for an outcome, at least 1.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Obama
    >>> X, y = synthetic.separable(0, 500, d=2, K=3)
    >>> log = interact(Obama(n_features=2, n_classes=3, n_particles=120), X, y)
    >>> bool(log.rewards.mean() > 0.6)
    True

    References
    ----------
    Foster, Kale, Luo, Mohri and Sridharan (2018), "Logistic Regression: The Importance of
    Being Improper", section on bandit multiclass learning (OBAMA).
    """

    PARAMS = ("n_features", "n_classes", "exploration", "B", "R", "n_particles", "n_moves")

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return validation.count("n_particles", words["n_particles"], 2) * K * d

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | str | None = None,
        horizon: int | None = None,
        B: float = 10.0,
        R: float = 1.0,
        n_particles: int = 512,
        n_moves: int = 10,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._start(seed, max_pending)
        self._learner = Aggregating(
            n_features=n_features,
            n_classes=n_classes,
            B=B,
            R=R,
            n_particles=n_particles,
            n_moves=n_moves,
            # A second generator: the record of the learner has its state.
            seed=np.random.default_rng(self._rng.integers(2**63)),
        )
        learner = self._learner
        self.n_features, self.n_classes = learner.n_features, learner.n_classes
        self.B, self.R = learner.B, learner.R
        self.n_particles, self.n_moves = learner.n_particles, learner.n_moves
        self.exploration = choose_exploration(exploration, horizon, 0.1, self._theory)
        if self.exploration == 0.0:
            raise InvalidInputError(
                "exploration must be above 0: the weight of every example is proportional to it"
            )

    def _theory(self, horizon: int) -> float:
        regret = self._learner.regret_bound(horizon)
        return bounds.bandit_exploration(horizon, n_classes=self.n_classes, regret=regret)

    def _see(self, x: Array) -> Array:
        return self._learner._predict(x)

    def _play(self, seen: Array) -> Array:
        return explore(seen, self.exploration)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if correct:
            weight = self.exploration / self.n_classes / decision.propensity
            x, y = decision.x.copy(), decision.action
            self._learner._learn(x, y, validation.NO_SOFT, min(1.0, weight))

    def to_record(self) -> Record:
        """Return the full state as a record, that of the particles included."""
        record = super().to_record()
        put_inside(record, "learner", self._learner)
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        fresh, self._learner = self._learner, record.inner("learner")
        if repr(self._learner) != repr(fresh):
            raise StateFileError("an Obama state holds particles of another problem")
