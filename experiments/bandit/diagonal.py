"""SOBA and Newtron with the diagonals of their matrices, as their papers play them on wide rows."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from folklearn.bandits import Decision
from folklearn.baselines import LinearAgent, Newtron, Soba
from folklearn.baselines.bandits import minimise_in_ball

Array = NDArray[np.float64]


class DiagonalSoba(LinearAgent):
    """`Soba` with diag A: O(K d) a round, and nothing is proven."""

    DEFAULT_EXPLORATION = Soba.DEFAULT_EXPLORATION
    ARRAYS = ("W", "S", "total")

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._S: Array = np.ones_like(self._W)  # of A^-1
        self._total: Array = np.zeros(1)

    def _theory(self, T: int) -> float:
        return Soba._theory(self, T)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if not correct:
            return
        y, weight = decision.action, 1.0 / math.sqrt(decision.propensity)
        scores = seen.copy()
        scores[y] = -np.inf
        zeta = np.zeros_like(self._W)
        zeta[np.argmax(scores)] = weight * decision.x
        zeta[y] = -weight * decision.x
        margin, v = float((self._W * zeta).sum()), self._S * zeta
        spread = float((v * zeta).sum())
        total = float(self._total[0]) + margin * (margin + 2.0 * weight) / (1.0 + spread)
        if total < 0.0:
            return
        self._total[0] = total
        growth = 1.0 + v * zeta
        self._W[:] = (self._W - v * weight) / growth
        self._S /= growth


class DiagonalNewtron(LinearAgent):
    """`Newtron` with diag H: O(K d) a round, expanded at the W that an outcome finds.

    With b = sum of Delta - beta kappa Delta^2 o W in all coordinates; nothing is proven.
    """

    DEFAULT_EXPLORATION = Newtron.DEFAULT_EXPLORATION
    PARAMS = (*LinearAgent.PARAMS, "alpha", "beta")
    ARRAYS = ("W", "H", "b")

    def __init__(self, *, alpha: float = 10.0, beta: float = 0.01, **parameters: Any) -> None:
        self.alpha, self.beta = alpha, beta
        super().__init__(**parameters)
        self._H: Array = np.ones(self._W.size) / self.D
        self._b: Array = np.zeros(self._W.size)

    def _theory(self, T: int) -> float:
        return Newtron._theory(self, T)

    def _play(self, seen: Array) -> Array:
        return (1.0 - self.exploration) * softmax(self.alpha * seen) + self.exploration / len(seen)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        K, k, propensity = self.n_classes, decision.action, decision.propensity
        p = float(softmax(self.alpha * seen)[k])
        size, kappa = ((p - 1.0) / propensity, propensity) if correct else (p / propensity, 1.0)
        Delta = np.kron(size * (np.eye(K)[k] - 1.0 / K), decision.x)
        H = kappa * self.beta * Delta**2
        self._b += Delta - H * self._W.ravel()
        self._H += H
        self._W[:] = minimise_in_ball(self._H, self._b, self.D).reshape(self._W.shape)
