"""CSV files in constant memory: one pass to check every cell, one to learn.

The first record is the header. Spaces around names, labels and numbers are ignored, and so
are blank lines. Messages count lines of the file from 1, the header included.
"""

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams.table import Block, listed

_MOST_CLASSES = 10_000  # more distinct values than that are measurements, not classes
_MANY_CLASSES = 100  # from here on, one in ten rows with a label of its own is too many
_GZIP = b"\x1f\x8b"
_SEPARATORS = {";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose every cell was checked by `scan`."""

    path: str | os.PathLike[str]
    name: str
    columns: tuple[str, ...]
    target: str
    first_lines: Mapping[str, int]
    n_rows: int

    def blocks(
        self, columns: Sequence[str], labels: Sequence[str], sizes: Iterable[int]
    ) -> Iterator[Block]:
        """Yield (X, y), `sizes` rows at a time, until the rows end."""
        ids = {label: number for number, label in enumerate(labels)}
        # No row beyond those checked, should the file have grown since.
        rows = islice(_examples(self.path, self.name, columns, self.target), self.n_rows)
        for size in sizes:
            block = list(islice(rows, size))
            if not block:
                return
            for line, _, label in block:
                if label not in ids:
                    raise InvalidInputError(f"line {line} of {self.name}: new label {label!r}")
            yield (
                np.array([values for _, values, _ in block]),
                np.array([ids[label] for _, _, label in block], dtype=np.int64),
            )


def scan(path: str | os.PathLike[str], target: str, name: str | None = None) -> CsvTable:
    """Read a whole file once: find its columns and labels, and check every cell."""
    name = name or os.fspath(path)
    names = header(path, name)
    if target not in names:
        raise InvalidInputError(
            f"{name} has no column {target!r}; its columns are: {listed(names)}"
        )
    columns = tuple(column for column in names if column != target)
    if not columns:
        raise InvalidInputError(f"{name} has no column beside the target {target!r} to learn from")
    first_lines: dict[str, int] = {}
    n_rows = 0
    for line, _, label in _examples(path, name, columns, target):
        first_lines.setdefault(label, line)
        n_rows += 1
        if len(first_lines) > _MOST_CLASSES:
            raise InvalidInputError(
                f"column {target!r} of {name} has more than {_MOST_CLASSES} different values; "
                "the target must be a column of class labels"
            )
    if not n_rows:
        raise InvalidInputError(f"{name} has a header but no rows")
    if len(first_lines) > max(_MANY_CLASSES, n_rows / 10):
        raise InvalidInputError(
            f"column {target!r} of {name} has {len(first_lines)} distinct labels in {n_rows} rows; "
            "it looks like a number or an id, and the target must be a column of class labels"
        )
    return CsvTable(path, name, columns, target, first_lines, n_rows)


def header(path: str | os.PathLike[str], name: str | None = None) -> tuple[str, ...]:
    """Return the names of all columns, the target included."""
    name = name or os.fspath(path)
    for line, cells in records(path, name):
        names = tuple(cell.strip() for cell in cells)
        hint = _other_separator(path) if len(names) == 1 else ""
        if hint:
            raise InvalidInputError(f"{name} has only one column: {hint}")
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


def _examples(
    path: str | os.PathLike[str], name: str, columns: Sequence[str], target: str
) -> Iterator[tuple[int, list[float], str]]:
    """Yield (line, features, label) of every row, checked."""
    names = header(path, name)
    try:
        places = [names.index(column) for column in columns]
        target_place = names.index(target)
    except ValueError:
        raise InvalidInputError(f"{name} does not have the columns it had before") from None
    rows = records(path, name)
    next(rows)
    for line, cells in rows:
        if len(cells) != len(names):
            raise InvalidInputError(
                f"line {line} of {name} has {len(cells)} cells where the header has {len(names)}"
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
        label = cells[target_place].strip()
        if not label or label.lower() == "nan":
            raise InvalidInputError(
                f"line {line} of {name}, column {target!r}: the label is missing"
            )
        yield line, values, label


def _refuse(line: int, name: str, columns: Sequence[str], texts: Sequence[str]) -> NoReturn:
    """Raise for the first cell of a bad row that cannot be used."""
    limit = MAX_NORM / len(columns)  # if the sum is above MAX_NORM, some cell is above this
    for column, text in zip(columns, texts, strict=True):
        problem = _problem(text.strip(), limit)
        if problem:
            raise InvalidInputError(f"line {line} of {name}, column {column!r}: {problem}")
    raise AssertionError("a refused row has a bad cell")


def _problem(text: str, limit: float) -> str:
    if not text:
        return "the cell is empty; fill in or drop missing values first"
    try:
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        return f"{text!r} is not a number"
    if not abs(value) < math.inf:
        return f"{text!r} is not finite; fill in or drop missing values first"
    if abs(value) > limit:
        return f"{text!r} is too large to compute with; scale the feature"
    return ""


def records(path: str | os.PathLike[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of every record that is not blank."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True, skipinitialspace=True)
        line = 1  # a record in quotes may span lines; name the one where it starts
        try:
            for cells in reader:
                if len(cells) > 1 or (cells and cells[0].strip()):
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            problem = (line == 1 and _other_separator(path)) or str(error)
            raise InvalidInputError(
                f"line {line} of {name} cannot be read as CSV: {problem}"
            ) from None
        except UnicodeDecodeError:
            with open(path, "rb") as start:
                if start.read(len(_GZIP)) == _GZIP:
                    raise InvalidInputError(
                        f"{name} is not text: it looks gzipped: unpack it first"
                    ) from None
            raise InvalidInputError(f"{name} is not UTF-8 text near line {line}") from None


def _other_separator(path: str | os.PathLike[str]) -> str:
    """Return a hint if the header has no comma, but another separator; else nothing."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = next((line for line in file if line.strip()), "").strip()
    for separator, plural in _SEPARATORS.items():
        if separator in first and "," not in first:
            return f"it looks separated by {plural}; expected commas"
    return ""
