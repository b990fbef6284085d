"""A model as it runs in the service: its state, its version, and what others may see of it."""

import time
from typing import Any

from folklearn.service import events
from folklearn.service.journal import ModelRow
from folklearn.service.states import State


class View:
    """What a model was at a version: it does not change any more."""

    __slots__ = ("state", "version")

    def __init__(self, version: int, state: Any) -> None:
        self.version, self.state = version, state


class Hosted:
    """A model that the writer changes, and the view that everybody else reads.

    Attributes
    ----------
    version : the number of the last event that is in the state.
    view : published from time to time, so that predictions never wait for the writer.
    replay_seconds : that applying the events since the last snapshot took, about.
    """

    _SHARE = 5.0  # times the cost of a view that must lie between two of them

    def __init__(
        self, row: ModelRow, created: events.Created | events.Imported, state: State, version: int
    ) -> None:
        self.row, self.created, self.state, self.version = row, created, state, version
        self.replay_seconds = 0.0
        self.n_since_snapshot = 0
        self.view = View(version, state.view())
        self._may_publish = 0.0

    @property
    def number(self) -> int:
        """The number of the model in the journal."""
        return self.row.number

    @property
    def config(self) -> events.Config:
        """What the model was made to be."""
        return self.created.config

    def due(self, now: int) -> int | None:
        """Return until when something asked now may be told, in milliseconds."""
        wait = self.config.wait
        return None if wait is None else now + round(1000 * wait)

    @property
    def is_published(self) -> bool:
        """Whether the view is of the present version."""
        return self.view.version == self.version

    def publish(self, *, now: bool = False) -> None:
        """Let others see the present state, unless that was done a moment ago."""
        began = time.monotonic()
        if self.is_published or (began < self._may_publish and not now):
            return
        self.view = View(self.version, self.state.view())
        ended = time.monotonic()
        self._may_publish = ended + self._SHARE * (ended - began)

    def snapshotted(self) -> None:
        """Count anew what a restart would have to replay."""
        self.replay_seconds, self.n_since_snapshot = 0.0, 0
