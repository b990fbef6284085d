"""Online Newton Step (Hazan, Agarwal, Kale 2007, Figure 2 and Theorem 2), dense in K d coordinates.

Vectors of length K d are W row by row. With ||x_t|| <= R the loss is alpha-exp-concave on the
class, alpha = e^(-2BR) / (K - 1): the largest alpha with H >= alpha gradient gradient^T is
1 / sum_k (y_k - p_k)^2 / p_k, which is least at a hard label of the smallest probability, and
there equals p_y / (1 - p_y). So a soft label needs no rule of its own. A weight w multiplies
the gradient; w times an alpha-exp-concave loss is (alpha / w)-exp-concave, so the bound holds as
it stands for weights up to 1, and otherwise after dividing them by the largest.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .loss import Array, as_distribution, log_loss
from .ogd import project_rows

TOLERANCE = 1e-10


def projection_gap(W: Array, gradient: Array, B: float) -> float:
    """<g, W> + B sum_k ||g_k||, at least f(W) - min f over the class for every convex f."""
    return float(np.sum(gradient * W) + B * np.linalg.norm(gradient, axis=1).sum())


def project(V: Array, M: Array, B: float) -> tuple[Array, float]:
    """(W, gap): the row norms of W are at most B and ||W - V||_M^2 is within gap of the least.

    Projected gradient with the constant momentum for strongly convex functions, until the gap
    is small and W has stopped moving: a gap of 1e-10 alone leaves an error of about 1e-5 in W.
    """
    eigenvalues = np.linalg.eigvalsh(M)
    low, high = np.sqrt(eigenvalues[0]), np.sqrt(eigenvalues[-1])
    momentum = (high - low) / (high + low)

    def gradient(W: Array) -> Array:
        return 2 * (M @ (W - V).ravel()).reshape(V.shape)

    W = ahead = project_rows(V, B)
    gap = projection_gap(W, gradient(W), B)
    still = 0
    for _ in range(100_000):
        if gap <= TOLERANCE and still == 5:
            return W, gap
        previous, W = W, project_rows(ahead - gradient(ahead) / (2 * eigenvalues[-1]), B)
        ahead = W + momentum * (W - previous)
        gap = projection_gap(W, gradient(W), B)
        still = still + 1 if np.abs(W - previous).max() <= 1e-15 * B else 0
    raise RuntimeError(f"the projection stopped at a gap of {gap:g}")


class DenseOns:
    """W_{t+1} = projection of W_t - A_t^-1 gradient_t / beta in the norm of A_t, W_1 = 0.

    beta = min(1 / (4 G D), alpha) / 2, A_0 = I / (beta D)^2, A_t = A_{t-1} + gradient gradient^T.

    The projection minimises (beta / 2) ||W - V||_A^2. In this scale its gap is what the round's
    inexactness adds to the regret, in nats. (Without the factor the objective grows like
    1 / beta, and an absolute gap of 1e-10 is below rounding from BR = 5 on.)

    Attributes
    ----------
    loss : weighted sum of the losses.
    largest_gap : the worst projection.
    newton_sum : sum of gradient^T A_t^-1 gradient, of the live bound.
    """

    def __init__(self, n_features: int, n_classes: int, B: float, R: float) -> None:
        self.d, self.K, self.B = n_features, n_classes, B
        self.G = np.sqrt(2) * R
        self.D = 2 * B * np.sqrt(n_classes)
        self.alpha = np.exp(-2 * B * R) / (n_classes - 1)
        self.beta = min(1 / (4 * self.G * self.D), self.alpha) / 2
        self.A = np.eye(n_classes * n_features) / (self.beta * self.D) ** 2
        self.W = np.zeros((n_classes, n_features))
        self.loss = 0.0
        self.largest_gap = 0.0
        self.newton_sum = 0.0

    def certificate(self, W: Array) -> float:
        """Regret(W) <= sum of gradient^T A_t^-1 gradient / (2 beta) + ||W||^2 / (2 beta D^2)."""
        return float(self.newton_sum + np.sum(W**2) / self.D**2) / (2 * self.beta)

    def predict(self, x: Array) -> Array:
        return softmax(self.W @ x)

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss, not multiplied by the weight."""
        z = self.W @ x
        round_loss = log_loss(z, y)
        gradient = weight * np.kron(softmax(z) - as_distribution(y, self.K), x)
        self.A = self.A + np.outer(gradient, gradient)
        step = np.linalg.solve(self.A, gradient)
        V = self.W - step.reshape(self.W.shape) / self.beta
        self.W, gap = project(V, self.beta / 2 * self.A, self.B)
        self.largest_gap = max(self.largest_gap, gap)
        self.newton_sum += float(gradient @ step)
        self.loss += weight * round_loss
        return round_loss
