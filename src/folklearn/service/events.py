"""What the journal holds: everything that changes a model, in order.

An event is data alone. What is not a function of earlier events - time, draws of another machine,
what a prediction was - is written into it, so that replay gives the same bytes on the same
machine and build.
"""

import os
import threading
import time
import uuid
from typing import Annotated, Any, NamedTuple

import msgspec

from folklearn.errors import FolklearnError
from folklearn.service.limits import UNLIMITED


class Answer(NamedTuple):
    """A status of HTTP and a body, as plain data."""

    status: int
    body: Any


class RefusedError(FolklearnError):
    """A request that is not done; nothing has changed.

    Attributes
    ----------
    status : of HTTP.
    retry_after : seconds after which it may be tried again, None if that is of no use.
    """

    def __init__(self, status: int, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after

    @property
    def answer(self) -> Answer:
        """The refusal as an answer."""
        body: dict[str, Any] = {"status": self.status, "detail": str(self)}
        if self.retry_after is not None:
            body["retry_after"] = self.retry_after
        return Answer(self.status, body)


def packed(answer: Answer) -> bytes:
    """Return an answer as the journal keeps it."""
    return msgspec.json.encode(answer)


def unpacked(content: bytes) -> Answer:
    """Return what `packed` wrote."""
    return Answer(*msgspec.json.decode(content))


Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Cell = str | Whole | float | bool | None
Row = dict[str, Cell]
_Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]  # an empty label is a gap, and no class
Label = _Text | Whole | float | bool | dict[str, float]


class Config(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a model is to be: a classifier of rows, or an agent that decides.

    Attributes
    ----------
    learner, roles, crosses, classes, class_weight, settings : as for `folklearn.Model`.
    windows : whether windows have floors, which takes about twice the time.
    wait : seconds that a label, or a reward, may be late.
    default : the label, or the reward, of what nobody has told by then; without one it is dropped.
    actions : names of the actions of an agent; then it decides, and learns rewards.
    context : what an agent knows, by name: "number", or the list of the values of a category.
    seed : of the draws of an agent.
    """

    learner: str = "auto"
    roles: dict[str, str] = {}
    crosses: list[tuple[str, str]] = []
    classes: list[str | Whole | float | bool] = []
    class_weight: dict[str, float] | None = None
    settings: dict[str, Cell] = {}
    windows: bool = True
    wait: _Seconds | None = None
    default: Cell = None
    actions: list[str] = []
    context: dict[str, str | list[str]] = {}
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0

    @property
    def decides(self) -> bool:
        """Whether it is an agent."""
        return bool(self.actions)


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag=str.lower):
    """Something that happened to a model."""


class Created(Event, frozen=True):
    """A model begins, with the sizes that it may grow to (see `limits.Limits`)."""

    config: Config
    max_classes: int
    max_columns: int
    max_features: int = UNLIMITED
    max_places: int = UNLIMITED
    max_learner: int = UNLIMITED


class Imported(Event, frozen=True):
    """A model begins as a file that was saved elsewhere."""

    config: Config
    max_classes: int
    max_columns: int
    file: bytes
    max_features: int = UNLIMITED
    max_places: int = UNLIMITED
    max_learner: int = UNLIMITED


class Asked(Event, frozen=True):
    """A row was predicted from a version; its label may come later."""

    row: Row
    p: list[float]
    unseen: float
    version: int


class Learned(Event, frozen=True):
    """A label came, for a row or for one that was asked (by the number of that event)."""

    label: Label
    row: Row | None = None
    of: int | None = None
    weight: float = 1.0


class Left(msgspec.Struct, frozen=True, array_like=True):
    """An item of a request that is not learned: its place, a status of HTTP, and why."""

    place: int
    status: int
    detail: str


class LearnedMany(Event, frozen=True):
    """Labels came together; some were told before, and some are refused: both are left out."""

    items: list[Learned]
    already: int = 0
    refused: list[Left] = []
    places: list[int] | None = None  # of the items in the request, if some were left out


class Refused(Event, frozen=True):
    """A request with a key that the model has no place for: only that it was refused is kept."""

    status: int
    detail: str


class Decided(Event, frozen=True):
    """An agent was asked what to do."""

    context: Row


class Rewarded(Event, frozen=True):
    """What came of a decision."""

    of: int
    reward: float


class Expired(Event, frozen=True):
    """Labels or rewards did not come in time."""

    of: list[int]


class Deleted(Event, frozen=True):
    """A model ends."""


AnyEvent = (
    Created
    | Imported
    | Asked
    | Learned
    | LearnedMany
    | Refused
    | Decided
    | Rewarded
    | Expired
    | Deleted
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """Return an event as bytes."""
    return _encoder.encode(event)


def decode(content: bytes) -> Any:
    """Return the event that was encoded; refuse what no journal holds."""
    try:
        return _decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise RefusedError(422, str(error)) from None


_lock = threading.Lock()
_last = 0


def new_id() -> uuid.UUID:
    """Return a new identifier, above all that this process has made.

    Time ordered, because an index over random keys is several times slower to write.
    """
    global _last
    with _lock:
        _last = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        stamp = _last
    random = int.from_bytes(os.urandom(8)) & (1 << 62) - 1
    milliseconds, counter = stamp >> 12, stamp & 0xFFF
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | counter << 64 | 2 << 62 | random)


def read_id(text: str) -> uuid.UUID | None:
    """Return an identifier that was written as text, None if it is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
