"""How tight is the live certificate? Regret and bound on streams of every temper.

Run from the root of the repository:  python -m experiments.certificate.run --data FOLDER
The comparator and the streams are the slow ones of the test suite, so that the fast code
is not judged by itself.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from folklearn import Folklore
from tests.reference import streams
from tests.reference.hindsight import best_in_class

from ..data import NAMES, Source, add_folder, found_in
from ..options import new_parser
from ..pool import Call, Key, call_all, progress
from ..provenance import provenance, stated, write_json
from . import tightness

RESULTS = Path(__file__).parent / "results"
ROUNDS, FOLLOWED_ROUNDS, ROWS = 2_000, 4_000, 10_000
QUICK_ROUNDS = 80
STREAMS = {
    "stochastic": streams.stochastic,
    "separable": streams.separable,
    "pure noise": streams.pure_noise,
    "drifting": streams.drifting,
}
ADVERSARIAL = "adversarial"


def play(name: str, seed: int, T: int, d: int, K: int, B: float) -> dict[str, Any]:
    """Run one stream and compare with the best model of the class in hindsight."""
    model = Folklore(n_features=d, n_classes=K, B=B)
    X, y = STREAMS.get(name, streams.pure_noise)(seed, T, d, K)
    if name == ADVERSARIAL:
        y = streams.play_adversarial(model, X)
    else:
        model.run(X, y)
    W, best, gap = best_in_class(X, y, B, K)
    certificate = model.certificate()
    return {
        "stream": name,
        "K": K,
        "loss": certificate.loss,
        "best": best,
        "gap": gap,
        "regret": certificate.loss - best,
        "bound_best": model.certificate(W).regret_bound,
        "bound_class": certificate.regret_bound,
        "certified": certificate.best_linear_at_least,
    }


def trajectory(seed: int, T: int, d: int, K: int, B: float, points: int) -> dict[str, list[float]]:
    """Regret and certificate against the best model so far, on the adversarial stream."""
    model = Folklore(n_features=d, n_classes=K, B=B)
    X = streams.pure_noise(seed, T, d, K)[0]
    y = np.empty(T, dtype=int)
    marks = np.unique(np.geomspace(10, T, points).astype(int))
    out: dict[str, list[float]] = {"t": [], "regret": [], "bound_best": [], "bound_class": []}
    for t, x in enumerate(X, start=1):
        y[t - 1] = np.argmin(model.predict(x))
        model.update(x, y[t - 1])
        if t in marks:
            W, best, _ = best_in_class(X[:t], y[:t], B, K)
            out["t"].append(t)
            out["regret"].append(model.certificate().loss - best)
            out["bound_best"].append(model.certificate(W).regret_bound)
            out["bound_class"].append(model.certificate().regret_bound)
    return out


def plot(curves: dict[int, dict[str, list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(11, 3.6), constrained_layout=True)
    for axis, (K, curve) in zip(axes, curves.items(), strict=True):
        axis.plot(curve["t"], curve["bound_class"], "--", color="0.6", label="bound, whole class")
        axis.plot(curve["t"], curve["bound_best"], color="C1", label="bound, best model")
        axis.plot(curve["t"], curve["regret"], color="C0", label="regret")
        axis.set(xscale="log", xlabel="round", title=f"K = {K}", ylim=(0, None))
    axes[0].set_ylabel("nats")
    axes[0].legend()
    figure.suptitle(
        "Labels always the learner's least likely class: the certificate is nearly tight"
    )
    figure.savefig(path, dpi=130)


def table(rows: list[dict[str, Any]], T: int, d: int, B: float) -> str:
    lines = [
        f"`Folklore`, T = {T}, d = {d}, B = {B:g}; nats.",
        "",
        "| stream | K | loss | best model | regret | bound for it | ratio | bound for the class |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = f"{row['bound_best'] / row['regret']:.2f}" if row["regret"] > 0 else "regret < 0"
        lines.append(
            f"| {row['stream']} | {row['K']} | {row['loss']:.1f} | {row['best']:.1f} "
            f"| {row['regret']:.2f} | {row['bound_best']:.2f} | {ratio} "
            f"| {row['bound_class']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def followed(sources: list[Source], T: int, seed: int) -> dict[Key, Call]:
    """Return the calls that follow the floors along the synthetic streams and the data sets."""
    calls: dict[Key, Call] = {
        (name,): (tightness.synthetic, (name, T, seed)) for name in tightness.SYNTHETIC
    }
    return calls | {(source.name,): (tightness.real, (source, seed)) for source in sources}


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="tiny streams, no data")
    options = parser.parse_args(arguments)
    T, T_followed, d, B = ROUNDS, FOLLOWED_ROUNDS, 5, 10.0
    seed, jobs = options.seed, options.jobs
    sources: list[Source] = []
    if options.quick:
        T = T_followed = QUICK_ROUNDS
        jobs = 1
    else:
        sources = [Source(name, options.data, ROWS) for name in found_in(options.data, NAMES)]
    with progress() as bar:
        rows = call_all(
            jobs, bar, "streams",
            {(name, K): (play, (name, seed, T, d, K, B))
             for K in (2, 3, 5) for name in [*STREAMS, ADVERSARIAL]},
        )  # fmt: skip
        curves = call_all(
            jobs, bar, "curves", {(K,): (trajectory, (seed, T, d, K, B, 25)) for K in (2, 3, 5)}
        )
        floors = call_all(jobs, bar, "floors", followed(sources, T_followed, seed))
    origin = provenance(
        "experiments.certificate.run", arguments, seeds=[seed],
        sizes={"rounds": T, "d": d, "B": B, "K": [2, 3, 5], "followed rounds": T_followed}
        | {source.name: source.most_rows for source in sources},
    )  # fmt: skip
    content: dict[str, Any] = {
        "provenance": origin,
        "floors": {name: floor for (name,), floor in floors.items()},
        "rows": list(rows.values()),
        "curves": {K: curve for (K,), curve in curves.items()},
    }
    parts = [
        "# How tight is the live certificate?",
        f"{stated(origin)}, seed {seed}.",
        "## The floor under every linear model",
        tightness.table(content["floors"]),
        "## The bound on regret of FOLKLORE",
        table(content["rows"], T, d, B),
    ]
    options.out.mkdir(exist_ok=True)
    write_json(options.out / "certificate.json", content)
    (options.out / "certificate.md").write_text("\n\n".join(part.rstrip() for part in parts) + "\n")
    tightness.plot(content["floors"], options.out / "tightness.png")
    plot(content["curves"], options.out / "certificate.png")
    print((options.out / "certificate.md").read_text())


if __name__ == "__main__":
    main()
