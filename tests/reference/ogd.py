"""Online gradient descent (Zinkevich 2003) with the step sizes of Hazan, Agarwal, Kale (2007).

For all streams with ||x_t|| <= R, soft labels and weights included,

    Regret(W) <= 1.5 G D sqrt(sum of w_t^2),    G = sqrt(2) R,   D = 2 B sqrt(K):

G bounds the gradient (p - y) (x) x and D is the diameter of the class. The loss is affine in y
and the gradient is linear in the weight w, so a soft label needs no rule of its own, and a
weighted round is a round whose gradient is w times as long. The step is D / (G sqrt(V_t)) with
V_t = w_1^2 + ... + w_t^2, which is the paper's D / (G sqrt t) when all weights are 1 and makes
a round of weight 0 no round at all.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .loss import Array, as_distribution, log_loss


def project_rows(W: Array, B: float) -> Array:
    """The nearest matrix whose row norms are at most B."""
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    return W * np.minimum(1.0, B / np.maximum(norms, 1e-300))


class DenseOgd:
    """W_{t+1} = projection of W_t - D / (G sqrt(V_t)) w_t (p_t - y_t) (x) x_t, W_1 = 0.

    Attributes
    ----------
    loss : weighted sum of the losses.
    V : sum of the squared weights.
    """

    def __init__(self, n_features: int, n_classes: int, B: float, R: float) -> None:
        self.K, self.B = n_classes, B
        self.G = np.sqrt(2) * R
        self.D = 2 * B * np.sqrt(n_classes)
        self.W = np.zeros((n_classes, n_features))
        self.V = 0.0
        self.loss = 0.0

    @property
    def regret_bound(self) -> float:
        return float(1.5 * self.G * self.D * np.sqrt(self.V))

    def predict(self, x: Array) -> Array:
        return softmax(self.W @ x)

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss, not multiplied by the weight."""
        z = self.W @ x
        round_loss = log_loss(z, y)
        gradient = weight * np.outer(softmax(z) - as_distribution(y, self.K), x)
        self.V += weight**2
        if weight > 0:
            self.W = project_rows(self.W - self.D / (self.G * np.sqrt(self.V)) * gradient, self.B)
        self.loss += weight * round_loss
        return round_loss
