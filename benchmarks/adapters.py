"""What the River classifier costs beside its learner: `python -m benchmarks.adapters`.

The learner gets rows that are scaled already, the classifier dictionaries and text labels, of
the same stream. Each predicts and learns every example of a slice in turn and continues its own
model; the best slice of each counts, one BLAS thread.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from experiments.provenance import provenance, stated, write_json
from folklearn import Folklore
from folklearn.adapters.river import FolkloreStreamClassifier
from folklearn.scaler import OnlineScaler

SIZES = [(5, 2), (20, 5), (55, 7)]
ROWS = 50  # a slice, so short that other programs do not interrupt all of them
SLICES = 600
MAX_RATIO = 2.0
RESULTS = Path(__file__).parent / "results"


def timed(play: Callable[[], None]) -> float:
    """Return microseconds per example."""
    gc.disable()
    try:
        start = perf_counter()
        play()
        return 1e6 * (perf_counter() - start) / ROWS
    finally:
        gc.enable()


def measure(d: int, K: int) -> dict[str, float]:
    """Return the best times of the learner and of the classifier, and their ratio."""
    rng = np.random.default_rng([d, K])
    W = rng.normal(size=(d, K)) * (5.0 / np.sqrt(d))
    scaler = OnlineScaler(n_features=d)
    learner = Folklore(n_features=d + 1, n_classes=K)
    classifier: Any = FolkloreStreamClassifier("folklore")
    best = {"learner": np.inf, "classifier": np.inf}
    for _ in range(SLICES):  # the first compile and meet the classes; they are never the best
        X = rng.normal(size=(ROWS, d))
        numbers = np.argmax(X @ W + rng.gumbel(size=(ROWS, K)), axis=1).tolist()
        rows = list(zip(scaler.learn_transform(X), numbers, strict=True))
        examples = [
            ({f"x{j}": value for j, value in enumerate(x)}, f"class {k}")
            for x, k in zip(X.tolist(), numbers, strict=True)
        ]

        def bare(rows: list[Any] = rows) -> None:
            for z, k in rows:
                learner.predict(z)
                learner.update(z, k)

        def adapted(examples: list[Any] = examples) -> None:
            for x, y in examples:
                classifier.predict_proba_one(x)
                classifier.learn_one(x, y)

        best["learner"] = min(best["learner"], timed(bare))
        best["classifier"] = min(best["classifier"], timed(adapted))
    return best | {"ratio": best["classifier"] / best["learner"]}


def main() -> None:
    origin = provenance(
        "benchmarks.adapters", sys.argv[1:], seeds=[0], sizes={"rows": ROWS, "slices": SLICES},
        libraries=["river"],
    )  # fmt: skip
    results = {f"({d}, {K})": measure(d, K) for d, K in SIZES}
    lines = ["| (d, K) | Folklore, µs | River classifier, µs | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {size} | {one['learner']:.1f} | {one['classifier']:.1f} | {one['ratio']:.2f} |"
        for size, one in results.items()
    ]
    met = "met" if results["(20, 5)"]["ratio"] <= MAX_RATIO else "missed"
    note = f"{stated(origin)}; at most {MAX_RATIO:g} at (20, 5): {met}."
    text = "\n".join([*lines, "", note, ""])
    (RESULTS / "adapters.md").write_text(text)
    write_json(RESULTS / "adapters.json", {"origin": origin, "sizes": results})
    print(text)


if __name__ == "__main__":
    main()
