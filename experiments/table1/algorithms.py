"""The six algorithms of the paper's Table 1, what the paper says of them, and the leader."""

from collections.abc import Callable
from dataclasses import dataclass

from folklearn import Aioli, Folklore, Gaf, Leader
from folklearn.baselines.aggregating import Aggregating
from folklearn.baselines.ons import Ons
from folklearn.learners.base import Learner
from folklearn.learners.sgd import Ogd

R = 1.0
LEADER = "Leader"  # ours, not of the paper: no bound is known, and it is not told B
GAF_POINTS = 1024  # of the integral where regret is measured; quasi-Monte Carlo needs few
GAF_POINTS_TIMED = 64  # where time against d and K is measured, so that the state dominates


@dataclass(frozen=True)
class Algorithm:
    """One row of Table 1.

    `regret`, `growth` (of regret with B) and `time` are the paper's, without constants; "–"
    where it has none.
    """

    name: str
    make: Callable[[int, int, float], Learner]  # of d, K, B
    regret: str
    growth: str
    time: str
    binary: bool = False  # two classes only
    sampling: bool = False  # short runs and small d K only


def _gaf(d: int, K: int, B: float, n_points: int = GAF_POINTS) -> Learner:
    return Gaf(n_features=d, n_classes=K, B=B, R=R, n_points=n_points)


def gaf_with(n_points: int, d: int, K: int, B: float) -> Learner:
    """GAF with a number of points of its integral."""
    return _gaf(d, K, B, n_points)


ALGORITHMS = {
    a.name: a
    for a in (
        Algorithm(
            "OGD", lambda d, K, B: Ogd(n_features=d, n_classes=K, B=B, R=R),
            "B √T", "B", "d K",
        ),
        Algorithm(
            "ONS", lambda d, K, B: Ons(n_features=d, n_classes=K, B=B, R=R),
            "d e^B ln T", "e^B", "d² K²",
        ),
        Algorithm(
            "Aggregating", lambda d, K, B: Aggregating(n_features=d, n_classes=K, B=B, R=R),
            "d ln T", "ln B", "poly(d, K, B, T)", sampling=True,
        ),
        Algorithm(
            "AIOLI", lambda d, K, B: Aioli(n_features=d, n_classes=K, B=B, R=R),
            "d B ln T", "B", "d² + B ln T", binary=True,
        ),
        Algorithm(
            "GAF", _gaf, "d B K ln T", "B", "d² K³ + K² T³",
        ),
        Algorithm(
            "FOLKLORE", lambda d, K, B: Folklore(n_features=d, n_classes=K, B=B, R=R),
            "d B K ln T", "B", "d² K³ + K² B ln T",
        ),
        Algorithm(
            LEADER, lambda d, K, B: Leader(n_features=d, n_classes=K),
            "–", "–", "–",
        ),
    )
}  # fmt: skip
