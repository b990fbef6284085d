"""GAF, Gaussian aggregating forecaster (Jézéquel, Gaillard, Rudi 2021), in all K d coordinates.

The state is L-hat_t(w) = <w, A w> + <w, G> + constant as for FOLKLORE, and exp(-L-hat_t) is the
density of N(-A^-1 G / 2, A^-1 / 2). The surrogate of a round is expanded at the minimiser of
L-hat_{t-1} + w l_t, which sees the label, and which therefore is the minimiser of L-hat_t too.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .curvature import round_gamma
from .loss import Array, as_distribution, covariance, log_loss
from .mixture import soft_log_loss
from .newton import least_with_loss

MOST_NODES = 1_000_000


def paper_gamma(B: float, R: float, K: int) -> float:
    return float(1 / (2 * B * R + np.log(K) + 2))


def gaussian_nodes(columns: Array) -> tuple[Array, Array]:
    """Nodes xi (N, k) and weights for the mean of softmax(m + columns xi), xi ~ N(0, I).

    The trapezoidal rule, whose error is e^(-2 pi a / h) for a function analytic in a strip of
    half-width a: softmax is, as long as the imaginary parts of the logits spread less than pi.
    Gauss-Hermite points do worse: at a logit of variance 50, 360 of them leave an error of
    1e-8, and these 10^2 to 10^3 points 1e-15. Beyond MOST_NODES nodes, as many seeded random
    points instead (error about 3e-4).
    """
    axes = []
    for column in columns.T:
        h = min(0.5, 0.5 / max(float(np.ptp(column)), 1e-300))  # an error of about e^-35
        axes.append(h * np.arange(-np.ceil(9.5 / h), np.ceil(9.5 / h) + 1))
    if np.prod([axis.size for axis in axes]) > MOST_NODES:
        half = np.random.default_rng(0).standard_normal((MOST_NODES // 2, len(axes)))
        return np.concatenate([half, -half]), np.full(len(half) * 2, 0.5 / len(half))
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    weights = np.exp(-np.sum(nodes**2, axis=1) / 2)
    return nodes, weights / weights.sum()


def mean_softmax(mean: Array, cov: Array) -> Array:
    """E softmax(z), z ~ N(mean, cov) in all K coordinates."""
    K = mean.size
    centring = np.eye(K) - 1 / K
    values, vectors = np.linalg.eigh(centring @ cov @ centring)
    # The smallest eigenvalue is that of the all-ones direction, which moves no probability.
    columns = vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))
    nodes, weights = gaussian_nodes(columns)
    p = weights @ softmax(mean + nodes @ columns.T, axis=1)
    return p / p.sum()


class DenseGaf:
    """Play (1 - mu) E softmax(W x) + mu / K, W Gaussian; learn at the implicit point.

    Parameters
    ----------
    gamma : None for the largest constant known to be valid at each expansion point; a number,
        such as paper_gamma(B, R, K); or a function of (z, x_norm, B).
    mu : share of the uniform distribution.

    Attributes
    ----------
    loss : weighted sum of the losses -<y, ln p>.
    bracket_sum : sum of -w <y, ln p_t> - (min L-hat_t - min L-hat_{t-1}):
        Regret(W) <= lam ||W||^2 + bracket_sum, for any mu, weights and soft labels.
    formula_sum : the same as the sum of -w <y, ln p_t> - w l(z, y) - e^T C e / 4, z the logits
        of the expansion point and e = w (softmax(z) - y).
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        B: float,
        lam: float,
        gamma: float | Callable[[Array, float, float], float] | None = None,
        mu: float = 0.0,
    ) -> None:
        self.d, self.K, self.B, self.lam = n_features, n_classes, B, lam
        self.gamma, self.mu = gamma, mu
        self.A = lam * np.eye(n_classes * n_features)
        self.G = np.zeros(n_classes * n_features)
        self.constant = 0.0
        self.loss = 0.0
        self.bracket_sum = 0.0
        self.formula_sum = 0.0

    @property
    def surrogate_min(self) -> float:
        return float(self.constant - self.G @ np.linalg.solve(self.A, self.G) / 4)

    def coef(self) -> Array:
        """The (K, d) minimiser of L-hat_t."""
        return (-np.linalg.solve(self.A, self.G) / 2).reshape(self.K, self.d)

    def inverse_curvature(self, x: Array) -> Array:
        """C = (I (x) x)^T A^-1 (I (x) x), (K, K)."""
        block = np.kron(np.eye(self.K), x[:, None])
        return block.T @ np.linalg.solve(self.A, block)

    def predict(self, x: Array) -> Array:
        x = np.asarray(x, dtype=float)
        p = mean_softmax(self.coef() @ x, self.inverse_curvature(x) / 2)
        return (1 - self.mu) * p + self.mu / self.K

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss -<y, ln p>, not multiplied by the weight."""
        x = np.asarray(x, dtype=float)
        target = as_distribution(y, self.K)
        round_loss = soft_log_loss(self.predict(x), target)

        z = self.implicit_point(x, target, weight) @ x
        z = z - z.mean()
        p = softmax(z)
        M = covariance(p)
        gamma = self._round_gamma(z, float(np.linalg.norm(x)))
        e = weight * (p - target)
        self.formula_sum += weight * (round_loss - log_loss(z, target))
        self.formula_sum -= float(e @ self.inverse_curvature(x) @ e) / 4

        min_before = self.surrogate_min
        self.A = self.A + gamma * weight * np.kron(M, np.outer(x, x))
        self.G = self.G + np.kron(e - 2 * gamma * weight * M @ z, x)
        self.constant += weight * (log_loss(z, target) + gamma * float(z @ M @ z)) - float(e @ z)
        self.bracket_sum += weight * round_loss - (self.surrogate_min - min_before)
        self.loss += weight * round_loss
        return round_loss

    def implicit_point(self, x: Array, target: Array, weight: float) -> Array:
        """argmin of L-hat_{t-1}(W) + weight l(W x, y)."""
        centre = self.coef()
        v = least_with_loss(self.A, centre @ x, x, target, weight)
        return centre + v.reshape(self.K, self.d)

    def _round_gamma(self, z: Array, x_norm: float) -> float:
        if self.gamma is None:
            return round_gamma(z, x_norm, self.B)
        return float(self.gamma(z, x_norm, self.B) if callable(self.gamma) else self.gamma)
