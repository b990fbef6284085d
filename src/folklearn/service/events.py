"""Requests, the events they become, and answers.

A request that changes a model is the event that the journal keeps. An event is data alone: what is
not a function of earlier events (time, a prediction that was made) is written into it, so that a
replay gives the same bytes on the same machine and build. `tag` is its kind in the journal.
"""

import os
import time
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from folklearn.errors import FolklearnError
from folklearn.evaluate.prediction_sets import COVERAGE
from folklearn.service.limits import MAX_LABEL_LETTERS, MAX_NAME_LETTERS, MAX_TEXT_LETTERS


class Answer(NamedTuple):
    """A status of HTTP and a body as plain data."""

    status: int
    body: Any


class DerivedAnswer(Answer):
    """An answer that follows from its event alone: the journal need not keep it."""


class RefusedError(FolklearnError):
    """A request that is not done; with `retry_after` a repetition after so many seconds may be.

    `limit` is the limit that it is beyond, such as "classes=1000".
    """

    def __init__(
        self, status: int, sentence: str, *, retry_after: int | None = None, limit: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status, self.retry_after, self.limit = status, retry_after, limit

    @classmethod
    def of(cls, error: FolklearnError) -> "RefusedError":
        return error if isinstance(error, cls) else cls(422, str(error))

    @property
    def answer(self) -> Answer:
        body: dict[str, Any] = {"status": self.status, "detail": str(self)}
        optional = {"retry_after": self.retry_after, "limit": self.limit or None}
        body |= {name: value for name, value in optional.items() if value is not None}
        return Answer(self.status, body)


# The limits of lengths may be raised and never lowered: journals are read with these types.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LETTERS)]
_ClassName = Annotated[str, msgspec.Meta(max_length=MAX_LABEL_LETTERS)]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LETTERS)]
Row = dict[_Name, _Text | Int64 | float | bool | None]
Actions = list[_Name] | dict[_Name, Row]  # with features, or by name alone
_LabelText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LABEL_LETTERS)]
Label = _LabelText | Int64 | float | bool | dict[_LabelText, float]
_Weight = Annotated[float, msgspec.Meta(ge=0.0)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]


class Config(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Configuration of a model: a classifier of rows, or an agent that decides.

    Attributes
    ----------
    learner, roles, crosses, classes, class_weight, missing, settings : as for `folklearn.Model`.
    terms : as for `folklearn.Model`, but "none" by default: a label takes twice as long with them.
    windows : whether windows have lower bounds, which takes about twice the time.
    coverage, coverage_by : of prediction sets, as for `folklearn.Model`.
    wait : seconds that a label, or a reward, may be late.
    default : the label, or the reward, of what has not come by then; without one it is dropped.
    context : columns by name, "number" or the list of a category's values: then it is an agent,
        which decides, and learns rewards.
    actions : names of the actions of an agent, or their features by name, where a decision lists
        none itself.
    seed : of the draws of an agent.
    """

    learner: str = "auto"
    roles: dict[_Name, str] = {}
    crosses: list[tuple[_Name, _Name]] = []
    classes: list[_ClassName | Int64 | float | bool] = []
    class_weight: dict[_ClassName, float] | None = None
    missing: list[_ClassName | Int64 | float] = []
    settings: dict[str, str | Int64 | float | bool | None] = {}
    terms: Literal["none", "auto", "all"] = "none"
    windows: bool = True
    coverage: tuple[_Share, ...] = COVERAGE
    coverage_by: Literal["all", "class"] = "all"
    wait: _Seconds | None = None
    default: _ClassName | Int64 | float | bool | None = None
    actions: Actions = []
    context: dict[_Name, str | list[_Name]] = {}
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0

    @property
    def is_agent(self) -> bool:
        return bool(self.context or self.actions)


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A row to be predicted.

    With `remember` its label may come later, by the id of the answer; with `durable` the answer
    waits until that is on the disk. With `at_least` it waits for a version. With `coverage`, one of
    those of the model, the answer has the `set` of labels that the row may have.
    """

    row: Row
    remember: bool = True
    durable: bool = False
    at_least: int = 0
    coverage: _Share | None = None


class PredictBatchRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Rows to be predicted together."""

    rows: list[Row]
    remember: bool = False
    at_least: int = 0
    coverage: _Share | None = None


class ExplainRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A row whose prediction is to be explained."""

    row: Row
    at_least: int = 0


class JournalEvent(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """A change of a model."""


class ModelSize(NamedTuple):
    """Sizes of a model that limits bound; `learner` is approximate, in bytes."""

    classes: int
    columns: int
    features: int
    places: int
    learner: int


class CreateEvent(JournalEvent, frozen=True, tag="created"):
    """The first event of a model: its configuration, and the size that it may grow to."""

    config: Config
    limits: ModelSize
    # A model that `Model.save` wrote, to begin with; empty once there is a base.
    file: bytes | None = None


class PredictionEvent(JournalEvent, frozen=True, tag="asked"):
    """A row that was predicted by a version; its label may come later, by the id of the event.

    `thresholds` are those of its prediction sets, by coverage.
    """

    row: Row
    p: list[float]
    unseen: float
    version: int
    thresholds: list[list[float]] | None = None


class PredictionsRequest(msgspec.Struct, frozen=True, tag_field="type", tag="predictions"):
    """Predictions to be remembered together, each under its id."""

    items: list[tuple[UUID, PredictionEvent]]


class LabelEvent(JournalEvent, frozen=True, tag="learned"):
    """A label, for a row or for the id of a prediction."""

    label: Label
    row: Row | None = None
    id: UUID | None = None
    weight: _Weight = 1.0

    def __post_init__(self) -> None:
        if (self.row is None) == (self.id is None):
            raise ValueError("a label comes with its row, or with the id of a prediction")


class LabelsRequest(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="type", tag="labels"
):
    """Labels to be learned together, in order."""

    items: list[LabelEvent]


class LabelsEvent(JournalEvent, frozen=True, tag="learnedmany"):
    """The labels of a request, None for those that `already` were learned, or are `refused`."""

    items: list[LabelEvent | None]
    already: int = 0
    refused: list[dict[str, int | str]] = []  # item (its index), status, ...: as in the answer


class RefusalEvent(JournalEvent, frozen=True, tag="refused"):
    """A request with an Idempotency-Key that was refused: the key is used, the content not kept."""

    status: int
    detail: str
    limit: str = ""


class DecisionEvent(JournalEvent, frozen=True, tag="decided"):
    """The context in which an agent has to choose, and the actions that it may choose from."""

    context: Row
    actions: Actions | None = None


class RewardEvent(JournalEvent, frozen=True, tag="rewarded"):
    """The reward of a decision, from 0 to 1."""

    id: UUID
    reward: _Share


class ExpiryEvent(JournalEvent, frozen=True, tag="expired"):
    """Predictions or decisions whose label or reward did not come in time."""

    ids: list[UUID]


class ReleaseEvent(JournalEvent, frozen=True, tag="released"):
    """The model lets go of the rows that it keeps."""


class EraseRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Rows that are to be forgotten, by a value of a column, or by ids of predictions or decisions.

    The model keeps what it learned of them, in sums and weights, unless it is to `rebuild`: then it
    learns all other labels again.
    """

    column: _Name | None = None
    value: _Text | Int64 | float | bool | None = None
    ids: list[UUID] = []
    rebuild: bool = False

    def __post_init__(self) -> None:
        if (self.column is None) != (self.value is None) or (self.column is None) != bool(self.ids):
            raise ValueError("say which rows: a column and its value, or ids")


class EraseEvent(JournalEvent, frozen=True, tag="erased"):
    """Rows were erased: how many, and in numbers alone what the model forgets with them.

    `categories` are positions in its encoder, `decisions` numbers of events.
    """

    rows: int
    categories: list[int] = []
    decisions: list[int] = []
    rebuilt: bool = False


class RemovedEvent(JournalEvent, frozen=True, tag="removed"):
    """What stands where an event was removed, and its Idempotency-Key must be recognised."""


class DeleteEvent(JournalEvent, frozen=True, tag="deleted"):
    """The last event of a model."""


ChangeRequest = (
    PredictionsRequest
    | LabelEvent
    | LabelsRequest
    | DecisionEvent
    | RewardEvent
    | ExpiryEvent
    | ReleaseEvent
)


def names_predictions(request: ChangeRequest) -> bool:
    """Tell whether a request has labels of predictions that were made before."""
    items = request.items if isinstance(request, LabelsRequest) else (request,)
    return any(isinstance(label, LabelEvent) and label.id is not None for label in items)


encode_event = msgspec.msgpack.Encoder(uuid_format="bytes").encode
AnyEvent: Any = reduce(or_, JournalEvent.__subclasses__())
_decoder: Any = msgspec.msgpack.Decoder(AnyEvent)


def decode_event(content: bytes) -> Any:
    try:
        return _decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise RefusedError(422, str(error)) from None


def time_of_id(text: str) -> int:
    """Return the milliseconds since 1970 in a UUID of version 7, 0 for any other text."""
    with suppress(ValueError):
        id = UUID(text)
        return id.int >> 80 if id.version == 7 else 0
    return 0


def new_id(now: int | None = None) -> UUID:
    """Return a new UUID of version 7: an index over keys without time is slower to write."""
    random = int.from_bytes(os.urandom(10)) & ~(0xF << 76 | 3 << 62)
    now = time.time_ns() // 1_000_000 if now is None else now
    return UUID(int=now << 80 | 7 << 76 | 2 << 62 | random)
