"""JSON lines: one object per line.

True and false are 1 and 0. A key that is absent, null or NaN is a missing value, and so is a
string that is empty or says nan, NA, N/A or null. Keys that only later lines have are further
columns. Numbers are written as text where text is asked for.

A chunk is read by pyarrow; one with faults by Python, which takes 4 times as long (10^5 rows of 12
keys: 1.2 s instead of .3 s).
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.kernels.text import json_extent
from folklearn.readers.arrow import convert_arrow
from folklearn.readers.convert import Kind
from folklearn.readers.reader import MAX_CELLS, MAX_COLUMNS, LineReader, ParsedChunk, is_utf8
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn, convert_values

_MIN_ARROW_BYTES = 2**13  # of a chunk, from which on pyarrow is faster
_THREAD_BYTES = 2**20  # that a thread of pyarrow parses
_MAX_ARROW_DEPTH = 64  # levels of nesting; with very many pyarrow would end the process
_UNNAMED = re.compile(rb'""\s*:')  # a key that pyarrow takes, if only within a nested value


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
        head = self.head()
        if not head.columns:
            self._check_readable()
        self.names = tuple(head.columns)
        self._text_columns = {
            name for name, column in head.columns.items() if isinstance(column, TextColumn)
        }

    def _check_readable(self) -> None:
        """Raise with the first bad line, if there is one: no line names a column."""
        for _, bad in self._parse(None, looking=True):
            if bad:
                raise InvalidInputError(f"{bad[0].sentence} (no other line names a column)")

    def _chunks(self, looking: bool) -> Iterator[Chunk]:
        """Yield chunks that have at most MAX_CELLS cells if every line has every key."""
        for chunk in super()._chunks(looking):
            n_keys, depth = json_extent(chunk.data, MAX_COLUMNS)
            self._is_extreme = depth > _MAX_ARROW_DEPTH or n_keys == MAX_COLUMNS
            n_lines = max(1, MAX_CELLS // max(1, n_keys + len(self.names)))
            yield from chunk.cut(n_lines)

    def _parse_chunk(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        if kinds is not None and len(chunk.data) > _MIN_ARROW_BYTES and not self._is_extreme:
            table = self._parse_regular(chunk, kinds)
            if table is not None:
                return ParsedChunk(table, ())
        placeholder: dict[str, Any] = {}
        parsed = self._parse_lines(chunk.lines(), _parse_unless_blank, placeholder)
        lines = np.array(parsed.lines, np.int64)
        return self.convert_records(parsed.rows, lines, kinds, parsed.faults, parsed.texts)

    def _parse_regular(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> Table | None:
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

    def _read_arrow(self, data: bytes, kinds: Mapping[str, Kind]) -> Any:
        try:
            import pyarrow as pa
            from pyarrow import json as arrow_json
        except ImportError:
            return None
        types = {name: pa.string() for name in kinds if name in self._text_columns}
        types |= {name: pa.float64() for name, kind in kinds.items() if kind == "number"}
        try:
            return arrow_json.read_json(
                pa.BufferReader(data),
                arrow_json.ReadOptions(
                    use_threads=len(data) > _THREAD_BYTES, block_size=_THREAD_BYTES
                ),
                arrow_json.ParseOptions(explicit_schema=pa.schema(types)),
            )
        except (pa.ArrowException, UnicodeDecodeError):
            return None


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
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"it is not JSON: {error.msg} at character {error.colno}") from None
    except InvalidInputError:
        raise
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
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
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


def _is_read_alike(type: Any, kind: Kind | None) -> bool:
    """Return whether pyarrow and Python read values of an inferred type alike."""
    from pyarrow import types

    if kind == "number":
        return bool(types.is_floating(type))
    if kind is None and types.is_floating(type):
        return True
    # Python writes 1 and 1.5 of one column differently from floats, hence no floats as text.
    plain = (types.is_string, types.is_integer, types.is_boolean, types.is_null)
    return any(test(type) for test in plain)
