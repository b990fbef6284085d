"""States of models in the service: a pure fold of events, the same for every replay."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from folklearn import serialization
from folklearn.errors import FolklearnError
from folklearn.learners import catalogue
from folklearn.model import roles
from folklearn.model.buffers import PendingPrediction
from folklearn.model.encoder import MOST_OWN, SHARED
from folklearn.model.model import Model
from folklearn.model.terms import DATE_PARTS
from folklearn.readers.table import table_from_records
from folklearn.serialization import Record
from folklearn.service.events import (
    Answer,
    CreateEvent,
    DerivedAnswer,
    ExpiryEvent,
    JournalEvent,
    Label,
    LabelEvent,
    LabelsEvent,
    RefusalEvent,
    RefusedError,
    RefusedItem,
    Row,
)
from folklearn.service.journal import Entry
from folklearn.service.named_agent import FindEntry, NamedAgent

Item = tuple[Row, Label]

_MAX_CATEGORY_FEATURES = MOST_OWN + SHARED  # of one column
_BYTES_PER_WEIGHT = 64  # of a wide learner, which has eight experts at first
_MAX_MATRIX_NUMBERS = 8_000_000  # above it rows are learned one by one


class ModelSize(NamedTuple):
    """Sizes of a model that limits bound; `learner` is approximate, in bytes."""

    classes: int
    columns: int
    features: int
    places: int
    learner: int

    @classmethod
    def of(cls, model: Model) -> "ModelSize":
        """Return the size of a model."""
        columns = model.encoder
        n_columns, n_features = len(model.asked_roles), 0
        if columns is not None:
            n_columns, n_features = len(columns.roles), len(columns)
        n_places = 0 if model.pipeline is None else model.pipeline.n_places
        if columns is not None and columns.sparse:
            n_features = 0
        return cls._complete(model, 0, len(model.label_encoder), n_columns, n_features, n_places)

    @classmethod
    def _complete(
        cls,
        model: Model,
        n_letters: int,
        n_classes: int,
        n_columns: int,
        n_features: int,
        n_places: int,
    ) -> "ModelSize":
        """Add the bytes of weights, of names and of n_letters more letters."""
        n_weights = (n_classes + 1) * max(n_places, n_features)
        n_bytes = _BYTES_PER_WEIGHT * n_weights if model.learner_name == "auto" else 0
        if n_features:
            size = n_features + 1, max(2, n_classes)
            n_bytes = max(n_bytes, catalogue.n_bytes(model.learner_name, *size))
            learner = None if model.pipeline is None else model.pipeline.learner
            if learner is not None:  # one that began small may stay of a dearer kind
                n_bytes = max(n_bytes, learner.expected_bytes(*size))
        n_letters += 0 if model.encoder is None else model.encoder.n_letters
        return cls(n_classes, n_columns, n_features, n_places, n_bytes + n_letters)

    @classmethod
    def bound(cls, model: Model, items: Sequence[Item]) -> "ModelSize":
        """Return a size that the model does not exceed with these items: fast, and not tight."""
        columns, labels = model.encoder, model.label_encoder.numbers
        known = model.asked_roles if columns is None else columns.roles
        new_columns: dict[str, Any] = {}
        new_classes: set[Any] = set()
        n_texts: Counter[str] = Counter()  # by column
        n_cells = n_letters = 0
        for row, label in items:
            n_cells += len(row)
            if not row.keys() <= known.keys():
                new_columns |= {name: value for name, value in row.items() if name not in known}
            new_classes |= set(label if isinstance(label, dict) else (label,)) - labels.keys()
            texts = [(name, value) for name, value in row.items() if type(value) is str]
            n_texts.update(name for name, _ in texts)
            n_letters += sum(len(value) for _, value in texts)
        now = cls.of(model)
        # Columns that are known, and have no value so far.
        n_unplaced = len(known) if columns is None else columns.n_unplaced
        is_dense = columns is not None and not columns.sparse
        if is_dense and not (new_columns or new_classes or n_texts or n_unplaced):
            return now  # nearly all rows of numbers
        n_new = sum(_count_features(value) for value in new_columns.values())
        n_new += len(DATE_PARTS) * n_unplaced
        n_crossed = len(model.crosses)
        n_features = now.features + n_new
        n_features += sum(min(n, _MAX_CATEGORY_FEATURES) for n in n_texts.values())
        n_features += n_crossed * min(len(items), _MAX_CATEGORY_FEATURES)
        # A word has two letters and one between it and the next, which is a pair of words too.
        n_places = now.places + 1 + n_cells + n_new + n_crossed * len(items) + 2 * n_letters // 3
        n_places += len(n_texts)
        if columns is not None:
            n_places += columns.n_numbers  # a number that was always the same has no weight yet
            n_features, n_places = (0, n_places) if columns.sparse else (n_features, 0)
        return cls._complete(
            model,
            n_letters + sum(map(len, new_columns)),
            now.classes + len(new_classes),
            now.columns + len(new_columns),
            n_features,
            n_places,
        )

    def exactly(self, model: Model, items: Sequence[Item]) -> "ModelSize":
        """Return this bound with features or places counted, which takes as long as encoding."""
        columns, core = model.encoder, model.pipeline
        if columns is None or core is None or not (columns.sparse or len(items) == 1):
            return self
        if self.columns * len(items) > _MAX_MATRIX_NUMBERS:
            return self
        rows = [row for row, _ in items]
        encoded = columns.encode(table_from_records(rows, range(1, len(rows) + 1)))
        n_features = 0 if columns.sparse else len(columns) + len(encoded.keys)
        n_places = core.n_places_with(encoded.X) if columns.sparse else 0
        n_letters = sum(len(part) for _, part in encoded.keys) + sum(map(len, encoded.roles))
        return self._complete(model, n_letters, self.classes, self.columns, n_features, n_places)

    def exceeds(self, limits: "ModelSize", now: "ModelSize") -> str | None:
        """Return the field that would grow from now beyond its limit, None if none would."""
        for what, wanted, limit, present in zip(self._fields, self, limits, now, strict=True):
            if wanted > max(limit, present):
                return what
        return None

    def check(self, limits: "ModelSize", now: "ModelSize") -> None:
        """Raise if growth from now to this size is beyond the limits."""
        what = self.exceeds(limits, now)
        if what is not None:
            wanted, limit, present = (getattr(size, what) for size in (self, limits, now))
            unit = {"learner": "bytes of weights", "places": "hashed places"}.get(what, what)
            raise RefusedError(
                422,
                f"the model may have {limit:,} {unit}; with this it could come to {wanted:,}, and "
                f"it has {present:,} now",
            )


def _count_features(value: Any) -> int:
    is_date = type(value) is str and roles.of_value(value) in roles.DATES
    return len(DATE_PARTS) if is_date else 1


class ClassifierState:
    """A `folklearn.Model` that learns from events."""

    def __init__(self, model: Model, created: CreateEvent) -> None:
        self.model, self.created = model, created
        self._limits = ModelSize(
            created.max_classes,
            created.max_columns,
            created.max_features,
            created.max_places,
            created.max_learner,
        )

    @classmethod
    def begin(cls, created: CreateEvent) -> Self:
        """Return the state before the first label."""
        config = created.config
        if len(config.classes) > created.max_classes:
            raise RefusedError(422, f"a model may have {created.max_classes} classes")
        settings: dict[str, Any] = dict(config.settings)
        model = Model(
            config.learner,
            roles=config.roles,
            crosses=config.crosses,
            classes=config.classes,
            class_weight=config.class_weight,
            windows=config.windows,
            **settings,
        )
        model.monitor()
        return cls(model, created)

    def apply(self, entry: Entry, find: FindEntry) -> Answer:
        """Apply an event."""
        match entry.event:
            case LabelEvent() as label:
                if label.row is None:
                    self._learn_pending(label, find)
                else:
                    self.check_growth([(label.row, label.label)])
                    self.model.learn_one(label.row, label.label, weight=label.weight)
                return DerivedAnswer(200, {"event": entry.seq, "learned": 1})
            case LabelsEvent() as labels:
                return labels_answer(entry.seq, labels, self._learn_together(labels, find))
            case RefusalEvent(status=status, detail=detail):
                raise RefusedError(status, detail)
            case ExpiryEvent() as expiry if late := self.labels_in(expiry):
                self._learn_together(LabelsEvent(late), find)
        return Answer(200, {"event": entry.seq})

    def labels_in(self, event: JournalEvent) -> list[LabelEvent]:
        """Return the labels that an event teaches."""
        match event:
            case LabelEvent() as label:
                return [label]
            case LabelsEvent(items=items):
                return items
            case ExpiryEvent(ids=ids) if self.created.config.default is not None:
                return [LabelEvent(self.created.config.default, id=id) for id in ids]
        return []

    def _learn_pending(self, label: LabelEvent, find: FindEntry) -> None:
        assert label.id is not None
        event = find(label.id).event
        self.check_growth([(event.row, label.label)])
        pending = PendingPrediction(event.row, np.array(event.p), event.unseen)
        self.model.tell(pending, label.label, weight=label.weight)

    def _learn_together(self, labels: LabelsEvent, find: FindEntry) -> list[RefusedItem]:
        """Learn all labels that can be; return the others with reasons."""
        items = labels.items
        try:
            if items and all(item.row is not None for item in items):
                self.check_growth([(item.row or {}, item.label) for item in items])
                weights = [item.weight for item in items]
                self.model.learn_many(
                    [item.row for item in items], [item.label for item in items], weight=weights
                )
                return []
        except FolklearnError:
            pass  # nothing was learned: one by one the refused ones are identified
        refused = []
        for index, item in zip(labels.indices or range(len(items)), items, strict=True):
            try:
                self.apply(Entry(0, 0, 0, item), find)
            except FolklearnError as error:
                refused.append(RefusedItem(index, 422, str(error)))
        return refused

    def check_growth(self, items: Sequence[Item]) -> int:
        """Raise if labels would make the model larger than it may become; return bytes it may add.

        A function of the model and of its first event alone, so that a replay refuses the same.
        """
        encoder, labels = self.model.encoder, self.model.label_encoder.numbers
        if len(items) == 1 and encoder is not None and not encoder.sparse:
            row, label = items[0]
            is_known = row.keys() <= encoder.roles.keys() and not encoder.n_unplaced
            is_known = is_known and not isinstance(label, dict) and label in labels
            if is_known and not any(type(value) is str for value in row.values()):
                return 0  # nearly all rows of numbers
        now, limits = ModelSize.of(self.model), self._limits
        size = ModelSize.bound(self.model, items)
        if size.exceeds(limits, now):
            size = size.exactly(self.model, items)
            size.check(limits, now)
        if len(items) > 1 and len(items) * size.features > _MAX_MATRIX_NUMBERS < limits.features:
            raise RefusedError(422, "these rows are too wide to be learned together")
        return size.learner - now.learner

    def count_bytes_added(self, items: Sequence[Item], *, exactly: bool) -> int:
        """Return the bytes of weights that labels may add."""
        size = ModelSize.bound(self.model, items)
        if exactly:
            size = size.exactly(self.model, items)
        return size.learner - ModelSize.of(self.model).learner

    @property
    def n_bytes_left(self) -> int:
        """Bytes of weights that labels may add in all."""
        return max(0, self._limits.learner - ModelSize.of(self.model).learner)

    def to_record(self) -> Record:
        """Return the model as a record."""
        return self.model.to_record()

    def copy_to_predict(self) -> Model:
        """Return a copy that only predicts."""
        return self.model.copy_to_predict()

    @property
    def n_bytes(self) -> int:
        """Approximate memory of the model and of its published copy."""
        encoder, pipeline = self.model.encoder, self.model.pipeline
        n_bytes = self.model.recent.n_bytes + (0 if encoder is None else 2 * encoder.n_bytes)
        if pipeline is not None:
            n_bytes += pipeline.n_bytes + pipeline.n_bytes_to_predict
        return n_bytes

    def numbers(self) -> dict[str, Any]:
        """Return how the model does."""
        model, n = self.model, self.model.n_rounds
        return {
            "kind": "classifier",
            "alarms": len(model.monitor().alarms),
            "rows": n,
            "classes": len(model.labels),
            "loss": model.metrics.average_loss if n else None,
            "error": model.metrics.n_errors / n if n else None,
        }


ModelState = ClassifierState | NamedAgent


def restore_state(created: CreateEvent, record: Record | None = None) -> ModelState:
    """Return the state that a model begins with, or a later one from its record."""
    config = created.config
    if config.actions:
        if record is not None:
            return NamedAgent.from_record(record)
        return NamedAgent(config.actions, config.context, default=config.default, seed=config.seed)
    if record is None and created.file is None:
        return ClassifierState.begin(created)
    if record is None:
        record = serialization.of_bytes(created.file or b"")
    model = serialization.revive(record)
    if not isinstance(model, Model):
        raise RefusedError(422, "the file holds no folklearn.Model: save one with Model.save")
    model.monitor()
    return ClassifierState(model, created)


def read_items(labels: Sequence[LabelEvent], find: FindEntry) -> list[Item]:
    """Return labels with their rows, those of predictions from the journal."""
    return [
        (find(label.id).event.row if label.id is not None else label.row or {}, label.label)
        for label in labels
    ]


def labels_answer(seq: int, labels: LabelsEvent, refused: Sequence[RefusedItem] = ()) -> Answer:
    """Return the answer to labels that were learned, but for those refused now."""
    body: dict[str, Any] = {"event": seq, "learned": len(labels.items) - len(refused)}
    if labels.already:
        body["already"] = labels.already
    if labels.refused or refused:
        body["refused"] = [
            {"item": item.index, "status": item.status, "detail": item.detail}
            for item in (*labels.refused, *refused)
        ]
    return Answer(200, body) if refused else DerivedAnswer(200, body)
