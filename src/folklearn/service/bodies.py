"""What requests hold, checked field by field: an unknown field or a wrong type is refused."""

from typing import Annotated
from uuid import UUID

import msgspec

from folklearn.service.events import Config, Whole
from folklearn.service.limits import (
    MOST_LETTERS_OF_LABEL,
    MOST_LETTERS_OF_NAME,
    MOST_LETTERS_OF_TEXT,
)

# Narrower than those of `events`, which must read whatever a journal holds.
_Name = Annotated[str, msgspec.Meta(max_length=MOST_LETTERS_OF_NAME)]
_Value = Annotated[str, msgspec.Meta(max_length=MOST_LETTERS_OF_TEXT)]
Row = dict[_Name, _Value | Whole | float | bool | None]
_LabelText = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_LETTERS_OF_LABEL)]
Label = _LabelText | Whole | float | bool | dict[_LabelText, float]
_Weight = Annotated[float, msgspec.Meta(ge=0.0)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of a request."""


class PredictBody(Body, frozen=True):
    """A row to be predicted.

    With `remember` its label can be told later by the id of the answer; with `durable` the answer
    waits until that is on the disk. With `at_least` it waits for a version.
    """

    row: Row
    remember: bool = True
    durable: bool = False
    at_least: int = 0


class PredictManyBody(Body, frozen=True):
    """Rows to be predicted together."""

    rows: list[Row]
    remember: bool = False
    at_least: int = 0


class LearnBody(Body, frozen=True):
    """A label, for a row or for the id of a prediction."""

    label: Label
    row: Row | None = None
    id: UUID | None = None
    weight: _Weight = 1.0


class LearnManyBody(Body, frozen=True):
    """Labels to be learned together, in order."""

    items: list[LearnBody]


class DecideBody(Body, frozen=True):
    """What is known when an agent has to choose."""

    context: Row


class RewardBody(Body, frozen=True):
    """What came of a decision, from 0 to 1."""

    id: UUID
    reward: _Share


CreateBody = Config
