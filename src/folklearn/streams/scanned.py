"""Examples of any format: files that are read twice, and streams that are read once.

A format is a `Source`: it yields checked examples, one by one. Everything else that a table
needs is here: what the first pass gathers, and blocks in constant memory.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError
from folklearn.model.hashing import DEFAULT_BUCKETS
from folklearn.streams.table import Block, Layout, Texts, Weights
from folklearn.words import counted, listed

_MOST_CLASSES = 10_000  # more distinct values than that are measurements, not classes
_MANY_CLASSES = 100  # from here on, one in ten rows with a label of its own is too many


class Example(NamedTuple):
    """One row: its place in the file, its numbers, its label, its weight, and its texts.

    `missing` names the columns that have no value: NaN among the numbers, None among the
    texts.
    """

    line: int
    numbers: Sequence[float] | NDArray[np.float64]
    label: str | None  # None if it was not asked for
    weight: float = 1.0
    texts: Texts = ()
    missing: Sequence[str] = ()


class Source(Protocol):
    """A file in one format."""

    @property
    def name(self) -> str:
        """What messages call the file."""

    @property
    def unit(self) -> str:
        """What the places in it are: lines, or rows."""

    @property
    def sparse(self) -> bool:
        """Whether a row names only what is not 0."""

    @property
    def note(self) -> str:
        """What was found out about the file and deserves to be said, or nothing."""

    def examples(self, layout: Layout, target: str | None) -> Iterator[Example]:
        """Yield every row, checked: these columns, and the label unless the target is None."""


class NamedSource(Source, Protocol):
    """A file whose columns have names, the labels being in one of them."""

    def header(self) -> tuple[str, ...]:
        """Return the names of all columns, the target included."""

    def kinds(self, columns: Sequence[str]) -> Iterator[Sequence[bool | None]]:
        """Yield of every row whether its values are text; None for one that is missing."""


@dataclass(frozen=True)
class FileTable:
    """A file whose every value was checked.

    Attributes
    ----------
    missing : for every column that has gaps, the number of them.
    unused : columns of the file that were not asked for, the target apart.
    labelled : False if the labels are not read, whether there are any or not.
    n_buckets : number of inputs that all text together becomes.
    """

    source: Source
    columns: tuple[str, ...]
    target: str
    first_lines: Mapping[str, int]
    n_rows: int
    weights: Weights | None = None
    text: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    labelled: bool = True
    n_buckets: int = DEFAULT_BUCKETS

    @property
    def name(self) -> str:
        """What messages call this table."""
        return self.source.name

    @property
    def unit(self) -> str:
        """What `first_lines` counts: lines, or rows."""
        return self.source.unit

    @property
    def sparse(self) -> bool:
        """Whether a row names only what is not 0, so that a column may never occur."""
        return self.source.sparse

    @property
    def note(self) -> str:
        """What was found out about the file and deserves to be said, or nothing."""
        return self.source.note

    @property
    def n_inputs(self) -> int:
        """The number of columns of X: the columns of numbers, and the buckets of the text."""
        return Layout(self.columns, self.text, self.n_buckets).n_inputs

    def blocks(
        self, columns: Sequence[str], labels: Sequence[str], sizes: Iterable[int]
    ) -> Iterator[Block]:
        """Yield blocks of `sizes` rows each, until the rows end."""
        numbers: dict[str | None, int] = {label: place for place, label in enumerate(labels)}
        if not self.labelled:
            numbers = {None: -1}
        text = tuple(name for name in columns if name in self.text)
        layout = Layout(tuple(columns), text, self.n_buckets)
        rows = self.source.examples(layout, self.target if self.labelled else None)
        rows = islice(rows, self.n_rows)  # no row beyond those checked, should it have grown
        for size in sizes:
            block = list(islice(rows, size))
            if not block:
                return
            for row in block:
                if row.label not in numbers:
                    raise InvalidInputError(
                        f"{self.unit} {row.line} of {self.name}: new label {row.label!r}"
                    )
            weighted = self.weights is not None
            yield Block(
                layout.inputs([row.numbers for row in block], [row.texts for row in block]),
                np.array([numbers[row.label] for row in block], dtype=np.int64),
                np.array([row.weight for row in block]) if weighted else None,
            )


@dataclass
class Tally:
    """What the first pass gathers, row by row."""

    name: str
    target: str
    first_lines: dict[str, int] = field(default_factory=dict)
    n_rows: int = 0
    total: float = 0.0
    largest: float = 0.0
    first_weighted: int | None = None
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, row: Example) -> None:
        """Count one more row."""
        self.n_rows += 1
        self.total += row.weight
        self.largest = max(self.largest, row.weight)
        if row.weight != 1.0 and self.first_weighted is None:
            self.first_weighted = row.line
        if row.missing:
            self.missing.update(row.missing)
        if row.label is None:
            return
        self.first_lines.setdefault(row.label, row.line)
        refuse_too_many_classes(len(self.first_lines), self.target, self.name)

    def weights(self) -> Weights | None:
        """Return what is known of the weights, once every row was counted."""
        if self.first_weighted is None:
            return None
        if not self.total > 0.0:
            raise InvalidInputError(f"every example of {self.name} has the weight 0")
        return Weights(self.total, self.largest, self.first_weighted)

    def refuse_unless_classes(self, rows_each: int = 10) -> None:
        """Raise if the labels look like numbers or ids: on average, fewer rows of each."""
        if len(self.first_lines) > max(_MANY_CLASSES, self.n_rows / rows_each):
            raise InvalidInputError(
                f"column {self.target!r} of {self.name} has {len(self.first_lines)} distinct "
                f"labels in {self.n_rows} rows; it looks like a number or an id, and the target "
                "must be a column of class labels"
            )


def refuse_too_many_classes(n_classes: int, target: str, name: str) -> None:
    """Raise for more labels than there are classes of anything."""
    if n_classes > _MOST_CLASSES:
        raise InvalidInputError(
            f"column {target!r} of {name} has more than {_MOST_CLASSES} different "
            "values; the target must be a column of class labels"
        )


def scan(
    source: NamedSource,
    target: str | None,
    *,
    columns: Sequence[str] | None = None,
    labelled: bool = True,
    text: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    n_buckets: int = DEFAULT_BUCKETS,
) -> FileTable:
    """Read a whole file of named columns once: find its labels, and check every value.

    Only `columns` are read, all but the target and `drop` if None; no label unless `labelled`.
    Those of `text` hold text and those of `numeric` numbers; the first value of another one
    decides.
    """
    layout, others = find_layout(
        source, target, columns, labelled, text, numeric, drop=drop, n_buckets=n_buckets
    )
    tally = Tally(source.name, target or "")
    for row in source.examples(layout, target if labelled else None):
        tally.add(row)
    if not tally.n_rows:
        raise InvalidInputError(f"{source.name} has a header but no rows")
    tally.refuse_unless_classes()
    return FileTable(
        source,
        layout.columns,
        tally.target,
        tally.first_lines,
        tally.n_rows,
        text=layout.text,
        missing=tally.missing,
        unused=tuple(column for column in others if column not in set(layout.columns)),
        labelled=labelled,
        n_buckets=n_buckets,
    )


def find_layout(
    source: NamedSource,
    target: str | None,
    columns: Sequence[str] | None,
    labelled: bool,
    text: Sequence[str],
    numeric: Sequence[str],
    most_rows: int | None = None,
    drop: Sequence[str] = (),
    n_buckets: int = DEFAULT_BUCKETS,
) -> tuple[Layout, tuple[str, ...]]:
    """Return the columns to read and which of them hold text, and all but target and `drop`.

    A column whose kind nobody told is text if its first value that is not missing is; at most
    so many rows are looked at, all of them if None.
    """
    name, names = source.name, source.header()
    if labelled and target not in names:
        raise InvalidInputError(
            f"{name} has no column {target!r}; its columns are: {listed(names)}"
        )
    refuse_to_drop(name, drop, [column for column in names if column != target])
    others = tuple(column for column in names if column != target and column not in drop)
    if columns is None:
        columns = others
    lacking = [column for column in columns if column not in names]
    if lacking:
        raise InvalidInputError(
            f"{name} lacks {counted(len(lacking), 'column')} of those needed: {listed(lacking)}; "
            f"its columns are: {listed(names)}"
        )
    if not columns:
        beside = " and those left out" if drop else ""
        raise InvalidInputError(
            f"{name} has no column beside the target {target!r}{beside} to learn from"
        )
    unknown = [column for column in text if column not in columns]
    if unknown:
        raise InvalidInputError(
            f"{name} has no feature {unknown[0]!r} that could be text; its features are: "
            f"{listed(columns)}"
        )
    found = set(text)
    untold = [column for column in columns if column not in found | set(numeric)]
    undecided = set(untold)
    for row in islice(source.kinds(untold), most_rows) if untold else ():
        for column, holds_text in zip(untold, row, strict=True):
            if holds_text is not None and column in undecided:
                undecided.remove(column)
                found |= {column} if holds_text else set()
        if not undecided:
            break
    in_order = tuple(column for column in columns if column in found)
    guessed = tuple(column for column in untold if column in undecided)
    return Layout(tuple(columns), in_order, n_buckets, guessed), others


def refuse_to_drop(name: str, drop: Sequence[str], features: Collection[str]) -> None:
    """Raise if what is to be left out is none of the features."""
    unknown = [column for column in drop if column not in features]
    if unknown:
        raise InvalidInputError(
            f"{name} has no feature {unknown[0]!r} to leave out; its features are: "
            f"{listed(list(features))}"
        )
