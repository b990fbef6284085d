"""Base classes of readers: the first rows, and all rows as tables, with bad rows set apart."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, spell_argument
from folklearn.readers.convert import Kind, add_remedy
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Faults, Table, convert_values
from folklearn.sparse import SparseRows
from folklearn.utils import closest_name, join_names

T = TypeVar("T")
RowFaults = dict[int, tuple[str, str]]  # by row: the column, "" for none, and what is wrong

# Columns that rows may name, first and late ones together: each is an object in every table.
MAX_COLUMNS = 100_000
MAX_CELLS = 2**25  # of a table: 256 MB of numbers


class BadRow(InvalidInputError):  # noqa: N818 - it is also handed over, not raised
    """A row that cannot be read; the message says where it is, what is wrong and what to do.

    Parameters
    ----------
    message : one sentence.
    line : where the row is: line of a text file, row (from 1) of a table.
    column : the column that is wrong, None if it is the whole row.
    text : the row as it was written, where it was.
    reason : what is wrong, without where it is and what to do.

    Attributes
    ----------
    sentence : the message without how to leave bad rows out, for callers that cannot.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int,
        column: str | None = None,
        text: str = "",
        reason: str = "",
    ) -> None:
        # With another encoding the rows are good; leaving them out may lose half a file.
        encodings = (spell_argument("encoding={!r}", name) for name in ("utf-16", "cp1252"))
        is_of_encoding = any(encoding in message for encoding in encodings)
        way_out = f"; to leave bad rows out: {spell_argument('on_bad=print')}"
        super().__init__(message if is_of_encoding else f"{message}{way_out}")
        self.sentence = message
        self.line, self.column, self.text = line, column, text
        self.reason = reason or message


class ParsedChunk(NamedTuple):
    """Rows that were parsed at a time: the good ones, and the bad ones in order."""

    table: Table
    bad: Sequence[BadRow]


class Reader(ABC):
    """Rows of one source of any format.

    Attributes
    ----------
    name : what messages call the source.
    format : "csv", "jsonlines", "parquet", "arrow", "svmlight", "vw", "frame" or "rows".
    unit : what messages count: "line" or "row".
    can_reread : whether the rows can be read more than once.
    is_live : whether rows come as they are written, as those of a pipe.
    n_rows : the number of rows, if it is known without reading.
    names : the columns that are known from the first rows, in order.
    notes : what was detected and should be shown to the user.
    decimal : the decimal mark of numbers in text.
    fraction : share of the current pass that is done, from 0 to 1; None if unknown.
    left_out : the types of the columns that cannot be read, by name.
    has_fixed_roles : whether a model knows the columns, so that another role is no remedy.
    """

    format: str
    unit = "line"
    can_reread = True
    is_live = False
    n_rows: int | None = None
    names: tuple[str, ...] = ()
    decimal = "."
    fraction: float | None = None
    has_fixed_roles = False
    _has_late_columns = False  # whether later rows may have columns that the first have not

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.left_out: dict[str, str] = {}
        self._head: tuple[int, Table] | None = None
        self._was_read = False
        self._late: set[str] = set()  # columns that only later rows have

    @property
    def known(self) -> set[str]:
        """The columns of the first rows, also those that cannot be read."""
        return {*self.names, *self.left_out}

    def leave_out(self, column: str, type: str) -> None:
        """Register a column that holds values of a type that cannot be read."""
        if column not in self.left_out:
            self.left_out[column] = type
            self.notes.append(
                f"column {column!r} holds {type} and is left out: only numbers, text and dates "
                "can be read"
            )

    def check_column_count(self, n_columns: int) -> None:
        """Raise if there are more columns than can be read."""
        if n_columns > MAX_COLUMNS:
            raise InvalidInputError(
                f"{self.name} has {n_columns:,} columns, and at most {MAX_COLUMNS:,} can be read: "
                "leave some out, or write only what is not 0, as svmlight or VW text"
            )

    def limit_rows(self, max_rows: int) -> int:
        """Return the number of rows of a table: max_rows, fewer if rows are wide."""
        n_columns = len(self.names) + len(self._late)
        return max(1, min(max_rows, MAX_CELLS // max(1, n_columns)))

    @abstractmethod
    def _parse(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        """Yield all rows in chunks of any size.

        Columns are of these kinds, or all of the kind of their values for None. `looking` at a
        stream leaves its rows to be read again.
        """

    def head(self, n: int = 1000) -> Table:
        """Return the first n rows without bad ones, each column of the kind of its values.

        They are read again by `read`. A pipe gives what has come so far, at least one row.
        """
        if self._head is None or (n > self._head[0] and not self._was_read):
            tables: list[Table] = []
            names: set[str] = set()
            n_rows = 0
            for table, _ in self._parse(None, looking=True):
                tables.append(table)
                names.update(table.columns)
                self.check_column_count(len(names))
                n_rows += len(table)
                if n_rows >= n or (self.is_live and n_rows):
                    break
            self._head = n, Table.concat(tables)
        return self._head[1].take(slice(0, n))

    def read(
        self,
        kinds: Mapping[str, Kind],
        *,
        max_rows: int = 8192,
        on_bad: Callable[[BadRow], None] | None = None,
    ) -> Iterator[Table]:
        """Yield all rows in order, in tables.

        Parameters
        ----------
        kinds : the columns to read, and how. Others are left out, but for columns that only
            later rows have, which come as they are.
        max_rows : rows of a table. Tables are full but for the last one; those of a pipe come as
            soon as there are whole lines.
        on_bad : takes every row that cannot be read, which is then left out. If None, the rows
            before it are yielded, and then it is raised.
        """
        unknown = [name for name in kinds if name not in self.names]
        unreadable = [name for name in unknown if name in self.left_out]
        if unreadable:
            raise InvalidInputError(
                f"column {unreadable[0]!r} of {self.name} cannot be read: only numbers, text and "
                "dates can be"
            )
        if unknown and not self._has_late_columns:
            raise self.missing_column_error(unknown[0])
        if self._was_read and not self.can_reread:
            raise InvalidInputError(f"{self.name} can be read only once; store it in a file")
        if not self.can_reread:
            self.head()  # kept: after the rows are read it cannot be computed
        self._was_read = True
        self.fraction = None
        return self._fill_tables(self._parse(kinds, looking=False), max_rows, on_bad)

    def _fill_tables(
        self,
        chunks: Iterator[ParsedChunk],
        max_rows: int,
        on_bad: Callable[[BadRow], None] | None,
    ) -> Iterator[Table]:
        waiting: list[Table] = []
        n_waiting = 0
        error: InvalidInputError | None = None
        try:
            for table, bad in chunks:
                if bad and on_bad is None:
                    table, error = table.take(table.lines < bad[0].line), bad[0]
                elif on_bad is not None:
                    for row in bad:
                        on_bad(row)
                if self._has_late_columns:
                    self._late.update(table.columns.keys() - self.known)
                    self.check_column_count(len(self.names) + len(self._late))
                size, start = self.limit_rows(max_rows), 0
                while start < len(table):
                    piece = table.take(slice(start, start + max(1, size - n_waiting)))
                    start += len(piece)
                    n_waiting += len(piece)
                    waiting.append(piece)
                    if n_waiting >= size or (self.is_live and start == len(table)):
                        yield Table.concat(waiting)
                        waiting, n_waiting = [], 0
                if error is not None:
                    break
        except InvalidInputError as caught:
            error = caught
        if waiting:  # also before an error
            yield Table.concat(waiting)
        if error is not None:
            raise error

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return the names of features that a table has by number."""
        return [str(index) for index in indices]

    def missing_column_error(self, name: str, context: str = "") -> InvalidInputError:
        """Return the error that there is no such column."""
        meant = closest_name(name, self.names)
        question = "; its" if meant is None else f"; did you mean {meant!r}? Its"
        columns = f"{question} columns are: {join_names(self.names)}"
        return InvalidInputError(f"{self.name} has no column {name!r}{context}{columns}")

    def bad_row(self, line: int, column: str, fault: str, text: str = "") -> BadRow:
        """Return the error of a row; column "" if the whole row is wrong."""
        where = f"{self.unit} {line} of {self.name}"
        remedied = fault if self.has_fixed_roles else add_remedy(fault, column)
        what = f", column {column!r}: {remedied}" if column else f": {fault}"
        return BadRow(f"{where}{what}", line=line, column=column or None, text=text, reason=fault)

    def set_bad_apart(
        self, table: Table, faults: RowFaults, texts: Sequence[str] = ()
    ) -> ParsedChunk:
        """Return a table without its bad rows, and these; `texts` are rows as written."""
        if not faults:
            return ParsedChunk(table, ())
        bad = [
            self.bad_row(int(table.lines[row]), *faults[row], texts[row] if texts else "")
            for row in sorted(faults)
        ]
        good = np.ones(len(table), bool)
        good[list(faults)] = False
        return ParsedChunk(table.take(good), bad)

    def convert_columns(
        self,
        kinds: Mapping[str, Kind | None],
        lines: NDArray[np.int64],
        convert: Callable[[str, Kind | None], tuple[Column, Faults]],
        faults: RowFaults | None = None,
        texts: Sequence[str] = (),
        features: SparseRows | Array | None = None,
    ) -> ParsedChunk:
        """Return rows whose columns are `convert(name, kind)`; `faults` are known already."""
        faults = {} if faults is None else faults
        columns: dict[str, Column] = {}
        for name, kind in kinds.items():
            columns[name], column_faults = convert(name, kind)
            for row, fault in column_faults.items():
                faults.setdefault(row, (name, fault))
        return self.set_bad_apart(Table(columns, lines, features), faults, texts)

    def convert_records(
        self,
        records: Sequence[Any],
        lines: NDArray[np.int64],
        kinds: Mapping[str, Kind] | None,
        faults: RowFaults | None = None,
        texts: Sequence[str] = (),
    ) -> ParsedChunk:
        """Return mappings as rows with columns of these kinds; `faults` are known already.

        A column that is not in `kinds` is left out, unless only later rows have it.
        """
        faults = {} if faults is None else faults
        for row, record in enumerate(records):
            if not isinstance(record, Mapping):
                shown = type(record).__name__
                faults[row] = "", f"it is not a mapping of column names to values but {shown}"
        rows = [{} if row in faults else record for row, record in enumerate(records)]
        names = dict.fromkeys(name for record in rows for name in record)
        self.check_column_count(len(names))
        if not all(isinstance(name, str) for name in names):
            rows = [{str(name): value for name, value in record.items()} for record in rows]
            names = dict.fromkeys(map(str, names))
        known = self.known if kinds is not None else ()
        wanted: dict[str, Kind | None] = {}
        converted: dict[str, tuple[Column, Faults]] = {}
        for name in dict.fromkeys((*(kinds or ()), *(n for n in names if n not in known))):
            kind = wanted[name] = None if kinds is None else kinds.get(name)
            values = [record.get(name) for record in rows]
            converted[name] = convert_values(values, kind, self.decimal)
            n_faults, n_values = len(converted[name][1]), sum(v is not None for v in values)
            if kind is None and n_faults and n_faults == n_values:
                self.leave_out(name, "nested values")
                del wanted[name]
        return self.convert_columns(wanted, lines, lambda name, _: converted[name], faults, texts)


class ParsedLines(NamedTuple, Generic[T]):
    """What lines hold; a bad line has a placeholder for its row."""

    rows: list[T]
    lines: list[int]
    texts: list[str]
    faults: RowFaults


class LineReader(Reader):
    """Text that is read in chunks of lines."""

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source.name)
        self._source = source
        self.can_reread, self.is_live = not source.is_live, source.is_live
        self.notes = source.notes

    @abstractmethod
    def _parse_chunk(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        """Return the rows of a chunk."""

    def _chunks(self, looking: bool) -> Iterator[Chunk]:
        return self._source.chunks(looking=looking)

    def _parse(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        for chunk in self._chunks(looking):
            parsed = self._parse_chunk(chunk, kinds)
            self.fraction = self._source.fraction
            yield parsed

    def _parse_lines(
        self,
        lines: Iterable[tuple[int, bytes]],
        parse: Callable[[str], T | None],
        placeholder: T,
    ) -> ParsedLines[T]:
        """Parse lines one by one; `parse` returns a row, None for no row, or raises."""
        parsed = ParsedLines[T]([], [], [], {})
        for line, data in lines:
            text, fault = decode_line(data, self._source.encoding)
            row: T | None = placeholder
            if not fault:
                try:
                    row = parse(text)
                except InvalidInputError as error:
                    fault = str(error)
            if row is None:
                continue
            if fault:
                parsed.faults[len(parsed.rows)] = "", fault
            parsed.rows.append(row)
            parsed.lines.append(line)
            parsed.texts.append(text)
        return parsed


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without NUL."""
    if b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_line(line: bytes, encoding: str | None) -> tuple[str, str]:
    """Return a line as text, and what is wrong with it, or ""."""
    text = line.decode(errors="replace").rstrip("\r\n")
    if b"\0" in line:
        remedy = spell_argument("encoding={!r}", "utf-16")
        return text, f"it has a NUL byte, which text has not; for UTF-16: {remedy}"
    if "\ufffd" in text and not is_utf8(line):
        remedy = spell_argument("encoding={!r}", "cp1252")
        known = encoding or "UTF-8"
        return text, f"it has bytes that are not {known}; name the encoding: {remedy}"
    return text, ""
