"""Vowpal Wabbit beside us: rows as it reads them, its Python package, and its command line."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from .common import Found, Labels, resident_bytes

BITS = 18
_POLL = 0.05  # seconds between two looks at its memory
_SAID = {"loss": "average multiclass log loss", "error": "average loss"}


def words(K: int, bits: int = BITS) -> list[str]:
    """Return the command line for K classes with probabilities."""
    return ["--oaa", str(K), "--loss_function", "logistic", "-b", str(bits), "--probabilities"]


def text(X: Any, y: Labels, form: str = ".7g") -> Iterator[str]:
    """Yield the rows of a csr array as lines; VW computes in single precision."""
    indices, values, labels = X.indices.tolist(), X.data.tolist(), (y + 1).tolist()
    for label, start, stop in zip(labels, X.indptr[:-1], X.indptr[1:], strict=True):
        own = zip(indices[start:stop], values[start:stop], strict=True)
        yield f"{label} | " + " ".join([f"{j}:{value:{form}}" for j, value in own])


def workspace(K: int, *more: str, bits: int = BITS) -> Any:
    """Return a model."""
    return Workspace(arg_list=[*words(K, bits), "--quiet", *more])


def predict_and_learn(model: Any, rows: list[str]) -> None:
    """Parse ready lines, each once, predict, learn."""
    for line in rows:
        example = model.parse(line)
        model.predict(example)
        model.learn(example)
        model.finish_example(example)


def learn(model: Any, rows: list[str]) -> None:
    """Parse and learn ready lines; it predicts on the way, and nobody asks for it."""
    for line in rows:
        example = model.parse(line)
        model.learn(example)
        model.finish_example(example)


def progressive(rows: list[str], K: int, *more: str, bits: int = BITS) -> NDArray[np.float64]:
    """Return the predictions (T, K) of one pass, each made before its row was learned."""
    model = workspace(K, *more, bits=bits)
    kind = model.get_prediction_type()
    P = np.empty((len(rows), K))
    for t, line in enumerate(rows):
        example = model.parse(line)
        model.learn(example)
        P[t] = example.get_prediction(kind)
        model.finish_example(example)
    model.finish()
    return P


def command_line(K: int, file: Path) -> Found:
    """Run its command line on a file: whole seconds, peak memory and what it says at the end."""
    start = perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "vowpalwabbit", *words(K), "-d", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    status, peak = Path(f"/proc/{process.pid}/status"), None
    while True:
        try:
            said, _ = process.communicate(timeout=_POLL)
            break
        except subprocess.TimeoutExpired:
            try:
                peak = max(peak or 0, resident_bytes("VmHWM", status))
            except OSError:
                continue  # it has ended, or this is not Linux
    seconds = perf_counter() - start
    if process.returncode:
        raise RuntimeError(f"vowpalwabbit failed:\n{said}")
    return {"seconds": seconds, "peak_bytes": peak} | {
        key: _number(name, said) for key, name in _SAID.items()
    }


def _number(name: str, said: str) -> float:
    found = re.search(rf"^{name} = (\S+)", said, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"vowpalwabbit did not say its {name}:\n{said}")
    return float(found[1])
