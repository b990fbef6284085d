"""The theorems as functions: upper bounds on regret, in nats, with corrected constants."""

import math

from folklearn import validation
from folklearn.kernels.curvature import gamma_star_below


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
    T = validation.count("n_rounds", n_rounds, 0)
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, R = validation.positive("B", B), validation.positive("R", R)
    lam = 2.0 * R / B if lam is None else validation.positive("lam", lam)
    least = most = float(gamma_star_below(2.0 * B * R + math.log(K - 1)))
    if gamma is None:
        most = 0.5
    elif (declared := validation.positive("gamma", gamma)) <= least:
        least = most = declared
    else:
        return math.inf
    growth = math.log1p(most * T * R**2 / (lam * K * d))
    return lam * K * B**2 + 0.25 * (1.0 / least + R**2 / (4.0 * lam)) * (K - 1) * d * growth


def ogd(n_rounds: int, *, n_features: int, n_classes: int, B: float, R: float = 1.0) -> float:
    r"""Return the regret bound of `Ogd`, :math:`1.5\, G D \sqrt T`, for :math:`|x|\le R`.

    :math:`G = \sqrt 2 R` bounds the gradients and :math:`D = 2B\sqrt K` is the diameter of
    the class; unit weights. It does not depend on the number of features. Derived in
    docs/theory/baselines.md.
    """
    T = validation.count("n_rounds", n_rounds, 0)
    validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, R = validation.positive("B", B), validation.positive("R", R)
    return 1.5 * math.sqrt(2.0) * R * 2.0 * B * math.sqrt(K) * math.sqrt(T)


DECODING_COST = 0.7468  # sup over p of (chance of a mistake by randomised decoding) / (-ln p_y)


def bandit_exploration(n_rounds: int, *, n_classes: int, regret: float, cost: float = 1.0) -> float:
    r"""Return the exploration of `BanditReduction`, :math:`\min(1, \sqrt{c K R / T})`.

    `regret` bounds the learner's regret R with all labels known; `cost` c bounds the chance
    of a mistake when exploiting by c times the log loss: 1 for sampling, `DECODING_COST` for
    randomised decoding.
    """
    T, K = validation.count("n_rounds", n_rounds, 1), validation.count("n_classes", n_classes, 2)
    regret = validation.number("regret", regret, 0.0, math.inf)
    cost = validation.positive("cost", cost)
    return math.sqrt(min(1.0, cost * K * regret / T))


def bandit_mistakes(
    n_rounds: int,
    *,
    n_classes: int,
    regret: float,
    loss: float,
    exploration: float | None = None,
    cost: float = 1.0,
) -> float:
    r"""Return the bound on the expected mistakes of `BanditReduction`.

    .. math:: c L + \varepsilon T + c K R / \varepsilon

    with L the total log loss of the comparator; at the exploration of `bandit_exploration`,
    unless that is clipped, the last two terms are :math:`2\sqrt{c K T R}`. Agarwal, Kale and
    Zimmert (2021), Theorem 3, with the clip that the paper forgets.
    """
    T, K = validation.count("n_rounds", n_rounds, 1), validation.count("n_classes", n_classes, 2)
    loss = validation.number("loss", loss, 0.0, math.inf)
    eps = bandit_exploration(T, n_classes=K, regret=regret, cost=cost)
    if exploration is not None:
        eps = validation.fraction("exploration", exploration, 1.0)
    return math.inf if eps == 0.0 else cost * loss + eps * T + cost * K * regret / eps
