"""JSON lines: one object per line. Read by pyarrow; a chunk with faults by Python.

True and false are 1 and 0. A key that is absent, null or NaN is a missing value, and so is a
string that is empty or says nan, NA, N/A or null. Keys that only later lines have are further
columns. Numbers are written as text where text is asked for.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.kernels.json_text import extent_of
from folklearn.readers.arrow import convert_arrow
from folklearn.readers.convert import Kind
from folklearn.readers.reader import MAX_CELLS, MAX_COLUMNS, ParsedChunk
from folklearn.readers.records import convert_values, part_of_records
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn
from folklearn.readers.text import LineReader, is_text

_WORTH_IT = 2**13  # bytes from which on pyarrow is faster
_BLOCK = 2**20  # bytes that a thread of pyarrow parses
_DEEPEST = 64  # levels that pyarrow reads; with very many the process would end
_UNNAMED = re.compile(rb'""\s*:')  # a key that pyarrow takes, if only within a nested value


class JsonReader(LineReader):
    """A file of JSON objects, or a stream of them."""

    format = "jsonlines"
    _may_bring_more = True

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._is_extreme = False  # whether the current chunk is nothing for pyarrow
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
        texts = [name for name, column in head.columns.items() if isinstance(column, TextColumn)]
        self._texts = set(texts)

    def _check_readable(self) -> None:
        """Raise with the first line that is bad, if there is one: none is good."""
        for _, bad in self._parts(None, looking=True):
            if bad:
                raise InvalidInputError(f"{bad[0].sentence} (no other line names a column)")

    def _chunks(self, looking: bool) -> Iterator[Chunk]:
        """Yield chunks whose lines may well all have every key: a block has a cell for each."""
        for chunk in super()._chunks(looking):
            n_keys, deepest = extent_of(chunk.data, MAX_COLUMNS)
            self._is_extreme = deepest > _DEEPEST or n_keys == MAX_COLUMNS
            n_lines = max(1, MAX_CELLS // max(1, n_keys + len(self.names)))
            yield from chunk.cut(n_lines)

    def _part_of(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        fast = None
        is_worth_it = kinds is not None and len(chunk.data) > _WORTH_IT and not self._is_extreme
        if kinds is not None and is_worth_it and is_text(chunk.data):
            fast = self._fast(chunk, kinds)
        return fast or self._slow(chunk, kinds)

    def _fast(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> ParsedChunk | None:
        """Return a chunk as pyarrow reads it, None unless everything is as it should be."""
        table = self._table(chunk.data, kinds)
        n_lines = chunk.data.count(b"\n")
        if table is None or table.num_rows != n_lines or _UNNAMED.search(chunk.data):
            return None
        if chunk.data.count(b"}\n") + chunk.data.count(b"}\r\n") != n_lines:
            return None  # an object may not be on a line of its own
        found = set(table.column_names)
        columns: dict[str, Column] = {}
        for name in (*kinds, *(found - self.known - set(kinds))):
            kind = kinds.get(name)
            if name not in found:
                columns[name], faults = convert_values([None] * n_lines, kind)
            elif _is_plain(table.column(name).type, kind):
                columns[name], faults = convert_arrow(table.column(name), kind)
            else:
                return None
            if faults:
                return None
        return ParsedChunk(Table(columns, np.arange(chunk.line, chunk.line + n_lines)), ())

    def _table(self, data: bytes, kinds: Mapping[str, Kind]) -> Any:
        try:
            import pyarrow as pa
            from pyarrow import json as arrow_json
        except ImportError:
            return None
        types = {name: pa.string() for name in kinds if name in self._texts}
        types |= {name: pa.float64() for name, kind in kinds.items() if kind == "number"}
        try:
            return arrow_json.read_json(
                pa.BufferReader(data),
                arrow_json.ReadOptions(use_threads=len(data) > _BLOCK, block_size=_BLOCK),
                arrow_json.ParseOptions(explicit_schema=pa.schema(types)),
            )
        except (pa.ArrowException, UnicodeDecodeError):
            return None

    def _slow(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        """Return a chunk as Python reads it, line by line, bad ones apart."""
        nothing: dict[str, Any] = {}
        found = self._line_by_line(chunk.lines(), _parse_unless_blank, nothing)
        lines = np.array(found.lines, np.int64)
        return part_of_records(self, found.rows, lines, kinds, found.faults, found.texts)


def _parse_unless_blank(text: str) -> dict[str, Any] | None:
    text = text.removeprefix("\ufeff")  # files that were put together may have marks within
    return parse(text) if text.strip() else None


def parse(text: str) -> dict[str, Any]:
    """Return the object of one line.

    >>> parse('{"size": 3, "kind": "cat"}')
    {'size': 3, 'kind': 'cat'}
    """
    try:
        record = _DECODER.decode(text)
        if "\\u" in text:
            _check_half_characters(record)
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidInputError(f"the key {twice!r} occurs twice")
    if "" in record:
        raise InvalidInputError("it has a key without a name")
    return record


# One for all lines: `json.loads` with a hook makes one for each.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def _check_half_characters(value: Any) -> None:
    """Raise for half a character, which JSON can escape and nothing can write."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"{value!r} is not Unicode text") from None
    elif isinstance(value, dict | list):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_half_characters(part)


def _is_plain(type: Any, kind: Kind | None) -> bool:
    """Tell whether pyarrow and Python read values of an inferred type alike."""
    from pyarrow import types

    if kind == "number":
        return bool(types.is_floating(type))
    if kind is None and types.is_floating(type):
        return True
    # Python writes 1 and 1.5 of one column differently from floats, hence no floats as text.
    plain = (types.is_string, types.is_integer, types.is_boolean, types.is_null)
    return any(test(type) for test in plain)
