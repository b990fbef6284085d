"""HTTP: from a request to its handler and back, with keys, sizes, types and refusals."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from folklearn.errors import FolklearnError, StateFileError
from folklearn.service.events import Answer, RefusedError
from folklearn.service.keys import Key
from folklearn.service.limits import Limits

if TYPE_CHECKING:
    from folklearn.service.service import Service

log = logging.getLogger("folklearn.service")

_FREE_BYTES = 65_536  # of a request or an answer, so that small ones pass while large ones wait
NO_KEY = Key("", "", None, frozenset(), "", 0, None, None)


class Traffic:
    """Bytes of large requests and answers under way, bounded over all clients."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.n_bytes = limits, 0


class TrafficShare:
    """Bytes that one request holds of the traffic, within ``with``."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic, self.n_bytes = traffic, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.traffic.n_bytes -= self.n_bytes

    def take(self, n_bytes: int) -> None:
        """Hold n_bytes in all; raise if that is too much for the traffic."""
        n_more = max(0, n_bytes - _FREE_BYTES) - self.n_bytes
        if n_more > 0:
            if self.traffic.n_bytes + n_more > self.traffic.limits.traffic:
                raise RefusedError(
                    503,
                    "too many large requests and answers are on their way: try again, and read "
                    "answers as they come",
                    retry_after=5,
                )
            self.traffic.n_bytes += n_more
            self.n_bytes += n_more

    async def send_long(self, send: Send, content: bytes) -> None:
        """Send a long body as fast as it is read; give up on a client that reads nothing."""
        for start in range(0, len(content), _FREE_BYTES):
            chunk = content[start : start + _FREE_BYTES]
            has_more = start + len(chunk) < len(content)
            message = {"type": "http.response.body", "body": chunk, "more_body": has_more}
            with suppress(TimeoutError):
                async with asyncio.timeout(self.traffic.limits.unread if start else None):
                    await send(message)
                continue
            return  # the server hangs up on an answer that is not whole


@dataclass(frozen=True)
class Call:
    """A request that its key allows, with its model and its content."""

    service: "Service"
    key: Key
    host: Any  # `ModelHost`, where the path names a model that exists
    name: str
    body: Any
    n_bytes: int  # of the content
    headers: dict[bytes, bytes]
    share: TrafficShare
    idempotency_key: str | None = None


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True)
class Endpoint:
    """One route of the service.

    Attributes
    ----------
    path : with ``{name}`` for the name of a model.
    scope : that the key must have; None if no key is needed.
    body : type of the content, None if there is none.
    finds : whether the model must exist.
    repeats : whether an Idempotency-Key is heeded.
    is_agent : whether the model must be an agent, or must not be; None for either.
    """

    method: str
    path: str
    scope: Any
    handler: Handler
    body: Any = None
    finds: bool = True
    repeats: bool = False
    status: int = 200
    is_agent: bool | None = None

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or "").partition("\n")[0]


class EndpointApp:
    """An endpoint as an application of ASGI."""

    def __init__(self, service: "Service", endpoint: Endpoint) -> None:
        self.service, self.endpoint = service, endpoint
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        self._counters = service.metrics.counters(endpoint.method, endpoint.path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count the answer."""
        began = time.perf_counter()
        with TrafficShare(self.service.traffic) as share:
            try:
                answer = await self._answer(scope, receive, share)
            except RefusedError as refusal:
                answer = refusal.answer
            except msgspec.ValidationError as error:
                sentence = f"the request is not as it should be: {error}"
                answer = RefusedError(422, sentence).answer
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                sentence = f"the request is not JSON: {error}; a gap is null, and NaN is no JSON"
                answer = RefusedError(400, sentence).answer
            except RecursionError:
                answer = RefusedError(400, "the request is nested too deeply").answer
            except Exception as error:
                # A file of the folder that cannot be read is not caused by the request.
                if isinstance(error, FolklearnError) and not isinstance(error, StateFileError):
                    answer = RefusedError(422, str(error)).answer
                else:
                    log.exception("%s %s failed", self.endpoint.method, self.endpoint.path)
                    answer = RefusedError(500, "the service failed; its log says why").answer
            status = await respond(answer, scope, receive, send, share)
        seconds, answers = self._counters
        seconds.observe(time.perf_counter() - began)
        answers[status].inc()

    async def _answer(self, scope: Scope, receive: Receive, share: TrafficShare) -> Any:
        endpoint, service = self.endpoint, self.service
        headers = dict(scope["headers"])
        name = scope["path_params"].get("name", "")
        key = NO_KEY
        if endpoint.scope is not None:
            key = service.find_key(headers, with_session=endpoint.method == "GET")
            if not key.allows(endpoint.scope, name or None):
                what = f"on the model {name!r}" if name else "on all models of the tenant"
                raise RefusedError(403, f"this key lacks the scope {endpoint.scope!r} {what}")
        content = await read_body(receive, headers, service.limits.body, share)
        host = service.store.hosts.get((key.tenant, name))
        if name and endpoint.finds:
            if host is None:
                raise RefusedError(404, f"there is no model {name!r}")
            if endpoint.is_agent not in (None, host.is_agent):
                hint = (
                    "decides: ask /decide, and tell rewards to /reward"
                    if host.is_agent
                    else "predicts labels: send rows to /predict, and tell labels to /learn"
                )
                raise RefusedError(422, f"this model {hint}")
        body = None if self._decoder is None else self._decoder.decode(content)
        repeat_key = headers.get(b"idempotency-key") if endpoint.repeats else None
        if repeat_key is not None:
            text = repeat_key.decode("latin-1")
            if not (0 < len(text) <= 64 and text.isascii() and text.isprintable()):
                raise RefusedError(400, "an Idempotency-Key has 1 to 64 printable ASCII characters")
            repeat_key = text
        return await endpoint.handler(
            Call(service, key, host, name, body, len(content), headers, share, repeat_key)
        )


async def read_body(
    receive: Receive, headers: dict[bytes, bytes], limit: int, share: TrafficShare | None = None
) -> bytes:
    """Return the content of a request; raise if it has more than limit bytes."""
    stated = headers.get(b"content-length", b"0")
    n_stated = int(stated) if stated.isdigit() else limit + 1
    chunks, n_bytes, has_more = list[bytes](), 0, True
    while has_more and max(n_stated, n_bytes) <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the request was cut off")
        chunks.append(message.get("body", b""))
        n_bytes += len(chunks[-1])
        has_more = message.get("more_body", False)
        if share is not None and _FREE_BYTES < n_bytes <= limit:
            share.take(n_bytes)
    if max(n_stated, n_bytes) > limit:
        raise RefusedError(413, f"a request may have {limit:,} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def respond(
    answer: Answer | Response,
    scope: Scope,
    receive: Receive,
    send: Send,
    share: TrafficShare | None = None,
) -> int:
    """Send an answer, or a response of Starlette; return its status.

    With a share of the traffic an answer that is too long, or too much for it, is refused.
    """
    if isinstance(answer, StreamingResponse):
        await answer(scope, receive, send)
        return answer.status_code
    if isinstance(answer, Response):
        status, headers, content = answer.status_code, answer.raw_headers, bytes(answer.body)
    else:
        status, content = answer.status, msgspec.json.encode(answer.body)
        kind = b"application/json" if status < 400 else b"application/problem+json"
        headers = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(content)),
            (b"cache-control", b"no-store"),
        ]
        if status in (429, 503) and "retry_after" in answer.body:
            headers.append((b"retry-after", b"%d" % answer.body["retry_after"]))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
    if share is not None and len(content) > min(_FREE_BYTES, share.traffic.limits.answer):
        try:
            check_answer_length(len(content), share.traffic.limits.answer)
            share.take(len(content))
        except RefusedError as refusal:
            return await respond(refusal.answer, scope, receive, send)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if share is not None and len(content) > _FREE_BYTES:
        await share.send_long(send, content)
    else:
        await send({"type": "http.response.body", "body": content})
    return status


def check_answer_length(n_bytes: int, limit: int) -> None:
    """Raise if an answer is too long."""
    if n_bytes > limit:
        raise RefusedError(
            422, f"the answer may have {limit:,} bytes, and would have {n_bytes:,}: ask for less"
        )
