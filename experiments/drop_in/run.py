"""Default classifier against scikit-learn's on held-out rows; the price of undeclared classes.

Run from the root of the repository:  python -m experiments.drop_in.run --data FOLDER
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from ..data import NAMES, add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance
from . import report
from .measure import ARRIVALS, BUNDLED, Source, held_out, late_classes
from .methods import METHODS, SEEDED, SGD_SEEDS
from .summary import summarise

RESULTS = Path(__file__).parent / "results"
ROWS, ROUNDS = 20_000, 5_000
LATE = ("pendigits", "satimage", "segment")
LATE_SEEDS = range(3)
LONGEST = ("letter", "covtype", "adult", "digits")  # begun first


def sources_for(options: argparse.Namespace) -> tuple[list[Source], list[Source]]:
    """Return data sets, and streams; say which are not there."""
    if options.quick:
        return [Source(name, None, 150) for name in BUNDLED], [Source("wine", None, 100)]
    there = found_in(options.data, dict.fromkeys(NAMES))
    if not there:
        sys.exit("nothing to play: --data names the folder of the data sets")
    return (
        [Source(name, options.data, ROWS) for name in NAMES if name in there],
        [Source(name, options.data, ROUNDS) for name in LATE if name in there],
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--split", type=int, default=0, metavar="SEED",
                        help="of the split into training and test rows")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="bundled data, tiny")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    sources, streams = sources_for(options)
    start = perf_counter()
    slow_first = sorted(sources, key=lambda source: source.name not in LONGEST)
    jobs = 1 if options.quick else options.jobs
    with progress() as bar:
        fits = call_all(
            jobs, bar, "held out",
            {(source.name, method, seed): (held_out, (source, method, options.split, seed))
             for method in METHODS for source in slow_first
             for seed in (SGD_SEEDS if method in SEEDED else (0,))},
        )  # fmt: skip
        played = call_all(
            jobs, bar, "late",
            {(f"{source.name}, {arrival}", seed): (late_classes, (source, arrival, seed))
             for arrival in ARRIVALS for source in streams for seed in LATE_SEEDS},
        )  # fmt: skip
    in_order = {key: fits[key] for source in sources for key in fits if key[0] == source.name}
    found = summarise(in_order, played)
    origin = provenance(
        "experiments.drop_in.run", arguments, seeds=list(SGD_SEEDS),
        sizes={name: entry["sizes"] for name, entry in found["sets"].items()}
        | {"rounds of the streams": {source.name: source.most_rows for source in streams}},
    )  # fmt: skip
    origin |= {"split_seed": options.split, "wall_s": perf_counter() - start}
    report.write(options.out, origin, found)
    print((options.out / "drop_in.md").read_text())


if __name__ == "__main__":
    main()
