"""Requests that change a model: each becomes an event, is refused, or repeats an earlier one."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from folklearn.errors import FolklearnError
from folklearn.service.events import (
    Answer,
    ChangeRequest,
    Config,
    CreateEvent,
    DecisionEvent,
    DeleteEvent,
    ExpiryEvent,
    LabelEvent,
    LabelsEvent,
    LabelsRequest,
    PredictionsRequest,
    RefusalEvent,
    RefusedError,
    RefusedItem,
    RewardEvent,
    new_id,
)
from folklearn.service.journal import Entry, Journal
from folklearn.service.limits import Limits
from folklearn.service.model_host import ModelHost
from folklearn.service.named_agent import NamedAgent
from folklearn.service.states import (
    ClassifierState,
    ModelState,
    labels_answer,
    read_items,
    restore_state,
)


class Change(NamedTuple):
    """A request to change a model, as it waits for the writer, with its Idempotency-Key."""

    host: ModelHost
    request: ChangeRequest
    key: str | None = None


class Repeat(NamedTuple):
    """A request that was done before: its answer is that of an event."""

    seq: int


Prepared = Entry | Repeat | Answer


class TooEarlyError(Exception):
    """The event of a change depends on the outcome of events that are not yet applied."""


def prepare(change: Change, journal: Journal, now: int) -> Prepared:
    """Add the event of a change to the journal; or add nothing, and repeat, answer or refuse."""
    host, request, key = change
    digest = None
    if key is not None:
        content = msgspec.msgpack.encode(request, order="sorted")
        digest = hashlib.blake2b(content, digest_size=16).digest()
        earlier = journal.find_key(host.number, key)
        if earlier is not None:
            if earlier[1] != digest:
                raise RefusedError(
                    422,
                    f"the Idempotency-Key {key!r} was used for another request: a new request "
                    "needs a new key",
                )
            return Repeat(earlier[0])
    add = partial(journal.add, host.number, now, key=key, digest=digest)
    return _PREPARE[type(request)](_Preparation(journal, host, add, now, key), request)


class _Preparation(NamedTuple):
    journal: Journal
    host: ModelHost
    add: Callable[..., Entry]  # an event, to the journal
    now: int
    key: str | None

    def find_waiting(
        self, id: UUID, event: LabelEvent | RewardEvent, what: str
    ) -> tuple[int, int | None]:
        """Return the event that waits under an id, and the one that has the same outcome already.

        Raise if there is none, if the outcome is another one, or came too late.
        """
        numbers = self.journal.find_waiting(self.host.number, id)
        if numbers is None:
            raise RefusedError(
                404,
                f"nothing waits for the {what} of {id}: it was not issued by this model, or the "
                "prediction was not remembered",
            )
        _, outcome = numbers
        if outcome is None:
            return numbers
        if outcome > self.journal.before:
            raise TooEarlyError
        earlier = self.journal.entry(outcome).event
        if isinstance(earlier, ExpiryEvent):
            over = "the model waits no longer" if what == "label" else "the default was taken"
            raise RefusedError(410, f"the {what} of {id} came too late: {over}")
        if event not in (earlier.items if isinstance(earlier, LabelsEvent) else [earlier]):
            raise RefusedError(409, f"another {what} of {id} was learned before")
        return numbers


def _prepare_predictions(preparation: _Preparation, request: PredictionsRequest) -> Prepared:
    due = preparation.host.due(preparation.now)
    return [preparation.add(event, id=id, due=due) for id, event in request.items][-1]


def _prepare_label(preparation: _Preparation, label: LabelEvent) -> Prepared:
    journal, waiting, row = preparation.journal, [], label.row
    if label.id is not None:
        asked, outcome = preparation.find_waiting(label.id, label, "label")
        if outcome is not None:
            return _already_learned(outcome)
        waiting, row = [asked], journal.entry(asked).event.row
    for reason in preparation.host.expect_labels([(row or {}, label.label)]).values():
        if preparation.key is None:
            raise RefusedError(422, reason)
        return preparation.add(RefusalEvent(422, reason))  # the key is used
    entry = preparation.add(label)
    if waiting:
        journal.set_outcome(waiting, entry.seq)
    return entry


def _prepare_labels(preparation: _Preparation, request: LabelsRequest) -> Prepared:
    """Keep the labels that can be learned; those learned before are counted, others refused."""
    journal, host = preparation.journal, preparation.host
    kept: dict[int, LabelEvent] = {}  # by index in the request
    waiting: dict[UUID, int] = {}
    refused, n_already = [], 0
    for index, label in enumerate(request.items):
        try:
            if label.id is not None:
                asked, outcome = preparation.find_waiting(label.id, label, "label")
                if outcome is not None:
                    n_already += 1
                    continue
                if label.id in waiting:
                    raise RefusedError(409, f"the request has another label of {label.id}")
                waiting[label.id] = asked
            kept[index] = label
        except RefusedError as refusal:
            refused.append(RefusedItem(index, refusal.status, str(refusal)))
    indices = list(kept)
    items = read_items([*kept.values()], journal.entry_of)
    for at, reason in host.expect_labels(items).items():
        label = kept.pop(indices[at])
        if label.id is not None:
            del waiting[label.id]
        refused.append(RefusedItem(indices[at], 422, reason))
    is_whole = len(kept) == len(request.items)
    event = LabelsEvent([*kept.values()], n_already, refused, None if is_whole else [*kept])
    if indices and not kept and preparation.key is None:
        return labels_answer(host.version, event)
    entry = preparation.add(event)
    journal.set_outcome(waiting.values(), entry.seq)
    return entry


def _prepare_decision(preparation: _Preparation, decision: DecisionEvent) -> Prepared:
    state = preparation.host.state
    if isinstance(state, NamedAgent):
        try:
            state.encode_context(decision.context)  # or else it would wait for a reward
        except FolklearnError as error:
            raise RefusedError(422, str(error)) from None
    preparation.host.expect_decision()
    due = preparation.host.due(preparation.now)
    return preparation.add(decision, id=new_id(), due=due)


def _prepare_reward(preparation: _Preparation, reward: RewardEvent) -> Prepared:
    asked, outcome = preparation.find_waiting(reward.id, reward, "reward")
    if outcome is not None:
        return _already_learned(outcome)
    entry = preparation.add(reward)
    preparation.journal.set_outcome([asked], entry.seq)
    return entry


def _prepare_expiry(preparation: _Preparation, expiry: ExpiryEvent) -> Prepared:
    journal, host = preparation.journal, preparation.host
    if isinstance(host.state, ClassifierState):
        host.expect_labels(read_items(host.state.labels_in(expiry), journal.entry_of))
    entry = preparation.add(expiry)
    journal.set_outcome([journal.entry_of(id).seq for id in expiry.ids], entry.seq)
    return entry


def _prepare_delete(preparation: _Preparation, deletion: DeleteEvent) -> Prepared:
    entry = preparation.add(deletion)
    preparation.journal.end_model(preparation.host.number, entry.seq)
    return entry


_PREPARE: dict[type, Callable[[_Preparation, Any], Prepared]] = {
    PredictionsRequest: _prepare_predictions,
    LabelEvent: _prepare_label,
    LabelsRequest: _prepare_labels,
    DecisionEvent: _prepare_decision,
    RewardEvent: _prepare_reward,
    ExpiryEvent: _prepare_expiry,
    DeleteEvent: _prepare_delete,
}


def _already_learned(seq: int) -> Answer:
    return Answer(200, {"event": seq, "learned": 0, "already": 1})


# The first event of a model.


def new_create_event(config: Config, limits: Limits, file: bytes | None) -> CreateEvent:
    """Return the first event of a model; raise if a model cannot begin with it."""
    n_numbers = count_agent_numbers(config)
    if n_numbers > limits.agent:
        raise RefusedError(
            422,
            f"{len(config.actions):,} actions with this context are too many: their number times "
            f"the square of its width is {n_numbers:,}, and may be {limits.agent:,}",
        )
    names = [*config.roles, *config.context, *config.actions]
    names += [name for pair in config.crosses for name in pair]
    names += [name for kind in config.context.values() if isinstance(kind, list) for name in kind]
    labels = [*config.classes, config.default, *(config.class_weight or ())]
    for what, texts, limit in (("name", names, limits.name), ("label", labels, limits.label)):
        longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
        if longest > limit:
            raise RefusedError(422, f"a {what} may have {limit} letters, and one has {longest:,}")
    return CreateEvent(
        config,
        max_classes=limits.classes,
        max_columns=limits.columns,
        max_features=limits.features,
        max_places=limits.places,
        max_learner=limits.learner,
        file=file,
    )


def begin_state(created: CreateEvent) -> ModelState:
    """Return the state that a model begins with; raise RefusedError if it cannot begin."""
    try:
        return restore_state(created)
    except RefusedError:
        raise
    except (FolklearnError, TypeError) as error:
        raise RefusedError(422, str(error)) from None


def count_agent_numbers(config: Config) -> int:
    """Return how many numbers the matrices of an agent hold; 0 for a classifier."""
    width = 1 + sum(1 if isinstance(kind, str) else len(kind) for kind in config.context.values())
    return len(config.actions) * width**2
