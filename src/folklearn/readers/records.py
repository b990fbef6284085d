"""Rows as mappings of column names to values: JSON lines, one object each, and Python's own.

True and false of JSON are 1 and 0. A key that is absent, null or NaN is a missing value, and so is
a string that is empty or says nan, NA, N/A or null. Keys that only later rows have are further
columns. Numbers are written as text where text is asked for.

A chunk of JSON is read by pyarrow; one with faults by Python, which takes 4 times as long (10^5
rows of 12 keys: 1.2 s instead of .3 s).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError
from folklearn.kernels.text import json_extent
from folklearn.readers.columnar import convert_arrow
from folklearn.readers.convert import Kind, Kinds
from folklearn.readers.reader import (
    MAX_CELLS,
    MAX_COLUMNS,
    LineReader,
    ParsedChunk,
    Reader,
    RowFaults,
    is_utf8,
)
from folklearn.readers.source import ByteSource, Chunk, Peekable
from folklearn.readers.table import Column, Faults, Table, TextColumn, convert_values

_CHUNK_RECORDS = 1000
_MIN_ARROW_BYTES = 2**13  # of a chunk, from which on pyarrow is faster
_THREAD_BYTES = 2**20  # that a thread of pyarrow parses
_MAX_ARROW_DEPTH = 64  # levels of nesting; with very many pyarrow would end the process
_UNNAMED = re.compile(rb'""\s*:')  # a key that pyarrow takes, if only within a nested value


def convert_records(
    reader: Reader,
    records: Sequence[Any],
    lines: NDArray[np.int64],
    kinds: Kinds | None,
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
    reader.check_column_count(len(names))
    if not all(isinstance(name, str) for name in names):
        rows = [{str(name): value for name, value in record.items()} for record in rows]
        names = dict.fromkeys(map(str, names))
    first_names = reader.known if kinds is not None else ()
    converted: dict[str, tuple[Column, Faults]] = {}
    for name in dict.fromkeys((*(kinds or ()), *(n for n in names if n not in first_names))):
        kind = None if kinds is None else kinds.get(name)
        values = [record.get(name) for record in rows]
        converted[name] = convert_values(values, kind, reader.decimal)
        n_faults = len(converted[name][1])
        if kind is None and n_faults and n_faults == sum(v is not None for v in values):
            reader.leave_out(name, "nested values")
            del converted[name]
    return reader.assemble_rows(converted, lines, faults, texts)


class RowsReader(Reader):
    """Mappings of column names to values, from a sequence or an iterator.

    Parameters
    ----------
    rows : the mappings. A list or tuple can be read again, an iterator only once.
    name : what messages call them.
    """

    format = "rows"
    unit = "row"
    has_objects = True
    _has_late_columns = True

    def __init__(self, rows: Iterable[Mapping[str, Any]], name: str = "the rows") -> None:
        super().__init__(name)
        self.can_reread = isinstance(rows, Sequence)
        self.n_rows = len(rows) if isinstance(rows, Sequence) else None
        self._rows = rows if isinstance(rows, Sequence) else Peekable(rows)
        self.names = tuple(self.head().columns)

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        rows = self._rows.read(looking) if isinstance(self._rows, Peekable) else iter(self._rows)
        row = 1
        while records := list(islice(rows, _CHUNK_RECORDS)):
            yield convert_records(self, records, np.arange(row, row + len(records)), kinds)
            row += len(records)


class JsonReader(LineReader):
    """A file of JSON objects, or a stream of them."""

    format = "jsonlines"
    _has_late_columns = True

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._is_extreme = False  # whether the current chunk is too deep or wide for pyarrow
        first = source.first_line().lstrip()
        if not first:
            raise InvalidInputError(f"{self.name} is empty; expected one JSON object per line")
        if first.startswith("["):
            raise InvalidInputError(
                f"{self.name} is a JSON array; write one object per line instead: jq -c '.[]'"
            )
        columns = self.head().columns
        self.names = tuple(columns)
        self._text_columns = {name for name in columns if isinstance(columns[name], TextColumn)}
        for _, bad in self._parse(None, looking=True) if not columns else ():
            if bad:
                raise InvalidInputError(f"{bad[0].sentence} (no other line names a column)")

    def _chunks(self, looking: bool) -> Iterator[Chunk]:
        """Yield chunks that have at most MAX_CELLS cells if every line has every key."""
        for chunk in super()._chunks(looking):
            n_keys, depth = json_extent(chunk.data, MAX_COLUMNS)
            self._is_extreme = depth > _MAX_ARROW_DEPTH or n_keys == MAX_COLUMNS
            n_lines = max(1, MAX_CELLS // max(1, n_keys + len(self.names)))
            if chunk.data.count(b"\n") <= n_lines:
                yield chunk
                continue
            lines = [line + b"\n" for _, line in chunk.lines()]
            for start in range(0, len(lines), n_lines):
                yield Chunk(b"".join(lines[start : start + n_lines]), chunk.line + start)

    def _parse_chunk(self, chunk: Chunk, kinds: Kinds | None) -> ParsedChunk:
        if kinds is not None and len(chunk.data) > _MIN_ARROW_BYTES and not self._is_extreme:
            table = self._parse_regular(chunk, kinds)
            if table is not None:
                return ParsedChunk(table, ())
        placeholder: dict[str, Any] = {}
        rows, lines, texts, faults = self._parse_lines(
            chunk.lines(), _parse_unless_blank, placeholder
        )
        return convert_records(self, rows, lines, kinds, faults, texts)

    def _parse_regular(self, chunk: Chunk, kinds: Kinds) -> Table | None:
        """Return a chunk as pyarrow reads it, None unless it has no fault."""
        data = chunk.data
        table = self._read_arrow(data, kinds) if is_utf8(data) else None
        n_lines = data.count(b"\n")
        if table is None or table.num_rows != n_lines or _UNNAMED.search(data):
            return None
        if data.count(b"}\n") + data.count(b"}\r\n") != n_lines:
            return None  # an object may not be on a line of its own
        present, expected = table.column_names, self.known | kinds.keys()
        columns: dict[str, Column] = {}
        for name in (*kinds, *(name for name in present if name not in expected)):
            kind = kinds.get(name)
            if name not in present:
                columns[name], faults = convert_values([None] * n_lines, kind)
            elif _is_read_alike(table.column(name).type, kind):
                columns[name], faults = convert_arrow(table.column(name), kind)
            else:
                return None
            if faults:
                return None
        return Table(columns, np.arange(chunk.line, chunk.line + n_lines))

    def _read_arrow(self, data: bytes, kinds: Kinds) -> Any:
        try:
            import pyarrow as pa
            from pyarrow import json as arrow_json
        except ImportError:
            return None
        types = {name: pa.string() for name in kinds if name in self._text_columns}
        types |= {name: pa.float64() for name, kind in kinds.items() if kind == "number"}
        threads = arrow_json.ReadOptions(len(data) > _THREAD_BYTES, _THREAD_BYTES)
        schema = arrow_json.ParseOptions(explicit_schema=pa.schema(types))
        try:
            return arrow_json.read_json(pa.BufferReader(data), threads, schema)
        except (pa.ArrowException, UnicodeDecodeError):
            return None


def _is_read_alike(type: Any, kind: Kind | None) -> bool:
    """Return whether pyarrow and Python read values of an inferred type alike."""
    from pyarrow import types

    if kind == "number" or (kind is None and types.is_floating(type)):
        return bool(types.is_floating(type))
    # Python writes 1 and 1.5 of one column differently from floats, hence no floats as text.
    plain = (types.is_string, types.is_integer, types.is_boolean, types.is_null)
    return any(test(type) for test in plain)


def _parse_unless_blank(text: str) -> dict[str, Any] | None:
    text = text.removeprefix("\ufeff")  # files that were put together may have marks within
    return parse_object(text) if text.strip() else None


def parse_object(text: str) -> dict[str, Any]:
    """Return the object of one line.

    >>> parse_object('{"size": 3, "kind": "cat"}')
    {'size': 3, 'kind': 'cat'}
    """
    try:
        record = _DECODER.decode(text)
        if "\\u" in text:
            _check_surrogates(record)
    except InvalidInputError:
        raise
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"it is not JSON: {error.msg} at character {error.colno}") from None
    except RecursionError:
        raise InvalidInputError(
            "it is nested too deeply to be read; only numbers, text and dates can be: leave nested "
            "values out"
        ) from None
    except ValueError:  # an integer of thousands of digits
        raise InvalidInputError("it has a number that is too long to be read") from None
    if not isinstance(record, dict):
        raise InvalidInputError("it is JSON, but not an object like {...}")
    if len(record) > MAX_COLUMNS:
        raise InvalidInputError(
            f"it has {len(record):,} keys, and at most {MAX_COLUMNS:,} columns can be read: leave "
            "some out, or write only what is not 0, as svmlight or VW text"
        )
    return record


def _check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise InvalidInputError(f"the key {twice!r} occurs twice")
    if "" in record:
        raise InvalidInputError("it has a key without a name")
    return record


# One for all lines: `json.loads` with a hook makes one for each.
_DECODER = json.JSONDecoder(object_pairs_hook=_check_keys)


def _check_surrogates(value: Any) -> None:
    """Raise for a lone surrogate, which JSON can escape and UTF-8 cannot encode."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"{value!r} is not Unicode text") from None
    elif isinstance(value, dict | list):
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_surrogates(inner)
