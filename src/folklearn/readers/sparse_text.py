"""Text formats that name only nonzero features: svmlight (LIBSVM) and Vowpal Wabbit.

svmlight has lines ``label index:value ...``, and a comment after ``#``; a line may have no label,
and ``qid:`` is ignored. scikit-learn reads a chunk; one with faults, or with labels that are no
numbers, is read by Python, which takes 5 times as long (10^5 rows of 15 features: 3.7 s, not .75).

VW has lines ``[label [weight]] ['tag] |namespace[:scale] feature[:value] ...``:

* a word that touches the first bar, or starts with an apostrophe, is a tag and no label; the
  apostrophe is no part of it;
* a value that is left out is 1, and a namespace may scale all of its values;
* a feature that occurs twice in a line has the sum of its values;
* a feature without a name is called by its position in the namespace.

A feature is called ``namespace^feature``, or just ``feature`` if the namespace has no name; its
index is a hash of that, or, for a whole number without a namespace, the number itself. VW's labels
of several actions, with costs or probabilities, are refused. A line without a weight has NaN for
it, which means 1. Plain lines are parsed by a kernel, others by Python, which takes 25 times as
long (10^5 rows of 16 features: 7.9 s, not .3).

Labels of both are text and stay as they are written.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import text as kernels
from folklearn.readers.convert import MAX_ABS_VALUE, Kind, parse_number, to_number
from folklearn.readers.reader import LineReader, ParsedChunk, ParsedLines, is_utf8
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn
from folklearn.sparse import Indices, SparseRows
from folklearn.validation import MAX_WEIGHT

N_FEATURES = 2**32  # features are numbered below this

_INDEX = re.compile(r"[0-9]{1,10}", re.ASCII)
_BAR, _TAG = "|", "'"
_MAX_NAMES = 100_000
_NAME_SLOTS = 2**18  # of the hash set of features: twice as many as names, a power of 2


class SparseLine(NamedTuple):
    """What one line says: the indices of its features, sorted, and their values."""

    indices: Indices
    values: Array
    label: str | None = None
    weight: float | None = None
    tag: str | None = None


_EMPTY = SparseLine(np.empty(0, np.int64), np.empty(0))


def _sparse_table(
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


class _SparseReader(LineReader):
    def _set_bad_lines_apart(
        self, parsed: ParsedLines[SparseLine], kinds: Mapping[str, Kind] | None
    ) -> ParsedChunk:
        rows = parsed.rows
        indptr = np.cumsum([0, *(len(row.indices) for row in rows)])
        indices = np.concatenate([_EMPTY.indices, *(row.indices for row in rows)])
        values = np.concatenate([_EMPTY.values, *(row.values for row in rows)])
        X = SparseRows(indptr, indices, values, N_FEATURES)
        weights = np.array([np.nan if row.weight is None else row.weight for row in rows])
        labels, tags = [row.label for row in rows], [row.tag for row in rows]
        table = _sparse_table(X, labels, weights, tags, parsed.lines, kinds)
        return self.set_bad_apart(table, parsed.faults, parsed.texts)


class SvmlightReader(_SparseReader):
    """An svmlight file or a stream of it."""

    format = "svmlight"
    names = ("label",)

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        if not source.first_line("#"):
            raise InvalidInputError(f"{self.name} has no rows; expected lines like: 1 3:0.5 7:2")

    def _parse_chunk(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        table = self._parse_regular(chunk, kinds)
        if table is not None:
            return ParsedChunk(table, ())
        parsed = self._parse_lines(chunk.lines(), parse_svmlight, _EMPTY)
        return self._set_bad_lines_apart(parsed, kinds)

    def _parse_regular(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> Table | None:
        """Return a chunk as scikit-learn reads it, None unless it has no fault."""
        from sklearn.datasets import load_svmlight_file

        data = chunk.data
        if b"_" in data or b":+" in data or not is_utf8(data):
            return None  # which scikit-learn would read
        try:
            loaded, _ = load_svmlight_file(io.BytesIO(data), n_features=N_FEATURES, zero_based=True)
        except (ValueError, OverflowError):
            return None
        X = SparseRows.of(loaded)
        if not (np.abs(X.values) <= MAX_ABS_VALUE).all():
            return None
        lines, labels = [], []
        for line, text in chunk.lines():
            words = text.partition(b"#")[0].split(None, 1)
            if words:
                lines.append(line)
                labels.append(words[0].decode())
        if len(lines) != len(X):
            return None
        return _sparse_table(X, labels, np.full(len(X), np.nan), (), lines, kinds)


def parse_svmlight(text: str) -> SparseLine | None:
    """Return the row of one line, or None if it is only a comment.

    >>> parse_svmlight("+1 10:-2 3:0.5 # seen twice")[:3]
    (array([ 3, 10]), array([ 0.5, -2. ]), '+1')
    """
    words = text.partition("#")[0].split()
    if not words:
        return None
    label = words.pop(0) if ":" not in words[0] else None
    if label is not None and "," in label:
        raise InvalidInputError(f"{label!r} is several labels; an example has one class")
    features: dict[int, float] = {}
    for word in words:
        index, colon, value = word.partition(":")
        if index == "qid" and colon:
            continue
        if not colon or not _INDEX.fullmatch(index):
            raise InvalidInputError(
                f"{word!r} is not a column number, a colon and a value, like 3:0.5"
            )
        column = int(index)
        if column in features:
            raise InvalidInputError(f"column {column} occurs twice")
        if column >= N_FEATURES:
            raise InvalidInputError(f"column {column}: numbers of columns are below {N_FEATURES}")
        features[column], fault = to_number(value)
        if not fault and np.isnan(features[column]):
            fault = "there is no value; leave the column out instead"
        if fault:
            raise InvalidInputError(f"column {column}: {fault}")
    indices = np.array(sorted(index for index, x in features.items() if x), np.int64)
    return SparseLine(indices, np.array([features[int(i)] for i in indices]), label)


class VwReader(_SparseReader):
    """A file of VW's text or a stream of it."""

    format = "vw"
    names = ("label", "weight", "tag")

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._seen = np.full(_NAME_SLOTS, -1, np.int64)
        self._names: dict[int, str] = {}
        self._has_warned = False  # of labels that are tags
        if not source.first_line():
            raise InvalidInputError(f"{self.name} has no rows; expected lines like: 1 | a b:0.5")

    def feature_names(self, indices: Sequence[int]) -> list[str]:
        """Return the names of features, or the index of one whose name is not kept."""
        return [self._names.get(int(index), str(index)) for index in indices]

    def _parse_chunk(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        text = chunk.data
        data = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        T = len(ends)
        max_features = text.count(b" ") + text.count(b"\t") + text.count(b"|") + T
        types, weights = np.empty(T, np.int64), np.empty(T)
        labels, tags = np.zeros((2, T, 2), np.int64)
        indptr, indices = np.empty(T + 1, np.int64), np.empty(max_features, np.int64)
        values = np.empty(max_features)
        new = np.empty((min(max_features, _MAX_NAMES - len(self._names)), 5), np.int64)
        n_new = kernels.parse_vw_lines(
            data, ends, N_FEATURES, types, labels, tags, weights, indptr, indices, values,
            self._seen, new,
        )  # fmt: skip
        self._keep_names(text, new[:n_new])
        X = SparseRows(indptr, indices[: indptr[-1]], values[: indptr[-1]], N_FEATURES)
        large = np.flatnonzero(np.abs(X.values) > MAX_ABS_VALUE)
        types[np.searchsorted(indptr, large, "right") - 1] = kernels.OTHER
        if not is_utf8(text):
            types[types == kernels.PLAIN] = kernels.OTHER
        plain = np.flatnonzero(types == kernels.PLAIN)
        table = _sparse_table(
            X if len(plain) == T else X[plain],
            _decode_spans(text, labels[plain]),
            weights[plain],
            [tag and tag.removeprefix(_TAG) for tag in _decode_spans(text, tags[plain])],
            (plain + chunk.line).tolist(),
            kinds,
        )
        if kernels.OTHER not in types:
            return ParsedChunk(table, ())
        lines = compress(chunk.lines(), types == kernels.OTHER)
        parsed = self._parse_lines(lines, self._parse_line, _EMPTY)
        others, bad = self._set_bad_lines_apart(parsed, kinds)
        both = Table.concat([table, others])
        return ParsedChunk(both.take(np.argsort(both.lines)), bad)

    def _keep_names(self, text: bytes, new: Any) -> None:
        for index, space_start, space_stop, start, stop in new.tolist():
            space, name = text[space_start:space_stop], text[start:stop]
            full_name = b"^".join((space, name)) if space else name
            self._names[index] = full_name.decode(errors="replace")

    def _parse_line(self, text: str) -> SparseLine:
        row = parse_vw(text)
        is_bare = row.label is None and row.tag and not text.lstrip().startswith(_TAG)
        if is_bare and not self._has_warned:
            self._has_warned = True
            self.notes.append(
                f"{row.tag!r} touches the bar, which makes it a tag and no label; put a space "
                "between them"
            )
        indices, values = hash_features(row.features)
        if not (np.abs(values) <= MAX_ABS_VALUE).all():
            raise InvalidInputError("its values are too large to compute with; scale the features")
        names = zip(map(index_feature, row.features), row.features, strict=True)
        self._names |= {index: name for index, name in names if len(self._names) < _MAX_NAMES}
        return SparseLine(indices, values, row.label, row.weight, row.tag)


class VwLine(NamedTuple):
    """What one line of VW's text says."""

    features: dict[str, float]
    label: str | None
    weight: float | None
    tag: str | None


def parse_vw(text: str) -> VwLine:
    """Return what one line says.

    >>> row = parse_vw("spam 2.5 'mail7|words:2 cheap offer:3 |size :40")
    >>> row.label, row.weight, row.tag
    ('spam', 2.5, 'mail7')
    >>> row.features
    {'words^cheap': 2.0, 'words^offer': 6.0, 'size^0': 40.0}
    """
    words, tag, features = split_vw_line(text)
    return VwLine(features, *_parse_label(words), tag)


def split_vw_line(text: str) -> tuple[list[str], str | None, dict[str, float]]:
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
        _add_namespace(namespace.replace("\t", " "), features)
    return words, tag, features


def hash_features(features: Mapping[str, float]) -> tuple[Indices, Array]:
    """Return the sorted indices and the values of features by name, as the kernel does."""
    indices = np.array([index_feature(name) for name in features], np.int64)
    values = np.array(list(features.values()), np.float64)
    end = kernels.sum_duplicates(indices, values, 0, len(indices))
    return indices[:end], values[:end]


def index_feature(name: str) -> int:
    """Return the index of a named feature.

    >>> index_feature("17"), index_feature("words^17")
    (17, 3806737812)
    """
    text = np.frombuffer(name.encode(), np.uint8)
    space, caret, _ = name.partition("^")
    behind = len(space.encode()) + 1 if caret and space else 0
    return int(kernels.feature_index(text, behind, len(text), 0, max(behind - 1, 0), N_FEATURES))


def _parse_label(words: list[str]) -> tuple[str | None, float | None]:
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
    return label, _parse_weight(rest[0]) if rest else None


def _parse_weight(text: str) -> float:
    weight = parse_number(text)
    if weight is None or not 0.0 <= weight <= MAX_WEIGHT:
        raise InvalidInputError(
            f"the weight is {text!r}; expected a number from 0 to {MAX_WEIGHT:g}"
        )
    return weight


def _add_namespace(text: str, features: dict[str, float]) -> None:
    """Add the features of a namespace, the text between two bars."""
    words = [word for word in text.split(" ") if word]
    prefix, scale = "", 1.0
    if words and not text.startswith(" "):
        space, colon, factor = words.pop(0).partition(":")
        if not space:
            raise InvalidInputError(f"the namespace {space + colon + factor!r} has no name")
        prefix = f"{space}^"
        scale = _parse_value(factor, f"the scale of namespace {space!r}") if colon else 1.0
    n_nameless = 0
    for word in words:
        name, colon, value = word.partition(":")
        if not name:
            name = str(n_nameless)
            n_nameless += 1
        column = prefix + name
        x = scale * (_parse_value(value, f"feature {column!r}") if colon else 1.0)
        features[column] = features.get(column, 0.0) + x


def _parse_value(text: str, where: str) -> float:
    value, fault = to_number(text)
    if not text:
        fault = "there is no value after the colon"
    elif not fault and math.isnan(value):
        fault = f"{text!r} is not a number"
    if fault:
        raise InvalidInputError(f"{where}: {fault}")
    return value


def _decode_spans(text: bytes, spans: NDArray[np.int64]) -> list[str | None]:
    """Return the (T, 2) spans of a text as strings, None for empty ones."""
    if (spans[:, 0] == spans[:, 1]).all():
        return [None] * len(spans)
    return [text[start:stop].decode() if start < stop else None for start, stop in spans.tolist()]
