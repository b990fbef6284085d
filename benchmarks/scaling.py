"""What a second thread is worth: sums, passes, a whole exact audit and a fit, 10^4 to 10^7 rows.

python -m benchmarks.scaling   writes results/scaling.json and results/scaling.md (about ten
minutes; --quick has one turn up to 10^5 rows and writes no files). One process for each
number of threads, which take turns, three of them, or two where one takes long; what is shown is
the median, and of the ratios also the least and the largest. A task is left out from where it
would take longer than half a minute.

Rows are those of one seeded softmax stream, 131,072 of them over and over, in blocks of as many:
they are not held, and a pass checks and copies them as it does with those of a file. A fit holds
its rows, all different.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.progress import track

from experiments.provenance import provenance, stated, write_json
from folklearn import Certifier, Evidence, FolkloreClassifier
from folklearn.evidence.passes import passes_over
from folklearn.synthetic import stochastic

RESULTS = Path(__file__).parent / "results"
SIZES = ((5, 2), (20, 5), (55, 7))
ROWS = (10**4, 10**5, 10**6, 10**7)
MOST_IF_QUICK = 10**5
JOBS = (1, 2)
TURNS, FEWER_TURNS = 3, 2
DISTINCT = 1 << 17
WARM_UP = 300  # rows
LONG, LONGEST = 10.0, 30.0  # seconds of one measurement

Seconds = Callable[[int, int, int, int], float]  # of d, K, rows and threads


def source(d: int, K: int, n_rows: int) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Return a function that yields blocks of rows, the same over and over."""
    X, y = stochastic(0, min(n_rows, DISTINCT), d=d, K=K)

    def again() -> Iterator[tuple[Any, Any]]:
        for start in range(0, n_rows, len(y)):
            yield X[: n_rows - start], y[: n_rows - start]

    return again


def add(d: int, K: int, n_rows: int, n_jobs: int) -> float:
    """Time `Evidence.add`, block by block, which does not depend on `n_jobs`."""
    evidence, again = Evidence(n_features=d, n_classes=K), source(d, K, n_rows)
    started = time.perf_counter()
    for X, y in again():
        evidence.add(X, y)
    return time.perf_counter() - started


def one_pass(d: int, K: int, n_rows: int, n_jobs: int) -> float:
    """Time one pass of a penalised fit: the loss and the next step of all rows."""
    again = source(d, K, n_rows)
    passes = passes_over(again, None, None, n_features=d, n_classes=K, n_jobs=n_jobs)
    started = time.perf_counter()
    passes.expand(np.ones((K, d)) / d)
    return time.perf_counter() - started


def audit(d: int, K: int, n_rows: int, n_jobs: int) -> float:
    """Time a whole exact audit: rows observed once, by one thread, then read again and again."""
    again, certifier = source(d, K, n_rows), Certifier(n_features=d, n_classes=K)
    uniform = np.full((min(n_rows, DISTINCT), K), 1 / K)
    started = time.perf_counter()
    for X, y in again():
        certifier.observe_many(X, y, uniform[: len(y)])
    certifier.exact(again, n_jobs=n_jobs)
    return time.perf_counter() - started


def fit(d: int, K: int, n_rows: int, n_jobs: int) -> float:
    """Time a fit: rows learned once, by one thread, then fitted together."""
    X, y = stochastic(0, n_rows, d=d, K=K)
    started = time.perf_counter()
    FolkloreClassifier(n_jobs=n_jobs).fit(X, y)
    return time.perf_counter() - started


TASKS: dict[str, Seconds] = {
    "`Evidence.add`": add,
    "one pass": one_pass,
    "exact audit": audit,
    "fit": fit,
}


def work(task: str, d: int, K: int, n_jobs: int, pipe: Any) -> None:
    """Measure whatever number of rows the pipe names; answer with seconds and peak memory, MB."""
    TASKS[task](d, K, WARM_UP, n_jobs)
    for n_rows in iter(pipe.recv, None):
        seconds = TASKS[task](d, K, n_rows, n_jobs)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pipe.send((seconds, peak))


class Worker:
    """A process that measures one task on so many threads."""

    def __init__(self, task: str, d: int, K: int, n_jobs: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(task, d, K, n_jobs, theirs))

    def __enter__(self) -> "Worker":
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._pipe.send(None)
        self._process.join()

    def measure(self, n_rows: int) -> tuple[float, float]:
        """Return seconds, and the peak memory so far in MB."""
        self._pipe.send(n_rows)
        answer: tuple[float, float] = self._pipe.recv()
        return answer


def measure(task: str, d: int, K: int, quick: bool) -> list[dict[str, Any]]:
    """Let one thread and two take turns, at every number of rows that does not take too long."""
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(task, d, K, n_jobs)) for n_jobs in JOBS]
        for n_rows in ROWS:
            expected = n_rows * found[-1]["seconds"][0] / found[-1]["rows"] if found else 0.0
            if expected > LONGEST or (quick and n_rows > MOST_IF_QUICK):
                break
            n_turns = 1 if quick else TURNS if expected < LONG else FEWER_TURNS
            turns = [[one.measure(n_rows) for one in workers] for _ in range(n_turns)]
            ratios = [one / two for (one, _), (two, _) in turns]
            found.append(
                {
                    "task": task,
                    "d": d,
                    "K": K,
                    "rows": n_rows,
                    "seconds": [median(turn[j][0] for turn in turns) for j in range(len(JOBS))],
                    "ratios": [median(ratios), min(ratios), max(ratios)],
                    "mb": [max(turn[j][1] for turn in turns) for j in range(len(JOBS))],
                }
            )
    return found


def table(rows: list[dict[str, Any]], origin: dict[str, Any]) -> str:
    """Return the results in Markdown."""
    lines = [
        "# Scaling",
        "",
        f"{stated(origin)}. One thread and two, in turns: the median of {TURNS}, or of "
        f"{FEWER_TURNS} that take long; times faster also the least and the largest, for the "
        "machine has other work. Two threads give the same bits as one. Audit and fit learn every "
        "row once on one thread, which is in their times. Memory is the peak of the whole process, "
        "Python and compiled code included (about 290 MB); a fit holds its rows.",
        "",
        "| task | (d, K) | rows | µs a row, 1 thread | 2 threads | times faster | MB | MB, 2 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        one, two = (1e6 * seconds / row["rows"] for seconds in row["seconds"])
        ratio, least, most = row["ratios"]
        lines.append(
            f"| {row['task']} | ({row['d']}, {row['K']}) | {row['rows']:,} | {one:.2f} | {two:.2f} "
            f"| {ratio:.2f} ({least:.2f} to {most:.2f}) | {row['mb'][0]:.0f} | {row['mb'][1]:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, show and write."""
    quick = "--quick" in sys.argv[1:]
    origin = provenance(
        "benchmarks.scaling",
        sys.argv[1:],
        seeds=[0],
        sizes={"sizes": [list(size) for size in SIZES], "rows": list(ROWS), "turns": TURNS},
    )
    asked = [(task, *size) for task in TASKS for size in SIZES]
    rows = [row for one in track(asked, "scaling") for row in measure(*one, quick)]
    text = table(rows, origin)
    if not quick:
        write_json(RESULTS / "scaling.json", {"origin": origin, "rows": rows})
        (RESULTS / "scaling.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
