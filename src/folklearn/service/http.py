"""HTTP: from a request to its handler and back, with keys, sizes, types and refusals."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from folklearn import __version__
from folklearn.errors import FolklearnError, StateFileError
from folklearn.service import events
from folklearn.service.events import RefusedError
from folklearn.service.hosts import Change
from folklearn.service.keys import NO_KEY, Key
from folklearn.service.limits import NAME_PATTERN
from folklearn.service.logs import SHORT_ASCII

log = logging.getLogger("folklearn.service")

_FREE_BYTES = 65_536  # of a request or an answer, so that small ones pass while large ones wait
_BYTES_PER_REQUEST, _BYTES_PER_CELL = 500, 200  # as objects, while it waits


@dataclass
class Call:
    """A request, with what becomes known of it: its key, its model, its content."""

    service: Any  # `Gate`
    name: str
    headers: dict[bytes, bytes]
    key: Key = NO_KEY
    host: Any = None  # `ModelHost`, where the path names a model that exists
    body: Any = None
    content: bytes | bytearray = b""
    n_waiting_bytes: int = 0  # of it while it waits, about
    n_traffic: int = 0  # bytes that it holds of the traffic of large requests and answers
    answer: Any = None  # an `Answer`, the content of one, or a response of Starlette

    def take_traffic(self, n_bytes: int) -> None:
        """Hold n_bytes in all; raise if that is too much for the traffic of all clients."""
        n_more = max(0, n_bytes - _FREE_BYTES) - self.n_traffic
        if n_more > 0:
            if self.service.n_traffic_bytes + n_more > self.service.traffic_part:
                raise RefusedError(
                    503,
                    "too many large requests and answers are on their way: try again, and read "
                    "answers as they come",
                    retry_after=5,
                    limit=f"traffic={self.service.limits.traffic}",
                )
            self.service.n_traffic_bytes += n_more
            self.n_traffic += n_more


@dataclass(frozen=True)
class Endpoint:
    """One route of the service.

    Without a handler its content is a change of a model, which the writer answers.
    """

    method: str
    path: str  # with {name} for the name of a model
    scope: Any  # that the key must have; None if no key is needed
    handler: Callable[[Call], Awaitable[Any]] | None
    body: Any = None  # type of the content, by which the model must exist, and be an agent


class ElsewhereError(Exception):
    """Another process has to answer the request: nothing was sent yet."""


class EndpointApp:
    def __init__(self, service: Any, endpoint: Endpoint) -> None:
        self.service, self.endpoint = service, endpoint
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        self._is_agent: bool | None = None  # None is for both kinds of models
        if endpoint.body not in (None, events.Config, events.EraseRequest):
            self._is_agent = endpoint.body in (events.DecisionEvent, events.RewardEvent)
        rows_in = {events.LabelsRequest: "items", events.PredictBatchRequest: "rows"}
        self._rows = rows_in.get(endpoint.body)
        self._labels = endpoint.method, endpoint.path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        call = Call(self.service, scope["path_params"].get("name", ""), dict(scope["headers"]))
        scope["call"], scope["route"] = call, self.endpoint.path  # for the log
        try:
            try:
                call.answer = await self._answer(call, receive)
            except ElsewhereError:
                raise
            except Exception as error:
                call.answer = describe_error(error, " ".join(self._labels)).answer
            status = await respond(call, call.answer, scope, receive, send)
        finally:
            self.service.n_traffic_bytes -= call.n_traffic
        self.service.observe(*self._labels, status, time.perf_counter() - began)

    async def _answer(self, call: Call, receive: Receive) -> Any:
        endpoint, service, name = self.endpoint, self.service, call.name
        if endpoint.scope is not None:
            call.key = service.find_key(call.headers, with_session=endpoint.method == "GET")
            if not call.key.allows(endpoint.scope, name or None):
                what = f"on the model {name!r}" if name else "on all models of the tenant"
                raise RefusedError(403, f"this key lacks the scope {endpoint.scope!r} {what}")
        content = await read_body(receive, call, service.limits.body)
        call.content, n_cells = content, content.count(b":")
        call.n_waiting_bytes = len(content) + _BYTES_PER_REQUEST + _BYTES_PER_CELL * n_cells
        call.host = service.hosts.get((call.key.tenant, name))
        if name and endpoint.body is not events.Config:
            if call.host is None and service.is_worker:
                raise ElsewhereError  # it may have been created a moment ago
            if call.host is None:
                raise RefusedError(404, f"there is no model {name!r}")
            if self._is_agent not in (None, call.host.is_agent):
                hint = "predicts labels: send rows to /predict, and tell labels to /learn"
                if call.host.is_agent:
                    hint = "decides: ask /decide, and tell rewards to /reward"
                raise RefusedError(422, f"this model {hint}")
        if self._decoder is not None:
            call.body = self._decoder.decode(content)
        if self._rows:
            n, limit = len(getattr(call.body, self._rows)), service.limits.batch
            if not 0 < n <= limit:
                sentence = f"a request may hold 1 to {limit:,} rows, got {n:,}"
                raise RefusedError(422, sentence, limit=f"batch={limit}" if n else "")
        if endpoint.handler is not None:
            return await endpoint.handler(call)
        key = None
        if (header := call.headers.get(b"idempotency-key")) is not None:
            key = header.decode("latin-1")
            if not SHORT_ASCII.fullmatch(header):
                raise RefusedError(400, "an Idempotency-Key has 1 to 64 printable ASCII characters")
        if service.has_workers and events.names_predictions(call.body):
            await service.gather()
        change = Change(call.host, call.body, key, call.key.id)
        return await service.submit(change, call.n_waiting_bytes)


def describe_error(error: BaseException, what: str = "a change") -> RefusedError:
    """Return what a client is told of an error."""
    status, sentence = 422, str(error)
    match error:
        case RefusedError():
            return error
        case msgspec.ValidationError():
            sentence = f"the request is not as it should be: {error}"
        case msgspec.DecodeError() | UnicodeDecodeError():
            status = 400
            sentence = f"the request is not JSON: {error}; a gap is null, and NaN is no JSON"
        case RecursionError():
            status, sentence = 400, "the request is nested too deeply"
        case FolklearnError() if not isinstance(error, StateFileError):
            pass
        case _:  # also a file of the folder that cannot be read: no fault of the request
            log.error("%s failed", what, exc_info=error)
            status, sentence = 500, "the service failed; its log says why"
    return RefusedError(status, sentence)


async def read_body(receive: Receive, call: Call, limit: int) -> bytearray:
    stated = call.headers.get(b"content-length", b"0")
    n_stated = int(stated) if stated.isdigit() else limit + 1
    content, has_more = bytearray(), True
    while has_more and max(n_stated, len(content)) <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the request was cut off")
        content += message.get("body", b"")
        has_more = message.get("more_body", False)
        if _FREE_BYTES < len(content) <= limit:
            call.take_traffic(len(content))
    if max(n_stated, len(content)) > limit:
        raise RefusedError(413, f"a request may have {limit:,} bytes", limit=f"body={limit}")
    return content


async def respond(call: Call, answer: Any, scope: Scope, receive: Receive, send: Send) -> int:
    """Send an `Answer`, the content of one, or a response of Starlette; return its status."""
    if isinstance(answer, StreamingResponse):
        await answer(scope, receive, send)
        return answer.status_code
    limits = call.service.limits
    if isinstance(answer, Response):
        status, headers, content = answer.status_code, answer.raw_headers, bytes(answer.body)
    else:
        status, body = (200, answer) if isinstance(answer, dict) else answer
        content = msgspec.json.encode(body)
        kind = b"application/json" if status < 400 else b"application/problem+json"
        headers = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(content)),
            (b"cache-control", b"no-store"),
        ]
        if status in (429, 503) and "retry_after" in body:
            headers.append((b"retry-after", b"%d" % body["retry_after"]))
        if status >= 400 and "limit" in body:
            headers.append((b"folklearn-limit", body["limit"].encode()))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
    if status < 400 and len(content) > min(_FREE_BYTES, limits.answer):
        try:
            check_answer_length(len(content), limits.answer)
            call.take_traffic(len(content))
        except RefusedError as refusal:
            call.answer = refusal.answer
            return await respond(call, call.answer, scope, receive, send)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for start in range(0, max(1, len(content)), _FREE_BYTES):
        chunk = content[start : start + _FREE_BYTES]
        has_more = start + len(chunk) < len(content)
        message = {"type": "http.response.body", "body": chunk, "more_body": has_more}
        if not start:
            await send(message)
            continue
        try:
            async with asyncio.timeout(limits.unread):
                await send(message)
        except TimeoutError:
            break  # the server hangs up on an answer that is not whole
    return status


def check_answer_length(n_bytes: int, limit: int, remedy: str = "ask for less") -> None:
    if n_bytes > limit:
        sentence = f"an answer may have {limit:,} bytes, not {n_bytes:,}: {remedy}"
        raise RefusedError(422, sentence, limit=f"answer={limit}")


# The OpenAPI document, made from the table that serves the routes.

_PROBLEMS = {
    "400": "The request cannot be read",
    "401": "No key, or one that is not live",
    "403": "The key does not allow this",
    "404": "There is no such model, prediction or decision",
    "409": "It contradicts what was said before",
    "410": "It came too late",
    "413": "The request is too large",
    "422": "The request is refused; the detail says why",
    "429": "Too much at once: try again after Retry-After seconds",
    "503": "Nothing can be learned now: try again after Retry-After seconds",
}
_PROBLEM = {
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "retry_after": {"type": "integer", "description": "Seconds, as in Retry-After"},
        "limit": {"type": "string", "description": "Its name and value, as in Folklearn-Limit"},
    },
    "required": ["status", "detail"],
}
_NAME = {"name": "name", "in": "path", "required": True}
_NAME |= {"schema": {"type": "string", "pattern": NAME_PATTERN}}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A request with the same key and content is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
}


def describe_api(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    for component in components.values():  # the kind of an event is for the journal
        if component["properties"].pop("type", None) is not None:
            component["required"].remove("type")
    by_type = dict(zip(types, schemas, strict=True))
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        answers: dict[str, Any] = {
            status: {"description": text, "content": problem} for status, text in _PROBLEMS.items()
        }
        for status in ("200", "201") if endpoint.body is events.Config else ("200",):
            answers[status] = {"description": "Done"}
        has_name, is_change = "{name}" in endpoint.path, endpoint.handler is None
        operation: dict[str, Any] = {
            "operationId": re.sub(r"\W+", "_", f"{endpoint.method}{endpoint.path}").strip("_"),
            "summary": ((endpoint.handler or endpoint.body).__doc__ or "").partition("\n")[0],
            "responses": answers,
            "parameters": has_name * [_NAME] + is_change * [_IDEMPOTENCY_KEY],
        }
        if endpoint.scope is not None:
            operation["security"] = [{"key": [endpoint.scope]}]
        if endpoint.body is not None:
            content = {"application/json": {"schema": by_type[endpoint.body]}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "folklearn", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
