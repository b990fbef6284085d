"""How often a monitor raises an alarm, where nothing happens and where something does.

Run from the root of the repository:  python -m experiments.monitoring.run --data FOLDER
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..data import add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, write_json
from .detectors import ALPHA, DETECTORS, all_alarms
from .replay import QUICK, REPLAYS, replayed
from .report import draw_delays, draw_replay, table
from .streams import World, in_random_order, losses_of

RESULTS = Path(__file__).parent / "results"
N_ROWS, N_LONG = 10_000, 100_000
STILL = ((5, 2), (10, 3), (20, 5), (10, 10))  # d, K
REAL = {"electricity": 10_000, "weather": 10_000, "covtype": 5_000}  # rows, in random order
KINDS = ("abrupt", "gradual", "recurring", "noise", "little noise")
SHAPE = (10, 3)  # of streams that change
LEARNERS = ("auto", "folklore")

Group = tuple[str, str, int]  # name of the streams, learner, rows


def watch_world(learner: str, world: World, seed: int) -> dict[str, list[int]]:
    """Return everybody's alarms on a drawn stream."""
    return all_alarms(*losses_of(learner, *world.drawn(seed)))


def watch_shuffled(folder: Path, name: str, n_rows: int, seed: int) -> dict[str, list[int]]:
    """Return everybody's alarms on rows of a data set in random order."""
    return all_alarms(*losses_of("auto", *in_random_order(folder, name, n_rows, seed)))


def still(runs: dict[Any, dict[str, list[int]]]) -> list[dict[str, Any]]:
    """Count, for every group, the streams that had an alarm."""
    groups: dict[Group, list[dict[str, list[int]]]] = {}
    for (name, learner, rows, _), alarms in runs.items():
        groups.setdefault((name, learner, rows), []).append(alarms)
    return [
        {
            "name": name,
            "learner": learner,
            "rows": rows,
            "streams": len(found),
            "with_alarm": {one: sum(bool(alarms[one]) for alarms in found) for one in DETECTORS},
            "alarms": {one: sum(len(alarms[one]) for alarms in found) for one in DETECTORS},
        }
        for (name, learner, rows), found in groups.items()
    ]


def changes(runs: dict[Any, dict[str, list[int]]]) -> list[dict[str, Any]]:
    """Return, for every group, how soon the first change was found."""
    groups: dict[tuple[World, str], list[dict[str, list[int]]]] = {}
    for (_, learner, world, _), alarms in runs.items():
        groups.setdefault((world, learner), []).append(alarms)
    return [
        {
            "kind": world.kind,
            "learner": learner,
            "streams": len(found),
            "found": {
                one: _found(world.change, [alarms[one] for alarms in found]) for one in DETECTORS
            },
        }
        for (world, learner), found in groups.items()
    ]


def _found(change: int, alarms: Iterable[list[int]]) -> dict[str, Any]:
    """Return the delays of those who found it before as many rows had passed again."""
    alarms = list(alarms)
    after = [[row - change for row in rows if change < row <= 2 * change] for rows in alarms]
    return {
        "delays": sorted(rows[0] for rows in after if rows),
        "early": sum(bool(rows) and rows[0] <= change for rows in alarms),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--seeds", type=int, default=25, help="streams of each kind")
    parser.add_argument("--quick", action="store_true", help="a few short streams")
    options = parser.parse_args(arguments)
    quick, seeds = options.quick, range(2 if options.quick else options.seeds)
    n_rows, n_long = (800, 1600) if quick else (N_ROWS, N_LONG)
    names = [] if quick else found_in(options.data, [*REAL])
    replays = [one for one in REPLAYS if one.name in names] or ([QUICK] if quick else [])

    same: dict[Any, Any] = {}
    for d, K in STILL[:1] if quick else STILL:
        world = World("none", d, K, n_rows)
        for seed in seeds:
            key = f"drawn, d = {d}, K = {K}", "auto", n_rows, seed
            same[key] = watch_world, ("auto", world, seed)
    for seed in seeds:
        long = World("none", *STILL[0], n_long)
        key = f"drawn, d = {long.d}, K = {long.K}", "folklore", n_long, seed
        same[key] = watch_world, ("folklore", long, seed)
    for name in names:
        for seed in seeds:
            key = f"{name}, shuffled", "auto", REAL[name], seed
            same[key] = watch_shuffled, (options.data, name, REAL[name], seed)
    changed: dict[Any, Any] = {}
    for kind in KINDS[:1] if quick else KINDS:
        world = World(kind, *SHAPE, n_rows)
        for learner in LEARNERS:
            for seed in seeds:
                changed[kind, learner, world, seed] = watch_world, (learner, world, seed)
    real = {(one.title,): (replayed, (one, None if quick else options.data)) for one in replays}

    jobs = 1 if quick else options.jobs
    with progress() as bar:
        content: dict[str, Any] = {
            "provenance": provenance(
                "experiments.monitoring.run", arguments, seeds=seeds,
                sizes={"rows": n_rows, "long": n_long, "still": STILL, "changing": SHAPE,
                       "alpha": ALPHA},
                libraries=("river",),
            ),
            "still": still(call_all(jobs, bar, "still", same)),
            "changes": changes(call_all(jobs, bar, "changing", changed)),
            "replays": list(call_all(jobs, bar, "real", real).values()),
        }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "monitoring.json", content)
    (options.out / "monitoring.md").write_text(table(content))
    draw_delays(content["changes"], options.out / "delays.png")
    for replay in content["replays"]:
        draw_replay(replay, options.out)
    print((options.out / "monitoring.md").read_text())


if __name__ == "__main__":
    main()
