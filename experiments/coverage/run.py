"""Do the intervals of `off_policy` hold? How often 95 % intervals cover the truth.

Run from the root of the repository:  python -m experiments.coverage.run
The worlds are those of the test suite: finite populations of contexts, so that the value of every
policy is known exactly.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from folklearn import interact, off_policy
from folklearn.baselines import Banditron
from folklearn.evaluate.off_policy import Estimate, greedy
from tests.reference.decisions import (
    World,
    best_constant,
    binary,
    graded,
    judged,
    judged_learned,
    world,
)

from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
LOGS, ROUNDS = 1000, 500
QUICK_LOGS, QUICK_ROUNDS = 5, 40
LOGS_OF_A_WORLD = 10
AIM = 0.93, 0.98
RARE = 0.05  # share of the decisions that are made at random where propensities are small

Judge = Callable[[np.random.Generator, World, int], tuple[Estimate, float]]


def judged_agent(rng: np.random.Generator, own: World, T: int) -> tuple[Estimate, float]:
    """The log of an agent that learns as it goes, judged like any other."""
    rows = rng.integers(len(own.contexts), size=T)
    X, M = np.array(own.contexts)[rows], np.array(own.means)[rows]
    agent = Banditron(n_features=X.shape[1], n_classes=M.shape[1], exploration=0.3, seed=rng)
    log = interact(agent, X, binary(rng, M))
    return off_policy(log, np.array(own.target)[rows]), own.value(own.target)


def _cases() -> dict[str, tuple[dict[str, Any], Judge]]:
    contexts: dict[str, Any] = {"features": False}
    features: dict[str, Any] = {"features": True}
    cases: dict[str, tuple[dict[str, Any], Judge]] = {}
    for method in ("dr", "ips"):
        judge = partial(judged, without_model=method == "ips")
        cases[f"right or wrong, {method}"] = contexts, partial(judge, draw=binary)
        cases[f"rewards, {method}"] = contexts, partial(judge, draw=graded)
        cases[f"features of actions, {method}"] = features, partial(judge, draw=graded)
        rare = contexts | {"least": RARE}
        cases[f"small propensities, {method}"] = rare, partial(judge, draw=graded)
    cases["an agent that learns, dr"] = contexts, judged_agent
    learned = partial(judged_learned, draw=graded)
    cases["learned: best constant, dr"] = contexts, partial(learned, learn=best_constant)
    cases["learned: greedy, dr"] = contexts, partial(learned, learn=greedy)
    cases["learned: greedy, features of actions, dr"] = features, partial(learned, learn=greedy)
    return cases


CASES = _cases()


def count(name: str, seed: int, n_logs: int, T: int) -> dict[str, float]:
    """Return how often the intervals of one case cover the truth, and how long they are."""
    words, judge = CASES[name]
    rng = np.random.default_rng([seed, list(CASES).index(name)])
    own, found = world(rng, **words), []
    for log in range(n_logs):
        if log % LOGS_OF_A_WORLD == 0:
            own = world(rng, **words)
        found.append(judge(rng, own, T))
    below = sum(truth < estimate.low for estimate, truth in found)
    above = sum(truth > estimate.high for estimate, truth in found)
    return {
        "logs": n_logs,
        "coverage": 1.0 - (below + above) / n_logs,
        "truth_below": below,
        "truth_above": above,
        "half_width": float(np.mean([0.5 * (one.high - one.low) for one, _ in found])),
        "bias": float(np.mean([one.value - truth for one, truth in found])),
    }


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    lines = [
        "| log and method | coverage | truth below | truth above | half width | mean error |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['coverage']:.1%} | {row['truth_below']} | {row['truth_above']} "
        f"| {row['half_width']:.4f} | {row['bias']:+.4f} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def plot(rows: Mapping[str, Mapping[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 0.3 * len(rows) + 1), constrained_layout=True)
    names = list(rows)[::-1]
    shares = np.array([rows[name]["coverage"] for name in names])
    n_logs = np.array([rows[name]["logs"] for name in names])
    errors = 1.96 * np.sqrt(shares * (1.0 - shares) / n_logs)
    axis.axvspan(*AIM, color="0.9")
    axis.axvline(0.95, color="0.6", linewidth=1)
    axis.errorbar(shares, range(len(names)), xerr=errors, fmt="o", markersize=4)
    axis.set_yticks(range(len(names)), names)
    axis.set(xlabel="share of the intervals that cover the truth", xlim=(0.88, 1.0))
    figure.savefig(path, dpi=130)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=int, default=LOGS, help="replications of each case")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="decisions of a log")
    parser.add_argument("--quick", action="store_true", help="a few short logs")
    options = parser.parse_args(arguments)
    n_logs, T = options.logs, options.rounds
    if options.quick:
        n_logs, T = QUICK_LOGS, QUICK_ROUNDS
    origin = provenance(
        "experiments.coverage.run", arguments, seeds=[options.seed],
        sizes={"logs": n_logs, "rounds": T},
    )  # fmt: skip
    calls = {(name,): (count, (name, options.seed, n_logs, T)) for name in CASES}
    jobs = 1 if options.quick else options.jobs
    with progress() as bar:
        found = call_all(jobs, bar, "cases", calls)
    rows = {name: found[name,] for (name,) in calls}
    outside = [name for name, row in rows.items() if not AIM[0] <= row["coverage"] <= AIM[1]]
    verdict = f"outside: {', '.join(outside)}" if outside else "all of them"
    parts = [
        "# Do the intervals of off_policy hold?",
        f"{stated(origin)}, seed {options.seed}. {n_logs} logs of {T} decisions for each line, "
        f"intervals at 95 %; between {AIM[0]:.0%} and {AIM[1]:.0%}: {verdict}.",
        table(rows),
    ]
    options.out.mkdir(exist_ok=True)
    write_json(options.out / "coverage.json", {"provenance": origin, "cases": rows})
    (options.out / "coverage.md").write_text("\n\n".join(parts) + "\n")
    plot(rows, options.out / "coverage.png")
    print((options.out / "coverage.md").read_text())


if __name__ == "__main__":
    main()
