"""From a source to a model: roles, labels, weights and ids of rows, block by block."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import TINY, Array
from folklearn.errors import InvalidInputError, spell_argument, warn_of_data
from folklearn.kernels.blas import device_named
from folklearn.learners.backends import PAIRS, select_backend
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.model import roles as known_roles
from folklearn.model.batch import BatchResult
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.roles import CATEGORY, DATES, ID, IGNORED, LEARNED, TARGET, WEIGHT, WORDS
from folklearn.progress import report_progress
from folklearn.readers.convert import parse_number
from folklearn.readers.memory import is_frame
from folklearn.readers.open import open_reader
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.scan import Scan, scan
from folklearn.readers.table import Table, TextColumn, table_from_records
from folklearn.sparse import SparseRows, is_sparse
from folklearn.utils import count_of, join_names

if TYPE_CHECKING:
    from folklearn.model.model import Model
from typing import TYPE_CHECKING, Self

from folklearn.readers.table import as_text_column

if TYPE_CHECKING:
    from folklearn.model.model import Model

_COARSE, _FINE = 8192, 512  # rows of a block
_MOST_NAMED = 6  # columns that are left out
_FEW = 50  # features of the first row of a stream, for it not to be wide
_FIRST_STOP = 64  # rows; then 128, 256, ...
_SORTED = (
    "the labels come sorted: a model that learns row by row sees one class after the other; "
    "shuffle the rows ({}) unless this is the order of time"
)


@dataclass(frozen=True)
class LabelledTable:
    """Rows of a block with what was taken out of it.

    table : the columns that are learned from.
    labels : of the rows that have one, in order: `TextColumn`, or values of any kind.
    has_label : (T,) which rows these are.
    weights : (T,) of all rows.
    ids : columns that are carried along, by name.
    """

    table: Table
    labels: Any
    has_label: NDArray[np.bool_]
    weights: Array
    ids: dict[str, list[Any]]

    def labelled(self) -> tuple[Table, Any, Array]:
        """Return the rows that have a label: their table, labels and weights."""
        if self.has_label.all():
            return self.table, self.labels, self.weights
        return self.table.take(self.has_label), self.labels, self.weights[self.has_label]

    def labels_of(self, some: NDArray[np.bool_]) -> Any:
        """Return the labels of rows that all have one."""
        own = some[self.has_label]
        if isinstance(self.labels, TextColumn):
            return self.labels[own]
        return [label for label, wanted in zip(self.labels, own.tolist(), strict=True) if wanted]


class Dataset:
    """The rows of one source, as a model learns them.

    What can be read twice is, unless `one_pass`: the first time every cell is checked, and classes
    and categories are found, so that nothing is new later.

    Parameters
    ----------
    model : for which the rows are; its roles hold, and it is told of columns and classes.
    source : whatever `open_reader` takes.
    target, weight : columns of labels and weights; None for those that the model knows.
    one_pass : learn classes and categories as they come.
    shuffle : a seed, to learn the rows in a random order; None keeps theirs.
    on_bad : takes rows that cannot be read; None stops at the first.
    most : rows of a block; few, by default, where floors are kept, to look at them often.
    known_only : leave out columns that the model does not know, as for rows to be predicted.
    dense : give every feature its place in a matrix, however many there are; refuses words.
    options : of the reader.
    """

    def __init__(
        self,
        model: "Model",
        source: Any,
        target: str | None = None,
        *,
        weight: str | None = None,
        one_pass: bool = False,
        shuffle: int | None = None,
        on_bad: Callable[[BadRow], None] | None = None,
        most: int | None = None,
        known_only: bool = False,
        dense: bool = False,
        **options: Any,
    ) -> None:
        if not (target is None or isinstance(target, str)):
            raise InvalidInputError(
                f"target is the name of the column of labels, got {type(target).__name__}: put the "
                "labels into the rows, as in X.assign(label=y) with target='label'; learn_many(X, "
                "y) and FolkloreClassifier take labels apart"
            )
        self.model = model
        self.on_bad, self.shuffle = on_bad, shuffle
        self.most = most or (_FINE if model.has_window_bounds else _COARSE)
        self.known_only, self.dense = known_only, dense
        self._has_begun = False
        self._own_labels: dict[int, Any] | None = None
        self._labels_apart = False  # not read with the rows, because they may be soft
        self.reader = self._opened(source, target, options)
        self.reader.has_fixed_roles = model.encoder is not None
        self.one_pass = bool(one_pass) or not self.reader.can_reread
        self.target = self._named(TARGET, target)
        self.weight = self._named(WEIGHT, weight)
        self.roles = self._roles()
        self.scan: Scan | None = None
        self.n_learned = self.n_unlabelled = 0
        self.unlearned = UnlearnedValues()
        self._warned_of: set[str] = set()

    def _opened(self, source: Any, target: str | None, options: Mapping[str, Any]) -> Reader:
        """Open a source; labels of frames and dictionaries keep their type."""
        name = target if target is not None else _role_name(self.model.roles, TARGET)
        if isinstance(source, Reader) or name is None or isinstance(source, str | bytes):
            return open_reader(source, **options)
        labels = _values_of(source, name)
        if labels is not None:
            self._own_labels = dict(enumerate(labels, 1))
            self._labels_apart = any(isinstance(label, Mapping) for label in labels)
        elif isinstance(source, Iterator) and not hasattr(source, "read"):
            self._own_labels, self._labels_apart = {}, True
            source = _noting(source, name, self._own_labels)
        return open_reader(source, **options)

    def _named(self, role: str, asked: str | None) -> str | None:
        """Return the column of a role: as asked for, as the model knows it, or by the format."""
        names = self.reader.names
        if asked is not None and asked not in names and not self._labels_apart:
            raise self.reader.missing_column_error(asked)
        own = _role_name(self.model.roles, role)
        if asked is not None and role == TARGET and self.model.encoder is not None:
            self._check_same_target(asked, own)
        if asked is None:
            asked = own
        fixed = {TARGET: "label", WEIGHT: "weight"}[role]
        if asked is None and self.reader.format in ("svmlight", "vw") and fixed in names:
            return fixed
        return asked

    def _check_same_target(self, asked: str, own: str | None) -> None:
        """Raise if a column is not what the model predicts, and not its column renamed either."""
        if asked != own and (own in self.reader.names or self.model.roles.get(asked) in LEARNED):
            argument = spell_argument("target={!r}", asked)
            raise InvalidInputError(
                f"{asked!r} is not what the model predicts, which is the column {own!r}: leave "
                f"{argument} out"
            )

    def _roles(self) -> dict[str, str]:
        """Return the role of every column of the source."""
        model, names = self.model, self.reader.names
        asked = dict(model.roles)
        for name, role in ((self.target, TARGET), (self.weight, WEIGHT)):
            if name is not None:
                asked[name] = role
        if self.reader.format == "vw":
            asked.setdefault("tag", ID)
        new = {}
        if model.encoder is None or not self.known_only:
            new = known_roles.infer_roles(self.reader.head(), skip=asked)
        if model.encoder is None:
            unknown = [
                name
                for name, role in model.asked_roles.items()
                if names and name not in (self.reader.known if role == IGNORED else names)
            ]
            if unknown:
                raise self.reader.missing_column_error(unknown[0], ", which was given a role")
        else:
            lacking = [
                name
                for name, role in asked.items()
                if role in LEARNED and names and name not in names
            ]
            if lacking and self.reader.format not in ("svmlight", "vw", "jsonlines", "rows"):
                raise InvalidInputError(
                    f"{self.reader.name} lacks columns of the model: {join_names(lacking)}; "
                    "it has: "
                    f"{join_names(names)}"
                )
        roles = {**new, **asked}
        # In the order of the source: places are opened in this order.
        ordered = {name: roles[name] for name in names if name in roles}
        return {**ordered, **{name: role for name, role in roles.items() if name not in ordered}}

    @property
    def kinds(self) -> dict[str, Any]:
        """How the columns are to be read."""
        read = (*LEARNED, TARGET, WEIGHT, ID)
        names = set(self.reader.names)
        return {
            name: known_roles.kind_of(role)
            for name, role in self.roles.items()
            if role in read
            and (not names or name in names)
            and not (role == TARGET and self._labels_apart)
        }

    def begin(self, progress: Callable[[int], None] | None = None) -> None:
        """Look at all rows if they can be read twice, and prepare the model for them; once."""
        if self._has_begun:
            return
        self._has_begun = True
        model = self.model
        if self.target is None:
            argument = spell_argument("target={!r}", "COLUMN")
            raise InvalidInputError(
                f"which column of {self.reader.name} holds the class? Name it: {argument}; its "
                f"columns are: {join_names(self.reader.names)}"
            )
        if not self.one_pass:
            self.scan = scan(
                self.reader,
                self.kinds,
                target=self.target,
                weight=self.weight,
                on_bad=(lambda _: None) if self.on_bad else None,
                progress=progress,
            )
            if self.scan.sorted and self.shuffle is None:
                warn_of_data(_SORTED.format(spell_argument("shuffle=True")))
            self._doubt_numbers(self.scan)
            self._declare(self.scan)
        if model.encoder is None:
            self._open_columns()

    def _doubt_numbers(self, found: Scan) -> None:
        """Say so if the classes look like numbers that are to be estimated."""
        labels = list(found.labels)
        if len(labels) > max(known_roles.MANY_NUMBERS, found.n_rows // 20) and all(
            map(_is_number, labels)
        ):
            warn_of_data(
                f"column {self.target!r} holds {len(labels)} different numbers: each is taken for "
                "a class of its own, and their order says nothing; for a number to be estimated "
                "this is the wrong tool"
            )

    def _declare(self, found: Scan) -> None:
        """Tell the model of classes, how often they come, and of the largest weight of a row."""
        labels: Any = TextColumn.of(found.labels)
        counts = list(found.labels.values())
        if self._own_labels is not None:
            values = [label for label in self._own_labels.values() if not _is_missing(label)]
            if any(isinstance(label, Mapping) for label in values):
                return
            found_labels = Counter(values)
            labels, counts = list(found_labels), list(found_labels.values())
        self.model.declare(labels, counts=counts, max_weight=found.largest_weight or 1.0)

    def _open_columns(self) -> None:
        """Give every column, and every category that was found, its place."""
        model, head, found = self.model, self.reader.head(), self.scan
        learned = {name: role for name, role in self.roles.items() if role in LEARNED}
        n_features = 0
        if isinstance(head.features, SparseRows):
            n_features = found.n_features if found else len(np.unique(head.features[:1].indices))
        n_classes = max(2, len(model.labels))
        is_wide = n_features > _FEW
        if found is not None:
            is_wide = select_backend(n_features + 1, n_classes, device_named(model.device)) != PAIRS
        sparse = WORDS in learned.values() or bool(n_features and is_wide and not self.dense)
        if self.dense and WORDS in learned.values():
            name = next(name for name, role in learned.items() if role == WORDS)
            raise InvalidInputError(
                f"column {name!r} of {self.reader.name} holds words, and these rows must be a "
                "matrix: leave it out, or give it the role category"
            )
        model.encoder = columns = TableEncoder(self.roles, model.crosses, sparse=sparse)
        if sparse or found is None:
            return
        columns.admit(columns.encode(_first_rows(head, found, learned)))

    def steps(self, *, progress: bool = False) -> Iterator[tuple[LabelledTable, BatchResult]]:
        """Predict, then learn, all rows; yield them block by block."""
        self.begin()
        self.warn_of_left_out()
        total = self.scan.n_rows if self.scan else self.reader.n_rows
        with report_progress(progress, total or 0, "learning") as report:
            done = 0
            for rows in self.rows():
                yield from self.learn(rows)
                done += len(rows.table)
                if report is not None:
                    report(done)
        self.keep_names()
        self.warn_of_left_out()

    def rows(self, *, doubling: bool = True) -> Iterator[LabelledTable]:
        """Yield the rows with their labels, not yet learned.

        A block ends where the number of rows that the model has learned doubles, unless that
        does not matter.
        """
        blocks = self.reader.read(self.kinds, max_rows=self.most, on_bad=self.on_bad)
        if self.shuffle is not None:
            blocks = self._shuffled(blocks)
        for block in blocks:
            start = 0
            while start < len(block):
                n, stop = self.model.n_rounds, len(block)
                if doubling:
                    stop = min(stop, start + max(_FIRST_STOP, 1 << n.bit_length()) - n)
                yield self._taken_apart(block.take(slice(start, stop)))
                start = stop

    def _shuffled(self, blocks: Iterator[Table]) -> Iterator[Table]:
        whole = list(blocks)
        if not whole:
            return
        joined = Table.concat(whole)
        order = np.random.default_rng(self.shuffle).permutation(len(joined))
        for start in range(0, len(joined), self.most):
            yield joined.take(order[start : start + self.most])

    def _taken_apart(self, block: Table) -> LabelledTable:
        weights = np.ones(len(block))
        if self.weight is not None and self.weight in block.columns:
            block, weights = self._weighed(block)
        columns = {name: own for name, own in block.columns.items() if name != self.weight}
        ids = {
            name: _listed_values(columns.pop(name))
            for name, role in self.roles.items()
            if role == ID and name in columns
        }
        target = columns.pop(self.target, None) if self.target is not None else None
        if self._own_labels is not None:
            values = [self._own_labels.get(line) for line in block.lines.tolist()]
            there = np.array([not _is_missing(value) for value in values], bool)
            labels: Any = [value for value in values if not _is_missing(value)]
        elif isinstance(target, TextColumn):
            there = target.codes >= 0
            labels = target[there]
        else:
            there, labels = np.zeros(len(block), bool), []
        return LabelledTable(
            Table(columns, block.lines, block.features), labels, there, weights, ids
        )

    def _weighed(self, block: Table) -> tuple[Table, Array]:
        """Return the rows whose weights can be used, and these weights."""
        given: Any = block.columns[self.weight or ""]
        weights = np.where(np.isnan(given), 1.0, given)
        good = (weights >= 0.0) & (weights <= self.model.max_weight)
        for row in np.flatnonzero(~good).tolist():
            bad = self._bad_weight(int(block.lines[row]), float(weights[row]))
            if self.on_bad is None:
                raise bad
            self.on_bad(bad)
        return (block, weights) if good.all() else (block.take(good), weights[good])

    def _bad_weight(self, line: int, weight: float) -> BadRow:
        reason = "which is negative"
        if weight > 0.0:
            reason = (
                f"and this model was made for weights of at most {self.model.max_weight:g}: read "
                "a file in two passes, or make the model with max_weight"
            )
        message = f"{self.reader.unit} {line} of {self.reader.name} has the weight {weight:g}, "
        return BadRow(
            message + reason, line=line, column=self.weight, reason=f"the weight is {weight:g}"
        )

    def learn(self, rows: LabelledTable) -> Iterator[tuple[LabelledTable, BatchResult]]:
        """Learn the rows that have a label and predict the others, in order."""
        changes = np.flatnonzero(np.diff(rows.has_label)) + 1
        ends = [*changes.tolist(), len(rows.table)]
        start = 0
        for stop in ends:
            if start == stop:
                continue
            some = np.zeros(len(rows.table), bool)
            some[start:stop] = True
            part = rows if stop - start == len(rows.table) else _part(rows, some, start, stop)
            yield part, self._step(part)
            start = stop

    def _step(self, rows: LabelledTable) -> BatchResult:
        if rows.has_label.all():
            self.n_learned += len(rows.table)
            return self.model.learn_many(rows)
        T = len(rows.table)
        self.n_unlabelled += T
        unseen = np.full(T, self.model.unseen_probability)
        P = self.model.predict_next(rows.table) * (1.0 - unseen)[:, None]
        return BatchResult(P, unseen, np.full(T, -1), np.full(T, math.nan), rows.weights)

    def predict(self, rows: LabelledTable) -> BatchResult:
        """Predict rows as the model would once it is saved; nothing is learned."""
        model, has_label = self.model, rows.has_label
        self.unlearned.count(model, rows.table)
        assert model.pipeline is not None
        assert model.encoder is not None
        unseen = np.full(len(has_label), model.unseen_probability)
        P = model.pipeline.predict(model.encoder.encode_known(rows.table))
        P = P * (1.0 - unseen)[:, None]
        numbers = np.full(len(has_label), -1)
        numbers[has_label] = model.label_encoder.find_known(rows.labels)
        p_label = np.where(numbers >= 0, P[np.arange(len(P)), numbers], unseen)
        losses = np.where(has_label, -np.log(np.maximum(p_label, TINY)), math.nan)
        return BatchResult(P, unseen, numbers, losses, rows.weights)

    def warn_of_left_out(self) -> None:
        """Warn of columns that were left out, of each once; the command line lists them itself."""
        unknown = [name for name in self.unknown if name not in self._warned_of]
        if unknown:
            warn_of_data(
                f"columns that the model does not know are left out: {join_names(unknown)}"
            )
        self._warned_of |= {*unknown}
        _warn_of_left_out(self.reader, self._warned_of | self.roles.keys())  # soft labels have one
        self._warned_of |= self.reader.left_out.keys()

    @property
    def unknown(self) -> list[str]:
        """The columns that the model does not know, where only those that it does are read."""
        present = [*self.reader.names, *self.reader.left_out] if self.known_only else []
        return [name for name in present if name not in self.roles]

    def unlabelled(self) -> Iterator[Table]:
        """Yield the rows to be predicted, labels apart."""
        for rows in self.rows(doubling=False):
            self.unlearned.count(self.model, rows.table)
            yield rows.table

    def keep_names(self) -> None:
        """Remember what features are called that the source has by number."""
        columns = self.model.encoder
        if columns is not None and isinstance(self.reader.head().features, SparseRows):
            indices = [int(part) for source, part in columns.keys if source == FEATURES and part]
            recent = self.model.recent.rows()[0].features
            if columns.sparse and isinstance(recent, SparseRows):
                indices = np.unique(recent.compact().indices).tolist()
            columns.feature_names = dict(
                zip(map(str, indices), self.reader.feature_names(indices), strict=True)
            )


def as_table(rows: Any, ignored: Collection[str] = ()) -> Table:
    """Return rows that are at hand as one block: a frame, dictionaries, a matrix, a block.

    Warns of columns that cannot be read, but for those that are `ignored`.
    """
    if isinstance(rows, Table):
        return rows
    if is_sparse(rows):
        matrix = rows if isinstance(rows, SparseRows) else SparseRows.checked(rows)
        return Table({}, np.arange(1, len(matrix) + 1), matrix)
    if isinstance(rows, np.ndarray):
        X = validation.numbers("X", rows)
        if X.ndim != 2:
            raise InvalidInputError(f"X has shape {X.shape}; expected (number of rows, n_features)")
        return Table({}, np.arange(1, len(X) + 1), X)
    if isinstance(rows, Sequence):
        return table_from_records(rows, range(1, len(rows) + 1))
    reader = open_reader(rows)
    _warn_of_left_out(reader, ignored)
    kinds = {name: known_roles.natural_kind(c) for name, c in reader.head().columns.items()}
    return Table.concat(list(reader.read(kinds)))


def _warn_of_left_out(reader: Reader, known: Collection[str] = ()) -> None:
    """Warn of columns that cannot be read, in one sentence, but for those that somebody knows."""
    left_out = [f"{name!r} ({what})" for name, what in reader.left_out.items() if name not in known]
    if left_out:
        columns = "column is" if len(left_out) == 1 else "columns are"
        more = f" and {len(left_out) - _MOST_NAMED} more" if len(left_out) > _MOST_NAMED else ""
        warn_of_data(
            f"{len(left_out)} {columns} left out of {reader.name}, because only numbers, text, "
            f"dates and durations can be read: {', '.join(left_out[:_MOST_NAMED])}{more}"
        )


def _first_rows(head: Table, found: Scan, learned: Mapping[str, str]) -> Table:
    """Return rows in which every category that was found occurs."""
    n_rows = max([1, *(len(values) for values in found.values.values())])
    columns: dict[str, Any] = {}
    for name in learned:
        if learned[name] == CATEGORY:
            values = found.values.get(name, ())
            codes = np.full(n_rows, -1, np.int32)
            codes[: len(values)] = np.arange(len(values))
            columns[name] = TextColumn(codes, tuple(values))
        else:
            columns[name] = np.zeros(n_rows, "datetime64[us]" if learned[name] in DATES else float)
    features = head.features
    if isinstance(features, SparseRows):
        columns_found = np.unique(found.features)
        indices: Any = columns_found.astype(features.indices.dtype)
        indptr = np.array([0, *[len(indices)] * n_rows])
        one = SparseRows(indptr, indices, np.ones(len(indices)), features.shape[1])
        return Table(columns, np.arange(1, n_rows + 1), one)
    if features is not None:
        features = features[np.zeros(n_rows, np.int64)]
    return Table(columns, np.arange(1, n_rows + 1), features)


def _part(rows: LabelledTable, some: NDArray[np.bool_], start: int, stop: int) -> LabelledTable:
    part = slice(start, stop)
    return LabelledTable(
        rows.table.take(part),
        rows.labels_of(some & rows.has_label),
        rows.has_label[part],
        rows.weights[part],
        {name: values[part] for name, values in rows.ids.items()},
    )


def _noting(rows: Iterator[Any], name: str, labels: dict[int, Any]) -> Iterator[Any]:
    """Yield rows, and note their labels by number."""
    for number, row in enumerate(rows, 1):
        labels[number] = row.get(name) if isinstance(row, Mapping) else None
        yield row


def _values_of(source: Any, name: str) -> list[Any] | None:
    """Return the values of a column of a frame, or of dictionaries, as they are."""
    if isinstance(source, Sequence):
        return [row.get(name) if isinstance(row, Mapping) else None for row in source]
    if not is_frame(source):
        return None
    import narwhals.stable.v2 as nw

    try:
        frame = nw.from_native(source, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame) or name not in frame.columns:
            return None
    except ValueError:  # the reader will say why it is none
        return None
    series = frame[name]
    gaps = series.is_null().to_list()
    return [None if gap else value for value, gap in zip(series.to_list(), gaps, strict=True)]


def _is_number(text: str) -> bool:
    return parse_number(text) is not None


def _is_missing(label: Any) -> bool:
    return label is None or (isinstance(label, float) and label != label)


def _role_name(roles: Mapping[str, str], role: str) -> str | None:
    return next((name for name, own in roles.items() if own == role), None)


def _listed_values(column: Any) -> list[Any]:
    return column.to_list() if isinstance(column, TextColumn) else column.tolist()


_MOST_VALUES_SHOWN = 3


class UnlearnedValues:
    """Counts, by column, the rows whose category a model never learned.

    Such a value speaks for no class, as if it were missing. Of a column with more than a hundred
    categories those that share places cannot be told apart, and are not counted.

    Attributes
    ----------
    n_rows : by column.
    values : some of the values, by column, in the order in which they came.
    """

    def __init__(self) -> None:
        self.n_rows: dict[str, int] = {}
        self.values: dict[str, dict[str, None]] = {}

    @classmethod
    def of(cls, model: "Model", block: Table) -> Self:
        """Return those of one block."""
        found = cls()
        found.count(model, block)
        return found

    def count(self, model: "Model", block: Table) -> None:
        """Count the rows of a block that is predicted."""
        assert model.encoder is not None
        for name, role in model.encoder.roles.items():
            if role == CATEGORY and name in block.columns:
                self._count_column(model, name, as_text_column(block.columns[name]))

    def _count_column(self, model: "Model", name: str, texts: TextColumn) -> None:
        found = np.bincount(texts.codes + 1, minlength=len(texts.values) + 1)[1:]
        present = np.flatnonzero(found)
        values = [texts.values[code] for code in present.tolist()]
        is_new = ~_has_learned(model, name, values)
        if is_new.any():
            n_rows = int(found[present[is_new]].sum())
            self.n_rows[name] = self.n_rows.get(name, 0) + n_rows
            shown = self.values.setdefault(name, {})
            for place in np.flatnonzero(is_new)[:_MOST_VALUES_SHOWN].tolist():
                shown[values[place]] = None

    def warn(self) -> None:
        """Warn of what was found, if anything was."""
        if sentence := self.sentence():
            warn_of_data(sentence)

    def sentence(self) -> str:
        """Return what was found, columns with most rows first; nothing if there was nothing."""
        columns = sorted(self.n_rows, key=lambda name: -self.n_rows[name])
        parts = [
            f"{count_of(self.n_rows[name], 'row')} "
            f"{'has' if self.n_rows[name] == 1 else 'have'} a value of {name!r} that was never "
            f"learned ({join_names([*self.values[name]][:_MOST_VALUES_SHOWN])})"
            for name in columns
        ]
        return f"{'; '.join(parts)}: such values count as missing" if parts else ""


def _has_learned(model: "Model", name: str, categories: Sequence[str]) -> NDArray[np.bool_]:
    """Tell which categories of a column were learned."""
    encoder, pipeline = model.encoder, model.pipeline
    assert encoder is not None
    if not encoder.sparse:
        return encoder.has_places(name, categories)
    if pipeline is None or not isinstance(pipeline.learner, SparseSgd):  # before the second class
        return np.ones(len(categories), bool)
    return pipeline.learner.has_occurred(encoder.wide_places(name, categories))
