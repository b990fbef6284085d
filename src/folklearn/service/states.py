"""What events make of a model: a pure fold, the same for every replay."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self

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
from folklearn.service import events
from folklearn.service.events import Answer, RefusedError
from folklearn.service.journal import Entry
from folklearn.service.named_agent import NamedAgent

Find = Callable[[int], Entry]  # an event of the journal by number


Item = tuple[events.Row, events.Label]


_MOST_OF_COLUMN = MOST_OWN + SHARED  # features that categories of one column take


_BYTES_OF_WEIGHT = 64  # of a wide learner, which has eight experts at first


MOST_NUMBERS_AT_ONCE = 8_000_000  # of a matrix; what is larger is learned row by row


class Size(NamedTuple):
    """What limits count of a model; `learner` is in bytes, about."""

    classes: int
    columns: int
    features: int
    places: int
    learner: int

    @classmethod
    def of(cls, model: Model) -> "Size":
        """Return how large a model is."""
        columns = model.encoder
        n_columns, n_features = len(model.asked_roles), 0
        if columns is not None:
            n_columns, n_features = len(columns.roles), len(columns)
        n_places = 0 if model.pipeline is None else model.pipeline.n_places
        if columns is not None and columns.sparse:
            n_features = 0
        return cls._filled(model, 0, len(model._labels), n_columns, n_features, n_places)

    @classmethod
    def _filled(
        cls,
        model: Model,
        n_letters: int,
        n_classes: int,
        n_columns: int,
        n_features: int,
        n_places: int,
    ) -> "Size":
        """Return the size with the bytes that weights, names and so many more letters take."""
        n_weights = (n_classes + 1) * max(n_places, n_features)
        n_bytes = _BYTES_OF_WEIGHT * n_weights if model.learner_name == "auto" else 0
        if n_features:
            size = n_features + 1, max(2, n_classes)
            n_bytes = max(n_bytes, catalogue.n_bytes(model.learner_name, *size))
            if model.learner is not None:  # one that began small may stay of a dearer kind
                n_bytes = max(n_bytes, model.learner.expected_bytes(*size))
        n_letters += 0 if model.encoder is None else model.encoder.n_letters
        return cls(n_classes, n_columns, n_features, n_places, n_bytes + n_letters)

    @classmethod
    def bound(cls, model: Model, items: Sequence[Item]) -> "Size":
        """Return a size that the model does not exceed with more items: fast, and not tight."""
        columns, labels = model.encoder, model._labels.numbers
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
        n_new = sum(_n_features_of(value) for value in new_columns.values())
        n_new += len(DATE_PARTS) * n_unplaced
        n_crossed = len(model.crosses)
        n_features = now.features + n_new
        n_features += sum(min(n, _MOST_OF_COLUMN) for n in n_texts.values())
        n_features += n_crossed * min(len(items), _MOST_OF_COLUMN)
        # A word has two letters and one between it and the next, which is a pair of words too.
        n_places = now.places + 1 + n_cells + n_new + n_crossed * len(items) + 2 * n_letters // 3
        n_places += len(n_texts)
        if columns is not None:
            n_places += columns.n_numbers  # a number that was always the same has no weight yet
            n_features, n_places = (0, n_places) if columns.sparse else (n_features, 0)
        return cls._filled(
            model,
            n_letters + sum(map(len, new_columns)),
            now.classes + len(new_classes),
            now.columns + len(new_columns),
            n_features,
            n_places,
        )

    def exactly(self, model: Model, items: Sequence[Item]) -> "Size":
        """Return this bound with features or places counted, which takes as long as reading."""
        columns, core = model.encoder, model.pipeline
        if columns is None or core is None or not (columns.sparse or len(items) == 1):
            return self
        if self.columns * len(items) > MOST_NUMBERS_AT_ONCE:
            return self
        rows = [row for row, _ in items]
        encoded = columns.encode(table_from_records(rows, range(1, len(rows) + 1)))
        n_features = 0 if columns.sparse else len(columns) + len(encoded.keys)
        n_places = core.n_places_with(encoded.X) if columns.sparse else 0
        n_letters = sum(len(part) for _, part in encoded.keys) + sum(map(len, encoded.roles))
        return self._filled(model, n_letters, self.classes, self.columns, n_features, n_places)

    def exceeds(self, limits: "Size", now: "Size") -> str | None:
        """Return what would grow from now beyond its limit, None if nothing would."""
        for what, wanted, limit, present in zip(self._fields, self, limits, now, strict=True):
            if wanted > max(limit, present):
                return what
        return None

    def check(self, limits: "Size", now: "Size") -> None:
        """Refuse to grow from now to this, if that is beyond the limits."""
        what = self.exceeds(limits, now)
        if what is not None:
            wanted, limit, present = (getattr(size, what) for size in (self, limits, now))
            unit = {"learner": "bytes of weights", "places": "hashed places"}.get(what, what)
            raise RefusedError(
                422,
                f"the model may have {limit:,} {unit}; with this it could come to {wanted:,}, and "
                f"it has {present:,} now",
            )


def _n_features_of(value: Any) -> int:
    """Return how many features a column begins with, by its first value."""
    is_date = type(value) is str and roles.of_value(value) in roles.DATES
    return len(DATE_PARTS) if is_date else 1


class State(Protocol):
    """What a model of the service can do: it changes by events, and by nothing else."""

    def apply(self, entry: Entry, find: Find) -> Answer:
        """Take in an event; raise FolklearnError, and change nothing, if it cannot be."""

    def to_record(self) -> Record:
        """Return everything as a record."""

    def view(self) -> Any:
        """Return what can be asked meanwhile, and does not change."""

    def numbers(self) -> dict[str, Any]:
        """Return how it does: rows learned, loss and error, averages or None."""

    @property
    def n_bytes(self) -> int:
        """About how much memory it takes, and what was published of it."""


class ClassifierState:
    """A `folklearn.Model` that is told by events."""

    def __init__(self, model: Model, created: events.Created | events.Imported) -> None:
        self.model, self.created = model, created

    @classmethod
    def of(cls, created: events.Created) -> Self:
        """Begin."""
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

    def apply(self, entry: Entry, find: Find) -> Answer:
        """Take in an event."""
        match entry.event:
            case events.Learned() as learned:
                self._learn(learned, find)
                return learned_answer(entry.seq, 1)
            case events.LearnedMany() as many:
                refused = self._learn_many(many, find)
                n_learned = len(many.items) - len(refused)
                return learned_answer(entry.seq, n_learned, many.already, [*many.refused, *refused])
            case events.Refused(status=status, detail=detail):
                raise RefusedError(status, detail)
            case events.Expired() as expired:
                late = self.labels_of(expired)
                if late:
                    self._learn_many(events.LearnedMany(late), find)
        return Answer(200, {"event": entry.seq})

    def labels_of(self, event: events.Event) -> list[events.Learned]:
        """Return what an event teaches."""
        match event:
            case events.Learned() as learned:
                return [learned]
            case events.LearnedMany(items=items):
                return items
            case events.Expired(of=several) if self.created.config.default is not None:
                return [events.Learned(self.created.config.default, of=of) for of in several]
        return []

    def _learn(self, learned: events.Learned, find: Find) -> None:
        if learned.of is None:
            assert learned.row is not None
            self.check_growth([(learned.row, learned.label)])
            self.model.learn_one(learned.row, learned.label, weight=learned.weight)
            return
        asked = find(learned.of).event
        self.check_growth([(asked.row, learned.label)])
        row = PendingPrediction(asked.row, np.array(asked.p), asked.unseen)
        self.model.learn_asked(row, learned.label, weight=learned.weight)

    def _learn_many(self, many: events.LearnedMany, find: Find) -> list[events.Left]:
        """Learn all that can be; return the others, and why not."""
        items = many.items
        try:
            if items and all(item.row is not None for item in items):
                self.check_growth([(item.row or {}, item.label) for item in items])
                weights = [item.weight for item in items]
                self.model.learn_many(
                    [item.row for item in items], [item.label for item in items], weight=weights
                )
                return []
        except FolklearnError:
            pass  # one of them is to blame, and nothing was learned: find out which
        refused = []
        places = many.places or range(len(items))
        for place, item in zip(places, items, strict=True):
            try:
                self._learn(item, find)
            except FolklearnError as error:
                refused.append(events.Left(place, 422, str(error)))
        return refused

    def check_growth(self, items: Sequence[Item]) -> int:
        """Refuse what would make the model larger than it may become; return the bytes it may add.

        A function of the model and of its first event alone, so that a replay refuses the same.
        """
        now, limits = Size.of(self.model), self._limits
        size = Size.bound(self.model, items)
        if size.exceeds(limits, now):
            size = size.exactly(self.model, items)
            size.check(limits, now)
        if len(items) > 1 and len(items) * size.features > MOST_NUMBERS_AT_ONCE < limits.features:
            raise RefusedError(422, "these rows are too wide to be learned together")
        return size.learner - now.learner

    def n_bytes_more(self, items: Sequence[Item], *, exactly: bool) -> int:
        """Return how many bytes of weights labels may add."""
        size = Size.bound(self.model, items)
        if exactly:
            size = size.exactly(self.model, items)
        return size.learner - Size.of(self.model).learner

    @property
    def n_bytes_left(self) -> int:
        """How many bytes of weights labels may add in all."""
        return max(0, self._limits.learner - Size.of(self.model).learner)

    @property
    def _limits(self) -> Size:
        made = self.created
        sizes = made.max_classes, made.max_columns, made.max_features, made.max_places
        return Size(*sizes, made.max_learner)

    def to_record(self) -> Record:
        """Return the model as a record."""
        return self.model.to_record()

    def view(self) -> Model:
        """Return a copy that only predicts."""
        return self.model.predicting()

    @property
    def n_bytes(self) -> int:
        """About how much memory the model and its view take."""
        return self.model.n_bytes + self.model.n_bytes_to_predict

    def numbers(self) -> dict[str, Any]:
        """Return how the model does."""
        model, n = self.model, self.model.n_rounds
        return {
            "kind": "classifier",
            "alarms": len(model.monitor().alarms),
            "rows": n,
            "classes": len(model.labels),
            "loss": model.average_loss if n else None,
            "error": model.n_mistakes / n if n else None,
        }


class AgentState:
    """A `NamedAgent` that is told by events."""

    def __init__(self, named_agent: NamedAgent) -> None:
        self.named_agent = named_agent

    @classmethod
    def of(cls, created: events.Created) -> Self:
        """Begin."""
        config = created.config
        default = config.default
        if not (default is None or isinstance(default, int | float)):
            raise RefusedError(
                422, f"the default of an agent is a reward from 0 to 1, got {default!r}"
            )
        return cls(NamedAgent(config.actions, config.context, default=default, seed=config.seed))

    def check_context_fits(self, context: events.Row) -> None:
        """Refuse what is no context of this agent, whatever it has learned."""
        try:
            self.named_agent.read(context)
        except FolklearnError as error:
            raise RefusedError(422, str(error)) from None

    def apply(self, entry: Entry, find: Find) -> Answer:
        """Take in an event."""
        match entry.event:
            case events.Decided(context=context):
                made = self.named_agent.act(entry.seq, context)
                action = self.named_agent.actions[made.action]
                return Answer(
                    200, {"event": entry.seq, "action": action, "propensity": made.propensity}
                )
            case events.Rewarded(of=of, reward=reward):
                self.named_agent.learn(of, reward)
                return learned_answer(entry.seq, 1)
            case events.Expired(of=several):
                for of in several:
                    self.named_agent.expire(of)
        return Answer(200, {"event": entry.seq})

    def to_record(self) -> Record:
        """Return the agent as a record."""
        return self.named_agent.to_record()

    def view(self) -> None:
        """Return nothing: who asks what to do changes the agent."""

    @property
    def n_bytes(self) -> int:
        """About how much memory the agent takes, with the decisions that wait."""
        return self.named_agent.n_bytes

    def numbers(self) -> dict[str, Any]:
        """Return how the agent does."""
        agent, rows = self.named_agent.agent, self.named_agent.table()
        n = sum(n for _, n, _ in rows)
        total = sum(n * mean for _, n, mean in rows if mean is not None)
        return {
            "kind": "agent",
            "rows": agent.n_outcomes,
            "decisions": agent.n_decisions,
            "actions": len(rows),
            "loss": None,
            "error": None,
            "reward": total / n if n else None,
        }


def item_of(learned: events.Learned, find: Find) -> Item:
    """Return the row that a label is for, and the label."""
    row = learned.row if learned.of is None else find(learned.of).event.row
    assert row is not None
    return row, learned.label


def begun(created: events.Created | events.Imported, record: Record | None = None) -> State:
    """Return the state that a model begins with, or one that was snapshotted later."""
    if isinstance(created, events.Imported):
        record = serialization.of_bytes(created.file) if record is None else record
    elif created.config.decides:
        return (
            AgentState.of(created) if record is None else AgentState(NamedAgent.from_record(record))
        )
    if record is None:
        assert isinstance(created, events.Created)
        return ClassifierState.of(created)
    revived = serialization.revive(record)
    if not isinstance(revived, Model):
        raise RefusedError(422, "the file holds no folklearn.Model: save one with Model.save")
    revived.monitor()
    return ClassifierState(revived, created)


def learned_answer(
    seq: int, n_learned: int, n_already: int = 0, refused: Sequence[events.Left] = ()
) -> Answer:
    """Return what is said when labels have been learned."""
    body: dict[str, Any] = {"event": seq, "learned": n_learned}
    if n_already:
        body["already"] = n_already
    if refused:
        body["refused"] = [
            {"item": left.place, "status": left.status, "detail": left.detail} for left in refused
        ]
    return Answer(200, body)
