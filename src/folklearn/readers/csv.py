"""CSV: a header, then one record per row. Read by pyarrow; a chunk with faults by Python.

Cells are separated by commas, semicolons, tabs or bars, whichever the header has most of, or by
what the caller says. Spaces around names and cells do not matter, and blank lines neither. A cell
that is empty or says nan, NA, N/A or null is missing. Messages count lines from 1, the header
included.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError
from folklearn.numerics.csv_text import ends_of
from folklearn.readers.block import Block, Column, Texts
from folklearn.readers.cells import Kind, number_in
from folklearn.readers.lines import is_text, text_of
from folklearn.readers.reader import Part, Reader
from folklearn.readers.records import Faults, column_of, faults_of, spread
from folklearn.readers.source import Chunk, Source, needed

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_QUOTED = re.compile(r'"[^"]*"')
_BLANK_LINE = re.compile(rb"(?:^|\n)[ \t]+\r?\n")  # but not empty
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_ALL_MISSING = ("", "nan", "NaN", "NAN", "Nan", "NA", "na", "Na", "N/A", "n/a", "null", "NULL")
_BLOCK = 2**20  # bytes that a thread of pyarrow parses


class CsvReader(Reader):
    """A CSV file or a stream of it.

    Parameters
    ----------
    source : where the text comes from.
    delimiter : one character between cells; found out if None.
    decimal : "." or "," before decimals; found out if None.
    """

    format = "csv"

    def __init__(
        self, source: Source, *, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        super().__init__(source.name)
        needed("pyarrow", "CSV files need")
        self._source = source
        self.can_reread, self.is_live = not source.is_live, source.is_live
        self.notes = source.notes
        self.delimiter = (
            _checked(delimiter) if delimiter else _likely_delimiter(source.first_line())
        )
        if delimiter is None and self.delimiter != ",":
            self.notes.append(f"separated by {_DELIMITERS[self.delimiter]}")
        self._last_end = partial(_last_record_end, delimiter=self.delimiter)
        self._header = b""  # everything up to the first row, as written
        self._read_header()
        if decimal not in (None, ".", ","):
            raise InvalidInputError(f"decimal is {decimal!r}; expected '.' or ','")
        self.decimal = decimal or "."
        if decimal is None and self.delimiter != "," and self._has_decimal_commas():
            self.decimal = ","
            self.notes.append("decimal comma")

    def _read_header(self) -> None:
        line = 1
        for chunk in self._source.chunks(self._last_end, looking=True):
            for record in _records(chunk.data, self.delimiter):
                self._header += record
                cells = self._cells(record)
                if isinstance(cells, str):
                    raise InvalidInputError(f"line {line} of {self.name}: {cells}")
                if cells:
                    self.names = tuple(cell.strip() for cell in cells)
                    self._check_names(line)
                    return
                line += record.count(b"\n")
        raise InvalidInputError(
            f"{self.name} is empty; expected a header, then one row per example"
        )

    def _check_names(self, line: int) -> None:
        names = self.names
        numbers = [number_in(name) for name in names]
        if all(number is not None for number in numbers) and not all(map(str.isdigit, names)):
            raise InvalidInputError(
                f"line {line} of {self.name} is a row of numbers; put a line with the names of the "
                "columns before it"
            )
        for place, name in enumerate(names):
            if not name and place > 0:
                raise InvalidInputError(
                    f"column {place + 1} of {self.name} has no name in line {line}; name it there"
                )
            if name in names[:place]:
                raise InvalidInputError(
                    f"{self.name} has two columns named {name!r}, columns "
                    f"{names.index(name) + 1} and {place + 1}; rename one of them in line {line}"
                )

    def _has_decimal_commas(self) -> bool:
        columns = [
            column for column in self.head(100).columns.values() if isinstance(column, Texts)
        ]
        texts = [text for column in columns for text in column.values]
        has_commas = any(_COMMA_NUMBER.fullmatch(text) for text in texts)
        self._head = None  # its size was for this question only
        return has_commas and not any(_POINT_NUMBER.fullmatch(text) for text in texts)

    def _parts(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[Part]:
        wanted: Mapping[str, Kind] = dict.fromkeys(self.names, "text") if kinds is None else kinds
        for chunk in self._rows(looking):
            self.fraction = self._source.fraction
            yield self._fast(chunk, wanted) or self._slow(chunk, wanted)

    def _rows(self, looking: bool) -> Iterator[Chunk]:
        """Yield the chunks behind the header."""
        chunks = self._source.chunks(self._last_end, looking)
        start, line = b"", 1
        for chunk in chunks:
            start += chunk.data
            if len(start) < len(self._header):
                continue
            if not start.startswith(self._header):
                break
            rest = start[len(self._header) :]
            if rest:
                yield Chunk(rest, line + self._header.count(b"\n"))
            yield from chunks
            return
        if not start.startswith(self._header):
            raise InvalidInputError(f"{self.name} does not have the columns it had before")

    def _fast(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> Part | None:
        """Return a chunk as pyarrow reads it, None unless everything is as it should be."""
        data = chunk.data
        if not _is_regular(data, self.delimiter, is_narrow=len(self.names) == 1):
            return None
        table = self._table(data, kinds)
        if table is None:
            return None
        lines = _lines_of(chunk, table.num_rows, self.delimiter)
        if lines is None:
            return None
        columns: dict[str, Column] = {}
        for name, kind in kinds.items():
            cells = table.column(name)
            if kind == "number":
                numbers = cells.to_numpy()
                columns[name], faults = numbers, faults_of(numbers)
            else:
                columns[name], faults = _encoded(cells, kind)
            if faults:
                return None
        return Part(Block(columns, lines), ())

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

    def _slow(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> Part:
        """Return a chunk as Python reads it, record by record, bad ones apart."""
        lines: list[int] = []
        texts: list[str] = []
        rows: list[Sequence[str]] = []
        faults: dict[int, tuple[str, str]] = {}
        line = chunk.line
        gaps = [""] * len(self.names)
        for record in _records(chunk.data, self.delimiter):
            cells = self._cells(record)
            if isinstance(cells, str):
                faults[len(rows)] = "", cells
            elif cells and len(cells) != len(gaps):
                problem = f"it has {len(cells)} cells where the header has {len(gaps)}"
                faults[len(rows)] = "", problem
            if cells:
                rows.append(gaps if len(rows) in faults else cells)
                lines.append(line)
                texts.append(record.decode(errors="replace").rstrip("\r\n"))
            line += record.count(b"\n")
        columns: dict[str, Column] = {}
        for name, kind in kinds.items():
            place = self.names.index(name)
            columns[name], own = column_of([row[place] for row in rows], kind, self.decimal)
            for row, fault in own.items():
                faults.setdefault(row, (name, fault))
        return self.part(Block(columns, np.array(lines, np.int64)), faults, texts)

    def _cells(self, record: bytes) -> list[str] | str:
        """Return the cells of a record, none if it is blank, or what is wrong with it."""
        text, fault = text_of(record, self._source.encoding)
        if fault:
            return fault
        if _is_blank(record, self.delimiter):
            return []
        try:
            rows = csv.reader([text], delimiter=self.delimiter, strict=True, skipinitialspace=True)
            return next(rows)
        except csv.Error as error:
            return f"it cannot be read as CSV ({error})"


def _likely_delimiter(header: str) -> str:
    bare = _QUOTED.sub("", header)
    return max(_DELIMITERS, key=bare.count)


def _checked(delimiter: str) -> str:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise InvalidInputError(
            f"the delimiter is {delimiter!r}; expected one character, such as ',' or ';'"
        )
    return delimiter


def _last_record_end(data: bytes, delimiter: str) -> int:
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    ends, _ = ends_of(data, delimiter)
    return int(ends[-1]) if len(ends) else 0


def _records(data: bytes, delimiter: str) -> Iterator[bytes]:
    """Yield the records with their ends; the last may have an open quote."""
    if b'"' not in data:
        for line in data[:-1].split(b"\n"):
            yield line + b"\n"
        return
    start = 0
    for end in ends_of(data, delimiter)[0].tolist():
        yield data[start:end]
        start = end
    if start < len(data):
        yield data[start:]


def _is_blank(record: bytes, delimiter: str) -> bool:
    return not record.strip(b" \t\r\n".replace(delimiter.encode(), b""))


def _is_regular(data: bytes, delimiter: str, is_narrow: bool) -> bool:
    """Tell whether pyarrow reads a text as we do."""
    if data.count(b"\r") != data.count(b"\r\n") or not is_text(data):
        return False
    if is_narrow and _BLANK_LINE.search(data):
        return False
    return b'"' not in data or bool(ends_of(data, delimiter)[1])


def _lines_of(chunk: Chunk, n_rows: int, delimiter: str) -> NDArray[np.int64] | None:
    """Return the line of every row; None if there are other records than rows."""
    data = chunk.data
    if data.count(b"\n") == n_rows:
        return np.arange(chunk.line, chunk.line + n_rows)
    line = chunk.line
    lines = []
    for record in _records(data, delimiter):
        if not _is_blank(record, delimiter):
            lines.append(line)
        line += record.count(b"\n")
    return np.array(lines, np.int64) if len(lines) == n_rows else None


def _encoded(cells: Any, kind: Kind) -> tuple[Column, Faults]:
    whole = cells.unify_dictionaries().combine_chunks()
    if hasattr(whole, "chunks"):  # of several chunks, or of none
        whole = whole.chunk(0) if whole.num_chunks else None
    if whole is None:
        return column_of([], kind)
    return spread(
        whole.indices.cast("int64").fill_null(-1).to_numpy(), whole.dictionary.to_pylist(), kind
    )
