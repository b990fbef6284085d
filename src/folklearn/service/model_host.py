"""A model in memory: its state, its version, its published copy, and the memory it takes."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from folklearn.errors import FolklearnError
from folklearn.service.events import CreateEvent, RefusedError
from folklearn.service.journal import Entry, ModelRow
from folklearn.service.named_agent import FindEntry, NamedAgent
from folklearn.service.states import (
    ClassifierState,
    Item,
    ModelState,
    read_items,
)

_N_COPIES = 5  # of weights: in model, windows, hold-out, published copy, and the next one
# Times the memory limit that a start may take: a model is now larger, now smaller, and bounds of
# what events may add are not tight. What is left of it is for all but the largest.
START_FACTOR, _OTHERS_START_FACTOR = 2.0, 3.0
_BYTES_PER_PREDICTED_LABEL = 100  # of an answer, without the label itself
_PUBLISH_INTERVAL_FACTOR = 5.0  # times its cost that must lie between two publications


class PublishedModel:
    """Immutable copy of a model at a version.

    Attributes
    ----------
    n_bytes_of_answer : upper bound on the prediction of one row as JSON.
    """

    __slots__ = ("n_bytes_of_answer", "state", "version")

    def __init__(self, version: int, state: Any) -> None:
        self.version, self.state = version, state
        labels = () if state is None else state.labels
        self.n_bytes_of_answer = len(msgspec.json.encode(labels)) * 2
        self.n_bytes_of_answer += _BYTES_PER_PREDICTED_LABEL * (1 + len(labels))


class Memory:
    """Bytes that all models of a folder and their published copies take, against a limit.

    Attributes
    ----------
    limit : bytes, approximate.
    n_bytes : taken now, with those that events under way may add.
    models : by number.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.n_bytes = limit, 0
        self.models: dict[int, ModelHost] = {}

    def has_room(self, n_more: int, factor: float = 1.0) -> bool:
        """Tell whether n_more bytes are within the limit times a factor."""
        if self.n_bytes + n_more <= factor * self.limit:
            return True
        for host in self.models.values():
            if host.n_coming:
                host.measure()
        return self.n_bytes + n_more <= factor * self.limit

    def remove(self, host: "ModelHost") -> None:
        """Give back what a deleted model took."""
        del self.models[host.number]
        self.n_bytes -= host.n_bytes + host.n_coming + host.n_pending

    def check(self, host: "ModelHost", n_more: int = 0) -> None:
        """Raise if a model is held, or if there is no room for n_more bytes."""
        if host.why_held:
            raise RefusedError(503, host.why_held, retry_after=60)
        if self.n_bytes + n_more > self.limit and not self.has_room(n_more):
            raise RefusedError(503, self.in_words(host.row.tenant, n_more), retry_after=60)

    @property
    def largest(self) -> "ModelHost | None":
        """The model that takes most."""
        return max(self.models.values(), key=lambda host: host.n_bytes, default=None)

    def in_words(self, tenant: str | None, n_more: int = 0) -> str:
        """Say what takes the memory, to a tenant or, with None, to the operator."""
        text = f"models take {_format_megabytes(self.n_bytes)} of {_format_megabytes(self.limit)}"
        if n_more:
            text += f", and this might take {_format_megabytes(n_more)} more"
        largest = self.largest
        if largest is not None:
            name = largest.row.name
            if tenant is None:
                name += f" of tenant {largest.row.tenant}"
            elif largest.row.tenant != tenant:
                name = "of another tenant"
            text += f"; the largest is {name}, with {_format_megabytes(largest.n_bytes)}"
        return f"{text}: nothing is learned before a model is deleted, or --memory is raised"


def _format_megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.0f} MB"


class ModelHost:
    """A model that the writer changes, and the published copy that all requests read.

    Attributes
    ----------
    version : the number of the last event that is in the state.
    changed : its time, in milliseconds since 1970.
    published : renewed from time to time, so that predictions never wait for the writer.
    may_publish : time (monotonic) from which it may be renewed.
    replay_seconds : approximate time that applying the events since the last snapshot took.
    n_bytes : memory that state and published copy took when they were measured.
    n_coming, n_pending : bytes that events since then may have added; that those may add which
        are not applied yet.
    why_held : where a restart had no room for all events, why this is an earlier version; such a
        model is read, and learns nothing.
    """

    def __init__(
        self,
        row: ModelRow,
        created: CreateEvent,
        state: ModelState,
        last: Entry,
        memory: Memory,
    ) -> None:
        self.row, self.number = row, row.number
        self.created, self.config = created, created.config
        self.state, self.memory = state, memory
        self.version, self.changed = last.seq, last.time
        self.is_agent = bool(created.config.actions)
        self.published = PublishedModel(self.version, state.copy_to_predict())
        self.may_publish = 0.0
        self.why_held = ""
        self.n_bytes = self.n_coming = self.n_pending = 0
        memory.models[self.number] = self
        self.measure()
        self.reset_replay()

    def hold(self) -> None:
        """Stay at this version."""
        self.why_held = (
            f"the model {self.row.name} is shown as of event {self.version}: with later ones all "
            f"models would take more than {_format_megabytes(self.memory.limit)}. It learns "
            "nothing; delete it, or stop the service and start it with more --memory"
        )

    def due(self, now: int) -> int | None:
        """Return until when the label of a prediction made now may come, in milliseconds."""
        wait = self.config.wait
        return None if wait is None else now + round(1000 * wait)

    @property
    def is_published(self) -> bool:
        """Whether the published copy is of the present version."""
        return self.published.version == self.version

    def publish(self) -> None:
        """Replace the published copy by one of the present version."""
        began = time.monotonic()
        if self.is_published:
            return
        self.published = PublishedModel(self.version, self.state.copy_to_predict())
        self.measure()
        ended = time.monotonic()
        self.may_publish = ended + _PUBLISH_INTERVAL_FACTOR * (ended - began)

    def measure(self) -> None:
        """Measure how much memory is taken now."""
        n_before = self.n_bytes + self.n_coming
        self.n_bytes, self.n_coming = self.state.n_bytes, 0
        if self.number in self.memory.models:  # else it was deleted
            self.memory.n_bytes += self.n_bytes - n_before

    def reserve(self, n_bytes: int) -> None:
        """Count bytes that an event may add; raise if there is no room for them."""
        self.memory.check(self, n_bytes)
        self.n_pending += n_bytes
        self.memory.n_bytes += n_bytes

    def expect_labels(self, items: Sequence[Item]) -> dict[int, str]:
        """Reserve memory for labels; return, by index, why some cannot be learned by this model.

        All are refused if there is no room for the others among all models. A label that makes the
        model too large now does so later, whatever comes before it, because a model only grows:
        the journal needs not hold it.
        """
        state = self.state
        if not isinstance(state, ClassifierState) or not items:
            return {}
        refused = {}
        try:
            n_more = state.check_growth(items)
            if n_more and not self.memory.has_room(_N_COPIES * n_more):
                n_more = state.count_bytes_added(items, exactly=True)
        except FolklearnError:
            n_more = 0
            for index, item in enumerate(items):
                try:
                    n_more += state.check_growth([item])
                except FolklearnError as error:
                    refused[index] = str(error)
            n_more = min(n_more, state.n_bytes_left)
        if n_more:
            self.reserve(_N_COPIES * n_more)
        return refused

    def expect_decision(self) -> None:
        """Reserve memory for a decision while it waits; raise if there is none."""
        if isinstance(self.state, NamedAgent):
            self.reserve(self.state.n_bytes_of_decision)

    def has_room_for(self, entry: Entry, find: FindEntry) -> bool:
        """Tell whether a replay may apply an event; reserve what it may add."""
        if not isinstance(self.state, ClassifierState):
            return True
        items = read_items(self.state.labels_in(entry.event), find)
        if not items:
            return True
        for exactly in (False, True):
            with suppress(FolklearnError):  # which is refused again
                n_more = _N_COPIES * self.state.count_bytes_added(items, exactly=exactly)
                is_largest = self.memory.largest in (None, self)
                factor = START_FACTOR if is_largest else _OTHERS_START_FACTOR
                if self.memory.has_room(n_more, factor):
                    self.n_coming += n_more
                    self.memory.n_bytes += n_more
                    return True
        return False

    def reset_replay(self) -> None:
        """Count from a new snapshot what a restart would have to replay."""
        self.replay_seconds, self.n_since_snapshot = 0.0, 0
