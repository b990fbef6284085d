"""Can a live lower bound do without a norm? The slow twin of the theorem on the ten streams.

Run from the root of the repository:  python -m experiments.unconstrained.run --data FOLDER
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from folklearn import Model
from tests.reference.unconstrained import LiveBound, losses_at, weighted_gram

from ..data import IN_ORDER, NAMES, Source, _raw, add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
HEAD_ROWS = 2048  # set the scale of every column
CONSTANT_PENALTY = 1e-4
N_WAITING, RADIUS = 4000, 64.0
SIZES = (2_000, 20_000, None)  # rows of a stream; None: all
ROWS_AT_A_TIME = 16_384


def standardise_once(source: Source, seed: int) -> tuple[Any, Any, int]:
    """Return X with a constant, y and K; numbers are scaled by the first rows, indicators not."""
    X, y, K = _raw(source)
    if source.name not in IN_ORDER:
        order = np.random.default_rng(seed).permutation(len(X))
        X, y = X[order], y[order]
    X, y = X[: source.most_rows].astype(float), y[: source.most_rows]
    head = X[:HEAD_ROWS]
    mean, deviation = head.mean(axis=0), head.std(axis=0)
    for column, values in enumerate(head.T):
        if len(np.unique(values)) <= 2:
            mean[column], deviation[column] = 0.0, 1.0
    return np.c_[(X - mean) / deviation, np.ones(len(X))], y, K


def penalties(d: int, K: int) -> Any:
    """Return those of scikit-learn's C = 1, and a small one of the constant."""
    tau = np.full(d, 1.0 if K > 2 else 2.0)
    tau[-1] = CONSTANT_PENALTY
    return tau


def fit(X: Any, Y: Any, tau: Any) -> tuple[float, float]:
    """Return the least penalised loss and the loss of that model, by passes over all rows."""
    n, K = Y.shape[1] * X.shape[1], Y.shape[1]
    penalty, W, weight = np.tile(tau, K), np.zeros(n), np.ones(len(X))

    def objective(W: Any) -> tuple[float, float, Any, Any]:
        loss, gradient, P = losses_at(W, X, Y, weight)
        return loss + 0.5 * float(penalty @ W**2), loss, gradient + penalty * W, P

    value, loss, gradient, P = objective(W)
    for _ in range(60):
        M = np.diag(penalty)
        for start in range(0, len(X), ROWS_AT_A_TIME):
            some = slice(start, start + ROWS_AT_A_TIME)
            M = M + weighted_gram(X[some], P[some, :, None] * (np.eye(K) - P[some, None, :]))
        step = -np.linalg.solve(M, gradient)
        decrease = -float(gradient @ step)
        if decrease <= 1e-9 * value:
            break
        length, tried = 1.0, objective(W + step)
        while tried[0] > value - 1e-4 * length * decrease and length > 1e-9:
            length *= 0.5
            tried = objective(W + length * step)
        W = W + length * step
        value, loss, gradient, P = tried
    return value, loss


def measure(source: Source, seed: int) -> dict[str, Any]:
    """Return the bounds of one stream and the truth, in nats a row."""
    X, y, K = standardise_once(source, seed)
    T, Y = len(X), np.eye(K)[y]
    tau = penalties(X.shape[1], K)
    with threadpool_limits(1):
        began = time.process_time()
        live = LiveBound(K, tau, n_waiting=N_WAITING, radius=RADIUS)
        live.extend(X, Y)
        bound = live.bound()
        seconds = time.process_time() - began
        truth, loss = fit(X, Y, tau)
        model = Model()
        model.learn_many(X[:, :-1], y.tolist())
        certificate = model.certificate()
    return {
        "rows": T,
        "weights": X.shape[1] * K,
        "bound": bound["bound"] / T,
        "truth": truth / T,
        "loss_of_truth": loss / T,
        "s": bound["s"],
        "needed": bound["needed"],
        "radius": bound["radius"],
        "twin_seconds_per_1000_rows": 1000.0 * seconds / T,
        "loss_of_auto": model.metrics.average_loss,
        "norm_bound": certificate.best_linear_at_least / T if certificate.valid else None,
    }


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of all streams and sizes."""
    lines = [
        "| stream | rows | weights | penalised optimum | live bound | ratio | s | step needed "
        "| radius | loss of that optimum | bound of norm B |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, sizes in results.items():
        for row in sizes:
            norm = "none" if row["norm_bound"] is None else f"{row['norm_bound']:.4f}"
            lines.append(
                f"| {name} | {row['rows']:,} | {row['weights']} | {row['truth']:.4f} "
                f"| {row['bound']:.4f} | {row['bound'] / row['truth']:.3f} | {row['s']:.2f} "
                f"| {row['needed']:.0f} | {row['radius']:.0f} | {row['loss_of_truth']:.4f} "
                f"| {norm} |"
            )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small synthetic stream, no data")
    options = parser.parse_args(arguments)
    if options.quick:
        sources = [Source("synthetic-3", None, 5_000)]
    else:
        names = found_in(options.data, NAMES)
        sources = [Source(name, options.data, most) for name in names for most in SIZES]
    with progress() as bar:
        calls = {(one.name, one.most_rows): (measure, (one, options.seed)) for one in sources}
        measured = call_all(1 if options.quick else options.jobs, bar, "streams", calls)
    results: dict[str, list[dict[str, Any]]] = {}
    for (name, _), row in measured.items():
        sizes = results.setdefault(name, [])
        if row["rows"] not in [earlier["rows"] for earlier in sizes]:
            sizes.append(row)
    origin = provenance(
        "experiments.unconstrained.run", arguments, seeds=[options.seed],
        sizes={"waiting rows": N_WAITING, "radius": RADIUS, "head": HEAD_ROWS},
    )  # fmt: skip
    options.out.mkdir(exist_ok=True)
    write_json(options.out / "unconstrained.json", {"provenance": origin, "streams": results})
    text = f"# A live bound without a norm\n\n{stated(origin)}.\n\n{table(results)}\n"
    (options.out / "unconstrained.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
