"""When to look at a model that learns, and what is seen."""

from collections.abc import Iterator
from dataclasses import dataclass

from folklearn.streams.model import StreamModel

_LARGEST_BLOCK = 4096


@dataclass(frozen=True)
class Moment:
    """Where a model stands; everything counts from the first round of its life."""

    n_rounds: int
    loss: float
    regret_bound: float
    n_mistakes: int

    @classmethod
    def of(cls, model: StreamModel) -> "Moment":
        """Return where a model stands now."""
        now = model.learner.certificate()
        return cls(now.n_rounds, now.loss, now.regret_bound, model.n_mistakes)

    @property
    def is_doubling(self) -> bool:
        """Whether the number of rounds is a power of two."""
        return self.n_rounds > 0 and self.n_rounds & (self.n_rounds - 1) == 0


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
