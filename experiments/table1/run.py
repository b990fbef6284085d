"""The paper's Table 1, measured: regret against T and B, time per round against d, K and T.

Run from the root of the repository:  python -m experiments.table1.run
With --quick everything is tiny and the numbers mean nothing.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

from experiments.options import new_parser
from experiments.pool import call_all, progress
from experiments.provenance import provenance
from experiments.table1 import plots, report, timing
from experiments.table1.algorithms import ALGORITHMS
from experiments.table1.plan import FULL, QUICK, Plan
from experiments.table1.regret import Task, play
from experiments.table1.summary import summarise

RESULTS = Path(__file__).parent / "results"
MODULE = "experiments.table1.run"


def measure(plan: Plan, jobs: int) -> dict[str, Any]:
    """Regret with several processes, then time with nothing beside it."""
    threadpool_limits(1)
    return {"regret": _regret(plan.regret_tasks(), jobs), **_times(plan)}


def _regret(tasks: list[Task], jobs: int) -> list[dict[str, Any]]:
    with progress() as bar:
        calls = {(number,): (play, (task,)) for number, task in enumerate(tasks)}
        return list(call_all(jobs, bar, "regret", calls).values())


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


def _bar(items: Iterable[Any], what: str) -> Iterable[Any]:
    return track(items, f"{what:>13}", console=Console(stderr=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the raw results, the table and two pictures."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = new_parser(__doc__, RESULTS)
    parser.add_argument("--quick", action="store_true", help="a tiny run of a few seconds")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    where = provenance(MODULE, arguments, seeds=plan.hard_seeds, sizes=asdict(plan))
    raw = measure(plan, options.jobs)
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
