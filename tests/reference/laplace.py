"""Online Laplace approximation (Spiegelhalter, Lauritzen 1990): Bayes with a Gaussian posterior."""

import numpy as np
from scipy.special import softmax

from .gaf import DenseGaf
from .loss import Array


class DenseLaplace(DenseGaf):
    """GAF whose surrogate has the Hessian of the loss itself, from the prior N(0, B^2 I).

    gamma = 1/2 is above the constant that is valid for the class: the sums are no certificate. It
    predicts at the mode.
    """

    def __init__(self, n_features: int, n_classes: int, B: float, mu: float = 0.0) -> None:
        super().__init__(n_features, n_classes, B, lam=1 / (2 * B**2), gamma=0.5, mu=mu)

    def predict(self, x: Array) -> Array:
        return (1 - self.mu) * softmax(self.coef() @ np.asarray(x)) + self.mu / self.K
