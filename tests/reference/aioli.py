"""AIOLI (Jézéquel, Gaillard, Rudi 2020, Algorithm 1): binary, one vector theta, logit u = theta.x.

theta = W_1 - W_0, so u is the logit of class 1 against class 0, p = sigmoid(u), and labels are
y in {0, 1} or soft. B_theta bounds the norm of theta. Against FOLKLORE with K = 2 in (K, d)
coordinates, where W = (-theta / 2, theta / 2):

    B_theta = 2 B,    lam_theta ||theta||^2 = lam ||W||_F^2, so lam_theta = lam / 2,    same gamma;

c = 1/4 then is FOLKLORE, and c = 1/2, the paper's own, FOLKLORE with phi doubled.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit

from .curvature import round_gamma
from .loss import Array, as_distribution, log_loss


def paper_gamma(B_theta: float, R: float) -> float:
    """The paper's curvature: eta_t / 2 (y - p)^2 = gamma p (1 - p)."""
    return 1 / (2 * (1 + B_theta * R))


class DenseAioli:
    """FTRL on L-hat(theta) = <theta, A theta> + <theta, g> + constant plus 2 c (l(+1) + l(-1)).

    Parameters
    ----------
    gamma : None for the largest constant known to be valid in each round; a number, such as
        paper_gamma(B_theta, R); or a function of (u, x_norm).
    c : 1/2 for the paper's phi = l(u, 1) + l(u, 0), 1/4 for half of it.

    Attributes
    ----------
    loss : weighted sum of the losses.
    delta_sum : Regret(theta) <= lam ||theta||^2 + delta_sum / 4, by the formula.
    bracket_sum : sum of w l(u_t, y_t) - (min L-hat_t - min L-hat_{t-1}), the same bound.
    """

    def __init__(
        self,
        n_features: int,
        B_theta: float,
        lam: float,
        gamma: float | Callable[[float, float], float] | None = None,
        c: float = 0.5,
    ) -> None:
        self.B_theta, self.lam, self.gamma, self.c = B_theta, lam, gamma, c
        self.A = lam * np.eye(n_features)
        self.g = np.zeros(n_features)
        self.constant = 0.0
        self.loss = 0.0
        self.delta_sum = 0.0
        self.bracket_sum = 0.0

    @property
    def surrogate_min(self) -> float:
        return float(self.constant - self.g @ np.linalg.solve(self.A, self.g) / 4)

    @property
    def certificate_sum(self) -> float:
        """Regret(theta) <= lam ||theta||^2 + certificate_sum."""
        return self.delta_sum / 4

    def logit(self, x: Array) -> float:
        """The root of u = mean - c a tanh(u / 2), mean = -x.A^-1 g / 2, a = x.A^-1 x."""
        mean = -x @ np.linalg.solve(self.A, self.g) / 2
        reach = self.c * (x @ np.linalg.solve(self.A, x))
        slack = 1e-6 * (1 + abs(mean) + reach)  # so that rounding cannot lose the sign change
        return brentq(
            lambda u: u - mean + reach * np.tanh(u / 2),
            mean - reach - slack,
            mean + reach + slack,
            xtol=1e-15,
            rtol=1e-15,
        )

    def predict(self, x: Array) -> Array:
        u = self.logit(x)
        return np.array([expit(-u), expit(u)])

    def update(self, x: Array, y: ArrayLike, weight: float = 1.0) -> float:
        """Learn (x, y) and return the round's loss, not multiplied by the weight."""
        x = np.asarray(x, dtype=float)
        u = self.logit(x)
        p, slope = expit(u), expit(u) * expit(-u)
        target = as_distribution(y, 2)[1]
        residual = (1 - target) * p - target * expit(-u)  # p - target, and exact near p = 1
        round_loss = log_loss(np.array([0.0, u]), y)
        gamma = self._round_gamma(u, float(np.linalg.norm(x)))

        e, m = weight * residual, weight * gamma * slope
        a, q = x @ np.linalg.solve(self.A, x), x @ np.linalg.solve(self.A, self.g)
        beta = -2 * u - q
        self.delta_sum += a * e**2 - 2 * e * beta - m / (1 + m * a) * (beta - a * e) ** 2

        min_before = self.surrogate_min
        self.A = self.A + m * np.outer(x, x)
        self.g = self.g + (e - 2 * m * u) * x
        self.constant += weight * round_loss - e * u + m * u**2
        self.bracket_sum += weight * round_loss - (self.surrogate_min - min_before)
        self.loss += weight * round_loss
        return round_loss

    def _round_gamma(self, u: float, x_norm: float) -> float:
        if self.gamma is None:
            return round_gamma(np.array([0.0, u]), x_norm, self.B_theta / 2)
        return float(self.gamma(u, x_norm) if callable(self.gamma) else self.gamma)
