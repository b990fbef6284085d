"""A labelled file as batches of standardised rows and class numbers, read any number of times."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np
from rich.console import Console

from folklearn.arrays import Array, Labels
from folklearn.cli import text
from folklearn.cli.display import progress_bar
from folklearn.cli.options import Source
from folklearn.errors import FolklearnError
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.evidence.certificate import Certificate
from folklearn.model.dataset import Dataset, LabelledTable
from folklearn.model.encoder import MOST_OWN, EncodedBatch, Key, TableEncoder
from folklearn.model.hindsight import is_regression_affordable
from folklearn.model.model import Model
from folklearn.model.roles import CATEGORY, WORDS
from folklearn.model.stream_evidence import DEFAULT_B, class_in_words
from folklearn.readers.memory import TableReader
from folklearn.readers.reader import BadRow
from folklearn.readers.table import Table
from folklearn.scaler import FixedScaler, Moments

C = TypeVar("C", bound=Certificate)


class LabelledFile:
    """Rows of a file with their labels.

    TableEncoder are encoded as by a model. A source that can be read once is held in memory. Rows
    without a label are left out.

    Parameters
    ----------
    command : name of the command, for messages.
    source : where the rows are.
    roles : of columns whose role is not to be inferred.
    """

    def __init__(
        self, console: Console, command: str, source: Source, roles: Mapping[str, str]
    ) -> None:
        reader, target = source.open()
        self._command = command
        with _without_way_out():
            self.feed = Dataset(Model(roles=roles), TableReader.buffer(reader), target, dense=True)
            self._check_words()
            with progress_bar(console, "checking", reader.n_rows) as report:
                self.feed.begin(report)
        scan, model = self.feed.scan, self.feed.model
        assert scan is not None
        assert model.encoder is not None
        self.name, self.target = reader.name, self.feed.target or ""
        self.first_lines, self.unit = scan.first_lines, reader.unit
        self.labels = sort_labels(scan.labels)
        check_two_classes(self.labels, self.feed)
        self.n_rows, self.n_unlabelled = scan.n_rows - scan.n_unlabelled, scan.n_unlabelled
        self._columns = model.encoder
        if scan.largest_weight is not None:
            self._check_weights()
        many = [name for name, values in scan.values.items() if len(values) > MOST_OWN]
        if any(model.encoder.roles.get(name) == CATEGORY for name in many):
            for rows in self._rows():  # columns that rare categories share
                self._columns.admit(self._columns.encode(rows.table))
        self.n_inputs = max(1, len(self._columns.keys))
        self._scaler: FixedScaler | None = None

    def _check_words(self) -> None:
        for name, role in self.feed.roles.items():
            if role == WORDS:
                raise FolklearnError(
                    f"column {name!r} holds words, and folklearn {self._command} takes none: leave "
                    f"it out (--drop {shlex.quote(name)}), or take every text as one category "
                    f"(--role {shlex.quote(f'{name}=category')}); folklearn run learns words"
                )

    def _check_weights(self) -> None:
        for rows in self._rows():
            weighted = np.flatnonzero(rows.weights != 1.0)
            if weighted.size:
                line = rows.table.lines[weighted[0]]
                raise FolklearnError(
                    f"{self.unit} {line} of {self.name} has a weight, and folklearn "
                    f"{self._command} takes none: leave the weights out; folklearn run learns "
                    "with them"
                )

    def _rows(self) -> Iterator[LabelledTable]:
        return self.feed.rows(doubling=False)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The encoded columns, without the constant."""
        return tuple(self._columns.keys)

    def set_columns(self, keys: Sequence[Key], moments: Moments | None = None) -> None:
        """Encode these columns, in this order, standardised by moments of the rows of all files."""
        self._columns = TableEncoder(self._columns.roles)
        self._columns.admit(EncodedBatch(None, keys))
        self.n_inputs = max(1, len(keys))
        self._scaler = None if moments is None else self._make_scaler(moments)

    @property
    def scaler(self) -> FixedScaler:
        """The scaler of numbers, fitted to all rows in a pass."""
        if self._scaler is None:
            self._scaler = self._make_scaler(self.moments())
        return self._scaler

    def _make_scaler(self, moments: Moments) -> FixedScaler:
        numeric = self._columns.are_numbers(EncodedBatch(None, self._columns.keys)) or [True]
        return FixedScaler().opened(moments, numeric)

    def moments(self) -> Moments:
        """Return the moments of the columns over all rows with a label."""
        tables = (rows.table.take(rows.has_label) for rows in self._rows())
        return reduce(Moments.merged, (Moments.of(self._encode(table)) for table in tables))

    def _encode(self, table: Table) -> Array:
        X: Array = self._columns.known(self._columns.encode(table).X)
        return X

    def scale_norm(self, B: float | None) -> float:
        """Return a norm per standard deviation as one for scaled rows; 10 for None."""
        return DEFAULT_B if B is None else B / self.scaler.unit

    def describe_certificate(self, certificate: C, by: str = "all rows") -> C:
        """Return a certificate about scaled rows as one about the columns."""
        norm = certificate.B * self.scaler.unit
        return replace(certificate, B=norm, models=self.describe_models(norm, by))

    def describe_models(self, norm: float, by: str = "all rows") -> str:
        """Return the linear models of a norm per standard deviation, in words."""
        return class_in_words(self._columns.in_words.format(by=by), norm)

    def regression(self, labels: Sequence[str]) -> Regression | None:
        """Return the logistic regression of all rows, None if there are too many weights."""
        K = len(labels)
        if not is_regression_affordable(K * (self.n_inputs + 1), 8 * self.n_rows * self.n_inputs):
            return None
        X, y = self.matrix(labels)
        fitted = logistic_regression(X / self.scaler.unit, y, n_classes=K, constant=0)
        columns = self._columns.in_words.format(by="all rows")
        return replace(fitted, features=f"the columns ({columns})")

    def has_label(self) -> Array:
        """Return which rows have a label."""
        return np.concatenate([rows.has_label for rows in self._rows()])

    def batches(self, labels: Iterable[str]) -> Iterator[tuple[Array, Labels]]:
        """Yield rows X (T, 1 + d), a constant and standardised columns, and class numbers y (T,).

        Classes are numbered in the order of `labels`.
        """
        numbers = {label: k for k, label in enumerate(labels)}
        order = np.array([numbers[label] for label in self.feed.model.labels])
        for rows in self._rows():
            y = order[self.feed.model.label_encoder.find_known(rows.labels)]
            yield self.scaler.transform(self._encode(rows.table.take(rows.has_label))), y

    def matrix(self, labels: Iterable[str]) -> tuple[Array, Labels]:
        """Return all `batches` as one."""
        Xs, ys = zip(*self.batches(labels), strict=True)
        return np.concatenate(Xs), np.concatenate(ys)

    def describe(self, *lines: tuple[str, str], labels: Sequence[str] = ()) -> str:
        """Return source, classes and columns, then further lines of a name and a text each."""
        scan, roles = self.feed.scan, self.feed.roles
        assert scan is not None
        fields = [
            ("data", text.describe_source(self.feed.reader, scan.n_rows)),
            ("predicted", f"{self.target}, {text.describe_classes(labels or self.labels)}"),
            *text.describe_columns(roles, self.feed.reader.names),
            *text.describe_missing(scan.missing, roles),
        ]
        if self.n_unlabelled:
            fields.append(("no label", f"{self.n_unlabelled} rows, which are left out"))
        return text.format_fields(*fields, *lines)


@contextmanager
def _without_way_out() -> Iterator[None]:
    """Raise a bad row without the option to skip it, which these commands do not have."""
    try:
        yield
    except BadRow as bad:
        raise FolklearnError(bad.sentence) from None


def check_two_classes(labels: Sequence[object], feed: Dataset) -> None:
    """Raise if the target of a source has less than two labels."""
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no label"
        raise FolklearnError(
            f"column {feed.target!r} of {feed.reader.name} has {only}; learning needs at least two "
            "classes"
        )


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels: by value if all of them are numbers, else as text.

    >>> sort_labels(["10", "9", "-1"]), sort_labels(["10", "9", "b"])
    (('-1', '9', '10'), ('10', '9', 'b'))
    """
    labels = list(labels)
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return tuple(sorted(labels))
    if not all(map(math.isfinite, values)):
        return tuple(sorted(labels))
    return tuple(label for _, label in sorted(zip(values, labels, strict=True)))
