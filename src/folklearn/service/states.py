"""States of models in the service: a pure fold of events, the same for every replay."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from folklearn import serialization, validation
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.learners import catalogue
from folklearn.metrics.accumulator import Metrics
from folklearn.model import roles
from folklearn.model.batch import MOST_OWN, SHARED
from folklearn.model.decisions import DecisionModel
from folklearn.model.labels import PendingPrediction
from folklearn.model.model import Model
from folklearn.model.roles import DATE_PARTS
from folklearn.readers.table import table_from_records
from folklearn.serialization import Record
from folklearn.service import events
from folklearn.service.events import Answer, Label, LabelEvent, ModelSize, RefusedError, Row
from folklearn.service.journal import Entry

FindEntry = Callable[[UUID], Entry]  # the event with which an id was issued
Item = tuple[Row, Label]


class Growth(NamedTuple):
    """What labels do to a learner: bytes that they may add, and bytes that are copied for that.

    Each new class, and new columns together, make a larger learner, into which the old one goes.
    """

    added: int
    copied: int


NO_GROWTH = Growth(0, 0)
_BYTES_PER_WEIGHT = 64  # of a wide learner, which has eight experts at first,
_BYTES_PER_STACKED_WEIGHT = 160  # and beside other columns twenty
_MAX_TERMS = 1_000  # of an action, about
_MAX_ACTIONS = 10_000  # that an agent remembers
_MAX_MATRIX_NUMBERS = 8_000_000  # above it rows are learned one by one


def measure_size(model: Model) -> ModelSize:
    encoder, pipeline = model.encoder, model.pipeline
    n_columns, n_features = len(model.asked_roles), 0
    if encoder is not None:
        dense = encoder.dense if encoder.sparse else encoder
        n_columns, n_features = len(encoder.roles), 0 if dense is None else len(dense)
    n_places = 0 if pipeline is None else pipeline.n_places()
    return _with_learner(model, 0, len(model.label_encoder), n_columns, n_features, n_places)


def bound_size(model: Model, items: Sequence[Item], *, exactly: bool = False) -> ModelSize:
    """Return a size that the model does not exceed with these items: fast, and not tight.

    Exactly, where that can be: features or places are counted, which takes as long as encoding.
    """
    encoder, pipeline, labels = model.encoder, model.pipeline, model.label_encoder.numbers
    roles_so_far = model.asked_roles if encoder is None else encoder.roles
    new_columns: dict[str, Any] = {}
    new_classes: set[Any] = set()
    n_texts: Counter[str] = Counter()  # by column
    n_cells = n_letters = 0
    for row, label in items:
        n_cells += len(row)
        if not row.keys() <= roles_so_far.keys():
            new_columns |= {name: row[name] for name in row.keys() - roles_so_far.keys()}
        new_classes |= set(label if isinstance(label, dict) else (label,)) - labels.keys()
        for name, value in row.items():
            if type(value) is str:
                n_texts[name] += 1
                n_letters += len(value)
    now = measure_size(model)
    n_classes, n_columns = now.classes + len(new_classes), now.columns + len(new_columns)
    if exactly and encoder is not None and pipeline is not None:
        can_encode = n_columns * len(items) <= _MAX_MATRIX_NUMBERS
        if can_encode and (encoder.sparse or len(items) == 1):
            rows = [row for row, _ in items]
            encoded = encoder.encode(table_from_records(rows, range(1, len(rows) + 1)))
            n_features, n_places = len(encoder) + len(encoded.keys), 0
            if encoder.sparse:
                n_features, n_places = 0, pipeline.n_places(encoded.X)
            if encoder.dense is not None and encoded.dense is not None:
                n_features = len(encoder.dense) + len(encoded.dense.keys)
            n_letters = sum(len(part) for _, part in encoded.keys) + sum(map(len, encoded.roles))
            return _with_learner(model, n_letters, n_classes, n_columns, n_features, n_places)
    # Columns whose names came before, and that have no value so far.
    n_unplaced = len(roles_so_far) if encoder is None else encoder.n_unplaced
    n_dates = sum(type(v) is str and roles.of_value(v) in roles.DATES for v in new_columns.values())
    n_new = len(new_columns) + (len(DATE_PARTS) - 1) * n_dates + len(DATE_PARTS) * n_unplaced
    n_categories = [*n_texts.values(), *len(model.crosses) * [len(items)]]  # by column or pair
    n_features = now.features + n_new
    n_features += sum(min(n, MOST_OWN + SHARED) for n in n_categories)
    n_places = now.places + 1 + n_cells + n_new + len(model.crosses) * len(items) + len(n_texts)
    # A word has two letters and one between it and the next, which is a pair of words too.
    n_places += 2 * n_letters // 3
    if encoder is not None:
        n_places += encoder.n_numbers  # a number that was always the same has no weight yet
        n_places = n_places if encoder.sparse else 0
        n_features = 0 if encoder.sparse and encoder.dense is None else n_features
    n_letters += sum(map(len, new_columns))
    return _with_learner(model, n_letters, n_classes, n_columns, n_features, n_places)


def _with_learner(
    model: Model, n_letters: int, n_classes: int, n_columns: int, n_features: int, n_places: int
) -> ModelSize:
    """Add the bytes of weights, of names and of n_letters more letters."""
    pipeline, n_bytes = model.pipeline, 0
    is_mixed = model.encoder is not None and model.encoder.dense is not None
    if model.learner_name == "auto":
        n_weights = (n_classes + 1) * max(n_places, n_features)
        n_bytes = (_BYTES_PER_STACKED_WEIGHT if is_mixed else _BYTES_PER_WEIGHT) * n_weights
    if n_features:
        size = n_features + 1, max(2, n_classes)
        n_dense = catalogue.n_bytes(model.learner_name, *size)
        learner = None if pipeline is None else (pipeline.dense or pipeline).learner
        if learner is not None:  # one that began small may stay of a dearer kind
            n_dense = max(n_dense, learner.expected_bytes(*size))
        n_bytes = n_bytes + n_dense if is_mixed else max(n_bytes, n_dense)
    n_letters += 0 if model.encoder is None else model.encoder.n_letters
    return ModelSize(n_classes, n_columns, n_features, n_places, n_bytes + n_letters)


def _why_too_large(size: ModelSize, limits: ModelSize, now: ModelSize) -> RefusedError | None:
    """Return which limit would be exceeded by growth from now to a size, None if none would."""
    for what, wanted, limit, present in zip(size._fields, size, limits, now, strict=True):
        if wanted > max(limit, present):
            unit = {"learner": "bytes of weights", "places": "hashed places"}.get(what, what)
            return RefusedError(
                422,
                f"the model may have {limit:,} {unit}; with this it could come to {wanted:,}, and "
                f"it has {present:,} now",
                limit=f"{what}={limit}",
            )
    return None


class ClassifierState:
    """A `folklearn.Model` that learns from events: a new one, or that of a record."""

    def __init__(self, created: events.CreateEvent, record: Record | None) -> None:
        config = created.config
        if len(config.classes) > created.limits.classes:
            n = created.limits.classes
            raise RefusedError(422, f"a model may have {n} classes", limit=f"classes={n}")
        if record is None:
            names = "roles crosses classes class_weight missing terms windows coverage coverage_by"
            options: dict[str, Any] = {name: getattr(config, name) for name in names.split()}
            settings: dict[str, Any] = config.settings
            self.model = Model(config.learner, **options, **settings)
        else:
            self.model = Model.from_record(record)
        self.created = created
        self.to_record = self.model.to_record
        self.model.monitor()

    def copy_to_predict(self) -> Model:
        """Return a copy that predicts, and shares nothing that changes, not even totals."""
        copied = self.model.copy_to_predict()
        copied.metrics = Metrics()
        return copied

    def apply(self, entry: Entry, find: FindEntry) -> Answer:
        """Apply an event; raise FolklearnError, and change nothing, if it cannot be."""
        match entry.event:
            case LabelEvent(label, row, id, weight):
                asked = None if id is None else find(id).event
                row = row or {} if asked is None else asked.row
                self.check_growth([(row, label)])
                if asked is None:
                    self.model.learn_one(row, label, weight=weight)
                else:
                    plain = row, asked.p, asked.unseen, asked.thresholds
                    self.model.tell(PendingPrediction.of_plain(*plain), label, weight=weight)
                return events.DerivedAnswer(200, {"event": entry.seq, "learned": 1})
            case events.LabelsEvent() as labels:
                return labels_answer(entry.seq, labels, self._learn_together(labels.items, find))
            case events.RefusalEvent(status=status, detail=detail, limit=limit):
                raise RefusedError(status, detail, limit=limit)
            case events.ExpiryEvent() as expiry:
                self._learn_together(self.labels_in(expiry), find)
            case events.ReleaseEvent():
                self.model.release_rows()
            case events.EraseEvent(categories=categories, rebuilt=False):
                self.model.release_rows()
                self.model.forget_categories(categories)
        return Answer(200, {"event": entry.seq})

    def labels_in(self, event: events.JournalEvent) -> Sequence[LabelEvent | None]:
        match event:
            case LabelEvent() as label:
                return [label]
            case events.LabelsEvent(items=items):
                return items
            case events.ExpiryEvent(ids=ids) if self.created.config.default is not None:
                return [LabelEvent(self.created.config.default, id=id) for id in ids]
        return []

    def _learn_together(self, labels: Sequence[LabelEvent | None], find: FindEntry) -> list[Any]:
        present = [label for label in labels if label is not None]
        items = [(label.row, label.label) for label in present if label.row is not None]
        try:
            if present and len(items) == len(present):
                self.check_growth(items)
                rows, told = zip(*items, strict=True)
                weights = [label.weight for label in present]
                self.model.learn_many([*rows], [*told], weight=weights)
                return []
        except FolklearnError:
            pass  # nothing was learned: one by one the refused ones are identified
        refused = []
        for index, label in enumerate(labels):
            try:
                if label is not None:
                    self.apply(Entry(0, 0, 0, label), find)
            except FolklearnError as error:
                refused.append({"item": index, "status": 422, "detail": str(error)})
        return refused

    def check_growth(self, items: Sequence[Item]) -> Growth:
        """Raise if labels would make the model too large; return how they may.

        A function of the model and of its first event alone, so that a replay refuses the same.
        """
        encoder, labels = self.model.encoder, self.model.label_encoder.numbers
        if len(items) == 1 and encoder is not None and not encoder.sparse:
            row, label = items[0]
            is_known = row.keys() <= encoder.roles.keys() and not encoder.n_unplaced
            is_known = is_known and not isinstance(label, dict) and label in labels
            if is_known and str not in map(type, row.values()):
                return NO_GROWTH  # nearly all rows of numbers
        now, limits = measure_size(self.model), self.created.limits
        size = bound_size(self.model, items)
        if _why_too_large(size, limits, now):
            size = bound_size(self.model, items, exactly=True)
            if refusal := _why_too_large(size, limits, now):
                raise refusal
        if len(items) > 1 and len(items) * size.features > _MAX_MATRIX_NUMBERS < limits.features:
            raise RefusedError(422, "these rows are too wide to be learned together")
        return self._growth(now, size)

    def count_growth(self, items: Sequence[Item], *, exactly: bool = False) -> Growth:
        """Return how labels may make the learner grow, within the limit of the model."""
        if not items:
            return NO_GROWTH
        size = bound_size(self.model, items, exactly=exactly)
        return self._growth(measure_size(self.model), size)

    def _growth(self, now: ModelSize, size: ModelSize) -> Growth:
        n_copies = size.classes - now.classes + (size.columns > now.columns)
        n_bytes = min(size.learner, max(now.learner, self.created.limits.learner))
        return Growth(n_bytes - now.learner, n_copies * now.learner)

    @property
    def n_bytes(self) -> int:
        model, pipeline = self.model, self.model.pipeline
        learner = None if pipeline is None else pipeline.learner
        parts = (model.recent, model.encoder, model.encoder, pipeline, learner)  # with the copy
        return sum(part.n_bytes for part in parts if part is not None)

    def numbers(self) -> dict[str, Any]:
        model, n = self.model, self.model.n_rounds
        return {
            "kind": "classifier",
            "alarms": len(model.monitor().alarms),
            "rows": n,
            "classes": len(model.labels),
            "loss": model.metrics.average_loss if n else None,
            "error": model.metrics.n_errors / n if n else None,
            "sets": [record.plain() for record in model.sets.records()],
        }


def read_items(labels: Sequence[LabelEvent | None], find: FindEntry) -> list[Item]:
    return [
        (find(label.id).event.row if label.id is not None else label.row or {}, label.label)
        for label in labels
        if label is not None
    ]


def labels_answer(seq: int, labels: events.LabelsEvent, refused: Sequence[Any] = ()) -> Answer:
    n_learned = len(labels.items) - labels.items.count(None) - len(refused)
    body: dict[str, Any] = {"event": seq, "learned": n_learned}
    if labels.already:
        body["already"] = labels.already
    if labels.refused or refused:
        body["refused"] = [*labels.refused, *refused]
    return Answer(200, body) if refused else events.DerivedAnswer(200, body)


class AgentState:
    """A `folklearn.DecisionModel` that decides and learns by events, and knows them by number."""

    def __init__(self, created: events.CreateEvent, record: Record | None) -> None:
        config: Any = created.config
        if config.actions:
            validation.count("n_actions", len(config.actions), 2)
        if not config.context:
            raise InvalidInputError(
                'a decision needs a context: name what is known, such as {"age": "number", '
                '"country": ["DE", "PE"]}'
            )
        self._config = config
        if record is None:
            n_actions = _MAX_ACTIONS
            if not isinstance(config.actions, dict):
                n_actions = min(n_actions, created.limits.learner // count_agent_bytes(config, 1))
            self.model = DecisionModel(
                config.actions, context=config.context, terms=config.terms,
                default_reward=config.default, seed=config.seed,
                max_actions=max(1, len(config.actions), n_actions),
            )  # fmt: skip
        else:
            self.model = DecisionModel.from_record(record)
        self.to_record = self.model.to_record

    def apply(self, entry: Entry, find: FindEntry) -> Answer:
        """Apply an event; raise FolklearnError, and change nothing, if it cannot be."""
        match entry.event:
            case events.DecisionEvent(context=context, actions=actions):
                decision = self.model.decide(context, actions, id=entry.seq)
                body = {"action": decision.action, "propensity": decision.propensity}
                return Answer(200, {"id": str(entry.id), "event": entry.seq, **body})
            case events.RewardEvent(id=id, reward=reward):
                self.model.reward(find(id).seq, reward)
                return events.DerivedAnswer(200, {"event": entry.seq, "learned": 1})
            case events.ExpiryEvent(ids=ids):
                waiting = {decision.id for decision in self.model.pending}
                for number in [find(id).seq for id in ids]:
                    if number in waiting:
                        self.model.expire(number)
            case events.ReleaseEvent() | events.EraseEvent() as event:
                gone = event.decisions if isinstance(event, events.EraseEvent) else ()
                for number in {decision.id for decision in self.model.pending}.intersection(gone):
                    self.model.drop(number)
                # Not `release_rows`, with which all others that wait would expire too.
                regressions = self.model.regressions.items()
                self.model.regressions = {key: one.without_rows() for key, one in regressions}
        return Answer(200, {"event": entry.seq})

    def check_decision(self, event: events.DecisionEvent) -> int:
        """Return the bytes that a decision may add.

        Raise if it could not be made: its event would wait for a reward that never comes.
        """
        has_features = isinstance(self._config.actions, dict)
        if isinstance(event.actions, list if has_features else dict):
            raise RefusedError(
                422,
                'an agent whose actions have features is created with "actions": {}, or with those '
                'of most decisions; one whose actions are only names with "actions": []',
            )
        try:
            self.model.check_row(event.context, event.actions)
        except FolklearnError as error:
            raise RefusedError(422, str(error)) from None
        names, n_known = {*self.model.actions, *(event.actions or ())}, len(self.model.actions)
        n_then = min(len(names), max(n_known, self.model.max_actions))
        n_bytes = count_agent_bytes(self._config, n_then) - count_agent_bytes(self._config, n_known)
        return self.model.n_bytes_of_decision + n_bytes

    def copy_to_predict(self) -> None:
        """Return nothing: a decision changes the agent."""

    def numbers(self) -> dict[str, Any]:
        model = self.model
        return {
            "kind": "agent",
            "rows": model.n_rewards,
            "decisions": model.n_decisions,
            "actions": len(model.actions),
            "loss": None,
            "error": None,
            "reward": model.mean_reward,
        }

    @property
    def n_bytes(self) -> int:
        expected = count_agent_bytes(self._config, len(self.model.actions))
        return max(self.model.n_bytes, expected)


def count_agent_bytes(config: events.Config, n_actions: int) -> int:
    """Return about how many bytes the matrices of an agent come to, with so many actions."""
    widths = [1 if isinstance(kind, str) else len(kind) for kind in config.context.values()]
    n_terms = 0 if config.terms == "none" else _MAX_TERMS
    n_regressions = min(n_actions, 1) if isinstance(config.actions, dict) else n_actions
    return 8 * n_regressions * (1 + sum(widths) + n_terms) ** 2


ModelState = ClassifierState | AgentState


def restore_state(created: events.CreateEvent, saved: Record | bytes | None = None) -> ModelState:
    """Return a state as it was saved, or as the first event of a model says."""
    content = created.file if saved is None else saved
    record = serialization.of_bytes(content) if isinstance(content, bytes) else content
    return (AgentState if created.config.is_agent else ClassifierState)(created, record)
