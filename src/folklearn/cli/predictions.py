"""One line per example: the true label if asked, the predicted one, and the probabilities."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import FolklearnError

UNSEEN = "p(unseen)"
OPEN_HEADER = ("label", "predicted", "p(predicted)", "p(label)", UNSEEN)


class PredictionWriter:
    """Writes blocks of predictions as CSV; numbers are written so that they read back equal."""

    def __init__(
        self,
        file: TextIO,
        labels: Sequence[str],
        labelled: bool = True,
        unseen: float | None = None,
    ) -> None:
        """Write the header; `unseen` is the probability of other classes, None if there is none."""
        self._labels = labels
        self._writer = csv.writer(file, lineterminator="\n")
        self._last = [] if unseen is None else [unseen]
        first = ["label"] if labelled else []
        last = [] if unseen is None else [UNSEEN]
        self._writer.writerow([*first, "predicted", *(f"p({label})" for label in labels), *last])

    def write(self, P: NDArray[np.float64], y: NDArray[np.int64] | None = None) -> None:
        """Write the rows of P (T, K), with their true classes y (T,) if labelled."""
        labels = self._labels
        true: list[list[str]] = [[]] * len(P) if y is None else [[labels[k]] for k in y.tolist()]
        self._writer.writerows(
            [*label, labels[predicted], *row, *self._last]
            for label, predicted, row in zip(
                true, P.argmax(axis=1).tolist(), P.tolist(), strict=True
            )
        )


class OpenWriter:
    """Writes predictions of classes that are not known beforehand, every block at once.

    The columns cannot be the classes. They are the probability of the most likely known class,
    that with which the label was predicted, and that of a class never seen; the label of a
    new class has that one.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(OPEN_HEADER)

    def write(
        self,
        P: NDArray[np.float64],
        true: Sequence[str],
        losses: NDArray[np.float64],
        labels: Sequence[str],
    ) -> None:
        """Write the rows of P (T, K): true labels, log losses, and the labels of the classes."""
        unseen = np.clip(1.0 - P.sum(axis=1), 0.0, 1.0)
        for label, row, loss, u in zip(true, P, losses, unseen, strict=True):
            best = int(row.argmax())
            predicted = labels[best] if row[best] > 0.0 else ""
            p = float(np.exp(-loss))
            self._writer.writerow([label, predicted, float(row[best]), p, float(u)])
        self._file.flush()  # whoever waits for an answer gets it now


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO]:
    """Yield a file to write to, or standard output if the path is None."""
    if path is not None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
        return
    if sys.stdout is None:  # whoever called closed it
        raise FolklearnError("standard output is closed: name a file for the predictions")
    stream = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
    try:
        yield stream
        stream.flush()
    finally:
        stream.detach()  # closing is not ours to do


@contextmanager
def writer_to(
    path: Path | None,
    labels: Sequence[str],
    *,
    labelled: bool = True,
    unseen: float | None = None,
) -> Iterator[PredictionWriter]:
    """Yield a writer to a file, or to standard output if the path is None."""
    with opened(path) as file:
        yield PredictionWriter(file, labels, labelled, unseen)
