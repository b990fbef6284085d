"""JSON lines: one object per line. Read by pyarrow; a chunk with faults by Python.

True and false are 1 and 0. A key that is absent, null or NaN is a missing value, and so is a
string that is empty or says nan, NA, N/A or null. Keys that only later lines have are further
columns. Numbers are written as text where text is asked for.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.arrow import column_of_array
from folklearn.readers.block import Block, Column, Texts
from folklearn.readers.cells import Kind
from folklearn.readers.lines import LinesReader, is_text
from folklearn.readers.reader import Part
from folklearn.readers.records import column_of, part_of_records
from folklearn.readers.source import Chunk, Source

_WORTH_IT = 2**13  # bytes from which on pyarrow is faster
_BLOCK = 2**20  # bytes that a thread of pyarrow parses
_UNNAMED = re.compile(rb'""\s*:')  # a key that pyarrow takes, if only within a nested value


class JsonReader(LinesReader):
    """A file of JSON objects, or a stream of them."""

    format = "jsonlines"
    _may_bring_more = True

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        first = source.first_line().lstrip()
        if not first:
            raise InvalidInputError(f"{self.name} is empty; expected one JSON object per line")
        if first.startswith("["):
            raise InvalidInputError(
                f"{self.name} is a JSON array; write one object per line instead: jq -c '.[]'"
            )
        head = self.head()
        self.names = tuple(head.columns)
        texts = [name for name, column in head.columns.items() if isinstance(column, Texts)]
        self._texts = set(texts)

    def _part_of(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> Part:
        fast = None
        if kinds is not None and len(chunk.data) > _WORTH_IT and is_text(chunk.data):
            fast = self._fast(chunk, kinds)
        return fast or self._slow(chunk, kinds)

    def _fast(self, chunk: Chunk, kinds: Mapping[str, Kind]) -> Part | None:
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
                columns[name], faults = column_of([None] * n_lines, kind)
            elif _is_plain(table.column(name).type, kind):
                columns[name], faults = column_of_array(table.column(name), kind)
            else:
                return None
            if faults:
                return None
        return Part(Block(columns, np.arange(chunk.line, chunk.line + n_lines)), ())

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

    def _slow(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> Part:
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
            _refuse_half_characters(record)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"it is not JSON: {error.msg} at character {error.colno}") from None
    except InvalidInputError:
        raise
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        raise InvalidInputError("it is not JSON that can be read: too long or too deep") from None
    if not isinstance(record, dict):
        raise InvalidInputError("it is JSON, but not an object like {...}")
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise InvalidInputError(f"the key {twice!r} occurs twice")
    if "" in record:
        raise InvalidInputError("it has a key without a name")
    return record


# One for all lines: `json.loads` with a hook makes one for each.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def _refuse_half_characters(value: Any) -> None:
    """Raise for half a character, which JSON can escape and nothing can write."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"{value!r} is not Unicode text") from None
    elif isinstance(value, dict | list):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _refuse_half_characters(part)


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
