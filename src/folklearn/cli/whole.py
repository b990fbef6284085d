"""A whole labelled file as standardised rows and class numbers, block by block, repeatedly."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np
from rich.console import Console

from folklearn import memory
from folklearn.arrays import Array, Labels
from folklearn.cli import report
from folklearn.cli.display import bar
from folklearn.cli.options import Source
from folklearn.errors import FolklearnError
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.evidence.certificate import Certificate
from folklearn.model.dataset import Dataset, LabelledTable
from folklearn.model.encoder import MOST_OWN, EncodedBatch, Key, TableEncoder
from folklearn.model.hindsight import MOST_WEIGHTS, SHARE_OF_MEMORY
from folklearn.model.model import Model
from folklearn.model.roles import CATEGORY, WORDS
from folklearn.model.run import known_numbers
from folklearn.model.stream_evidence import DEFAULT_B, class_in_words
from folklearn.readers.memory import TableReader
from folklearn.readers.reader import BadRow
from folklearn.readers.table import Table
from folklearn.scaler import FixedScaler, Moments

C = TypeVar("C", bound=Certificate)


class Whole:
    """Rows of a file, `-` for standard input, None for the digits.

    Columns get their roles as in a model: categories have places of their own. What can be read
    only once is stored in memory. Rows without a label are left out.

    Parameters
    ----------
    command : which asks, for messages.
    source : where the rows are.
    roles : of columns whose role is not to be found out.
    """

    def __init__(
        self, console: Console, command: str, source: Source, roles: Mapping[str, str]
    ) -> None:
        reader, target = source.open()
        self._command = command
        with _plainly():
            self.feed = Dataset(Model(roles=roles), TableReader.stored(reader), target, dense=True)
            self._check_words()
            with bar(console, endless=reader.n_rows is None) as progress:
                task = progress.add_task("checking", total=reader.n_rows)
                self.feed.begin(lambda n_rows: progress.update(task, completed=n_rows))
        found, model = self.feed.scan, self.feed.model
        assert found is not None
        assert model.encoder is not None
        self.name, self.target = reader.name, self.feed.target or ""
        self.first_lines, self.unit = found.first_lines, reader.unit
        self.labels = in_order(found.labels)
        if len(self.labels) < 2:
            only = f"only the label {self.labels[0]!r}" if self.labels else "no label"
            raise FolklearnError(
                f"column {self.target!r} of {self.name} has {only}; learning needs at least two "
                "classes"
            )
        self.n_rows, self.n_unlabelled = found.n_rows - found.n_unlabelled, found.n_unlabelled
        self._columns = model.encoder
        if found.largest_weight is not None:
            self._check_weights()
        many = [name for name, values in found.values.items() if len(values) > MOST_OWN]
        if any(model.encoder.roles.get(name) == CATEGORY for name in many):
            for rows in self._rows():  # places that rare categories share
                self._columns.admit(self._columns.encode(rows.block))
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
            other = np.flatnonzero(rows.weights != 1.0)
            if other.size:
                line = rows.block.lines[other[0]]
                raise FolklearnError(
                    f"{self.unit} {line} of {self.name} has a weight, and folklearn "
                    f"{self._command} takes none: leave the weights out; folklearn run learns "
                    "with them"
                )

    def _rows(self) -> Iterator[LabelledTable]:
        return self.feed.rows(doubling=False)

    @property
    def keys(self) -> tuple[Key, ...]:
        """What the columns of the rows are, the constant left out."""
        return tuple(self._columns.keys)

    def share(self, keys: Sequence[Key], moments: Moments | None = None) -> None:
        """Give every key a place, in this order, for rows that go with those of other files.

        Then `moments` are those of the rows of all files.
        """
        self._columns = TableEncoder(self._columns.roles)
        self._columns.admit(EncodedBatch(None, keys))
        self.n_inputs = max(1, len(keys))
        self._scaler = None if moments is None else self.scaler_of(moments)

    @property
    def scaler(self) -> FixedScaler:
        """What standardises numbers, by all rows of the file; it takes a pass."""
        if self._scaler is None:
            self._scaler = self.scaler_of(self.moments())
        return self._scaler

    def scaler_of(self, moments: Moments) -> FixedScaler:
        """Return what standardises numbers, by the moments of rows."""
        numeric = self._columns.are_numbers(EncodedBatch(None, self._columns.keys)) or [True]
        return FixedScaler().opened(moments, numeric)

    def moments(self) -> Moments:
        """Return the moments of the columns over all rows with a label."""
        parts = (self._encoded(rows.block.take(rows.has_label)) for rows in self._rows())
        return reduce(Moments.merged, map(Moments.of, parts))

    def _encoded(self, block: Table) -> Array:
        X: Array = self._columns.known(self._columns.encode(block).X)
        return X

    def norm(self, B: float | None) -> float:
        """Return the norm B per standard deviation for the rows of `blocks`, 10 if None."""
        return DEFAULT_B if B is None else B / self.scaler.unit

    def named(self, certificate: C, by: str = "all rows") -> C:
        """Return a certificate about the rows of `blocks` as one about the columns."""
        norm = certificate.B * self.scaler.unit
        return replace(certificate, B=norm, models=self.models(norm, by))

    def models(self, norm: float, by: str = "all rows") -> str:
        """Return the linear models of a norm per standard deviation, in words."""
        return class_in_words(self._columns.in_words.format(by=by), norm)

    def regression(self, labels: Iterable[str] | None = None) -> Regression | None:
        """Return the logistic regression of all rows, None if there are too many weights."""
        K = len(tuple(labels or self.labels))
        room = SHARE_OF_MEMORY * (memory.bytes_present() or math.inf)
        if K * (self.n_inputs + 1) > MOST_WEIGHTS or 8 * self.n_rows * self.n_inputs > room:
            return None
        Xs, ys = zip(*self.blocks(labels), strict=True)
        X = np.concatenate(Xs) / self.scaler.unit
        found = logistic_regression(X, np.concatenate(ys), n_classes=K, constant=0)
        words = self._columns.in_words.format(by="all rows")
        return replace(found, features=f"the columns ({words})")

    def has_label(self) -> Array:
        """Return which rows have a label."""
        return np.concatenate([rows.has_label for rows in self._rows()])

    def blocks(self, labels: Iterable[str] | None = None) -> Iterator[tuple[Array, Labels]]:
        """Yield rows X (T, 1 + d), a constant and standardised columns, and class numbers y (T,).

        Classes are numbered in the order of `labels`, its own if None.
        """
        own = {label: k for k, label in enumerate(labels or self.labels)}
        order = np.array([own[label] for label in self.feed.model.labels])
        for rows in self._rows():
            block = rows.block.take(rows.has_label)
            y = order[known_numbers(self.feed.model, rows.labels)]
            yield self.scaler.transform(self._encoded(block)), y

    def about(self, *lines: tuple[str, str], labels: Iterable[str] | None = None) -> str:
        """Return what the rows are, then further lines of a name and a text each."""
        found, roles = self.feed.scan, self.feed.roles
        assert found is not None
        names = list(labels or self.labels)
        own = [
            ("data", report.source(self.feed.reader, found.n_rows)),
            ("predicted", f"{self.target}, {report.classes(names)}"),
            *report.columns_of(roles, self.feed.reader.names),
            *report.missing(found.missing, roles),
        ]
        if self.n_unlabelled:
            own.append(("no label", f"{self.n_unlabelled} rows, which are left out"))
        return report.named(*own, *lines)


class _plainly:  # noqa: N801 - it is used like a function
    """Within this, a bad row is refused without the option that would leave it out."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BadRow):
            raise FolklearnError(error.sentence) from None


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels: by value if all of them are numbers, else as text.

    >>> in_order(["10", "9", "-1"]), in_order(["10", "9", "b"])
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
