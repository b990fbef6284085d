"""The last 64, 128, 256, ... rounds of a stream, and sums of evidence for them.

Sums are kept for spans of one block of rounds, of 2, 4, ... blocks, at most two of each length: a
window is a sum of O(log T) of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """The last rounds of a stream, from `start` to before `stop`, counted from 0."""

    start: int
    stop: int
    loss: float  # weighted; totals over the window
    n_errors: float
    weight: float
    lower_bound: float  # no linear model has a total loss and a penalty below it
    C: float = 1.0  # inverse of the penalty

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return self.stop - self.start

    @property
    def could_gain(self) -> float:
        """The most that any linear model, penalty counted, could have gained a round, in nats."""
        return (self.loss - self.lower_bound) / max(self.n_rounds, 1)


@dataclass(frozen=True)
class EvidenceSpan:
    """The evidence of consecutive rounds."""

    start: int
    stop: int
    evidence: Any  # a sum that can be added to another

    @property
    def n_rounds(self) -> int:
        return self.stop - self.start

    def __add__(self, later: "EvidenceSpan") -> "EvidenceSpan":
        return EvidenceSpan(self.start, later.stop, self.evidence + later.evidence)


def add_to_ladder(ladder: list[EvidenceSpan], span: EvidenceSpan) -> None:
    """Append a span; of three of one length the two older ones become one."""
    ladder.append(span)
    last = len(ladder) - 1
    while last >= 2 and len({rung.n_rounds for rung in ladder[last - 2 : last + 1]}) == 1:
        ladder[last - 2 : last] = [ladder[last - 2] + ladder[last - 1]]
        last -= 2


def join_suffixes(spans: Sequence[EvidenceSpan]) -> list[EvidenceSpan]:
    """Return every union of the newest spans, the shortest first."""
    suffixes: list[EvidenceSpan] = []
    for span in reversed(spans):
        suffixes.append(span + suffixes[-1] if suffixes else span)
    return suffixes
