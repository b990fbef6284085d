"""What each backend of `auto` costs and reaches at sizes on both sides of their boundaries.

python -m benchmarks.backends   writes results/backends.json and results/backends.md (four minutes).
One process, one BLAS thread. Rows of one seeded softmax stream with a constant; `run` over
2,000 rows after 1,000, so that the refreshes and reviews of a young model are in it.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from threadpoolctl import threadpool_limits

from experiments.provenance import provenance, stated, write_json
from folklearn import auto
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.learners.catalogue import BACKENDS, BLOCKS, PAIRS, select_backend

RESULTS = Path(__file__).parent / "results"
BEFORE, MEASURED = 1_000, 2_000
SIZES = (
    (20, 5), (65, 10), (17, 26), (200, 2), (400, 2), (800, 2), (1500, 2), (100, 10), (150, 10),
    (250, 10), (20, 30), (20, 45), (20, 60), (20, 100), (40, 40), (20, 200), (20, 500), (20, 2000),
    (50, 100), (50, 400), (100, 100), (200, 50),
)  # fmt: skip
DEAREST = {PAIRS: 1.3e6, BLOCKS: 2.1e6}  # numbers, beyond which a backend is not measured


def cost(backend: str, d: int, K: int) -> float:
    """Return the numbers that a round of a backend rewrites, about."""
    if backend == PAIRS:
        return float(n_pairs(K)) * float(n_products(d))
    return float(K) * d**2 if backend == BLOCKS else float(K) * d


def stream(d: int, K: int, T: int) -> tuple[Any, Any]:
    """Return rows of norm about 1 with a constant, and labels of a linear softmax model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(T, d)) / np.sqrt(2 * d)
    X[:, -1] = np.sqrt(0.5)
    W = 8.0 * rng.normal(size=(K, d))
    return X, np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)


def measure(d: int, K: int) -> dict[str, Any]:
    """Run every backend that is not out of the question."""
    X, y = stream(d, K, BEFORE + MEASURED)
    row: dict[str, Any] = {"d": d, "K": K, "backend": select_backend(d, K)}
    for backend in BACKENDS:
        if cost(backend, d, K) > DEAREST.get(backend, np.inf):
            continue
        model = auto(n_features=d, n_classes=K, backend=backend)
        P = [model.run(X[:BEFORE], y[:BEFORE])]
        started = time.perf_counter()
        P.append(model.run(X[BEFORE:], y[BEFORE:]))
        seconds = time.perf_counter() - started
        given = np.concatenate(P)[np.arange(len(y)), y]
        row[backend] = {
            "us": 1e6 * seconds / MEASURED,
            "loss": float(-np.log(given).mean()),
            "mb": model.n_bytes / 1e6,
        }
    return row


def table(rows: list[dict[str, Any]], origin: dict[str, Any]) -> str:
    """Return the results in Markdown."""
    lines = [
        "# Lanes",
        "",
        f"{stated(origin)}. `run` over rounds {BEFORE:,} to {BEFORE + MEASURED:,}, one thread: "
        "µs a round / progressive log loss of all rounds / MB. The one that `auto` takes is bold.",
        "",
        "| (d, K) | numbers in pairs | in blocks | pairs | blocks | wide |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        d, K = row["d"], row["K"]
        cells = [f"({d}, {K})", f"{cost(PAIRS, d, K):,.0f}", f"{cost(BLOCKS, d, K):,.0f}"]
        for backend in BACKENDS:
            own = row.get(backend)
            text = "–" if own is None else f"{own['us']:.0f} / {own['loss']:.3f} / {own['mb']:.1f}"
            cells.append(f"**{text}**" if backend == row["backend"] else text)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, show and write."""
    origin = provenance(
        "benchmarks.backends",
        sys.argv[1:],
        seeds=[0],
        sizes={"sizes": [list(size) for size in SIZES]},
    )
    with threadpool_limits(1, user_api="blas"):
        measure(5, 3)  # compiles
        rows = [measure(*size) for size in track(SIZES, "backends")]
    write_json(RESULTS / "backends.json", {"origin": origin, "rows": rows})
    text = table(rows, origin)
    (RESULTS / "backends.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
