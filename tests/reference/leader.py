"""The leader's objective and one damped Newton step, dense, from their definitions.

    objective(W) = lam |W|^2 + sum over kept rows of w l(W x, y) + q(W),

q the sum of the other rows' surrogates with gamma = 1/2 (`evidence.quadratic`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from . import hindsight
from .evidence import Quadratic, quadratic
from .loss import Array


@dataclass(frozen=True)
class Kept:
    """Rows that enter with their true loss: X (T, d), Y (T, K), weight (T,)."""

    X: Array
    Y: Array
    weight: Array


def objective(W: Array, lam: float, kept: Kept, quadratic: Quadratic) -> float:
    true = hindsight.total_loss(W, kept.X, kept.Y, kept.weight)
    return lam * float((W**2).sum()) + true + quadratic.value(W)


def gradient(W: Array, lam: float, kept: Kept, quadratic: Quadratic) -> Array:
    true = hindsight.gradient(W, kept.X, kept.Y, kept.weight)
    return 2 * lam * W + true + quadratic.gradient(W)


def hessian(W: Array, lam: float, kept: Kept, quadratic: Quadratic) -> Array:
    """In the coordinates W.ravel(), (K d, K d)."""
    return 2 * lam * np.eye(W.size) + hindsight.hessian(W, kept.X, kept.weight) + 2 * quadratic.A


def newton_step(
    W: Array, lam: float, kept: Kept, quadratic: Quadratic, slope_share: float = 1e-4
) -> tuple[Array, float]:
    """(next W, length): Newton's direction, halved until the objective falls enough (Armijo).

    Length 0 means that nothing along the direction was better: W is the minimiser to rounding.
    """
    g = gradient(W, lam, kept, quadratic)
    direction = -np.linalg.solve(hessian(W, lam, kept, quadratic), g.ravel()).reshape(W.shape)
    slope = float((g * direction).sum())
    now = objective(W, lam, kept, quadratic)
    length = 1.0
    while length > 1e-10:
        moved = W + length * direction
        if objective(moved, lam, kept, quadratic) <= now + slope_share * length * slope:
            return moved, length
        length /= 2
    return W, 0.0


def refresh(W: Array, lam: float, kept: Kept, quadratic: Quadratic, n_steps: int) -> Array:
    """n_steps damped Newton steps from W."""
    for _ in range(n_steps):
        W, _ = newton_step(W, lam, kept, quadratic)
    return W


def mode(lam: float, kept: Kept, quadratic: Quadratic, n_steps: int = 200) -> Array:
    """The minimiser itself, by as many steps as it takes."""
    K = quadratic.n_classes
    W = np.zeros((K, quadratic.g.size // K))
    for _ in range(n_steps):
        W, length = newton_step(W, lam, kept, quadratic)
        if length == 0.0:
            break
    return W


class Following:
    """The precision that leaders follow rows by: 2 lam I + the curvature of an average class."""

    def __init__(self, d: int, lam: float) -> None:
        self.precision = 2 * lam * np.eye(d)

    def move(self, W: Array, lam: float, x: Array, y: Array, w: float) -> Array:
        along = np.linalg.solve(self.precision, x)
        s = float(x @ along)
        if s == 0:
            return W
        damping = 1 + w * s / 5 + 2 * lam * float(along @ along) / s
        return W + w / damping * np.outer(y - softmax(W @ x), along)

    def learn(self, x: Array, p: Array, w: float) -> None:
        self.precision = self.precision + w * float((p * (1 - p)).mean()) * np.outer(x, x)


class DenseLeader:
    """Leaders of several ridges, mixed by Bayes or in fixed share.

    Everything that `folklearn.Leader` does, in the order in which its text says so, with dense
    matrices over all K d coordinates. A row that is not kept is expanded when it comes; the
    modes do not change between refreshes, so it does not matter when it enters the sum. Those of
    `auto` do: with `following` they are moved by its text, and refreshed more seldom.
    """

    def __init__(
        self,
        d: int,
        K: int,
        ridges: tuple[float, ...],
        kept: int,
        share: bool = False,
        following: "Following | None" = None,
    ) -> None:
        self.following = following
        self.K, self.d, self.n_kept, self.share = K, d, kept, share
        self.lam = ridges
        n = len(self.lam)
        self.W = np.zeros((n, K, d))
        self.losses = np.zeros(n)
        self.weights = np.full(n, 1 / n)
        self.sum = Quadratic(np.zeros((K * d, K * d)), np.zeros(K * d), 0.0, K)
        self.X: list[Array] = []
        self.Y: list[Array] = []
        self.w: list[float] = []
        self.t, self.next, self.best, self.n_refreshes = 0, 0, 0, 0
        self.idle_by: Array | None = None  # weights in a mixture with others

    def predict(self, x: Array) -> Array:
        return self.weights @ softmax(self.W @ x, axis=1)

    def learn(self, x: Array, y: Array, w: float) -> None:
        if w == 0:
            return
        losses = w * -(np.log(softmax(self.W @ x, axis=1)) @ y)
        self.losses += losses
        if self.share:
            a = 1 / (self.t + 2)
            new = self.weights * np.exp(-losses)
            self.weights = (1 - a) * new / new.sum() + a / len(new)
        else:
            new = np.exp(self.losses.min() - self.losses)
            self.weights = new / new.sum()
        if self.following is not None:
            for e, lam in enumerate(self.lam):
                self.W[e] = self.following.move(self.W[e], lam, x, y, w)
        if len(self.X) < self.n_kept:
            self.X.append(x)
            self.Y.append(y)
            self.w.append(w)
        else:
            row = (x[None, :], y[None, :], self.K)
            weight = np.array([w])
            self.sum += quadratic(*row, at=self.W[self.best], gamma=0.5, weight=weight)
        self.t += 1
        if self.t >= self.next:
            self.refresh()
            if self.following is not None:
                ahead = int(np.sqrt(self.t * (self.t + max(400, 20 * self.d))) / 10)
                self.next = self.t + max(1, ahead)
                return
            dense = self.t < 4000 and (self.K - 1) * self.d < 500
            self.next = self.t + max(1, self.t // (20 if dense else 10))

    def refresh(self) -> None:
        kept = Kept(np.array(self.X), np.array(self.Y), np.array(self.w))
        self.best = int(np.argmin(self.losses))
        curved = self.sum.A + hindsight.hessian(self.W[self.best], kept.X, kept.weight) / 2
        self.n_refreshes += 1
        weights = self.weights if self.idle_by is None else self.idle_by
        for e, lam in enumerate(self.lam):
            idle = weights[e] < 1e-2 and e != self.best
            if idle and self.n_refreshes % 4:
                continue
            for _ in range(2):
                self.W[e] = self._step(self.W[e], lam, kept, curved)

    def _step(self, W: Array, lam: float, kept: Kept, curved: Array) -> Array:
        """One step with the curvature that all ridges share."""
        g = gradient(W, lam, kept, self.sum)
        H = curved + lam * np.eye(W.size)
        direction = -np.linalg.solve(H, g.ravel()).reshape(W.shape) / 2
        slope = float((g * direction).sum())
        if -slope <= 1e-6 * hindsight.total_loss(W, kept.X, kept.Y, kept.weight):
            return W
        now = objective(W, lam, kept, self.sum)
        for halvings in range(12):
            moved = W + 0.5**halvings * direction
            if objective(moved, lam, kept, self.sum) <= now + 1e-4 * 0.5**halvings * slope:
                return moved
        return W

    def run(self, X: Array, Y: Array, weight: Array) -> Array:
        P = []
        for x, y, w in zip(X, Y, weight, strict=True):
            P.append(self.predict(x))
            self.learn(x, y, w)
        return np.array(P)
