"""Functions that worker processes are given to call: they find them by name."""

import os
import signal
from pathlib import Path

import numpy as np

from folklearn import synthetic


def square(number: int) -> int:
    return number * number


def folder(number: int) -> str:
    return os.getcwd()


def check_three(number: int) -> int:
    if number == 3:
        raise ValueError("three is not wanted")
    return number


def killed_at(number: int, task: int) -> int:
    """End the worker at one task."""
    if task == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task


def blas_threads(_: int) -> set[int]:
    from threadpoolctl import threadpool_info

    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def is_shared(array, _: int) -> tuple[str, bool, float]:
    """Tell whether an array came as a memory map, and can be written to."""
    return type(array).__name__, array.flags.writeable, float(array.sum())


def wait_for_ever(folder: Path, task: int) -> None:
    (folder / f"{task}.pid").write_text(str(os.getpid()))
    signal.pause()


def wait_at_one(folder: Path, task: int) -> None:
    if task == 1:
        wait_for_ever(folder, task)


def blocks_of(number: int):
    """Yield what stands for a file: rows, and the predictions of somebody who is too sure."""
    rows = slice(300 * number, 300 * (number + 1))
    X, y = (array[rows] for array in synthetic.stochastic(0, 1500, d=3, K=3))
    P = np.full((300, 3), 0.1)
    P[:, number % 3] = 0.8
    yield X[:100], y[:100], P[:100]
    yield X[100:], y[100:], P[100:]
