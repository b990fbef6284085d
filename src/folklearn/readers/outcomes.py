"""Costs and probabilities of logged decisions: what they mean, and what cannot be meant."""

import math
from dataclasses import dataclass

from folklearn.errors import InvalidInputError, spell_argument

_ROUNDING = 1e-6  # of numbers that were stored with 4 bytes


@dataclass(frozen=True)
class RewardRange:
    """What rewards lie between; they become 0 to 1. A cost is a negative reward."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInputError(
                f"rewards must lie between two numbers, the lower one first; got {self.low} and "
                f"{self.high}"
            )

    def of_cost(self, cost: float) -> float:
        """Return a reward from 0 to 1.

        >>> RewardRange().of_cost(-0.25), RewardRange(-1, 0).of_cost(0.25)
        (0.25, 0.75)
        """
        reward = 0.0 - cost
        scaled = (reward - self.low) / (self.high - self.low)
        if not -_ROUNDING <= scaled <= 1.0 + _ROUNDING:
            raise InvalidInputError(
                f"the cost is {cost:g}, a reward of {reward:g}, which is not between {self.low:g} "
                f"and {self.high:g}; say what rewards lie between: "
                f"{spell_argument('reward_range=(low, high)')}"
            )
        return min(max(scaled, 0.0), 1.0)


def played(probability: float) -> float:
    """Return the probability of an action that was played."""
    if not 0.0 < probability <= 1.0 + _ROUNDING:
        raise InvalidInputError(
            f"the probability is {probability:g}; that of an action that was played is above 0 and "
            "at most 1"
        )
    return min(probability, 1.0)
