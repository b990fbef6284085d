"""CSV files of predictions: written by `run` and `predict`, read by `audit` and `report`."""

import csv
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from folklearn.arrays import Array, Labels
from folklearn.cli.labelled_file import LabelledFile, sort_labels
from folklearn.cli.options import STDIN
from folklearn.errors import FolklearnError
from folklearn.metrics.scores import MIN_PROBABILITY, ROW_SUM_TOLERANCE
from folklearn.model.batch import BatchResult
from folklearn.model.dataset import Dataset, LabelledTable
from folklearn.model.roles import ID
from folklearn.readers.convert import Kind
from folklearn.readers.open import open_reader
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.table import TextColumn
from folklearn.utils import join_names

CLASS_PREFIX = "p:"  # of the column with the probability of a class
UNSEEN = "unseen"
LABEL = "label"
_MAX_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits


class PredictionWriter:
    """Write predictions as CSV; numbers are written so that they read back equal.

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
        names = ["row", LABEL, "predicted", "probability", "p_label", UNSEEN]
        names += [f"{CLASS_PREFIX}{label}" for label in feed.model.labels]
        ids = [f"id:{name}" if name in names else name or "id:" for name in self._ids]
        hidden = () if labelled else (LABEL, "p_label")
        self._writer.writerow([names[0], *ids, *(name for name in names[1:] if name not in hidden)])
        self._flush_if_live()

    def write(self, rows: LabelledTable, step: BatchResult) -> None:
        """Write rows with their predictions."""
        labels, n_rows = self._model.labels, len(rows.table)
        best, highest = np.zeros(n_rows, np.int64), np.zeros(n_rows)
        if step.P.shape[1]:
            best = step.P.argmax(axis=1)
            highest = step.P[np.arange(n_rows), best]
        predicted = [labels[k] if p > 0.0 else "" for k, p in zip(best, highest, strict=True)]
        columns: list[Sequence[Any]] = [rows.table.lines.tolist()]
        columns += [rows.ids.get(name, [None] * n_rows) for name in self._ids]
        if self._labelled:
            is_text = isinstance(rows.labels, TextColumn)
            values = rows.labels.to_list() if is_text else list(rows.labels)
            columns.append(_fill_unlabelled(values, rows))
        columns += [predicted, highest.tolist()]
        if self._labelled:
            columns.append(_fill_unlabelled(np.exp(-step.losses[rows.has_label]).tolist(), rows))
        columns += [step.unseen.tolist(), *step.P[:, : self._n_classes].T.tolist()]
        self._writer.writerows(zip(*columns, strict=True))
        self._flush_if_live()

    def _flush_if_live(self) -> None:
        if self._is_live:
            self._file.flush()


def _fill_unlabelled(values: Sequence[Any], rows: LabelledTable) -> list[Any]:
    """Return values of the rows that have a label, and "" for the others."""
    remaining = iter(values)
    return [next(remaining) if has_label else "" for has_label in rows.has_label.tolist()]


@contextmanager
def open_writer(
    name: str | None, path: Path | None, feed: Dataset, *, labelled: bool = True
) -> Iterator[PredictionWriter | None]:
    """Yield a writer to a path, to standard output if that is None; None without a name."""
    if name is None:
        yield None
        return
    if path is not None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield PredictionWriter(file, feed, labelled=labelled)
        return
    if sys.stdout is None:  # the calling process closed it
        raise FolklearnError("standard output is closed: name a file for the predictions")
    stream = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
    try:
        yield PredictionWriter(stream, feed, labelled=labelled)
        stream.flush()
    finally:
        stream.detach()  # standard output stays open


@dataclass(frozen=True)
class PredictionsFile:
    """The predictions in a file: P (T, K), their classes, and how they were adjusted.

    Attributes
    ----------
    true : the labels in the file, or empty.
    n_rounded : rows that were divided by their sum.
    has_unseen : whether a column of the probability of unseen classes was left out.
    """

    name: str
    labels: tuple[str, ...]
    P: Array
    true: Sequence[str | None]
    n_rounded: int
    has_unseen: bool

    @property
    def clipped(self) -> Array:
        """P clipped below, so that no loss is infinite: sums stay within the tolerance."""
        return np.maximum(self.P, MIN_PROBABILITY)

    def check_same_rows(self, start: int, y: Labels) -> None:
        """Raise unless the labels y, of rows from `start` on, are those in the file."""
        for i, true in enumerate(self.true[start : start + len(y)]):
            label = self.labels[y[i]]
            if true != label:
                raise FolklearnError(
                    f"row {start + i + 1} has the label {label!r}, but {self.name} says "
                    f"{true!r}: its rows are not those of this table, in order"
                )

    def notes(self, y: Labels) -> Iterator[str]:
        """Yield how predictions of labels y (T,) were adjusted."""
        low = np.flatnonzero(self.P[np.arange(len(y)), y] < MIN_PROBABILITY)
        if low.size:
            yield (
                f"In {low.size} rounds, first in row {low[0] + 1}, the label was given less than "
                f"{MIN_PROBABILITY:g}, which was counted as {MIN_PROBABILITY:g}; given 0, the log "
                "loss is infinite."
            )
        if self.has_unseen:
            yield (
                f"The column {UNSEEN} was left out, the other probabilities divided by their sum: "
                "the price of not knowing a class is not in these numbers."
            )
        if self.n_rounded:
            yield (
                f"{self.n_rounded} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and were "
                "divided by their sum."
            )


def read_predictions(path: str, file: LabelledFile) -> PredictionsFile:
    """Read a file of predictions; raise unless it fits the rows of a labelled file."""
    reader = _open(path)
    columns = _class_columns(path, reader.names, file)
    P, true = _read_cells(path, reader, columns)
    if len(P) == file.n_rows + file.n_unlabelled and file.n_unlabelled:
        has_label = file.has_label()
        P = P[has_label]
        true = [label for label, is_kept in zip(true, has_label, strict=False) if is_kept]
    if len(P) != file.n_rows:
        raise FolklearnError(
            f"{path} has {len(P)} rows of predictions, and {file.name} has {file.n_rows} with a "
            "label; expected one for every row, in the same order"
        )
    return _normalise(path, columns, P, true)


def read_classes_of_predictions(path: str, file: LabelledFile) -> tuple[str, ...]:
    """Return the sorted classes of a file of predictions."""
    return sort_labels(_class_columns(path, _open(path).names, file))


def has_predictions(path: str) -> bool:
    """Return whether a file holds labels and their predictions, as `folklearn run` writes it."""
    names = _open(path).names if path.endswith(".csv") else []
    return LABEL in names and bool(_prefixed_columns(names))


def read_labelled_predictions(path: str) -> tuple[PredictionsFile, Labels]:
    """Read predictions and labels y (T,) of one file; rows without a label are left out."""
    reader = _open(path)
    columns = _prefixed_columns(reader.names)
    P, true = _read_cells(path, reader, columns)
    numbers = {label: k for k, label in enumerate(sort_labels(columns))}
    labels = [label for label in true if label is not None]
    for label in labels:
        if label not in numbers:
            raise FolklearnError(
                f"{path} has the label {label!r}, and no column of its probability"
            )
    if not labels:
        raise FolklearnError(f"{path} has no row with a label")
    y = np.array([numbers[label] for label in labels], np.int64)
    return _normalise(path, columns, P[[label is not None for label in true]], labels), y


def _open(path: str) -> Reader:
    if os.path.isdir(path):
        raise FolklearnError(f"{path} is a folder, not a CSV file")
    if path == STDIN:
        raise FolklearnError("--predictions must be a file, not standard input")
    return open_reader(path, format="csv")


def _read_cells(
    path: str, reader: Reader, columns: Mapping[str, str]
) -> tuple[Array, list[str | None]]:
    """Return probabilities of the classes, and of unseen ones if there is a column; and labels."""
    names = [columns[label] for label in sort_labels(columns)]
    if UNSEEN in reader.names and UNSEEN not in names:
        names.append(UNSEEN)
    kinds: dict[str, Kind] = dict.fromkeys(names, "number")
    if LABEL in reader.names and LABEL not in names:
        kinds[LABEL] = "text"
    tables: list[Array] = []
    true: list[str | None] = []
    try:
        for table in reader.read(kinds):
            cells: Mapping[str, Array] = table.columns  # type: ignore[assignment]
            tables.append(np.column_stack([cells[name] for name in names]))
            _check_probabilities(tables[-1], table.lines, names, path)
            labels = table.columns.get(LABEL)
            true += labels.to_list() if isinstance(labels, TextColumn) else []
    except BadRow as bad:
        where = f", column {bad.column!r}" if bad.column else ""
        raise FolklearnError(f"line {bad.line} of {path}{where}: {bad.reason}") from None
    return np.concatenate([np.empty((0, len(names))), *tables]), true


def _normalise(
    path: str, columns: Mapping[str, str], P: Array, true: Sequence[str | None]
) -> PredictionsFile:
    """Return probabilities that sum to 1, without those of unseen classes."""
    has_unseen = P.shape[1] > len(columns)
    if has_unseen:
        P, has_unseen = P[:, :-1], bool(P[:, -1].any())
        totals = P.sum(axis=1, keepdims=True)
        if not (totals > 0.0).all():
            raise FolklearnError(
                f"{path}, row {int(np.argmin(totals > 0.0)) + 1}: no class but an unseen one has a "
                "probability"
            )
        P = P / totals
    totals = P.sum(axis=1, keepdims=True)
    # Half of what is tolerated later: another order of summing must not decide.
    is_far = np.abs(totals - 1.0) > 0.5 * ROW_SUM_TOLERANCE
    P = np.where(is_far, P / totals, P)
    return PredictionsFile(path, sort_labels(columns), P, true, int(is_far.sum()), has_unseen)


def _prefixed_columns(names: Sequence[str]) -> dict[str, str]:
    """Return the columns that are named p:label, by label."""
    prefixed = [name for name in names if name.startswith(CLASS_PREFIX)]
    return {name.removeprefix(CLASS_PREFIX): name for name in prefixed}


def _class_columns(path: str, names: Sequence[str], file: LabelledFile) -> dict[str, str]:
    """Return the column of every class: p:label or p(label) if there is one, else plain labels.

    A class that has such a column but never occurs is a class like any other.
    """
    columns = _prefixed_columns(names) or {
        name[2:-1].strip(): name for name in names if name.startswith("p(") and name.endswith(")")
    }
    is_marked = bool(columns)
    columns = columns or {name: name for name in names if name}  # pandas leaves its index unnamed
    missing = [label for label in file.labels if label not in columns]
    if missing:
        raise FolklearnError(
            f"{path} has no column for the label {missing[0]!r} of column {file.target!r} "
            f"({file.unit} {file.first_lines[missing[0]]} of {file.name}); name it "
            f"{missing[0]!r} or {f'{CLASS_PREFIX}{missing[0]}'!r}; "
            f"its columns are: {join_names(names)}"
        )
    extra = [name for name in columns if name not in file.labels]
    if extra and not is_marked:
        raise FolklearnError(
            f"{path} has the column {extra[0]!r}, which is no label of column {file.target!r} "
            f"of {file.name}; if there are other columns than probabilities, name those "
            f"{CLASS_PREFIX}label"
        )
    return columns


def _check_probabilities(P: Array, lines: Labels, names: Sequence[str], path: str) -> None:
    """Raise for the first cell that is not a probability, or the first row of another sum."""
    bad = np.argwhere(~((P >= 0.0) & (P <= 1.0 + _MAX_ROUNDING)))
    if len(bad):
        row, column = bad[0].tolist()
        value = P[row, column]
        what = "there is no value" if np.isnan(value) else f"{value:g} is not from 0 to 1"
        raise FolklearnError(f"line {lines[row]} of {path}, column {names[column]!r}: {what}")
    totals = P.sum(axis=1)
    far = np.flatnonzero(np.abs(totals - 1.0) > _MAX_ROUNDING)
    if far.size:
        raise FolklearnError(
            f"line {lines[far[0]]} of {path}: the probabilities sum to {totals[far[0]]:.6g}; "
            f"expected 1, up to rounding of {_MAX_ROUNDING:g}"
        )
