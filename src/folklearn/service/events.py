"""What the journal holds: everything that changes a model, in order.

An event is data alone. What is not a function of earlier events - time, draws of another machine,
what a prediction was - is written into it, so that replay gives the same bytes on the same
machine and build.
"""

from typing import Annotated, Any

import msgspec

from folklearn.service.answers import RefusedError
from folklearn.service.limits import UNLIMITED

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
