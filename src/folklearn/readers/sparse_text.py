"""Text formats that name only nonzero features: svmlight (LIBSVM) and Vowpal Wabbit.

svmlight has lines ``label index:value ...``, and a comment after ``#``; a line may have no label,
and ``qid:`` is ignored. With a bar behind its label a plain line is one of VW.

VW has lines ``[label [weight]] ['tag] |namespace[:scale] feature[:value] ...``: a word that touches
the first bar, or starts with an apostrophe, is a tag and no label; a value that is left out is 1; a
feature that occurs twice in a line has the sum of its values; one without a name is called by its
position. A feature is called ``namespace^feature``, or just ``feature`` if the namespace has no
name; its index is a hash of that, or, for a whole number without a namespace, the number itself.
Labels of several actions are refused. A line without a weight has NaN for it, which means 1.

Labels are text and stay as they are written. Plain lines are parsed by a kernel, others by Python,
which takes 25 times as long (10^5 rows of 16 features: 7.9 s, not .3).
"""

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.kernels import text as kernels
from folklearn.readers.convert import MAX_ABS_VALUE, Kinds, parse_number, to_number
from folklearn.readers.reader import BadRow, LineReader, ParsedChunk, is_utf8
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.table import Column, Table, TextColumn, is_missing
from folklearn.sparse import SparseRows
from folklearn.validation import MAX_WEIGHT

N_FEATURES = 2**32  # features are numbered below this

_INDEX = re.compile(r"[0-9]{1,10}", re.ASCII)
_PLAIN_SVMLIGHT = re.compile(rb"^([^\s:,#|']++)((?: [0-9]{1,9}+:[-.e0-9]++)*+)$", re.MULTILINE)
_BAR, _TAG = "|", "'"
_MAX_NAMES = 100_000
_NAME_SLOTS = 2**18  # of the hash set of features: twice as many as names, a power of 2


class SparseLine(NamedTuple):
    """What one line says; its features are numbers by index or by name."""

    features: Mapping[Any, float]
    label: str | None = None
    weight: float | None = None
    tag: str | None = None


class _SparseReader(LineReader):
    names: tuple[str, ...] = ("label", "weight", "tag")
    _comment, _example = "", ""

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._seen = np.full(_NAME_SLOTS, -1, np.int64)
        if not source.first_line(self._comment):
            raise InvalidInputError(f"{self.name} has no rows; expected lines like {self._example}")

    @abstractmethod
    def _parse_line(self, text: str) -> SparseLine | None: ...

    def _parse(self, kinds: Kinds | None, looking: bool) -> Iterator[ParsedChunk]:
        return (self._parse_chunk(chunk, kinds) for chunk in self._source.chunks(looking=looking))

    def _parse_chunk(self, chunk: Chunk, kinds: Kinds | None) -> ParsedChunk:
        is_svmlight = self.format == "svmlight"
        text = chunk.data
        if is_svmlight:  # a line that has a bar already is not plain
            text = _PLAIN_SVMLIGHT.sub(rb"\1 |\2", text.replace(b"|", b"#"))
        data = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        T = len(ends)
        max_features = text.count(b" ") + text.count(b"\t") + text.count(b"|") + T
        max_new = 0 if is_svmlight else min(max_features, _MAX_NAMES - len(self._feature_names))
        types, weights = np.empty(T, np.int64), np.empty(T)
        labels, tags = np.zeros((2, T, 2), np.int64)
        indptr, indices = np.empty(T + 1, np.int64), np.empty(max_features, np.int64)
        values, new = np.empty(max_features), np.empty((max_new, 5), np.int64)
        n_new = kernels.parse_vw_lines(
            data, ends, N_FEATURES, types, labels, tags, weights, indptr, indices, values,
            self._seen, new,
        )  # fmt: skip
        for index, space_start, space_stop, start, stop in new[:n_new].tolist():
            space, name = text[space_start:space_stop], text[start:stop]
            full_name = b"^".join((space, name)) if space else name
            self._feature_names[index] = full_name.decode(errors="replace")
        X = SparseRows(indptr, indices[: indptr[-1]], values[: indptr[-1]], N_FEATURES)
        large = np.flatnonzero(np.abs(X.values) > MAX_ABS_VALUE)
        types[np.searchsorted(indptr, large, "right") - 1] = kernels.OTHER
        if is_svmlight:  # VW sums values of one feature
            colons = np.flatnonzero(data == ord(":"))
            n_values = np.diff(np.searchsorted(colons, ends), prepend=0)
            types[(types == kernels.PLAIN) & (n_values != np.diff(indptr))] = kernels.OTHER
        if not is_utf8(text):
            types[types == kernels.PLAIN] = kernels.OTHER
        plain = np.flatnonzero(types == kernels.PLAIN)
        columns: dict[str, Column] = {
            "label": TextColumn.of(text[a:b].decode() for a, b in labels[plain].tolist()),
            "weight": weights[plain],
        }
        if (tags[:, 0] < tags[:, 1]).any():
            columns["tag"] = TextColumn.of(
                text[a:b].decode().removeprefix(_TAG) or None for a, b in tags[plain].tolist()
            )
        table = Table(columns, plain + chunk.line, X if len(plain) == T else X[plain])
        bad: Sequence[BadRow] = ()
        if kernels.OTHER in types:
            lines = compress(chunk.lines(), types == kernels.OTHER)
            rows, numbers, _, bad = self._parse_lines(lines, self._parse_line)
            columns = {
                "label": TextColumn.of(row.label for row in rows),
                "weight": np.array([row.weight for row in rows], np.float64),
                "tag": TextColumn.of(row.tag for row in rows),
            }
            others = Table(columns, numbers, hash_features([row.features for row in rows]))
            table = Table.concat([table, others])
            table = table.take(np.argsort(table.lines))
        columns = {  # weights and tags only if there are any
            name: column
            for name, column in table.columns.items()
            if (kinds is None or name in kinds)
            and (name == "label" or not is_missing(column).all())
        }
        return ParsedChunk(Table(columns, table.lines, table.features), bad)


def parse_svmlight(text: str) -> SparseLine | None:
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
        if not colon or not _INDEX.fullmatch(index) or int(index) >= N_FEATURES:
            raise InvalidInputError(
                f"{word!r} is not a column number below {N_FEATURES}, a colon and a value"
            )
        if int(index) in features:
            raise InvalidInputError(f"column {int(index)} occurs twice")
        features[int(index)] = _parse_value(value, f"column {int(index)}")
    return SparseLine(features, label)


class SvmlightReader(_SparseReader):
    """An svmlight file or a stream of it."""

    format = "svmlight"
    names = ("label",)
    _comment, _example = "#", "1 3:0.5 7:2"
    _parse_line = staticmethod(parse_svmlight)


class VwReader(_SparseReader):
    """A file of VW's text or a stream of it."""

    format = "vw"
    _example = "1 | a b:0.5"
    _has_warned = False  # of labels that are tags

    def _parse_line(self, text: str) -> SparseLine:
        row = parse_vw(text)
        is_bare = row.label is None and row.tag and not text.lstrip().startswith(_TAG)
        if is_bare and not self._has_warned:
            self._has_warned = True
            self.notes.append(
                f"{row.tag!r} touches the bar, which makes it a tag and no label; put a space "
                "between them"
            )
        if not all(abs(value) <= MAX_ABS_VALUE for value in row.features.values()):
            raise InvalidInputError("its values are too large to compute with; scale the features")
        for name in row.features:
            if len(self._feature_names) < _MAX_NAMES:
                self._feature_names[index_feature(name)] = name
        return row


def parse_vw(text: str) -> SparseLine:
    words, tag, features = _split_vw_line(text)
    label = words[0] if words else None
    if label is not None and (":" in label or "," in label):
        raise InvalidInputError(
            f"{label!r} is not a class: labels of several actions, costs or probabilities cannot "
            "be learned; a log of decisions is for folklearn.off_policy"
        )
    weight = parse_number(words[1]) if len(words) == 2 else None
    if len(words) > 1 and not (weight is not None and 0.0 <= weight <= MAX_WEIGHT):
        raise InvalidInputError(
            f"{' '.join(words)!r} before the bar is not a label and perhaps a weight from 0 to "
            f"{MAX_WEIGHT:g}"
        )
    return SparseLine(features, label, weight, tag)


def _split_vw_line(text: str) -> tuple[list[str], str | None, dict[str, float]]:
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


def hash_features(rows: Sequence[Mapping[Any, float]]) -> SparseRows:
    from scipy.sparse import csr_array

    indices = [n if type(n) is int else index_feature(n) for row in rows for n in row]
    values = [value for row in rows for value in row.values()]
    indptr = np.cumsum([0, *map(len, rows)])
    entries = np.array(values, np.float64), np.array(indices, np.int64), indptr
    return SparseRows.of(csr_array(entries, shape=(len(rows), N_FEATURES)))


def index_feature(name: str) -> int:
    text = np.frombuffer(name.encode(), np.uint8)
    return int(kernels.feature_index(text, 0, len(text), 0, 0, N_FEATURES))


def _parse_value(text: str, where: str) -> float:
    value, fault = to_number(text)
    if not fault and math.isnan(value):
        fault = f"{text!r} is not a number" if text else "there is no value after the colon"
    if fault:
        raise InvalidInputError(f"{where}: {fault}")
    return value
