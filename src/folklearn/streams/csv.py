"""CSV in constant memory: one pass to check every cell and one to learn, or one for both.

The first record is the header. Cells are separated by commas; by tabs or semicolons if the
header has those and no comma. Spaces around names, labels, numbers and text are ignored, and
so are blank lines. A cell that is empty or says nan, NA, N/A or null is missing; a label only if
it is empty or says nan. Messages count lines of the file from 1, the header included. The file may
be gzipped.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NoReturn

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams import scanned
from folklearn.streams.scanned import Example, FileTable
from folklearn.streams.table import Layout
from folklearn.streams.tape import Tape
from folklearn.streams.text import (
    Path,
    declare,
    fault,
    is_missing,
    is_text,
    named,
    opened,
    play,
)

_SEPARATORS = {"\t": "tabs", ";": "semicolons"}


class CsvSource:
    """A CSV file, or a stream of it."""

    unit = "line"
    sparse = False

    def __init__(self, path: Path | Tape, name: str | None = None) -> None:
        self.path = path
        self.name = name or named(path)
        self._separator = separator(path, self.name)
        note = _SEPARATORS.get(self._separator)
        self.note = f"separated by {note}" if note else ""

    def header(self) -> tuple[str, ...]:
        """Return the names of all columns, the target included."""
        return header(self.path, self.name, self._separator)

    def kinds(self, columns: Sequence[str]) -> Iterator[Sequence[bool | None]]:
        """Yield of every row whether its values are text; None for one that is missing."""
        names = self.header()
        places = [names.index(column) for column in columns]
        for _, cells in self._rows(len(names)):
            texts = [cells[place].strip() for place in places]
            yield [None if is_missing(text) else is_text(text) for text in texts]

    def examples(self, layout: Layout, target: str | None) -> Iterator[Example]:
        """Yield every row, checked."""
        names = self.header()
        try:
            places = [names.index(column) for column in layout.numeric]
            text_places = [names.index(column) for column in layout.text]
            target_place = names.index(target) if target is not None else None
        except ValueError:
            raise InvalidInputError(
                f"{self.name} does not have the columns it had before"
            ) from None
        play(self.path)
        for line, cells in self._rows(len(names)):
            numbers = [cells[place] for place in places]
            missing: tuple[str, ...] = ()
            try:
                values = [float(cell) for cell in numbers]
                # One comparison finds NaN, infinity and what would overflow in any of the
                # cells; underscores are part of a number for Python only.
                usable = sum(map(abs, values)) <= MAX_NORM and "_" not in "".join(numbers)
            except ValueError:
                values, usable = [], False
            if not usable:
                values, missing = self._with_gaps(line, layout, numbers)
            texts = [_text(cells[place]) for place in text_places]
            if None in texts:
                gaps = zip(layout.text, texts, strict=True)
                missing += tuple(column for column, text in gaps if text is None)
            label = cells[target_place].strip() if target_place is not None else None
            if label is not None and (not label or label.lower() == "nan"):
                raise InvalidInputError(
                    f"line {line} of {self.name}, column {target!r}: the label is missing"
                )
            yield Example(line, values, label, texts=texts, missing=missing)

    def _rows(self, n_cells: int) -> Iterator[tuple[int, list[str]]]:
        """Yield (line, cells) of every record but the header."""
        rows = records(self.path, self.name, self._separator)
        next(rows, None)
        for line, cells in rows:
            if len(cells) != n_cells:
                raise InvalidInputError(
                    f"line {line} of {self.name} has {len(cells)} cells where the header has "
                    f"{n_cells}"
                )
            yield line, cells

    def _with_gaps(
        self, line: int, layout: Layout, cells: Sequence[str]
    ) -> tuple[list[float], tuple[str, ...]]:
        """Return the numbers of a row, NaN for those that are missing, and the names of these."""
        cells = [cell.strip() for cell in cells]
        gaps = [is_missing(cell) for cell in cells]
        filled = ["0" if gap else cell for gap, cell in zip(gaps, cells, strict=True)]
        if any(map(fault, filled)) or not sum(abs(float(cell)) for cell in filled) <= MAX_NORM:
            self._refuse(line, layout, filled)
        values = [math.nan if gap else float(cell) for gap, cell in zip(gaps, filled, strict=True)]
        return values, tuple(compress(layout.numeric, gaps))

    def _refuse(self, line: int, layout: Layout, cells: Sequence[str]) -> NoReturn:
        """Raise for the first cell of a bad row that cannot be used."""
        limit = MAX_NORM / len(cells)  # if the sum is above MAX_NORM, some cell is above this
        for column, cell in zip(layout.numeric, cells, strict=True):
            problem = fault(cell, limit)
            if problem and is_text(cell):
                problem += f"; {declare(column, column in layout.guessed)}"
            if problem:
                raise InvalidInputError(f"line {line} of {self.name}, column {column!r}: {problem}")
        raise AssertionError("a refused row has a bad cell")


def scan(path: Path, target: str, name: str | None = None) -> FileTable:
    """Read a whole file once: find its columns and labels, and check every cell."""
    return scanned.scan(CsvSource(path, name), target)


def header(
    path: Path | Tape, name: str | None = None, between: str | None = None
) -> tuple[str, ...]:
    """Return the names of all columns, the target included."""
    name = name or named(path)
    for line, cells in records(path, name, between):
        names = tuple(cell.strip() for cell in cells)
        for position, column in enumerate(names):
            if not column:
                raise InvalidInputError(
                    f"column {position + 1} of {name} has no name in line {line}; name it, or "
                    "leave it out if it only numbers the rows"
                )
            if column in names[:position]:
                raise InvalidInputError(f"{name} has two columns named {column!r}")
        return names
    raise InvalidInputError(f"{name} is empty; expected a header, then one row per example")


def records(
    path: Path | Tape, name: str, between: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every record that is not blank, cells being separated as said."""
    between = between or separator(path, name)
    with opened(path, name, newline="") as file:
        reader = csv.reader(file, delimiter=between, strict=True, skipinitialspace=True)
        line = 1  # a record in quotes may span lines; name the one where it starts
        try:
            for cells in reader:
                if len(cells) > 1 or (cells and cells[0].strip()):
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInputError(
                f"line {line} of {name} cannot be read as CSV: {error}"
            ) from None
        except UnicodeDecodeError:
            raise InvalidInputError(f"{name} is not UTF-8 text near line {line}") from None


def separator(path: Path | Tape, name: str) -> str:
    """Return what separates the cells; nothing but the header is looked at."""
    with opened(path, name, errors="replace") as file:
        first = next((line for line in file if line.strip()), "").strip()
    found = {separator: first.count(separator) for separator in _SEPARATORS}
    likely = max(found, key=found.__getitem__)
    return likely if found[likely] and "," not in first else ","


def _text(cell: str) -> str | None:
    text = cell.strip()
    return None if is_missing(text) else text
