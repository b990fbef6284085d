"""How agents explore: the mixtures that they play, and how much of chance is in them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from folklearn import problem
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError

THEORY = "theory"


def draw(rng: np.random.Generator, P: Array) -> int:
    """Draw an action from probabilities (K,), by one uniform number."""
    totals = np.cumsum(P)
    place = int(np.searchsorted(totals, rng.random() * totals[-1], side="right"))
    # Rounding may put the number on the last edge; an action without mass is never drawn.
    return place if place < len(P) else int(np.flatnonzero(P)[-1])


def explore(P: Array, exploration: float) -> Array:
    """Return (1 - exploration) P + exploration / K."""
    mixed: Array = (1.0 - exploration) * P + exploration / len(P)
    return mixed


def greedy(scores: Array, exploration: float) -> Array:
    """Return the best action, ties to the lowest, with uniform exploration around it."""
    P = np.full(len(scores), exploration / len(scores))
    P[np.argmax(scores)] += 1.0 - exploration
    return P


def _rest_to(best: int, P: Array) -> Array:
    """Give the best action whatever mass the others leave."""
    P[best] = 0.0
    P[best] = 1.0 - P.sum()
    return P


def squarecb(losses: Array, gamma: float) -> Array:
    r"""Return :math:`P_a = 1 / (K + \gamma (f_a - f_b))`, the rest on the best action b."""
    best = int(losses.argmin())
    return _rest_to(best, 1.0 / (len(losses) + gamma * (losses - losses[best])))


def fastcb(losses: Array, gamma: float) -> Array:
    r"""Return :math:`P_a = f_b / (K f_b + \gamma (f_a - f_b))`, the rest on the best action b.

    It explores in proportion to the least loss: hardly at all where some action is sure.
    """
    best = int(losses.argmin())
    least = losses[best]
    gaps = losses - least
    shares = least / np.where(gaps > 0.0, len(losses) * least + gamma * gaps, np.inf)
    return _rest_to(best, np.where(gaps > 0.0, shares, 1.0 / len(losses)))


def epsilon_greedy(losses: Array, gamma: float) -> Array:
    r"""Return the best action, with uniform exploration :math:`K / (K + \gamma)` around it."""
    return greedy(-losses, len(losses) / (len(losses) + gamma))


def softmax_of_gaps(losses: Array, gamma: float) -> Array:
    r"""Return :math:`P_a \propto \exp(-\gamma (f_a - f_b) / K)`."""
    P: Array = np.exp(-gamma / len(losses) * (losses - losses.min()))
    return P / P.sum()


@dataclass(frozen=True)
class Rule:
    """A way to play by expected losses (K,) in [0, 1] and a strength gamma that grows.

    Attributes
    ----------
    play : the probabilities (K,), of losses and gamma.
    price : eta / gamma, for the certificate: what a nat of excess log loss counts there.
    cost : with that price a round costs at most cost K / gamma; infinity if nothing is proven.
    """

    play: Callable[[Array, float], Array]
    price: float
    cost: float = math.inf

    def best_gamma(self, t: int, n_actions: int, regret: float) -> float:
        """Return the gamma with the least bound after t rounds, if all had gamma ~ sqrt(t)."""
        if not math.isfinite(self.cost):
            raise InvalidInputError(
                f"strength={THEORY!r} needs a bound on the cost of exploring, which only "
                f"{' and '.join(name for name, rule in RULES.items() if rule.cost < math.inf)} have"
            )
        return math.sqrt(2.0 * self.cost * n_actions * t / (self.price * regret))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "fastcb": Rule(fastcb, price=1.0, cost=2.0),
        "squarecb": Rule(squarecb, price=1.0 / 8.0, cost=2.0),
        "epsilon": Rule(epsilon_greedy, price=1.0 / 8.0),
        "softmax": Rule(softmax_of_gaps, price=1.0 / 8.0),
    }
)


def most_regret(P: Array, losses: Array, eta: float) -> float:
    r"""Return the most that a round may regret beyond eta times its excess log loss.

    .. math:: \max_{a^*, f^*} \sum_a P_a (f^*_a - f^*_{a^*}) - \eta \sum_a P_a\,
        \mathrm{KL}(f^*_a \| f_a)

    over all true losses :math:`f^*` in [0, 1]. It separates over the actions, and each part is
    :math:`\max_q (s q - \mathrm{KL}(q \| f)) = \ln(1 + f (e^s - 1))`.
    """
    played = eta * P * np.log1p(losses * math.expm1(1.0 / eta))
    odds = (1.0 - P) / np.maximum(eta * P, 1e-300)
    as_best = eta * P * np.log1p(losses * np.expm1(-odds))
    return float(played.sum() + (as_best - played).max())


def chosen_exploration(
    exploration: float | str | None,
    horizon: int | None,
    default: float,
    theory: Callable[[int], float],
) -> float:
    """Return the exploration that was given, the theory's for a horizon, or the default.

    `theory` is a function of the horizon, which asks for it even without the word.
    """
    if exploration == THEORY:
        if horizon is None:
            raise InvalidInputError(f"exploration={THEORY!r} needs horizon, the number of rounds")
        exploration = None
    if exploration is not None and horizon is not None:
        raise InvalidInputError("give exploration or horizon, not both: a horizon sets exploration")
    if exploration is not None:
        return problem.fraction("exploration", exploration, 1.0)
    if horizon is not None:
        return min(1.0, theory(problem.count("horizon", horizon, 1)))
    return default
