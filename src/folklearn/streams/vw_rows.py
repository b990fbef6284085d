"""Vowpal Wabbit's text as sparse rows at the speed of compiled code, names hashed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from folklearn import problem
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.numerics import vw_text
from folklearn.sparse import Indices, SparseRows, index_type
from folklearn.streams import vw
from folklearn.streams.text import Path, is_gzipped

_PIECE = 2**24  # bytes that are read at a time
_MOST_FEATURES = 2**32  # the hash has so many values


class VwRows(NamedTuple):
    """Examples: contexts, the labels as they are written, and their weights."""

    X: SparseRows
    labels: list[str]
    weights: Array


def vw_rows(path: Path, n_features: int = 2**18, *, piece: int = _PIECE) -> Iterator[VwRows]:
    """Yield the examples of a file in blocks, features hashed into `n_features` columns.

    A feature is called as in `folklearn.streams.vw`, ``namespace^feature``; its column is a hash
    of that, or, for a whole number without a namespace, the number itself, as VW has it. What
    falls into one column is added up. There is no constant: VW adds one by itself. Every line
    needs a label; a line that cannot be read is refused with its number.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "few.vw"
    >>> _ = file.write_text("spam | 7:0.5 3\\nham 2.5 |words cheap cheap\\n")
    >>> rows = next(vw_rows(file, 1000))
    >>> rows.labels, rows.weights.tolist(), rows.X.row(0).indices.tolist(), rows.X.row(1).values
    (['spam', 'ham'], [1.0, 2.5], [3, 7], array([2.]))
    """
    n_features = problem.count("n_features", n_features, 1)
    if n_features > _MOST_FEATURES:
        raise InvalidInputError(f"n_features is {n_features}; names are hashed into 2^32 at most")
    if is_gzipped(path):
        raise InvalidInputError(f"{path} is gzipped; unpack it first")
    n_before = 0
    with open(path, "rb") as file:
        while text := file.read(piece) + file.readline():
            yield _read(text, n_features, str(path), n_before)
            n_before += text.count(b"\n")


def _read(text: bytes, n_features: int, name: str, n_before: int) -> VwRows:
    if not text.endswith(b"\n"):
        text += b"\n"
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    T = len(ends)
    room = text.count(b" ") + text.count(b"\t") + text.count(b"|") + T
    kinds, labels = np.empty(T, np.int64), np.zeros((T, 2), np.int64)
    indptr = np.empty(T + 1, np.int64)
    indices: Any = np.empty(room, index_type(n_features))
    values = np.empty(room)
    weights, tags = np.empty(T), np.zeros((T, 2), np.int64)
    seen, new = np.empty(1, np.int64), np.empty((0, 5), np.int64)  # no names are wanted
    vw_text.read_lines(
        data, ends, n_features, kinds, labels, tags, weights, indptr, indices, values, seen, new
    )
    others = ~np.isnan(weights) | (labels[:, 0] == labels[:, 1])
    others |= np.array([text[a:b].lower() == b"nan" for a, b in labels.tolist()], bool)
    kinds[others & (kinds == vw_text.PLAIN)] = vw_text.OTHER
    X = SparseRows(indptr, indices[: indptr[-1]], values[: indptr[-1]], n_features)
    spans = labels.tolist()
    if (kinds == vw_text.PLAIN).all():
        return VwRows(X, [text[a:b].decode() for a, b in spans], np.ones(T))
    return _with_others(text, ends, kinds, X, spans, name, n_before)


def _with_others(
    text: bytes, ends: Indices, kinds: Indices, X: SparseRows, spans: list[list[int]], name: str,
    n_before: int,
) -> VwRows:  # fmt: skip
    """Read the lines that are not plain, one by one."""
    rows: list[tuple[Any, Array]] = []
    labels, weights = [], []
    start = 0
    for t, stop in enumerate(ends.tolist()):
        if kinds[t] == vw_text.PLAIN:
            rows.append(X.row(t))
            labels.append(text[slice(*spans[t])].decode())
            weights.append(1.0)
        elif kinds[t] == vw_text.OTHER:
            try:
                parsed = vw.parse(text[start:stop].decode().rstrip("\r"))
                if parsed.label is None:
                    raise InvalidInputError("it has no label to learn from" + parsed.hint)
            except (InvalidInputError, UnicodeDecodeError) as error:
                raise InvalidInputError(f"line {n_before + t + 1} of {name}: {error}") from None
            rows.append(_hashed(parsed.features, X.shape[1]))
            labels.append(parsed.label)
            weights.append(parsed.weight)
        start = stop + 1
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)])
    indices = np.concatenate([X.indices[:0], *(own for own, _ in rows)])
    values = np.concatenate([X.values[:0], *(own for _, own in rows)])
    return VwRows(SparseRows(indptr, indices, values, X.shape[1]), labels, np.array(weights))


def _hashed(features: dict[str, float], n_features: int) -> tuple[Indices, Array]:
    """Return a row of features by name, as the compiled reader has it."""
    indices: Any = np.empty(len(features), index_type(n_features))
    values = np.array(list(features.values()))
    for a, name in enumerate(features):
        text = np.frombuffer(name.encode(), np.uint8)
        space, caret, _ = name.partition("^")
        behind = len(space.encode()) + 1 if caret and space else 0
        indices[a] = vw_text.place_of(text, behind, len(text), 0, max(behind - 1, 0), n_features)
    end = vw_text.tidied(indices, values, 0, len(indices))
    return indices[:end], values[:end]
