"""What workers are given to do: processes and clusters find it by its name."""

import os
import signal
from pathlib import Path

import numpy as np

from folklearn import Folklore, Ogd, synthetic


def square(number: int) -> int:
    return number * number


def folder(number: int) -> str:
    return os.getcwd()


class Unreadable:
    """Can be pickled, and not be made of that again."""

    def __reduce__(self):
        return refuse_to_be_read, ()


def refuse_to_be_read() -> None:
    raise ValueError("there is nothing to read")


def refuse_three(number: int) -> int:
    if number == 3:
        raise ValueError("three is not wanted")
    return number


def killed_at(number: int, task: int) -> int:
    """End the worker at one task, every time."""
    if task == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task


def die_once(marker: Path) -> None:
    """End the worker the first time that anybody comes here."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def killed_once(marker: Path, function, task):
    die_once(marker)
    return function(task)


def noted(folder: Path, task: int) -> int:
    """Leave a trace of every call."""
    with open(folder / str(task), "a", encoding="utf-8") as file:
        file.write("called\n")
    return task


def blas_threads(_: int) -> set[int]:
    from threadpoolctl import threadpool_info

    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def is_shared(array, _: int) -> tuple[str, bool, float]:
    """Tell whether an array came as a memory map, and can be written to."""
    return type(array).__name__, array.flags.writeable, float(array.sum())


def wait_for_ever(folder: Path, task: int) -> None:
    (folder / f"{task}.pid").write_text(str(os.getpid()))
    signal.pause()


def steep(n_features: int, n_classes: int, B: float = 1.0) -> Ogd:
    return Ogd(n_features=n_features, n_classes=n_classes, B=B, R=0.1)


def blocks_of(number: int):
    """Yield what stands for a file: rows, and the predictions of somebody who is too sure."""
    X, y = (
        part[300 * number : 300 * (number + 1)] for part in synthetic.stochastic(0, 1500, d=3, K=3)
    )
    P = np.full((300, 3), 0.1)
    P[:, number % 3] = 0.8
    yield X[:100], y[:100], P[:100]
    yield X[100:], y[100:], P[100:]


def dying(marker: Path, n_features: int, n_classes: int, B: float) -> Folklore:
    """Return a learner; the first that is made for real rows costs a worker."""
    if n_features > 1:
        die_once(marker)
    return Folklore(n_features=n_features, n_classes=n_classes, B=B)


def process(_: int) -> int:
    return os.getpid()


def named(folder: Path, task: int) -> int:
    """Leave the number of the process, so that it can be found."""
    (folder / f"{task}.pid").write_text(str(os.getpid()))
    return task
