"""Rows as mappings of column names to values: JSON lines, one object each, and Python's own.

True and false of JSON are 1 and 0. A key that is absent, null or NaN is a missing value. Keys that
only later rows have are further columns. 10^5 lines of 12 keys take .8 s.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import Kinds
from folklearn.readers.reader import MAX_CELLS, MAX_COLUMNS, BadRow, LineReader, ParsedChunk, Reader
from folklearn.readers.source import ByteSource, Peekable
from folklearn.readers.table import Column, Faults, convert_values

_CHUNK_RECORDS = MAX_CELLS // MAX_COLUMNS  # 335 rows, so that no table has more cells


def convert_records(
    reader: Reader,
    records: Sequence[Mapping[str, Any]],
    lines: NDArray[np.int64],
    kinds: Kinds | None,
    texts: Sequence[str] = (),
    bad: Sequence[BadRow] = (),
) -> ParsedChunk:
    """Return mappings as rows; other columns are left out, unless only later rows have them."""
    names = dict.fromkeys(chain.from_iterable(records))
    reader.check_column_count(len(names))
    if not all(isinstance(name, str) for name in names):
        records = [{str(name): value for name, value in record.items()} for record in records]
        names = dict.fromkeys(map(str, names))
    first_names = reader.all_names if kinds is not None else ()
    converted: dict[str, tuple[Column, Faults]] = {}
    for name in dict.fromkeys((*(kinds or ()), *(n for n in names if n not in first_names))):
        kind = None if kinds is None else kinds.get(name)
        values = [record.get(name) for record in records]
        column, faults = convert_values(
            values, kind, reader.decimal, partial(reader.missing.drop, name)
        )
        if kind is None and faults and len(faults) == sum(value is not None for value in values):
            reader.left_out.setdefault(name, "nested values")
        else:
            converted[name] = column, faults
    return reader.assemble_rows(converted, lines, texts=texts, bad=bad)


class RowsReader(Reader):
    """Mappings of column names to values, from a sequence or an iterator, which is read once."""

    format = "rows"
    unit = "row"
    has_objects = True
    _has_late_columns = True

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        super().__init__("the rows")
        self.can_reread = isinstance(rows, Sequence)
        self.n_rows = len(rows) if isinstance(rows, Sequence) else None
        self._rows = rows if isinstance(rows, Sequence) else Peekable(rows)
        self.names = tuple(self.head().columns)

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        rows = self._rows.read(looking) if isinstance(self._rows, Peekable) else self._rows
        numbered = enumerate(rows, start=1)
        while chunk := dict(islice(numbered, _CHUNK_RECORDS)):
            bad = []
            for row, record in [*chunk.items()]:
                if not isinstance(record, Mapping):
                    shown = type(chunk.pop(row)).__name__
                    reason = f"it is not a mapping of column names to values but {shown}"
                    bad.append(self.make_bad_row(row, reason))
            lines = np.array([*chunk], np.int64)
            yield convert_records(self, [*chunk.values()], lines, kinds, bad=bad)


class JsonReader(LineReader):
    """A file of JSON objects, or a stream of them."""

    format = "jsonlines"
    _has_late_columns = True

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        first = source.first_line().lstrip()
        if not first:
            raise InvalidInputError(f"{self.name} is empty; expected one JSON object per line")
        if first.startswith("["):
            raise InvalidInputError(f"{self.name} is a JSON array; write one object per line")
        self.names = tuple(self.head().columns)
        for _, bad in self._parse(None, looking=True) if not self.names else ():
            if bad:
                raise InvalidInputError(f"{bad[0].sentence} (no other line names a column)")

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        for chunk in self._source.chunks(looking=looking):
            lines = chunk.lines()
            while numbered := list(islice(lines, _CHUNK_RECORDS)):
                rows, numbers, texts, bad = self._parse_lines(numbered, parse_object)
                yield convert_records(self, rows, numbers, kinds, texts, bad)


def parse_object(text: str) -> dict[str, Any] | None:
    text = text.removeprefix("\ufeff")  # files that were put together may have marks within
    if not text.strip():
        return None
    try:
        record = _DECODER.decode(text)
        if "\\u" in text:  # a lone surrogate, which JSON can escape and UTF-8 cannot encode
            json.dumps(record, ensure_ascii=False).encode()
    except InvalidInputError:
        raise
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"it is not JSON: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:  # no Unicode, too many digits or brackets
        raise InvalidInputError(f"it cannot be read as JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidInputError("it is JSON, but not an object like {...}")
    if len(record) > MAX_COLUMNS:
        raise InvalidInputError(f"it has {len(record):,} keys, and at most {MAX_COLUMNS:,} columns")
    return record


def _check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidInputError(f"the key {twice!r} occurs twice")
    if "" in record:
        raise InvalidInputError("it has a key without a name")
    return record


# One for all lines: `json.loads` with a hook makes one for each.
_DECODER = json.JSONDecoder(object_pairs_hook=_check_keys)
