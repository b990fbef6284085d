"""Online boosting of Hoeffding trees: accuracy and log loss against the number of trees.

Run from the root of the repository:  python -m experiments.boosting.run --data FOLDER
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..data import Source, add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance
from . import play, report, timing
from .plan import METHODS, MOST_ROWS, OFFSET, SETS, TIMED, runs
from .summary import summarise

RESULTS = Path(__file__).parent / "results"
TIMED_ROWS = 1_000
CLASSES, CLASS_ROUNDS = tuple(2**e for e in range(1, 11)), 100
QUICK_SETS, QUICK_ROWS = ("synthetic-2", "synthetic-3"), 20


def sources_for(options: argparse.Namespace) -> list[Source]:
    """Return the streams; data sets that are not there are skipped with a message."""
    if options.quick:
        return [Source(name, None, QUICK_ROWS) for name in QUICK_SETS]
    found = [
        Source(name, options.data, options.rows or MOST_ROWS.get(name))
        for name in found_in(options.data, options.sets)
    ]
    if not found:
        sys.exit("nothing to play: --data names the folder of the data sets")
    return found


def measure(
    sources: list[Source], seeds: tuple[int, ...], methods: list[str], jobs: int, quick: bool
) -> dict[str, Any]:
    """Play everything in `jobs` processes; then take times, one after the other."""
    timed = [Source(s.name, s.folder, min(s.most_rows or TIMED_ROWS, TIMED_ROWS))
             for s in sources if quick or s.name in TIMED]  # fmt: skip
    classes, rounds = ((2, 4, 8, 16), 2) if quick else (CLASSES, CLASS_ROUNDS)
    with progress() as bar:
        played = call_all(
            jobs, bar, "play",
            {(source.name, name, n, seed): (play.play, (name, source, n, seed))
             for source in sources for seed in seeds for name in methods for n in runs(name)},
        )  # fmt: skip
        split = call_all(
            1, bar, "split",
            {(source.name,): (timing.split, (source, seeds[0])) for source in timed},
        )  # fmt: skip
        growth = call_all(
            1, bar, "classes",
            {("K", K): (timing.against_classes, (K, rounds, seeds[0])) for K in classes},
        )  # fmt: skip
    return summarise([source.name for source in sources], seeds, methods, played, split, growth)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="NAME")
    parser.add_argument("--rows", type=int, help="at most, of each data set")
    parser.add_argument("--offset", action="store_true", help=f"also {OFFSET}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--quick", action="store_true", help="tiny streams, no data, one seed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    seeds = tuple(options.seeds[:1] if options.quick else options.seeds)
    sources = sources_for(options)
    start = perf_counter()
    methods = [name for name in METHODS if name != OFFSET or options.offset]
    jobs = 1 if options.quick else options.jobs
    found = measure(sources, seeds, methods, jobs, options.quick)
    origin = provenance(
        "experiments.boosting.run", arguments, seeds=seeds, libraries=("river",),
        sizes={source.name: {"most_rows": source.most_rows} for source in sources},
    )  # fmt: skip
    report.write(options.out, origin | {"wall_s": perf_counter() - start}, found)
    print((options.out / "boosting.md").read_text())


if __name__ == "__main__":
    main()
