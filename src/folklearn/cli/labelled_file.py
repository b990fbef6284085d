"""Labelled files as batches of standardised rows, and files of predictions of such rows."""

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import compress
from operator import add
from typing import Self

import numpy as np
from rich.console import Console

import folklearn
from folklearn.arrays import Array, Labels
from folklearn.cli.display import describe_classes, describe_run, format_fields, progress_bar
from folklearn.cli.options import STDIN, Source
from folklearn.errors import FolklearnError
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.metrics.scores import MIN_PROBABILITY, ROW_SUM_TOLERANCE
from folklearn.model.batch import MOST_OWN
from folklearn.model.dataset import ModelDataset
from folklearn.model.encoder import TableEncoder
from folklearn.model.model import Model
from folklearn.model.refit import is_regression_affordable
from folklearn.model.roles import CATEGORY, LEARNED, WORDS
from folklearn.readers.convert import Kind
from folklearn.readers.open import open_reader
from folklearn.readers.reader import BadRow
from folklearn.readers.table import TextColumn
from folklearn.scaler import FixedScaler, Moments
from folklearn.utils import count_of, join_names

# Columns of a file of predictions: the probability of a class, of one never seen, and the label.
CLASS_PREFIX, UNSEEN, LABEL = "p:", "unseen", "label"
_MAX_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits


class LabelledFile:
    """Rows of a file with their labels, encoded as by a model; those without one are left out.

    A source that can be read once is held in memory. `command` is for messages. The classes,
    `labels`, are in the order of their numbers, and may be set to others that include them.
    """

    def __init__(
        self, console: Console, command: str, source: Source, roles: Mapping[str, str]
    ) -> None:
        reader, target = source.open(buffered=True)
        try:
            self.dataset = ModelDataset(Model(roles=roles), reader, target, dense=True)
            _check_words(self.dataset, command)
            with progress_bar(console, "checking", reader.n_rows) as report:
                self.dataset.begin(report)
        except BadRow as bad:  # these commands have no option to skip it
            raise FolklearnError(bad.sentence) from None
        scan, encoder = self.dataset.scan, self.dataset.model.encoder
        assert scan is not None
        assert encoder is not None
        self.name, self.unit, self.target = reader.name, reader.unit, self.dataset.target or ""
        self.first_lines, self.labels = scan.first_lines, sort_labels(scan.labels)
        check_two_classes(self.labels, self.dataset)
        self.n_rows, self.n_unlabelled = scan.n_rows - scan.n_unlabelled, scan.n_unlabelled
        if scan.largest_weight is not None:
            raise FolklearnError(
                f"{self.name} has weights, and folklearn {command} takes none: leave them out; "
                "folklearn run learns with them"
            )
        self.encoder = encoder
        many = [name for name, values in scan.values.items() if len(values) > MOST_OWN]
        if any(encoder.roles.get(name) == CATEGORY for name in many):
            for rows in self.dataset.rows():  # columns that rare categories share
                batch = encoder.encode(rows.table)
                encoder.admit(batch.keys, batch.roles)

    def __str__(self) -> str:
        return self.name

    @property
    def n_inputs(self) -> int:
        return max(1, len(self.encoder.keys))  # without the constant

    @cached_property
    def scaler(self) -> FixedScaler:
        return _fit_scaler(self.encoder, [self])

    def describe_columns(self, by: str = "all rows") -> str:
        """Return in words what linear models of these rows are linear in."""
        return f"the columns ({self.encoder.in_words.format(by=by)})"

    def regression(self) -> Regression | None:
        K = len(self.labels)
        if not is_regression_affordable(K * (self.n_inputs + 1), 8 * self.n_rows * self.n_inputs):
            return None
        X, y = self.matrix()
        fitted = logistic_regression(X, y, n_classes=K, constant=0)
        return replace(fitted, features=self.describe_columns())

    def term_regression(self) -> Regression:
        """Return the regression of the columns and their terms, chosen by all rows."""
        X, y = self.matrix()
        terms = folklearn.Terms()
        Z = np.hstack([X[:, :1], terms.fit_transform(X[:, 1:], y)])
        fitted = logistic_regression(Z, y, n_classes=len(self.labels), constant=0, tol=1e-4)
        words = f"{self.describe_columns()} and {count_of(len(terms.terms_), 'term')} of them"
        return replace(fitted, features=words)

    def batches(self) -> Iterator[tuple[Array, Labels]]:
        """Yield rows X (T, 1 + d), a constant and standardised columns, and class numbers y.

        A batch ends where the number of rows doubles.
        """
        model = self.dataset.model
        order = np.array([self.labels.index(label) for label in model.labels])
        for rows in self.dataset.rows(0):
            y = order[model.label_encoder.find_known(rows.labels)]
            X = self.encoder.encode_known(rows.table.take(rows.has_label))
            yield self.scaler.transform(X), y

    def matrix(self) -> tuple[Array, Labels]:
        Xs, ys = zip(*self.batches(), strict=True)
        return np.concatenate(Xs), np.concatenate(ys)

    def describe(self, **lines: str) -> str:
        fields = describe_run(self.dataset)
        fields["predicted"] = f"{self.target}, {describe_classes(self.labels)}"
        if self.n_unlabelled:
            fields["no label"] = f"{count_of(self.n_unlabelled, 'row')}, which are left out"
        return format_fields(fields | lines)


def _fit_scaler(encoder: TableEncoder, files: Iterable[LabelledFile]) -> FixedScaler:
    parts = (rows.table.take(rows.has_label) for file in files for rows in file.dataset.rows())
    moments = reduce(add, (Moments.of(encoder.encode_known(table)) for table in parts))
    return FixedScaler().opened(moments, encoder.are_numbers(encoder.keys) or [True])


def encode_alike(files: Sequence[LabelledFile]) -> None:
    """Encode and standardise the rows of several files together; raise if columns differ."""
    first, encoder = files[0], TableEncoder()
    for file in files:
        sides = first.dataset.roles, file.dataset.roles
        for name in sides[0] | sides[1]:
            role, other_role = (side.get(name, "not there") for side in sides)
            if role != other_role and {role, other_role} & {*LEARNED}:
                raise FolklearnError(
                    f"column {name!r} is {role} in {first} and {other_role} in {file}; expected "
                    "the same columns: name its role (--role) or leave it out (--drop)"
                )
        new = [key for key in file.encoder.keys if key not in encoder.places]
        for name in (name for name, category in new if category.startswith("#")):
            raise FolklearnError(
                f"column {name!r} of {file} has too many categories for a column of each, as "
                "several files need: leave it out (--drop), or audit one file at a time"
            )
        encoder.admit(new, file.encoder.roles)
    scaler = _fit_scaler(encoder, files)
    for file in files:
        file.encoder, file.scaler = encoder, scaler


def _check_words(dataset: ModelDataset, command: str) -> None:
    for name, role in dataset.roles.items():
        if role == WORDS:
            raise FolklearnError(
                f"column {name!r} holds words, and folklearn {command} takes none: leave "
                f"it out (--drop {shlex.quote(name)}), or take every text as one category "
                f"(--role {shlex.quote(f'{name}=category')}); folklearn run learns words"
            )


def check_two_classes(labels: Sequence[object], dataset: ModelDataset) -> None:
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no label"
        raise FolklearnError(
            f"column {dataset.target!r} of {dataset.reader.name} has {only}; learning needs at "
            "least two classes"
        )


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels: by value if all of them are numbers, else as text.

    >>> sort_labels(["10", "9", "-1"]), sort_labels(["10", "9", "b"])
    (('-1', '9', '10'), ('10', '9', 'b'))
    """
    labels = sorted(labels)
    try:
        are_numbers = all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        are_numbers = False
    return tuple(sorted(labels, key=float) if are_numbers else labels)


class PredictionsFile:
    """A CSV file of predictions of the rows of a labelled file.

    A class that has a column but never occurs is a class like any other. The classes of `file`
    become those of the predictions.

    Attributes
    ----------
    labels : the classes, sorted.
    P : (T, K), of rows with a label, clipped below, so that no loss is infinite.
    """

    def __init__(self, path: str, file: LabelledFile) -> None:
        if os.path.isdir(path):
            raise FolklearnError(f"{path} is a folder, not a CSV file")
        if path == STDIN:
            raise FolklearnError("--predictions must be a file, not standard input")
        self.name, self._file, self._reader = path, file, open_reader(path, format="csv")
        self._columns = _find_columns(path, self._reader.names, file)
        self.labels = file.labels = sort_labels(self._columns)

    def read(self) -> Self:
        """Read the predictions; raise unless there is one for every row."""
        P, true = self._read_cells()
        file, is_kept = self._file, [True] * len(P)
        if len(P) == file.n_rows + file.n_unlabelled:
            is_kept = np.concatenate([rows.has_label for rows in file.dataset.rows()]).tolist()
        P, self._true = P[is_kept], list(compress(true, is_kept))
        if len(P) != file.n_rows:
            raise FolklearnError(
                f"{self.name} has {len(P)} rows of predictions, and {file.name} has {file.n_rows} "
                "with a label; expected one for every row, in the same order"
            )
        P, unseen = np.split(P, [len(self.labels)], axis=1)
        totals = P.sum(axis=1, keepdims=True)
        if not (totals > 0.0).all():
            raise FolklearnError(
                f"{self.name}, row {int(np.argmin(totals > 0.0)) + 1}: no class but an unseen one "
                "has a probability"
            )
        # Half of what is tolerated later: another order of summing must not decide.
        is_far = np.abs(totals - 1.0) > 0.5 * ROW_SUM_TOLERANCE
        self._given = np.where(is_far | bool(unseen.size), P / totals, P)
        self._n_rounded = 0 if unseen.size else int(is_far.sum())
        self._has_unseen = bool(unseen.any())
        self.P = np.maximum(self._given, MIN_PROBABILITY)  # sums stay within the tolerance
        return self

    def _read_cells(self) -> tuple[Array, list[str | None]]:
        """Return probabilities of the classes, and of unseen ones if there are any; and labels."""
        names = [self._columns[label] for label in self.labels]
        names += [name for name in self._reader.names if name == UNSEEN and name not in names]
        kinds: dict[str, Kind] = dict.fromkeys(names, "number")
        if LABEL in self._reader.names:
            kinds.setdefault(LABEL, "text")
        tables: list[Array] = [np.empty((0, len(names)))]
        true: list[str | None] = []
        try:
            for table in self._reader.read(kinds):
                cells: Mapping[str, Array] = table.columns  # type: ignore[assignment]
                tables.append(np.column_stack([cells[name] for name in names]))
                _check_probabilities(tables[-1], table.lines, names, self.name)
                labels = table.columns.get(LABEL)
                true += labels.to_list() if isinstance(labels, TextColumn) else []
        except BadRow as bad:
            where = f", column {bad.column!r}" if bad.column else ""
            raise FolklearnError(f"line {bad.line} of {self.name}{where}: {bad.reason}") from None
        return np.concatenate(tables), true

    def batches(self) -> Iterator[tuple[Array, Labels, Array]]:
        """Yield the rows of the labelled file: X, y and P; raise if labels here are others."""
        start = 0
        for X, y in self._file.batches():
            for i, true in enumerate(self._true[start : start + len(y)]):
                label = self.labels[y[i]]
                if true != label:
                    raise FolklearnError(
                        f"row {start + i + 1} has the label {label!r}, but {self.name} says "
                        f"{true!r}: its rows are not those of this table, in order"
                    )
            yield X, y, self.P[start : start + len(y)]
            start += len(y)

    def notes(self, y: Labels) -> Iterator[str]:
        low = np.flatnonzero(self._given[np.arange(len(y)), y] < MIN_PROBABILITY)
        if low.size:
            yield (
                f"In {low.size} rounds, first in row {low[0] + 1}, the label was given less than "
                f"{MIN_PROBABILITY:g}, which was counted as {MIN_PROBABILITY:g}; given 0, the log "
                "loss is infinite."
            )
        if self._has_unseen:
            yield (
                f"The column {UNSEEN} was left out, the other probabilities divided by their sum: "
                "the price of not knowing a class is not in these numbers."
            )
        if self._n_rounded:
            yield (
                f"{self._n_rounded} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and were "
                "divided by their sum."
            )


def _find_columns(path: str, names: Sequence[str], file: LabelledFile) -> dict[str, str]:
    """Return the column of every class: p:label or p(label) if there is one, else plain labels."""
    prefixed = [name for name in names if name.startswith(CLASS_PREFIX)]
    columns = {name.removeprefix(CLASS_PREFIX): name for name in prefixed} or {
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
