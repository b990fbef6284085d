"""Mistakes under bandit feedback: the paper's reduction and everything it is compared with.

Run from the root of the repository:  python -m experiments.bandit.run --data FOLDER
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..data import add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance
from . import play, report
from .plan import AGENTS, DEAR, REAL, SYNTHETIC, Arena, explorations
from .summary import summarise

RESULTS = Path(__file__).parent / "results"
ROUNDS, REAL_ROUNDS = 50_000, 10_000
BOUND_ROUNDS, BOUND_SEEDS = 20_000, range(10)
TIMED = Arena("SynSep", 2_000, d=40)
TIMED_EXPLORATION = 2.0**-5
VARIANTS = (("sample", "explored"), ("randomised", "explored"), ("randomised", "correct"))


def arenas_for(options: argparse.Namespace) -> list[Arena]:
    """Return the streams; data sets that are not there are skipped with a message."""
    if options.quick:
        return [Arena(name, 300, d=40, K=3) for name in SYNTHETIC]
    found = [Arena(name, options.rounds) for name in SYNTHETIC]
    real = found_in(options.data, REAL)
    return found + [Arena(name, REAL_ROUNDS, options.data) for name in real]


def measure(arenas: list[Arena], seeds: tuple[int, ...], jobs: int, quick: bool) -> dict[str, Any]:
    """Play everything in `jobs` processes; then time the rounds, one after the other."""
    T, bound_seeds = (400, range(2)) if quick else (BOUND_ROUNDS, BOUND_SEEDS)
    timed = Arena("SynSep", 60, d=40, K=3) if quick else TIMED
    with progress() as bar:
        played = call_all(
            jobs, bar, "play",
            {(arena.name, name, exploration, seed): (
                play.play, (name, arena, exploration, seed))
             for arena in arenas for seed in seeds for name in AGENTS
             for exploration in explorations(name, arena)},
        )  # fmt: skip
        bound = call_all(
            jobs, bar, "bound",
            {(*variant, seed): (play.check_bound, (T, seed, *variant))
             for variant in VARIANTS for seed in bound_seeds},
        )  # fmt: skip
        times = call_all(
            1, bar, "time",
            {(name, seed): (play.time_round, (name, timed, TIMED_EXPLORATION, seed))
             for name in AGENTS | DEAR for seed in seeds[:3]},
        )  # fmt: skip
    return summarise(arenas, seeds, played, bound, times)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of SynSep and SynNonSep")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="tiny streams, no data, one seed")
    size.add_argument("--million", type=float, metavar="EXPLORATION",
                      help="only FOLKLORE in the reduction, 10^6 rounds of SynSep")  # fmt: skip
    return parser.parse_args(arguments)


def play_million(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    T = 1_000_000
    with progress() as bar:
        task = bar.add_task("million", total=T)
        found = play.million(
            T, options.million, options.seeds[0], lambda done: bar.update(task, completed=done)
        )
    origin = provenance(
        "experiments.bandit.run", arguments, seeds=options.seeds[:1], sizes={"rounds": T}
    )
    report.write_million(options.out / "million", origin, found)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    if options.million is not None:
        play_million(options, arguments)
        return
    seeds = tuple(options.seeds[:1] if options.quick else options.seeds)
    arenas = arenas_for(options)
    start = perf_counter()
    found = measure(arenas, seeds, 1 if options.quick else options.jobs, options.quick)
    origin = provenance(
        "experiments.bandit.run", arguments, seeds=seeds,
        sizes={arena.name: {"rounds": arena.rounds} for arena in arenas},
    )  # fmt: skip
    report.write(options.out, origin | {"wall_s": perf_counter() - start}, found)
    print((options.out / "bandit.md").read_text())


if __name__ == "__main__":
    main()
