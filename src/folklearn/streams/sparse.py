"""Lines that name only what is not 0: what svmlight files and VW text have in common."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams.scanned import Example, FileTable, Tally, refuse_to_drop
from folklearn.streams.table import Layout
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path, lines, named

TARGET = "label"  # the labels have no name of their own
WIDEST = 10_000  # rows are made dense, thousands at a time; a learner holds even more


class Parsed(NamedTuple):
    """What one line says."""

    label: str | None
    features: dict[str, float]
    weight: float = 1.0
    hint: str = ""  # why there is no label, if it may surprise


Parse = Callable[[str], Parsed | None]


class SparseSource:
    """A file of such lines; `parse` reads one, and raises without saying where."""

    unit = "line"
    sparse = True
    note = ""

    def __init__(self, path: Path | Tape, name: str | None, parse: Parse) -> None:
        self.path = path
        self.name = name or named(path)
        self._parse = parse

    def parsed(self, labelled: bool) -> Iterator[tuple[int, Parsed]]:
        """Yield (line, what it says), checked; without a label only if not `labelled`."""
        for line, text in lines(self.path, self.name):
            try:
                row = self._parse(text)
                if row is None:
                    continue
                if labelled and row.label is None:
                    raise InvalidInputError("it has no label to learn from" + row.hint)
                if not sum(map(abs, row.features.values())) <= MAX_NORM:
                    raise InvalidInputError(
                        "its values are too large to compute with; scale the features"
                    )
            except InvalidInputError as error:
                raise InvalidInputError(f"line {line} of {self.name}: {error}") from None
            yield line, row

    def examples(self, layout: Layout, target: str | None) -> Iterator[Example]:
        """Yield every row, dense; features that are not asked for are left out."""
        places = {column: place for place, column in enumerate(layout.columns)}
        for line, row in self.parsed(target is not None):
            numbers = np.zeros(len(places))
            for feature, value in row.features.items():
                if feature in places:
                    numbers[places[feature]] = value
            yield Example(line, numbers, None if target is None else row.label, row.weight)


def refuse_too_wide(n_features: int, line: int, name: str) -> None:
    """Raise for more features than dense rows can have."""
    if n_features > WIDEST:
        raise InvalidInputError(
            f"{name} names more than {WIDEST} different features up to line {line}, "
            "too many to hold rows of all of them; select or hash the features first"
        )


def scan(
    source: SparseSource,
    *,
    columns: Sequence[str] | None = None,
    labelled: bool = True,
    sort_key: Callable[[str], Any] | None = None,
    drop: Sequence[str] = (),
) -> FileTable:
    """Read a whole file once: find its features and labels, and check every line.

    Columns are in order of appearance unless there is a key to sort by; those of `drop` are
    left out.
    """
    tally = Tally(source.name, TARGET)
    found: dict[str, None] = {}
    for line, row in source.parsed(labelled):
        tally.add(Example(line, (), row.label if labelled else None, row.weight))
        found |= dict.fromkeys(row.features)
        refuse_too_wide(len(found), line, source.name)
    if not tally.n_rows:
        raise InvalidInputError(f"{source.name} has no examples")
    refuse_to_drop(source.name, drop, found)
    found = {name: None for name in found if name not in drop}
    names: Iterable[str] = sorted(found, key=sort_key) if sort_key is not None else found
    wanted = tuple(names if columns is None else columns)
    if not any(name in found for name in wanted):
        raise InvalidInputError(
            f"{source.name} names no feature"
            + (" of those needed" if columns and found else " that is not left out" if drop else "")
        )
    tally.refuse_unless_classes()
    known = set(wanted)
    return FileTable(
        source,
        wanted,
        TARGET,
        tally.first_lines,
        tally.n_rows,
        tally.weights(),
        unused=tuple(name for name in names if name not in known),
        labelled=labelled,
    )
