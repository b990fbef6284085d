"""Progressive log loss on ten data sets: folklearn untuned, its peers tuned in hindsight.

Run from the root of the repository:  python -m experiments.real_data.run --data FOLDER
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.progress import Progress

from ..data import NAMES, SYNTHETIC, Source, add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance
from . import earlier, play, report
from .grid import Tuned
from .peers import RIVER
from .summary import ROWS, peers_of, summarise

RESULTS = Path(__file__).parent / "results"
QUICK_NAMES, QUICK_ROWS = ("segment", "electricity"), 200


def tune(
    jobs: int, bar: Progress, sources: list[Source], seeds: tuple[int, ...]
) -> dict[str, dict[play.Key, Tuned]]:
    """Tune every variant on every data set."""
    found = call_all(
        jobs, bar, "tune",
        {(s.name, key): (play.tune_variant, (s, seeds, key))
         for s in sources for key in play.VARIANTS},
    )  # fmt: skip
    return {s.name: {key: found[s.name, key] for key in play.VARIANTS} for s in sources}


def tuned_now(
    jobs: int, bar: Progress, sources: list[Source], seeds: tuple[int, ...]
) -> dict[str, earlier.Peers]:
    """Tune the peers of every data set, and play the winners with their own libraries."""
    tuned = tune(jobs, bar, sources, seeds)
    winners = {s.name: play.best_of_each_family(tuned[s.name]) for s in sources}
    confirmed = call_all(
        jobs, bar, "confirm",
        {(s.name, family, seed): (play.confirm, (s, seed, key, tuned[s.name][key].best))
         for s in sources for family, key in winners[s.name].items()
         for seed in s.seeds(seeds)},
    )  # fmt: skip
    return {
        s.name: peers_of(s, s.seeds(seeds), winners[s.name], tuned[s.name], confirmed)
        for s in sources
    }


def tuned_before(
    jobs: int, bar: Progress, file: Path, sources: list[Source], seeds: tuple[int, ...]
) -> dict[str, earlier.Peers]:
    """Take the peers from a results file; each plays its streams again and must lose the same."""
    peers = {s.name: earlier.read(file, s, seeds) for s in sources}
    again = call_all(
        jobs, bar, "check",
        {(s.name, family, seed): (play.replay, (s, seed, *choice))
         for s in sources for family, choice in peers[s.name].chosen.items()
         for seed in s.seeds(seeds)},
    )  # fmt: skip
    for s in sources:
        earlier.refuse_unless_same(s, s.seeds(seeds), peers[s.name], again)
    return peers


def measure(
    sources: list[Source], seeds: tuple[int, ...], jobs: int, file: Path | None
) -> dict[str, Any]:
    """Tune, confirm and play in `jobs` processes; then time everything, one after the other."""
    with progress() as bar:
        if file is None:
            peers = tuned_now(jobs, bar, sources, seeds)
        else:
            peers = tuned_before(jobs, bar, file, sources, seeds)
        losses = call_all(
            jobs, bar, "folklearn",
            {(s.name, seed): (play.play_ours, (s, seed))
             for s in sources for seed in s.seeds(seeds)[1:]},
        )  # fmt: skip
        proofs = call_all(
            jobs, bar, "certify",
            {(s.name,): (play.certify_ours, (s, seeds[0])) for s in sources},
        )  # fmt: skip
        times = call_all(
            1, bar, "time",
            {(s.name, make.__name__): (play.time_ours, (s, seeds[0], make))
             for s in sources for make in (play.ours, play.one_folklore)},
        )  # fmt: skip
        peer_times = call_all(
            1, bar, "time peers",
            {(s.name, family): (play.time_peer, (s, seeds[0], *choice))
             for s in sources for family, choice in peers[s.name].chosen.items()},
        )  # fmt: skip
        events = call_all(
            1, bar, "per event",
            {(s.name,): (play.time_events, (s, seeds[0], *peers[s.name].chosen[RIVER]))
             for s in sources},
        )  # fmt: skip
    return {
        s.name: summarise(
            s, seeds, peers[s.name], losses, proofs[s.name,], times, peer_times, events[s.name,]
        )
        for s in sources
    }


def sources_for(options: argparse.Namespace) -> list[Source]:
    """Return the data sets to play; those that are not there are skipped with a message."""
    if options.synthetic:
        return [Source(name, None, QUICK_ROWS) for name in SYNTHETIC]
    rows = QUICK_ROWS if options.quick else None if options.full else options.rows
    names = options.datasets or (QUICK_NAMES if options.quick else NAMES)
    return [Source(name, options.data, rows) for name in found_in(options.data, names)]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--datasets", nargs="+", choices=NAMES, metavar="NAME")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of each, after ordering")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--peers", type=Path, metavar="FILE",
                        help="an earlier real_data.json, whose tuned peers are used")  # fmt: skip
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
    file = options.peers
    if file is not None:
        origin_of_peers = earlier.origin(file)  # before anything takes long
    found = measure(sources, seeds, 1 if tiny else options.jobs, file)
    origin = provenance(
        "experiments.real_data.run", arguments, seeds=seeds,
        sizes={name: {k: entry[k] for k in ("rows", "d", "K")} for name, entry in found.items()},
        libraries=("river", "vowpalwabbit"),
    )  # fmt: skip
    origin["wall_s"] = perf_counter() - start
    if file is not None:
        origin["peers"] = origin_of_peers
    report.write(options.out, origin, found)
    print((options.out / "real_data.md").read_text())


if __name__ == "__main__":
    main()
