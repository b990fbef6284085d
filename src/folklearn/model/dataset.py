"""Rows of one source: their roles, labels, weights and ids, and a model that goes over them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, spell_argument, warn_of_data
from folklearn.kernels.blas import device_named
from folklearn.learners.catalogue import PAIRS, check_size, select_backend
from folklearn.metrics.predictions import PredictionBatch
from folklearn.model import roles as known_roles
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.labels import Costs
from folklearn.model.roles import CATEGORY, ID, IGNORED, LEARNED, TARGET, WEIGHT, WORDS
from folklearn.progress import report_progress
from folklearn.readers.convert import Kind, format_missing, format_role, is_gap, parse_number
from folklearn.readers.open import open_reader, warn_of_unreadable
from folklearn.readers.reader import BadRow, OnBad, Scan, scan
from folklearn.readers.table import (
    MissingValues,
    Table,
    TextColumn,
    as_text_column,
    is_missing,
    slice_rows,
)
from folklearn.sparse import SparseRows
from folklearn.utils import count_of, join_names

if TYPE_CHECKING:
    from folklearn.model.model import Model
    from folklearn.model.table_classifier import TableClassifier

_CHUNK_ROWS, _CHUNK_ROWS_WITH_BOUNDS = 8192, 512
_MAX_VALUES_SHOWN = 3
_MAX_DENSE_FEATURES = 50  # of the first row of a stream, for it not to be wide
_FIRST_DOUBLING = 64  # rows; then 128, 256, ...
_FIXED_NAMES = {TARGET: "label", WEIGHT: "weight"}  # in svmlight and VW text
_MAY_LACK_COLUMNS = ("svmlight", "vw", "jsonlines", "rows")


@dataclass(frozen=True)
class LabelledTable:
    """Rows with what was taken out of their table.

    table : the columns that are learned from.
    labels : of the rows that have one, in order: a `TextColumn`, or an array of objects.
    has_label : (T,) which rows these are.
    weights : (T,) of all rows.
    ids : columns that are carried along, by name.
    """

    table: Table
    labels: Any
    has_label: NDArray[np.bool_]
    weights: Array
    ids: dict[str, list[Any]]

    def take_labelled(self) -> tuple[Table, Any, Array]:
        """Return the rows that have a label: their table, labels and weights."""
        if self.has_label.all():
            return self.table, self.labels, self.weights
        return self.table.take(self.has_label), self.labels, self.weights[self.has_label]

    def split(self) -> Iterator["LabelledTable"]:
        """Yield runs of rows that all have a label, or all have none, in order."""
        changes = np.flatnonzero(np.diff(self.has_label)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(self.table)]):
            rows = slice(start, stop)
            first, n_labels = (np.count_nonzero(self.has_label[r]) for r in (slice(start), rows))
            if start < stop:
                yield LabelledTable(
                    self.table.take(rows),
                    self.labels[first : first + n_labels],
                    self.has_label[rows],
                    self.weights[rows],
                    {name: values[rows] for name, values in self.ids.items()},
                )


class ModelDataset:
    """The rows of one source with their labels, weights and ids, and the model they are for.

    What can be read twice is, unless `one_pass`: the first time every cell is checked, and classes
    and categories are found, so that nothing is new later.

    Parameters
    ----------
    model : learns or predicts the rows; its roles hold, and it gets columns and classes.
    source, options : of `open_reader`.
    target, weight : columns of labels and weights; None for those of the model, or of the format.
    known_only : leave out columns that have no role.
    shuffle : a seed, to yield the rows in a random order; None keeps theirs.
    on_bad : takes rows that cannot be read; None stops at the first.
    dense : give every feature its place in a matrix, however many there are.
    max_rows : of a table.
    """

    def __init__(
        self,
        model: "TableClassifier",
        source: Any,
        target: str | None = None,
        *,
        weight: str | None = None,
        known_only: bool = False,
        one_pass: bool = False,
        shuffle: int | None = None,
        on_bad: OnBad = None,
        dense: bool = False,
        max_rows: int | None = None,
        **options: Any,
    ) -> None:
        if not (target is None or isinstance(target, str)):
            raise InvalidInputError(
                f"target is the name of a column, got {type(target).__name__}: put the labels into "
                "the rows, or use learn_many(X, y) or FolkloreClassifier, which take them apart"
            )
        self.model = cast("Model", model)  # what only predicts is asked for no more
        self.dense, self.on_bad = dense, on_bad
        self.shuffle, self.known_only, self.max_weight = shuffle, known_only, model.max_weight
        chunk_rows = _CHUNK_ROWS_WITH_BOUNDS if model.has_window_bounds else _CHUNK_ROWS
        self._max_rows = max_rows or chunk_rows
        self.unlearned = UnlearnedValues(model)
        self.reader = open_reader(source, **options)
        self.reader.missing = MissingValues((*self.reader.missing.asked, *model.missing))
        self.reader.has_fixed_roles = model.encoder is not None
        self.one_pass = bool(one_pass) or not self.reader.can_reread
        self.target = self._find_column(TARGET, target)
        self.weight = self._find_column(WEIGHT, weight)
        self.roles = self._complete_roles(model.roles)
        self.kinds: dict[str, Kind] = {
            name: "object"
            if role == TARGET and self.reader.has_objects
            else known_roles.kind_of(role)
            for name, role in self.roles.items()
            if role in (*LEARNED, TARGET, WEIGHT, ID)
            and (not self.reader.names or self._has_column(name, role))
        }
        self.scan: Scan | None = None
        self.has_begun = self.has_numbered_features = False
        self._warned_of: set[str] = set()
        self._told: set[str] = set()  # columns whose values were taken for missing

    def _has_column(self, name: str, role: str) -> bool:
        """Tell whether a column can be read: labels may be nested, or come later in a stream."""
        reader = self.reader
        are_later = name in reader.left_out or not reader.can_reread
        return name in reader.names or (role == TARGET and reader.has_objects and are_later)

    def _find_column(self, role: str, asked: str | None) -> str | None:
        reader, roles = self.reader, self.model.roles
        column = next((name for name, known_role in roles.items() if known_role == role), None)
        if asked is None:
            fixed = _FIXED_NAMES[role]
            is_fixed = reader.format in ("svmlight", "vw") and fixed in reader.names
            return fixed if column is None and is_fixed else column
        if not self._has_column(asked, role):
            raise reader.missing_column_error(asked)
        is_other = asked != column and (column in reader.names or roles.get(asked) in LEARNED)
        if role == TARGET and reader.has_fixed_roles and is_other:
            argument = spell_argument("target={!r}", asked)
            raise InvalidInputError(
                f"{asked!r} is not what the model predicts, which is the column {column!r}: leave "
                f"{argument} out"
            )
        return asked

    def _complete_roles(self, asked: Mapping[str, str]) -> dict[str, str]:
        """Return the role of every column, in the order of the source, in which places open."""
        reader, names = self.reader, self.reader.names
        roles = {**asked}
        for name, role in ((self.target, TARGET), (self.weight, WEIGHT)):
            if name is not None:
                roles[name] = role
        if reader.format == "vw":
            roles.setdefault("tag", ID)
        if not (reader.has_fixed_roles and self.known_only):
            roles = {**known_roles.infer_roles(reader.head(), skip=roles), **roles}
        lacking = [
            name
            for name, role in (roles if reader.has_fixed_roles else asked).items()
            if names and name not in (reader.all_names if role == IGNORED else names)
        ]
        if lacking and not reader.has_fixed_roles:
            raise reader.missing_column_error(lacking[0], ", which was given a role")
        lacking = [name for name in lacking if roles[name] in LEARNED]
        if lacking and reader.format not in _MAY_LACK_COLUMNS:
            raise InvalidInputError(
                f"{reader.name} lacks columns of the model: {join_names(lacking)}; it has: "
                f"{join_names(names)}"
            )
        return {name: roles[name] for name in dict.fromkeys((*names, *roles)) if name in roles}

    def rows(self, n_learned: int | None = None) -> Iterator[LabelledTable]:
        """Yield the rows; after `n_learned` a table ends where the number of labels doubles."""
        tables = self.reader.read(self.kinds, max_rows=self._max_rows, on_bad=self.on_bad)
        ids = [name for name, role in self.roles.items() if role == ID]
        for table in tables if self.shuffle is None else self._shuffle(tables):
            start = 0
            while start < len(table):
                stop = len(table)
                if n_learned is not None:
                    doubled = max(_FIRST_DOUBLING, 1 << n_learned.bit_length())
                    stop = min(stop, start + doubled - n_learned)
                rows = table.take(slice(start, stop))
                weights = np.ones(len(rows))
                if self.weight is not None and self.weight in rows.columns:
                    rows, weights = self._check_weights(rows)
                columns = {name: rows.columns[name] for name in rows.columns if name != self.weight}
                labels: Any = columns.pop(self.target or "", np.full(len(rows), None))
                texts = {n: as_text_column(columns.pop(n)).to_list() for n in ids if n in columns}
                has_label = ~is_missing(labels)
                learned = Table(columns, rows.lines, rows.features)
                yield LabelledTable(learned, labels[has_label], has_label, weights, texts)
                start = stop
                if n_learned is not None:
                    n_learned += int(np.count_nonzero(has_label))

    def _shuffle(self, tables: Iterator[Table]) -> Iterator[Table]:
        whole = Table.concat(list(tables))
        order = np.random.default_rng(self.shuffle).permutation(len(whole))
        for start in range(0, len(whole), self._max_rows):
            yield whole.take(order[start : start + self._max_rows])

    def _check_weights(self, table: Table) -> tuple[Table, Array]:
        values: Any = table.columns[self.weight or ""]
        weights = np.where(np.isnan(values), 1.0, values)
        is_good = (weights >= 0.0) & (weights <= self.max_weight)
        for row in np.flatnonzero(~is_good).tolist():
            line, problem = int(table.lines[row]), "which is negative"
            if weights[row] > 0.0:
                problem = (
                    f"and this model was made for weights of at most {self.max_weight:g}: read a "
                    "file in two passes, or make the model with max_weight"
                )
            reason = f"the weight is {weights[row]:g}"
            where = f"{self.reader.unit} {line} of {self.reader.name}"
            message = f"{where} has the weight {weights[row]:g}, {problem}"
            bad = BadRow(message, line=line, column=self.weight, reason=reason)
            if self.on_bad is None:
                raise bad
            self.on_bad(bad)
        return table.take(is_good), weights[is_good]

    @property
    def unknown(self) -> list[str]:
        """The columns without a role, where only those that have one are read."""
        present = [*self.reader.names, *self.reader.left_out] if self.known_only else []
        return [name for name in present if name not in self.roles]

    def warn(self) -> None:
        """Warn of what predictions did without: columns, texts, categories."""
        self.warn_of_left_out()
        self.warn_of_missing()
        self.unlearned.warn()

    def warn_of_left_out(self) -> None:
        """Warn of columns that were left out, of each once; the command line lists them itself."""
        if unknown := [name for name in self.unknown if name not in self._warned_of]:
            what = "columns that the model does not know are left out"
            warn_of_data(f"{what}: {join_names(unknown)}")
        self._warned_of.update(unknown)
        warn_of_unreadable(self.reader, self._warned_of | self.roles.keys())  # labels may be soft
        self._warned_of.update(self.reader.left_out)

    def warn_of_missing(self) -> None:
        """Warn of texts that were taken for missing numbers or dates; of each column once."""
        taken = {n: t for n, t in self.reader.missing.taken.items() if n not in self._told}
        self._told.update(taken)
        if taken:
            columns = "; ".join(f"{str(sorted(t))[1:-1]} in {name!r}" for name, t in taken.items())
            remedy = f"; for a category of its own: {format_role(min(taken), CATEGORY)}"
            remedy *= not self.reader.has_fixed_roles
            warn_of_data(f"taken for a missing value: {columns}{remedy}")

    def begin(self, progress: Callable[[int], None] | None = None) -> None:
        """Look at all rows if they can be read twice, and prepare the model for them; once."""
        if self.has_begun:
            return
        self.has_begun, model = True, self.model
        features, is_wide = self.reader.head().features, False
        self.has_numbered_features = isinstance(features, SparseRows)
        if self.target is None:
            argument = spell_argument("target={!r}", "COLUMN")
            raise InvalidInputError(
                f"which column of {self.reader.name} holds the class? Name it: {argument}; its "
                f"columns are: {join_names(self.reader.names)}"
            )
        counts = None if self.one_pass else self._scan_rows(progress)
        if counts is not None and not counts.has_soft_labels:
            has_objects = self.kinds.get(self.target) == "object"
            model.declare(
                list(counts.labels) if has_objects else TextColumn.of(counts.labels),
                counts=list(counts.labels.values()),
                max_weight=counts.largest_weight or 1.0,
            )
            self.max_weight = model.max_weight
        if model.encoder is not None:
            return
        if isinstance(features, SparseRows) and counts is not None:
            size = len(counts.features) + 1, max(2, len(model.labels))
            is_wide = select_backend(*size, device_named(model.device)) != PAIRS
        elif isinstance(features, SparseRows):
            is_wide = len(np.unique(features[:1].indices)) > _MAX_DENSE_FEATURES
        encoder = TableEncoder(
            self.roles, model.crosses, sparse=is_wide and not self.dense, missing=model.missing
        )
        model.encoder = encoder
        dense = encoder.dense if encoder.sparse else encoder
        if counts is not None and dense is not None:
            width = None if isinstance(features, SparseRows | None) else features.shape[1]
            dense.declare(counts.values, counts.features if width is None else range(width))

    def _scan_rows(self, progress: Callable[[int], None] | None) -> Scan:
        """Read all rows once, for `scan`; warn of labels that look like a mistake."""
        self.scan = counts = scan(
            self.reader, self.kinds, target=self.target, weight=self.weight,
            on_bad=(lambda _: None) if self.on_bad else None, progress=progress,
        )  # fmt: skip
        self.warn_of_missing()
        if counts.sorted and self.shuffle is None:
            warn_of_data(
                "the labels come sorted: a model that learns row by row sees one class after the "
                f"other; shuffle the rows ({spell_argument('shuffle=True')}) unless this is the "
                "order of time"
            )
        labels = list(map(str, counts.labels))
        if len(labels) > max(known_roles.MANY_NUMBERS, counts.n_rows // 20) and all(
            parse_number(label) is not None for label in labels
        ):
            problem = (
                f"column {self.target!r} holds {len(labels)} different numbers: each is taken for "
                "a class of its own, and their order says nothing; for a number to be estimated "
                "this is the wrong tool"
            )
            if self.target not in self.model.asked_roles and not self.model.labels:
                role = format_role(self.target or "", TARGET)
                raise InvalidInputError(f"{problem}; if they are classes all the same: {role}")
            warn_of_data(problem)
        gaps = [label for label in labels if is_gap(label)]
        if gaps:
            warn_of_data(
                f"column {self.target!r} has the class {join_names(gaps)}; if such rows have no "
                f"label: {format_missing(gaps[0])}"
            )
        return counts

    def steps(self, *, progress: bool = False) -> Iterator[tuple[LabelledTable, PredictionBatch]]:
        """Predict, then learn, all rows; yield them with what came of them."""
        self.begin()
        self.warn_of_left_out()
        total = self.scan.n_rows if self.scan else self.reader.n_rows
        with report_progress(progress, total or 0, "learning") as report:
            n_rows = 0
            for rows in self.rows(self.model.n_rounds):
                yield from self.learn(rows)
                n_rows += len(rows.table)
                report(n_rows)
        if self.has_numbered_features:
            self.keep_names()
        if self.reader.left_out.keys() - self._warned_of:  # later rows may have such columns
            self.warn_of_left_out()
        if self.one_pass:
            self.warn_of_missing()

    def learn(self, rows: LabelledTable) -> Iterator[tuple[LabelledTable, PredictionBatch]]:
        """Learn the rows that have a label and predict the others, in order."""
        for run in (rows,) if rows.has_label.all() else rows.split():
            if run.has_label.all():
                encoded = self.model.label_encoder.encode(run.labels, run.weights)
                yield run, self.model._learn_table(run.table, *encoded)
                continue
            yield run, self._as_batch(run, self.model.predict_next(run.table), None)

    def predict(self, rows: LabelledTable, costs: Costs | None = None) -> PredictionBatch:
        """Predict rows as the model would once it is saved; nothing is learned."""
        pipeline, encoder = self.model._check_learned()
        self.unlearned.count(rows.table)
        return self._as_batch(rows, pipeline.predict(encoder.encode_known(rows.table)), costs)

    def _as_batch(self, rows: LabelledTable, P: Array, costs: Costs | None) -> PredictionBatch:
        labels, has_label = self.model.label_encoder, rows.has_label
        unseen = np.full(len(P), self.model.unseen_probability)
        P = P * (1.0 - unseen)[:, None]
        numbers, p_label = np.full(len(P), -1), unseen.copy()
        numbers[has_label] = labels.find_known(rows.labels)
        p_label[numbers >= 0] = P[numbers >= 0, numbers[numbers >= 0]]
        p_label[~has_label] = math.nan
        return PredictionBatch(P, unseen, numbers, p_label, rows.weights, labels.decide(P, costs))

    def keep_names(self) -> None:
        """Remember what features are called that the source has by number."""
        encoder = self.model.encoder
        if encoder is not None:
            indices = [int(index) for source, index in encoder.keys if source == FEATURES and index]
            recent = self.model.recent.rows()[0].features
            if encoder.sparse and isinstance(recent, SparseRows):
                indices = np.unique(recent.compact().indices).tolist()
            names = self.reader.feature_names(indices)
            encoder.feature_names = dict(zip(map(str, indices), names, strict=True))


def make_encoder(
    model: "TableClassifier", table: Table, n_new: int, *, is_row: bool = False
) -> TableEncoder:
    """Return an encoder for rows that came as a table, or one as a mapping, with new classes."""
    table, features = MissingValues(model.missing).mask(table), table.features
    asked, n_columns = model.asked_roles, 0
    roles = known_roles.of_first_values(table) if is_row else known_roles.of_rows(table, asked)
    roles |= asked
    sparse = WORDS in roles.values()
    if features is not None and not sparse:
        n_columns = features.shape[1]
        size = n_columns + model.intercept, max(2, n_new + len(model.label_encoder))
        may_be_wide = isinstance(features, SparseRows) and model.learner_name == "auto"
        sparse = may_be_wide and select_backend(*size, device_named(model.device)) != PAIRS
        if not sparse:
            check_size(model.learner_name, *size)
    encoder = TableEncoder(
        roles, model.crosses, sparse=sparse and features is not None, missing=model.missing
    )
    if not sparse:  # every column of a matrix has its place
        encoder.admit([(FEATURES, str(j)) for j in range(n_columns)])
    return encoder


def declare_table(model: "Model", table: Table, n_classes: int) -> None:
    """Let a table of rows like those to come decide roles, and give its categories places."""
    n_new = max(0, n_classes - len(model.label_encoder))
    model.encoder = encoder = make_encoder(model, table, n_new)
    if not encoder.sparse and table.features is None:
        table = MissingValues(model.missing).mask(table)
        for rows in slice_rows(table):
            batch = encoder.encode(table.take(rows))
            encoder.admit(batch.keys, batch.roles)


class UnlearnedValues:
    """Counts, by column, the rows whose category a model never learned: it counts as missing."""

    def __init__(self, model: "TableClassifier") -> None:
        self._model, self._n_rows = model, Counter[str]()
        self._values: dict[str, dict[str, None]] = {}  # the first ones

    def count(self, table: Table) -> None:
        encoder = self._model.encoder
        encoder = encoder.dense if encoder is not None and encoder.sparse else encoder
        if encoder is None:  # words and wide rows alone have no categories
            return
        table = encoder.gaps.mask(table)
        for name, role in encoder.roles.items():
            if role == CATEGORY and name in table.columns:
                texts = as_text_column(table.columns[name])
                counts = np.bincount(texts.codes + 1, minlength=len(texts.values) + 1)[1:]
                values = np.array(texts.values, object)[counts > 0]
                is_new = ~encoder.has_places(name, values.tolist())
                if is_new.any():
                    self._n_rows[name] += int(counts[counts > 0][is_new].sum())
                    new = values[is_new][:_MAX_VALUES_SHOWN].tolist()
                    self._values.setdefault(name, {}).update(dict.fromkeys(new))

    def warn(self) -> None:
        sentences = [
            f"{count_of(n_rows, 'row')} {'has' if n_rows == 1 else 'have'} a value of {name!r} "
            f"that was never learned ({join_names([*self._values[name]][:_MAX_VALUES_SHOWN])})"
            for name, n_rows in self._n_rows.most_common()
        ]
        if sentences:
            warn_of_data(f"{'; '.join(sentences)}: such values count as missing")
