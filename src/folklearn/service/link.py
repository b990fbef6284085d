"""The socket between a worker process and its parent, and what they say to each other.

Messages are msgpack, each behind its length; `number` is that of a request.
"""

import asyncio
import struct
from collections.abc import Callable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

from folklearn.service import events

_LENGTH = struct.Struct("<I")


def http_path(path: Path) -> str:
    """Return the socket on which the parent answers requests, beside that of its messages."""
    return f"{path}.http"


class Message(msgspec.Struct, array_like=True, frozen=True):
    """What a worker or its parent says."""


class ForwardedChange(Message, tag=5, frozen=True):
    """A change of a model, see `Change`."""

    number: int
    tenant: str
    name: str
    model: int
    request: events.ChangeRequest
    key: str | None
    client: str
    n_bytes: int


class ChangeAnswered(Message, tag=6, frozen=True):
    """The answer to a change."""

    number: int
    status: int
    body: Any


class Observed(Message, tag=7, frozen=True):
    """What a worker has answered itself: method, path, status, seconds."""

    answers: list[tuple[str, str, int, float]]


class Gather(Message, tag=8, frozen=True):
    """A question, and its answer: everything that was remembered before it has been sent."""


class ModelPublished(Message, tag=9, frozen=True):
    """A model as it is now, see `PublishedModel.content`."""

    number: int
    tenant: str
    name: str
    is_agent: bool
    version: int
    content: bytes


class ModelDeleted(Message, tag=10, frozen=True):
    """A model that there is no more."""

    tenant: str
    name: str


class AllPublished(Message, tag=11, frozen=True):
    """Every model was sent once."""


_encode = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder(reduce(or_, Message.__subclasses__())).decode


class Connection(asyncio.Protocol):
    """One end of the socket between a worker and its parent."""

    receive: Callable[[Any], None]  # a message

    def __init__(self) -> None:
        self._content, self.can_write = bytearray(), True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        content, start = self._content, 0
        content += data
        while len(content) - start >= _LENGTH.size:
            stop = start + _LENGTH.size + _LENGTH.unpack_from(content, start)[0]
            if len(content) < stop:
                break
            self.receive(_decode(memoryview(content)[start + _LENGTH.size : stop]))
            start = stop
        self._content = content[start:] if start else content

    def send(self, message: Message) -> None:
        if not self._transport.is_closing():
            content = _encode(message)
            self._transport.write(_LENGTH.pack(len(content)) + content)

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
