"""Where a learner begins that takes over from another one, which had outgrown its lane."""

import math
from typing import NamedTuple

from folklearn.arrays import Array
from folklearn.certificate import Certificate
from folklearn.tangents import Tangents


class Start(NamedTuple):
    """What is known of the rounds so far.

    W : (K, d), the model to begin with.
    curvature : (K, d, d), of every class: the sum of w p_i (1 - p_i) xx'.
    past : their evidence, of first order.
    loss, n_rounds : of the learner that is taken over from.
    """

    W: Array
    curvature: Array
    past: Tangents
    loss: float
    n_rounds: int


def refused_above(limit: float, B: float, loss: float, n_rounds: int) -> Certificate:
    """Return what can be said of a class beyond what the first rounds were certified for."""
    return Certificate(
        loss=loss,
        regret_bound=math.inf,
        B=B,
        n_rounds=n_rounds,
        valid=False,
        reason=f"the first rounds were certified up to B = {limit:g}, and B is {B:g}",
    )
