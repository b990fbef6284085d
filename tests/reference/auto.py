"""`auto` from its text, dense: leaders, leaders that forget, trackers and FOLKLORE in fixed share.

No expert retires here.
"""

import numpy as np
from scipy.special import softmax

from folklearn.kernels.curvature import valid_curvature

from . import hindsight
from .dense_folklore import DenseFolklore
from .evidence import Quadratic, quadratic
from .leader import DenseLeader, Following, Kept, gradient, objective
from .loss import Array


def _tabulated(z: Array, x_norm: float, B: float) -> float:
    """The library's own constant, which comes from a table and is a little below the best."""
    return float(valid_curvature(z, 2.0 * B * x_norm))


class DenseForgetting:
    """A leader that forgets: every `period` rounds the past is discounted, the period learned.

    After the first it follows rows.
    """

    def __init__(self, d: int, K: int, lam: float, memory: float, following: Following) -> None:
        self.lam, self.memory, self.K, self.following = lam, memory, K, following
        self.is_fresh = True
        wanted = max(memory / 10, (K - 1) * d / 2, 1)
        self.period = int(min(2 ** round(np.log2(wanted)), 256))
        self.W = np.zeros((K, d))
        self.sum = Quadratic(np.zeros((K * d, K * d)), np.zeros(K * d), 0.0, K)
        self.rows: list[tuple[Array, Array, float]] = []

    def learn(self, x: Array, y: Array, w: float) -> None:
        self.rows.append((x, y, w))
        if not self.is_fresh:
            self.W = self.following.move(self.W, self.lam, x, y, w)
        if len(self.rows) < self.period:
            return
        kept = Kept(*(np.array(part) for part in zip(*self.rows, strict=True)))
        self.rows, self.is_fresh = [], False
        self.sum *= np.exp(-self.period / self.memory)
        curved = self.sum.A + hindsight.hessian(self.W, kept.X, kept.weight) / 2
        H = curved + self.lam * np.eye(self.W.size)
        for _ in range(2):
            self.W = self._step(self.W, kept, H)
        self.sum += quadratic(kept.X, kept.Y, self.K, at=self.W, gamma=0.5, weight=kept.weight)

    def _step(self, W: Array, kept: Kept, H: Array) -> Array:
        g = gradient(W, self.lam, kept, self.sum)
        direction = -np.linalg.solve(H, g.ravel()).reshape(W.shape) / 2
        slope, now = float((g * direction).sum()), objective(W, self.lam, kept, self.sum)
        if -slope <= 1e-6 * hindsight.total_loss(W, kept.X, kept.Y, kept.weight):
            return W
        for halvings in range(12):
            t = 0.5**halvings
            if objective(W + t * direction, self.lam, kept, self.sum) <= now + 1e-4 * t * slope:
                return W + t * direction
        return W


class DenseTracker:
    """Gradient descent at a constant or decaying rate, or AdaGrad; `bias` is a constant input."""

    def __init__(
        self, d: int, K: int, rate: float, *, decaying: bool, adaptive: bool, bias: float
    ) -> None:
        self.W = np.zeros((K, d + 1))
        self.squares = np.zeros((K, d + 1))
        self.rate, self.decaying, self.adaptive, self.bias = rate, decaying, adaptive, bias
        self.total = 0.0

    def logits(self, x: Array) -> Array:
        return self.W @ np.append(x, self.bias)

    def learn(self, x: Array, y: Array, w: float) -> None:
        g = w * np.outer(softmax(self.logits(x)) - y, np.append(x, self.bias))
        self.total += w * w
        if self.adaptive:
            self.squares += g**2
            root = np.sqrt(self.squares)
            self.W -= self.rate * np.divide(g, root, out=np.zeros_like(g), where=root > 0)
        elif self.total > 0:
            self.W -= self.rate * g / (np.sqrt(self.total) if self.decaying else 1.0)


class DenseAuto:
    """Fixed share over all of them, in the order of `folklearn.auto`'s experts."""

    def __init__(self, d: int, K: int, max_weight: float = 1.0) -> None:
        self.following = following = Following(d, 0.03)
        ridges, pairs = (0.3, 0.03, 0.003, 0.0005), ((0.03, 300), (0.01, 2000))
        self.leaders = DenseLeader(d, K, ridges, kept=2000, following=following)
        self.forgetting = [DenseForgetting(d, K, *pair, following) for pair in pairs]
        rates = [(1, 0), (4, 0), (1, 1), (4, 1)]
        plain = {"decaying": False, "adaptive": False}
        self.trackers = [DenseTracker(d, K, r, bias=b, **plain) for r, b in rates]
        self.trackers.append(DenseTracker(d, K, 32, decaying=True, adaptive=False, bias=0))
        self.trackers.append(DenseTracker(d, K, 0.5, decaying=False, adaptive=True, bias=1))
        self.folklore = DenseFolklore(d, K, B=10.0, lam=0.2, gamma=_tabulated)
        n = 4 + 2 + 6 + 1
        self.max_weight = max_weight
        self.weights = np.full(n, 1 / n)
        self.losses = np.zeros(n)
        self.t = 0

    def experts(self, x: Array) -> Array:
        logits = [*(W @ x for W in self.leaders.W), *(f.W @ x for f in self.forgetting)]
        logits += [tracker.logits(x) for tracker in self.trackers]
        return np.vstack([softmax(np.array(logits), axis=1), self.folklore.predict(x)])

    def predict(self, x: Array) -> Array:
        return self.weights @ self.experts(x)

    def learn(self, x: Array, y: Array, w: float) -> None:
        if w == 0:
            return
        p, losses = self.predict(x), -(np.log(self.experts(x)) @ y)
        self.t += 1
        a = 1 / (self.t + 1)
        new = self.weights * np.exp(-w * losses / self.max_weight)
        self.weights = (1 - a) * new / new.sum() + a / len(new)
        self.losses += w * losses
        for tracker in self.trackers:
            tracker.learn(x, y, w)
        self.folklore.update(x, y, w)
        self.leaders.idle_by = self.weights[:4]
        self.leaders.learn(x, y, w)
        for leader in self.forgetting:
            leader.learn(x, y, w)
        self.following.learn(x, p, w)
