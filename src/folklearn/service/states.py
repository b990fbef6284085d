"""What events make of a model: a pure fold, the same for every replay."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import numpy as np

from folklearn import serialization
from folklearn.errors import FolklearnError
from folklearn.model.model import Model
from folklearn.model.waiting import Asked
from folklearn.serialization import Record
from folklearn.service import events
from folklearn.service.answers import Answer, RefusedError
from folklearn.service.decider import Decider
from folklearn.service.journal import Entry
from folklearn.service.sizes import MOST_NUMBERS_AT_ONCE, Item, Size

Find = Callable[[int], Entry]  # an event of the journal by number


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


class Classifier:
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
        row = Asked(asked.row, np.array(asked.p), asked.unseen)
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


class Decisions:
    """A `Decider` that is told by events."""

    def __init__(self, decider: Decider) -> None:
        self.decider = decider

    @classmethod
    def of(cls, created: events.Created) -> Self:
        """Begin."""
        config = created.config
        default = config.default
        if not (default is None or isinstance(default, int | float)):
            raise RefusedError(
                422, f"the default of an agent is a reward from 0 to 1, got {default!r}"
            )
        return cls(Decider(config.actions, config.context, default=default, seed=config.seed))

    def check_context_fits(self, context: events.Row) -> None:
        """Refuse what is no context of this agent, whatever it has learned."""
        try:
            self.decider.read(context)
        except FolklearnError as error:
            raise RefusedError(422, str(error)) from None

    def apply(self, entry: Entry, find: Find) -> Answer:
        """Take in an event."""
        match entry.event:
            case events.Decided(context=context):
                made = self.decider.act(entry.seq, context)
                action = self.decider.actions[made.action]
                return Answer(
                    200, {"event": entry.seq, "action": action, "propensity": made.propensity}
                )
            case events.Rewarded(of=of, reward=reward):
                self.decider.learn(of, reward)
                return learned_answer(entry.seq, 1)
            case events.Expired(of=several):
                for of in several:
                    self.decider.expire(of)
        return Answer(200, {"event": entry.seq})

    def to_record(self) -> Record:
        """Return the agent as a record."""
        return self.decider.to_record()

    def view(self) -> None:
        """Return nothing: who asks what to do changes the agent."""

    @property
    def n_bytes(self) -> int:
        """About how much memory the agent takes, with the decisions that wait."""
        return self.decider.n_bytes

    def numbers(self) -> dict[str, Any]:
        """Return how the agent does."""
        agent, rows = self.decider.agent, self.decider.table()
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
        return Decisions.of(created) if record is None else Decisions(Decider.from_record(record))
    if record is None:
        assert isinstance(created, events.Created)
        return Classifier.of(created)
    revived = serialization.revive(record)
    if not isinstance(revived, Model):
        raise RefusedError(422, "the file holds no folklearn.Model: save one with Model.save")
    revived.monitor()
    return Classifier(revived, created)


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
