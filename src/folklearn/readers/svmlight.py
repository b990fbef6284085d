"""svmlight and LIBSVM files: ``label index:value ...``, and a comment after ``#``.

Labels are text and stay as they are written; a line may have none. ``qid:`` says which rows
belong together, which does not matter here. Read by scikit-learn; a chunk with faults, or with
labels that are no numbers, by Python.
"""

import io
import re
from collections.abc import Mapping

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import MAX_ABS_VALUE, Kind, to_number
from folklearn.readers.reader import ParsedChunk
from folklearn.readers.source import ByteSource, Chunk
from folklearn.readers.text import (
    EMPTY,
    N_FEATURES,
    LineReader,
    SparseLine,
    is_text,
    sparse_block,
    sparse_part,
)
from folklearn.sparse import SparseRows

_INDEX = re.compile(r"[0-9]{1,10}", re.ASCII)


class SvmlightReader(LineReader):
    """A file in this format, or a stream of it."""

    format = "svmlight"
    names = ("label",)

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        if not source.first_line("#"):
            raise InvalidInputError(f"{self.name} has no rows; expected lines like: 1 3:0.5 7:2")

    def _part_of(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk:
        fast = self._fast(chunk, kinds)
        return fast or sparse_part(self, self._line_by_line(chunk.lines(), parse, EMPTY), kinds)

    def _fast(self, chunk: Chunk, kinds: Mapping[str, Kind] | None) -> ParsedChunk | None:
        """Return a chunk as scikit-learn reads it, None unless everything is as it should be."""
        from sklearn.datasets import load_svmlight_file

        data = chunk.data
        if b"_" in data or b":+" in data or not is_text(data):
            return None  # which it would read, but not we
        try:
            found, _ = load_svmlight_file(io.BytesIO(data), n_features=N_FEATURES, zero_based=True)
        except (ValueError, OverflowError):
            return None
        X = SparseRows.of(found)
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
        none = np.full(len(X), np.nan)
        return ParsedChunk(sparse_block(X, labels, none, (), lines, kinds), ())


def parse(text: str) -> SparseLine | None:
    """Return what one line says, or None if it is only a comment.

    >>> parse("+1 10:-2 3:0.5 # seen twice")[:3]
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
        index, colon, written = word.partition(":")
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
        features[column], fault = to_number(written)
        if not fault and np.isnan(features[column]):
            fault = "there is no value; leave the column out instead"
        if fault:
            raise InvalidInputError(f"column {column}: {fault}")
    indices = np.array(sorted(index for index, value in features.items() if value), np.int64)
    return SparseLine(indices, np.array([features[int(i)] for i in indices]), label)
