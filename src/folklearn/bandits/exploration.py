"""How agents explore: the mixtures that they play, and how much of chance is in them."""

from collections.abc import Callable

import numpy as np

from folklearn import problem
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError


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


def chosen_exploration(
    exploration: float | None,
    horizon: int | None,
    default: float,
    theory: Callable[[int], float],
) -> float:
    """Return the exploration that was given, the theory's for a horizon, or the default.

    `theory` is a function of the horizon; giving both is refused.
    """
    if exploration is not None and horizon is not None:
        raise InvalidInputError("give exploration or horizon, not both: a horizon sets exploration")
    if exploration is not None:
        return problem.fraction("exploration", exploration, 1.0)
    if horizon is not None:
        return min(1.0, theory(problem.count("horizon", horizon, 1)))
    return default
