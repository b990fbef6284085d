"""CSV: a header, then one record per row. Read by pyarrow; a chunk with faults by Python.

Cells are separated by commas, semicolons, tabs or bars, whichever the header has most of, or by
what the caller says. Spaces around names and cells do not matter, and blank lines neither. A cell
that is empty or says nan, NA, N/A or null is missing. Messages count lines from 1, the header
included.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import Kind, parse_amount, parse_number
from folklearn.readers.csv_records import (
    cut,
    is_blank,
    is_regular,
    last_record_end,
    lines_of,
    records,
)
from folklearn.readers.reader import ParsedChunk
from folklearn.readers.records import Faults, convert_values, decode_column, find_faults
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn
from folklearn.readers.text import LineReader
from folklearn.utils import import_optional, listed

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_QUOTED = re.compile(r'"[^"]*"')
_ALL_MISSING = ("", "nan", "NaN", "NAN", "Nan", "NA", "na", "Na", "N/A", "n/a", "null", "NULL")
_PART = 2**17  # bytes of the parts into which a chunk with a fault is cut
_BLOCK = 2**20  # bytes that a thread of pyarrow parses


class CsvReader(LineReader):
    """A CSV file or a stream of it.

    Parameters
    ----------
    source : where the text comes from.
    delimiter : one character between cells; found out if None.
    decimal : "." or "," before decimals; found out if None.
    """

    format = "csv"

    def __init__(
        self, source: ByteSource, *, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        super().__init__(source)
        import_optional("pyarrow", "CSV files need")
        self.delimiter = (
            _checked(delimiter) if delimiter else _likely_delimiter(source.first_line())
        )
        if delimiter is None and self.delimiter != ",":
            self.notes.append(f"separated by {_DELIMITERS[self.delimiter]}")
        self._last_end = partial(last_record_end, delimiter=self.delimiter)
        self._header = b""  # everything up to the first row, as written
        self._read_header()
        if decimal not in (None, ".", ","):
            raise InvalidInputError(f"decimal is {decimal!r}; expected '.' or ','")
        self.decimal = decimal or "."
        if decimal is None and self.delimiter != "," and self._has_decimal_commas():
            self.decimal = ","
            self.notes.append("decimal comma")

    def _read_header(self) -> None:
        nothing: list[str] = []
        for chunk in self._source.chunks(self._last_end, looking=True):
            for line, record in records(chunk, self.delimiter):
                self._header += record
                found = self._line_by_line([(line, record)], self._cells, nothing)
                if found.faults:
                    raise InvalidInputError(f"line {line} of {self.name}: {found.faults[0][1]}")
                if found.rows:
                    self._name([cell.strip() for cell in found.rows[0]], line)
                    return
        raise InvalidInputError(
            f"{self.name} is empty; expected a header, then one row per example"
        )

    def _name(self, names: list[str], line: int) -> None:
        """Name the columns; of those with one name the later ones are called a.1, a.2, ..."""
        self.check_column_count(len(names))
        numbers = [parse_number(name) for name in names]
        if all(number is not None for number in numbers) and not all(map(str.isdigit, names)):
            raise InvalidInputError(
                f"line {line} of {self.name} is a row of numbers; put a line with the names of the "
                "columns before it"
            )
        taken = dict.fromkeys(names, 0)  # and how many columns have the name
        own: dict[str, str] = {}
        for place, name in enumerate(names):
            if not name and place > 0:
                raise InvalidInputError(
                    f"column {place + 1} of {self.name} has no name in line {line}; name it there"
                )
            new = name
            while new in own or (new != name and new in taken):
                taken[name] += 1
                new = f"{name}.{taken[name]}"
            own[new] = name
        self.names = tuple(own)
        renamed = [new for new, name in own.items() if new != name]
        if renamed:
            self.notes.append(f"columns of one name twice, now called {listed(renamed)}")

    def _has_decimal_commas(self) -> bool:
        columns = [
            column for column in self.head(100).columns.values() if isinstance(column, TextColumn)
        ]
        texts = [text for column in columns for text in column.values]
        self._head = None  # its size was for this question only
        commas = [text for text in texts if "," in text and parse_amount(text, ",") is not None]
        points = [text for text in texts if "." in text and parse_amount(text) is not None]
        return bool(commas) and not set(points) - set(commas)

    def _part_of(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        wanted: Mapping[str, Kind] = dict.fromkeys(self.names, "text") if kinds is None else kinds
        whole = self._fast(chunk, wanted)
        if whole is not None:
            return whole
        # A fault is in few of its parts; the others are still read fast.
        parts = [
            self._fast(part, wanted) or self._slow(part, wanted)
            for part in cut(chunk, self.delimiter, _PART)
        ]
        bad = [row for part in parts for row in part.bad]
        return ParsedChunk(Table.concat([part.block for part in parts]), bad)

    def _chunks(self, looking: bool) -> Iterator[Chunk]:
        """Yield the chunks behind the header."""
        chunks = self._source.chunks(self._last_end, looking)
        start = b""
        for chunk in chunks:
            start += chunk.data
            if len(start) < len(self._header):
                continue
            if not start.startswith(self._header):
                break
            rest = start[len(self._header) :]
            if rest:
                yield Chunk(rest, 1 + self._header.count(b"\n"))
            yield from chunks
            return
        if not start.startswith(self._header):
            raise InvalidInputError(f"{self.name} does not have the columns it had before")

    def _fast(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> ParsedChunk | None:
        """Return a chunk as pyarrow reads it, None unless everything is as it should be."""
        data = chunk.data
        if not is_regular(data, self.delimiter, is_narrow=len(self.names) == 1):
            return None
        # Amounts such as $5,643.83 are numbers to us only.
        table = self._table(data, kinds) or self._table(data, dict.fromkeys(kinds, "text"))
        if table is None:
            return None
        lines = lines_of(chunk, table.num_rows, self.delimiter)
        if lines is None:
            return None
        columns: dict[str, Column] = {}
        for name, kind in kinds.items():
            cells = table.column(name)
            if kind == "number" and cells.type == "double":
                numbers = cells.to_numpy()
                columns[name], faults = numbers, find_faults(numbers)
            else:
                columns[name], faults = _encoded(cells, kind, self.decimal)
            if faults:
                return None
        return ParsedChunk(Table(columns, lines), ())

    def _table(self, data: bytes, kinds: Mapping[str, Kind]) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        text = pa.dictionary(pa.int32(), pa.string())
        types = {name: pa.float64() if kind == "number" else text for name, kind in kinds.items()}
        try:
            return arrow_csv.read_csv(
                pa.BufferReader(data),
                arrow_csv.ReadOptions(
                    column_names=self.names,
                    block_size=_BLOCK,
                    use_threads=len(data) > _BLOCK,
                ),
                arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=b'"' in data),
                arrow_csv.ConvertOptions(
                    column_types=types or {self.names[0]: text},
                    include_columns=[*types] or [self.names[0]],
                    null_values=_ALL_MISSING,
                    decimal_point=self.decimal,
                    check_utf8=False,  # all of it was checked before
                ),
            )
        except pa.ArrowInvalid:
            return None

    def _slow(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> ParsedChunk:
        """Return a chunk as Python reads it, record by record, bad ones apart."""
        whole = records(chunk, self.delimiter)
        found = self._line_by_line(whole, self._row, [""] * len(self.names))
        faults = found.faults
        columns: dict[str, Column] = {}
        places = {name: place for place, name in enumerate(self.names)}
        for name, kind in kinds.items():
            place = places[name]
            columns[name], own = convert_values(
                [row[place] for row in found.rows], kind, self.decimal
            )
            for row, fault in own.items():
                faults.setdefault(row, (name, fault))
        return self.part(Table(columns, np.array(found.lines, np.int64)), faults, found.texts)

    def _row(self, text: str) -> list[str] | None:
        cells = self._cells(text)
        if cells and len(cells) != len(self.names):
            raise InvalidInputError(
                f"it has {len(cells)} cells where the header has {len(self.names)}"
            )
        return cells

    def _cells(self, text: str) -> list[str] | None:
        """Return the cells of a record, None if it is blank."""
        if is_blank(text.encode(), self.delimiter):
            return None
        try:
            rows = csv.reader([text], delimiter=self.delimiter, strict=True, skipinitialspace=True)
            return next(rows)
        except csv.Error as error:
            raise InvalidInputError(f"it cannot be read as CSV ({error})") from None


def _likely_delimiter(header: str) -> str:
    bare = _QUOTED.sub("", header)
    return max(_DELIMITERS, key=bare.count)


def _checked(delimiter: str) -> str:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise InvalidInputError(
            f"the delimiter is {delimiter!r}; expected one character, such as ',' or ';'"
        )
    return delimiter


def _encoded(cells: Any, kind: Kind, decimal: str) -> tuple[Column, Faults]:
    whole = cells.unify_dictionaries().combine_chunks()
    if hasattr(whole, "chunks"):  # of several chunks, or of none
        whole = whole.chunk(0) if whole.num_chunks else None
    if whole is None:
        return convert_values([], kind)
    codes = whole.indices.cast("int64").fill_null(-1).to_numpy()
    return decode_column(codes, whole.dictionary.to_pylist(), kind, decimal)
