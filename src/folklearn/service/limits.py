"""How much the service takes on, so that overload is answered and memory stays bounded.

The table of the guide (docs/guide/serve.md) and the answer of ``GET /v1/limits`` are made from
`Limits`: a limit that is not here does not exist.
"""

import dataclasses
import re
from typing import Any, Literal, get_args

from folklearn.errors import InvalidInputError

MAX_LABEL_LETTERS = 200
MAX_NAME_LETTERS = 200
MAX_TEXT_LETTERS = 100_000


def _limit(most: Any, unit: str, what: str, answer: str = "422", **options: Any) -> Any:
    metadata = {"unit": unit, "what": what, "answer": answer}
    return dataclasses.field(default=most, metadata=metadata, **options)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What is refused, and when; the limits of a model are written into its first event."""

    body: int = _limit(1_000_000, "bytes", "a request", "413")
    batch: int = _limit(10_000, "rows", "a request")
    label: int = _limit(MAX_LABEL_LETTERS, "letters", "a label", init=False)
    name: int = _limit(MAX_NAME_LETTERS, "letters", "the name of a column or an action", init=False)
    text: int = _limit(MAX_TEXT_LETTERS, "letters", "the value of a column", init=False)
    models: int = _limit(100, "models", "a tenant")
    classes: int = _limit(1_000, "classes", "a model")
    columns: int = _limit(10_000, "columns", "a model")
    features: int = _limit(
        20_000, "features", "a model without words: numbers, parts of dates, categories"
    )
    places: int = _limit(
        200_000, "hashed places", "a model with words: words, pairs of words, categories"
    )
    learner: int = _limit(
        100_000_000,
        "bytes",
        "the learner of a model, by its classes and features or places; of an agent, by its "
        "actions and the square of its context",
    )
    growth: int = _limit(
        20_000_000_000,
        "bytes a minute",
        "the learners to which labels of one key bring new classes and columns: a learner counts "
        "once for each class, and once for the columns of a request",
        "429",
    )
    memory: int = _limit(1_000_000_000, "bytes", "all models and their published copies", "503")
    copies: int = _limit(1_000_000_000, "bytes", "all copies of models that are looked at", "503")
    answer: int = _limit(50_000_000, "bytes", "an answer")
    traffic: int = _limit(
        300_000_000, "bytes", "all requests and answers on their way, those above 64 kB", "503"
    )
    unread: float = _limit(30.0, "seconds", "a client that reads none of a long answer", "cut off")
    queued_events: int = _limit(10_000, "requests", "the queue of the writer", "429")
    queued_bytes: int = _limit(64_000_000, "bytes", "the queue of the writer", "429")
    deadline: float = _limit(5.0, "seconds", "a request in the queue; then it is not done", "503")
    free_disk: int = _limit(
        256_000_000, "bytes", "free on the disk, at least; below, nothing is learned", "503"
    )
    replay: float = _limit(
        5.0, "seconds", "what a restart replays of a model, about", "a snapshot is written"
    )
    keep_days: float | None = _limit(None, "days", "the age of events and rows", "removed")
    keep_bytes: int | None = _limit(None, "bytes", "the journal", "the oldest events are removed")
    archive: bool = False  # whether what is removed goes into files first

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"name": field.name, "limit": getattr(self, field.name), **field.metadata}
            for field in dataclasses.fields(self)
            if field.metadata and getattr(self, field.name) is not None
        ]


Scope = Literal["predict", "learn", "read", "admin"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_SCOPES: tuple[Scope, ...] = ("predict", "learn", "read")  # of a key

NAME_PATTERN = "^[a-z0-9][a-z0-9_-]{0,62}$"


def check_name(what: str, name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidInputError(
            f"{what} {name!r} must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or a "
            "digit"
        )
