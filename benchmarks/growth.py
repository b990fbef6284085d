"""Time per round early and late in a long stream: it must not grow."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from peers import folklore_event, softmax_rows
from threadpoolctl import threadpool_limits

WARM_UP = 1000
CHUNK = 100


def measure(
    report: Callable[[int, int], None], sizes: list[tuple[int, int]], n_rounds: int
) -> list[dict[str, Any]]:
    """Return the time per round in the first and in the last tenth, per event.

    A tenth is represented by the median of its chunks of 100 rounds: other programs on the
    machine disturb single chunks.
    """
    entries = []
    with threadpool_limits(1):
        for number, (d, K) in enumerate(sizes):
            learner = folklore_event(d, K)
            batch = learner.prepare(*softmax_rows(d, K, n_rounds, 0))
            learner.play(batch[:WARM_UP])
            times = []
            for start in range(WARM_UP, n_rounds, CHUNK):
                chunk = batch[start : start + CHUNK]
                begin = perf_counter()
                learner.play(chunk)
                times.append(1e6 * (perf_counter() - begin) / len(chunk))
            tenth = len(times) // 10
            first, last = median(times[:tenth]), median(times[-tenth:])
            entries.append(
                {"d": d, "K": K, "rounds": n_rounds, "first_us": first, "last_us": last,
                 "ratio": last / first}
            )  # fmt: skip
            report(number + 1, len(sizes))
    return entries
