"""Tuning in hindsight: powers of two, extended until the best point is strictly inside."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

FACTOR = 2.0
MOST_POINTS = 40  # a grid that reaches this without an interior best is reported as such


@dataclass(frozen=True)
class Tuned:
    """All points that were tried (sorted), and the losses there, one per stream."""

    values: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]

    @property
    def means(self) -> tuple[float, ...]:
        """The loss of each point, averaged over the streams."""
        return tuple(float(np.mean(losses)) for losses in self.losses)

    @property
    def position(self) -> int:
        """Where the best point is."""
        return int(np.argmin(self.means))

    @property
    def best(self) -> float:
        """The value with the lowest mean loss."""
        return self.values[self.position]

    @property
    def interior(self) -> bool:
        """Whether worse points were tried on both sides of the best one."""
        return 0 < self.position < len(self.values) - 1


def tune(
    losses_at: Callable[[float], tuple[float, ...]],
    lowest: int,
    highest: int,
    most_points: int = MOST_POINTS,
) -> Tuned:
    """Try 2**lowest ... 2**highest, then one more power at a time where the best is an end.

    The best point is the one with the lowest loss averaged over the streams.
    """
    tried = {power: losses_at(FACTOR**power) for power in range(lowest, highest + 1)}
    while True:
        powers = sorted(tried)
        tuned = Tuned(
            tuple(FACTOR**power for power in powers), tuple(tried[power] for power in powers)
        )
        if tuned.interior or len(powers) >= most_points:
            return tuned
        outside = powers[0] - 1 if tuned.position == 0 else powers[-1] + 1
        tried[outside] = losses_at(FACTOR**outside)
