"""What every reader offers: a look at the first rows, and all rows in blocks, bad ones apart."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from folklearn.errors import InvalidInputError, spell_argument
from folklearn.readers.convert import Kind, add_remedy
from folklearn.readers.table import Table
from folklearn.utils import listed, nearest

Faults = Mapping[int, tuple[str, str]]  # by row: the column, "" for none, and what is wrong

# Columns that rows may name, first and late ones together: each is an object in every block.
MAX_COLUMNS = 100_000
MAX_CELLS = 2**25  # of a block: 256 MB of numbers


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
    """Rows as they were read at a time: the good ones, and the bad ones in order."""

    block: Table
    bad: Sequence[BadRow]


class Reader(ABC):
    """Rows of one source, whatever its format.

    Attributes
    ----------
    name : what messages call the source.
    format : "csv", "jsonlines", "parquet", "arrow", "svmlight", "vw", "frame" or "rows".
    unit : what messages count: "line" or "row".
    can_reread : whether the rows can be read more than once.
    is_live : whether rows come as they are written, as those of a pipe.
    n_rows : how many rows there are, if that is known without reading.
    names : the columns that are known from the first rows, in order.
    notes : what was found out and should be said.
    decimal : what numbers in text have before their decimals.
    fraction : how much of the current pass is done, from 0 to 1; None if nobody knows.
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
    _may_bring_more = False  # whether later rows may have columns that the first have not

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self._head: tuple[int, Table] | None = None
        self._was_read = False
        self._left_out: dict[str, str] = {}  # columns that nobody can read, and what they hold
        self._late: set[str] = set()  # columns that only later rows have

    @property
    def known(self) -> set[str]:
        """The columns of the first rows, also those that cannot be read."""
        return {*self.names, *self._left_out}

    def leave_out(self, column: str, what: str) -> None:
        """Remember a column that holds what cannot be read, and say so."""
        if column not in self._left_out:
            self._left_out[column] = what
            self.notes.append(
                f"column {column!r} holds {what} and is left out: only numbers, text and dates "
                "can be read"
            )

    @property
    def left_out(self) -> dict[str, str]:
        """What the columns hold that nobody can read, by name."""
        return dict(self._left_out)

    def check_column_count(self, n_columns: int) -> None:
        """Raise if there are more columns than can be read."""
        if n_columns > MAX_COLUMNS:
            raise InvalidInputError(
                f"{self.name} has {n_columns:,} columns, and at most {MAX_COLUMNS:,} can be read: "
                "leave some out, or write only what is not 0, as svmlight or VW text"
            )

    def rows_at_once(self, max_rows: int) -> int:
        """Return how many rows a block may have: at most so many, and fewer of wide rows."""
        n_columns = len(self.names) + len(self._late)
        return max(1, min(max_rows, MAX_CELLS // max(1, n_columns)))

    def _count_late(self, block: Table) -> None:
        self._late.update(block.columns.keys() - self.known)
        self.check_column_count(len(self.names) + len(self._late))

    @abstractmethod
    def _parts(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        """Yield all rows in parts of any size.

        Columns are of these kinds, or all of their own kind for None. Who is `looking` takes
        nothing away: what it is shown comes again.
        """

    def head(self, n: int = 1000) -> Table:
        """Return the first rows, each column of its own kind, without those that are bad.

        Nothing is taken away. A pipe gives what has come so far, at least one row.
        """
        if self._head is None or (n > self._head[0] and not self._was_read):
            blocks: list[Table] = []
            names: set[str] = set()
            n_found = 0
            for block, _ in self._parts(None, looking=True):
                blocks.append(block)
                names.update(block.columns)
                self.check_column_count(len(names))
                n_found += len(block)
                if n_found >= n or (self.is_live and n_found):
                    break
            self._head = n, Table.concat(blocks)
        return self._head[1].take(slice(0, n))

    def read(
        self,
        kinds: Mapping[str, Kind],
        *,
        max_rows: int = 8192,
        on_bad: Callable[[BadRow], None] | None = None,
    ) -> Iterator[Table]:
        """Yield all rows in order, in blocks.

        Parameters
        ----------
        kinds : the columns to read, and how. Others are left out, but for columns that only
            later rows have, which come as they are.
        max_rows : rows of a block. Blocks are full but for the last one; those of a pipe come as
            soon as there are whole lines.
        on_bad : takes every row that cannot be read, which is then left out. If None, the rows
            before it are yielded, and then it is raised.
        """
        unknown = [name for name in kinds if name not in self.names]
        unreadable = [name for name in unknown if name in self._left_out]
        if unreadable:
            raise InvalidInputError(
                f"column {unreadable[0]!r} of {self.name} cannot be read: only numbers, text and "
                "dates can be"
            )
        if unknown and not self._may_bring_more:
            raise self.missing_column_error(unknown[0])
        if self._was_read and not self.can_reread:
            raise InvalidInputError(f"{self.name} can be read only once; store it in a file")
        if not self.can_reread:
            self.head()  # kept, for later it cannot be had
        self._was_read = True
        self.fraction = None
        good = _without_bad(self._parts(kinds, looking=False), on_bad)
        return self._cut(good, max_rows) if self.is_live else self._filled(good, max_rows)

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return what features are called that a block has by number."""
        return [str(index) for index in indices]

    def missing_column_error(self, name: str, more: str = "") -> InvalidInputError:
        """Return the error that a column is not there."""
        meant = nearest(name, self.names)
        question = "; its" if meant is None else f"; did you mean {meant!r}? Its"
        columns = f"{question} columns are: {listed(self.names)}"
        return InvalidInputError(f"{self.name} has no column {name!r}{more}{columns}")

    def bad_row(self, line: int, column: str, fault: str, text: str = "") -> BadRow:
        """Return the error of a row; column "" if it is the whole row that is wrong."""
        where = f"{self.unit} {line} of {self.name}"
        remedied = fault if self.has_fixed_roles else add_remedy(fault, column)
        what = f", column {column!r}: {remedied}" if column else f": {fault}"
        return BadRow(f"{where}{what}", line=line, column=column or None, text=text, reason=fault)

    def part(self, block: Table, faults: Faults, texts: Sequence[str] = ()) -> ParsedChunk:
        """Return a block without its bad rows, and these; `texts` are rows as written."""
        if not faults:
            return ParsedChunk(block, ())
        bad = [
            self.bad_row(int(block.lines[row]), *faults[row], texts[row] if texts else "")
            for row in sorted(faults)
        ]
        good = np.ones(len(block), bool)
        good[list(faults)] = False
        return ParsedChunk(block.take(good), bad)

    def _cut(self, blocks: Iterator[Table], max_rows: int) -> Iterator[Table]:
        """Yield the rows as they come, at most so many at a time."""
        for block in blocks:
            self._count_late(block)
            size = self.rows_at_once(max_rows)
            for start in range(0, len(block), size):
                yield block.take(slice(start, start + size))

    def _filled(self, blocks: Iterator[Table], max_rows: int) -> Iterator[Table]:
        """Yield the rows in blocks that are all full but the last; also before an error."""
        waiting: list[Table] = []
        n_waiting = 0
        error: InvalidInputError | None = None
        try:
            for block in blocks:
                self._count_late(block)
                size, start = self.rows_at_once(max_rows), 0
                while start < len(block):
                    piece = block.take(slice(start, start + max(1, size - n_waiting)))
                    start += len(piece)
                    n_waiting += len(piece)
                    waiting.append(piece)
                    if n_waiting >= size:
                        yield Table.concat(waiting)
                        waiting, n_waiting = [], 0
        except InvalidInputError as caught:
            error = caught
        if waiting:
            yield Table.concat(waiting)
        if error is not None:
            raise error


def _without_bad(
    parts: Iterator[ParsedChunk], on_bad: Callable[[BadRow], None] | None
) -> Iterator[Table]:
    """Yield the good rows; a bad one is handed over, or raised behind the rows before it."""
    for block, bad in parts:
        if bad and on_bad is None:
            yield block.take(block.lines < bad[0].line)
            raise bad[0]
        if on_bad is not None:
            for row in bad:
                on_bad(row)
        yield block
