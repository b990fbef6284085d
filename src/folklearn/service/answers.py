"""What the service says: an answer, or a refusal with a status and a sentence."""

from typing import Any, NamedTuple

import msgspec

from folklearn.errors import FolklearnError


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
