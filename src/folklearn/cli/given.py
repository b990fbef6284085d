"""Files of predictions as they are read: probabilities of the classes, whoever wrote them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from folklearn.arrays import Array, Labels
from folklearn.cli.inputs import STDIN
from folklearn.cli.predictions import LABEL, OF_CLASS, UNSEEN
from folklearn.cli.whole import Whole, in_order
from folklearn.errors import FolklearnError
from folklearn.metrics.scores import MIN_PROBABILITY, ROW_SUM_TOLERANCE
from folklearn.readers.convert import Kind
from folklearn.readers.open import open_reader
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.table import TextColumn
from folklearn.utils import listed

_LARGEST_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits


@dataclass(frozen=True)
class Given:
    """The predictions of a file: P (T, K), its classes, and what had to be done to them."""

    name: str
    labels: tuple[str, ...]
    P: Array
    true: Sequence[str | None]  # what the file itself says of the labels, or empty
    n_rounded: int
    unseen: bool  # whether it had a column of classes never seen

    @property
    def clipped(self) -> Array:
        """The same, a probability of 0 counted as the floor: sums stay within the tolerance."""
        return np.maximum(self.P, MIN_PROBABILITY)

    def check_same_rows(self, start: int, y: Labels) -> None:
        """Raise unless the labels y, of rows from `start` on, are those that the file names."""
        for place, true in enumerate(self.true[start : start + len(y)]):
            label = self.labels[y[place]]
            if true != label:
                raise FolklearnError(
                    f"row {start + place + 1} has the label {label!r}, but {self.name} says "
                    f"{true!r}: its rows are not those of this table, in order"
                )

    def notes(self, y: Labels) -> Iterator[str]:
        """Yield what had to be done to the predictions of labels y (T,)."""
        low = np.flatnonzero(self.P[np.arange(len(y)), y] < MIN_PROBABILITY)
        if low.size:
            yield (
                f"In {low.size} rounds, first in row {low[0] + 1}, the label was given less than "
                f"{MIN_PROBABILITY:g}, which was counted as {MIN_PROBABILITY:g}; given 0, the log "
                "loss is infinite."
            )
        if self.unseen:
            yield (
                f"The column {UNSEEN} was left out, the other probabilities divided by their sum: "
                "the price of not knowing a class is not in these numbers."
            )
        if self.n_rounded:
            yield (
                f"{self.n_rounded} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and were "
                "divided by their sum."
            )


def read(path: str, whole: Whole) -> Given:
    """Read a whole file of predictions; refuse it unless it fits the rows."""
    reader = _opened(path)
    columns = _columns(path, reader.names, whole)
    P, true = _cells(path, reader, columns)
    if len(P) == whole.n_rows + whole.n_unlabelled and whole.n_unlabelled:
        there = whole.has_label()
        P, true = P[there], [label for label, known in zip(true, there, strict=False) if known]
    if len(P) != whole.n_rows:
        raise FolklearnError(
            f"{path} has {len(P)} rows of predictions, and {whole.name} has {whole.n_rows} with a "
            "label; expected one for every row, in the same order"
        )
    return _given(path, columns, P, true)


def classes_in(path: str, whole: Whole) -> tuple[str, ...]:
    """Return the classes that a file of predictions is about, in order."""
    return in_order(_columns(path, _opened(path).names, whole))


def are_predictions(path: str) -> bool:
    """Tell whether a file holds labels beside what was predicted, as `folklearn run` writes it."""
    names = _opened(path).names if path.endswith(".csv") else []
    return LABEL in names and any(name.startswith(OF_CLASS) for name in names)


def read_alone(path: str) -> tuple[Given, Labels]:
    """Read predictions that have their labels beside them; rows without a label are left out."""
    reader = _opened(path)
    columns = _of_classes(reader.names)
    P, true = _cells(path, reader, columns)
    numbers = {label: k for k, label in enumerate(in_order(columns))}
    new = [label for label in true if label is not None and label not in numbers]
    if new:
        raise FolklearnError(f"{path} has the label {new[0]!r}, and no column of its probability")
    there = [label is not None for label in true]
    known = [label for label in true if label is not None]
    y = np.array([numbers[label] for label in known], np.int64)
    if not len(y):
        raise FolklearnError(f"{path} has no row with a label")
    return _given(path, columns, P[there], known), y


def _opened(path: str) -> Reader:
    if os.path.isdir(path):
        raise FolklearnError(f"{path} is a folder, not a CSV file")
    if path == STDIN:
        raise FolklearnError("--predictions must be a file, not standard input")
    return open_reader(path, format="csv")


def _has_unseen(names: Sequence[str], columns: Mapping[str, str]) -> bool:
    return UNSEEN in names and UNSEEN not in columns.values()


def _cells(path: str, reader: Reader, columns: Mapping[str, str]) -> tuple[Array, list[str | None]]:
    """Return probabilities of the classes, and of one never seen if it is there; and labels."""
    names = [columns[label] for label in in_order(columns)]
    names += [UNSEEN] * _has_unseen(reader.names, columns)
    kinds: dict[str, Kind] = dict.fromkeys(names, "number")
    if LABEL in reader.names and LABEL not in names:
        kinds[LABEL] = "text"
    rows: list[Array] = []
    true: list[str | None] = []
    try:
        for block in reader.read(kinds):
            cells: Mapping[str, Array] = block.columns  # type: ignore[assignment]
            rows.append(np.column_stack([cells[name] for name in names]))
            _check_probabilities(rows[-1], block.lines, names, path)
            given = block.columns.get(LABEL)
            true += given.to_list() if isinstance(given, TextColumn) else []
    except BadRow as bad:
        where = f", column {bad.column!r}" if bad.column else ""
        raise FolklearnError(f"line {bad.line} of {path}{where}: {bad.reason}") from None
    return np.concatenate([np.empty((0, len(names))), *rows]), true


def _given(path: str, columns: Mapping[str, str], P: Array, true: Sequence[str | None]) -> Given:
    """Return probabilities of the classes that sum to 1."""
    unseen = P.shape[1] > len(columns)
    if unseen:
        P, unseen = P[:, :-1], bool(P[:, -1].any())
        if not (P.sum(axis=1) > 0.0).all():
            place = int(np.argmin(P.sum(axis=1) > 0.0))
            raise FolklearnError(
                f"{path}, row {place + 1}: no class but an unseen one has a probability"
            )
        P = P / P.sum(axis=1, keepdims=True)
    totals = P.sum(axis=1, keepdims=True)
    # Half of what is tolerated later: another order of summing must not decide.
    far = np.abs(totals - 1.0) > 0.5 * ROW_SUM_TOLERANCE
    P = np.where(far, P / totals, P)
    return Given(path, in_order(columns), P, true, int(far.sum()), unseen)


def _of_classes(names: Sequence[str]) -> dict[str, str]:
    """Return the columns that are named p:label, by label."""
    return {name.removeprefix(OF_CLASS): name for name in names if name.startswith(OF_CLASS)}


def _columns(path: str, names: Sequence[str], whole: Whole) -> dict[str, str]:
    """Return the column of every class: p:label or p(label) if there is one, else plain labels.

    A class that has such a column but never occurs is a class like any other.
    """
    columns = _of_classes(names) or {
        name[2:-1].strip(): name for name in names if name.startswith("p(") and name.endswith(")")
    }
    wrapped = bool(columns)
    columns = columns or {name: name for name in names if name}  # pandas leaves its index unnamed
    missing = [label for label in whole.labels if label not in columns]
    if missing:
        raise FolklearnError(
            f"{path} has no column for the label {missing[0]!r} of column {whole.target!r} "
            f"({whole.unit} {whole.first_lines[missing[0]]} of {whole.name}); name it "
            f"{missing[0]!r} or {f'{OF_CLASS}{missing[0]}'!r}; its columns are: {listed(names)}"
        )
    extra = [name for name in columns if name not in whole.labels]
    if extra and not wrapped:
        raise FolklearnError(
            f"{path} has the column {extra[0]!r}, which is no label of column {whole.target!r} "
            f"of {whole.name}; if there are other columns than probabilities, name those "
            f"{OF_CLASS}label"
        )
    return columns


def _check_probabilities(P: Array, lines: Labels, names: Sequence[str], path: str) -> None:
    """Raise for the first cell that is not a probability, or the first row of another sum."""
    bad = np.argwhere(~((P >= 0.0) & (P <= 1.0 + _LARGEST_ROUNDING)))
    if len(bad):
        row, column = bad[0].tolist()
        value = P[row, column]
        what = "there is no value" if np.isnan(value) else f"{value:g} is not from 0 to 1"
        raise FolklearnError(f"line {lines[row]} of {path}, column {names[column]!r}: {what}")
    totals = P.sum(axis=1)
    far = np.flatnonzero(np.abs(totals - 1.0) > _LARGEST_ROUNDING)
    if far.size:
        raise FolklearnError(
            f"line {lines[far[0]]} of {path}: the probabilities sum to {totals[far[0]]:.6g}; "
            f"expected 1, up to rounding of {_LARGEST_ROUNDING:g}"
        )
