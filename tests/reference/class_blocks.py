"""One Gaussian per class under a joint softmax, dense, from its definition.

    z' = argmin  w l(z', y) + sum_i (z'_i - z_i)^2 / (2 s_i),    s_i = x'P_i x,
    w_i -= w (p'_i - y_i) P_i x,    P_i^-1 += w p'_i (1 - p'_i) x x',

with p' = softmax(z'). Precisions are kept, and inverted when they are needed.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import softmax

from .loss import Array, as_distribution, covariance, log_loss


def implicit_step(z: Array, s: Array, y: Array, weight: float) -> Array:
    """The logits z' after the step: SciPy's trust region, then Newton until nothing moves."""

    def objective(a: Array) -> float:
        loss = float(np.logaddexp.reduce(a) - y @ a)
        return weight * loss + float(((a - z) ** 2 / (2 * s)).sum())

    def gradient(a: Array) -> Array:
        return weight * (softmax(a) - y) + (a - z) / s

    def hessian(a: Array) -> Array:
        return weight * covariance(softmax(a)) + np.diag(1 / s)

    found = minimize(objective, z, jac=gradient, hess=hessian, method="trust-exact").x
    for _ in range(20):
        found = found - np.linalg.solve(hessian(found), gradient(found))
    return np.asarray(found)


class DenseClassBlocks:
    """The learner with all matrices written out.

    Attributes
    ----------
    W : means (K, d).
    precisions : P_i^-1 (K, d, d).
    loss : weighted sum of the losses.
    constant, G : the planes below the losses, sum of w H(p) and of w (p - y) x'.
    """

    def __init__(self, n_features: int, n_classes: int, ridge: float, R: float = 1.0) -> None:
        self.K = n_classes
        self.W = np.zeros((n_classes, n_features))
        prior = 2 * ridge * R**2 * np.eye(n_features)
        self.precisions = np.repeat(prior[None], n_classes, axis=0)
        self.loss, self.constant = 0.0, 0.0
        self.G = np.zeros((n_classes, n_features))

    def predict(self, x: Array) -> Array:
        return np.asarray(softmax(self.W @ x))

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss, not multiplied by the weight."""
        z, given = self.W @ x, as_distribution(y, self.K)
        p, loss = softmax(z), log_loss(z, y)
        self.loss += weight * loss
        self.constant -= weight * float(p @ np.log(p))
        self.G += weight * np.outer(p - given, x)
        spread = np.linalg.solve(self.precisions, np.repeat(x[None, :, None], self.K, axis=0))
        s = spread[:, :, 0] @ x
        if weight > 0 and s.max() > 0:
            p = softmax(implicit_step(z, s, given, weight))
            self.W -= (weight * (p - given))[:, None] * spread[:, :, 0]
            self.precisions += (weight * p * (1 - p))[:, None, None] * np.outer(x, x)
        return loss

    def least(self) -> float:
        """What the planes say no model goes below, its penalty (C = 1) counted."""
        tau = 2.0 if len(self.G) == 2 else 1.0
        return least_of_planes(self.constant, 0.5 * float((self.G**2).sum()) / tau)


def least_of_planes(constant: float, bent: float) -> float:
    """The largest s constant - s^2 bent for a share s of the planes, which no loss is below."""
    s = 1.0 if 2.0 * bent <= constant else constant / (2.0 * bent)
    return s * constant - s * s * bent
