"""JSON lines: one object per line, the same keys in each; numbers are features.

True and false are 1 and 0. A key that is absent or null is a missing value, and refused.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams import scanned
from folklearn.streams.scanned import Example, FileTable
from folklearn.streams.table import listed
from folklearn.streams.text import Path, lines


class JsonSource:
    """A file of JSON objects."""

    unit = "line"
    sparse = False
    note = ""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.name = name or os.fspath(path)

    def header(self) -> tuple[str, ...]:
        """Return the keys of the first object."""
        for _, record in self._objects():
            return tuple(record)
        raise InvalidInputError(f"{self.name} is empty; expected one JSON object per line")

    def examples(self, columns: Sequence[str], target: str | None) -> Iterator[Example]:
        """Yield every row, checked."""
        known = set(self.header())
        for line, record in self._objects():
            try:
                extra = [key for key in record if key not in known]
                if extra:
                    raise InvalidInputError(
                        f"it has the key {extra[0]!r}, which the first line has not; every line "
                        f"must have the same keys: {listed(sorted(known))}"
                    )
                values = [_feature(record, column) for column in columns]
                if not sum(map(abs, values)) <= MAX_NORM:
                    raise InvalidInputError(
                        "its values are too large to compute with; scale the features"
                    )
                label = _label(record, target) if target is not None else None
            except InvalidInputError as error:
                raise InvalidInputError(f"line {line} of {self.name}: {error}") from None
            yield Example(line, values, label)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for line, text in lines(self.path, self.name):
            try:
                record = parse(text)
            except InvalidInputError as error:
                raise InvalidInputError(f"line {line} of {self.name}: {error}") from None
            yield line, record


def scan(path: Path, target: str, name: str | None = None) -> FileTable:
    """Read a whole file once: find its keys and labels, and check every value."""
    return scanned.scan(JsonSource(path, name), target)


def parse(text: str) -> dict[str, Any]:
    """Return the object of one line.

    >>> parse('{"size": 3, "kind": "cat"}')
    {'size': 3, 'kind': 'cat'}
    """
    try:
        record = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
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
    for key in record:
        _refuse_unless_text(key)
        if not key:
            raise InvalidInputError("it has a key without a name")
    return record


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidInputError(f"{text} is not finite; fill in or drop missing values first")


def _refuse_unless_text(text: str) -> None:
    """Raise for half a character, which JSON can escape and nothing can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{text!r} is not Unicode text") from None


def _feature(record: dict[str, Any], key: str) -> float:
    if key not in record:
        raise InvalidInputError(f"the key {key!r} is missing; fill in or drop missing values first")
    value = record[key]
    if value is None:
        problem = "null; fill in or drop missing values first"
    elif isinstance(value, (dict, list)):
        problem = "nested; only numbers can be features"
    elif isinstance(value, str):
        problem = "text; only numbers can be features"
    elif not abs(value) <= MAX_NORM:
        problem = "too large to compute with; scale the feature"
    else:
        return float(value)
    raise InvalidInputError(f"the value of {key!r} is {problem}")


def _label(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if isinstance(value, (dict, list)):
        raise InvalidInputError(f"the value of {key!r} is nested; a label is text or a number")
    if isinstance(value, str):
        _refuse_unless_text(value)
    label = "" if value is None else str(value).strip()
    if isinstance(value, bool):
        label = label.lower()
    if not label or label.lower() == "nan":
        raise InvalidInputError(f"the label {key!r} is missing")
    return label
