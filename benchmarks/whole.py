"""`auto` over a whole stream, from an empty model, everything included: refreshes and reviews too.

One long stream is played in slices, continuously; between two slices River and VW play a slice
of theirs, so that whatever else the machine does falls on all alike. Nothing is a best of.
"""

import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from peers import Competitor, auto_event, river, softmax_rows, vowpal_wabbit
from threadpoolctl import threadpool_limits

from folklearn import Folklore, auto

EVENTS = 10  # slices per event in a chunk; a chunk is one call of `run`
PEER_ROWS = 64  # of River and VW between two slices
WARM_UP_ROWS = 8192  # beyond 6,144, where rows first enter the sums of evidence
PASSES = 2  # over the stream whose rounds are timed one by one


class Clock:
    """Seconds and rounds of one competitor so far."""

    def __init__(self, play: Callable[[Any], object]) -> None:
        self.play = play
        self.seconds = 0.0
        self.rounds = 0

    def run(self, batch: Any, rounds: int) -> None:
        """Play a batch and count it."""
        start = perf_counter()
        self.play(batch)
        self.seconds += perf_counter() - start
        self.rounds += rounds

    @property
    def us(self) -> float:
        """Microseconds per round over everything so far."""
        return 1e6 * self.seconds / self.rounds


def warm_up(d: int, K: int, competitors: list[Competitor]) -> None:
    """Compile, allocate and load; the models that are timed start empty afterwards."""
    X, y = softmax_rows(d, K, WARM_UP_ROWS, 0)
    auto(n_features=d, n_classes=K).run(X, y)
    for one in competitors:
        one.play(one.prepare(X[:PEER_ROWS], y[:PEER_ROWS]))
    fresh = auto_event(d, K)
    fresh.play(fresh.prepare(X, y))


def stream(
    d: int, K: int, marks: list[int], longest: int, chunk: int, budget_s: float,
    step: Callable[[], None],
) -> dict[str, Any]:  # fmt: skip
    """Return the times at every mark; beyond the last of them `run` goes on alone.

    It goes on to `longest` rounds, or until it has taken `budget_s` seconds.
    """
    peers = {"river": river(d, K), "vw": vowpal_wabbit(d, K)}
    warm_up(d, K, list(peers.values()))
    one_by_one, model = auto_event(d, K), auto(n_features=d, n_classes=K)
    event, run = Clock(one_by_one.play), Clock(lambda rows: model.run(*rows))
    clocks = {name: Clock(peer.play) for name, peer in peers.items()}
    entries, n_bytes = [], 0
    gc.collect()
    gc.disable()  # as timeit does: no competitor pays for another one's garbage
    try:
        for number in range(max(marks[-1], longest) // chunk):
            done = (number + 1) * chunk
            beyond = done > marks[-1]
            if beyond and run.seconds > budget_s:
                break
            X, y = softmax_rows(d, K, chunk, 1 + number)
            for part in np.array_split(np.arange(chunk), 1 if beyond else EVENTS):
                if not beyond:
                    event.run(one_by_one.prepare(X[part], y[part]), len(part))
                few = part[:PEER_ROWS]
                for name, peer in peers.items():
                    clocks[name].run(peer.prepare(X[few], y[few]), len(few))
            run.run((X, y), chunk)
            n_bytes = max(n_bytes, model.n_bytes)
            if done in marks or (beyond and done == longest):
                entries.append(_reading(event, run, clocks, beyond))
            gc.collect()
            step()
    finally:
        gc.enable()
    if run.rounds > entries[-1]["rounds"]:
        entries.append(_reading(event, run, clocks, True))
    return {"times": entries, "n_bytes": n_bytes, "experts_left": len(model.experts)}


def _reading(event: Clock, run: Clock, peers: dict[str, Clock], beyond: bool) -> dict[str, Any]:
    river_us = peers["river"].us
    return {
        "rounds": run.rounds,
        "event_us": None if beyond else event.us,
        "run_us": run.us,
        "river_us": river_us,
        "vw_us": peers["vw"].us,
        "river_over_event": None if beyond else river_us / event.us,
        "river_over_run": river_us / run.us,
        "peer_rounds": peers["river"].rounds,
    }


def longest_round(d: int, K: int, n_rounds: int) -> dict[str, float]:
    """Return the longest round of a stream, in ms, and when it was.

    The stream is played twice; the shorter time of each round counts, for what only one of the
    passes saw was an interruption.
    """
    X, y = softmax_rows(d, K, n_rounds, 0)
    rows = list(zip(X, y.tolist(), strict=True))
    least = np.full(n_rounds, np.inf)
    for _ in range(PASSES):
        model = auto(n_features=d, n_classes=K)
        times = np.empty(n_rounds)
        for t, (x, label) in enumerate(rows):
            start = perf_counter()
            model.predict(x)
            model.update(x, label)
            times[t] = perf_counter() - start
        np.minimum(least, times, out=least)
    worst = int(least.argmax())
    return {
        "ms": 1e3 * float(least[worst]),
        "round": worst + 1,
        "typical_us": 1e6 * float(np.median(least)),
        "rounds": n_rounds,
    }


def measure(
    report: Callable[[int, int], None],
    sizes: list[tuple[int, int]],
    marks: list[int],
    longest: int,
    n_long: int,
    chunk: int,
    budget_s: float,
) -> list[dict[str, Any]]:
    """Return one entry per (d, K); the first `n_long` sizes are played to `longest` rounds."""
    done, total = 0, len(sizes) * (marks[-1] // chunk) + n_long * ((longest - marks[-1]) // chunk)

    def step() -> None:
        nonlocal done
        done += 1
        report(done, max(done, total))

    entries = []
    with threadpool_limits(1):
        for number, (d, K) in enumerate(sizes):
            far = longest if number < n_long else marks[-1]
            found = stream(d, K, marks, far, chunk, budget_s, step)
            entries.append(
                {
                    "d": d,
                    "K": K,
                    "n": (K - 1) * d,
                    **found,
                    "longest": longest_round(d, K, marks[-1]),
                    "folklore_bytes": Folklore(n_features=d, n_classes=K).n_bytes,
                    "chunk": chunk,
                }
            )
    return entries
