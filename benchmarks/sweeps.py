"""Sweeps, compare and audits of many files: one process, two, and Ray; and with a worker killed.

python -m benchmarks.sweeps   writes results/sweeps.json and results/sweeps.md (five minutes).
Every way does the same work, and must come to the same bits. A way has its turn twice: the first
includes the start of workers, the second finds them there. Then one worker is killed (kill -9)
when half of the sweep is done. Linux only. `--quick` only checks that everything runs, and writes
to the folder that `--out` names.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.provenance import provenance, stated, write_json
from folklearn import scale, synthetic

RESULTS = Path(__file__).parent / "results"
ROWS, QUICK_ROWS, D, K = 40_000, 2_000, 20, 5
FILES = 8
ORDERS = 3
SWEPT = {"folklore": {"B": [1.0, 3.0, 10.0]}, "ogd": {"B": [1.0, 10.0]}, "leader": {}}
COMPARED = ("auto", "folklore", "gaf", "ogd")
WAYS: dict[str, dict[str, Any]] = {
    "one process": {},
    "two processes": {"n_jobs": 2},
    "Ray, two CPUs": {"backend": "ray"},
}
WORKERS = "LokyProcess", "ray::_called"  # how processes that are given tasks are called

Found = dict[str, Any]


def part(n_rows: int, number: int) -> Iterator[tuple[Any, ...]]:
    """Yield what stands for a file: rows, and a forecast that knows how often classes come."""
    X, y = synthetic.stochastic(0, n_rows, d=D, K=K)
    rows = slice(number * n_rows // FILES, (number + 1) * n_rows // FILES)
    share = np.bincount(y, minlength=K) / n_rows
    yield X[rows], y[rows], np.tile(share, (len(y[rows]), 1))


def jobs(n_rows: int) -> dict[str, Callable[..., Any]]:
    """Return what is done, by name; each returns what must be the same to the last bit."""
    X, y = synthetic.stochastic(0, n_rows, d=D, K=K)

    def sweep(**way: Any) -> Any:
        return scale.sweep(SWEPT, X, y, n_classes=K, n_orders=ORDERS, **way)

    def compare(**way: Any) -> Any:
        found = scale.compare(COMPARED, X, y, n_classes=K, **way)
        return [(row.scores.P.tobytes(), row.regret) for row in found.rows]

    def audit(**way: Any) -> Any:
        read = partial(part, n_rows)
        found = scale.audit_files(range(FILES), read, n_features=D, n_classes=K, **way)
        return found.evidence.to_bytes(), found.certificate

    return {"sweep": sweep, "compare": compare, "audit of files": audit}


def at_work(parent: int) -> Iterator[int]:
    """Yield the processes below this one that work on tasks."""
    for path in Path("/proc").glob(f"{parent}/task/*/children"):
        for child in map(int, path.read_text().split()):
            try:
                command = Path(f"/proc/{child}/cmdline").read_text()
            except FileNotFoundError:
                continue
            if any(name in command for name in WORKERS):
                yield child
            yield from at_work(child)


class Killer:
    """Takes the number of tasks that are done, and kills a worker once half of them are."""

    def __init__(self, n_tasks: int) -> None:
        self._at, self.killed = n_tasks // 2, 0

    def __call__(self, n_done: int) -> None:
        if n_done >= self._at and not self.killed:
            for pid in at_work(os.getpid()):
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
                return


def timed(job: Callable[..., Any], **way: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    found = job(**way)
    return found, time.perf_counter() - started


def measure(n_rows: int, ways: dict[str, dict[str, Any]]) -> list[Found]:
    """Do everything in every way."""
    rows: list[Found] = []
    done = jobs(n_rows)
    alone = {name: job() for name, job in done.items()}  # compiles, too
    for name, job in done.items():
        for way, options in ways.items():
            print(f"{name}: {way}", file=sys.stderr)
            (first, started), (again, seconds) = (timed(job, **options) for _ in range(2))
            same = first == again == alone[name]
            rows.append(
                {"job": name, "way": way, "first_s": started, "again_s": seconds, "same": same}
            )
    for way, options in ways.items():
        if not options:
            continue
        print(f"sweep: {way}, a worker killed", file=sys.stderr)
        killer = Killer(len(alone["sweep"].rows))
        found, seconds = timed(done["sweep"], progress=killer, **options)
        rows.append(
            {"job": "sweep", "way": f"{way}, a worker killed", "again_s": seconds,
             "same": found == alone["sweep"], "killed": killer.killed}
        )  # fmt: skip
    return rows


def table(rows: Sequence[Found], origin: Found, n_rows: int) -> str:
    """Return the results in Markdown."""
    runs = ORDERS * sum(len(grid.get("B", [0])) for grid in SWEPT.values())
    lines = [
        "# Many runs at once",
        "",
        f"{stated(origin)}; {origin['cores']} cores. {n_rows:,} rows, d = {D}, K = {K}. "
        f"Sweep: {runs} runs. Compare: {', '.join(COMPARED)}, and the best linear model in "
        f"hindsight. Audit: {FILES} files. Seconds; *first* with the start of the workers.",
        "",
        "| what | on | first | again | same bits | workers killed |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        first = f"{row['first_s']:.1f}" if "first_s" in row else "–"
        lines.append(
            f"| {row['job']} | {row['way']} | {first} | {row['again_s']:.1f} "
            f"| {'yes' if row['same'] else '**no**'} | {row.get('killed', '–')} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show and write."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    n_rows = QUICK_ROWS if options.quick else ROWS
    ways, libraries = dict(WAYS), ["joblib"]
    try:
        import ray
    except ImportError:
        print("skipped Ray: it is not installed (make test-ray installs it)", file=sys.stderr)
        del ways["Ray, two CPUs"]
    else:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        libraries.append("ray")
    rows = measure(n_rows, ways)
    origin = provenance(
        "benchmarks.sweeps", arguments, seeds=[0], libraries=libraries,
        sizes={"rows": n_rows, "d": D, "K": K, "files": FILES, "orders": ORDERS},
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "sweeps.json", {"origin": origin, "rows": rows})
    text = table(rows, origin, n_rows)
    (options.out / "sweeps.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
