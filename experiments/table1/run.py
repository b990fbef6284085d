"""The paper's Table 1, measured: regret against T and B, time per round against d, K and T.

Run from the root of the repository:  python -m experiments.table1.run --processes 2
With --quick everything is tiny and the numbers mean nothing.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

from experiments.provenance import provenance
from experiments.table1 import plots, report, timing
from experiments.table1.algorithms import ALGORITHMS
from experiments.table1.plan import FULL, QUICK, Plan
from experiments.table1.regret import Task, play
from experiments.table1.summary import summarise

RESULTS = Path(__file__).parent / "results"
MODULE = "experiments.table1.run"


def measure(plan: Plan, processes: int) -> dict[str, Any]:
    """Regret with several processes, then time with nothing beside it."""
    threadpool_limits(1)
    return {"regret": _regret(plan.regret_tasks(), processes), **_times(plan)}


def _regret(tasks: list[Task], processes: int) -> list[dict[str, Any]]:
    if processes == 1:
        return [play(task) for task in _bar(tasks, "regret")]
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, threadpool_limits, (1,)) as pool:
        order = {pool.submit(play, task): i for i, task in enumerate(tasks)}
        done = {order[f]: f.result() for f in _bar(as_completed(order), "regret", len(order))}
    return [done[i] for i in range(len(tasks))]


def _times(plan: Plan) -> dict[str, Any]:
    pairs = [(series, seed) for seed in plan.seeds for series in plan.time_series()]
    names = [(name, seed) for seed in plan.seeds for name in ALGORITHMS]
    horizons = {3: plan.gaf_cubed, 1: plan.gaf_linear}
    powers = [(power, seed) for seed in plan.seeds for power in horizons]
    return {
        "time_size": [
            timing.against_size(series, seed) for series, seed in _bar(pairs, "time in d, K")
        ],
        "time_rounds": [
            timing.against_rounds(name, seed, _rounds(plan, name), plan.d, 2)
            for name, seed in _bar(names, "time in t")
        ],
        "time_gaf": [
            timing.gaf_against_horizon(power, horizons[power], seed, plan.d, 3)
            for power, seed in _bar(powers, "GAF in T")
        ],
    }


def _rounds(plan: Plan, name: str) -> int:
    return plan.time_sampling_horizon if ALGORITHMS[name].sampling else plan.time_horizon


def _bar(items: Iterable[Any], what: str, total: int | None = None) -> Iterable[Any]:
    return track(items, f"{what:>13}", total=total, console=Console(stderr=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the raw results, the table and two pictures."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny run of a few seconds")
    parser.add_argument("--processes", type=int, default=2, help="for regret; time uses one")
    parser.add_argument("--out", type=Path, help="folder; by default results/, --quick: a new one")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL
    out = options.out or (Path(tempfile.mkdtemp()) if options.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    where = provenance(MODULE, arguments, seeds=plan.hard_seeds, sizes=asdict(plan))
    raw = measure(plan, options.processes)
    write(out, plan, raw, where)
    print((out / "table1.md").read_text())


def write(out: Path, plan: Plan, raw: dict[str, Any], where: dict[str, Any]) -> None:
    """Write everything that follows from the raw runs."""
    summary = summarise(raw)
    content = {"provenance": where, "summary": summary, "raw": raw}
    short = json.loads(json.dumps(content), parse_float=lambda s: float(f"{float(s):.6g}"))
    (out / "table1.json").write_text(json.dumps(short) + "\n")
    (out / "table1.md").write_text(report.markdown(summary, plan, where["command"]))
    plots.regret(summary, plan, out / "regret.png")
    plots.time(raw, out / "time.png")


if __name__ == "__main__":
    main()
