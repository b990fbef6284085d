"""One line per example: the true label if asked, the predicted one, and every probability."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray


class PredictionWriter:
    """Writes blocks of predictions as CSV; numbers are written so that they read back equal."""

    def __init__(self, file: TextIO, labels: Sequence[str], labelled: bool = True) -> None:
        self._labels = labels
        self._writer = csv.writer(file, lineterminator="\n")
        first = ["label"] if labelled else []
        self._writer.writerow([*first, "predicted", *(f"p({label})" for label in labels)])

    def write(self, P: NDArray[np.float64], y: NDArray[np.int64] | None = None) -> None:
        """Write the rows of P (T, K), with their true classes y (T,) if labelled."""
        labels = self._labels
        true: list[list[str]] = [[]] * len(P) if y is None else [[labels[k]] for k in y.tolist()]
        self._writer.writerows(
            [*label, labels[predicted], *row]
            for label, predicted, row in zip(
                true, P.argmax(axis=1).tolist(), P.tolist(), strict=True
            )
        )


@contextmanager
def writer_to(
    path: Path | None, labels: Sequence[str], *, labelled: bool = True
) -> Iterator[PredictionWriter]:
    """Yield a writer to a file, or to standard output if the path is None."""
    if path is not None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield PredictionWriter(file, labels, labelled)
        return
    stream = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
    try:
        yield PredictionWriter(stream, labels, labelled)
        stream.flush()
    finally:
        stream.detach()  # closing is not ours to do
