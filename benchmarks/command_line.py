"""`folklearn run` from the command line, beside what else reads such files.

python -m benchmarks.command_line   writes results/command_line.json and .md (two minutes).
Whole processes, start to end, turn by turn; wall-clock seconds and peak memory of each. CSV:
a million rows of 30 numbers and two classes. VW text: the first 200,000 of these rows.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from experiments.provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
ROWS, WIDTH, VW_ROWS, FEW = 1_000_000, 30, 200_000, 1_000
TURNS = 3
MUST = {"csv": 12.0, "memory": 150.0, "vw": 8.0, "start": 1.0}

Found = dict[str, Any]

# What is installed has its bytecode beside it.
_AS_INSTALLED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

_PANDAS = "import pandas as pd, sys; print(len(pd.read_csv(sys.argv[1])))"
_SGD = """
import sys, pandas as pd
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler
model, scaler = SGDClassifier(loss="log_loss"), StandardScaler()
for part in pd.read_csv(sys.argv[1], chunksize=8192):
    X = part.drop(columns="y").to_numpy()
    scaler.partial_fit(X)
    model.partial_fit(scaler.transform(X), part["y"], classes=["no", "yes"])
"""
_FIRST = """
import folklearn
model = folklearn.Model()
for t in range(3):
    model.learn_one({"a": float(t), "b": 1.0 - t}, "odd" if t % 2 else "even")
model.predict_proba_one({"a": 1.0, "b": 0.0})
"""


def write(folder: Path, rows: int, vw_rows: int) -> dict[str, Path]:
    """Write the files."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, WIDTH)).round(5)
    y = X @ (rng.normal(size=WIDTH) / 3.0) + rng.logistic(size=rows) > 0.0
    files = {name: folder / name for name in ("long.csv", "few.csv", "rows.vw")}
    names = [f"x{j}" for j in range(WIDTH)]
    for name, n in (("long.csv", rows), ("few.csv", FEW)):
        with files[name].open("w") as file:
            file.write(",".join([*names, "y"]) + "\n")
            for row, label in zip(X[:n].tolist(), y[:n].tolist(), strict=True):
                file.write(",".join(map(repr, row)) + (",yes\n" if label else ",no\n"))
    with files["rows.vw"].open("w") as file:
        for row, label in zip(X[:vw_rows].tolist(), y[:vw_rows].tolist(), strict=True):
            cells = " ".join(f"{name}:{value!r}" for name, value in zip(names, row, strict=True))
            file.write(f"{1 + label} | {cells}\n")
    return files


def timed(command: list[str]) -> Found:
    """Run a process; return its seconds, its peak memory and the end of what it said."""
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=said, env=_AS_INSTALLED)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        last = said.read().decode(errors="replace").strip().splitlines()[-1:]
    if process.returncode:
        raise RuntimeError(f"{command} failed: {last}")
    return {"seconds": seconds, "megabytes": used.ru_maxrss / 1024.0, "said": "".join(last)}


def measure(rows: int, vw_rows: int) -> dict[str, list[Found]]:
    """Run everything in turn."""
    python = sys.executable
    run = [python, "-m", "folklearn.cli.app", "run"]
    with tempfile.TemporaryDirectory() as name:
        # By a process of its own: what this one holds would count as memory of those it starts.
        with ProcessPoolExecutor(1, get_context("spawn")) as writer:
            files = writer.submit(write, Path(name), rows, vw_rows).result()
        long, few, text = (str(files[key]) for key in ("long.csv", "few.csv", "rows.vw"))
        vw = ["--oaa", "2", "--loss_function", "logistic", "--probabilities"]
        commands = {
            "folklearn run, CSV": [*run, long, "--target", "y"],
            "folklearn run, 1,000 rows": [*run, few, "--target", "y"],
            "pandas.read_csv": [python, "-c", _PANDAS, long],
            "SGDClassifier, chunks of CSV": [python, "-c", _SGD, long],
            "folklearn run, VW text": [*run, text],
            "vw, the same text": [python, "-m", "vowpalwabbit", *vw, "-d", text],
            "import to first prediction": [python, "-c", _FIRST],
        }
        for command in commands.values():
            timed(command)  # compiles, and fills the caches of files
        found: dict[str, list[Found]] = {what: [] for what in commands}
        for _ in range(TURNS):
            for what, command in commands.items():
                found[what].append(timed(command))
    return found


def report(origin: Found, found: dict[str, list[Found]]) -> str:
    best = {what: min(one["seconds"] for one in turns) for what, turns in found.items()}
    peak = {what: max(one["megabytes"] for one in turns) for what, turns in found.items()}
    lines = ["# The command line", "", f"{stated(origin)}. Whole processes, the fastest of"]
    lines += [f"{TURNS} turns, and peak memory.", "", "| process | seconds | MB |", "|---|---|---|"]
    lines += [f"| {what} | {best[what]:.2f} | {peak[what]:.0f} |" for what in found]
    more = peak["folklearn run, CSV"] - peak["folklearn run, 1,000 rows"]
    ratio = best["folklearn run, VW text"] / best["vw, the same text"]
    lines += [
        "",
        f"CSV: {best['folklearn run, CSV']:.1f} s (must be below {MUST['csv']:g}), {more:.0f} MB",
        f"above 1,000 rows (at most {MUST['memory']:g}). VW text: {ratio:.1f} × vw's time",
        f"(at most {MUST['vw']:g}). Import to first prediction:",
        f"{best['import to first prediction']:.2f} s (below {MUST['start']:g}).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    quick = "--quick" in sys.argv
    sizes = (20_000, 5_000) if quick else (ROWS, VW_ROWS)
    found = measure(*sizes)
    origin = provenance(
        "benchmarks.command_line", sys.argv[1:], seeds=[0],
        sizes={"rows": sizes[0], "width": WIDTH, "vw_rows": sizes[1], "turns": TURNS},
    )  # fmt: skip
    text = report(origin, found)
    if not quick:
        write_json(RESULTS / "command_line.json", {"provenance": origin, "found": found})
        (RESULTS / "command_line.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
