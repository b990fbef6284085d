"""Tables of named, typed columns: what every reader yields and every model takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.readers.convert import (
    DATE_KINDS,
    IS_NESTED,
    MAX_ABS_VALUE,
    Kind,
    format_cell,
    to_date,
    to_number,
)
from folklearn.sparse import SparseRows, concatenate

Dates = NDArray[np.datetime64]
RowSelection = slice | NDArray[np.int64] | NDArray[np.bool_]
Faults = dict[int, str]  # what is wrong, by row

_SCALAR_TYPES = {int, float, bool, type(None)}
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
    def of(cls, values: Iterable[Any]) -> "TextColumn":
        """Return the values of rows as text, in order of appearance.

        >>> column = TextColumn.of(["red", None, " red", "blue", "n/a"])
        >>> column.codes.tolist(), column.values
        ([0, -1, 0, 1, -1], ('red', 'blue'))
        """
        code_of: dict[str, int] = {}
        codes = [
            -1 if text is None else code_of.setdefault(text, len(code_of))
            for text in map(format_cell, values)
        ]
        return cls(np.array(codes, np.int32), tuple(code_of))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: RowSelection) -> "TextColumn":
        return TextColumn(self.codes[rows], self.values)

    def to_list(self) -> list[str | None]:
        """Return the text of every row, None if it is missing."""
        by_code = (*self.values, None)
        return [by_code[code] for code in self.codes.tolist()]


Column = Array | TextColumn | Dates


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as columns of one length.

    Parameters
    ----------
    columns : by name, in order: numbers with NaN for missing values, `TextColumn`, or dates in
        microseconds with NaT for missing values.
    lines : (T,) origin of every row: its line in a text file, or its row (from 1) in a table.
    features : of svmlight and VW text the nonzero features by number; of VW by the hash of the
        name. Or a (T, d) matrix of unnamed numbers.
    """

    columns: Mapping[str, Column]
    lines: NDArray[np.int64]
    features: SparseRows | Array | None = field(default=None)

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
    kinds = {
        "text" if isinstance(column, TextColumn) else column.dtype.kind
        for column in columns
        if column is not None
    }
    if kinds in ({"M"}, {"f"}):
        missing: Any = np.datetime64("NaT", "us") if kinds == {"M"} else np.float64(np.nan)
        filled: list[Any] = [
            np.full(size, missing) if column is None else column
            for column, size in zip(columns, sizes, strict=True)
        ]
        return np.concatenate(filled)
    code_of: dict[str, int] = {}
    codes = []
    for column, size in zip(columns, sizes, strict=True):
        empty = TextColumn(np.full(size, -1, np.int32), ())
        texts = empty if column is None else as_text_column(column)
        new_codes = [code_of.setdefault(value, len(code_of)) for value in texts.values]
        codes.append(np.array([*new_codes, -1], np.int32)[texts.codes])
    return TextColumn(np.concatenate(codes), tuple(code_of))


def _concat_features(tables: Sequence[Table]) -> SparseRows | Array | None:
    features = [table.features for table in tables]
    sparse = [rows for rows in features if isinstance(rows, SparseRows)]
    if sparse:
        nothing = sparse[0].indices[:0], np.empty(0), sparse[0].shape[1]
        return concatenate(
            [
                rows
                if isinstance(rows, SparseRows)
                else SparseRows(np.zeros(len(table) + 1, np.int64), *nothing)
                for rows, table in zip(features, tables, strict=True)
            ]
        )
    d = max([X.shape[1] for X in features if X is not None], default=-1)
    if d < 0:
        return None
    both = np.full((sum(map(len, tables)), d), np.nan)
    start = 0
    for X, table in zip(features, tables, strict=True):
        if isinstance(X, np.ndarray):
            both[start : start + len(table), : X.shape[1]] = X
        start += len(table)
    return both


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Return the (T,) mask of missing values."""
    if isinstance(column, TextColumn):
        return column.codes < 0
    mask: NDArray[np.bool_] = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)
    return mask


def kind_of_column(column: Column) -> Kind:
    """Return "text", "date" or "number"."""
    if isinstance(column, TextColumn):
        return "text"
    return "date" if column.dtype.kind == "M" else "number"


def as_text_column(column: Column) -> TextColumn:
    """Return a column with its values written as text."""
    if isinstance(column, TextColumn):
        return column
    missing = is_missing(column)
    values, codes_present = np.unique(column[~missing], return_inverse=True)
    codes = np.full(len(column), -1, np.int64)
    codes[~missing] = codes_present
    column, _ = decode_column(codes, values.tolist(), "text")
    assert isinstance(column, TextColumn)
    return column


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


def not_a_row_error(row: Any, which: str = "a row") -> InvalidInputError:
    """Return the error that a row is no mapping of column names to values."""
    got = repr(row)
    if hasattr(row, "to_dict"):  # a Series of pandas, whose repr is a page
        got = f"a {type(row).__name__}: row.to_dict() makes a dictionary of it"
    return InvalidInputError(f"{which} must be a dictionary of columns, got {got}")


def convert_values(
    values: Sequence[Any], kind: Kind | None = None, decimal: str = "."
) -> tuple[Column, Faults]:
    """Return values as a column of a kind, and the faults by row.

    If the kind is None it is that of the values, and no number is too large.
    """
    types = set(map(type, values))
    if kind is None:
        return _convert_as_they_are(values, types, decimal)
    faults: Faults = {}
    if not types <= _SCALAR_TYPES | {str}:
        nested = [row for row, value in enumerate(values) if isinstance(value, _NESTED_TYPES)]
        faults = dict.fromkeys(nested, IS_NESTED)
        values = [None if row in faults else value for row, value in enumerate(values)]
    if kind == "text":
        return TextColumn.of(values), faults
    numbers = None if kind in DATE_KINDS else _convert_plain_numbers(values, types, decimal)
    if numbers is not None:
        return numbers, faults
    pairs: list[tuple[Any, str]] = (
        [to_date(value, kind) for value in values]
        if kind in DATE_KINDS
        else [to_number(value, decimal) for value in values]
    )
    faults |= {row: fault for row, (_, fault) in enumerate(pairs) if fault}
    dtype = "datetime64[us]" if kind in DATE_KINDS else np.float64
    return np.array([value for value, _ in pairs], dtype), faults


def _convert_as_they_are(
    values: Sequence[Any], types: set[type], decimal: str
) -> tuple[Column, Faults]:
    kind = _kind_of_types(types)
    if kind == "text" and types & {bool, int}:
        values = [
            float(value) if type(value) in (bool, int) and abs(value) <= MAX_ABS_VALUE else value
            for value in values
        ]
    column, faults = convert_values(values, kind, decimal)
    if isinstance(column, TextColumn) or column.dtype.kind != "f":
        return column, {row: fault for row, fault in faults.items() if fault == IS_NESTED}
    return column, {row: fault for row, fault in faults.items() if np.isnan(column[row])}


def _kind_of_types(types: set[type]) -> Kind:
    present = types - {type(None)}
    if any(issubclass(kind, str) for kind in present):
        return "text"
    are_dates = [issubclass(kind, (date, np.datetime64)) for kind in present]
    if not any(are_dates):
        return "number"
    return "date" if all(are_dates) else "text"


def _convert_plain_numbers(values: Sequence[Any], types: set[type], decimal: str) -> Array | None:
    """Return numbers, or texts that all are numbers; None if they must be read one by one."""
    if types == {str} and (decimal != "." or "_" in "".join(values)):
        return None
    if types != {str} and not types <= _SCALAR_TYPES:
        return None
    try:
        column = np.array([*map(float, values)] if types == {str} else values, np.float64)
    except (ValueError, OverflowError):  # text, or an integer with hundreds of digits
        return None
    return None if find_faults(column) else column


def decode_column(
    codes: NDArray[np.int64], values: Sequence[Any], kind: Kind, decimal: str = "."
) -> tuple[Column, Faults]:
    """Convert distinct values once; row t has the value `codes[t]`, none if that is -1."""
    distinct: Any
    distinct, faults = convert_values(values, kind, decimal)
    if isinstance(distinct, TextColumn):
        text_codes = np.append(distinct.codes, np.int32(-1))[codes]  # -1 is the last: missing
        return TextColumn(text_codes.astype(np.int32, copy=False), distinct.values), {}
    distinct = np.append(distinct, np.array([None], distinct.dtype))
    rows = np.flatnonzero(np.isin(codes, list(faults))) if faults else ()
    return distinct[codes], {int(row): faults[int(codes[row])] for row in rows}


def find_faults(numbers: Array) -> Faults:
    """Return what is wrong with numbers, by row; a missing number is no fault."""
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(np.abs(numbers) > MAX_ABS_VALUE)
    return {int(row): to_number(float(numbers[row]))[1] for row in rows}
