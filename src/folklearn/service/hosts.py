"""Models in memory, and how a request changes one: it becomes an event, or is refused."""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from folklearn import serialization
from folklearn.errors import FolklearnError
from folklearn.service import events, states
from folklearn.service.events import Answer, CreateEvent, LabelEvent, RefusedError
from folklearn.service.journal import Entry, Journal, ModelRow
from folklearn.service.states import AgentState, ClassifierState, FindEntry, Item, ModelState

_N_COPIES = 5  # of weights: in model, windows, hold-out, published copy, and the next one
_BYTES_PER_PREDICTED_LABEL = 100  # of an answer, without the label itself
_PUBLISH_INTERVAL_FACTOR = 5.0  # times its cost that must lie between two publications
_ANNOUNCE_SECONDS = 0.02  # between two that other processes have to read, at least


class PublishedModel:
    """Immutable copy of a model at a version; of an agent there is none."""

    def __init__(self, version: int, model: Any) -> None:
        self.version, self.model = version, model
        self.has_words = model is not None and model.pipeline is not None and model.pipeline.sparse
        self._turn = asyncio.Lock()
        self.labels = () if model is None else model.labels
        # An upper bound on the prediction of one row as JSON.
        self.n_bytes_of_answer = 3 * len(msgspec.json.encode(self.labels))
        self.n_bytes_of_answer += _BYTES_PER_PREDICTED_LABEL * (1 + len(self.labels))

    @cached_property
    def content(self) -> bytes:
        """The model as a file that predicts the same to the last bit."""
        if self.model is None:
            return b""
        model = self.model if self.model.pipeline is None else self.model._copy_to_save()
        return serialization.as_bytes(model.to_record())

    async def call(self, predict: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that predicts: in a thread where words make it long, one at a time.

        Learners predict into arrays that they keep, and kernels run without the lock of Python.
        """
        if not self.has_words:
            return predict(*arguments)
        async with self._turn:
            return await asyncio.to_thread(predict, *arguments)


class Memory:
    """Bytes that models, by tenant and name, and their published copies take, against a limit."""

    # Times the limit that a start may take: a model is now larger, now smaller, and bounds of what
    # events may add are not tight. What is left of it is for all but the largest.
    START_FACTOR, OTHERS_START_FACTOR = 2.0, 3.0

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.hosts: dict[tuple[str, str], ModelHost] = {}
        # Called for a model that is published, begun or deleted, where other processes predict.
        self.announce: Callable[[ModelHost], None] = lambda host: None
        self.n_readers = 0  # processes that hold what is announced

    @property
    def n_bytes(self) -> int:
        """Bytes taken now, about, with those that events under way may add."""
        hosts = [*self.hosts.values()]  # at once: other threads ask too
        return sum(host.n_bytes + host.n_coming + host.n_pending for host in hosts)

    def has_room(self, n_more: int, factor: float = 1.0) -> bool:
        if self.n_bytes + n_more > factor * self.limit:
            for host in self.hosts.values():
                if host.n_coming:
                    host.measure()
        return self.n_bytes + n_more <= factor * self.limit

    def check(self, tenant: str, n_more: int = 0) -> None:
        if not self.has_room(n_more):
            text, limit = self.in_words(tenant, n_more), f"memory={self.limit}"
            raise RefusedError(503, text, retry_after=60, limit=limit)

    @property
    def largest(self) -> "ModelHost | None":
        return max(self.hosts.values(), key=lambda host: host.n_bytes, default=None)

    def in_words(self, tenant: str | None, n_more: int = 0) -> str:
        """Say what takes the memory, to a tenant or, with None, to the operator."""
        text = f"models take {self.n_bytes / 1e6:,.0f} MB of {self.limit / 1e6:,.0f} MB"
        if n_more:
            text += f", and this might take {n_more / 1e6:,.0f} MB more"
        if (largest := self.largest) is not None:
            row = largest.row
            name = row.name if row.tenant == tenant else "of another tenant"
            name = f"{row.name} of tenant {row.tenant}" if tenant is None else name
            text += f"; the largest is {name}, with {largest.n_bytes / 1e6:,.0f} MB"
        return f"{text}: nothing is learned before a model is deleted, or --memory is raised"


class GrowthBudget:
    """Bytes that each key may still have copied, so that one alone does not keep the writer.

    Full at first and a minute after it was empty. What is more than all of it leaves a debt.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._left: dict[str, tuple[float, int]] = {}  # by key, at a time in milliseconds

    def take(self, client: str, n_bytes: int, now: int) -> None:
        """Take bytes for the labels of a key; raise, and take nothing, if there are too few."""
        left, then = self._left.get(client, (self.limit, now))
        left = min(self.limit, left + self.limit * max(0, now - then) / 60_000)
        n_missing = min(n_bytes, self.limit) - left
        if n_missing > 0:
            raise RefusedError(
                429,
                f"new classes and columns come too fast: {n_bytes / 1e6:,.0f} MB would be copied "
                f"for these, and {self.limit / 1e6:,.0f} MB a minute may be for one key; labels "
                "of known classes and columns are learned meanwhile",
                retry_after=math.ceil(60 * n_missing / self.limit),
                limit=f"growth={self.limit}",
            )
        self._left[client] = left - n_bytes, now


class ModelHost:
    """A model that the writer changes, and the published copy that all requests read.

    `version` is the number of the last event in the state, `changed` its time. From `may_publish`
    on (monotonic) the copy may be renewed. `replay_seconds` is what the events since the last
    snapshot took. Of memory `n_bytes` were measured; `n_coming` may have been added since, and
    `n_pending` may be by events that are not applied yet. `why_held` says why a restart had no room
    for all events: such a model is read, and learns nothing.
    """

    def __init__(
        self, row: ModelRow, created: CreateEvent, state: ModelState, last: Entry, memory: Memory
    ) -> None:
        self.row, self.number = row, row.number
        self.created, self.config = created, created.config
        self.state, self.memory = state, memory
        self.version, self.changed = last.seq, last.time
        self.is_agent = created.config.is_agent
        self.published = PublishedModel(self.version, state.copy_to_predict())
        self.may_publish = self.replay_seconds = 0.0
        self.why_held = ""
        self.n_bytes, self.n_coming, self.n_pending = state.n_bytes, 0, 0
        self.lacks_snapshot = False  # because the last one could not be written
        memory.hosts[row.tenant, row.name] = self

    def take(self, state: ModelState, last: Entry) -> None:
        """Go on with another state, after an event."""
        self.state, self.version, self.changed = state, last.seq, last.time
        self.created = msgspec.structs.replace(self.created, file=self.created.file and b"")
        self.replay_seconds = 0.0
        self.publish()

    def hold(self) -> None:
        self.why_held = (
            f"the model {self.row.name} is shown as of event {self.version}: with later ones all "
            f"models would take more than {self.memory.limit / 1e6:,.0f} MB. It learns nothing; "
            "delete it, or stop the service and start it with more --memory"
        )

    @property
    def is_published(self) -> bool:
        return self.published.version == self.version

    def publish(self) -> None:
        began = time.monotonic()
        if self.is_published:
            return
        self.published = PublishedModel(self.version, self.state.copy_to_predict())
        self.memory.announce(self)
        self.measure()
        ended, least = time.monotonic(), _ANNOUNCE_SECONDS if self.memory.n_readers else 0.0
        self.may_publish = ended + max(least, _PUBLISH_INTERVAL_FACTOR * (ended - began))

    def measure(self) -> None:
        self.n_bytes, self.n_coming = self.state.n_bytes, 0
        if self.memory.n_readers:  # as a file, here and there, and as a model there
            self.n_bytes += (1 + 2 * self.memory.n_readers) * len(self.published.content)

    def reserve(self, n_bytes: int) -> None:
        self.memory.check(self.row.tenant, n_bytes)
        self.n_pending += n_bytes

    def expect_labels(
        self, items: Sequence[Item], take_growth: Callable[[int], None] | None = None
    ) -> dict[int, RefusedError]:
        """Reserve memory for labels; return, by index, why some cannot be learned by this model.

        The journal needs not hold those: the model only grows. `take_growth` bounds a rate.
        """
        state = self.state
        if not isinstance(state, ClassifierState) or not items:
            return {}
        refused = {}
        try:
            growth = state.check_growth(items)
            if growth.added and not self.memory.has_room(_N_COPIES * growth.added):
                growth = state.count_growth(items, exactly=True)
        except FolklearnError:
            for index, item in enumerate(items):
                try:
                    state.check_growth([item])
                except FolklearnError as error:
                    refused[index] = RefusedError.of(error)
            kept = [item for index, item in enumerate(items) if index not in refused]
            growth = state.count_growth(kept)
        if growth.copied and take_growth is not None:
            take_growth(growth.copied)
        if growth.added:
            self.reserve(_N_COPIES * growth.added)
        return refused

    def has_room_for(self, entry: Entry, find: FindEntry) -> bool:
        """Tell whether a replay may apply an event; reserve what it may add."""
        if not isinstance(self.state, ClassifierState):
            return True
        memory, items = self.memory, states.read_items(self.state.labels_in(entry.event), find)
        for exactly in (False, True):
            with suppress(FolklearnError):  # which is refused again
                n_more = _N_COPIES * self.state.count_growth(items, exactly=exactly).added
                is_largest = memory.largest in (None, self)
                factor = memory.START_FACTOR if is_largest else memory.OTHERS_START_FACTOR
                if not n_more or memory.has_room(n_more, factor):
                    self.n_coming += n_more
                    return True
        return False


class Change(NamedTuple):
    """A request to change a model, as it waits for the writer, with its Idempotency-Key.

    `client` is the id of the key that it came with, "" if it comes from the service itself.
    """

    host: ModelHost
    request: events.ChangeRequest
    key: str | None = None
    client: str = ""


class TooEarlyError(Exception):
    """The event of a change depends on the outcome of events that are not yet applied."""


def prepare(change: Change, journal: Journal, now: int, budget: GrowthBudget) -> Entry | Answer:
    """Add the event of a change to the journal; or add nothing, and answer or refuse."""
    host, request, key, client = change
    digest = None
    if key is not None:
        content = msgspec.msgpack.encode(request, order="sorted")
        digest = hashlib.blake2b(content, digest_size=16).digest()
        earlier = journal.find_key(host.number, key)
        if earlier is None and journal.has_removed:
            _check_age(journal, host, f"the Idempotency-Key {key!r}", events.time_of_id(key))
        if earlier is not None:
            if earlier[1] is None:
                raise RefusedError(410, f"what came with the Idempotency-Key {key!r} was removed")
            if earlier[1] != digest:
                raise RefusedError(
                    422,
                    f"the Idempotency-Key {key!r} was used for another request: a new request "
                    "needs a new key",
                )
            return _repeat_answer(journal, earlier[0])
    add = partial(journal.add, host.number, now, key=key, digest=digest)
    state, wait = host.state, host.config.wait
    take_growth = partial(budget.take, client, now=now) if client else None
    due = None if wait is None else now + round(1000 * wait)
    match request:
        case LabelEvent(label, row, id):
            waiting = []
            if id is not None:
                asked, answer = _find_waiting(journal, host, request)
                if answer is not None:
                    return answer
                waiting, row = [asked], journal.entry(asked).event.row
            for refusal in host.expect_labels([(row or {}, label)], take_growth).values():
                if key is None:
                    raise refusal
                event = events.RefusalEvent(refusal.status, str(refusal), refusal.limit)
                return add(event)  # the key is used
            return add(request, outcome_of=waiting)
        case events.LabelsRequest(items=items):
            return _prepare_labels(change, items, journal, add, take_growth)
        case events.PredictionsRequest(items=predictions):
            return [add(event, id=id, due=due) for id, event in predictions][-1]
        case events.DecisionEvent():
            assert isinstance(state, AgentState)
            host.reserve(state.check_decision(request))
            return add(request, id=events.new_id(), due=due)
        case events.RewardEvent():
            asked, answer = _find_waiting(journal, host, request)
            return answer or add(request, outcome_of=[asked])
        case events.ExpiryEvent(ids=ids):
            if isinstance(state, ClassifierState):
                host.expect_labels(states.read_items(state.labels_in(request), journal.entry))
            return add(request, outcome_of=[journal.entry(id).seq for id in ids])
        case events.ReleaseEvent():
            return add(request)


def _check_age(journal: Journal, host: ModelHost, what: str, time: int) -> None:
    """Raise for what was made at a time of which events were removed: it may be one of them."""
    since = journal.find("SELECT kept_since FROM model WHERE number = ?", host.number)
    if 0 < time <= since:
        day = datetime.fromtimestamp(since / 1000, UTC)
        raise RefusedError(
            410,
            f"{what} is too old: of before {day:%Y-%m-%d %H:%M} UTC only what waits is known. What "
            "was never learned can be sent with its row, under a new key",
        )


def _repeat_answer(journal: Journal, seq: int) -> Answer:
    if seq > journal.before:
        raise TooEarlyError
    content = journal.answer(seq)
    if content is not None:
        return Answer(*msgspec.json.decode(content))
    event = journal.entry(seq).event
    if isinstance(event, events.LabelsEvent):
        return states.labels_answer(seq, event)
    return Answer(200, {"event": seq, "learned": 1})


def _find_waiting(
    journal: Journal, host: ModelHost, event: LabelEvent | events.RewardEvent
) -> tuple[int, Answer | None]:
    """Return the event that waits for a label or reward, and the answer if it has come before."""
    what, id = "label" if isinstance(event, LabelEvent) else "reward", event.id
    assert id is not None
    numbers = journal.find_waiting(host.number, id)
    if numbers is None:
        _check_age(journal, host, str(id), events.time_of_id(str(id)))
        raise RefusedError(
            404,
            f"nothing waits for the {what} of {id}: it was not issued by this model, or the "
            "prediction was not remembered",
        )
    asked, outcome = numbers
    if outcome is None:
        return asked, None
    if outcome > journal.before:
        raise TooEarlyError
    earlier = journal.entry(outcome).event
    if isinstance(earlier, events.EraseEvent | events.RemovedEvent):
        raise RefusedError(410, f"what waited for the {what} of {id} was erased")
    if isinstance(earlier, events.ExpiryEvent):
        over = "the model waits no longer" if what == "label" else "the default was taken"
        raise RefusedError(410, f"the {what} of {id} came too late: {over}")
    if event not in (earlier.items if isinstance(earlier, events.LabelsEvent) else [earlier]):
        raise RefusedError(409, f"another {what} of {id} was learned before")
    return asked, Answer(200, {"event": outcome, "learned": 0, "already": 1})


def _prepare_labels(
    change: Change,
    labels: Sequence[LabelEvent],
    journal: Journal,
    add: Callable[..., Entry],
    take_growth: Callable[[int], None] | None,
) -> Entry | Answer:
    """Keep the labels that can be learned; those learned before are counted, others refused."""
    host = change.host
    items: list[LabelEvent | None] = [*labels]
    waiting: dict[UUID | None, int] = {}
    refused, n_already = [], 0
    for index, label in enumerate(labels):
        try:
            if label.id is not None:
                asked, answer = _find_waiting(journal, host, label)
                if answer is not None:
                    n_already += 1
                    items[index] = None
                elif label.id in waiting:
                    raise RefusedError(409, f"the request has another label of {label.id}")
                else:
                    waiting[label.id] = asked
        except RefusedError as refusal:
            items[index] = None
            refused.append({"item": index, **refusal.answer.body})
    indices = [index for index, label in enumerate(items) if label is not None]
    found = states.read_items(items, journal.entry)
    for at, too_large in host.expect_labels(found, take_growth).items():
        index = indices[at]
        waiting.pop(labels[index].id, None)
        items[index] = None
        refused.append({"item": index, **too_large.answer.body})
    event = events.LabelsEvent(items, n_already, refused)
    if indices and not any(items) and change.key is None:
        return states.labels_answer(host.version, event)
    return add(event, outcome_of=waiting.values())
