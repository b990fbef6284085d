"""What a booster makes of its prefixes: one label by Hedge, probabilities by Bayes."""

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.boosting import mix_prefixes, score_prefixes, softmin


class Prefixes:
    r"""The N prefixes of a booster: prefix i is the vote of the first i weak learners.

    Hedge follows prefix i with probability proportional to :math:`e^{-M_i}`, its mistakes so
    far, and is wrong at most :math:`4 \min_i M_i + 2.05 \ln(N/\delta)` times with probability
    :math:`1 - \delta`. The Bayes mixture weighs it by :math:`e^{-L_i}`, its log loss so far,
    and loses at most :math:`\min_i L_i + \ln N`; both for sample weights of at most 1. Both
    sums are kept, never the weights: nothing underflows. O(N K) a round.

    Parameters
    ----------
    n_learners : number of prefixes N.
    scale : the prefix with scores s says softmax(scale s).
    """

    def __init__(self, n_learners: int, scale: float = 1.0) -> None:
        self.scale = scale
        self.losses: Array = np.zeros(n_learners)
        self.mistakes: Array = np.zeros(n_learners)

    @property
    def hedge_weights(self) -> Array:
        """The probability with which Hedge follows each prefix, (N,)."""
        return _weights(self.mistakes)

    @property
    def mixture_weights(self) -> Array:
        """The posterior weight of each prefix, (N,)."""
        return _weights(self.losses)

    def mixture(self, scores: Array) -> Array:
        """Return the mixture (K,) of the prefixes' probabilities for scores (N+1, K)."""
        p: Array = mix_prefixes(scores, self.scale, self.losses)
        return p

    def draw(self, seed: int, n_rounds: int) -> int:
        """Return the prefix 1..N that Hedge follows in this round; asking again changes nothing."""
        place = np.random.default_rng((seed, n_rounds)).random()
        totals = np.cumsum(self.hedge_weights)
        return 1 + min(int(np.searchsorted(totals, place, side="right")), len(totals) - 1)

    def learn(self, scores: Array, y: int, weight: float) -> float:
        """Count the round for every prefix; return the mixture's log loss before it."""
        loss: float = score_prefixes(scores, self.scale, y, weight, self.losses, self.mistakes)
        return loss


def _weights(totals: Array) -> Array:
    weights = np.empty_like(totals)
    softmin(totals, weights)
    return weights
