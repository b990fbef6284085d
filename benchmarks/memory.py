"""Peak memory of a large problem, in units of one n x n array. Linux only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import softmax_rows

from folklearn import Folklore


def resident_bytes(field: str) -> int:
    """Return VmRSS (now) or VmHWM (peak) of this process; every allocator counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def measure(report: Callable[[int, int], None], d: int, K: int, n_rows: int) -> dict[str, Any]:
    """Return how far making a model and a `run` of n_rows raise the peak of the process."""
    n = (K - 1) * d
    small = Folklore(n_features=4, n_classes=3)
    small.run(*softmax_rows(4, 3, 64, 0))  # loads the compiled kernels
    X, y = softmax_rows(d, K, n_rows, 0)
    before = resident_bytes("VmHWM")
    now = resident_bytes("VmRSS")
    Folklore(n_features=d, n_classes=K).run(X, y)
    peak = resident_bytes("VmHWM")
    if peak <= before:
        raise RuntimeError("the peak was reached before the model was made")
    report(1, 1)
    return {"d": d, "K": K, "n": n, "rows": n_rows, "arrays": (peak - now) / (8 * n**2)}
