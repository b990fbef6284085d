"""When to look at a model that learns, and what is seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from folklearn.certificate import Certificate

_LARGEST_BLOCK = 4096


class Watched(Protocol):
    """What is looked at while rows go by: a model that learns them, or predictions of them."""

    n_mistakes: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the features."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""

    @property
    def n_rounds(self) -> int:
        """Rounds since the first of its life."""

    @property
    def loss(self) -> float:
        """Total (weighted) log loss of these rounds, in nats."""

    @property
    def total_weight(self) -> float:
        """Total weight of these rounds."""

    def certificate(self) -> Certificate | None:
        """What is proven about these rounds, or None if no learner has begun."""

    def run_block(
        self,
        X: NDArray[np.float64],
        y: Any,
        *,
        weight: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Take in raw rows; return the predictions of their labels, and the log losses."""


@dataclass(frozen=True)
class Moment:
    """Where a model stands; everything counts from the first round of its life."""

    n_rounds: int
    loss: float
    regret_bound: float | None  # None if no learner has begun, infinite if nothing is certified
    n_mistakes: int
    total_weight: float | None = None  # None if every round counts 1
    certified_loss: float | None = None  # the loss that the bound is about, if another one

    @classmethod
    def of(cls, model: Watched) -> "Moment":
        """Return where a model stands now."""
        now = model.certificate()
        bound = about = None
        if now is not None:
            bound, about = now.regret_bound, now.loss if now.valid else None
        return cls(model.n_rounds, model.loss, bound, model.n_mistakes, model.total_weight, about)

    @property
    def weight(self) -> float:
        """What to divide the loss by for an average."""
        return self.n_rounds if self.total_weight is None else self.total_weight

    @property
    def certified(self) -> float:
        """The loss that the regret bound is about."""
        return self.loss if self.certified_loss is None else self.certified_loss

    @property
    def is_doubling(self) -> bool:
        """Whether the number of rounds is a power of two."""
        return is_doubling(self.n_rounds)


def is_doubling(n_rounds: int) -> bool:
    """Whether a number of rounds is a power of two."""
    return n_rounds.bit_count() == 1


def is_looked_at(n_rounds: int) -> bool:
    """Whether to ask for a certificate: at powers of two and half way between them."""
    return is_doubling(n_rounds) or (n_rounds % 3 == 0 and is_doubling(n_rounds // 3))


def next_stop(n_rounds: int) -> int:
    """Return the next round to stop at and look: eight stops from 2^j to 2^(j+1).

    It depends on the number of rounds alone, because the cuts decide the rounding of the
    results: a run that was saved at a stop goes on as if it had never been interrupted.

    >>> stops = [1]
    >>> while stops[-1] < 32:
    ...     stops.append(next_stop(stops[-1]))
    >>> stops
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32]
    """
    step = min(1 << max(n_rounds.bit_length() - 4, 0), _LARGEST_BLOCK)
    return (n_rounds // step + 1) * step


def block_sizes(n_rounds: int) -> Iterator[int]:
    """Yield the numbers of rows from each stop to the next, without end."""
    while True:
        stop = next_stop(n_rounds)
        yield stop - n_rounds
        n_rounds = stop
