"""Tables of named, typed columns: what every reader yields and every model takes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.readers import convert
from folklearn.readers.convert import MAX_ABS_VALUE, Kind
from folklearn.sparse import SparseRows, concatenate, index_type

Dates = NDArray[np.datetime64]
Objects = NDArray[np.object_]
RowSelection = slice | NDArray[np.int64] | NDArray[np.bool_]
Faults = dict[int, str]  # what is wrong, by row
# Takes values of a column, and returns None for those that are missing.
DropGaps = Callable[[Sequence[Any]], list[Any]]

_SCALAR_TYPES = {int, float, bool, type(None)}
_MAX_DENSE_NUMBERS, _MAX_DENSE_ROWS = 2**21, 2**16  # of a slice of rows
_NESTED_TYPES = (Mapping, list, tuple, set, np.ndarray)


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of text that stores every distinct text once.

    Parameters
    ----------
    codes : (T,) index of the text of every row in `values`; -1 if it is missing.
    values : the distinct texts, as written but without outer spaces. A selection of rows has the
        values of the whole column, so that some of them may not occur.
    """

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[Any], rows: NDArray[np.int64] | None = None) -> "TextColumn":
        """Return the values of rows as text, in order of appearance.

        With `rows` (T,), row t has the value of that index, none if it is -1.

        >>> column = TextColumn.of(["red", None, " red", "blue", " "])
        >>> column.codes.tolist(), column.values
        ([0, -1, 0, 1, -1], ('red', 'blue'))
        """
        code_of: dict[str, int] = {}
        codes = [
            -1 if text is None else code_of.setdefault(text, len(code_of))
            for text in map(convert.format_cell, values)
        ]
        if rows is None:
            return cls(np.array(codes, np.int32), tuple(code_of))
        return cls(np.array([*codes, -1], np.int32)[rows], tuple(code_of))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: RowSelection) -> "TextColumn":
        return TextColumn(self.codes[rows], self.values)

    def without(self, is_gap: Callable[[str], bool]) -> "TextColumn":
        """Return the column with texts of which a function tells so as missing."""
        if not any(map(is_gap, self.values)):
            return self
        values = (None if is_gap(text) else text for text in self.values)
        return TextColumn.of(values, self.codes.astype(np.int64))

    def to_list(self) -> list[str | None]:
        """Return the text of every row, None if it is missing."""
        by_code = (*self.values, None)
        return [by_code[code] for code in self.codes.tolist()]


Column = Array | TextColumn | Dates | Objects


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as columns of one length.

    Parameters
    ----------
    columns : by name, in order: numbers with NaN for missing values, `TextColumn`, dates in
        microseconds with NaT for missing values, or any objects, None if missing.
    lines : (T,) origin of every row: its line in a text file, or its row (from 1) in a table.
    features : of svmlight and VW text the nonzero features by number; of VW by the hash of the
        name. Or a (T, d) matrix of unnamed numbers.
    """

    columns: Mapping[str, Column]
    lines: NDArray[np.int64]
    features: SparseRows | Array | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: RowSelection) -> "Table":
        """Return the rows of a slice, of indices, or of a mask."""
        if isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1):
            return self
        columns = {name: column[rows] for name, column in self.columns.items()}
        features = None if self.features is None else self.features[rows]
        return Table(columns, self.lines[rows], features)

    @classmethod
    def concat(cls, tables: Sequence["Table"]) -> "Table":
        """Return the rows of several tables; a column that a table lacks is missing there."""
        if len(tables) == 1:
            return tables[0]
        names = dict.fromkeys(name for table in tables for name in table.columns)
        sizes = [len(table) for table in tables]
        columns = {
            name: _concat_columns([table.columns.get(name) for table in tables], sizes)
            for name in names
        }
        lines = np.concatenate([table.lines for table in tables]) if tables else np.empty(0)
        return cls(columns, lines.astype(np.int64, copy=False), _concat_features(tables))


def _concat_columns(columns: Sequence[Column | None], sizes: Sequence[int]) -> Column:
    kinds = {kind_of_column(column) for column in columns if column is not None}
    if len(kinds) == 1 and "text" not in kinds:
        dtype = next(column.dtype for column in columns if isinstance(column, np.ndarray))
        filled = [
            np.full(size, None, dtype) if column is None else column
            for column, size in zip(columns, sizes, strict=True)
        ]
        return np.concatenate(filled)  # type: ignore[arg-type]
    code_of: dict[str, int] = {}
    codes = []
    for column, size in zip(columns, sizes, strict=True):
        texts = TextColumn.of([None] * size) if column is None else as_text_column(column)
        new_codes = [code_of.setdefault(value, len(code_of)) for value in texts.values]
        codes.append(np.array([*new_codes, -1], np.int32)[texts.codes])
    return TextColumn(np.concatenate(codes), tuple(code_of))


def _concat_features(tables: Sequence[Table]) -> SparseRows | Array | None:
    features = [table.features for table in tables]
    d = max([X.shape[1] for X in features if X is not None], default=-1)
    if d < 0:
        return None
    if any(isinstance(X, SparseRows) for X in features):
        nothing: Any = np.empty(0, index_type(d)), np.empty(0), d
        return concatenate(
            [
                X if isinstance(X, SparseRows) else SparseRows(np.zeros(len(t) + 1, int), *nothing)
                for X, t in zip(features, tables, strict=True)
            ]
        )
    filled = [np.full((len(table), d), np.nan) for table in tables]
    for rows, X in zip(filled, features, strict=True):
        if X is not None:
            rows[:, : X.shape[1]] = X
    return np.concatenate(filled)


def is_missing(column: Column) -> NDArray[np.bool_]:
    if isinstance(column, TextColumn):
        return column.codes < 0
    if column.dtype.kind == "O":
        values = column.tolist()
        return np.array([v is None or (isinstance(v, float) and v != v) for v in values], bool)
    return np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)


def distinct_codes(codes: NDArray[np.integer[Any]]) -> tuple[list[int], list[int]]:
    """Return the codes that occur, without -1, in order of appearance, and their first rows."""
    distinct, firsts = np.unique(codes, return_index=True)
    order = np.argsort(firsts)
    order = order[distinct[order] >= 0]
    return distinct[order].tolist(), firsts[order].tolist()


def kind_of_column(column: Column) -> Kind:
    if isinstance(column, TextColumn):
        return "text"
    return "date" if column.dtype.kind == "M" else "object" if column.dtype == object else "number"


def as_text_column(column: Column) -> TextColumn:
    if isinstance(column, TextColumn):
        return column
    if column.dtype.kind == "O":
        return TextColumn.of(column.tolist())
    missing = is_missing(column)
    values, codes_present = np.unique(column[~missing], return_inverse=True)
    codes = np.full(len(column), -1, np.int64)
    codes[~missing] = codes_present
    return TextColumn.of(values.tolist(), codes)


def table_from_records(records: Sequence[Mapping[str, Any]], lines: Sequence[int]) -> Table:
    """Return rows as a table, every column of the kind of its values.

    Numbers and truth values are numbers, strings are text, dates are dates; None and NaN are
    missing. A column of several kinds is text, in which a number is written as if it were alone.

    Examples
    --------
    >>> table = table_from_records([{"size": 30, "kind": "cat"}, {"size": 7.5}], [1, 2])
    >>> table.columns["size"], table.columns["kind"].to_list()
    (array([30. ,  7.5]), ['cat', None])
    """
    for line, record in zip(lines, records, strict=True):
        if not isinstance(record, Mapping):
            raise not_a_row_error(record, f"row {line}")
    names = dict.fromkeys(name for record in records for name in record)
    columns: dict[str, Column] = {}
    for name in names:
        columns[str(name)], faults = convert_values([record.get(name) for record in records])
        for row, fault in faults.items():
            raise InvalidInputError(f"row {lines[row]}, column {name!r}: {fault}")
    return Table(columns, np.asarray(lines, np.int64))


class MissingValues:
    """What stands for a missing value besides what always does, and which texts did.

    Of every column None, NaN and an empty text are missing, and so are the texts and numbers
    `asked` for. Where numbers or dates are expected the usual spellings (`convert.is_gap`) are too:
    those that were `taken` so, by column, are warned of.
    """

    def __init__(self, asked: Any = None) -> None:
        asked = () if asked is None else asked
        self.asked = (asked,) if isinstance(asked, str | int | float) else tuple(asked)
        for value in self.asked:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise InvalidInputError(f"missing holds texts and numbers, got {value!r}")
        texts = [text for text in map(convert.format_cell, self.asked) if text is not None]
        numbers = [number for number in map(convert.parse_number, texts) if number is not None]
        self.texts, self.values = texts, frozenset[Any]((*texts, *numbers))
        self._numbers = np.array(numbers)
        self.taken: dict[str, set[str]] = {}

    def drop(self, name: str, values: Sequence[Any]) -> list[Any]:
        """Return values of a column of numbers or dates, None for texts that are missing."""
        kept = list(values)
        for i, value in enumerate(values):
            text = value.strip() if isinstance(value, str) else None
            if text is not None and (text in self.values or convert.is_gap(text)):
                kept[i] = None
                if text not in self.values and text.lower() in convert.WARNED_GAPS:
                    self.taken.setdefault(name, set()).add(text)
        return kept

    def mask(self, table: Table) -> Table:
        """Return a table without the values that were asked for."""
        if not self.values:
            return table
        columns = {name: self._mask_column(column) for name, column in table.columns.items()}
        return Table(columns, table.lines, table.features)

    def _mask_column(self, column: Column) -> Column:
        if isinstance(column, TextColumn):
            return column.without(self.values.__contains__)
        if column.dtype.kind == "O":
            return np.fromiter(map(self.mask_value, column.tolist()), object, len(column))
        is_asked = np.isin(column, self._numbers) if column.dtype.kind == "f" else np.False_
        return np.where(is_asked, np.nan, column) if is_asked.any() else column

    def mask_value(self, value: Any) -> Any:
        """Return a value of a row, None if it was asked for."""
        if isinstance(value, str):
            return None if value.strip() in self.values else value
        return None if isinstance(value, int | float) and value in self.values else value


def slice_rows(table: Table) -> Iterator[slice]:
    """Yield slices of rows that are small enough to be dense."""
    features = table.features
    width = len(table.columns) if features is None else features.shape[1]
    if isinstance(features, SparseRows):
        width = max(width if width < _MAX_DENSE_NUMBERS else 1, features.nnz // len(features))
    size = min(max(1, _MAX_DENSE_NUMBERS // max(1, width)), _MAX_DENSE_ROWS)
    for start in range(0, len(table), size):
        yield slice(start, min(start + size, len(table)))


def not_a_row_error(row: Any, which: str = "a row") -> InvalidInputError:
    got = repr(row)
    if hasattr(row, "to_dict"):  # of pandas or polars, whose repr is a page
        how = "" if hasattr(row, "columns") else ": row.to_dict() makes a dictionary of it"
        got = f"a {type(row).__name__}{how}"
    return InvalidInputError(f"{which} must be a dictionary of columns, got {got}")


def convert_values(
    values: Sequence[Any],
    kind: Kind | None = None,
    decimal: str = ".",
    drop: DropGaps | None = None,
) -> tuple[Column, Faults]:
    """Return values as a column of a kind, and the faults by row.

    If the kind is None it is that of the values, and no number is too large. Where numbers or
    dates are expected, `drop` gets the texts.
    """
    if kind == "object":
        return np.fromiter(values, object, len(values)), {}
    types, is_natural = set(map(type, values)), kind is None
    if kind is None:
        present = types - {type(None)}
        are_dates = [issubclass(t, (date, np.datetime64)) for t in present]
        is_text = any(issubclass(t, str) for t in present) or len(set(are_dates)) == 2
        kind = "text" if is_text else "date" if any(are_dates) else "number"
    if is_natural and kind == "text" and types & {bool, int}:
        values = [
            float(value) if type(value) in (bool, int) and abs(value) <= MAX_ABS_VALUE else value
            for value in values
        ]
    faults: Faults = {}
    if not types <= _SCALAR_TYPES | {str}:
        nested = [row for row, value in enumerate(values) if isinstance(value, _NESTED_TYPES)]
        faults = dict.fromkeys(nested, convert.IS_NESTED)
        values = [None if row in faults else value for row, value in enumerate(values)]
    if kind == "text":
        return TextColumn.of(values), faults
    if drop is not None and any(issubclass(t, str) for t in types):
        values = drop(values)
    are_plain = False
    if kind == "number" and types <= {str, type(None)} and decimal == ".":
        are_plain = "_" not in "".join(filter(None, values))
    if kind == "number" and (are_plain or types <= _SCALAR_TYPES):
        with suppress(ValueError, OverflowError):  # text, or an integer with hundreds of digits
            plain = [math.nan if v is None else float(v) for v in values] if are_plain else values
            numbers = np.array(plain, np.float64)
            if np.fmax.reduce(np.abs(numbers), initial=0.0) <= MAX_ABS_VALUE:
                return numbers, faults
    is_date = kind in convert.DATE_KINDS
    pairs: list[tuple[Any, str]] = [
        convert.to_date(value, kind) if is_date else convert.to_number(value, decimal)
        for value in values
    ]
    column = np.array([value for value, _ in pairs], "datetime64[us]" if is_date else np.float64)
    faults |= {
        row: fault
        for row, (_, fault) in enumerate(pairs)
        if fault and not (is_natural and column[row] == column[row])
    }
    return column, faults


def decode_column(
    codes: NDArray[np.int64],
    values: Sequence[Any],
    kind: Kind,
    decimal: str = ".",
    drop: DropGaps | None = None,
) -> tuple[Column, Faults]:
    """Convert distinct values to no text, once; row t has value `codes[t]`, none if that is -1."""
    distinct: Any
    distinct, faults = convert_values(values, kind, decimal, drop)
    distinct = np.append(distinct, np.array([None], distinct.dtype))  # the last: missing
    rows = np.flatnonzero(np.isin(codes, list(faults))) if faults else ()
    return distinct[codes], {int(row): faults[int(codes[row])] for row in rows}
