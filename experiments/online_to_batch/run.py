"""Excess risk against the size of the sample: online to batch and logistic regression.

Run from the root of the repository:  python -m experiments.online_to_batch.run
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from folklearn import Folklore

from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance
from . import report
from .methods import METHODS, measure
from .worlds import WORLDS, B, D, K, judge

RESULTS = Path(__file__).parent / "results"
SIZES = (50, 100, 200, 500, 1000, 2000, 5000)
REFERENCE_ROWS, TEST_ROWS = 20_000, 4_000


def measure_all(
    sizes: Sequence[int], seeds: Sequence[int], rows: tuple[int, int], jobs: int
) -> dict[str, Any]:
    """Every method on every sample, summarised over seeds."""
    keys = [
        (world, name, T, seed)
        for T in sorted(sizes, reverse=True)  # the longest first: nobody waits at the end
        for seed in seeds
        for world in WORLDS
        for name in METHODS
    ]
    with progress() as bar:
        found = call_all(jobs, bar, "fit", {key: (measure, (*key, *rows)) for key in keys})
    learner = Folklore(n_features=D, n_classes=K, B=B)
    return {
        "T": list(sizes),
        "bound": [learner.regret_bound(T) / T for T in sizes],
        "worlds": {world: _world(world, found, sizes, seeds, rows) for world in WORLDS},
    }


def _world(
    world: str, found: dict[Any, Any], sizes: Sequence[int], seeds: Sequence[int],
    rows: tuple[int, int],
) -> dict[str, Any]:  # fmt: skip
    test = judge(world, *rows)
    out: dict[str, Any] = {
        "best_loss": float(test.best.mean()),
        "bayes_excess": float((test.bayes - test.best).mean()),
        "methods": {},
    }
    for name in METHODS:
        curve: dict[str, list[Any]] = {"T": [], "mean": [], "error": [], "guarantee": []}
        for T in sizes:
            runs = [found[key] for seed in seeds if (key := (world, name, T, seed)) in found]
            if not runs:
                continue
            excess = [run["excess"] for run in runs]
            proven = [run["guarantee"] for run in runs]
            curve["T"].append(T)
            curve["mean"].append(float(np.mean(excess)))
            curve["error"].append(float(np.std(excess, ddof=1) / np.sqrt(len(runs))))
            curve["guarantee"].append(None if None in proven else float(np.mean(proven)))
        out["methods"][name] = curve
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = new_parser(__doc__, RESULTS)
    parser.add_argument("--quick", action="store_true", help="tiny samples, two seeds")
    parser.add_argument("--seeds", type=int, default=20, help="number of samples, at least 2")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: standard errors need two samples")
    sizes, seeds, rows, jobs = SIZES, options.seeds, (REFERENCE_ROWS, TEST_ROWS), options.jobs
    if options.quick:
        sizes, seeds, rows, jobs = (10, 20), 2, (300, 30), 1
    start = perf_counter()
    found = measure_all(sizes, range(seeds), rows, jobs)
    origin = provenance(
        "experiments.online_to_batch.run", arguments, seeds=range(seeds),
        sizes={"T": list(sizes), "d": D, "K": K, "B": B,
               "reference_rows": rows[0], "test_rows": rows[1]},
    )  # fmt: skip
    report.write(options.out, origin | {"wall_s": perf_counter() - start}, found)
    print((options.out / "online_to_batch.md").read_text())


if __name__ == "__main__":
    main()
