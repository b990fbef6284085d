"""CPU time of `folklearn run` on files, beside that of another checkout, in one interleaved run.

    python -m benchmarks.against OTHER/src [--repeats 3] [--write]

A ratio above 1 means that this checkout takes longer. Times are CPU seconds of the whole process
(user and system, the least of all repeats): start, reading, learning, and what is said at the end.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

ROOT = Path(__file__).parent.parent
SIZES = ((5, 2, 100_000), (20, 5, 60_000), (55, 7, 20_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    sources = {"this": ROOT / "src", "other": Path(asked.other)}
    lines = [
        "| file | other, CPU s | this, CPU s | ratio |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files(Path(folder)):
            times: dict[str, list[float]] = {side: [] for side in sources}
            for _ in range(asked.repeats + 1):  # the first one compiles
                for side, source in sources.items():
                    times[side].append(cpu_seconds(source, path))
            best = {side: min(found[1:]) for side, found in times.items()}
            ratio = best["this"] / best["other"]
            lines.append(f"| {name} | {best['other']:.2f} | {best['this']:.2f} | {ratio:.2f} |")
            print(lines[-1], flush=True)
    text = f"# `folklearn run` beside an earlier checkout\n\n{__doc__}\n" + "\n".join(lines) + "\n"
    if asked.write:
        (ROOT / "benchmarks" / "results" / "against.md").write_text(text, encoding="utf-8")


def files(folder: Path):
    """Yield names and paths of files."""
    rng = np.random.default_rng(0)
    for d, K, T in SIZES:
        X = rng.normal(size=(T, d))
        W = rng.normal(size=(K, d))
        y = (X @ W.T + rng.gumbel(size=(T, K))).argmax(axis=1)
        yield f"{T:,} rows, {d} numbers, {K} classes", written(folder / f"{d}.csv", X, y)
    X, y = load_digits(return_X_y=True)
    yield "digits, 1,797 rows", written(folder / "digits.csv", X, y)


def written(path: Path, X, y) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{j}" for j in range(X.shape[1])), "y"])
        writer.writerows([*map("{:.6g}".format, x), f"c{k}"] for x, k in zip(X, y, strict=True))
    return path


def cpu_seconds(source: Path, path: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from folklearn.cli.app import main; main()"]
    environment = {**os.environ, "PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "run", str(path), "--target", "y", "--quiet"], check=True, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


if __name__ == "__main__":
    main()
