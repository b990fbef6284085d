"""CSV: a header, then one record per row.

Cells are separated by whichever of commas, semicolons, tabs and bars the header has most of, or as
the caller says. Spaces around names and cells and blank lines do not matter. A chunk is read by
pyarrow, one with faults or irregular quotes by Python's csv, which names the line and takes 3 times
as long (10^5 rows of 11 mixed columns: 1.6 s instead of .5 s).
"""

import codecs
import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.kernels.text import record_ends
from folklearn.readers.columnar import convert_arrow
from folklearn.readers.convert import Kinds, parse_amount, parse_number
from folklearn.readers.reader import LineReader, ParsedChunk, is_utf8
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, convert_values
from folklearn.utils import import_optional, join_names

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_QUOTED = re.compile(r'"[^"]*"')
_SPACE_LINE = re.compile(rb"(?:^|\n)[ \t]+\r?\n")
_PLAIN_GAPS = ("", "nan", "NaN", "NAN", "Nan", "NA", "na", "Na", "N/A", "n/a", "null", "NULL")
_THREAD_BYTES = 2**20  # that a thread of pyarrow parses


class CsvReader(LineReader):
    """A CSV file or a stream of it; delimiter and decimal mark are inferred if they are None."""

    format = "csv"

    def __init__(
        self, source: ByteSource, *, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        super().__init__(source)
        # Columns of numbers that pyarrow cannot read as such, as $5,643.83 and "-" for a gap.
        self._not_plain: set[str] = set()
        import_optional("pyarrow", "CSV files need")
        unquoted = _QUOTED.sub("", source.first_line())
        self.delimiter = max(_DELIMITERS, key=unquoted.count) if delimiter is None else delimiter
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0':
            raise InvalidInputError(f"the delimiter is {delimiter!r}; expected one character")
        if delimiter is None and self.delimiter != ",":
            self.notes.append(f"separated by {_DELIMITERS[self.delimiter]}")
        self._header = b""  # everything up to the first row, as written
        self._read_header()
        if decimal not in (None, ".", ","):
            raise InvalidInputError(f"decimal is {decimal!r}; expected '.' or ','")
        self.decimal = decimal or "."
        if decimal is None and self.delimiter != "," and self._has_decimal_commas():
            self.decimal = ","
            self.notes.append("decimal comma")

    def _read_header(self) -> None:
        for chunk in self._source.chunks(self.delimiter, looking=True):
            for line, record in split_records(chunk, self.delimiter):
                self._header += record
                rows, _, _, bad = self._parse_lines([(line, record)], self._parse_cells)
                if bad:
                    raise InvalidInputError(bad[0].sentence)
                if rows:
                    return self._name_columns([cell.strip() for cell in rows[0]], line)
        raise InvalidInputError(f"{self.name} is empty; expected a header, then the rows")

    def _name_columns(self, names: list[str], line: int) -> None:
        self.check_column_count(len(names))
        numbers = [parse_number(name) for name in names]
        if all(number is not None for number in numbers) and not all(map(str.isdigit, names)):
            raise InvalidInputError(
                f"line {line} of {self.name} is a row of numbers; put a line with the names of the "
                "columns before it"
            )
        if any("." in name for name, x in zip(names, numbers, strict=True) if x is not None):
            self.notes.append(
                f"line {line} is taken for names, and has numbers: if it is a row, put a line with "
                "the names of the columns before it"
            )
        n_renamed = dict.fromkeys(names, 0)
        original: dict[str, str] = {}
        for number, name in enumerate(names, start=1):
            if not name and number > 1:
                raise InvalidInputError(f"column {number} of {self.name} has no name, line {line}")
            new = name
            while new in original or (new != name and new in n_renamed):
                n_renamed[name] += 1
                new = f"{name}.{n_renamed[name]}"
            original[new] = name
        self.names = tuple(original)
        renamed = [new for new, name in original.items() if new != name]
        if renamed:
            self.notes.append(
                f"duplicate column names: the later ones were renamed {join_names(renamed)}"
            )

    def _has_decimal_commas(self) -> bool:
        columns: Any = self.head().columns.values()  # all of them are text
        texts = {text for column in columns for text in column.values}
        commas = {text for text in texts if "," in text and parse_amount(text, ",") is not None}
        points = {text for text in texts if "." in text and parse_amount(text) is not None}
        return bool(commas) and points <= commas

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        wanted: Kinds = dict.fromkeys(self.names, "text") if kinds is None else kinds
        header = self._header
        for data, line in self._source.chunks(self.delimiter, looking):
            n = min(len(header), len(data))
            if data[:n] != header[:n]:
                break
            header, rest = header[n:], data[n:]
            if rest:
                records = Chunk(rest, line + data.count(b"\n", 0, n))
                yield self._parse_regular(records, wanted) or self._parse_irregular(records, wanted)
        if header:
            raise InvalidInputError(f"{self.name} does not have the columns it had before")

    def _parse_regular(self, chunk: Chunk, kinds: Kinds) -> ParsedChunk | None:
        """Return a chunk as pyarrow reads it, None unless it has no fault."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        data = chunk.data
        if (
            # To find is ten times faster than to count.
            (b"\r" in data and data.count(b"\r") != data.count(b"\r\n"))
            or not is_utf8(data)
            or data.startswith(codecs.BOM_UTF8)  # which pyarrow would skip
            or (len(self.names) == 1 and _SPACE_LINE.search(data))
            or (b'"' in data and not record_ends(data, self.delimiter)[1])
        ):
            return None
        number, text = pa.float64(), pa.dictionary(pa.int32(), pa.string())
        columns_read = [*kinds] or [self.names[0]]
        numeric = {name for name, kind in kinds.items() if kind == "number"}
        for as_numbers in (numeric - self._not_plain, set[str]()):
            types = {n: number if n in as_numbers else text for n in columns_read}
            with suppress(pa.ArrowInvalid):
                table = arrow_csv.read_csv(
                    pa.BufferReader(data),
                    arrow_csv.ReadOptions(
                        column_names=self.names,
                        block_size=_THREAD_BYTES,
                        use_threads=len(data) > _THREAD_BYTES,
                    ),
                    arrow_csv.ParseOptions(
                        delimiter=self.delimiter, newlines_in_values=b'"' in data
                    ),
                    arrow_csv.ConvertOptions(
                        column_types=types,
                        include_columns=columns_read,
                        null_values=[*_PLAIN_GAPS, *sorted(self.missing.texts)],
                        decimal_point=self.decimal,
                        check_utf8=False,  # all of it was checked before
                    ),
                )
                break
        else:
            return None
        lines = np.arange(chunk.line, chunk.line + table.num_rows)
        if data.count(b"\n") != table.num_rows:
            records = split_records(chunk, self.delimiter)
            lines = np.array([n for n, record in records if not self._is_blank(record)], np.int64)
            if len(lines) != table.num_rows:
                return None
        for name in numeric - as_numbers - self._not_plain:
            values = table.column(name).combine_chunks().dictionary.to_pylist()
            if any(v not in _PLAIN_GAPS and parse_number(v, self.decimal) is None for v in values):
                self._not_plain.add(name)
        columns: dict[str, Column] = {}
        for name, kind in kinds.items():
            drop = partial(self.missing.drop, name)
            columns[name], faults = convert_arrow(table.column(name), kind, self.decimal, drop)
            if faults:
                return None
        return ParsedChunk(Table(columns, lines), ())

    def _parse_irregular(self, chunk: Chunk, kinds: Kinds) -> ParsedChunk:
        records = split_records(chunk, self.delimiter)
        rows, lines, texts, bad = self._parse_lines(records, self._parse_cells)
        cells_of = dict(zip(self.names, zip(*rows, strict=True), strict=True)) if rows else {}
        converted = {
            name: convert_values(
                cells_of.get(name, ()), kind, self.decimal, partial(self.missing.drop, name)
            )
            for name, kind in kinds.items()
        }
        return self.assemble_rows(converted, lines, texts=texts, bad=bad)

    def _parse_cells(self, text: str) -> list[str] | None:
        if self._is_blank(text.encode()):
            return None
        try:
            rows = csv.reader([text], delimiter=self.delimiter, strict=True, skipinitialspace=True)
            cells = next(rows)
        except csv.Error as error:
            raise InvalidInputError(f"it cannot be read as CSV ({error})") from None
        if self.names and len(cells) != len(self.names):
            raise InvalidInputError(f"it has {len(cells)} cells, the header {len(self.names)}")
        return cells

    def _is_blank(self, record: bytes) -> bool:
        return not record.strip(b" \t\r\n".replace(self.delimiter.encode(), b""))


def split_records(chunk: Chunk, delimiter: str) -> Iterator[tuple[int, bytes]]:
    """Yield the line where it starts and the text of every record; the last may be unclosed."""
    line, start = chunk.line, 0
    for end in (*record_ends(chunk.data, delimiter)[0].tolist(), len(chunk.data)):
        record = chunk.data[start:end]
        if record:
            yield line, record
        start = end
        line += record.count(b"\n")
