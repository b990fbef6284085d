"""A model as it runs in the service: its state, its version, and what others may see of it."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from folklearn.errors import FolklearnError
from folklearn.service import events
from folklearn.service.events import RefusedError
from folklearn.service.journal import Entry, ModelRow
from folklearn.service.states import AgentState, ClassifierState, Find, Item, State, item_of

_COPIES = 5  # of its weights: in the model, its windows, its frozen record, its view, and the next
# As much memory a start may take: a model is now larger, now smaller, and bounds of what events may
# add are not tight. What is left of it is for all but the largest.
TIMES_AT_START, _TIMES_OF_OTHERS = 2.0, 3.0
_BYTES_OF_PREDICTION = 100  # beside those of the labels, and for each of them


class PublishedModel:
    """What a model was at a version: it does not change any more.

    Attributes
    ----------
    n_bytes_of_answer : that a prediction of one row takes as JSON, at most.
    """

    __slots__ = ("n_bytes_of_answer", "state", "version")

    def __init__(self, version: int, state: Any) -> None:
        self.version, self.state = version, state
        labels = () if state is None else state.labels
        self.n_bytes_of_answer = len(msgspec.json.encode(labels)) * 2
        self.n_bytes_of_answer += _BYTES_OF_PREDICTION * (1 + len(labels))


class Memory:
    """What all models of a folder and what is published of them take, against what they may.

    Attributes
    ----------
    limit : bytes, about.
    models : by number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.models: dict[int, ModelHost] = {}

    @property
    def n_bytes(self) -> int:
        """What is taken now, and would be by events that are under way, about."""
        models = list(self.models.values())
        return sum(host.n_bytes + host.n_coming + host.n_pending for host in models)

    def has_room(self, n_more: int, times: float = 1.0) -> bool:
        """Tell whether so many bytes more are within the limit, or within some times as much."""
        if self.n_bytes + n_more <= times * self.limit:
            return True
        for host in self.models.values():
            if host.n_coming:
                host.measure()
        return self.n_bytes + n_more <= times * self.limit

    def check(self, host: "ModelHost", n_more: int = 0) -> None:
        """Refuse to let a model grow where there is no room for all; say which takes most."""
        if host.is_held:
            raise RefusedError(503, host.why_held, retry_after=60)
        if not self.has_room(n_more):
            raise RefusedError(503, self.in_words(host.row.tenant, n_more), retry_after=60)

    @property
    def largest(self) -> "ModelHost | None":
        """The model that takes most."""
        return max(self.models.values(), key=lambda host: host.n_bytes, default=None)

    def in_words(self, tenant: str | None, n_more: int = 0) -> str:
        """Say what takes the memory, to a tenant or, with None, to whoever starts the service."""
        text = f"models take {_megabytes(self.n_bytes)} of {_megabytes(self.limit)} MB"
        if n_more:
            text += f", and this might take {_megabytes(n_more)} MB more"
        largest = self.largest
        if largest is not None:
            row, size = largest.row, _megabytes(largest.n_bytes)
            if tenant is None:
                name = f"the largest is {row.name} of tenant {row.tenant}"
            else:
                is_own = row.tenant == tenant
                name = f"the largest is {row.name if is_own else 'of another tenant'}"
            text += f"; {name}, with {size} MB"
        return f"{text}: nothing is learned before a model is deleted, or --memory is raised"


def _megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.0f}"


class ModelHost:
    """A model that the writer changes, and the view that everybody else reads.

    Attributes
    ----------
    version : the number of the last event that is in the state.
    view : published from time to time, so that predictions never wait for the writer.
    replay_seconds : that applying the events since the last snapshot took, about.
    n_bytes : memory that state and view took when they were measured.
    n_coming, n_pending : bytes that events since then may have added; that those may add which
        are not applied yet.
    why_held : where a restart had no room for all events, why this is an earlier version; such a
        model is read, and learns nothing.
    """

    _SHARE = 5.0  # times the cost of a view that must lie between two of them

    def __init__(
        self,
        row: ModelRow,
        created: events.Created | events.Imported,
        state: State,
        version: int,
        memory: Memory,
    ) -> None:
        self.row, self.created, self.state, self.version = row, created, state, version
        self.replay_seconds = 0.0
        self.n_since_snapshot = 0
        self.view = PublishedModel(version, state.view())
        self._may_publish = 0.0
        self.memory, self.why_held = memory, ""
        self.n_bytes = self.n_coming = self.n_pending = 0
        self.measure()
        memory.models[self.number] = self

    @property
    def number(self) -> int:
        """The number of the model in the journal."""
        return self.row.number

    @property
    def config(self) -> events.Config:
        """What the model was made to be."""
        return self.created.config

    @property
    def is_held(self) -> bool:
        """Whether it is an earlier version, because there was no room for the last one."""
        return bool(self.why_held)

    def hold(self) -> None:
        """Stay at this version."""
        self.why_held = (
            f"the model {self.row.name} is shown as of event {self.version}: with later ones all "
            f"models would take more than {_megabytes(self.memory.limit)} MB. It learns nothing; "
            "delete it, or stop the service and start it with more --memory"
        )

    def due(self, now: int) -> int | None:
        """Return until when something asked now may be told, in milliseconds."""
        wait = self.config.wait
        return None if wait is None else now + round(1000 * wait)

    @property
    def is_published(self) -> bool:
        """Whether the view is of the present version."""
        return self.view.version == self.version

    def applied(self) -> None:
        """Note that what was expected is in the state."""
        self.n_coming, self.n_pending = self.n_coming + self.n_pending, 0

    def publish(self, *, now: bool = False) -> None:
        """Let others see the present state, unless that was done a moment ago."""
        began = time.monotonic()
        if self.is_published or (began < self._may_publish and not now):
            return
        self.view = PublishedModel(self.version, self.state.view())
        self.measure()
        ended = time.monotonic()
        self._may_publish = ended + self._SHARE * (ended - began)

    def measure(self) -> None:
        """See how much memory is taken now."""
        self.n_bytes, self.n_coming = self.state.n_bytes, 0

    def expect(self, items: Sequence[Item]) -> dict[int, str]:
        """Count labels that come; return, by place, why some cannot be learned by this model.

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
            if not self.memory.has_room(_COPIES * n_more):
                n_more = state.n_bytes_more(items, exactly=True)
        except FolklearnError:
            n_more = 0
            for at, item in enumerate(items):
                try:
                    n_more += state.check_growth([item])
                except FolklearnError as error:
                    refused[at] = str(error)
            n_more = min(n_more, state.n_bytes_left)
        self.memory.check(self, _COPIES * n_more)
        self.n_pending += _COPIES * n_more
        return refused

    def expect_decision(self) -> None:
        """Refuse a decision that there is no room for while it waits."""
        if isinstance(self.state, AgentState):
            n_more = self.state.named_agent.n_bytes_of_decision
            self.memory.check(self, n_more)
            self.n_pending += n_more

    def has_room_for(self, entry: Entry, find: Find) -> bool:
        """Tell whether a replay may take in an event; count what it may add."""
        if not isinstance(self.state, ClassifierState):
            return True
        items = [item_of(one, find) for one in self.state.labels_of(entry.event)]
        if not items:
            return True
        for exactly in (False, True):
            with suppress(FolklearnError):  # which is refused again
                n_more = _COPIES * self.state.n_bytes_more(items, exactly=exactly)
                is_largest = self.memory.largest in (None, self)
                times = TIMES_AT_START if is_largest else _TIMES_OF_OTHERS
                if self.memory.has_room(n_more, times):
                    self.n_coming += n_more
                    return True
        return False

    def snapshotted(self) -> None:
        """Count anew what a restart would have to replay."""
        self.replay_seconds, self.n_since_snapshot = 0.0, 0
