"""What is played: the streams, the agents on each, and their exploration."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path

from folklearn import Folklore, Ogd, auto
from folklearn.bandits import Agent, BanditReduction
from folklearn.baselines import Banditron, Newtron, Obama, Soba

from ..data import Source, Stream
from ..data import stream as real_stream
from .diagonal import DiagonalNewtron, DiagonalSoba
from .synsep import syn_non_sep, syn_sep

SYNTHETIC = {"SynSep": syn_sep, "SynNonSep": syn_non_sep}
REAL = ("pendigits", "satimage", "covtype")
GRID = tuple(2.0**-e for e in (9, 7, 5, 3))
THEORY = "theory"
# Error rates of an independent run of 50,000 rounds, medians of 5 seeds for Banditron and 3 for
# SOBA, at the explorations of GRID.
REFERENCE = {
    ("SynSep", "Banditron"): (0.010, 0.018, 0.060, 0.120),
    ("SynSep", "SOBA, diagonal"): (0.537, 0.163, 0.088, 0.118),
    ("SynNonSep", "Banditron"): (0.456, 0.274, 0.167, 0.209),
    ("SynNonSep", "SOBA, diagonal"): (0.579, 0.205, 0.129, 0.165),
}
REFERENCE_ROUNDS = 50_000


@dataclass(frozen=True)
class Arena:
    """A stream by name: synthetic of any size, or a data set in a folder."""

    name: str
    rounds: int
    folder: Path | None = None
    d: int = 400
    K: int = 9

    @property
    def synthetic(self) -> bool:
        """Whether the stream is generated, with the seed, instead of read."""
        return self.name in SYNTHETIC

    @property
    def R(self) -> float:
        """Roughly the norm of the contexts: about 45 of 400 bits, or standardised features."""
        return sqrt(0.11 * self.d) if self.synthetic else 1.0


@lru_cache(maxsize=2)
def stream(arena: Arena, seed: int) -> Stream:
    """Return the rows in the order they are played."""
    if arena.synthetic:
        return Stream(*SYNTHETIC[arena.name](seed, arena.rounds, d=arena.d, K=arena.K), arena.K)
    return real_stream(Source(arena.name, arena.folder, arena.rounds), seed)


# An agent from its sizes, the norm of the contexts, its exploration or the horizon, and a seed.
Make = Callable[..., Agent]


def _folklore(**reduction: str) -> Make:
    """FOLKLORE with B R = 100; with B R = 10 where every correct action teaches (more data)."""
    reach = 10.0 if reduction.get("updates") == "correct" else 100.0

    def make(d: int, K: int, R: float, **words: object) -> Agent:
        learner = Folklore(n_features=d, n_classes=K, B=reach / R, R=R)
        return BanditReduction(learner, **reduction, **words)

    return make


def _auto(d: int, K: int, R: float, **words: object) -> Agent:
    learner = auto(n_features=d, n_classes=K, R=R, max_weight=K)
    return BanditReduction(learner, decoding="randomised", updates="correct", **words)


def _ogd(d: int, K: int, R: float, **words: object) -> Agent:
    learner = Ogd(n_features=d, n_classes=K, B=10.0 / R, R=R)
    return BanditReduction(learner, decoding="randomised", updates="correct", **words)


def _sized(agent: type[Agent], **options: object) -> Make:
    return lambda d, K, R, **words: agent(n_features=d, n_classes=K, R=R, **options, **words)


SAMPLED, DECODED = "FOLKLORE, sampled", "FOLKLORE, decoded"
EVERY, AUTO = "FOLKLORE, every correct", "auto, every correct"
AGENTS: dict[str, Make] = {
    "Banditron": _sized(Banditron),
    "Newtron, diagonal": _sized(DiagonalNewtron),
    "SOBA, diagonal": _sized(DiagonalSoba),
    SAMPLED: _folklore(),
    DECODED: _folklore(decoding="randomised"),
    "OGD, every correct": _ogd,
    EVERY: _folklore(decoding="randomised", updates="correct"),
    AUTO: _auto,
}
# Full matrices of (K d)^2 numbers, and particles in K d dimensions: on a small stream only.
DEAR: dict[str, Make] = {
    "Newtron": _sized(Newtron),
    "SOBA": _sized(Soba),
    "OBAMA": lambda d, K, R, **words: Obama(n_features=d, n_classes=K, B=10.0 / R, R=R, **words),
}
# Updates of ((K-1) d)^2 numbers in nearly every round: hours at d = 400.
REAL_ONLY = (EVERY, AUTO)
NO_THEORY = (AUTO,)  # a mixture has no bound in closed form
SAME_THEORY = (DECODED,)  # on synthetic streams theory only explores, whatever the decoding


def explorations(name: str, arena: Arena) -> tuple[object, ...]:
    """Return the explorations at which an agent is played on a stream, maybe none."""
    if name in REAL_ONLY and arena.synthetic:
        return ()
    without = name in NO_THEORY or (name in SAME_THEORY and arena.synthetic)
    return GRID if without else (*GRID, THEORY)


def make(name: str, arena: Arena, rows: Stream, exploration: object, seed: int) -> Agent:
    """Return an agent at an exploration, or at that of its theory."""
    words: dict[str, object] = {"exploration": exploration}
    if exploration == THEORY:
        words = {"horizon": len(rows.y)}
    return (AGENTS | DEAR)[name](rows.d, rows.K, arena.R, seed=seed, **words)
