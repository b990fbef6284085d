"""Vowpal Wabbit's text: ``[label [weight]] ['tag] |namespace[:scale] feature[:value] ...``.

Read as VW reads it:

* a word that touches the first bar, or starts with an apostrophe, is a tag and no label; the
  apostrophe is no part of it;
* a value that is left out is 1, and a namespace may scale all of its values;
* a feature that occurs twice in a line has the sum of its values;
* a feature without a name is called by its position in the namespace.

A feature is called ``namespace^feature``, or just ``feature`` if the namespace has no name; its
number is a hash of that, or, for a whole number without a namespace, the number itself. Labels
are text and stay as they are written; VW's labels of several actions, with costs or
probabilities, are refused. A line without a weight has NaN for it, which means 1.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import vw_text
from folklearn.readers.convert import MAX_ABS_VALUE, Kind, parse_number, to_number
from folklearn.readers.reader import ParsedChunk
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Table
from folklearn.readers.text import (
    EMPTY,
    N_FEATURES,
    LineReader,
    SparseLine,
    is_text,
    sparse_block,
    sparse_part,
)
from folklearn.sparse import Indices, SparseRows
from folklearn.validation import MAX_WEIGHT

_BAR, _TAG = "|", "'"
_MOST_NAMES = 100_000
_SLOTS = 2**18  # of the table of names that were seen; twice as many as names, a power of 2


class VwReader(LineReader):
    """A file in this format, or a stream of it."""

    format = "vw"
    names = ("label", "weight", "tag")

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._seen = np.full(_SLOTS, -1, np.int64)
        self._names: dict[int, str] = {}
        self._told = False  # of labels that are none
        if not source.first_line():
            raise InvalidInputError(f"{self.name} has no rows; expected lines like: 1 | a b:0.5")

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return the names of features by number, or the number of one whose name is not kept."""
        return [self._names.get(int(index), str(index)) for index in indices]

    def _part_of(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        """Return a chunk as compiled code reads it, and lines that are not plain as Python does."""
        text = chunk.data
        data = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        T = len(ends)
        room = text.count(b" ") + text.count(b"\t") + text.count(b"|") + T
        types, weights = np.empty(T, np.int64), np.empty(T)
        labels, tags = np.zeros((2, T, 2), np.int64)
        indptr, indices, values = (
            np.empty(T + 1, np.int64),
            np.empty(room, np.int64),
            np.empty(room),
        )
        new = np.empty((min(room, _MOST_NAMES - len(self._names)), 5), np.int64)
        n_new = vw_text.read_lines(
            data, ends, N_FEATURES, types, labels, tags, weights, indptr, indices, values,
            self._seen, new,
        )  # fmt: skip
        self._keep_names(text, new[:n_new])
        X = SparseRows(indptr, indices[: indptr[-1]], values[: indptr[-1]], N_FEATURES)
        large = np.flatnonzero(np.abs(X.values) > MAX_ABS_VALUE)
        types[np.searchsorted(indptr, large, "right") - 1] = vw_text.OTHER
        if not is_text(text):
            types[types == vw_text.PLAIN] = vw_text.OTHER
        plain = np.flatnonzero(types == vw_text.PLAIN)
        own = X if len(plain) == T else X[plain]
        tagged = [tag and tag.removeprefix(_TAG) for tag in _words(text, tags[plain])]
        block = sparse_block(
            own,
            _words(text, labels[plain]),
            weights[plain],
            tagged,
            (plain + chunk.line).tolist(),
            kinds,
        )
        if vw_text.OTHER not in types:
            return ParsedChunk(block, ())
        lines = compress(chunk.lines(), types == vw_text.OTHER)
        slow, bad = sparse_part(self, self._line_by_line(lines, self._parsed, EMPTY), kinds)
        both = Table.concat([block, slow])
        return ParsedChunk(both.take(np.argsort(both.lines)), bad)

    def _keep_names(self, text: bytes, new: Any) -> None:
        for index, space_start, space_stop, start, stop in new.tolist():
            space, name = text[space_start:space_stop], text[start:stop]
            whole = b"^".join((space, name)) if space else name
            self._names[index] = whole.decode(errors="replace")

    def _parsed(self, text: str) -> SparseLine:
        row = parse(text)
        is_bare = row.label is None and row.tag and not text.lstrip().startswith(_TAG)
        if is_bare and not self._told:
            self._told = True
            self.notes.append(
                f"{row.tag!r} touches the bar, which makes it a tag and no label; put a space "
                "between them"
            )
        indices, values = hashed(row.features)
        if not (np.abs(values) <= MAX_ABS_VALUE).all():
            raise InvalidInputError("its values are too large to compute with; scale the features")
        names = zip(map(place_of, row.features), row.features, strict=True)
        self._names |= {index: name for index, name in names if len(self._names) < _MOST_NAMES}
        return SparseLine(indices, values, row.label, row.weight, row.tag)


class Parsed(NamedTuple):
    """What one line says."""

    features: dict[str, float]
    label: str | None
    weight: float | None
    tag: str | None


def parse(text: str) -> Parsed:
    """Return what one line says.

    >>> row = parse("spam 2.5 'mail7|words:2 cheap offer:3 |size :40")
    >>> row.label, row.weight, row.tag
    ('spam', 2.5, 'mail7')
    >>> row.features
    {'words^cheap': 2.0, 'words^offer': 6.0, 'size^0': 40.0}
    """
    words, tag, features = taken_apart(text)
    return Parsed(features, *_label(words), tag)


def taken_apart(text: str) -> tuple[list[str], str | None, dict[str, float]]:
    """Return the words of the label, the tag if there is one, and the features of one line."""
    before, bar, after = text.partition(_BAR)
    if not bar:
        raise InvalidInputError(f"it has no bar {_BAR!r} between the label and the features")
    if "\t" in before:
        raise InvalidInputError("there is a tab before the bar; put spaces there")
    words = [word for word in before.split(" ") if word]
    tag = None
    if words and (words[-1].startswith(_TAG) or not before.endswith(" ")):
        tag = words.pop().removeprefix(_TAG)
    features: dict[str, float] = {}
    for namespace in after.split(_BAR):
        _add(namespace.replace("\t", " "), features)
    return words, tag, features


def hashed(features: Mapping[str, float]) -> tuple[Indices, Array]:
    """Return a row of features by name, as the compiled reader has it."""
    indices = np.array([place_of(name) for name in features], np.int64)
    values = np.array(list(features.values()), np.float64)
    end = vw_text.tidied(indices, values, 0, len(indices))
    return indices[:end], values[:end]


def place_of(name: str) -> int:
    """Return the number of a feature.

    >>> place_of("17"), place_of("words^17")
    (17, 3806737812)
    """
    text = np.frombuffer(name.encode(), np.uint8)
    space, caret, _ = name.partition("^")
    behind = len(space.encode()) + 1 if caret and space else 0
    return int(vw_text.place_of(text, behind, len(text), 0, max(behind - 1, 0), N_FEATURES))


def _label(words: list[str]) -> tuple[str | None, float | None]:
    """Return label and weight, each None if there is none."""
    if not words:
        return None, None
    label, *rest = words
    if ":" in label or "," in label:
        raise InvalidInputError(
            f"{label!r} is not a class: labels of several actions, costs or probabilities cannot "
            "be learned; for a log of decisions there is folklearn policy-value"
        )
    if len(rest) > 1:
        raise InvalidInputError(
            f"there are {len(words)} words before the bar; expected a label and perhaps a weight"
        )
    return label, _weight(rest[0]) if rest else None


def _weight(text: str) -> float:
    weight = parse_number(text)
    if weight is None or not 0.0 <= weight <= MAX_WEIGHT:
        raise InvalidInputError(
            f"the weight is {text!r}; expected a number from 0 to {MAX_WEIGHT:g}"
        )
    return weight


def _add(text: str, features: dict[str, float]) -> None:
    """Add the features of one namespace, the text between two bars."""
    words = [word for word in text.split(" ") if word]
    prefix, scale = "", 1.0
    if words and not text.startswith(" "):
        space, colon, factor = words.pop(0).partition(":")
        if not space:
            raise InvalidInputError(f"the namespace {space + colon + factor!r} has no name")
        prefix = f"{space}^"
        scale = _value(factor, f"the scale of namespace {space!r}") if colon else 1.0
    n_nameless = 0
    for word in words:
        name, colon, value = word.partition(":")
        if not name:
            name = str(n_nameless)
            n_nameless += 1
        column = prefix + name
        x = scale * (_value(value, f"feature {column!r}") if colon else 1.0)
        features[column] = features.get(column, 0.0) + x


def _value(text: str, where: str) -> float:
    value, fault = to_number(text)
    if not text:
        fault = "there is no value after the colon"
    elif not fault and math.isnan(value):
        fault = f"{text!r} is not a number"
    if fault:
        raise InvalidInputError(f"{where}: {fault}")
    return value


def _words(text: bytes, spans: NDArray[np.int64]) -> list[str | None]:
    """Return the words of rows by where they begin and end in a text; None where they are empty."""
    if (spans[:, 0] == spans[:, 1]).all():
        return [None] * len(spans)
    return [text[start:stop].decode() if start < stop else None for start, stop in spans.tolist()]
