"""Start-up: compiling everything once, then import to first prediction, in fresh processes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

_FIRST_USE = """
from time import perf_counter
start = perf_counter()
from folklearn import Folklore
model = Folklore(n_features=5, n_classes=3)
x = [0.1, 0.2, 0.3, 0.4, 0.5]
model.predict(x)
predicted = perf_counter() - start
model.update(x, 1)
updated = perf_counter() - start
model.run([x] * 64, [0, 1] * 32)
import json
print(json.dumps([predicted, updated, perf_counter() - start]))
"""


def first_use(cache: str) -> list[float]:
    """Return seconds from the import to the first predict, update and run."""
    child = subprocess.run(
        [sys.executable, "-c", _FIRST_USE],
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds: list[float] = json.loads(child.stdout)
    return seconds


def measure(report: Callable[[int, int], None], repetitions: int) -> dict[str, Any]:
    """Return the time with an empty cache, and the best of several with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        compiling = first_use(cache)[-1]
        report(1, 1 + repetitions)
        compiled = []
        for repetition in range(repetitions):
            compiled.append(first_use(cache))
            report(2 + repetition, 1 + repetitions)
    predict, update, run = (min(times) for times in zip(*compiled, strict=True))
    return {
        "compile_everything_s": compiling,
        "first_predict_s": predict,
        "first_update_s": update,
        "first_run_s": run,
    }
