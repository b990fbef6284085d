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
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import text as kernels
from folklearn.readers.convert import MAX_ABS_VALUE, Kinds, parse_number, to_number
from folklearn.readers.reader import LineReader, ParsedChunk, is_utf8
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn, is_missing
from folklearn.sparse import Indices, SparseRows
from folklearn.validation import MAX_WEIGHT

N_FEATURES = 2**32  # features are numbered below this

_INDEX = re.compile(r"[0-9]{1,10}", re.ASCII)
_BAR, _TAG = "|", "'"
_MAX_NAMES = 100_000
_NAME_SLOTS = 2**18  # of the hash set of features: twice as many as names, a power of 2


class SparseLine(NamedTuple):
    """What one line says; its features are numbers by index or by name."""

    features: Mapping[Any, float]
    label: str | None = None
    weight: float | None = None
    tag: str | None = None


def _select_columns(kinds: Kinds | None, **columns: Column) -> dict[str, Column]:
    """Return the columns that are wanted; weights and tags only if there are any."""
    return {
        name: column
        for name, column in columns.items()
        if (kinds is None or name in kinds) and (name == "label" or not is_missing(column).all())
    }


class _SparseReader(LineReader):
    def _parse_others(
        self,
        lines: Iterable[tuple[int, bytes]],
        parse: Callable[[str], SparseLine | None],
        kinds: Kinds | None,
    ) -> ParsedChunk:
        """Return lines as Python reads them, bad ones apart."""
        rows, numbers, texts, faults = self._parse_lines(lines, parse, SparseLine({}))
        features = [hash_features(row.features) for row in rows]
        indptr = np.cumsum([0, *(len(indices) for indices, _ in features)])
        indices = np.concatenate([np.empty(0, np.int64), *(indices for indices, _ in features)])
        values = np.concatenate([np.empty(0), *(values for _, values in features)])
        columns = _select_columns(
            kinds,
            label=TextColumn.of(row.label for row in rows),
            weight=np.array([row.weight for row in rows], np.float64),
            tag=TextColumn.of(row.tag for row in rows),
        )
        X = SparseRows(indptr, indices, values, N_FEATURES)
        converted: Any = {name: (column, {}) for name, column in columns.items()}
        return self.assemble_rows(converted, numbers, faults, texts, X)


class SvmlightReader(_SparseReader):
    """An svmlight file or a stream of it."""

    format = "svmlight"
    names = ("label",)

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        if not source.first_line("#"):
            raise InvalidInputError(f"{self.name} has no rows; expected lines like: 1 3:0.5 7:2")

    def _parse_chunk(self, chunk: Chunk, kinds: Kinds | None) -> ParsedChunk:
        table = self._parse_regular(chunk, kinds)
        if table is not None:
            return ParsedChunk(table, ())
        return self._parse_others(chunk.lines(), parse_svmlight, kinds)

    def _parse_regular(self, chunk: Chunk, kinds: Kinds | None) -> Table | None:
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
        columns = _select_columns(kinds, label=TextColumn.of(labels))
        return Table(columns, np.array(lines, np.int64), X)


def parse_svmlight(text: str) -> SparseLine | None:
    """Return the row of one line, or None if it is only a comment.

    >>> parse_svmlight("+1 10:-2 3:0.5 # seen twice")[:2]
    ({10: -2.0, 3: 0.5}, '+1')
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
    return SparseLine(features, label)


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

    def _parse_chunk(self, chunk: Chunk, kinds: Kinds | None) -> ParsedChunk:
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
        for index, space_start, space_stop, start, stop in new[:n_new].tolist():
            space, name = text[space_start:space_stop], text[start:stop]
            full_name = b"^".join((space, name)) if space else name
            self._names[index] = full_name.decode(errors="replace")
        X = SparseRows(indptr, indices[: indptr[-1]], values[: indptr[-1]], N_FEATURES)
        large = np.flatnonzero(np.abs(X.values) > MAX_ABS_VALUE)
        types[np.searchsorted(indptr, large, "right") - 1] = kernels.OTHER
        if not is_utf8(text):
            types[types == kernels.PLAIN] = kernels.OTHER
        plain = np.flatnonzero(types == kernels.PLAIN)
        columns = _select_columns(
            kinds,
            label=TextColumn.of(text[a:b].decode() for a, b in labels[plain].tolist()),
            weight=weights[plain],
            tag=TextColumn.of(
                text[a:b].decode().removeprefix(_TAG) or None for a, b in tags[plain].tolist()
            )
            if (tags[:, 0] < tags[:, 1]).any()
            else TextColumn(np.full(len(plain), -1, np.int32), ()),
        )
        table = Table(columns, plain + chunk.line, X if len(plain) == T else X[plain])
        if kernels.OTHER not in types:
            return ParsedChunk(table, ())
        lines = compress(chunk.lines(), types == kernels.OTHER)
        others, bad = self._parse_others(lines, self._parse_line, kinds)
        both = Table.concat([table, others])
        return ParsedChunk(both.take(np.argsort(both.lines)), bad)

    def _parse_line(self, text: str) -> SparseLine:
        row = parse_vw(text)
        is_bare = row.label is None and row.tag and not text.lstrip().startswith(_TAG)
        if is_bare and not self._has_warned:
            self._has_warned = True
            self.notes.append(
                f"{row.tag!r} touches the bar, which makes it a tag and no label; put a space "
                "between them"
            )
        if not (np.abs(hash_features(row.features)[1]) <= MAX_ABS_VALUE).all():
            raise InvalidInputError("its values are too large to compute with; scale the features")
        for name in row.features:
            if len(self._names) < _MAX_NAMES:
                self._names[index_feature(name)] = name
        return row


def parse_vw(text: str) -> SparseLine:
    """Return what one line says.

    >>> row = parse_vw("spam 2.5 'mail7|words:2 cheap offer:3 |size :40")
    >>> row.label, row.weight, row.tag
    ('spam', 2.5, 'mail7')
    >>> row.features
    {'words^cheap': 2.0, 'words^offer': 6.0, 'size^0': 40.0}
    """
    words, tag, features = split_vw_line(text)
    label, weight_text = (*words, None, None)[:2]
    if label is not None and (":" in label or "," in label):
        raise InvalidInputError(
            f"{label!r} is not a class: labels of several actions, costs or probabilities cannot "
            "be learned; for a log of decisions there is folklearn policy-value"
        )
    if len(words) > 2:
        raise InvalidInputError(
            f"there are {len(words)} words before the bar; expected a label and perhaps a weight"
        )
    weight = None if weight_text is None else parse_number(weight_text)
    if weight_text is not None and not (weight is not None and 0.0 <= weight <= MAX_WEIGHT):
        raise InvalidInputError(
            f"the weight is {weight_text!r}; expected a number from 0 to {MAX_WEIGHT:g}"
        )
    return SparseLine(features, label, weight, tag)


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
    for namespace in after.replace("\t", " ").split(_BAR):
        entries = [word for word in namespace.split(" ") if word]
        prefix, scale, n_nameless = "", 1.0, 0
        if entries and not namespace.startswith(" "):
            space, colon, factor = entries.pop(0).partition(":")
            if not space:
                raise InvalidInputError(f"the namespace {space + colon + factor!r} has no name")
            prefix = f"{space}^"
            scale = _parse_value(factor, f"the scale of namespace {space!r}") if colon else 1.0
        for entry in entries:
            name, colon, value = entry.partition(":")
            column = prefix + (name or str(n_nameless))
            n_nameless += not name
            x = scale * (_parse_value(value, f"feature {column!r}") if colon else 1.0)
            features[column] = features.get(column, 0.0) + x
    return words, tag, features


def hash_features(features: Mapping[Any, float]) -> tuple[Indices, Array]:
    """Return the sorted indices and the values of features by name or index, without zeros."""
    indices = np.array([n if type(n) is int else index_feature(n) for n in features], np.int64)
    values = np.array(list(features.values()), np.float64)
    end = kernels.sum_duplicates(indices, values, 0, len(indices))
    return indices[:end], values[:end]


def index_feature(name: str) -> int:
    """Return the index of a named feature: its hash, or a whole number itself."""
    text = np.frombuffer(name.encode(), np.uint8)
    space, caret, _ = name.partition("^")
    behind = len(space.encode()) + 1 if caret and space else 0
    return int(kernels.feature_index(text, behind, len(text), 0, max(behind - 1, 0), N_FEATURES))


def _parse_value(text: str, where: str) -> float:
    value, fault = to_number(text)
    if not text:
        fault = "there is no value after the colon"
    elif not fault and math.isnan(value):
        fault = f"{text!r} is not a number"
    if fault:
        raise InvalidInputError(f"{where}: {fault}")
    return value
