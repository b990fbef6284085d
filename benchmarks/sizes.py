"""Time of predict + update per example, every competitor in one process, interleaved."""

import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

from floor import blas_calls
from peers import (
    Competitor,
    folklore_event,
    folklore_run,
    river,
    scikit_learn,
    softmax_rows,
    vowpal_wabbit,
)
from threadpoolctl import threadpool_limits

from folklearn.kernels.second_order_blocks import block_size

MAX_ROWS = 8192  # a slice; also the most that is prepared at once
WARM_UP_ROWS = 192


def timed(competitor: Competitor, d: int, K: int, n_rows: int, seed: int) -> float:
    """Return seconds per row on fresh rows."""
    batch = competitor.prepare(*softmax_rows(d, K, n_rows, seed))
    gc.collect()
    gc.disable()  # as timeit does: no competitor pays for another one's garbage
    try:
        start = perf_counter()
        competitor.play(batch)
        return (perf_counter() - start) / n_rows
    finally:
        gc.enable()


def slice_rows(competitor: Competitor, seconds_per_row: float, slice_s: float) -> int:
    """Return the rows that fill a slice, in whole blocks."""
    rows = min(max(32, int(slice_s / seconds_per_row)), MAX_ROWS)
    return max(1, rows // competitor.multiple) * competitor.multiple


def measure_size(
    d: int, K: int, repetitions: int, slice_s: float, report: Callable[[], None]
) -> dict[str, Any]:
    """Return the best time of every competitor at one size."""
    block = block_size(d, K - 1)
    competitors = [
        folklore_event(d, K),
        folklore_run(d, K, block),
        blas_calls(d, K, block),
        river(d, K),
        vowpal_wabbit(d, K),
        scikit_learn(d, K),
    ]
    rows = {}
    for one in competitors:
        warm_up = WARM_UP_ROWS // one.multiple * one.multiple
        timed(one, d, K, warm_up, 0)  # compiles, allocates
        rows[one.name] = slice_rows(one, timed(one, d, K, warm_up, 1), slice_s)
    best = dict.fromkeys(rows, float("inf"))
    for repetition in range(repetitions):
        for one in competitors:
            seconds = timed(one, d, K, rows[one.name], 2 + repetition)
            best[one.name] = min(best[one.name], seconds)
        report()
    return {
        "d": d,
        "K": K,
        "n": (K - 1) * d,
        "block": block,
        "us": {name: 1e6 * seconds for name, seconds in best.items()},
        "river_over_event": best["river"] / best["folklore"],
        "river_over_run": best["river"] / best["run"],
        "run_over_blas": best["run"] / best["blas"],
        "rows_per_repetition": rows,
    }


def measure(
    report: Callable[[int, int], None],
    sizes: list[tuple[int, int]],
    repetitions: int,
    slice_s: float,
) -> list[dict[str, Any]]:
    """Return one entry per (d, K)."""
    total = len(sizes) * repetitions
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        report(done, total)

    with threadpool_limits(1):
        return [measure_size(d, K, repetitions, slice_s, step) for d, K in sizes]
