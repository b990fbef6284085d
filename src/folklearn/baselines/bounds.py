"""Regret bounds of the baselines, in nats, with corrected constants."""

import math

import numpy as np

from folklearn import validation
from folklearn.evidence.bounds import folklore
from folklearn.kernels.curvature import gamma_star_below


def aioli(
    n_rounds: int,
    *,
    n_features: int,
    B: float,
    R: float = 1.0,
    lam: float | None = None,
    improved: bool = False,
) -> float:
    r"""Return the closed-form regret bound of `Aioli` for unit weights and :math:`|x| \le R`.

    .. math:: 2 \lambda B^2 + \frac{d}{2\gamma_{\min}}
        \ln\left(1 + \frac{\gamma_{\max} T R^2}{2 d \lambda}\right)

    with :math:`\gamma_{\min} = \gamma_{\max} = 1/(2 + 4BR)`, or, improved,
    :math:`\gamma^*(2BR)` and 1/2. Derived in docs/theory/baselines.md.
    """
    T = validation.count("n_rounds", n_rounds, 0)
    d = validation.count("n_features", n_features, 1)
    B, R = validation.positive("B", B), validation.positive("R", R)
    lam = 2.0 * R / B if lam is None else validation.positive("lam", lam)
    least = most = 1.0 / (2.0 + 4.0 * B * R)
    if improved:
        least, most = float(gamma_star_below(2.0 * B * R)), 0.5
    growth = math.log1p(most * T * R**2 / (2.0 * d * lam))
    return 2.0 * lam * B**2 + d / (2.0 * least) * growth


def gaf(
    n_rounds: int,
    *,
    n_features: int,
    n_classes: int,
    B: float,
    R: float = 1.0,
    lam: float | None = None,
    mu: float = 0.0,
    improved: bool = False,
    n_points: int | None = None,
) -> float:
    r"""Return the closed-form regret bound of `Gaf`, integrals exact and weights 1.

    .. math:: \lambda K B^2 + \frac{\psi}{4}
        \left(\frac{1}{\gamma_{\min}} + \frac{R^2}{4\lambda}\right) (K-1) d
        \ln\left(1 + \frac{\gamma_{\max} T R^2}{\lambda K d}\right) - T \ln(1 - \mu)

    with :math:`\psi = (e^a - 1)/a, a = R^2/(2\lambda)`. At the default lam, a = BR/4: the
    bound is polynomial in BR only for lam of order R^2. The live certificate has no such
    factor. With ``n_points`` it bounds what is computed with that number of points. For two classes
    every round costs at most a constant more, :math:`\ln \kappa(R/\sqrt\lambda)`; for more
    classes nothing is known but that every class gets mass mu/K, so that a round loses at most
    ln(K/mu): both are linear in T. Derived in docs/theory/baselines.md.
    """
    T = validation.count("n_rounds", n_rounds, 0)
    K = validation.count("n_classes", n_classes, 2)
    B, R = validation.positive("B", B), validation.positive("R", R)
    lam = 2.0 * R / B if lam is None else validation.positive("lam", lam)
    gamma = None if improved else 1.0 / (2.0 * B * R + math.log(K) + 2.0)
    ridge = lam * K * B**2
    mu = validation.fraction("mu", mu)
    inexact, most = 0.0, math.inf
    if n_points is not None:
        n_points = validation.count("n_points", n_points, 2)
        inexact = midpoint_cost(n_points, R / math.sqrt(lam)) if K == 2 else math.inf
        most = T * math.log(K / mu) if mu > 0.0 else math.inf
    a = R**2 / (2.0 * lam)
    if a > 700.0 or not math.isfinite(inexact):
        return most
    explicit = folklore(T, n_features=n_features, n_classes=K, B=B, R=R, lam=lam, gamma=gamma)
    spread = math.expm1(a) / a * (explicit - ridge)
    return min(most, ridge + spread + T * (inexact - math.log1p(-mu)))


def midpoint_cost(n_points: int, deviation: float) -> float:
    r"""Return how many nats the midpoint rule of `Gaf` may lose in a round of two classes.

    .. math:: \ln \sup_m \frac{E\, \sigma(m + s Z)}{\frac1N \sum_j \sigma(m + s Z_j)}
        \le \ln \frac{\sum_j \rho_j X_j}{\sum_j X_j}, \qquad X_j = e^{s Z_j}

    for a standard Gaussian Z, its N equally likely cells with medians :math:`Z_j`, and a logit
    of standard deviation at most s; :math:`\rho_j \ge 1` is the largest ratio of mean to median
    of :math:`e^{sZ}` in the cells up to j. Derived in docs/theory/baselines.md.
    """
    from scipy.special import log_ndtr, ndtri  # slow to import

    cells = 2 * ((n_points + 1) // 2)
    edges = ndtri(np.arange(cells + 1) / cells)
    medians = deviation * ndtri((np.arange(cells) + 0.5) / cells)
    # The mean of exp(s Z) in a cell is N exp(s^2/2) times the mass of the cell moved by -s.
    low, high = edges[:-1] - deviation, edges[1:] - deviation
    low, high = np.where(low > 0.0, -high, low), np.where(low > 0.0, -low, high)
    near, far = log_ndtr(high), np.maximum(log_ndtr(low), -1e300)
    means = near + np.log1p(-np.exp(np.minimum(far - near, 0.0))) + 0.5 * deviation**2
    ratios = np.maximum.accumulate(np.maximum(means + math.log(cells) - medians, 0.0))
    weights = np.exp(medians - medians.max())
    tilted = np.exp(medians - medians.max() + ratios)
    return math.log(tilted.sum() / weights.sum()) + 1e-9


def ons(n_rounds: int, *, n_features: int, n_classes: int, B: float, R: float = 1.0) -> float:
    r"""Return the regret bound of `Ons` for weights at most 1 and :math:`|x|\le R`.

    .. math:: \frac1{2\beta} \left[n \ln\left(1 + \frac{\beta^2 D^2 G^2 T}{n}\right)
        + \frac14\right], \qquad n = (K-1) d

    with :math:`\beta = \frac12\min(\frac1{4GD}, \frac{e^{-2BR}}{K-1})` and G, D as in `ogd`.
    For T >= 2 it is below the paper's :math:`5(1/\alpha + GD) K d \ln T`. Derived in
    docs/theory/baselines.md.
    """
    T = validation.count("n_rounds", n_rounds, 0)
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, R = validation.positive("B", B), validation.positive("R", R)
    GD = math.sqrt(2.0) * R * 2.0 * B * math.sqrt(K)
    n = (K - 1) * d
    alpha = math.exp(-2.0 * B * R) / (K - 1)
    beta = 0.5 * min(1.0 / (4.0 * GD), alpha)
    if beta < 1e-300:
        return math.inf
    return (n * math.log1p((beta * GD) ** 2 * T / n) + 0.25) / (2.0 * beta)


def aggregating_uniform(
    n_rounds: int,
    *,
    n_features: int,
    n_classes: int,
    B: float,
    R: float = 1.0,
    mu: float = 0.0,
) -> float:
    r"""Return the regret bound of `Aggregating` with the uniform prior, for :math:`|x|\le R`.

    .. math::
        K d \ln\frac1\varepsilon + \varepsilon c T + 2 \mu T, \qquad
        c = \min(4BR,\; 2BR + \ln K), \quad \varepsilon = \min\Big(1, \frac{Kd}{cT}\Big)

    Against every W of row norms at most B, hard or soft labels, for the exact integral: the
    error of the particles comes on top. With weights up to w_max it is w_max times the bound
    at T = total weight / w_max. Implies Theorem 3 of Foster et al. (2018),
    :math:`5Kd\ln(BRT/(Kd) + e) + 2\mu T`; derived in docs/theory/baselines.md.
    """
    T = validation.count("n_rounds", n_rounds, 0)
    n = validation.count("n_features", n_features, 1) * validation.count("n_classes", n_classes, 2)
    B, R = validation.positive("B", B), validation.positive("R", R)
    c = min(4.0 * B * R, 2.0 * B * R + math.log(n_classes))
    eps = n / max(n, c * T)
    return -n * math.log(eps) + eps * c * T + 2.0 * validation.fraction("mu", mu) * T


def aggregating_gaussian(
    n_rounds: int,
    *,
    n_features: int,
    n_classes: int,
    B: float,
    R: float = 1.0,
    nu: float | None = None,
    W_norm: float | None = None,
    mu: float = 0.0,
) -> float:
    r"""Return the regret bound of `Aggregating` with the prior N(0, nu^2 I), for :math:`|x|\le R`.

    .. math::
        \frac{\|W\|_F^2}{2\nu^2} + \frac{(K-1)d}2 \ln\Big(1 + \frac{T R^2 \nu^2}{K d}\Big) + 2\mu T

    Against one W of Frobenius norm ``W_norm``, or every W of row norms at most B, whose
    squared norm is at most K B^2; ``nu`` is B by default. Hard or soft labels, weights as in
    `aggregating_uniform`, and for the exact integral: the error of the particles comes on
    top. Kakade and Ng (2005), Theorem 2.2, for K classes; see docs/theory/baselines.md.
    """
    T = validation.count("n_rounds", n_rounds, 0)
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, R = validation.positive("B", B), validation.positive("R", R)
    nu = B if nu is None else validation.positive("nu", nu)
    norm = math.sqrt(K) * B if W_norm is None else 0.0
    if W_norm:
        norm = validation.positive("W_norm", W_norm)
    growth = math.log1p(T * (R * nu) ** 2 / (K * d))
    return (
        0.5 * (norm / nu) ** 2
        + 0.5 * (K - 1) * d * growth
        + 2.0 * validation.fraction("mu", mu) * T
    )
