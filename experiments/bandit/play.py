"""One agent on one stream with one seed; the theorem's bound; the time of a round."""

from time import perf_counter
from typing import Any

import numpy as np

from folklearn import Folklore, Interactions, best_in_class, interact
from folklearn.arrays import Labels
from folklearn.bandits import BanditReduction
from folklearn.bandits.reduction import DECODING_COST
from folklearn.synthetic import stochastic

from ..data import Stream
from .plan import SAMPLED, Arena, make, stream
from .synsep import syn_blocks

N_POINTS = 40


def checkpoints(T: int) -> list[int]:
    """Return the rounds at which mistakes are recorded: evenly in logarithms, T last."""
    return sorted({round(t) for t in np.geomspace(min(10, T), T, N_POINTS)})


def count_mistakes(log: Interactions) -> Labels:
    """Return how many actions had been wrong after each decision, (T,)."""
    return np.cumsum(log.rewards < 1.0, dtype=np.int64)


def play(name: str, arena: Arena, exploration: object, seed: int) -> dict[str, Any]:
    """Return the mistakes at the checkpoints, and what the agent was."""
    rows = stream(arena, seed)
    agent = make(name, arena, rows, exploration, seed)
    log = interact(agent, rows.X, rows.y)
    learner = agent.learner if isinstance(agent, BanditReduction) else None
    stops = checkpoints(log.n_rounds)
    return {
        "rounds": stops,
        "exploration": getattr(agent, "exploration", None),
        "mistakes": count_mistakes(log)[np.array(stops) - 1].tolist(),
        "error": log.error_rate,
        "updates": None if learner is None else learner.n_rounds,
    }


def check_bound(T: int, seed: int, decoding: str, updates: str) -> dict[str, float]:
    """Play the reduction at the theorem's exploration; return mistakes and the bound."""
    d, K, B = 2, 3, 3.0
    X, y = stochastic(seed, T, d=d, K=K, B=B)
    learner = Folklore(n_features=d, n_classes=K, B=B)
    agent = BanditReduction(learner, horizon=T, decoding=decoding, updates=updates, seed=seed)
    log = interact(agent, X, y)
    loss = best_in_class(X, y, B=B, n_classes=K).loss
    cost = DECODING_COST if decoding == "randomised" else 1.0
    regret = learner.regret_bound(T)
    exploration = float(agent.exploration or 0.0)
    spent = K * regret
    if updates == "correct":
        spent = learner.certificate().regret_bound
    bound = cost * loss + exploration * T + cost * spent / exploration
    return {
        "mistakes": float(count_mistakes(log)[-1]),
        "bound": bound,
        "loss": loss,
        "exploration": exploration,
        "updates": learner.certificate().n_rounds,
    }


def time_round(name: str, arena: Arena, exploration: object, seed: int) -> dict[str, float]:
    """Return microseconds per round of acting and learning, and the error rate.

    The first half of the rounds is not timed: it compiles, and it warms the caches.
    """
    rows = stream(arena, seed)
    agent = make(name, arena, rows, exploration, seed)
    half = len(rows.y) // 2
    first = interact(agent, rows.X[:half], rows.y[:half])
    start = perf_counter()
    second = interact(agent, rows.X[half:], rows.y[half:])
    seconds = perf_counter() - start
    return {
        "us": 1e6 * seconds / second.n_rounds,
        "error": float(np.mean(np.append(first.rewards, second.rewards) < 1.0)),
    }


def million(T: int, exploration: float, seed: int, show: Any) -> dict[str, Any]:
    """Play the paper's reduction over FOLKLORE on a long SynSep, block by block."""
    arena = Arena("SynSep", T)
    none = Stream(np.empty((0, arena.d)), np.empty(0, np.int64), arena.K)
    agent = make(SAMPLED, arena, none, exploration, seed)
    stops, mistakes, done, wrong, seconds = checkpoints(T), [], 0, 0, 0.0
    for X, y in syn_blocks(seed, T, d=arena.d, K=arena.K, rate=0.0):
        start = perf_counter()
        log = interact(agent, X, y)
        seconds += perf_counter() - start
        so_far = wrong + count_mistakes(log)
        mistakes += [int(so_far[t - done - 1]) for t in stops if done < t <= done + len(y)]
        done, wrong = done + len(y), int(so_far[-1])
        show(done)
    return {
        "rounds": stops,
        "mistakes": mistakes,
        "exploration": exploration,
        "updates": agent.learner.certificate().n_rounds,  # type: ignore[attr-defined]
        "seconds": seconds,
    }
