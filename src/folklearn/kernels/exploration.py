"""How actions are played by the gaps between their expected losses, and what that may cost."""

import math

import numpy as np

from folklearn.kernels.compile import kernel

_LEAST_ETA = 1.0 / 700.0  # exp(1 / eta) stays finite
_BELOW_1 = np.nextafter(1.0, 0.0)


@kernel
def _rest_to(best, P):
    """Give the best action whatever mass the others leave."""
    P[best] = 0.0
    P[best] = 1.0 - P.sum()
    return P


@kernel
def squarecb(losses, gamma):
    """Return P_a = 1 / (K + gamma (f_a - f_b)), the rest on the best action b."""
    K, best = losses.shape[0], np.argmin(losses)
    return _rest_to(best, 1.0 / (K + gamma * (losses - losses[best])))


@kernel
def fastcb(losses, gamma):
    """Return P_a = f_b / (K f_b + gamma (f_a - f_b)), the rest on the best action b."""
    K, best = losses.shape[0], np.argmin(losses)
    least = losses[best]
    P = np.empty(K)
    for a in range(K):
        gap = losses[a] - least
        P[a] = least / (K * least + gamma * gap) if gap > 0.0 else 1.0 / K
    return _rest_to(best, P)


@kernel
def most_regret(P, losses, eta):
    """Return the most that a round may regret beyond eta times its excess log loss:

        max over a*, f* of  sum_a P_a (f*_a - f*_{a*}) - eta sum_a P_a KL(f*_a | f_a)

    for all true losses f* in [0, 1]. It separates over the actions, and each part is
    max over q of  s q - KL(q | f) = ln(1 + f (exp(s) - 1)).
    """
    if eta < _LEAST_ETA:
        return 1.0  # no regret is larger, and less would be hardly true
    total, change = 0.0, -math.inf
    for a in range(P.shape[0]):
        # Rounded to 1 a loss would make all other truths impossible, at an infinite price.
        loss = min(losses[a], _BELOW_1)
        share = eta * P[a]
        played = share * math.log1p(loss * math.expm1(1.0 / eta))
        as_best = 0.0
        if share > 0.0:
            as_best = share * math.log1p(loss * math.expm1((P[a] - 1.0) / share))
        total += played
        change = max(change, as_best - played)
    return total + change


@kernel
def draw_action(P, number):
    """Return the action at which the sums of P pass a uniform number."""
    left = number * P.sum()
    last = 0
    for a in range(P.shape[0]):
        if P[a] > 0.0:  # an action without mass is never drawn, whatever is rounded
            last = a
            left -= P[a]
            if left < 0.0:
                return a
    return last
