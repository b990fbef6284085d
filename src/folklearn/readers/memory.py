"""Rows that are at hand as a block, to be read like any others."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from folklearn.readers.convert import Kind
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.records import Faults, convert_values, decode_column, find_faults
from folklearn.readers.table import Column, Table, TextColumn, as_text_column

_AT_A_TIME = 8192  # rows


class TableReader(Reader):
    """A block as a reader.

    Parameters
    ----------
    block : the rows.
    name : what messages call them.
    """

    format = "frame"
    unit = "row"

    def __init__(self, block: Table, name: str = "the rows") -> None:
        super().__init__(name)
        self._block = block
        self.n_rows = len(block)
        self.names = tuple(block.columns)
        self._origin: Reader | None = None

    @classmethod
    def stored(cls, reader: Reader) -> Reader:
        """Return the rows of a reader so that they can be read again: a pipe is stored here."""
        if reader.can_reread:
            return reader
        kinds = {name: _own_kind(column) for name, column in reader.head().columns.items()}
        kept = cls(Table.concat(list(reader.read(kinds))), reader.name)
        kept.format, kept.unit, kept.decimal = reader.format, reader.unit, reader.decimal
        kept.notes, kept._origin = reader.notes, reader
        return kept

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return what features are called that a block has by number."""
        return (
            super().feature_names(indices)
            if self._origin is None
            else (self._origin.feature_names(indices))
        )

    def _parts(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        for start in range(0, len(self._block), _AT_A_TIME):
            rows = self._block.take(slice(start, start + _AT_A_TIME))
            read = partial(_read, decimal=self.decimal)
            columns: dict[str, Column] = {}
            faults: dict[int, tuple[str, str]] = {}
            for name, column in rows.columns.items():
                if kinds is not None and name in kinds:
                    columns[name], own = read(column, kinds[name])
                    faults = {row: (name, fault) for row, fault in own.items()} | faults
                elif kinds is None:
                    columns[name] = column
            self.fraction = start / len(self._block)
            yield self.part(Table(columns, rows.lines, rows.features), faults)
        self.fraction = 1.0


def _own_kind(column: Column) -> Kind:
    if isinstance(column, TextColumn):
        return "text"
    return "date" if column.dtype.kind == "M" else "number"


def _read(column: Column, kind: Kind, decimal: str) -> tuple[Column, Faults]:
    """Return a column as one of another kind, and what is wrong in which row."""
    if not isinstance(column, TextColumn) and kind == _own_kind(column) == "number":
        return column, find_faults(np.asarray(column, np.float64))
    if kind == _own_kind(column):
        return column, {}
    if kind == "text":
        return as_text_column(column), {}
    if isinstance(column, TextColumn):
        return decode_column(column.codes.astype("int64"), column.values, kind, decimal)
    return convert_values(column.tolist(), kind)
