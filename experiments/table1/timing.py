"""Time of one round, predict and update, as it changes with d, K and the number of rounds.

Played in one process with nothing beside it. Absolute times are kept in the raw results only
to make ratios and exponents.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.table1.algorithms import (
    ALGORITHMS,
    GAF_POINTS_TIMED,
    LEADER,
    Algorithm,
    gaf_with,
)
from folklearn import synthetic
from folklearn.learners.base import Learner

B = 4.0
WARM_UP = 10  # rounds that are not counted: compilation and cold caches
SAMPLING_ROUNDS = 128  # a sampler's cost depends on the round: always the same rounds
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Sizes at which one algorithm is timed; the fit uses the upper sizes."""

    algorithm: str
    variable: str  # "d" or "K"
    sizes: tuple[int, ...]
    fixed: int  # the other one of d and K
    rounds: int


def against_size(series: Series, seed: int) -> dict[str, Any]:
    """Microseconds per round at every size, and the overhead: the same at d = 1, K = 2.

    The median over rounds; the mean for the sampler and the leader, whose rare moves and
    refreshes are their cost.
    """
    algorithm = ALGORITHMS[series.algorithm]

    def typical(d: int, K: int) -> float:
        rounds = SAMPLING_ROUNDS if algorithm.sampling else series.rounds
        times = per_round(_learner(algorithm, d, K), seed, rounds, d, K)
        uneven = algorithm.sampling or algorithm.name == LEADER
        return float(times.mean() if uneven else np.median(times))

    if series.variable == "d":
        shapes = [(size, series.fixed) for size in series.sizes]
    else:
        shapes = [(series.fixed, size) for size in series.sizes]
    typical(1, 2)  # compiles
    return {
        "algorithm": series.algorithm,
        "variable": series.variable,
        "sizes": list(series.sizes),
        "fixed": series.fixed,
        "seed": seed,
        "overhead_us": 0.0 if algorithm.sampling else typical(1, 2),
        "us": [typical(*shape) for shape in shapes],
    }


def against_rounds(name: str, seed: int, T: int, d: int, K: int) -> dict[str, Any]:
    """Median, mean and longest round in the windows 16..31, 32..63, ... of one run."""
    times = per_round(_learner(ALGORITHMS[name], d, K), seed, T, d, K, skip=0)
    starts = [2**i for i in range(4, T.bit_length() - 1)]
    windows = [times[t : 2 * t] for t in starts]
    return {
        "algorithm": name,
        "seed": seed,
        "t": starts,
        "median_us": [float(np.median(w)) for w in windows],
        "mean_us": [float(w.mean()) for w in windows],
        "longest_us": [float(w.max()) for w in windows],
    }


def gaf_against_horizon(
    power: int, horizons: tuple[int, ...], seed: int, d: int, K: int
) -> dict[str, Any]:
    """Median round of GAF when its integral has T^power points, and FOLKLORE's beside it."""
    us, folklore = [], []
    for T in horizons:
        learner = gaf_with(T**power, d, K, B)
        rounds = min(T, 100)
        us.append(float(np.median(per_round(learner, seed, rounds, d, K, skip=1))))
        other = ALGORITHMS["FOLKLORE"].make(d, K, B)
        folklore.append(float(np.median(per_round(other, seed, rounds, d, K, skip=1))))
    return {"power": power, "T": list(horizons), "seed": seed, "us": us, "folklore_us": folklore}


def per_round(
    learner: Learner, seed: int, rounds: int, d: int, K: int, skip: int = WARM_UP
) -> Array:
    """Microseconds of each round on a stochastic stream, after `skip` that do not count."""
    X, y = synthetic.stochastic(seed, rounds + skip, d=d, K=K, B=B)
    times = np.empty(len(X))
    for t, (x, label) in enumerate(zip(X, y.tolist(), strict=True)):
        start = time.perf_counter_ns()
        learner.predict(x)
        learner.update(x, label)
        times[t] = time.perf_counter_ns() - start
    return times[skip:] / 1e3


def _learner(algorithm: Algorithm, d: int, K: int) -> Learner:
    if algorithm.name == "GAF":
        return gaf_with(GAF_POINTS_TIMED, d, K, B)
    return algorithm.make(d, K, B)
