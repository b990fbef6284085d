"""A block of rows as typed columns: what every reader gives and every model takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.readers.convert import format_cell
from folklearn.sparse import SparseRows, concatenated

Dates = NDArray[np.datetime64]
Rows = slice | NDArray[np.int64] | NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of text that holds every text once.

    Parameters
    ----------
    codes : of every row the place of its text in `values`; -1 if it is missing.
    values : the texts, distinct, as written but without outer spaces. A part of a column has
        the values of the whole, so that some of them may not occur.
    """

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[Any]) -> "TextColumn":
        """Return the values of rows as text, in order of appearance.

        >>> column = TextColumn.of(["red", None, " red", "blue", "n/a"])
        >>> column.codes.tolist(), column.values
        ([0, -1, 0, 1, -1], ('red', 'blue'))
        """
        places: dict[str, int] = {}
        codes = [
            -1 if text is None else places.setdefault(text, len(places))
            for text in map(format_cell, values)
        ]
        return cls(np.array(codes, np.int32), tuple(places))

    @classmethod
    def from_codes(cls, codes: NDArray[np.int64], values: Sequence[Any]) -> "TextColumn":
        """Return rows whose values are given by place, -1 for none."""
        distinct = cls.of(values)
        own = np.append(distinct.codes, np.int32(-1))[codes]  # -1 is the last, which is missing
        return cls(own.astype(np.int32, copy=False), distinct.values)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Rows) -> "TextColumn":
        return TextColumn(self.codes[rows], self.values)

    def to_list(self) -> list[str | None]:
        """Return the text of every row, None if it is missing."""
        by_code = (*self.values, None)
        return [by_code[code] for code in self.codes.tolist()]


Column = Array | TextColumn | Dates


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in columns of one length.

    Parameters
    ----------
    columns : by name, in order: numbers with NaN for what is missing, `TextColumn`, or dates in
        microseconds with NaT for what is missing.
    lines : where every row came from: its line in a text file, or its row (from 1) in a table.
    features : of svmlight and VW text what is not 0, by number; of VW by the hash of the name.
        Or a matrix of numbers (T, d) that have no names.
    """

    columns: Mapping[str, Column]
    lines: NDArray[np.int64]
    features: SparseRows | Array | None = field(default=None)

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: Rows) -> "Table":
        """Return some of the rows: a slice, numbers, or a mask."""
        if isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1):
            return self
        columns = {name: column[rows] for name, column in self.columns.items()}
        features = None if self.features is None else self.features[rows]
        return Table(columns, self.lines[rows], features)

    @classmethod
    def concat(cls, blocks: Sequence["Table"]) -> "Table":
        """Return the rows of several blocks; a column that a block lacks is missing there."""
        if len(blocks) == 1:
            return blocks[0]
        names = dict.fromkeys(name for block in blocks for name in block.columns)
        sizes = [len(block) for block in blocks]
        columns = {
            name: _joined([block.columns.get(name) for block in blocks], sizes) for name in names
        }
        lines = np.concatenate([block.lines for block in blocks]) if blocks else np.empty(0)
        return cls(columns, lines.astype(np.int64, copy=False), _joined_features(blocks))


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Tell of every row whether its value is missing."""
    if isinstance(column, TextColumn):
        return column.codes < 0
    gaps: NDArray[np.bool_] = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)
    return gaps


def as_text_column(column: Column) -> TextColumn:
    """Return a column with its values written as text."""
    if isinstance(column, TextColumn):
        return column
    gaps = is_missing(column)
    values, codes = np.unique(column[~gaps], return_inverse=True)
    own = np.full(len(column), -1, np.int64)
    own[~gaps] = codes
    return TextColumn.from_codes(own, values.tolist())


def _joined(parts: Sequence[Column | None], sizes: Sequence[int]) -> Column:
    kinds = {_kind(part) for part in parts if part is not None}
    if kinds == {"M"}:
        gap = np.datetime64("NaT", "us")
        return np.concatenate(_filled(parts, sizes, gap))
    if kinds == {"f"}:
        return np.concatenate(_filled(parts, sizes, np.float64(np.nan)))
    places: dict[str, int] = {}
    codes = []
    for part, size in zip(parts, sizes, strict=True):
        texts = (
            TextColumn(np.full(size, -1, np.int32), ()) if part is None else as_text_column(part)
        )
        own = [places.setdefault(value, len(places)) for value in texts.values]
        codes.append(np.array([*own, -1], np.int32)[texts.codes])
    return TextColumn(np.concatenate(codes), tuple(places))


def _joined_features(blocks: Sequence["Table"]) -> SparseRows | Array | None:
    """Return what blocks have beside their columns; a block that lacks it has nothing there."""
    features = [block.features for block in blocks]
    sparse = [own for own in features if isinstance(own, SparseRows)]
    if sparse:
        nothing = sparse[0].indices[:0], np.empty(0), sparse[0].shape[1]
        return concatenated(
            [
                own
                if isinstance(own, SparseRows)
                else SparseRows(np.zeros(len(block) + 1, np.int64), *nothing)
                for own, block in zip(features, blocks, strict=True)
            ]
        )
    d = max([own.shape[1] for own in features if own is not None], default=-1)
    if d < 0:
        return None
    joined = np.full((sum(map(len, blocks)), d), np.nan)
    start = 0
    for own, block in zip(features, blocks, strict=True):
        if isinstance(own, np.ndarray):
            joined[start : start + len(block), : own.shape[1]] = own
        start += len(block)
    return joined


def _kind(column: Column) -> str:
    return "text" if isinstance(column, TextColumn) else column.dtype.kind


def _filled(parts: Sequence[Any], sizes: Sequence[int], gap: Any) -> list[Any]:
    pairs = zip(parts, sizes, strict=True)
    return [np.full(size, gap) if part is None else part for part, size in pairs]
