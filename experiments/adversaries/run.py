"""Hostile streams: regret of `auto` beside that of `auto` in version 0.1.

Run from the root of the repository:  python -m experiments.adversaries.run
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from folklearn import auto, best_in_class, synthetic
from folklearn.learners.base import Learner

from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json
from ..version_0_1 import auto_of_version_0_1

RESULTS = Path(__file__).parent / "results"
B, D = 10.0, 5
CLASSES = (2, 3, 5)
ROUNDS = 4_000
NOW, BEFORE = "auto", "0.1"
LEARNERS: dict[str, Callable[..., Learner]] = {NOW: auto, BEFORE: auto_of_version_0_1}
ADVERSARIAL, ALTERNATING = "adversarial", "adversarial, one context"
OBLIVIOUS = ("pure_noise", "rare_flip", "separable", "hard_for_proper")
STREAMS = (ADVERSARIAL, ALTERNATING, *OBLIVIOUS)


def play(stream: str, K: int, T: int, seed: int, name: str) -> dict[str, float]:
    """Play one stream and return loss and regret, in nats.

    Where labels are chosen against the learner, each learner has an adversary of its own.
    """
    learner = LEARNERS[name](n_features=D, n_classes=K)
    if stream in OBLIVIOUS:
        X, y = getattr(synthetic, stream)(seed, T, d=D, K=K)
        P = learner.run(X, y)
        loss = float(-np.log(P[np.arange(T), y]).sum())
    else:
        X = synthetic.contexts(seed, T, d=D)
        if stream == ALTERNATING:
            X = np.tile(X[:1] / np.linalg.norm(X[0]), (T, 1)) * (1.0 - 1e-12)
        loss, y = _against(learner, X)
    best = best_in_class(X, y, B=B, n_classes=K)
    return {"loss": loss, "best": best.loss, "regret": loss - best.loss}


def _against(learner: Learner, X: Any) -> tuple[float, Any]:
    """Give each label to the class that the learner holds least likely."""
    y, loss = np.empty(len(X), dtype=np.int64), 0.0
    for t, x in enumerate(X):
        y[t] = np.argmin(learner.predict(x))
        loss += learner.update(x, int(y[t]))
    return loss, y


def summarise(found: dict[Any, dict[str, float]], T: int) -> list[dict[str, Any]]:
    """Return a row for each stream and K: regrets by seed, and their means."""
    rows = []
    for stream, K in dict.fromkeys(key[:2] for key in found):
        regrets = {
            name: [
                run["regret"]
                for key, run in found.items()
                if key[:2] + key[3:] == (stream, K, name)
            ]
            for name in LEARNERS
        }
        means = {name: float(np.mean(values)) for name, values in regrets.items()}
        rows.append(
            {
                "stream": stream, "K": K, "rounds": T, "regrets": regrets, "means": means,
                "met": means[NOW] <= means[BEFORE],
            }
        )  # fmt: skip
    return rows


def table(origin: dict[str, Any], rows: list[dict[str, Any]], T: int) -> str:
    lines = [
        "# Hostile streams",
        "",
        f"{stated(origin)}. T = {T:,}, d = {D}; regret in nats against the best linear model of",
        f"row norm {B:g}, mean over the seeds [least, largest].",
        "",
        "| stream | K | `auto()` | `auto()` of 0.1 | difference | no worse |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{row['means'][name]:.1f} [{min(values):.1f}, {max(values):.1f}]"
            for name, values in row["regrets"].items()
        ]
        change = row["means"][NOW] - row["means"][BEFORE]
        lines.append(
            f"| {row['stream'].replace('_', ' ')} | {row['K']} | {' | '.join(cells)} "
            f"| {change:+.1f} | {'met' if row['met'] else '**missed**'} |"
        )
    met = sum(row["met"] for row in rows)
    return "\n".join([*lines, "", f"No worse than 0.1 on {met} of {len(rows)}.", ""])


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 1.2 + 0.32 * len(rows)), constrained_layout=True)
    places = np.arange(len(rows))
    for name, shift, colour in ((BEFORE, -0.18, "C1"), (NOW, 0.18, "C0")):
        label = "auto()" if name == NOW else "auto() of 0.1"
        widths = [row["means"][name] for row in rows]
        axis.barh(places + shift, widths, 0.34, color=colour, label=label)
    names = [f"{row['stream'].replace('_', ' ')}, K = {row['K']}" for row in rows]
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    axis.set(xscale="symlog", xlabel="regret, nats (less is better)")
    axis.axvline(0.0, color="0.3", lw=0.8)
    axis.legend()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true", help="60 rounds, two classes, one seed")
    options = parser.parse_args(arguments)
    T, classes, seeds, jobs = options.rounds, CLASSES, options.seeds, options.jobs
    if options.quick:
        T, classes, seeds, jobs = 60, CLASSES[:1], seeds[:1], 1
    with progress() as bar:
        found = call_all(
            jobs, bar, "play",
            {(stream, K, seed, name): (play, (stream, K, T, seed, name))
             for stream in STREAMS for K in classes for seed in seeds for name in LEARNERS},
        )  # fmt: skip
    rows = summarise(found, T)
    origin = provenance(
        "experiments.adversaries.run", arguments, seeds=seeds,
        sizes={"rounds": T, "d": D, "K": classes, "B": B},
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "adversaries.json", {"provenance": origin, "rows": rows})
    (options.out / "adversaries.md").write_text(table(origin, rows, T))
    plot(rows, options.out / "adversaries.png")
    print((options.out / "adversaries.md").read_text())


if __name__ == "__main__":
    main()
