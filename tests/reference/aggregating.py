"""The aggregating algorithm (Vovk 1998; Foster et al. 2018) by brute force.

p_t = (1 - mu) E softmax(W x_t) + mu / K under the posterior P_t, proportional to the prior times
exp(-sum of l_s(W)). An integral over W is a sum over nodes, so this is the Bayes mixture of the
models at the nodes, and the regret against every *node* is at most its -ln prior for any nodes.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from .loss import Array, as_distribution
from .mixture import soft_log_loss

Nodes = tuple[Array, Array]


def uniform_prior(n_features: int, n_classes: int, B: float, points: int) -> Nodes:
    """W (N, K, d) and log weights of the uniform distribution on row norms <= B.

    One feature: a tensor product of Gauss-Legendre nodes on [-B, B], one factor per class. Two
    features and two classes: only theta = W_1 - W_0 matters. Its density at distance r from 0
    is the common area of two discs of radius B whose centres are r apart, which is
    proportional to 2 a - sin 2a at r = 2 B cos a; Gauss-Legendre in a, equal angles around.
    """
    t, weights = np.polynomial.legendre.leggauss(points)
    if n_features == 1:
        index = np.indices((points,) * n_classes).reshape(n_classes, -1).T
        return B * t[index][:, :, None], np.log(weights)[index].sum(axis=1)
    if (n_features, n_classes) != (2, 2):
        raise ValueError("the class is integrated for d = 1, and for d = 2 with K = 2")
    a, angle = np.pi / 4 * (t + 1), np.pi * np.arange(2 * points) / points
    radius = 2 * B * np.cos(a)
    density = (2 * a - np.sin(2 * a)) * radius * np.sin(a)  # times dx dy = r dr d(angle)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    theta = (radius[:, None, None] * circle).reshape(-1, 2)
    log_prior = np.repeat(np.log(density * weights), angle.size)
    return np.stack([-theta / 2, theta / 2], axis=1), log_prior


class DenseAggregating:
    """The Bayes mixture of the models W (N, K, d) with the given log prior.

    Parameters
    ----------
    w_max : the largest weight. The posterior takes weight / w_max, and every bound is
        multiplied by w_max: with weights above 1 and w_max = 1 the bounds do not hold.
    """

    def __init__(self, nodes: Nodes, mu: float = 0.0, w_max: float = 1.0) -> None:
        self.W, log_prior = nodes
        self.K = self.W.shape[1]
        self.mu, self.w_max = mu, w_max
        self.log_weights = log_prior - np.logaddexp.reduce(log_prior)
        self.loss = 0.0

    def predict(self, x: Array) -> Array:
        p = np.exp(self.log_weights) @ np.exp(log_softmax(self.W @ x, axis=1))
        return (1 - self.mu) * p / p.sum() + self.mu / self.K

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss -<y, ln p>, not multiplied by the weight."""
        target = as_distribution(y, self.K)
        round_loss = soft_log_loss(self.predict(x), target)
        losses = -log_softmax(self.W @ x, axis=1) @ target
        self.log_weights = self.log_weights - weight / self.w_max * losses
        self.log_weights -= np.logaddexp.reduce(self.log_weights)
        self.loss += weight * round_loss
        return round_loss
