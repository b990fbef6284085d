"""The numerical tests as other machines run them: `make test-portable`.

OpenBLAS sums in another order on every kind of core, Numba's code for any CPU has no fused
multiplications, and what a test finds in its process depends on the tests before it. Each run
takes one of each: a core type, a CPU for Numba, and an order. Other tests than the numerical
ones are given by path: `python -m tests.long.portable tests/cli`.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

NUMERICAL = (
    "src", "tests/adapters", "tests/bandits", "tests/batch", "tests/boosting", "tests/evaluate",
    "tests/learners", "tests/model", "tests/kernels", "tests/scale", "tests/baselines",
    "tests/test_bounds.py", "tests/test_docs.py", "tests/test_map_reduce.py",
    "tests/evidence/test_fifty_digits.py", "tests/test_extremes.py", "tests/test_laws.py",
    "tests/test_persist.py", "tests/test_scaler.py", "tests/test_soundness.py",
    "tests/test_sparse.py", "tests/test_synthetic.py",
)  # fmt: skip

OUTCOMES = ("passed", "failed", "error", "skipped")

# Loads both copies of OpenBLAS, NumPy's and SciPy's, and multiplies with the first.
_PROBE = """
import numpy, scipy.linalg, threadpoolctl
numpy.ones((64, 64)) @ numpy.ones((64, 64))
print(*sorted({one.get("architecture", "?") for one in threadpoolctl.threadpool_info()}))
"""


class Run(NamedTuple):
    """How the tests run once.

    core : OPENBLAS_CORETYPE.
    cpu : NUMBA_CPU_NAME; None for this machine's own.
    order : FOLKLEARN_TEST_ORDER, which shuffles; None for a process of its own for every file.
    """

    core: str
    cpu: str | None
    order: int | None

    @property
    def settings(self) -> dict[str, str]:
        """Return what the environment has more than now."""
        found = {"OPENBLAS_CORETYPE": self.core}
        if self.cpu is not None:
            found["NUMBA_CPU_NAME"] = self.cpu
        if self.order is not None:
            found["FOLKLEARN_TEST_ORDER"] = str(self.order)
        return found


RUNS = (
    Run("Haswell", None, 1),
    Run("SkylakeX", None, 2),
    Run("Zen", "generic", 3),
    Run("Nehalem", "generic", 4),
    Run("Nehalem", "generic", None),
)


def start_python(run: Run, *arguments: str) -> subprocess.Popen[str]:
    """Start Python as another machine would run it."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | run.settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def architectures(run: Run) -> str | None:
    """Return what OpenBLAS took for the core type; None if this machine cannot run it."""
    process = start_python(run, "-c", _PROBE)
    output, _ = process.communicate()
    return None if process.returncode else output.strip()


def files_with_tests(paths: tuple[str, ...]) -> list[str]:
    """Return the files of tests in `paths`; the doctests of src are not among them."""
    found = []
    for path in map(Path, paths):
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return [str(file) for file in found]


def run_tests(run: Run, paths: tuple[str, ...]) -> Counter[str]:
    """Run the tests, show what pytest says, and return how many had which outcome."""
    counts: Counter[str] = Counter()
    parts = [paths] if run.order is not None else [(file,) for file in files_with_tests(paths)]
    for part in parts:
        process = start_python(run, "-m", "pytest", "-q", "--tb=short", *part)
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line if line.strip() else last
        own = Counter({outcome: int(n) for n, outcome in re.findall(r"(\d+) ([a-z]+?)s?\b", last)})
        counts += Counter({outcome: own[outcome] for outcome in OUTCOMES})
        # Exit codes: 0 all passed, 1 some failed, 5 a file without tests; else it never ended.
        if process.wait() not in (0, 1, 5):
            counts["error"] += 1
    return counts


def main(paths: tuple[str, ...]) -> int:
    """Run all, print a table, and return 1 if a test failed."""
    rows, is_red = [("core type", "BLAS took", "Numba", "order", *OUTCOMES)], False
    for run in RUNS:
        order = "by file" if run.order is None else f"shuffled {run.order}"
        taken = architectures(run)
        if taken is None:
            rows.append((run.core, "not here: this CPU lacks its instructions"))
            continue
        print("", *(f"{name}={value}" for name, value in run.settings.items()), flush=True)
        counts = run_tests(run, paths)
        is_red |= bool(counts["failed"] or counts["error"] or not counts["passed"])
        numbers = (str(counts[outcome]) for outcome in OUTCOMES)
        rows.append((run.core, taken, run.cpu or "host", order, *numbers))
    print()
    for row in rows:
        print(*(f"{cell:<12}" for cell in row))
    return int(is_red)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or NUMERICAL))
