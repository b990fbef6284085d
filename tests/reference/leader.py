"""The leader's objective and one damped Newton step, dense, from their definitions.

    objective(W) = lam |W|^2 + sum over kept rows of w l(W x, y) + q(W),

q the sum of the other rows' surrogates with gamma = 1/2 (`evidence.quadratic`).
"""

from dataclasses import dataclass

import numpy as np

from . import hindsight
from .evidence import Quadratic
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
