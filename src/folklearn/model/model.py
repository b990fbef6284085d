"""The front door: rows as people have them in, labels and probabilities out."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from folklearn import serialization, validation
from folklearn.arrays import TINY, Array
from folklearn.arrays import Labels as Numbers
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.monitor import Alarm, Monitor
from folklearn.evaluate.regression import Regression
from folklearn.evaluate.windows import Window
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.map_reduce import MapReduce
from folklearn.kernels.blas import OWN, device_named
from folklearn.learners import catalogue
from folklearn.learners.backends import PAIRS, select_backend
from folklearn.learners.base import Learner
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.metrics.accumulator import Metrics
from folklearn.metrics.records import PredictionBatch, Segment, loss_of_row
from folklearn.model import roles as known_roles
from folklearn.model.buffers import PendingPrediction, PendingPredictions, RowBuffer
from folklearn.model.dataset import Dataset, LabelledTable, UnlearnedValues, block_of
from folklearn.model.encoder import FEATURES, EncodedBatch, TableEncoder
from folklearn.model.explain import Explanation, explained
from folklearn.model.hindsight import EncodedRows
from folklearn.model.labels import (
    BALANCED,
    ClassWeight,
    LabelEncoder,
    apply_class_weight,
    balance_class_weight,
    check_class_weight,
    class_weight_from_json,
    class_weight_to_json,
)
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.roles import WORDS
from folklearn.model.run import Run, Score, known_numbers
from folklearn.readers.convert import format_cell
from folklearn.readers.table import Table, not_a_row_error, table_from_records
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRows, is_sparse
from folklearn.utils import counted, listed
from folklearn.validation import Rows

_AT_A_TIME = 8192  # rows
_UNCOUNTED = "a call was interrupted that had learned rows, and their loss was not counted"


class BatchResult(NamedTuple):
    """Rows that were predicted and, where they have a label, learned.

    P : (T, K) probabilities of the classes known by then, which share 1 - unseen.
    unseen : (T,) of a class that was never seen; 0 where all classes are declared.
    numbers : (T,) class numbers, -1 for a row without a label and for a soft label.
    losses : (T,) unweighted log losses, NaN for a row without a label.
    weights : (T,) of the rows.
    learned : the same with all that a `Metrics` counts, None for rows that were only predicted.
    X : the rows as the encoder gives them, None for rows that were only predicted.
    labels : (T,) class numbers, or soft labels (T, K), of these.
    """

    P: Array
    unseen: Array
    numbers: Numbers
    losses: Array
    weights: Array
    learned: PredictionBatch | None = None
    X: Any = None
    labels: Any = None


class Model(Serializable):
    r"""A model that learns rows as they come, and says what it is worth.

    It takes what people have: dictionaries, data frames, files. Nothing has to be declared:
    columns get roles (number, category, words, date, id) from their first values, classes are
    learned when they appear, values may be missing, labels may be of any type, or soft (a
    dictionary of probabilities). No learning rate has to be chosen.

    Two losses are kept. The *progressive* one, of predictions made just before each label came; and
    the *frozen* one, of rows ahead predicted by the model as it would be saved (`HoldoutWeights`).
    `predict_one` and `predict_proba_one` are for a row whose label comes soon; `predict` and
    `predict_proba` are for many rows that the model will not follow, and weigh what they mix by
    the frozen record. After `fit` all of them are the fit.

    Parameters
    ----------
    learner : name of a learner, see `folklearn.learners.catalogue`. The default needs no settings.
    roles : of columns whose role is not to be guessed, by name: "number", "category", "words",
        "date", "id", "weight", "target", "ignored".
    crosses : pairs of columns, such as ``[("country", "device")]``, whose products count too.
    classes : labels that are known in advance, in order. They are never "unseen".
    class_weight : weight of the rows of a class by label, 1 for others; or "balanced", which `fit`
        and `run` over a file or a frame can know.
    scale, intercept : standardise numbers on line; append a constant.
    B : norm of the weights of a class, per standard deviation, up to which `certificate` speaks of
        linear models; a learner that takes a B is made for the same. The default is 10 over the
        norm of a typical row: numbers have the root of their number. A larger class has a smaller
        lower bound.
    windows : keep lower bounds for recent windows too (`windows`), which takes longer.
    device : of the learners "auto" and "leader": where they make their sums, "cpu", the default, or
        a device of PyTorch such as "cuda" (extra ``gpu``). It is not saved: a model that is loaded
        is on the CPU, see `to`.
    settings : parameters of the learner, such as ``lam=0.1``.

    Attributes
    ----------
    labels : the classes known so far, in the order of the columns of `predict_proba`.
    roles : the role of every column so far.
    device : where the sums of the learner are made.
    n_rounds : number of rows learned.
    loss, n_mistakes, total_weight : progressive totals since the first row of its life.
    loss_of_new : the part of the loss that was paid for classes being unknown.
    metrics : totals over the stream, its segments, classes and columns (`Metrics`); saved with it.

    Examples
    --------
    >>> import folklearn
    >>> model = folklearn.Model()
    >>> rows = [(31, "PE", "churn"), (58, "DE", "stay"), (25, "PE", "churn")] * 9
    >>> for age, country, label in rows:
    ...     model.learn_one({"age": age, "country": country}, label)
    >>> model.predict_one({"age": 28, "country": "PE"})
    'churn'
    >>> p, number = model.ask({"age": 60, "country": "DE"})  # the label comes later
    >>> model.tell(number, "stay")
    """

    def __init__(
        self,
        learner: str = "auto",
        *,
        roles: Mapping[str, str] | None = None,
        crosses: Iterable[Sequence[str]] = (),
        classes: Iterable[Any] = (),
        class_weight: Mapping[Any, float] | str | None = None,
        scale: bool = True,
        intercept: bool = True,
        B: float | None = None,
        windows: bool = False,
        device: str | None = None,
        **settings: Any,
    ) -> None:
        self.learner_name = learner
        self.device = OWN if device is None else device
        # What was asked for; what a source decides is forgotten with what was learned from it.
        self._asked = dict(settings), class_weight, list(classes)
        self.scale, self.intercept = bool(scale), bool(intercept)
        self.B = None if B is None else validation.positive("B", B)
        self.has_floors = bool(windows)
        self.asked_roles = dict(roles or {})
        self.crosses = [tuple(pair) for pair in crosses]
        for name, role in self.asked_roles.items():
            known_roles.check_known(role, name)
        check_class_weight(class_weight)
        self._monitor: Monitor | None = None
        self.forget()
        # One of the least size hears bad settings.
        first = catalogue.make(learner, 1, max(2, len(self._labels)), settings, self.device)
        self._max_weight = first.max_weight

    def forget(self) -> None:
        """Forget what was learned; roles that were asked for, classes and settings stay."""
        settings, class_weight, classes = self._asked
        self.settings: dict[str, Any] = dict(settings)
        self.class_weight: ClassWeight = class_weight
        self.encoder: TableEncoder | None = None
        self.pipeline: OnlinePipeline | None = None
        self._labels, self.is_open = LabelEncoder(), True
        self.declare(classes)
        self._hindsight: Regression | None = None
        self.metrics = Metrics()
        self._recent, self._waiting = RowBuffer(), PendingPredictions()
        if self._monitor is not None:
            self._monitor.forget()

    def to(self, device: str) -> Self:
        """Move the sums of the learner to a device, or back to the "cpu", and return the model."""
        catalogue.make(self.learner_name, 1, 2, {}, device)  # hears what is wrong
        self.device = device
        if self.pipeline is not None:
            self.pipeline.to(device)
        return self

    def declare(self, classes: Iterable[Any]) -> None:
        """Make classes known that no row has brought; if all are, none is "unseen"."""
        _, new = self._labels.read_many(classes)
        if not new:
            return
        if self.pipeline is not None:
            self.pipeline.grow(n_classes=len(self._labels) + len(new))
        elif not self._labels:
            self.is_open = False
        self._labels.admit(new)

    def expect(self, labels: Any, counts: Sequence[int], *, heaviest: float = 1.0) -> None:
        """Prepare for rows to come: so many of each class, of weights up to the heaviest.

        Classes are declared unless the model takes them as they come; "balanced" weights, and what
        the learner is made for, are decided.
        """
        if self.pipeline is None or not self.is_open:
            self.declare(labels)
        if self.class_weight == BALANCED:
            numbers, new = self._labels.read_many(labels)
            known = [*self._labels.kept, *new]
            own = zip([known[number] for number in numbers], counts, strict=True)
            self.class_weight = balance_class_weight(dict(own))
        if self.pipeline is None and "max_weight" in catalogue.settings_of(self.learner_name):
            given = self.class_weight if isinstance(self.class_weight, Mapping) else {}
            most = max(1.0, heaviest) * max([1.0, *given.values()])
            self.settings.setdefault("max_weight", most)

    # What it is.

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes known so far."""
        return tuple(self._labels.kept)

    @property
    def roles(self) -> dict[str, str]:
        """The role of every column so far."""
        return dict(self.asked_roles if self.encoder is None else self.encoder.roles)

    @property
    def n_rounds(self) -> int:
        """The number of rows learned."""
        return 0 if self.pipeline is None else self.pipeline.n_rounds

    @property
    def learner(self) -> Learner | None:
        """The learner inside, None before the second class."""
        return None if self.pipeline is None else self.pipeline.learner

    @property
    def max_weight(self) -> float:
        """The largest weight of a row that it accepts."""
        if self.pipeline is not None:
            return self.pipeline.max_weight
        return float(self.settings.get("max_weight", self._max_weight))

    @property
    def unseen_probability(self) -> float:
        """The probability that the next row is of a class that was never seen."""
        if not self.is_open:
            return 0.0
        return 1.0 if self.pipeline is None else self.pipeline.unseen_probability

    @property
    def loss(self) -> float:
        """The progressive loss of all rows."""
        return self.metrics.loss

    @property
    def loss_of_new(self) -> float:
        """The part of the loss that was paid for classes being unknown."""
        return self.metrics.loss_of_new

    @property
    def total_weight(self) -> float:
        """The weight of all rows."""
        return self.metrics.weight

    @property
    def n_mistakes(self) -> int:
        """The rows whose most likely class was wrong."""
        return self.metrics.n_errors

    @property
    def average_loss(self) -> float:
        """The progressive loss a row, NaN before the first."""
        return self.metrics.average_loss

    @property
    def holdout_loss(self) -> float:
        """The frozen loss a row, of late; NaN before it was measured."""
        return math.nan if self.pipeline is None else self.pipeline.holdout.loss

    # One row at a time.

    def learn_one(self, x: Mapping[Any, Any], y: Any, *, weight: float = 1.0) -> None:
        """Learn one row, a mapping of column names to values, and its label."""
        self._watch(self._learn_row(x, y, weight))

    def _learn_row(
        self, x: Mapping[Any, Any], y: Any, weight: float, asked: PendingPrediction | None = None
    ) -> float:
        """Learn one row, and return its loss; `asked` is what was predicted when it was asked."""
        number, new = self._labels.read(y)
        weight = validation.weight(weight)
        if self.class_weight is not None or weight != 1.0:
            numbers, weights = np.asarray([number]), np.array([weight])
            numbers, weights = self._weighed(numbers, new, weights)
            number, weight = number if numbers.ndim == 1 else numbers[0], float(weights[0])
        begun = pipeline, columns = self.pipeline, self.encoder
        row = None if columns is None or pipeline is None else columns.plain_row(x)
        try:
            if pipeline is not None and row is not None and type(number) is int:  # nearly all rows
                loss = self._learn_numbers(pipeline, row, number, weight, new, asked)
            else:
                encoded = self._meet_row(x)
                pipeline = self._core_for(encoded)
                if pipeline.sparse or type(number) is not int:
                    labels: Any = [number] if type(number) is int else np.asarray(number)[None]
                    step = self._run(encoded, labels, np.array([weight]), new, asked)
                    loss = float(step.losses[0])
                else:
                    row = encoded.X[0]
                    loss = self._learn_numbers(pipeline, row, number, weight, new, asked, encoded)
        except InvalidInputError:
            columns = self.encoder
            self.pipeline, self.encoder = begun  # a first row that is refused decides nothing
            _raise_with_column_name(columns, x)
            raise
        self._recent.add_row(dict(x), _hard(number))
        return loss

    def _learn_numbers(
        self,
        pipeline: OnlinePipeline,
        row: Array,
        number: int,
        weight: float,
        new: Sequence[Any],
        asked: PendingPrediction | None,
        encoded: EncodedBatch | None = None,
    ) -> float:
        """Learn one row of a dense model, count its loss, and return it."""
        unseen = pipeline.unseen_probability if new or self.is_open else 0.0
        columns = self.encoder
        assert columns is not None
        if encoded is not None:
            pipeline.late_numbers = columns.were_missing(encoded)
            pipeline.late_numeric = columns.are_numbers(encoded)
        p = pipeline.learn_row(row, number, weight)
        if new or encoded is not None:
            self._admit(encoded, new)
        if asked is not None:
            p, unseen = asked.p, asked.unseen
        self.metrics.add_one(p, number, unseen, weight, pipeline.holdout.loss, row, columns.absent)
        if self.has_floors:
            self.metrics.note_lower_bounds(self._lower_bound_of_last)
        return loss_of_row(p, number, unseen)

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """Return the probabilities of the classes seen, for a row whose label comes soon.

        They sum to 1; that it is none of them has the probability `unseen_probability`. Before the
        first class there are none.
        """
        pipeline, columns = self.pipeline, self.encoder
        if pipeline is None or columns is None:
            return dict.fromkeys(self._labels.kept, 1.0 / max(1, len(self._labels)))
        row = columns.plain_row(x)
        try:
            if row is not None:
                p = pipeline.predict_row(row)
            else:
                own = {name: x[name] for name in x if str(name) in columns.roles}
                X = columns.known(columns.row(own).X)
                p = pipeline.predict_next(X)[0] if pipeline.sparse else pipeline.predict_row(X[0])
        except InvalidInputError:
            _raise_with_column_name(columns, x)
            raise
        return dict(zip(self._labels.kept, p.tolist()))  # noqa: B905 - a fifth of the time here

    def predict_next(self, rows: Any) -> Array:
        """Return what `predict_proba_one` gives of every row (T, K), one not knowing the others."""
        block, K = block_of(rows), len(self._labels)
        if self.pipeline is None or self.encoder is None:
            return np.full((len(block), K), 1.0 / max(1, K))
        return self.pipeline.predict_next(self.encoder.known(self.encoder.encode(block).X))

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """Return the most likely label of a row whose label comes soon, None before any class."""
        p = self.predict_proba_one(x)
        return max(p, key=p.__getitem__) if p else None

    def ask(self, x: Mapping[Any, Any]) -> tuple[dict[Any, float], int]:
        """Predict a row whose label will be told later; return probabilities and its number.

        What waits for its label is part of the state, and saved with it.
        """
        p = self.predict_proba_one(x)
        given = np.array(list(p.values()))
        return p, self._waiting.add(PendingPrediction(dict(x), given, self.unseen_probability))

    def tell(self, number: int, y: Any, *, weight: float = 1.0) -> None:
        """Learn the row that was asked for under a number, now that its label is known.

        The loss that counts is that of what was predicted then.
        """
        loss = self._learn_asked(self._waiting.find(number), y, weight)
        self._waiting.drop(number)
        self._watch(loss)

    def learn_asked(self, asked: PendingPrediction, y: Any, *, weight: float = 1.0) -> None:
        """Learn a row that waited elsewhere, with what was predicted when it was asked for."""
        self._watch(self._learn_asked(asked, y, weight))

    def _learn_asked(self, asked: PendingPrediction, y: Any, weight: float) -> float:
        label, _ = self._labels.read(y)
        if not asked.unseen and (type(label) is not int or label >= len(asked.p)):
            # Nothing was given to a class that nobody had declared; it costs what `learn_one` says.
            unseen = 0.5 if self.pipeline is None else self.pipeline.unseen_probability
            asked = asked._replace(unseen=unseen)
        return self._learn_row(asked.x, y, weight, asked)

    def _watch(self, loss: float) -> None:
        """Let the monitor see the loss of a row, once it is learned: its alert may raise."""
        if self._monitor is not None:
            self._monitor.observe(loss)

    @property
    def waiting(self) -> tuple[int, ...]:
        """The numbers of the rows that wait for their label."""
        return self._waiting.numbers

    # Many rows.

    def learn_many(self, rows: Any, y: Any, *, weight: Any = None) -> BatchResult:
        """Predict, then learn, rows (a frame, dictionaries, a matrix) with labels y, one by one.

        y holds a label for every row, some of them may be soft; or it is a matrix (T, K) of
        probabilities of `labels`. `weight` is one number for all rows, or one for each.
        """
        block = block_of(rows)
        numbers, new = self._read_labels(y, len(block))
        if weight is not None and np.ndim(weight) == 0:
            weight = np.full(len(block), validation.weight(weight))
        return self._learn_block(block, numbers, new, validation.weights(weight, len(block)))

    def _read_labels(self, y: Any, n_rows: int) -> tuple[Any, Sequence[Any]]:
        """Return class numbers (T,), or soft labels (T, K), and the labels that are new."""
        if isinstance(y, np.ndarray) and y.ndim == 2:
            if y.shape != (n_rows, len(self._labels)):
                raise InvalidInputError(
                    f"soft labels have shape {y.shape}; expected ({n_rows}, {len(self._labels)}), "
                    "a column for every known class: `declare` further ones first"
                )
            return y, ()
        numbers, new = self._labels.read_many(y.tolist() if isinstance(y, np.ndarray) else y)
        if len(numbers) != n_rows:
            raise InvalidInputError(f"there are {len(numbers)} labels for {counted(n_rows, 'row')}")
        soft = len(np.shape(numbers)) == 2
        return np.asarray(numbers, None if soft else np.int64), new

    def _learn_block(
        self, block: Table, numbers: Any, new: Sequence[Any], weights: Array
    ) -> BatchResult:
        """Predict, then learn, the rows of a block."""
        numbers, weights = self._weighed(numbers, new, weights)
        begun = self.encoder, self.pipeline
        try:
            if self.encoder is None:
                n_classes = len(self._labels) + len(new)
                self._begin_columns(known_roles.of_rows(block), block.features, n_classes)
            assert self.encoder is not None
            encoded = self.encoder.encode(block)
            if self.pipeline is None:
                self._core_for(encoded)
            step = self._run(encoded, numbers, weights, new)
        except BaseException:
            if begun[1] is None and (self.pipeline is None or not self.pipeline.n_rounds):
                self.encoder, self.pipeline = begun
            raise
        hard = step.numbers if np.ndim(numbers) == 1 else np.argmax(numbers, axis=1)
        self._recent.add(block, hard.tolist())
        if self._monitor is not None:
            self._monitor.observe_many(step.losses)
        return step

    def _run(
        self,
        encoded: EncodedBatch,
        numbers: Any,
        weights: Array,
        new: Sequence[Any],
        asked: PendingPrediction | None = None,
    ) -> BatchResult:
        """Predict, then learn, encoded rows."""
        pipeline, was_open = self.pipeline, self.is_open
        assert pipeline is not None
        n_before, n_rounds = pipeline.n_classes, pipeline.n_rounds
        assert self.encoder is not None
        pipeline.late_numbers = self.encoder.were_missing(encoded)
        pipeline.late_numeric = self.encoder.are_numbers(encoded)
        try:
            P, u = pipeline.run(encoded.X, numbers, weight=weights)
        except BaseException:
            if pipeline.n_rounds > n_rounds:  # interrupted: what has grown must have its names
                self._admit(encoded, new[: pipeline.n_classes - len(self._labels)])
            raise
        self._admit(encoded, new)
        numbers = np.asarray(numbers)
        last = numbers
        if numbers.ndim == 2:
            last = numbers.shape[1] - 1 - np.argmax(numbers[:, ::-1] > 0.0, axis=1)
        known = np.maximum.accumulate(np.concatenate([[n_before], last + 1]))[:-1]
        is_new = last >= known
        if not was_open:  # until a class comes that was not declared
            u[: int(is_new.argmax()) if is_new.any() else len(u)] = 0.0
        if asked is not None:
            P = np.pad(asked.p, (0, P.shape[1] - len(asked.p)))[None]
            u, known = np.array([asked.unseen]), np.array([len(asked.p)])
        absent, values = self.encoder.absent, encoded.X
        if pipeline.sparse:
            values = encoded.X.values_by_place(len(absent))
        learned = PredictionBatch.of(
            P, u, numbers, known, weights, pipeline.holdout_losses, values, absent
        )
        self.metrics.add(learned)
        if self.has_floors:
            self.metrics.note_lower_bounds(self._lower_bound_of_last, len(weights))
        hard = np.full(len(u), -1) if numbers.ndim == 2 else numbers
        return BatchResult(learned.P, u, hard, learned.losses, weights, learned, encoded.X, numbers)

    def _predicted_only(self, block: Table, weights: Array) -> BatchResult:
        """Predict rows that have no label."""
        T = len(block)
        unseen = np.full(T, self.unseen_probability)
        nothing = np.full(T, math.nan)
        P = self.predict_next(block) * (1.0 - unseen)[:, None]
        return BatchResult(P, unseen, np.full(T, -1), nothing, weights)

    def _predicted_frozen(self, rows: LabelledTable) -> BatchResult:
        """Predict rows as the model would once it is saved, and say what that costs."""
        there, unseen = rows.has_label, np.full(len(rows.block), self.unseen_probability)
        P = self._frozen(rows.block) * (1.0 - unseen)[:, None]
        numbers = np.full(len(there), -1)
        numbers[there] = known_numbers(self, rows.labels)
        given = np.where(numbers >= 0, P[np.arange(len(P)), numbers], unseen)
        losses = np.where(there, -np.log(np.maximum(given, TINY)), math.nan)
        return BatchResult(P, unseen, numbers, losses, rows.weights)

    # What happens when rows and labels come.

    def begin(self, block: Table, *, n_classes: int = 0) -> None:
        """Prepare for rows like these: the roles of columns, and places for all categories.

        Without it, what is learned first decides the roles, and categories have places as they
        come.
        """
        columns = self._begin_columns(known_roles.of_rows(block), block.features, n_classes)
        if not columns.sparse and block.features is None:
            for start in range(0, len(block), _AT_A_TIME):
                columns.admit(columns.encode(block.take(slice(start, start + _AT_A_TIME))))

    def _begin_columns(
        self, roles: Mapping[str, str], features: Any = None, n_classes: int = 0
    ) -> TableEncoder:
        """Decide whether rows stay sparse.

        They do if there are words, and if a sparse matrix is too large for sums over all pairs of
        so many classes.
        """
        roles = {**roles, **self.asked_roles}
        sparse = WORDS in roles.values()
        if features is not None and not sparse:
            size = features.shape[1] + self.intercept, max(2, n_classes, len(self._labels))
            may_be_wide = isinstance(features, SparseRows) and self.learner_name == "auto"
            sparse = may_be_wide and select_backend(*size, device_named(self.device)) != PAIRS
            if not sparse:
                catalogue.check_size(self.learner_name, *size)
        columns = self.open_columns(roles, sparse=sparse)
        if features is not None and not sparse:  # every column of a matrix has its place
            keys = [(FEATURES, str(j)) for j in range(features.shape[1])]
            columns.admit(EncodedBatch(None, keys))
        return columns

    def open_columns(self, roles: Mapping[str, str], *, sparse: bool) -> TableEncoder:
        """Begin with columns of these roles, which stay; their places come with the rows."""
        self.encoder = TableEncoder(roles, self.crosses, sparse=sparse)
        return self.encoder

    def _meet_row(self, x: Mapping[Any, Any]) -> EncodedBatch:
        if self.encoder is None:
            if not isinstance(x, Mapping):
                raise not_a_row_error(x)
            roles = {  # sorted, so that the order of a mapping is of no account
                str(name): known_roles.of_value(value)
                for name, value in sorted(x.items(), key=_name_of)
                if format_cell(value) is not None
            }
            self._begin_columns(roles)
        assert self.encoder is not None
        return self.encoder.row(x)

    def _core_for(self, encoded: EncodedBatch) -> OnlinePipeline:
        """Return the pipeline, made for these rows if they are the first."""
        if self.pipeline is None:
            columns = self.encoder
            assert columns is not None
            n_numbers = encoded.X.numbers.shape[1] if columns.sparse else 0
            n_places = max(1, len(columns.keys), encoded.n_first)
            self.pipeline = OnlinePipeline(
                self.learner_name,
                self.settings,
                n_features=n_places,
                n_numbers=n_numbers,
                n_classes=len(self._labels),
                scale=self.scale,
                intercept=self.intercept,
                sparse=columns.sparse,
                B=self.B,
                windows=self.has_floors,
                device=self.device,
            )
            known = EncodedBatch(None, [*columns.keys, *encoded.keys], encoded.roles)
            numeric = columns.are_numbers(known)[:n_places]
            self.pipeline.evidence.numeric = numeric + [True] * (n_places - len(numeric))
        return self.pipeline

    def _admit(self, encoded: EncodedBatch | None, new: Sequence[Any]) -> None:
        """Remember what was new in rows that have been learned."""
        if encoded is not None and (encoded.keys or encoded.roles):
            assert self.encoder is not None
            self.encoder.admit(encoded)
        if new:
            self._labels.admit(new)
            self.is_open = True

    def weights_of(self, y: Any, weight: Array) -> Array:
        """Return the weights of rows with the weights of their classes in them."""
        return self._weighed(*self._read_labels(y, len(weight)), weight)[1]

    def _weighed(self, numbers: Any, new: Sequence[Any], weights: Array) -> tuple[Any, Array]:
        """Return labels and weights with the weights of classes in them."""
        known = [*self._labels.kept, *new]
        return apply_class_weight(self.class_weight, known, numbers, weights)

    # Files and frames.

    def feed(self, source: Any, target: str | None = None, **options: Any) -> Dataset:
        """Return the rows of a file, a pipe or a frame, ready to be learned; see `Dataset`."""
        if not (target is None or isinstance(target, str)):
            raise InvalidInputError(
                f"target is the name of the column of labels, got {type(target).__name__}: put the "
                "labels into the rows, as in X.assign(label=y) with target='label'; learn_many(X, "
                "y) and FolkloreClassifier take labels apart"
            )
        return Dataset(self, source, target, **options)

    def run(
        self,
        source: Any,
        target: str | None = None,
        *,
        weight: str | None = None,
        one_pass: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        progress: bool = False,
        exact: bool | None = None,
        **options: Any,
    ) -> Run:
        """Predict, score, then learn the rows of a file, a frame or dictionaries, one by one.

        Parameters
        ----------
        source : a path ("-" is standard input), a data frame, or an iterable of dictionaries.
        target : the column of the labels; svmlight and VW text have none to name.
        weight : a column of weights.
        one_pass : do not read a file twice: classes and categories are learned as they come.
        shuffle : learn the rows in a random order, given by `seed`; they must fit in memory.
        progress : show a bar.
        exact : whether to fit a logistic regression to all rows afterwards (`Run.hindsight`), which
            keeps them in memory; None does so for at most 3,000 weights, if there is room.
        options : of the reader: format, delimiter, encoding, decimal. And on_bad, a function that
            takes every row that cannot be read, which is then left out.
        """
        feed = self.feed(
            source, target, weight=weight, one_pass=one_pass,
            shuffle=seed if shuffle else None, **options,
        )  # fmt: skip
        run = Run.of(self, feed, exact)
        for rows, step in feed.steps(progress=progress):
            run.add(rows, step)
        return run.finish()

    def fit(
        self,
        source: Any,
        target: str | None = None,
        *,
        weight: str | None = None,
        passes: int | None = None,
        seed: int = 0,
        progress: bool = False,
        n_jobs: int = 1,
        device: str | None = None,
        exact: bool | None = None,
        **options: Any,
    ) -> Self:
        """Learn a file or a frame as a batch: shuffled, then fitted until nothing changes.

        Whatever was learned before is forgotten. Learners other than "auto" learn every row once.
        `hindsight` is then what an ordinary regression would have, `exact` as for `run`.
        `passes` limits how often the rows are gone over, 1 learns each once. `n_jobs` threads share
        the passes of the fit, -1 for as many as there are cores, with the same model to the last
        bit; rows are learned by one. ``device`` is where its sums are made, by default that of the
        model.
        """
        MapReduce.from_options(n_jobs, device)  # check before anything is learned
        self.forget()
        feed = self.feed(source, target, weight=weight, shuffle=seed, **options)
        blocks, encoded = [], EncodedRows(exact)
        for rows, step in feed.steps(progress=progress):
            blocks.append(rows)
            encoded.add(self, step)
        if self.learner_name == "auto" and passes != 1:
            self.refit(blocks, most_passes=passes, seed=seed, n_jobs=n_jobs, device=device)
        self.note_hindsight(encoded)
        return self

    def refit(
        self,
        blocks: Sequence[Any],
        *,
        most_passes: int | None = None,
        seed: int = 0,
        n_jobs: int = 1,
        device: str | None = None,
    ) -> None:
        """Fit rows that were learned, and are at hand, all together; see `OnlinePipeline.refit`."""
        found = [
            (rows.block.take(rows.has_label), rows.labels, rows.weights[rows.has_label])
            for rows in blocks
            if rows.has_label.any()
        ]
        self.refit_blocks(found, most_passes=most_passes, seed=seed, n_jobs=n_jobs, device=device)

    def refit_blocks(
        self,
        blocks: Iterable[tuple[Table, Any, Array]],
        *,
        most_passes: int | None = None,
        seed: int = 0,
        n_jobs: int = 1,
        device: str | None = None,
    ) -> None:
        """Do so with blocks that all have labels, as `learn_many` takes them, and weights."""
        pipeline, columns = self.pipeline, self.encoder
        if pipeline is None or columns is None:
            return
        parts = []
        for block, y, weights in blocks:
            numbers, new = self._read_labels(y, len(block))
            parts.append((block, *self._weighed(numbers, new, weights)))
        limit = {} if most_passes is None else {"most_passes": most_passes}

        def raw() -> Iterable[tuple[Any, Any, Any]]:
            for block, numbers, weights in parts:
                yield columns.known(columns.encode(block).X), numbers, weights

        pipeline.refit(raw, seed=seed, n_jobs=n_jobs, device=device, **limit)

    def rows_to_fit(self, fed: LabelledTable) -> Rows:
        """Return rows with a label as `OnlinePipeline.refit_over` takes them."""
        assert self.pipeline is not None
        assert self.encoder is not None
        block, weights = fed.block.take(fed.has_label), fed.weights[fed.has_label]
        numbers, weights = self._weighed(*self._read_labels(fed.labels, len(block)), weights)
        X = self.encoder.known(self.encoder.encode(block).X)
        return self.pipeline.rows_to_fit(X, numbers, weights)

    def predict_proba(self, source: Any, **options: Any) -> Array:
        """Return the probabilities (T, K) of `labels` for rows that the model will not follow."""
        if self.pipeline is None or self.encoder is None:
            raise InvalidInputError(
                "the model has learned nothing yet: `learn_one`, `run` or `fit`"
            )
        if isinstance(source, Table | np.ndarray) or is_sparse(source):
            block = block_of(source)
            UnlearnedValues.of(self, block).warn()
            return self._frozen(block)
        feed = self.feed(source, **{"known_only": True, **options})
        parts = [self._frozen(block) for block in feed.unlabelled()]
        feed.warn_of_left_out()
        feed.unlearned.warn()
        return np.concatenate(parts) if parts else np.empty((0, len(self._labels)))

    def predicting(self) -> Self:
        """Return a copy that predicts as this model does now, and must not learn.

        It costs little and stays as it is while the model goes on in another thread.
        """
        own = self._shallow()
        own._labels = self._labels.copy()
        own.encoder = copy.deepcopy(self.encoder)
        own.pipeline = None if self.pipeline is None else self.pipeline.predicting()
        return own

    def _has_learned(self, name: str, categories: Sequence[str]) -> NDArray[np.bool_]:
        """Tell which categories of a column were learned."""
        assert self.encoder is not None
        if not self.encoder.sparse:
            return self.encoder.has_places(name, categories)
        if not isinstance(self.learner, SparseSgd):  # before the second class
            return np.ones(len(categories), bool)
        return self.learner.has_occurred(self.encoder.wide_places(name, categories))

    def _frozen(self, block: Table) -> Array:
        """Return what the model predicts as it would be saved."""
        assert self.pipeline is not None
        assert self.encoder is not None
        return self.pipeline.predict(self.encoder.known(self.encoder.encode(block).X))

    def predict(self, source: Any, **options: Any) -> list[Any]:
        """Return the most likely label of every row."""
        P = self.predict_proba(source, **options)
        return [self._labels.kept[k] for k in P.argmax(axis=1).tolist()]

    def score(self, source: Any, target: str | None = None, **options: Any) -> Score:
        """Return loss and error of the model as it stands on labelled rows; nothing is learned."""
        if self.pipeline is None:
            raise InvalidInputError(
                "the model has learned nothing yet: `learn_one`, `run` or `fit`"
            )
        feed = self.feed(source, target, one_pass=True, **{"known_only": True, **options})
        return Score.of(self, feed)

    # What it is worth, and why.

    def certificate(self, *, B: float | None = None) -> Certificate | None:
        """Return what no linear model of the columns could have beaten; None before two classes.

        It is about linear models of the columns, numbers standardised once, whose weights for each
        class have a norm of at most B per standard deviation: that of the model, or a smaller one.
        ``certificate().models`` names them. `Run.hindsight` is about those of any norm.
        """
        pipeline, columns = self.pipeline, self.encoder
        if pipeline is None or columns is None:
            return None
        words = columns.in_words if self.scale else "as they are"
        if not self._has_counted_all:
            nothing = Certificate(self.loss, math.inf, math.inf, self.n_rounds, valid=False)
            return replace(nothing, reason=_UNCOUNTED)
        return pipeline.certificate(self.loss, words, B=B)

    @property
    def _has_counted_all(self) -> bool:
        """Whether the loss of every row that was learned is known: an interrupt may lose some."""
        return self.pipeline is not None and self.pipeline.evidence.n_rows == self.metrics.n_rows

    @property
    def hindsight(self) -> Regression | None:
        """The logistic regression of all rows of `run` or `fit`; None if others were learned."""
        found = self._hindsight
        return found if found is not None and found.n_rows == self.n_rounds else None

    def note_hindsight(self, encoded: EncodedRows) -> Regression | None:
        """Fit a logistic regression to rows that were learned, and keep what it is worth."""
        self._hindsight = encoded.regression(self)
        return self._hindsight

    def windows(self) -> list[Window]:
        """Return losses and errors of the last 64, 128, 256, ... rows, and of all.

        With ``windows=True`` each has a floor: a lower bound on the total loss there of every
        linear model that `certificate` is about.
        """
        return self._bounded(self.metrics.windows())

    def _lower_bound_of_last(self, n_rows: int) -> float:
        """Return the lower bound in nats a row of the shortest window of at least `n_rows`."""
        last = self.metrics.last_window(n_rows)
        if last is None or not last.weight > 0.0:
            return math.nan
        return self._bounded([last])[0].lower_bound / last.weight

    def _bounded(self, segments: list[Segment]) -> list[Window]:
        """Return windows with their lower bounds, where these are kept."""
        pipeline, evidence, B = self.pipeline, {}, math.nan
        if pipeline is not None and self.has_floors and self._has_counted_all:
            evidence = pipeline.evidence.suffixes(pipeline.expansion_line)
            B = pipeline.evidence.norm()
        windows = []
        for one in segments:
            floor = evidence[one.start].lower_bound() if one.start in evidence else -math.inf
            windows.append(
                Window(one.start, one.stop, one.loss, one.n_errors, one.weight, floor, B)
            )
        return windows

    def monitor(self, alert: Callable[[Alarm], Any] | None = None, **settings: Any) -> Monitor:
        """Watch the loss of every row from now on, each counted once; return the `Monitor`.

        `alert` is called with every `Alarm`, once the rows that raised it are learned. The monitor
        is saved with the model, the alert is not: called again, as after `load`, this hands it
        another one, and begins anew only if `settings` (alpha, rise, cap) are others.
        """
        own = self._monitor
        if own is None or any(getattr(own, name, None) != settings[name] for name in settings):
            own = self._monitor = Monitor(start=self.n_rounds, **settings)
        if alert is not None:
            own.alert = alert
        return own

    def explain(self, *, importance: bool = True, seed: int = 0) -> Explanation:
        """Return the weights by column and class, and what recent rows lose without each column."""
        return explained(self, importance=importance, seed=seed)

    def report(self, path: Any = None, *, title: str = "Report on a model") -> str:
        """Return one HTML page about its life, which needs nothing else; write it to a path."""
        from folklearn.model.display import report_model, write_text

        return write_text(report_model(self, title), path)

    # How large it is.

    @property
    def n_bytes(self) -> int:
        """About how much memory the model takes, with its windows and the rows that it keeps."""
        pipeline = self.pipeline
        kept = 0 if pipeline is None else pipeline.evidence.n_bytes + pipeline.holdout.n_bytes
        return self._recent.n_bytes + kept + self.n_bytes_to_predict

    @property
    def n_bytes_to_predict(self) -> int:
        """About how much memory a copy takes that `predicting` returns."""
        own = 0 if self.encoder is None else self.encoder.n_bytes
        learner = self.learner
        return own + (0 if learner is None else learner.n_bytes)

    # How it is kept.

    def to_record(self) -> Record:
        """Return everything as a record."""
        config: dict[str, Any] = {
            "learner": self.learner_name,
            "settings": self.settings,
            "class_weight": class_weight_to_json(self.class_weight),
            "scale": self.scale,
            "intercept": self.intercept,
            "B": self.B,
            "windows": self.has_floors,
            "roles": list(self.asked_roles.items()),
            "crosses": self.crosses,
            "labels": self._labels.plain(),
            "is_open": self.is_open,
        }
        if self.hindsight is not None:
            config["hindsight"] = self.hindsight.numbers()
        record = Record("Model", config, {})
        serialization.put_inside(record, "recent", self._recent)
        serialization.put_inside(record, "metrics", self.metrics)
        serialization.put_inside(record, "waiting", self._waiting)
        if self._monitor is not None:
            serialization.put_inside(record, "monitor", self._monitor)
        if self.pipeline is not None:
            serialization.put_inside(record, "encoder", self.encoder)
            serialization.put_inside(record, "pipeline", self.pipeline)
        return record

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a model that goes on exactly where the recorded one stopped."""
        word = record.word
        with serialization.state_file_errors(record.kind):
            model = cls(
                word("learner"),
                roles=dict(word("roles")),
                crosses=word("crosses"),
                class_weight=class_weight_from_json(word("class_weight")),
                scale=word("scale"),
                intercept=word("intercept"),
                B=word("B"),
                windows=word("windows"),
                **word("settings"),
            )
            model._labels = LabelEncoder.of_plain(word("labels"))
        model.is_open = bool(word("is_open"))
        model._recent = record.inner("recent", RowBuffer)
        model.metrics = record.inner("metrics", Metrics)
        model._waiting = record.inner("waiting", PendingPredictions)
        if "monitor" in record.config:
            model._monitor = record.inner("monitor", Monitor)
        if "hindsight" in record.config:
            with serialization.state_file_errors(record.kind):
                model._hindsight = Regression.of_numbers(word("hindsight"))
        if "pipeline" in record.config:
            model.encoder = record.inner("encoder", TableEncoder)
            model.pipeline = record.inner("pipeline", OnlinePipeline)
        if model._recent.rows()[1].max(initial=-1) >= len(model._labels):
            raise StateFileError("a Model state has recent rows of classes that it does not have")
        return model

    def __repr__(self) -> str:
        learned = f"{counted(self.n_rounds, 'row')} learned"
        if not self.n_rounds:
            return f"Model({self.learner_name!r}), {learned}"
        classes = f"{len(self._labels)} classes: {listed(list(map(str, self.labels)))}"
        return f"Model({self.learner_name!r}), {learned}, {classes}, loss {self.average_loss:.4f}"

    def _repr_html_(self) -> str:
        from folklearn.model.display import model_card

        return model_card(self)


def _hard(number: Any) -> int:
    return number if type(number) is int else int(np.argmax(number))


def _raise_with_column_name(columns: TableEncoder | None, x: Mapping[Any, Any]) -> None:
    """Say which column of a row that was refused is to blame, if one is."""
    if columns is not None:
        columns.encode(table_from_records([x], [1]))


def _name_of(item: tuple[Any, Any]) -> str:
    return str(item[0])
