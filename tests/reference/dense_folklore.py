"""FOLKLORE (Agarwal, Kale, Zimmert 2021, Algorithm 1) with dense matrices in all K d coordinates.

Vectors of length K d are W row by row, so that the vector of p (x) x is np.kron(p, x).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .curvature import round_gamma
from .loss import Array, as_distribution, covariance, log_loss
from .newton import least_with_loss


class DenseFolklore:
    """FTRL on the quadratic surrogates, every quantity from its definition.

    The state is L-hat_t(w) = <w, A w> + <w, G> + constant, the ridge plus all surrogates.

    Parameters
    ----------
    gamma : None for the largest constant known to be valid in each round; a number; or a
        function of (z, x_norm, B).
    drop_correction : use Algorithm 1 as printed, whose G lacks the -2 gamma Hessian W term.
        The sums below are then no certificate.

    Attributes
    ----------
    loss : weighted sum of the losses.
    delta_sum : sum of the brackets of Lemma 2, by norms; Regret(W) <= lam ||W||^2 + delta_sum/4.
    bracket_sum : sum of w l(z_t, y_t) - (min L-hat_t - min L-hat_{t-1}), the same bound.
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        B: float,
        lam: float,
        gamma: float | Callable[[Array, float, float], float] | None = None,
        drop_correction: bool = False,
    ) -> None:
        self.d, self.K, self.B, self.lam = n_features, n_classes, B, lam
        self.gamma = gamma
        self.drop_correction = drop_correction
        self.A = lam * np.eye(n_classes * n_features)
        self.G = np.zeros(n_classes * n_features)
        self.constant = 0.0
        self.loss = 0.0
        self.delta_sum = 0.0
        self.bracket_sum = 0.0

    @property
    def surrogate_min(self) -> float:
        """min over W of L-hat_t(W)."""
        return float(self.constant - self.G @ np.linalg.solve(self.A, self.G) / 4)

    @property
    def certificate_sum(self) -> float:
        """(1/4) sum of Lemma 2's brackets: Regret(W) <= lam ||W||_F^2 + certificate_sum."""
        return self.delta_sum / 4

    def coef(self) -> Array:
        """The (K, d) minimiser of L-hat_t."""
        return (-np.linalg.solve(self.A, self.G) / 2).reshape(self.K, self.d)

    def predict(self, x: Array, phi_weight: float = 1.0) -> Array:
        """p_t = softmax(W_t x)."""
        return softmax(self.argmin(x, phi_weight) @ x)

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0, phi_weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss l(z_t, y), not multiplied by the weight.

        phi_weight = 1 is the rule when the weight arrives with the label; phi_weight = weight
        the one when it is known beforehand.
        """
        x = np.asarray(x, dtype=float)
        z = self.argmin(x, phi_weight) @ x
        z = z - z.mean()
        p = softmax(z)
        residual = p - as_distribution(y, self.K)
        M = covariance(p)

        round_loss = log_loss(z, y)
        gradient = weight * np.kron(residual, x)
        hessian = weight * np.kron(M, np.outer(x, x))
        gamma = self._round_gamma(z, float(np.linalg.norm(x)))

        A_before, min_before = self.A, self.surrogate_min
        self.A = self.A + gamma * hessian
        self.G = self.G + gradient
        self.constant += weight * float(round_loss - z @ residual)
        if not self.drop_correction:
            # Hessian W = (M z) (x) x: through z, because W's common row is large and M kills it.
            self.G = self.G - 2 * gamma * weight * np.kron(M @ z, x)
            self.constant += gamma * weight * float(z @ M @ z)

        phi_gradient = phi_weight * (np.kron(p - 1 / self.K, x) + self.bias(x, A_before))
        # The part common to all classes adds the same, of order 1/lam, to both norms below.
        per_class = phi_gradient.reshape(self.K, self.d)
        phi_gradient = (per_class - per_class.mean(axis=0)).ravel()
        difference = phi_gradient - gradient
        self.delta_sum += float(
            difference @ np.linalg.solve(self.A, difference)
            - phi_gradient @ np.linalg.solve(A_before, phi_gradient)
        )
        self.bracket_sum += weight * round_loss - (self.surrogate_min - min_before)
        self.loss += weight * round_loss
        return round_loss

    def bias(self, x: Array, A: Array) -> Array:
        """B_t of Lemma 4: (1/K) 1 (x) x - (1/2) A diag_blocks(A^-1) (1 (x) x)."""
        ones_x = np.kron(np.ones(self.K), x)
        blocks = np.kron(np.eye(self.K), np.ones((self.d, self.d)))
        return ones_x / self.K - A @ ((np.linalg.inv(A) * blocks) @ ones_x) / 2

    def argmin(self, x: Array, phi_weight: float = 1.0) -> Array:
        """W_t = argmin of L-hat_{t-1}(W) + phi_weight phi_t(W).

        phi_t(W) = (1/K) sum_k l(W x, k) + <W, B_t>.
        """
        x = np.asarray(x, dtype=float)
        A = self.A
        # Complete the square: w = centre + v leaves <v, A v> + phi_weight (logsumexp - mean).
        centre = -np.linalg.solve(A, self.G + phi_weight * self.bias(x, A)) / 2
        z_centre = centre.reshape(self.K, self.d) @ x
        # B_t gives it a mean of order 1/lam, which predicts nothing and would drown the digits.
        z_centre = z_centre - z_centre.mean()
        # (1/K) sum_k l(z, k) is the loss of the uniform label.
        uniform = np.full(self.K, 1 / self.K)
        v = least_with_loss(A, z_centre, x, uniform, phi_weight)
        return (centre + v).reshape(self.K, self.d)

    def _round_gamma(self, z: Array, x_norm: float) -> float:
        if self.gamma is None:
            return round_gamma(z, x_norm, self.B)
        return float(self.gamma(z, x_norm, self.B) if callable(self.gamma) else self.gamma)
