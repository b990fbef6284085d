"""JSON lines: one object per line; numbers and text are features.

True and false are 1 and 0. The keys of the first object are the columns. A key that is absent,
null or NaN is a missing value, and so is a string that is empty or says nan, NA, N/A or null; a
label only if it is absent, null, empty or nan.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_NORM
from folklearn.streams import scanned
from folklearn.streams.scanned import Example, FileTable
from folklearn.streams.table import Layout
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path, declare, is_missing, lines, named, play
from folklearn.words import listed


class JsonSource:
    """A file of JSON objects, or a stream of them."""

    unit = "line"
    sparse = False
    note = ""

    def __init__(self, path: Path | Tape, name: str | None = None) -> None:
        self.path = path
        self.name = name or named(path)

    def header(self) -> tuple[str, ...]:
        """Return the keys of the first object."""
        for _, record in self._objects():
            return tuple(record)
        raise InvalidInputError(f"{self.name} is empty; expected one JSON object per line")

    def kinds(self, columns: Sequence[str]) -> Iterator[Sequence[bool | None]]:
        """Yield of every row whether its values are text; None for one that is missing."""
        for _, record in self._objects():
            values = [_value(record, column) for column in columns]
            yield [None if value is None else isinstance(value, str) for value in values]

    def examples(self, layout: Layout, target: str | None) -> Iterator[Example]:
        """Yield every row, checked."""
        known = set(self.header())
        play(self.path)
        for line, record in self._objects():
            try:
                extra = [key for key in record if key not in known]
                if extra:
                    raise InvalidInputError(
                        f"it has the key {extra[0]!r}, which the first line has not; its keys "
                        f"are: {listed(sorted(known))}"
                    )
                numbers = [_number(record, column, layout) for column in layout.numeric]
                if not sum(abs(value) for value in numbers if value == value) <= MAX_NORM:
                    raise InvalidInputError(
                        "its values are too large to compute with; scale the features"
                    )
                texts = [_text(record, column) for column in layout.text]
                label = _label(record, target) if target is not None else None
            except InvalidInputError as error:
                raise InvalidInputError(f"line {line} of {self.name}: {error}") from None
            missing = [column for column in layout.columns if _value(record, column) is None]
            yield Example(line, numbers, label, texts=texts, missing=missing)

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
        record = _DECODER.decode(text)
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


def _constant(text: str) -> None:
    """Return NaN as what it stands for, a missing value; refuse infinity."""
    if text != "NaN":
        raise InvalidInputError(f"{text} is not finite; leave missing values out")


# One for all lines: `json.loads` with hooks makes one for each.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)


def _refuse_unless_text(text: str) -> None:
    """Raise for half a character, which JSON can escape and nothing can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{text!r} is not Unicode text") from None


def _value(record: dict[str, Any], key: str) -> Any:
    """Return a feature's value, None if it is missing."""
    value = record.get(key)
    return None if isinstance(value, str) and is_missing(value.strip()) else value


def _number(record: dict[str, Any], key: str, layout: Layout) -> float:
    value = _value(record, key)
    if value is None:
        return math.nan
    if isinstance(value, str):
        problem = f"text, not a number; {declare(key, key in layout.guessed)}"
    elif isinstance(value, (dict, list)):
        problem = "nested; only numbers and text can be features"
    elif not abs(value) <= MAX_NORM:
        problem = "too large to compute with; scale the feature"
    else:
        return float(value)
    raise InvalidInputError(f"the value of {key!r} is {problem}")


def _text(record: dict[str, Any], key: str) -> str | None:
    value = _value(record, key)
    if isinstance(value, (dict, list)):
        raise InvalidInputError(
            f"the value of {key!r} is nested; only numbers and text can be features"
        )
    return None if value is None else _written(value)


def _written(value: Any) -> str:
    """Return a value as JSON writes it, text without its quotes."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _label(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if isinstance(value, (dict, list)):
        raise InvalidInputError(f"the value of {key!r} is nested; a label is text or a number")
    if isinstance(value, str):
        _refuse_unless_text(value)
    label = "" if value is None else _written(value)
    if not label or label.lower() == "nan":
        raise InvalidInputError(f"the label {key!r} is missing")
    return label
