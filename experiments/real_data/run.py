"""Progressive log loss on ten data sets: folklearn untuned, its peers tuned in hindsight.

Run from the root of the repository:  python -m experiments.real_data.run --data ../shared/data
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.progress import Progress

from ..data import NAMES, SYNTHETIC, Source
from ..pool import call_all, progress, workers
from ..provenance import provenance
from . import play, report
from .grid import Tuned
from .summary import summarise

RESULTS = Path(__file__).parent / "results"
ROWS = 10_000
QUICK_NAMES, QUICK_ROWS = ("segment", "electricity"), 200


def tune(
    pool: Executor | None, bar: Progress, sources: list[Source], seeds: tuple[int, ...]
) -> dict[str, dict[play.Key, Tuned]]:
    """Tune every variant on every data set."""
    found = call_all(
        pool, bar, "tune",
        {(s.name, key): (play.tune_variant, (s, seeds, key))
         for s in sources for key in play.VARIANTS},
    )  # fmt: skip
    return {s.name: {key: found[s.name, key] for key in play.VARIANTS} for s in sources}


def measure(sources: list[Source], seeds: tuple[int, ...], jobs: int) -> dict[str, Any]:
    """Tune, confirm and play in `jobs` processes; then time everything, one after the other."""
    first = seeds[0]
    with progress() as bar:
        with workers(jobs) as pool:
            tuned = tune(pool, bar, sources, seeds)
            peers = {
                (s, family): (key, tuned[s.name][key].best)
                for s in sources
                for family, key in play.best_of_each_family(tuned[s.name]).items()
            }
            confirmed = call_all(
                pool, bar, "confirm",
                {(s.name, family, seed): (play.confirm, (s, seed, *peer))
                 for (s, family), peer in peers.items() for seed in s.seeds(seeds)},
            )  # fmt: skip
            losses = call_all(
                pool, bar, "folklearn",
                {(s.name, seed): (play.play_ours, (s, seed))
                 for s in sources for seed in s.seeds(seeds)[1:]},
            )  # fmt: skip
        times = call_all(
            None, bar, "time",
            {(s.name, make.__name__): (play.time_ours, (s, first, make))
             for s in sources for make in (play.ours, play.one_folklore)},
        )  # fmt: skip
        peer_times = call_all(
            None, bar, "time peers",
            {(s.name, family): (play.time_peer, (s, first, *peer))
             for (s, family), peer in peers.items()},
        )  # fmt: skip
    return {
        s.name: summarise(s, seeds, tuned[s.name], confirmed, losses, times, peer_times)
        for s in sources
    }


def sources_for(options: argparse.Namespace) -> list[Source]:
    """Return the data sets to play; those that are not there are skipped with a message."""
    if options.synthetic:
        return [Source(name, None, QUICK_ROWS) for name in SYNTHETIC]
    if not options.data.is_dir():
        print(f"skipped: there is no folder {options.data}", file=sys.stderr)
        return []
    rows = QUICK_ROWS if options.quick else None if options.full else options.rows
    names = options.datasets or (QUICK_NAMES if options.quick else NAMES)
    found = []
    for name in names:
        if (options.data / f"{name}.npz").is_file():
            found.append(Source(name, options.data, rows))
        else:
            print(f"skipped {name}: no {name}.npz in {options.data}", file=sys.stderr)
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), metavar="FOLDER",
                        help="where NAME.npz are")  # fmt: skip
    parser.add_argument("--datasets", nargs="+", choices=NAMES, metavar="NAME")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of each, after ordering")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="all rows (hours)")
    size.add_argument("--quick", action="store_true", help="two data sets, 200 rows, one seed")
    size.add_argument("--synthetic", action="store_true", help="the same without any data")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    tiny = options.quick or options.synthetic
    seeds = tuple(options.seeds[:1] if tiny else options.seeds)
    sources = sources_for(options)
    if not sources:
        print("no data, so nothing to do (--synthetic needs none)", file=sys.stderr)
        return
    start = perf_counter()
    found = measure(sources, seeds, 1 if tiny else options.jobs)
    origin = provenance(
        "experiments.real_data.run", arguments, seeds=seeds,
        sizes={name: {k: entry[k] for k in ("rows", "d", "K")} for name, entry in found.items()},
        libraries=("river", "vowpalwabbit"),
    )  # fmt: skip
    report.write(options.out, origin | {"wall_s": perf_counter() - start}, found)
    print((options.out / "real_data.md").read_text())


if __name__ == "__main__":
    main()
