"""How near to the truth is the live bound about every linear model, and what does it cost?

Run from the root of the repository:  python -m experiments.unconstrained.run --data FOLDER
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from folklearn import Evidence, auto
from folklearn.evaluate import logistic_regression

from ..data import IN_ORDER, NAMES, Source, _raw, add_folder, found_in
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
HEAD_ROWS = 2048  # set the scale of every column
SIZES = (2_000, 20_000, None)  # rows of a stream; None: all
BLOCK_ROWS = 1024  # that come at a time
WARM_UP_ROWS = 100  # before a clock runs


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


def microseconds_a_row(add: Any, X: Any, y: Any) -> float:
    """Return the CPU time of all rows, a block at a time, over their number."""
    began = time.process_time()
    for start in range(0, len(X), BLOCK_ROWS):
        add(X[start : start + BLOCK_ROWS], y[start : start + BLOCK_ROWS])
    return 1e6 * (time.process_time() - began) / len(X)


def measure(source: Source, seed: int) -> dict[str, Any]:
    """Return the bound of one stream and the truth, in nats a row, and what they took."""
    X, y, K = standardise_once(source, seed)
    T, d = X.shape
    problem = {"n_features": d, "n_classes": K}
    with threadpool_limits(1):
        for warm in (Evidence(**problem).add, auto(**problem).run):
            warm(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS])
        evidence, learner = Evidence(**problem, constant=d - 1), auto(**problem)
        of_evidence = microseconds_a_row(evidence.add, X, y)
        began = time.process_time()
        bound, W = evidence.minimise()
        seconds = time.process_time() - began
        of_auto = microseconds_a_row(learner.run, X, y)
        truth = logistic_regression(X, y, n_classes=K, constant=d - 1, start=W)
    steps = [(point.step_to(W), point.radius) for point in evidence._points]
    step, radius = max(steps, key=lambda pair: pair[0] / pair[1], default=(0.0, 0.0))
    return {
        "rows": T,
        "weights": d * K,
        "bound": bound / T,
        "truth": (truth.loss + truth.penalty) / T,
        "gap_of_truth": truth.gap / T,
        "loss_of_truth": truth.loss / T,
        "points": len(steps),
        "needed": step,
        "radius": radius,
        "microseconds_a_row": of_evidence,
        "microseconds_a_row_of_auto": of_auto,
        "milliseconds_of_the_bound": 1e3 * seconds,
    }


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of all streams and sizes."""
    lines = [
        "| stream | rows | weights | penalised optimum | live bound | ratio | points "
        "| step needed / radius | loss of that optimum | µs a row of evidence | of `auto` "
        "| ms of the bound |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, sizes in results.items():
        for row in sizes:
            step = f"{row['needed']:.0f} / {row['radius']:.0f}" if row["points"] else "none"
            lines.append(
                f"| {name} | {row['rows']:,} | {row['weights']} | {row['truth']:.4f} "
                f"| {row['bound']:.4f} | {row['bound'] / row['truth']:.3f} | {row['points']} "
                f"| {step} | {row['loss_of_truth']:.4f} | {row['microseconds_a_row']:.1f} "
                f"| {row['microseconds_a_row_of_auto']:.1f} "
                f"| {row['milliseconds_of_the_bound']:.0f} |"
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
        sources = [Source("synthetic-3", None, 8_000)]
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
        sizes={"head": HEAD_ROWS, "block": BLOCK_ROWS},
    )  # fmt: skip
    options.out.mkdir(exist_ok=True)
    write_json(options.out / "unconstrained.json", {"provenance": origin, "streams": results})
    text = f"# A live bound about every linear model\n\n{stated(origin)}.\n\n{table(results)}\n"
    (options.out / "unconstrained.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
