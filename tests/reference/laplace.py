"""Online Laplace approximation (Spiegelhalter, Lauritzen 1990): Bayes with a Gaussian posterior."""

import numpy as np

from .gaf import DenseGaf
from .loss import Array


class DenseLaplace(DenseGaf):
    """GAF whose surrogate has the Hessian of the loss itself, from the prior N(0, B^2 I).

    gamma = 1/2 is above the constant that is valid for the class: the sums are no certificate.
    """

    def __init__(self, n_features: int, n_classes: int, B: float, mu: float = 0.0) -> None:
        super().__init__(n_features, n_classes, B, lam=1 / (2 * B**2), gamma=0.5, mu=mu)


class DensePairwiseLaplace(DenseLaplace):
    """The same state; every pair of classes is compared by a probit-tempered margin."""

    def predict(self, x: Array) -> Array:
        x = np.asarray(x, dtype=float)
        mean, cov = self.coef() @ x, self.inverse_curvature(x) / 2
        p = np.empty(self.K)
        for i in range(self.K):
            odds = 0.0
            for j in range(self.K):
                difference = np.eye(self.K)[i] - np.eye(self.K)[j]
                variance = difference @ cov @ difference
                odds += np.exp(-(difference @ mean) / np.sqrt(1 + np.pi / 8 * variance))
            p[i] = 1 / odds
        return (1 - self.mu) * p / p.sum() + self.mu / self.K
