"""Decisions for rewards: `bandits.auto`, untuned, beside what people tune.

Run from the root of the repository:  python -m experiments.decisions.run --data FOLDER
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..data import add_folder, found_in
from ..options import new_parser
from ..pool import Call, Key, call_all, progress
from ..provenance import provenance
from . import peers, play, report
from .arenas import REAL, SYNTHETIC, Arena

RESULTS = Path(__file__).parent / "results"
ROUNDS, BOUND_ROUNDS = 5_000, 20_000
RULES = (("squarecb", "theory"), ("fastcb", "theory"), ("fastcb", 5.0))


def games(arenas: Sequence[Arena], seeds: Sequence[int], quick: bool) -> dict[Key, Call]:
    """Return every play by stream, who plays, setting and seed."""
    calls: dict[Key, Call] = {}
    for arena in arenas:
        for seed in seeds:
            names = ["auto", *play.EXPLORATIONS]
            if arena.name in REAL:
                names.append("reduction")
            for name in names:
                calls[arena.name, f"ours {name}", "", seed] = play.play, (arena, seed, name)
            for name, widths in peers.LINEAR.items():
                for width in widths[:1] if quick else widths:
                    calls[arena.name, name, f"{width:g}", seed] = (
                        peers.linear, (arena, seed, name, width)
                    )  # fmt: skip
            for name, settings in peers.VW.items():
                for words in settings[:1] if quick else settings:
                    calls[arena.name, f"vw {name}", words, seed] = peers.vw, (arena, seed, words)
    return calls


def bounds(seeds: Sequence[int], n_rounds: int) -> dict[Key, Call]:
    """Return what is proven of regret where it can be measured."""
    return {
        (name, contexts, f"{rule}, {strength}", seed): (
            play.bound, (Arena(name, n_rounds), seed, rule, strength, contexts)
        )
        for name in SYNTHETIC for contexts in play.CONTEXTS for rule, strength in RULES
        for seed in seeds
    }  # fmt: skip


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--quick", action="store_true", help="tiny streams, no data, one seed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    n_rounds, n_bound = (200, 200) if options.quick else (options.rounds, BOUND_ROUNDS)
    seeds = options.seeds[:1] if options.quick else options.seeds
    arenas = [Arena(name, n_rounds) for name in SYNTHETIC]
    if not options.quick:
        real = found_in(options.data, REAL)
        arenas = [Arena(name, n_rounds, options.data) for name in real] + arenas
    start = perf_counter()
    jobs = 1 if options.quick else options.jobs
    with progress() as bar:
        played = call_all(jobs, bar, "play", games(arenas, seeds, options.quick))
        proven: dict[Key, Any] = call_all(jobs, bar, "bound", bounds(seeds, n_bound))
    origin = provenance(
        "experiments.decisions.run", arguments, seeds=seeds,
        sizes={"rounds": n_rounds, "rounds of the bound": n_bound}, libraries=["vowpalwabbit"],
    )  # fmt: skip
    report.write(options.out, origin | {"wall_s": perf_counter() - start}, played, proven)
    print((options.out / "decisions.md").read_text())


if __name__ == "__main__":
    main()
