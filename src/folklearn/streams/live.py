"""Examples that come once, as they come: learned in one pass, in constant memory."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.errors import InvalidInputError
from folklearn.streams.scanned import Example, Source, Tally
from folklearn.streams.sparse import SparseSource, refuse_too_wide
from folklearn.streams.table import LaidOut, Layout

_ROWS_EACH = 2  # of a label, at least, on average: many classes may come at first


class LiveBlock(NamedTuple):
    """Rows that came: inputs X (T, d), labels as text, weights (T,), None if all are 1.

    `lines` are their places in the stream.
    """

    X: NDArray[np.float64]
    labels: list[str]
    weight: NDArray[np.float64] | None
    lines: list[int]


class Live(LaidOut):
    """A stream of examples; `folklearn.streams.files.open_live` makes one.

    Attributes
    ----------
    columns : the features; where lines name only what is not 0, those that occurred so far.
    text : those of them that hold text.
    target : name of the column of the labels.
    unused : columns of the stream that were not asked for, the target apart.
    unit : what messages count: lines, or rows.
    note : what was found out about the stream and deserves to be said, or nothing.
    """

    def __init__(
        self,
        source: Source,
        layout: Layout,
        target: str,
        rows: Iterator[Example],
        ready: Callable[[], bool],
        unused: tuple[str, ...] = (),
    ) -> None:
        self.unused = unused
        self.name, self.unit, self.note = source.name, source.unit, source.note
        self.sparse, self.target = source.sparse, target
        self._layout = layout
        self._rows = rows
        self._ready = ready
        self._tally = Tally(source.name, target)

    @property
    def missing(self) -> Mapping[str, int]:
        """For every column that had gaps so far, the number of them."""
        return self._tally.missing

    @property
    def n_rows(self) -> int:
        """The number of examples so far."""
        return self._tally.n_rows

    def block(self, size: int) -> LiveBlock | None:
        """Return the next rows, or None after the last.

        Waits for one row; then takes what is there already, up to `size` rows.
        """
        rows: list[Example] = []
        while len(rows) < size and (not rows or self._ready()):
            row = next(self._rows, None)
            if row is None:
                break
            self._tally.add(row)
            self._tally.refuse_unless_classes(_ROWS_EACH)
            rows.append(row)
        if not rows:
            return None
        weights = np.array([row.weight for row in rows])
        return LiveBlock(
            self._inputs(rows),
            [row.label or "" for row in rows],
            weights if (weights != 1.0).any() else None,
            [row.line for row in rows],
        )

    def _inputs(self, rows: list[Example]) -> NDArray[np.float64]:
        return self._layout.inputs([row.numbers for row in rows], [row.texts for row in rows])


class SparseLive(Live):
    """A stream of lines that name only what is not 0: a new name is a new feature."""

    def __init__(
        self,
        source: SparseSource,
        columns: tuple[str, ...],
        target: str,
        ready: Callable[[], bool],
        drop: Collection[str] = (),
    ) -> None:
        self._drop = frozenset(drop)
        self._places = {column: place for place, column in enumerate(columns)}
        super().__init__(source, Layout(columns), target, self._dense(source), ready)

    def _dense(self, source: SparseSource) -> Iterator[Example]:
        """Yield the rows, each as wide as is known by then."""
        for line, row in source.parsed(labelled=True):
            for feature in self._drop:
                row.features.pop(feature, None)
            for feature in row.features:
                self._places.setdefault(feature, len(self._places))
            refuse_too_wide(len(self._places), line, source.name)
            numbers = np.zeros(len(self._places))
            for feature, value in row.features.items():
                numbers[self._places[feature]] = value
            yield Example(line, numbers, row.label, row.weight)

    def _inputs(self, rows: list[Example]) -> NDArray[np.float64]:
        self._layout = Layout(tuple(self._places))
        X = np.zeros((len(rows), len(self._places)))
        for out, row in zip(X, rows, strict=True):
            out[: len(row.numbers)] = row.numbers
        return X


def first_features(source: SparseSource, drop: Collection[str] = ()) -> tuple[str, ...]:
    """Return the features of the first line that names any: those that a model begins with."""
    what = "has no examples"
    for _, row in source.parsed(labelled=True):
        features = tuple(feature for feature in row.features if feature not in drop)
        if features:
            return features
        what = "names no feature"
    raise InvalidInputError(f"{source.name} {what}")
