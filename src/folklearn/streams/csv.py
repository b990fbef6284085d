"""CSV files in constant memory: one pass to check every cell, one to learn.

The first record is the header. Cells are separated by commas; by tabs or semicolons if the
header has those and no comma. Spaces around names, labels and numbers are ignored, and so
are blank lines. Messages count lines of the file from 1, the header included. The file may
be gzipped.
"""

import csv
import os
from collections.abc import Iterator, Sequence
from typing import NoReturn

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams import scanned
from folklearn.streams.scanned import Example, FileTable
from folklearn.streams.text import Path, fault, opened

_SEPARATORS = {"\t": "tabs", ";": "semicolons"}


class CsvSource:
    """A CSV file."""

    unit = "line"
    sparse = False

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or os.fspath(path)
        separator = _separator(path, self.name)
        self.note = f"separated by {_SEPARATORS[separator]}" if separator != "," else ""

    def header(self) -> tuple[str, ...]:
        """Return the names of all columns, the target included."""
        return header(self.path, self.name)

    def examples(self, columns: Sequence[str], target: str | None) -> Iterator[Example]:
        """Yield every row, checked."""
        name, names = self.name, self.header()
        try:
            places = [names.index(column) for column in columns]
            target_place = names.index(target) if target is not None else None
        except ValueError:
            raise InvalidInputError(f"{name} does not have the columns it had before") from None
        rows = records(self.path, name)
        next(rows)
        for line, cells in rows:
            if len(cells) != len(names):
                raise InvalidInputError(
                    f"line {line} of {name} has {len(cells)} cells where the header has "
                    f"{len(names)}"
                )
            texts = [cells[place] for place in places]
            try:
                values = [float(text) for text in texts]
            except ValueError:
                _refuse(line, name, columns, texts)
            # One comparison finds NaN, infinity and what would overflow in any of the cells;
            # underscores are part of a number for Python only.
            if not sum(map(abs, values)) <= MAX_NORM or "_" in "".join(texts):
                _refuse(line, name, columns, texts)
            label = cells[target_place].strip() if target_place is not None else None
            if label is not None and (not label or label.lower() == "nan"):
                raise InvalidInputError(
                    f"line {line} of {name}, column {target!r}: the label is missing"
                )
            yield Example(line, values, label)


def scan(path: Path, target: str, name: str | None = None) -> FileTable:
    """Read a whole file once: find its columns and labels, and check every cell."""
    return scanned.scan(CsvSource(path, name), target)


def header(path: Path, name: str | None = None) -> tuple[str, ...]:
    """Return the names of all columns, the target included."""
    name = name or os.fspath(path)
    for line, cells in records(path, name):
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


def records(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every record that is not blank."""
    separator = _separator(path, name)
    with opened(path, name, newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True, skipinitialspace=True)
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


def _separator(path: Path, name: str) -> str:
    """Return what separates the cells; nothing but the header is looked at."""
    with opened(path, name, errors="replace") as file:
        first = next((line for line in file if line.strip()), "").strip()
    found = {separator: first.count(separator) for separator in _SEPARATORS}
    likely = max(found, key=found.__getitem__)
    return likely if found[likely] and "," not in first else ","


def _refuse(line: int, name: str, columns: Sequence[str], texts: Sequence[str]) -> NoReturn:
    """Raise for the first cell of a bad row that cannot be used."""
    limit = MAX_NORM / len(columns)  # if the sum is above MAX_NORM, some cell is above this
    for column, text in zip(columns, texts, strict=True):
        problem = fault(text.strip(), limit)
        if problem:
            raise InvalidInputError(f"line {line} of {name}, column {column!r}: {problem}")
    raise AssertionError("a refused row has a bad cell")
