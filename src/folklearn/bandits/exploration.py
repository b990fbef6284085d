"""Exploration of agents: the distributions that they play, and the rules that set gamma."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels.gaps import drawn, epsilon_greedy, fastcb, softmax_of_gaps, squarecb

THEORY = "theory"


def draw(rng: np.random.Generator, P: Array) -> int:
    """Draw an action from probabilities (K,), by one uniform number."""
    return int(drawn(P, rng.random()))


def explore(P: Array, exploration: float) -> Array:
    """Return (1 - exploration) P + exploration / K."""
    mixed: Array = (1.0 - exploration) * P + exploration / len(P)
    return mixed


def greedy(scores: Array, exploration: float) -> Array:
    """Return the best action, ties to the lowest, with uniform exploration around it."""
    P = np.full(len(scores), exploration / len(scores))
    P[np.argmax(scores)] += 1.0 - exploration
    return P


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


def choose_exploration(
    exploration: float | str | None,
    horizon: int | None,
    default: float,
    theory: Callable[[int], float],
) -> float:
    """Return the exploration from a number, the theory's for a horizon, or the default.

    `theory` is a function of the horizon; a horizon without an exploration selects it.
    """
    if exploration == THEORY:
        if horizon is None:
            raise InvalidInputError(f"exploration={THEORY!r} needs horizon, the number of rounds")
        exploration = None
    if exploration is not None and horizon is not None:
        raise InvalidInputError("give exploration or horizon, not both: a horizon sets exploration")
    if exploration is not None:
        return validation.fraction("exploration", exploration, 1.0)
    if horizon is not None:
        return min(1.0, theory(validation.count("horizon", horizon, 1)))
    return default
