"""A whole labelled file as scaled rows and class numbers, block by block, as often as needed."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console

from folklearn.arrays import Array, Labels
from folklearn.cli import report
from folklearn.cli.display import bar
from folklearn.cli.options import Source
from folklearn.errors import FolklearnError
from folklearn.model.columns import MOST_OWN, Columns, Encoded, Key
from folklearn.model.feed import FedRows, Feed
from folklearn.model.model import Model
from folklearn.model.roles import CATEGORY, WORDS
from folklearn.model.run import known_numbers
from folklearn.readers.block import Block
from folklearn.readers.blocks import BlockReader
from folklearn.readers.reader import BadRow
from folklearn.scaler import OnlineScaler


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
            self.feed = Feed(Model(roles=roles), BlockReader.stored(reader), target, dense=True)
            self._refuse_words()
            with bar(console, endless=reader.n_rows is None) as progress:
                task = progress.add_task("checking", total=reader.n_rows)
                self.feed.begin(lambda n_rows: progress.update(task, completed=n_rows))
        found, model = self.feed.scan, self.feed.model
        assert found is not None
        assert model.columns is not None
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
        self._columns = model.columns
        if found.largest_weight is not None:
            self._refuse_weights()
        many = [name for name, values in found.values.items() if len(values) > MOST_OWN]
        if any(model.columns.roles.get(name) == CATEGORY for name in many):
            for rows in self._rows():  # places that rare categories share
                self._columns.admit(self._columns.encode(rows.block))
        self.n_inputs = max(1, len(self._columns.keys))

    def _refuse_words(self) -> None:
        for name, role in self.feed.roles.items():
            if role == WORDS:
                raise FolklearnError(
                    f"column {name!r} holds words, and folklearn {self._command} takes none: leave "
                    f"it out (--drop {shlex.quote(name)}), or take every text as one category "
                    f"(--role {shlex.quote(f'{name}=category')}); folklearn run learns words"
                )

    def _refuse_weights(self) -> None:
        for rows in self._rows():
            other = np.flatnonzero(rows.weights != 1.0)
            if other.size:
                line = rows.block.lines[other[0]]
                raise FolklearnError(
                    f"{self.unit} {line} of {self.name} has a weight, and folklearn "
                    f"{self._command} takes none: leave the weights out; folklearn run learns "
                    "with them"
                )

    def _rows(self) -> Iterator[FedRows]:
        return self.feed.rows(doubling=False)

    @property
    def keys(self) -> tuple[Key, ...]:
        """What the columns of the rows are, the constant left out."""
        return tuple(self._columns.keys)

    def share(self, keys: Sequence[Key]) -> None:
        """Give every key a place, in this order, for rows that go with those of other files."""
        self._columns = Columns(self._columns.roles)
        self._columns.admit(Encoded(None, keys))
        self.n_inputs = max(1, len(keys))

    def has_label(self) -> Array:
        """Return which rows have a label."""
        return np.concatenate([rows.has_label for rows in self._rows()])

    def blocks(self, labels: Iterable[str] | None = None) -> Iterator[tuple[Array, Labels]]:
        """Yield rows X (T, d + 1), scaled as they come, and class numbers y (T,).

        Classes are numbered in the order of `labels`, its own if None.
        """
        for _, X, y in self.blocks_as_read(labels):
            yield X, y

    def blocks_as_read(
        self, labels: Iterable[str] | None = None
    ) -> Iterator[tuple[Block, Array, Labels]]:
        """Yield the same after the columns that the rows were made from."""
        scaler = OnlineScaler(n_features=self.n_inputs, gaps=True)
        own = {label: k for k, label in enumerate(labels or self.labels)}
        order = np.array([own[label] for label in self.feed.model.labels])
        for rows in self._rows():
            block = rows.block.take(rows.has_label)
            X = self._columns.known(self._columns.encode(block).X)
            y = order[known_numbers(self.feed.model, rows.labels)]
            yield block, scaler.learn_transform(X), y

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
