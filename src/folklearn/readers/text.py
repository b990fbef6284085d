"""What formats with one row per line have in common, and those that name only what is not 0."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, spell_argument
from folklearn.readers.convert import Kind
from folklearn.readers.reader import ParsedChunk, Reader
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn
from folklearn.sparse import Indices, SparseRows

T = TypeVar("T")

N_FEATURES = 2**32  # features are numbered below this, in svmlight as in VW


class ParsedLines(NamedTuple, Generic[T]):
    """What was found line by line; a bad row has something else in its place."""

    rows: list[T]
    lines: list[int]
    texts: list[str]
    faults: dict[int, tuple[str, str]]  # by row: no column, and what is wrong


class LineReader(Reader):
    """A text that is read in chunks of lines."""

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source.name)
        self._source = source
        self.can_reread, self.is_live = not source.is_live, source.is_live
        self.notes = source.notes

    @abstractmethod
    def _part_of(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        """Return the rows of a chunk."""

    def _chunks(self, looking: bool) -> Iterator[Chunk]:
        return self._source.chunks(looking=looking)

    def _parts(self, kinds: Mapping[str, Kind] | None, looking: bool) -> Iterator[ParsedChunk]:
        for chunk in self._chunks(looking):
            part = self._part_of(chunk, kinds)
            self.fraction = self._source.fraction
            yield part

    def _line_by_line(
        self, lines: Iterable[tuple[int, bytes]], parse: Callable[[str], T | None], other: T
    ) -> ParsedLines[T]:
        """Read lines by a function that gives a row, or None for no row, or raises."""
        found = ParsedLines[T]([], [], [], {})
        for line, data in lines:
            text, fault = text_of(data, self._source.encoding)
            row: T | None = other
            if not fault:
                try:
                    row = parse(text)
                except InvalidInputError as error:
                    fault = str(error)
            if row is None:
                continue
            if fault:
                found.faults[len(found.rows)] = "", fault
            found.rows.append(row)
            found.lines.append(line)
            found.texts.append(text)
        return found


def is_text(data: bytes) -> bool:
    """Tell whether bytes are UTF-8 without NUL."""
    if b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_of(line: bytes, encoding: str | None) -> tuple[str, str]:
    """Return a line as text, and what is wrong with it, or nothing."""
    text = line.decode(errors="replace").rstrip("\r\n")
    if b"\0" in line:
        other = spell_argument("encoding={!r}", "utf-16")
        return text, f"it has a NUL byte, which text has not; for UTF-16: {other}"
    if "\ufffd" in text and not is_text(line):
        known = encoding or "UTF-8"
        other = spell_argument("encoding={!r}", "cp1252")
        return text, f"it has bytes that are not {known}; name the encoding: {other}"
    return text, ""


class SparseLine(NamedTuple):
    """What one line says: the numbers of its features, sorted, and their values."""

    indices: Indices
    values: Array
    label: str | None = None
    weight: float | None = None
    tag: str | None = None


EMPTY = SparseLine(np.empty(0, np.int64), np.empty(0))


def sparse_part(
    reader: Reader, found: ParsedLines[SparseLine], kinds: Mapping[str, Kind] | None
) -> ParsedChunk:
    """Return rows that were read line by line, bad ones apart."""
    rows = found.rows
    indptr = np.cumsum([0, *(len(row.indices) for row in rows)])
    indices = np.concatenate([EMPTY.indices, *(row.indices for row in rows)])
    values = np.concatenate([EMPTY.values, *(row.values for row in rows)])
    X = SparseRows(indptr, indices, values, N_FEATURES)
    weights = np.array([np.nan if row.weight is None else row.weight for row in rows])
    labels, tags = [row.label for row in rows], [row.tag for row in rows]
    block = sparse_block(X, labels, weights, tags, found.lines, kinds)
    return reader.part(block, found.faults, found.texts)


def sparse_block(
    X: SparseRows, labels: Sequence[str | None], weights: Array, tags: Sequence[str | None],
    lines: Sequence[int], kinds: Mapping[str, Kind] | None,
) -> Table:  # fmt: skip
    """Return rows with their labels; weights and tags only if there are any."""
    columns: dict[str, Column] = {"label": TextColumn.of(labels)}
    if not np.isnan(weights).all():
        columns["weight"] = weights
    if any(tag is not None for tag in tags):
        columns["tag"] = TextColumn.of(tags)
    wanted = {name: column for name, column in columns.items() if kinds is None or name in kinds}
    return Table(wanted, np.asarray(lines, np.int64), X)
