"""Bandit agents by their definitions: dense matrices, dense inverses, whole histories.

A twin is forced: `probabilities(x)` says how the agent would play, and `learn` is told which
action was played, with what probability, and whether it was correct, so that twin and agent
can be compared along the same trajectory. For an outcome that comes late, `played` is the W
with which its decision was made.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from .aggregating import DenseAggregating, uniform_prior
from .dense_folklore import DenseFolklore
from .loss import Array


def corner(k: int, n_classes: int) -> Array:
    """e_k."""
    return np.eye(n_classes)[k]


def around(best: int, n_classes: int, exploration: float) -> Array:
    """(1 - exploration) e_best + exploration / K."""
    return (1 - exploration) * corner(best, n_classes) + exploration / n_classes


def mistake_bound(
    T: int, K: int, *, regret: float, loss: float, exploration: float, cost: float = 1.0
) -> float:
    """Agarwal, Kale and Zimmert (2021), Theorem 3; `cost` as for `DECODING_COST`."""
    return cost * loss + exploration * T + cost * K * regret / exploration


class DenseBanditron:
    """Kakade, Shalev-Shwartz, Tewari (2008), Algorithm 1."""

    def __init__(self, n_features: int, n_classes: int, exploration: float) -> None:
        self.K, self.exploration = n_classes, exploration
        self.W = np.zeros((n_classes, n_features))

    def probabilities(self, x: Array) -> Array:
        return around(int(np.argmax(self.W @ x)), self.K, self.exploration)

    def learn(
        self,
        x: Array,
        action: int,
        propensity: float,
        correct: bool,
        played: Array | None = None,
    ) -> None:
        W = self.W if played is None else played
        predicted = corner(int(np.argmax(W @ x)), self.K)
        estimate = (corner(action, self.K) / propensity) if correct else np.zeros(self.K)
        self.W = self.W + np.outer(estimate - predicted, x)


class DenseNewtron:
    """Hazan, Kale (2011): follow the regularised leader on quadratics over a Frobenius ball.

    The surrogate of round s is <Delta, W - W_s> + (kappa beta / 2) <Delta, W - W_s>^2, or, for
    the diagonal variant, the same with the Hessian's diagonal; the regulariser |W|^2 / (2 D).
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        exploration: float,
        alpha: float,
        beta: float,
        D: float,
        diagonal: bool = False,
    ) -> None:
        self.K, self.exploration = n_classes, exploration
        self.alpha, self.beta, self.D, self.diagonal = alpha, beta, D, diagonal
        self.rounds: list[tuple[Array, float, Array]] = []
        self.W = np.zeros((n_classes, n_features))

    def probabilities(self, x: Array) -> Array:
        p = softmax(self.alpha * self.W @ x)
        return (1 - self.exploration) * p + self.exploration / self.K

    def learn(
        self,
        x: Array,
        action: int,
        propensity: float,
        correct: bool,
        played: Array | None = None,
    ) -> None:
        W = self.W if played is None else played
        p = softmax(self.alpha * W @ x)
        direction = np.outer(corner(action, self.K) - 1 / self.K, x)
        if correct:
            Delta, kappa = -(1 - p[action]) / propensity * direction, propensity
        else:
            Delta, kappa = p[action] / propensity * direction, 1.0
        self.rounds.append((Delta.ravel(), kappa, W.ravel()))
        self.W = self._leader().reshape(self.W.shape)

    def _leader(self) -> Array:
        n = self.W.size
        H, b = np.eye(n) / self.D, np.zeros(n)
        for Delta, kappa, W in self.rounds:
            hessian = kappa * self.beta * np.outer(Delta, Delta)
            if self.diagonal:
                hessian = np.diag(np.diag(hessian))
            H = H + hessian
            b = b + Delta - hessian @ W

        def at(mu: float) -> Array:
            return -np.linalg.inv(H + mu * np.eye(n)) @ b

        if np.linalg.norm(at(0.0)) <= self.D:
            return at(0.0)
        # |(H + mu)^-1 b| <= |b| / mu: the multiplier is at most |b| / D.
        most = float(np.linalg.norm(b)) / self.D
        mu = brentq(lambda mu: np.linalg.norm(at(mu)) - self.D, 0.0, most, xtol=1e-15, rtol=1e-14)
        return at(mu)


class DenseSoba:
    """Beygelzimer, Orabona, Zhang (2017): the second-order perceptron with a skipping rule."""

    def __init__(
        self, n_features: int, n_classes: int, exploration: float, diagonal: bool = False
    ) -> None:
        n = n_classes * n_features
        self.K, self.exploration, self.diagonal = n_classes, exploration, diagonal
        self.A, self.theta = np.eye(n), np.zeros(n)
        self.running_sum = 0.0
        self.n_skipped = 0

    @property
    def W(self) -> Array:
        return (np.linalg.inv(self.A) @ self.theta).reshape(self.K, -1)

    def probabilities(self, x: Array) -> Array:
        return around(int(np.argmax(self.W @ x)), self.K, self.exploration)

    def learn(
        self,
        x: Array,
        action: int,
        propensity: float,
        correct: bool,
        played: Array | None = None,
    ) -> None:
        if not correct:
            return
        scores = (self.W if played is None else played) @ x
        wrong = [k for k in range(self.K) if k != action]
        best_wrong = max(wrong, key=lambda k: (scores[k], -k))
        g = np.kron(corner(best_wrong, self.K) - corner(action, self.K), x) / propensity
        zeta = np.sqrt(propensity) * g
        W = self.W.ravel()
        mu = ((W @ zeta) ** 2 + 2 * W @ g) / (1 + zeta @ np.linalg.inv(self.A) @ zeta)
        if self.running_sum + mu < 0:
            self.n_skipped += 1
            return
        self.running_sum += mu
        outer = np.outer(zeta, zeta)
        self.A = self.A + (np.diag(np.diag(outer)) if self.diagonal else outer)
        self.theta = self.theta - g


class DenseObama:
    """Foster et al. (2018): the posterior of importance-weighted losses, by quadrature.

    One feature, the uniform prior on |W_k| <= B, a tensor product of `points` Gauss nodes.
    """

    def __init__(self, n_classes: int, exploration: float, B: float, points: int = 60) -> None:
        self.K, self.exploration = n_classes, exploration
        self.posterior = DenseAggregating(uniform_prior(1, n_classes, B, points), mu=exploration)

    def probabilities(self, x: Array) -> Array:
        return self.posterior.predict(x)

    def learn(self, x: Array, action: int, propensity: float, correct: bool) -> None:
        if correct:
            self.posterior.update(x, action, self.exploration / self.K / propensity)


def decoded(p: Array, decoding: str) -> Array:
    """How the reduction exploits the learner's probabilities p."""
    if decoding == "sample":
        return p
    best = int(np.argmax(p))
    sampling = min(1.0, 2 * (1 - p[best]))
    return (1 - sampling) * corner(best, len(p)) + sampling * p


class DenseReduction:
    """Agarwal, Kale, Zimmert (2021), Algorithm 2, over the dense FOLKLORE.

    With updates = "correct" every correct action teaches, with weight exploration / P(action).
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        B: float,
        exploration: float,
        decoding: str,
        gamma: float | None = None,
        updates: str = "explored",
    ) -> None:
        self.K, self.decoding, self.updates = n_classes, decoding, updates
        self.exploration = exploration
        self.learner = DenseFolklore(n_features, n_classes, B, 2 / B, gamma)

    def probabilities(self, x: Array) -> Array:
        exploit = decoded(self.learner.predict(x), self.decoding)
        return (1 - self.exploration) * exploit + self.exploration / self.K

    def learn(
        self, x: Array, action: int, propensity: float, explored: bool, correct: bool
    ) -> None:
        if correct and self.updates == "correct":
            self.learner.update(x, action, weight=self.exploration / propensity)
        elif correct and explored:
            self.learner.update(x, action)
