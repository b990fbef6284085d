"""Rows as Python has them, one mapping each: to columns, without any further package."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.readers import convert
from folklearn.readers.convert import Kind
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.table import Column, Table, TextColumn

Faults = dict[int, str]  # what is wrong, by row

_AT_A_TIME = 1000  # rows
_PLAIN = {int, float, bool, type(None)}
_NESTED = (Mapping, list, tuple, set, np.ndarray)


def table_from_records(records: Sequence[Mapping[str, Any]], lines: Sequence[int]) -> Table:
    """Return rows as a block, every column of the kind of its values.

    Numbers and truth values are numbers, strings are text, dates are dates; None and NaN are
    missing. A column of several kinds is text, in which a number is written as if it were alone.

    Examples
    --------
    >>> block = table_from_records([{"size": 30, "kind": "cat"}, {"size": 7.5}], [1, 2])
    >>> block.columns["size"], block.columns["kind"].to_list()
    (array([30. ,  7.5]), ['cat', None])
    """
    for line, record in zip(lines, records, strict=True):
        if not isinstance(record, Mapping):
            raise not_a_row_error(record, f"row {line}")
    names = dict.fromkeys(name for record in records for name in record)
    columns: dict[str, Column] = {}
    for name in names:
        columns[str(name)], faults = convert_values([record.get(name) for record in records])
        for place, fault in faults.items():
            raise InvalidInputError(f"row {lines[place]}, column {name!r}: {fault}")
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
    """Return values as a column of a kind, and what is wrong in which row.

    If the kind is None it is that of the values, and no number is too large.
    """
    kinds = set(map(type, values))
    if kind is None:
        own = _own_kind(kinds)
        if own == "text" and kinds & {bool, int}:
            values = [
                float(value)
                if type(value) in (bool, int) and abs(value) <= convert.MAX_ABS_VALUE
                else value
                for value in values
            ]
        column, faults = convert_values(values, own, decimal)
        if isinstance(column, TextColumn) or column.dtype.kind != "f":
            return column, {
                row: fault for row, fault in faults.items() if fault == convert.IS_NESTED
            }
        return column, {row: fault for row, fault in faults.items() if np.isnan(column[row])}
    faults = {
        row: convert.IS_NESTED
        for row, value in enumerate(values)
        if isinstance(value, _NESTED)
    } if not kinds <= _PLAIN | {str} else {}  # fmt: skip
    if faults:
        values = [None if row in faults else value for row, value in enumerate(values)]
    if kind == "text":
        return TextColumn.of(values), faults
    if kind in convert.DATE_KINDS:
        dates = [convert.to_date(value, kind) for value in values]
        faults |= {row: fault for row, (_, fault) in enumerate(dates) if fault}
        return np.array([found for found, _ in dates], "datetime64[us]"), faults
    plain = _all_at_once(values, kinds, decimal)
    if plain is not None:
        return plain, faults
    numbers = [convert.to_number(value, decimal) for value in values]
    faults |= {row: fault for row, (_, fault) in enumerate(numbers) if fault}
    return np.array([found for found, _ in numbers], np.float64), faults


def decode_column(
    codes: NDArray[np.int64], values: Sequence[Any], kind: Kind, decimal: str = "."
) -> tuple[Column, Faults]:
    """Return a column whose rows have these values by place, -1 for none."""
    if kind == "text":
        return TextColumn.from_codes(codes, values), {}
    distinct: Any
    distinct, faults = convert_values(values, kind, decimal)
    distinct = np.append(distinct, np.array([None], distinct.dtype))  # for -1, which is the last
    rows = np.flatnonzero(np.isin(codes, list(faults))) if faults else ()
    return distinct[codes], {int(row): faults[int(codes[row])] for row in rows}


def find_faults(numbers: Array) -> Faults:
    """Return what is wrong with numbers; that one is missing is not."""
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(np.abs(numbers) > convert.MAX_ABS_VALUE)
    return {int(row): convert.to_number(float(numbers[row]))[1] for row in rows}


def _own_kind(kinds: set[type]) -> Kind:
    known = {kind for kind in kinds if kind is not type(None)}
    if any(issubclass(kind, str) for kind in known):
        return "text"
    dates = [issubclass(kind, (date, np.datetime64)) for kind in known]
    if not any(dates):
        return "number"
    return "date" if all(dates) else "text"


def _all_at_once(values: Sequence[Any], kinds: set[type], decimal: str) -> Array | None:
    """Return numbers, or texts that all are numbers; None if they must be read one by one."""
    if kinds == {str} and (decimal != "." or "_" in "".join(values)):
        return None
    if kinds != {str} and not kinds <= _PLAIN:
        return None
    try:
        column = np.array([*map(float, values)] if kinds == {str} else values, np.float64)
    except (ValueError, OverflowError):  # text, or an integer with hundreds of digits
        return None
    return None if find_faults(column) else column


class RowsReader(Reader):
    """Mappings of column names to values, from a sequence or from anything that yields them.

    Parameters
    ----------
    rows : the mappings. A list or tuple can be read again, an iterator only once.
    name : what messages call them.
    """

    format = "rows"
    unit = "row"
    _may_bring_more = True

    def __init__(self, rows: Iterable[Mapping[str, Any]], name: str = "the rows") -> None:
        super().__init__(name)
        self.can_reread = isinstance(rows, Sequence)
        self.n_rows = len(rows) if isinstance(rows, Sequence) else None
        self._rows = rows if isinstance(rows, Sequence) else iter(rows)
        self._kept: list[Mapping[str, Any]] = []  # what was looked at and not yet read
        self.names = tuple(self.head().columns)

    def _parts(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        rows = self._looked_at() if looking else self._all()
        row = 1
        while records := list(islice(rows, _AT_A_TIME)):
            numbers = np.arange(row, row + len(records))
            yield part_of_records(self, records, numbers, kinds)
            row += len(records)
            self.fraction = row / self.n_rows if self.n_rows else None

    def _all(self) -> Iterator[Mapping[str, Any]]:
        yield from self._kept
        self._kept = []
        yield from self._rows

    def _looked_at(self) -> Iterator[Mapping[str, Any]]:
        if isinstance(self._rows, Sequence):
            yield from self._rows
            return
        yield from tuple(self._kept)
        for row in self._rows:
            self._kept.append(row)
            yield row


def part_of_records(
    reader: Reader, records: Sequence[Any], lines: NDArray[np.int64],
    kinds: Mapping[str, Kind] | None, faults: dict[int, tuple[str, str]] | None = None,
    texts: Sequence[str] = (),
) -> ParsedChunk:  # fmt: skip
    """Return rows of a reader as columns of the kinds asked for, bad rows apart.

    A column that is not asked for is left out, unless the reader does not know it yet. Faults
    that are known already are given by row.
    """
    faults = {} if faults is None else faults
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            shown = type(record).__name__
            faults[row] = "", f"it is not a mapping of column names to values but {shown}"
    rows = [{} if row in faults else record for row, record in enumerate(records)]
    names = dict.fromkeys(name for record in rows for name in record)
    reader.check_column_count(len(names))
    if not all(isinstance(name, str) for name in names):
        rows = [{str(name): value for name, value in record.items()} for record in rows]
        names = dict.fromkeys(map(str, names))
    known = reader.known if kinds is not None else ()
    wanted = [*(kinds or ()), *(name for name in names if name not in known)]
    columns: dict[str, Column] = {}
    for name in dict.fromkeys(wanted):
        kind = None if kinds is None else kinds.get(name)
        values = [record.get(name) for record in rows]
        column, own = convert_values(values, kind, reader.decimal)
        if kind is None and own and len(own) == sum(value is not None for value in values):
            reader.leave_out(name, "nested values")
            continue
        columns[name] = column
        for row, fault in own.items():
            faults.setdefault(row, (name, fault))
    return reader.part(Table(columns, lines), faults, texts)
