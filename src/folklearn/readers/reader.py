"""Base classes of readers: first rows, all rows as tables, bad rows set apart, and a first pass."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError, spell_argument
from folklearn.readers.convert import Kinds, add_remedy
from folklearn.readers.source import ByteSource
from folklearn.readers.table import (
    Column,
    Faults,
    MissingValues,
    Table,
    TextColumn,
    as_text_column,
    distinct_codes,
    is_missing,
    kind_of_column,
)
from folklearn.sparse import SparseRows
from folklearn.utils import closest_name, join_names

T = TypeVar("T")

# Columns that rows may name, first and late ones together: each is an object in every table.
MAX_COLUMNS = 100_000
MAX_CELLS = 2**25  # of a table: 256 MB of numbers
_WRONG_ENCODING = ("it has a NUL byte", "it has bytes that are not")
_HEAD_ROWS = 1000
_MAX_VALUES_SCANNED = 101  # texts kept per column: one more than categories are shown
_MAX_FEATURES_SCANNED = 100_001
_MIN_ROWS_PER_RUN = 20  # of equal labels; sorted rows have far more


class BadRow(InvalidInputError):  # noqa: N818 - it is also handed over, not raised
    """A row that cannot be read; the message says where it is, what is wrong and what to do.

    Attributes
    ----------
    line : where the row is: line of a text file, row (from 1) of a table.
    column : the column that is wrong, None if it is the whole row.
    text : the row as it was written, where it was.
    reason : what is wrong, without where it is and what to do.
    sentence : the message without how to leave bad rows out, for callers that cannot.
    """

    def __init__(
        self, message: str, *, line: int, column: str | None = None, text: str = "", reason: str
    ) -> None:
        way_out = f"; to leave bad rows out: {spell_argument('on_bad=print')}"
        # With another encoding the rows are good; leaving them out may lose half a file.
        super().__init__(message + ("" if reason.startswith(_WRONG_ENCODING) else way_out))
        self.sentence, self.reason = message, reason
        self.line, self.column, self.text = line, column, text


OnBad = Callable[[BadRow], None] | None  # takes rows that cannot be read; None raises the first


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
    left_out : the types of the columns that cannot be read, by name.
    missing : what stands for a missing value; may be set until rows are read.
    """

    format: str
    unit = "line"
    can_reread = True
    is_live = False
    n_rows: int | None = None
    names: tuple[str, ...] = ()
    decimal = "."
    has_fixed_roles = False  # whether a model knows the columns: another role is no remedy
    has_objects = False  # whether columns can be read as the objects that they are
    _has_late_columns = False  # whether later rows may have columns that the first have not

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.left_out: dict[str, str] = {}
        self.missing = MissingValues()
        self._head: Table | None = None
        self._was_read = False
        self._late: set[str] = set()  # columns that only later rows have
        self._feature_names: dict[int, str] = {}

    @property
    def all_names(self) -> set[str]:
        return {*self.names, *self.left_out}

    def check_column_count(self, n_columns: int) -> None:
        if n_columns > MAX_COLUMNS:
            raise InvalidInputError(
                f"{self.name} has {n_columns:,} columns, and at most {MAX_COLUMNS:,} can be read: "
                "leave some out, or write only what is not 0, as svmlight or VW text"
            )

    def limit_rows(self, max_rows: int) -> int:
        n_columns = len(self.names) + len(self._late)
        return max(1, min(max_rows, MAX_CELLS // max(1, n_columns)))

    @abstractmethod
    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        """Yield all rows, for None all columns by the kind of their values.

        `looking` at a stream leaves its rows to be read again.
        """

    def head(self, n: int = _HEAD_ROWS) -> Table:
        """Return the first n rows, 1000 at most, each column of the kind of its values.

        Without bad ones; `read` yields them again. A pipe gives what has come, a row at least.
        """
        if self._head is None:
            tables: list[Table] = []
            for table, _ in self._parse(None, looking=True):
                tables.append(table)
                self.check_column_count(len({name for t in tables for name in t.columns}))
                n_rows = sum(map(len, tables))
                if n_rows >= _HEAD_ROWS or (self.is_live and n_rows):
                    break
            self._head = Table.concat(tables).take(slice(0, _HEAD_ROWS))
        return self.missing.mask(self._head.take(slice(0, n)))

    def read(self, kinds: Kinds, *, max_rows: int = 8192, on_bad: OnBad = None) -> Iterator[Table]:
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
        for name, kind in kinds.items():
            if name in self.left_out and kind != "object":
                raise InvalidInputError(f"column {name!r} of {self.name} cannot be read; drop it")
            if not (self._has_late_columns or name in self.all_names):
                raise self.missing_column_error(name)
        if not self.can_reread:
            if self._was_read:
                raise InvalidInputError(f"{self.name} can be read only once; store it in a file")
            self.head()  # kept: after the rows are read it cannot be computed
        self._was_read = True
        return self._fill_tables(self._parse(kinds, looking=False), max_rows, on_bad)

    def _fill_tables(
        self, chunks: Iterator[ParsedChunk], max_rows: int, on_bad: OnBad
    ) -> Iterator[Table]:
        waiting: list[Table] = []
        error: InvalidInputError | None = None
        try:
            for parsed, bad in chunks:
                table = self.missing.mask(parsed)
                if bad and on_bad is None:
                    table, error = table.take(table.lines < bad[0].line), bad[0]
                elif on_bad is not None:
                    for row in bad:
                        on_bad(row)
                if self._has_late_columns:
                    self._late.update(table.columns.keys() - self.all_names)
                    self.check_column_count(len(self.names) + len(self._late))
                waiting += [table] if len(table) else []
                n, size = sum(map(len, waiting)), self.limit_rows(max_rows)
                n_ready = n if self.is_live else n - n % size
                if n_ready:
                    whole = Table.concat(waiting)
                    for start in range(0, n_ready, size):
                        yield whole.take(slice(start, min(start + size, n_ready)))
                    waiting = [whole.take(slice(n_ready, n))] if n_ready < n else []
                if error is not None:
                    break
        except InvalidInputError as caught:
            error = caught
        if waiting:  # also before an error
            yield Table.concat(waiting)
        if error is not None:
            raise error

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return the names of features that a table has by number, the number of one without."""
        return [self._feature_names.get(int(index), str(index)) for index in indices]

    def missing_column_error(self, name: str, context: str = "") -> InvalidInputError:
        meant = closest_name(name, self.names)
        question = "; its" if meant is None else f"; did you mean {meant!r}? Its"
        columns = f"{question} columns are: {join_names(self.names)}"
        return InvalidInputError(f"{self.name} has no column {name!r}{context}{columns}")

    def make_bad_row(
        self, line: int, reason: str, text: str = "", column: str | None = None
    ) -> BadRow:
        where, shown = f"{self.unit} {line} of {self.name}", reason
        if column is not None:
            where += f", column {column!r}"
            shown = reason if self.has_fixed_roles else add_remedy(reason, column)
        return BadRow(f"{where}: {shown}", line=line, column=column, text=text, reason=reason)

    def assemble_rows(
        self,
        converted: Mapping[str, tuple[Column, Faults]],
        lines: NDArray[np.int64],
        texts: Sequence[str] = (),
        bad: Sequence[BadRow] = (),
    ) -> ParsedChunk:
        """Return rows, bad ones apart: `texts` are as written, `bad` those without columns."""
        table = Table({name: column for name, (column, _) in converted.items()}, lines)
        column_of: dict[int, str] = {}  # by row, the first with a fault
        for name, (_, faults) in converted.items():
            column_of = dict.fromkeys(faults, name) | column_of
        if not column_of:
            return ParsedChunk(table, bad)
        bad = [*bad]
        for row, name in column_of.items():
            text = texts[row] if texts else ""
            bad.append(self.make_bad_row(int(lines[row]), converted[name][1][row], text, name))
        good = np.delete(np.arange(len(table)), [*column_of])
        return ParsedChunk(table.take(good), sorted(bad, key=attrgetter("line")))


class LineReader(Reader):
    """Text that is read in chunks of lines."""

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source.name)
        self._source = source
        self.can_reread, self.is_live = not source.is_live, source.is_live
        self.notes = source.notes

    def _parse_lines(
        self, lines: Iterable[tuple[int, bytes]], parse: Callable[[str], T | None]
    ) -> tuple[list[T], NDArray[np.int64], list[str], list[BadRow]]:
        """Return rows, their numbers and texts, and bad ones; `parse` returns None for no row."""
        rows, numbers, texts, bad = list[T](), list[int](), list[str](), list[BadRow]()
        for line, data in lines:
            text, fault = _decode_line(data, self._source.encoding)
            row = None
            if not fault:
                try:
                    row = parse(text)
                except InvalidInputError as error:
                    fault = str(error)
            if fault:
                bad.append(self.make_bad_row(line, fault, text))
            elif row is not None:
                rows.append(row)
                numbers.append(line)
                texts.append(text)
        return rows, np.array(numbers, np.int64), texts, bad


def is_utf8(data: bytes) -> bool:
    try:
        return b"\0" not in data and (data.isascii() or bool(data.decode()))
    except UnicodeDecodeError:
        return False


def _decode_line(line: bytes, encoding: str | None) -> tuple[str, str]:
    """Return a line as text, and what is wrong with it, or ""."""
    text = line.decode(errors="replace").rstrip("\r\n")
    if b"\0" in line:
        remedy = spell_argument("encoding={!r}", "utf-16")
        return text, f"it has a NUL byte, which text has not; for UTF-16: {remedy}"
    if "\ufffd" in text and not is_utf8(line):
        remedy = spell_argument("encoding={!r}", "cp1252")
        name = encoding or "UTF-8"
        return text, f"it has bytes that are not {name}; name the encoding: {remedy}"
    return text, ""


@dataclass
class Scan:
    """Counts of a pass over all rows; labels, and texts of columns, in order of appearance.

    Rows are `sorted` by label, or nearly, if labels come in far fewer runs than if shuffled.
    """

    n_rows: int = 0  # good ones
    labels: dict[Any, int] = field(default_factory=dict)  # how often
    n_unlabelled: int = 0
    has_soft_labels: bool = False  # mappings, which are not counted
    sorted: bool = False
    largest_weight: float | None = None  # None without weights
    missing: dict[str, int] = field(default_factory=dict)  # values, by column, where some are
    n_bad: int = 0  # rows that were left out
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the first distinct texts
    features: tuple[int, ...] = ()  # that rows name by number, the first distinct ones
    _n_runs: int = 0  # of equal labels
    _last_label: Any = None

    def add(self, table: Table, target: str | None, weight: str | None) -> None:
        self.n_rows += len(table)
        for name, column in table.columns.items():
            n_missing = int(np.count_nonzero(is_missing(column)))
            if n_missing:
                self.missing[name] = self.missing.get(name, 0) + n_missing
            if isinstance(column, TextColumn):
                values = dict.fromkeys(self.values.get(name, ()))
                values |= dict.fromkeys(column.values[i] for i in distinct_codes(column.codes)[0])
                self.values[name] = tuple(values)[:_MAX_VALUES_SCANNED]
        if target is not None and target in table.columns:
            self._add_labels(table.columns[target])
        elif target is not None:
            self.n_unlabelled += len(table)
        weights = None if weight is None else table.columns.get(weight)
        if isinstance(weights, np.ndarray) and not is_missing(weights).all():
            self.largest_weight = max(self.largest_weight or 0.0, float(np.nanmax(weights)))
        if isinstance(table.features, SparseRows) and len(self.features) < _MAX_FEATURES_SCANNED:
            known_features = np.union1d(self.features, table.features.compact().indices)
            self.features = tuple(known_features[:_MAX_FEATURES_SCANNED].astype(int).tolist())

    def _add_labels(self, column: Column) -> None:
        is_object = kind_of_column(column) == "object"
        labels: Any = column if is_object else as_text_column(column).to_list()
        for label, is_gap in zip(labels, is_missing(column), strict=True):
            self.has_soft_labels |= isinstance(label, Mapping)
            if is_gap or not isinstance(label, Hashable):
                self.n_unlabelled += 1
                continue
            self.labels[label] = self.labels.get(label, 0) + 1
            self._n_runs += label != self._last_label
            self._last_label = label


def scan(
    reader: Reader,
    kinds: Kinds,
    *,
    target: str | None,
    weight: str | None = None,
    on_bad: OnBad = None,
    progress: Callable[[int], None] | None = None,
) -> Scan:
    """Read all rows once and count what they hold; `progress` takes the number read so far."""
    counts = Scan()

    def count_bad(bad: BadRow) -> None:
        counts.n_bad += 1
        if on_bad is not None:
            on_bad(bad)

    for table in reader.read(kinds, on_bad=on_bad and count_bad):
        counts.add(table, target, weight)
        if progress is not None:
            progress(counts.n_rows)
    if not counts.n_rows and not counts.n_bad:
        raise InvalidInputError(f"{reader.name} has no rows")
    n = sum(counts.labels.values())
    squares = sum(count * count for count in counts.labels.values())
    expected_runs = 1 + (n - 1) * (1 - squares / (n * n)) if n else 0.0
    max_runs = counts.n_rows / _MIN_ROWS_PER_RUN + len(counts.labels)
    counts.sorted = counts._n_runs < max_runs and expected_runs > 2 * counts._n_runs
    return counts
