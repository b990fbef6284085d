"""Bayes mixture of learners: the aggregating algorithm (Vovk 1998) over finitely many experts.

The log loss is 1-mixable, so for weights w_t <= w_max and hard or soft labels

    total loss <= min_i (loss of expert i + w_max (-ln prior_i)).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .loss import Array, as_distribution
from .streams import Learner


def soft_log_loss(p: Array, target: Array) -> float:
    """-<y, ln p>, a class of y_k = 0 not counting even if p_k = 0."""
    seen = target > 0
    return -float(target[seen] @ np.log(p[seen]))


def bayes_mixture(
    P: Array, y: ArrayLike, weight: ArrayLike | None = None, w_max: float = 1.0
) -> tuple[Array, Array]:
    """(mixtures (T, K), log weights after the last round (N,)) of the predictions P (T, N, K)."""
    T, N, K = P.shape
    weight = np.ones(T) if weight is None else np.asarray(weight, dtype=float)
    log_weights = np.full(N, -np.log(N))
    mixed = np.empty((T, K))
    for t, label in enumerate(np.asarray(y)):
        mixed[t] = np.exp(log_weights) @ P[t]
        target = as_distribution(label, K)
        losses = np.array([soft_log_loss(p, target) for p in P[t]])
        log_weights = log_weights - weight[t] / w_max * losses
        log_weights -= np.logaddexp.reduce(log_weights)
    return mixed, log_weights


def fixed_share(
    P: Array,
    y: ArrayLike,
    weight: ArrayLike | None = None,
    w_max: float = 1.0,
    n_before: int = 0,
) -> tuple[Array, Array]:
    """(mixtures (T, K), weights after the last round (N,)): Herbster and Warmuth's fixed share.

    After the Bayes update of the t-th round of positive weight, t from 1, every expert gives
    1/(t+1) of its weight to all N alike: w <- (1 - a) w + a/N with a = 1/(t+1). There may have
    been rounds before, which count in t.
    """
    T, N, K = P.shape
    weight = np.ones(T) if weight is None else np.asarray(weight, dtype=float)
    shares = np.full(N, 1.0 / N)
    mixed = np.empty((T, K))
    t = n_before
    for i, label in enumerate(np.asarray(y)):
        mixed[i] = shares @ P[i]
        if weight[i] == 0.0:
            continue
        target = as_distribution(label, K)
        losses = np.array([soft_log_loss(p, target) for p in P[i]])
        shares = shares * np.exp(-weight[i] / w_max * (losses - losses.min()))
        shares /= shares.sum()
        t += 1
        alpha = 1.0 / (t + 1.0)
        shares = (1.0 - alpha) * shares + alpha / N
    return mixed, shares


def most_missed(
    shares: Array, P: Array, y: ArrayLike, weight: ArrayLike | None = None, w_max: float = 1.0
) -> Array:
    """What a mixture with `shares` (T, N) of the experts P (T, N, K) would miss, for each (N,).

    That is how much more the mixture of the others, in the same proportion, loses in the stretch
    of rounds in which this is most.
    """
    T, N, K = P.shape
    weight = np.ones(T) if weight is None else np.asarray(weight, dtype=float)
    missed = np.zeros((T, N))
    for t, label in enumerate(np.asarray(y)):
        target = as_distribution(label, K)
        losses = np.array([weight[t] / w_max * soft_log_loss(p, target) for p in P[t]])
        for i in range(N):
            others = np.arange(N) != i
            without = shares[t, others] / shares[t, others].sum()
            missed[t, i] = np.log(shares[t] @ np.exp(-losses))
            missed[t, i] -= np.log(without @ np.exp(-losses[others]))
    sums = [missed[a:b].sum(axis=0) for a in range(T) for b in range(a, T + 1)]
    most: Array = np.max(sums, axis=0)
    return most


def switching_bound(N: int, last_rounds: Sequence[int], T: int) -> float:
    """What fixed share may lose beyond a sequence of experts, in units of w_max.

    (m+1) ln N + sum_i ln t_i + ln T for m switches, t_i the last round of the old expert.
    """
    switches = len(last_rounds)
    return (switches + 1) * np.log(N) + sum(np.log(t) for t in last_rounds) + np.log(T)


class DenseMixture:
    """Play the average of the experts' probabilities, weights exp(-weighted loss / w_max)."""

    def __init__(self, experts: Sequence[Learner], w_max: float = 1.0) -> None:
        self.experts, self.w_max = list(experts), w_max
        self.log_weights = np.full(len(self.experts), -np.log(len(self.experts)))
        self.loss = 0.0

    def predict(self, x: Array) -> Array:
        return np.exp(self.log_weights) @ np.array([expert.predict(x) for expert in self.experts])

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss -<y, ln p>, not multiplied by the weight."""
        p = self.predict(x)
        round_loss = soft_log_loss(p, as_distribution(y, p.size))
        losses = np.array([expert.update(x, y, weight) for expert in self.experts])
        self.log_weights = self.log_weights - weight / self.w_max * losses
        self.log_weights -= np.logaddexp.reduce(self.log_weights)
        self.loss += weight * round_loss
        return round_loss
