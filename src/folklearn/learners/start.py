"""Where a learner begins that takes over from another one, which had outgrown its lane."""

from typing import NamedTuple

from folklearn.arrays import Array
from folklearn.evidence.linear_evidence import LinearEvidence


class Start(NamedTuple):
    """What is known of the rounds so far.

    W : (K, d), the model to begin with.
    curvature : (K, d, d), of every class: the sum of w p_i (1 - p_i) xx'.
    past : their evidence, of first order.
    loss, n_rounds : of the learner that is taken over from.
    """

    W: Array
    curvature: Array
    past: LinearEvidence
    loss: float
    n_rounds: int
