"""The theorems as functions: upper bounds on regret, in nats, with corrected constants."""

import math

from folklearn import problem
from folklearn.numerics.curvature import gamma_star


def folklore(
    n_rounds: int,
    *,
    n_features: int,
    n_classes: int,
    B: float,
    R: float = 1.0,
    lam: float | None = None,
    gamma: float | None = None,
) -> float:
    r"""Return the closed-form regret bound of `Folklore` for unit weights and :math:`|x|\le R`.

    .. math::
        \lambda K B^2 + \frac14 \left(\frac1{\gamma_{\min}} + \frac{R^2}{4\lambda}\right)
        (K-1) d \ln\left(1 + \frac{\gamma_{\max} T R^2}{\lambda K d}\right)

    The curvature of a round lies between :math:`\gamma_{\min} = \gamma^*(2BR + \ln(K-1))`
    and :math:`\gamma_{\max} = 1/2`; a given ``gamma``, which must be at most the former, is
    both. The paper's Theorem 1 has a curvature that is too large and drops a factor 1/4.
    """
    T = problem.count("n_rounds", n_rounds, 0)
    d = problem.count("n_features", n_features, 1)
    K = problem.count("n_classes", n_classes, 2)
    B, R = problem.positive("B", B), problem.positive("R", R)
    lam = 2.0 * R / B if lam is None else problem.positive("lam", lam)
    least = most = float(gamma_star(2.0 * B * R + math.log(K - 1))[0])
    if gamma is None:
        most = 0.5
    elif problem.positive("gamma", gamma) <= least:
        least = most = gamma
    else:
        return math.inf
    growth = math.log1p(most * T * R**2 / (lam * K * d))
    return lam * K * B**2 + 0.25 * (1.0 / least + R**2 / (4.0 * lam)) * (K - 1) * d * growth
