"""Files of predictions: one line a row, in one format, whatever is known of the classes."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from folklearn.errors import FolklearnError
from folklearn.model.dataset import Dataset, LabelledTable
from folklearn.model.model import BatchResult
from folklearn.model.roles import ID
from folklearn.readers.table import TextColumn

OF_CLASS = "p:"  # before a class: the column of its probability
UNSEEN = "unseen"
LABEL = "label"


class PredictionWriter:
    """Writes predictions as CSV; numbers are written so that they read back equal.

    The columns: `row`, the line that it came from; ids; `label`, if there are labels, empty for
    a row that has none; `predicted`, and its `probability`; `p_label`, the probability that the
    label was given; `unseen`, that of a class never seen; and `p:` of every class that is known
    when the first row is written.
    """

    def __init__(self, file: TextIO, feed: Dataset, *, labelled: bool) -> None:
        self._file, self._model, self._labelled = file, feed.model, labelled
        self._is_live = feed.reader.is_live
        self._ids = [name for name in feed.kinds if feed.roles[name] == ID]
        self._n_classes = len(feed.model.labels)
        self._writer = csv.writer(file, lineterminator="\n")
        own = ["row", LABEL, "predicted", "probability", "p_label", UNSEEN]
        own += [f"{OF_CLASS}{label}" for label in feed.model.labels]
        ids = [f"id:{name}" if name in own else name or "id:" for name in self._ids]
        hidden = () if labelled else (LABEL, "p_label")
        self._writer.writerow([own[0], *ids, *(name for name in own[1:] if name not in hidden)])
        self._show()

    def write(self, rows: LabelledTable, step: BatchResult) -> None:
        """Write rows with what was predicted for them."""
        labels, n_rows = self._model.labels, len(rows.block)
        best, most = np.zeros(n_rows, np.int64), np.zeros(n_rows)
        if step.P.shape[1]:
            best = step.P.argmax(axis=1)
            most = step.P[np.arange(n_rows), best]
        predicted = [labels[k] if p > 0.0 else "" for k, p in zip(best, most, strict=True)]
        columns: list[Sequence[Any]] = [rows.block.lines.tolist()]
        columns += [rows.ids.get(name, [None] * n_rows) for name in self._ids]
        if self._labelled:
            columns.append(_spread(_listed(rows.labels), rows))
        columns += [predicted, most.tolist()]
        if self._labelled:
            columns.append(_spread(np.exp(-step.losses[rows.has_label]).tolist(), rows))
        columns += [step.unseen.tolist(), *step.P[:, : self._n_classes].T.tolist()]
        self._writer.writerows(zip(*columns, strict=True))
        self._show()

    def _show(self) -> None:
        if self._is_live:
            self._file.flush()  # whoever waits for an answer gets it now


def _listed(labels: Any) -> list[Any]:
    return labels.to_list() if isinstance(labels, TextColumn) else list(labels)


def _spread(values: Sequence[Any], rows: LabelledTable) -> list[Any]:
    """Return values of the rows that have a label, and nothing for the others."""
    coming = iter(values)
    return [next(coming) if there else "" for there in rows.has_label.tolist()]


@contextmanager
def writer_to(
    name: str | None, path: Path | None, feed: Dataset, *, labelled: bool = True
) -> Iterator[PredictionWriter | None]:
    """Yield a writer to a path, to standard output if there is none; nothing without a name."""
    if name is None:
        yield None
        return
    if path is not None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield PredictionWriter(file, feed, labelled=labelled)
        return
    if sys.stdout is None:  # whoever called closed it
        raise FolklearnError("standard output is closed: name a file for the predictions")
    stream = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
    try:
        yield PredictionWriter(stream, feed, labelled=labelled)
        stream.flush()
    finally:
        stream.detach()  # closing is not ours to do
