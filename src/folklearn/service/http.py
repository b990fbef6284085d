"""From HTTP to a handler and back: keys, sizes, types, and every failure a sentence."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from folklearn.errors import FolklearnError, StateFileError
from folklearn.service.events import RefusedError
from folklearn.service.keys import Key, is_whole

if TYPE_CHECKING:
    from folklearn.service.service import Service
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from folklearn.service.limits import Limits

log = logging.getLogger("folklearn.service")

_JSON = b"application/json"
_PROBLEM = b"application/problem+json"


_FREE_BYTES = 65_536  # of a request or an answer, so that small ones pass while large ones wait


class Share:
    """What one request holds of the traffic until it is answered."""

    def __init__(self, traffic: "Traffic") -> None:
        self._traffic, self.n_bytes = traffic, 0

    def take(self, n_bytes: int) -> None:
        """Hold so many bytes in all, or refuse to."""
        more = max(0, n_bytes - _FREE_BYTES) - self.n_bytes
        if more > 0:
            traffic = self._traffic
            if traffic.n_bytes + more > traffic.limits.traffic:
                raise RefusedError(
                    503,
                    "too many large requests and answers are on their way: try again, and read "
                    "answers as they come",
                    retry_after=5,
                )
            traffic.n_bytes += more
            self.n_bytes += more

    async def send(self, send: Send, content: bytes) -> None:
        """Send the body of an answer as fast as it is read; leave who reads nothing."""
        for start in range(0, len(content), _FREE_BYTES):
            part = content[start : start + _FREE_BYTES]
            has_more = start + len(part) < len(content)
            message = {"type": "http.response.body", "body": part, "more_body": has_more}
            with suppress(TimeoutError):
                async with asyncio.timeout(self._traffic.limits.unread if start else None):
                    await send(message)
                continue
            return  # the server hangs up on an answer that is not whole
        if not content:
            await send({"type": "http.response.body", "body": b""})


class Traffic:
    """Requests that are read and answers that are sent, large ones, in bytes."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.n_bytes = limits, 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Give a request its share, and take it back."""
        own = Share(self)
        try:
            yield own
        finally:
            self.n_bytes -= own.n_bytes


@dataclass(frozen=True)
class Call:
    """A request that may be done: by whom, about which model, with what content."""

    service: "Service"
    key: Key
    host: Any  # the model, `ModelHost`, where the path names one that is there
    name: str
    body: Any
    n_bytes: int  # of the content
    headers: dict[bytes, bytes]
    share: Share  # of the traffic

    @property
    def idempotency_key(self) -> str | None:
        """The key under which a repeated request is known."""
        given = self.headers.get(b"idempotency-key")
        if given is None:
            return None
        text = given.decode("latin-1")
        if not (0 < len(text) <= 64 and text.isascii() and text.isprintable()):
            raise RefusedError(400, "an Idempotency-Key has 1 to 64 printable ASCII characters")
        return text


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True)
class Endpoint:
    """One route of the service: who may use it, what it takes, and what it does.

    Attributes
    ----------
    path : with ``{name}`` where the name of a model stands.
    scope : that the key must have; None if no key is needed.
    body : type of the content, None if there is none.
    finds : whether the model must be there.
    repeats : whether an Idempotency-Key is heeded.
    """

    method: str
    path: str
    scope: Any
    handler: Handler
    body: Any = None
    finds: bool = True
    repeats: bool = False
    status: int = 200

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.handler.__doc__ or "").partition("\n")[0]


class EndpointApp:
    """An endpoint as an application of ASGI."""

    def __init__(self, service: "Service", endpoint: Endpoint) -> None:
        self.service, self.endpoint = service, endpoint
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began = time.perf_counter()
        with self.service.traffic.share() as share:
            try:
                answer = await self._answered(scope, receive, share)
            except RefusedError as refusal:
                answer = refusal
            except StateFileError:  # of the folder, which is no fault of the request
                answer = self._failure()
            except FolklearnError as error:
                answer = RefusedError(422, str(error))
            except Exception:
                answer = self._failure()
            status = await respond(answer, scope, receive, send, share, self.service.limits.answer)
        self.service.metrics.answered(
            self.endpoint.method, self.endpoint.path, status, time.perf_counter() - began
        )

    def _failure(self) -> RefusedError:
        log.exception("%s %s failed", self.endpoint.method, self.endpoint.path)
        return RefusedError(500, "the service failed; its log says why")

    async def _answered(self, scope: Scope, receive: Receive, share: Share) -> Any:
        endpoint, service = self.endpoint, self.service
        headers = dict(scope["headers"])
        name = scope["path_params"].get("name", "")
        key = NOBODY if endpoint.scope is None else self._allowed(headers, name)
        content = await read_body(receive, headers, service.limits.body, share)
        host = None
        if name and endpoint.finds:
            host = service.store.find(key.tenant, name)
            if host is None:
                raise RefusedError(404, f"there is no model {name!r}")
        body = None if self._decoder is None else _decoded(self._decoder, content)
        call = Call(service, key, host, name, body, len(content), headers, share)
        return await endpoint.handler(call)

    def _allowed(self, headers: dict[bytes, bytes], name: str) -> Key:
        key = self.service.key_of(headers, with_session=self.endpoint.method == "GET")
        if not key.allows(self.endpoint.scope, name or None):
            what = f"on the model {name!r}" if name else "on all models of the tenant"
            raise RefusedError(403, f"this key lacks the scope {self.endpoint.scope!r} {what}")
        return key


NOBODY = Key("", "", None, frozenset(), "", 0, None, None)


def bearer(headers: dict[bytes, bytes]) -> str | None:
    """Return the key that a request brings; refuse one that is no key at all."""
    given = headers.get(b"authorization")
    if given is None:
        return None
    kind, _, text = given.decode("latin-1").partition(" ")
    if kind.lower() != "bearer" or not is_whole(text.strip()):
        raise RefusedError(
            401, "the Authorization header must be 'Bearer flk_...', with a whole key"
        )
    return text.strip()


async def read_body(
    receive: Receive, headers: dict[bytes, bytes], most: int, share: Share | None = None
) -> bytes:
    """Return the content of a request, unless it is too large."""
    stated = headers.get(b"content-length", b"0")
    if not stated.isdigit() or int(stated) > most:
        raise RefusedError(413, f"a request may have {most:,} bytes")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the request was cut off")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise RefusedError(413, f"a request may have {most:,} bytes")
        if share is not None:
            share.take(size)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _decoded(decoder: Any, content: bytes) -> Any:
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        raise RefusedError(422, f"the request is not as it should be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            400, f"the request is not JSON: {error}; a gap is null, and NaN is no JSON"
        ) from None
    except RecursionError:
        raise RefusedError(400, "the request is nested too deeply") from None


async def respond(
    answer: Any,
    scope: Scope,
    receive: Receive,
    send: Send,
    share: Share | None = None,
    most: int | None = None,
) -> int:
    """Send an answer, a refusal, or a response of Starlette; return its status.

    With a share of the traffic an answer above `most` bytes is not sent, and one that is too much
    for the traffic neither.
    """
    try:
        status, headers, content = _encoded(answer)
        if share is not None and content is not None:
            check_answer_length(len(content), most)
            share.take(len(content))
    except RefusedError as refusal:
        status, headers, content = _encoded(refusal)
    if content is None:  # a stream
        await answer(scope, receive, send)
        return int(status)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if share is None:
        await send({"type": "http.response.body", "body": content})
    else:
        await share.send(send, content)
    return int(status)


def check_answer_length(n_bytes: int, most: int | None) -> None:
    """Refuse to give an answer that is too long."""
    if most is not None and n_bytes > most:
        raise RefusedError(
            422, f"the answer may have {most:,} bytes, and would have {n_bytes:,}: ask for less"
        )


def _encoded(answer: Any) -> tuple[int, list[tuple[bytes, bytes]], bytes | None]:
    """Return the status, headers and content of an answer; None for that of a stream."""
    if isinstance(answer, StreamingResponse):
        return answer.status_code, [], None
    if isinstance(answer, Response):
        return answer.status_code, answer.raw_headers, bytes(answer.body)
    extra = []
    if isinstance(answer, RefusedError):
        answer = answer.answer
    if answer.status in (429, 503) and "retry_after" in answer.body:
        extra.append((b"retry-after", str(answer.body["retry_after"]).encode()))
    if answer.status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    content = msgspec.json.encode(answer.body)
    headers = [
        (b"content-type", _JSON if answer.status < 400 else _PROBLEM),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
        *extra,
    ]
    return int(answer.status), headers, content
