"""First pass over rows that can be read again: labels and their counts, categories, weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import Kind
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.table import Table, TextColumn, as_text_column, is_missing
from folklearn.sparse import SparseRows

_MAX_VALUES = 101  # texts kept per column: one more than categories are shown
_MAX_FEATURES = 100_001
_MIN_ROWS_PER_RUN = 20  # of equal labels; sorted rows have far more


@dataclass
class Scan:
    """Counts of a pass over all rows.

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
    >>> counts = scan(RowsReader(rows), {"size": "number", "kind": "text"}, target="kind")
    >>> counts.labels, counts.missing
    ({'cat': 2, 'dog': 1}, {'size': 1})
    """
    counter = _RowCounter(target, weight)

    def count(bad: BadRow) -> None:
        counter.scan.n_bad += 1
        if on_bad is not None:
            on_bad(bad)

    for table in reader.read(kinds, on_bad=None if on_bad is None else count):
        counter.add(table)
        if progress is not None:
            progress(counter.scan.n_rows)
    if not counter.scan.n_rows and not counter.scan.n_bad:
        raise InvalidInputError(f"{reader.name} has no rows")
    return counter.result()


class _RowCounter:
    def __init__(self, target: str | None, weight: str | None) -> None:
        self.scan = Scan()
        self._target, self._weight = target, weight
        self._values: dict[str, dict[str, None]] = {}
        self._features: set[int] = set()
        self._n_runs = 0
        self._last_label: str | None = None

    def add(self, table: Table) -> None:
        scan = self.scan
        scan.n_rows += len(table)
        for name, column in table.columns.items():
            n_missing = int(np.count_nonzero(is_missing(column)))
            if n_missing:
                scan.missing[name] = scan.missing.get(name, 0) + n_missing
            if isinstance(column, TextColumn):
                self._add_values(name, column)
        if self._target is not None:
            self._add_labels(table)
        weights = table.columns.get(self._weight) if self._weight is not None else None
        if isinstance(weights, np.ndarray) and not is_missing(weights).all():
            scan.largest_weight = max(scan.largest_weight or 0.0, float(np.nanmax(weights)))
        if isinstance(table.features, SparseRows) and len(self._features) < _MAX_FEATURES:
            self._features.update(np.unique(table.features.compact().indices).tolist())

    def _add_values(self, name: str, column: TextColumn) -> None:
        values = self._values.setdefault(name, {})
        if len(values) < _MAX_VALUES:
            codes, firsts = np.unique(column.codes, return_index=True)
            for code in codes[np.argsort(firsts)].tolist():
                if code >= 0 and len(values) < _MAX_VALUES:
                    values.setdefault(column.values[code])

    def _add_labels(self, table: Table) -> None:
        scan = self.scan
        column = table.columns.get(self._target or "")
        if column is None:
            scan.n_unlabelled += len(table)
            return
        texts = as_text_column(column)
        labelled = np.flatnonzero(texts.codes >= 0)
        scan.n_unlabelled += len(table) - len(labelled)
        if not len(labelled):
            return
        label_codes = texts.codes[labelled]
        codes, firsts, counts = np.unique(label_codes, return_index=True, return_counts=True)
        for index in np.argsort(firsts):
            label = texts.values[codes[index]]
            scan.labels[label] = scan.labels.get(label, 0) + int(counts[index])
            scan.first_lines.setdefault(label, int(table.lines[labelled[firsts[index]]]))
        self._n_runs += int(np.count_nonzero(np.diff(label_codes)))
        self._n_runs += texts.values[label_codes[0]] != self._last_label
        self._last_label = texts.values[label_codes[-1]]

    def result(self) -> Scan:
        scan = self.scan
        scan.values = {name: tuple(values) for name, values in self._values.items()}
        scan.n_features = min(len(self._features), _MAX_FEATURES)
        scan.features = tuple(sorted(self._features)[:_MAX_FEATURES])
        n = sum(scan.labels.values())
        squares = sum(count * count for count in scan.labels.values())
        expected_runs = 1 + (n - 1) * (1 - squares / (n * n)) if n else 0.0
        max_runs = scan.n_rows / _MIN_ROWS_PER_RUN + len(scan.labels)
        scan.sorted = self._n_runs < max_runs and expected_runs > 2 * self._n_runs
        return scan
