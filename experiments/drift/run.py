"""A world that switches between two models: `auto` against the best sequence of its experts.

Run from the root of the repository:  python -m experiments.drift.run
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from folklearn import auto, synthetic

from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json
from ..version_0_1 import auto_of_version_0_1

RESULTS = Path(__file__).parent / "results"
B = 5.0  # row norm of the two models
SHAPES = ((5, 2), (10, 3), (20, 5))  # d, K
STRETCH, N_STRETCHES = 2_000, 8
CHUNKS = 8  # of a stretch, for the picture
LIMIT = 1.1  # times the loss of the best sequence


def switching(seed: int, d: int, K: int, stretch: int) -> tuple[Any, Any, float]:
    """Return rows whose labels come from one model, then from another one, and so on.

    Also the total loss of the two models themselves.
    """
    T = stretch * N_STRETCHES
    X = synthetic.contexts(seed, T, d=d)
    rng = np.random.default_rng([seed, d, K])
    models = rng.normal(size=(2, K, d))
    models *= B / np.linalg.norm(models, axis=2, keepdims=True)
    turn = np.arange(T) // stretch % 2
    Z = np.einsum("tkd,td->tk", models[turn], X)
    y = np.argmax(Z + rng.gumbel(size=Z.shape), axis=1)
    return X, y, float((np.logaddexp.reduce(Z, axis=1) - Z[np.arange(T), y]).sum())


def play(seed: int, d: int, K: int, stretch: int) -> dict[str, Any]:
    """Play one stream; losses are sums over chunks of a stretch, the experts' in rows."""
    X, y, least = switching(seed, d, K, stretch)
    sizes = {"n_features": d, "n_classes": K}
    together = auto(**sizes, retire=False)  # else the losses of those who went are lost
    learners = {"all kept": together, "auto": auto(**sizes), "0.1": auto_of_version_0_1(**sizes)}
    found: dict[str, list[float]] = {name: [] for name in learners}
    totals = [np.zeros(len(together.experts))]
    step = max(1, stretch // CHUNKS)
    for start in range(0, len(y), step):
        part = slice(start, start + step)
        for name, learner in learners.items():
            P = learner.run(X[part], y[part])
            found[name].append(float(-np.log(P[np.arange(len(P)), y[part]]).sum()))
        totals.append(np.array([expert.loss for expert in together.experts]))
    experts = np.diff(totals, axis=0)
    return {
        "d": d,
        "K": K,
        "seed": seed,
        "rounds": len(y),
        "step": step,
        "true_models": least / len(y),
        "losses": found,
        "names": [expert.name for expert in together.experts],
        "experts": experts.T.tolist(),
        **_compared(found, experts, stretch // step, len(y)),
    }


def _compared(
    found: dict[str, list[float]], experts: Any, per_stretch: int, T: int
) -> dict[str, Any]:
    """Return losses per round: of the learners, the best expert, and the best sequence of them.

    The sequence changes its expert when the world changes.
    """
    stretches = experts.reshape(N_STRETCHES, per_stretch, -1).sum(axis=1)
    sequence = float(stretches.min(axis=1).sum()) / T
    means = {name: sum(losses) / T for name, losses in found.items()}
    return {
        "per_round": means,
        "best_expert": float(stretches.sum(axis=0).min()) / T,
        "best_sequence": sequence,
        "sequence": stretches.argmin(axis=1).tolist(),
        "ratio": means["auto"] / sequence,
        "met": means["auto"] <= LIMIT * sequence,
    }


def table(origin: dict[str, Any], rows: list[dict[str, Any]], stretch: int) -> str:
    lines = [
        "# A world that switches",
        "",
        f"{stated(origin)}. Two linear models of row norm {B:g}, changing places every {stretch:,}",
        f"rounds, {N_STRETCHES} stretches; nats per round. *Best sequence*: the best expert of",
        "every stretch. *All kept*: `auto(retire=False)`, whose experts these are. *True",
        "models*: those that made the labels.",
        "",
        "| d, K | seed | `auto()` | all kept | 0.1 | best sequence | best expert | true models "
        "| auto / sequence | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        losses = row["per_round"]
        lines.append(
            f"| {row['d']}, {row['K']} | {row['seed']} | {losses['auto']:.4f} "
            f"| {losses['all kept']:.4f} | {losses['0.1']:.4f} | {row['best_sequence']:.4f} "
            f"| {row['best_expert']:.4f} | {row['true_models']:.4f} | {row['ratio']:.3f} "
            f"| {'met' if row['met'] else '**missed**'} |"
        )
    met = sum(row["met"] for row in rows)
    worst = max(row["ratio"] for row in rows)
    lines += ["", f"Within {LIMIT - 1:.0%} of the best sequence on {met} of {len(rows)} streams;"]
    lines += [f"the largest ratio is {worst:.3f}.", "", "![loss over time](drift.png)", ""]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    firsts = {(row["d"], row["K"]): row for row in reversed(rows)}
    size = (4.2 * len(firsts), 3.6)
    figure, axes = plt.subplots(
        1, len(firsts), figsize=size, constrained_layout=True, squeeze=False
    )
    for axis, ((d, K), row) in zip(axes[0], reversed(firsts.items()), strict=True):
        experts, step = np.array(row["experts"]), row["step"]
        t = step * (np.arange(experts.shape[1]) + 0.5)
        single = row["names"][int(experts.sum(axis=1).argmin())]
        axis.plot(t, experts[experts.sum(axis=1).argmin()] / step, color="0.7", label=single)
        axis.plot(t, np.array(row["losses"]["0.1"]) / step, color="C1", label="auto() of 0.1")
        axis.plot(t, np.array(row["losses"]["auto"]) / step, color="C0", label="auto()")
        axis.set(title=f"d = {d}, K = {K}", xlabel="round")
        axis.legend(fontsize=7)
    axes[0, 0].set_ylabel(f"nats per round, means of {rows[0]['step']} rounds")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true", help="one small stream, short stretches")
    options = parser.parse_args(arguments)
    stretch = 40 if options.quick else STRETCH
    shapes = SHAPES[:1] if options.quick else SHAPES
    seeds = options.seeds[:1] if options.quick else options.seeds
    calls = {(seed, d, K): (play, (seed, d, K, stretch)) for d, K in shapes for seed in seeds}
    with progress() as bar:
        jobs = 1 if options.quick else options.jobs
        rows = list(call_all(jobs, bar, "streams", calls).values())
    origin = provenance(
        "experiments.drift.run", arguments, seeds=seeds,
        sizes={"stretch": stretch, "stretches": N_STRETCHES, "shapes": shapes, "B": B},
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "drift.json", {"provenance": origin, "rows": rows})
    (options.out / "drift.md").write_text(table(origin, rows, stretch))
    plot(rows, options.out / "drift.png")
    print((options.out / "drift.md").read_text())


if __name__ == "__main__":
    main()
