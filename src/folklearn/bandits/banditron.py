"""Banditron: the perceptron under bandit feedback (Kakade, Shalev-Shwartz and Tewari 2008)."""

from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Agent, Decision
from folklearn.bandits.exploration import chosen_exploration, greedy


class Banditron(Agent):
    r"""The multiclass perceptron, with uniform exploration and importance-weighted steps.

    Use it when a round must cost next to nothing and the classes are nearly separable; its
    errors with noisy labels are well above those of `Soba` or `BanditReduction`.

    With :math:`\hat y = \arg\max_k (Wx)_k` (ties to the lowest class) and exploration
    :math:`\varepsilon`, play :math:`\tilde y \sim P = (1-\varepsilon) e_{\hat y} +
    \varepsilon/K`. When the outcome arrives,

    .. math:: W \leftarrow W + \Big(\frac{1\{\tilde y = y\}}{P(\tilde y)} e_{\tilde y}
        - e_{\hat y}\Big) x^\top

    whose mean over the draw is the step of the perceptron with the label known. Prediction
    and propensity of a delayed outcome are those of its own decision.

    Time and memory O(K d) per round.

    Guarantee, for contexts of norm at most R, outcomes without delay and the horizon's
    :math:`\varepsilon`: expected mistakes are at most the multiclass hinge loss of any W of
    Frobenius norm at most D, plus :math:`O(T^{2/3})`. If some W has no loss at all,
    :math:`\varepsilon = D R \sqrt{K/T}` makes it :math:`O(\sqrt T)`. A constant
    :math:`\varepsilon` costs :math:`\varepsilon T` for good.

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    exploration : :math:`\varepsilon`, from 0 to 1; by default 1/32, near the best on streams
        with and without noise (experiments/bandit).
    horizon : number of rounds T; with it, or with ``exploration="theory"`` too, it is the theory's
        :math:`\varepsilon = \min(1, (K D^2 R^2 / (2T))^{1/3})`, which minimises the sum of
        the leading terms :math:`\varepsilon T` and :math:`DR\sqrt{2KT/\varepsilon}` of the
        theorem for a hinge loss of the order of T.
    D, R : norms of the comparator and the contexts, for the horizon only.
    seed : an integer, or a NumPy Generator, which is then used and advanced.
    max_pending : decisions that may wait for an outcome, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.bandits import Banditron
    >>> rng = np.random.default_rng(0)
    >>> agent = Banditron(n_features=3, n_classes=3)
    >>> right = 0
    >>> for t in range(2000):
    ...     x = rng.normal(size=3)
    ...     decision = agent.act(x)
    ...     correct = decision.action == np.argmax(x)
    ...     agent.learn(decision, correct)
    ...     right += correct
    >>> bool(right > 1500)
    True

    References
    ----------
    Kakade, Shalev-Shwartz and Tewari (2008), "Efficient Bandit Algorithms for Online
    Multiclass Prediction", Algorithm 1, Theorem 2.
    """

    PARAMS = ("n_features", "n_classes", "exploration", "D", "R")
    ARRAYS = ("W",)

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * d

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | str | None = None,
        horizon: int | None = None,
        D: float = 1.0,
        R: float = 1.0,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = K = validation.count("n_classes", n_classes, 2)
        self.D = D = validation.positive("D", D)
        self.R = R = validation.positive("R", R)
        self.exploration = chosen_exploration(
            exploration,
            horizon,
            1.0 / 32.0,
            lambda T: (K * (D * R) ** 2 / (2.0 * T)) ** (1.0 / 3.0),
        )
        self._W: Array = np.zeros((K, self.n_features))
        self._start(seed, max_pending)

    def _see(self, x: Array) -> Array:
        scores: Array = self._W @ x
        return scores

    def _play(self, seen: Array) -> Array:
        return greedy(seen, self.exploration)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        self._W[np.argmax(seen)] -= decision.x
        if correct:
            self._W[decision.action] += decision.x / decision.propensity
