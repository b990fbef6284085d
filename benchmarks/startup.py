"""Start-up: what is compiled for a first prediction and for everything, then with all compiled."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

WORDS = ("first_predict_s", "first_update_s", "first_run_s", "first_certificate_s")
_FIRST_USE = """
import json
from time import perf_counter
start = perf_counter()
from folklearn import {learner} as make
model = make(n_features=5, n_classes=3)
x = [0.1, 0.2, 0.3, 0.4, 0.5]
model.predict(x)
times = [perf_counter() - start]
model.update(x, 1)
times.append(perf_counter() - start)
model.run([x] * 600, [0, 1] * 300)
times.append(perf_counter() - start)
model.certificate()
times.append(perf_counter() - start)
print(json.dumps(times))
"""


def first_use(cache: str, learner: str) -> list[float]:
    """Return seconds from the import to the first predict, update, run and certificate."""
    child = subprocess.run(
        [sys.executable, "-c", _FIRST_USE.format(learner=learner)],
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds: list[float] = json.loads(child.stdout)
    return seconds


def measure(
    report: Callable[[int, int], None], repetitions: int, learners: list[str]
) -> dict[str, Any]:
    """Return, for each learner, times with an empty cache and the best with a full one."""
    found = {}
    total = len(learners) * (1 + repetitions)
    for number, learner in enumerate(learners):
        done = number * (1 + repetitions)
        with tempfile.TemporaryDirectory() as cache:  # empty for each: nothing is shared
            compiling = first_use(cache, learner)
            report(done + 1, total)
            compiled = []
            for repetition in range(repetitions):
                compiled.append(first_use(cache, learner))
                report(done + 2 + repetition, total)
        best = [min(times) for times in zip(*compiled, strict=True)]
        found[learner] = {
            "compile_first_predict_s": compiling[0],
            "compile_everything_s": compiling[-1],
            **dict(zip(WORDS, best, strict=True)),
        }
    return found
