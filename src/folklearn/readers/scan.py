"""The first pass over rows that can be read again: which labels, how often, in which order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import Kind
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.table import Table, TextColumn, as_text_column, is_missing
from folklearn.sparse import SparseRows

_MOST_VALUES = 101  # texts of a column that are kept: one more than categories are shown
_MOST_FEATURES = 100_001
_FEW_RUNS = 20  # rows per run: sorted rows have far more


@dataclass
class Scan:
    """What a pass over all rows found.

    Attributes
    ----------
    n_rows : good rows.
    labels : how often every label occurs, in order of appearance.
    first_lines : where every label occurs first.
    n_unlabelled : rows without a label.
    sorted : whether the rows are sorted by label, or nearly: labels come in few runs where a
        shuffled order would have many more.
    largest_weight : None if there are no weights.
    missing : how many values of a column are missing, for columns where some are.
    n_bad : rows that were left out.
    values : the first distinct texts of every column of text, in order of appearance.
    n_features, features : distinct features that rows name by number, 100,001 at most.
    """

    n_rows: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    first_lines: dict[str, int] = field(default_factory=dict)
    n_unlabelled: int = 0
    sorted: bool = False
    largest_weight: float | None = None
    missing: dict[str, int] = field(default_factory=dict)
    n_bad: int = 0
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    n_features: int = 0
    features: tuple[int, ...] = ()


def scan(
    reader: Reader,
    kinds: Mapping[str, Kind],
    *,
    target: str | None,
    weight: str | None = None,
    on_bad: Callable[[BadRow], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Scan:
    """Read all rows once and count what they hold.

    Parameters
    ----------
    reader : the rows.
    kinds : the columns to read, and how.
    target : the column of the labels, None if there are none.
    weight : the column of the weights.
    on_bad : takes rows that cannot be read; if None, the first one is raised.
    progress : takes the number of rows read so far; `reader.fraction` says how much that is.

    Examples
    --------
    >>> from folklearn.readers.memory import RowsReader
    >>> rows = [{"size": 3, "kind": "cat"}, {"size": 30, "kind": "dog"}, {"kind": "cat"}]
    >>> found = scan(RowsReader(rows), {"size": "number", "kind": "text"}, target="kind")
    >>> found.labels, found.missing
    ({'cat': 2, 'dog': 1}, {'size': 1})
    """
    pass_ = _Pass(target, weight)

    def count(bad: BadRow) -> None:
        pass_.found.n_bad += 1
        if on_bad is not None:
            on_bad(bad)

    for block in reader.read(kinds, on_bad=None if on_bad is None else count):
        pass_.add(block)
        if progress is not None:
            progress(pass_.found.n_rows)
    if not pass_.found.n_rows and not pass_.found.n_bad:
        raise InvalidInputError(f"{reader.name} has no rows")
    return pass_.result()


class _Pass:
    """What has been counted so far."""

    def __init__(self, target: str | None, weight: str | None) -> None:
        self.found = Scan()
        self._target, self._weight = target, weight
        self._values: dict[str, dict[str, None]] = {}
        self._features: set[int] = set()
        self._n_runs = 0
        self._last: str | None = None

    def add(self, block: Table) -> None:
        found = self.found
        found.n_rows += len(block)
        for name, column in block.columns.items():
            n_gaps = int(np.count_nonzero(is_missing(column)))
            if n_gaps:
                found.missing[name] = found.missing.get(name, 0) + n_gaps
            if isinstance(column, TextColumn):
                self._add_values(name, column)
        if self._target is not None:
            self._add_labels(block)
        weights = block.columns.get(self._weight) if self._weight is not None else None
        if isinstance(weights, np.ndarray) and not is_missing(weights).all():
            found.largest_weight = max(found.largest_weight or 0.0, float(np.nanmax(weights)))
        if isinstance(block.features, SparseRows) and len(self._features) < _MOST_FEATURES:
            self._features.update(np.unique(block.features.compact().indices).tolist())

    def _add_values(self, name: str, column: TextColumn) -> None:
        values = self._values.setdefault(name, {})
        if len(values) < _MOST_VALUES:
            codes, firsts = np.unique(column.codes, return_index=True)
            for code in codes[np.argsort(firsts)].tolist():
                if code >= 0 and len(values) < _MOST_VALUES:
                    values.setdefault(column.values[code])

    def _add_labels(self, block: Table) -> None:
        found = self.found
        column = block.columns.get(self._target or "")
        if column is None:
            found.n_unlabelled += len(block)
            return
        texts = as_text_column(column)
        known = np.flatnonzero(texts.codes >= 0)
        found.n_unlabelled += len(block) - len(known)
        if not len(known):
            return
        own = texts.codes[known]
        codes, firsts, counts = np.unique(own, return_index=True, return_counts=True)
        for place in np.argsort(firsts):
            label = texts.values[codes[place]]
            found.labels[label] = found.labels.get(label, 0) + int(counts[place])
            found.first_lines.setdefault(label, int(block.lines[known[firsts[place]]]))
        self._n_runs += int(np.count_nonzero(np.diff(own)))
        self._n_runs += texts.values[own[0]] != self._last
        self._last = texts.values[own[-1]]

    def result(self) -> Scan:
        found = self.found
        found.values = {name: tuple(values) for name, values in self._values.items()}
        found.n_features = min(len(self._features), _MOST_FEATURES)
        found.features = tuple(sorted(self._features)[:_MOST_FEATURES])
        n = sum(found.labels.values())
        squares = sum(count * count for count in found.labels.values())
        if_shuffled = 1 + (n - 1) * (1 - squares / (n * n)) if n else 0.0
        few = found.n_rows / _FEW_RUNS + len(found.labels)
        found.sorted = self._n_runs < few and if_shuffled > 2 * self._n_runs
        return found
