"""What `auto` costs beside the sum of its experts: `python benchmarks/mixture.py`.

All experts are kept (retire=False), so that both do the same work; interleaved, best of
several, one BLAS thread.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import time
from pathlib import Path

import numpy as np

from folklearn import auto

SIZES = [(5, 2), (20, 5), (55, 7), (65, 10), (17, 26)]
RESULTS = Path(__file__).parent / "results"


def measure(d: int, K: int, rows: int, repetitions: int) -> float:
    """Return the time of the mixture over the summed time of its experts alone."""
    rng = np.random.default_rng([d, K])
    X = rng.normal(size=(rows, d)) / np.sqrt(d)
    y = rng.integers(0, K, rows)
    mixture = auto(n_features=d, n_classes=K, retire=False)
    experts = auto(n_features=d, n_classes=K, retire=False).experts
    best = [np.inf] * (1 + len(experts))
    for _ in range(repetitions + 1):  # the first compiles
        for slot, learner in enumerate([mixture, *experts]):
            started = time.perf_counter()
            learner.run(X, y)
            best[slot] = min(best[slot], time.perf_counter() - started)
    return best[0] / sum(best[1:])


def main() -> None:
    ratios = {
        f"({d}, {K})": round(measure(d, K, rows=20_000 if d * K < 100 else 1024, repetitions=5), 3)
        for d, K in SIZES
    }
    lines = ["| (d, K) | time of auto / sum of its experts |", "|---|---|"]
    lines += [f"| {size} | {ratio:.2f} |" for size, ratio in ratios.items()]
    text = "\n".join([*lines, "", "`python benchmarks/mixture.py`, all experts kept.", ""])
    (RESULTS / "mixture.md").write_text(text)
    (RESULTS / "mixture.json").write_text(json.dumps(ratios, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
