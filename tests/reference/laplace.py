"""Online Laplace approximation (Spiegelhalter, Lauritzen 1990): Bayes with a Gaussian posterior."""

from .gaf import DenseGaf


class DenseLaplace(DenseGaf):
    """GAF whose surrogate has the Hessian of the loss itself, from the prior N(0, B^2 I).

    gamma = 1/2 is above the constant that is valid for the class: the sums are no certificate.
    """

    def __init__(self, n_features: int, n_classes: int, B: float, mu: float = 0.0) -> None:
        super().__init__(n_features, n_classes, B, lam=1 / (2 * B**2), gamma=0.5, mu=mu)
