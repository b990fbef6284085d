"""A worker process: it answers what predicts, and hands the rest over to its parent."""

import asyncio
import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits

from folklearn import serialization
from folklearn.model.model import Model
from folklearn.service import link
from folklearn.service.events import Answer
from folklearn.service.hosts import Change, PublishedModel
from folklearn.service.http import ElsewhereError, Endpoint, EndpointApp
from folklearn.service.journal import ModelRow
from folklearn.service.limits import Limits
from folklearn.service.logs import configure_logs, name_requests
from folklearn.service.routes import ENDPOINTS, explain_row, predict, predict_many, route_by_name
from folklearn.service.service import Gate, make_queue_refusal

_SMALL_BYTES = 1_000_000  # of a model that is read between two requests
_OBSERVED_SECONDS = 1.0  # between two reports of what was answered
_CHANGES_AT_A_TIME = 4  # between two looks at the sockets
_PART_BYTES = 65_536  # of an answer of the parent
_NOT_PASSED_ON = {b"connection", b"content-length", b"expect", b"transfer-encoding", b"upgrade"}
_NOT_PASSED_ON |= {b"x-forwarded-proto"}
_HERE = (None, predict, predict_many, explain_row)  # handlers of what a worker answers itself


class WorkerHost:
    """A model that a worker predicts from, as it was published last."""

    def __init__(self, message: link.ModelPublished) -> None:
        self.row = ModelRow(message.number, message.tenant, message.name, 0)
        self.is_agent = message.is_agent
        self._newest = message
        self._published: PublishedModel | None = None
        self._reading: asyncio.Task[None] | None = None

    def renew(self, message: link.ModelPublished) -> None:
        self._newest = message
        is_large = len(message.content) > _SMALL_BYTES
        if is_large and self._published is not None and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Read a large model while requests are answered from the one before."""
        try:
            while self._published is None or self._published.version != self._newest.version:
                self._published = await asyncio.to_thread(_restore, self._newest)
        finally:
            self._reading = None

    @property
    def published(self) -> PublishedModel:
        newest, published = self._newest, self._published
        if published is None or (published.version != newest.version and self._reading is None):
            self._published = published = _restore(newest)
        return published


def _restore(message: link.ModelPublished) -> PublishedModel:
    model = None
    if message.content:
        model = Model.from_record(serialization.of_bytes(message.content))
    return PublishedModel(message.version, model)


async def take_turn(turns: asyncio.Semaphore) -> None:
    """Wait until few changes are begun between two looks at the sockets, for predictions' sake."""
    await turns.acquire()
    asyncio.get_running_loop().call_soon(turns.release)


class Worker(Gate, link.Connection):
    """A worker's end, and what the routes that predict need of a service."""

    is_worker = True

    def __init__(self, folder: Path, limits: Limits, n_workers: int, path: Path) -> None:
        link.Connection.__init__(self)
        Gate.__init__(self, folder, limits, {}, n_workers)
        self._path = path
        self._n_requests, self._n_bytes = 0, 0
        self._changes: dict[int, tuple[asyncio.Future[Answer], int]] = {}  # not answered yet
        self._observed: list[tuple[str, str, int, float]] = []
        self.is_ready = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        os._exit(1)  # without its parent a worker has nothing to say

    def receive(self, message: Any) -> None:
        match message:
            case link.ChangeAnswered(number, status, body):
                future, n_bytes = self._changes.pop(number)
                self._n_bytes -= n_bytes
                if not future.done():
                    future.set_result(Answer(status, body))
            case link.Gather():
                self.send(message)
            case link.ModelPublished(_, tenant, name):
                host = self.hosts.get((tenant, name))
                if host is not None and host.row.number == message.number:
                    host.renew(message)
                else:
                    self.hosts[tenant, name] = WorkerHost(message)
            case link.ModelDeleted(tenant, name):
                self.hosts.pop((tenant, name), None)
            case link.AllPublished():
                self.is_ready.set()

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        self._observed.append((method, path, status, seconds))

    async def report(self) -> None:
        """Tell what was answered, again and again."""
        while True:
            await asyncio.sleep(_OBSERVED_SECONDS)
            self._report()

    def _report(self) -> None:
        if self._observed:
            self.send(link.Observed(self._observed))
            self._observed = []

    async def finish(self) -> None:
        """Wait until everything that was handed over has its answer."""
        self._report()
        if changes := [future for future, _ in self._changes.values()]:
            await asyncio.wait(changes, timeout=self.limits.deadline)

    def submit(self, change: Change, n_bytes: int) -> Any:
        """Hand a change over; one of any size that the queue may have if no other waits."""
        limits, n_waiting = self.limits, self.n_sharing * len(self._changes)
        n_bytes_waiting = self.n_sharing * (self._n_bytes + n_bytes) if n_waiting else n_bytes
        if n_waiting >= limits.queued_events or n_bytes_waiting > limits.queued_bytes:
            raise make_queue_refusal(limits, n_waiting)
        self._n_requests += 1
        self._n_bytes += n_bytes
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._changes[self._n_requests] = future, n_bytes
        host, number = change.host, self._n_requests
        row, asked = host.row, (change.request, change.key, change.client)
        self.send(link.ForwardedChange(number, row.tenant, row.name, row.number, *asked, n_bytes))
        return future

    async def forward(
        self, scope: Scope, content: bytes | None, receive: Receive, send: Send
    ) -> None:
        """Let the parent answer a request; content that was not read passes through as it comes."""
        reader, writer = await asyncio.open_unix_connection(link.http_path(self._path))
        passing = asyncio.create_task(_pass_on(scope, content, receive, writer))
        answer = ForwardedAnswer()
        try:
            is_head = scope["method"] == "HEAD"
            while not answer.is_whole and (part := await reader.read(_PART_BYTES)):
                answer.parser.feed_data(part)
                answer.is_whole |= is_head and bool(answer.messages)
                while answer.messages:
                    async with asyncio.timeout(self.limits.unread):
                        await send(answer.messages.popleft())
            if answer.is_whole:
                await send({"type": "http.response.body"})
        except (TimeoutError, ConnectionError):
            pass  # the server hangs up on an answer that is not whole
        finally:
            passing.cancel()
            writer.transport.abort()


class ForwardedAnswer:
    """Makes messages of ASGI of what the parent answers."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.messages, self.is_whole = deque[Message](), False
        self._headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if name not in (b"connection", b"transfer-encoding"):  # which the server adds itself
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        start = {"type": "http.response.start", "status": status, "headers": self._headers}
        self.messages.append(start)

    def on_body(self, content: bytes) -> None:
        self.messages.append({"type": "http.response.body", "body": content, "more_body": True})

    def on_message_complete(self) -> None:
        self.is_whole = True


async def _pass_on(
    scope: Scope, content: bytes | None, receive: Receive, writer: asyncio.StreamWriter
) -> None:
    """Write a request to the parent; hang up when its client does."""
    target = scope["raw_path"] + b"?" + scope["query_string"]
    lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1"]
    lines.append(b"x-forwarded-proto: " + scope["scheme"].encode())
    lines += [b"%s: %s" % one for one in scope["headers"] if one[0] not in _NOT_PASSED_ON]
    if b"host" not in dict(scope["headers"]):
        lines.append(b"host: %s:%d" % (scope["server"][0].encode(), scope["server"][1]))
    chunked = b"transfer-encoding: chunked"
    lines.append(chunked if content is None else b"content-length: %d" % len(content))
    writer.write(b"\r\n".join([*lines, b"", content or b""]))
    with suppress(ConnectionError):  # the parent has said what it had to
        while (message := await receive())["type"] == "http.request":
            if content is None:
                part, end = message["body"], b"" if message["more_body"] else b"0\r\n\r\n"
                writer.write((b"%x\r\n%s\r\n" % (len(part), part) if part else b"") + end)
                await writer.drain()
        writer.transport.abort()


def make_application(folder: Path, limits: Limits, n_workers: int, log: str, path: Path) -> ASGIApp:
    """Return the application of one of several workers."""
    configure_logs(log)
    threadpool_limits(1, user_api="blas")  # as where predictions are replayed
    worker = Worker(folder, limits, n_workers, path)
    turns = asyncio.Semaphore(_CHANGES_AT_A_TIME)

    def make_app(endpoint: Endpoint) -> ASGIApp:
        app = name_requests(EndpointApp(worker, endpoint))

        async def answer_in_turn(scope: Scope, receive: Receive, send: Send) -> None:
            await take_turn(turns)
            await app(scope, receive, send)

        return app if endpoint.handler else answer_in_turn

    find_app = route_by_name({one: make_app(one) for one in ENDPOINTS if one.handler in _HERE})

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        app, content = find_app(scope), None
        if app is not None:
            with suppress(ElsewhereError):
                await app(scope, receive, send)
                return
            content = bytes(scope["call"].content)
        else:
            headers = dict(scope["headers"])
            has_length = headers.get(b"content-length", b"0") != b"0"
            content = None if has_length or b"transfer-encoding" in headers else b""
        await worker.forward(scope, content, receive, send)

    async def live(receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        await receive()
        await loop.create_unix_connection(lambda: worker, str(path))
        await worker.is_ready.wait()
        reporting = loop.create_task(worker.report())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        reporting.cancel()
        await worker.finish()
        await send({"type": "lifespan.shutdown.complete"})

    return application
