"""svmlight and LIBSVM files: ``label index:value ...``, and a comment after ``#``.

Labels are text and stay as they are written. A column is called by its number; one that never
occurs is no column. ``qid:`` says which rows belong together, which does not matter here.
"""

import re

from folklearn.errors import InvalidInputError
from folklearn.streams import sparse
from folklearn.streams.scanned import FileTable
from folklearn.streams.sparse import Parsed, SparseSource
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path, fault

_INDEX = re.compile(r"[0-9]{1,18}", re.ASCII)


def source(path: Path | Tape, name: str | None = None) -> SparseSource:
    """Return a file in this format."""
    return SparseSource(path, name, parse)


def scan(path: Path, name: str | None = None) -> FileTable:
    """Read a whole file once: find its columns and labels, and check every value."""
    return sparse.scan(source(path, name), sort_key=int)


def parse(text: str) -> Parsed | None:
    """Return what one line says, or None if it is only a comment.

    >>> parse("+1 3:0.5 10:-2 # seen twice")
    Parsed(label='+1', features={'3': 0.5, '10': -2.0}, weight=1.0, hint='')
    """
    words = text.partition("#")[0].split()
    if not words:
        return None
    label = words.pop(0) if ":" not in words[0] else None
    if label is not None and "," in label:
        raise InvalidInputError(f"{label!r} is several labels; an example has one class")
    if label is not None and label.lower() == "nan":
        raise InvalidInputError("the label is missing")
    features: dict[str, float] = {}
    for word in words:
        index, colon, value = word.partition(":")
        if index == "qid" and colon:
            continue
        if not colon or not _INDEX.fullmatch(index):
            raise InvalidInputError(
                f"{word!r} is not a column number, a colon and a value, like 3:0.5"
            )
        column = str(int(index))
        if column in features:
            raise InvalidInputError(f"column {column} occurs twice")
        problem = fault(value)
        if problem:
            raise InvalidInputError(f"column {column}: {problem}")
        features[column] = float(value)
    return Parsed(label, features)
