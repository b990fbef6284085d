"""Worker processes: they speak HTTP and predict, beside the process that learns and commits.

uvicorn starts them, replaces those that die, and all of them on SIGHUP. The process that learns is
their parent, and holds the one `Service`; each worker is connected to it by a socket. It sends the
models that it publishes; a worker predicts from these, and hands every other request over as it
came. The messages are msgpack, each behind its length.
"""

import asyncio
import dataclasses
import logging
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits
from uvicorn.supervisors import Multiprocess

from folklearn import serialization
from folklearn.model.model import Model
from folklearn.service import events
from folklearn.service.events import Answer, RefusedError
from folklearn.service.hosts import Change, ModelHost, PublishedModel
from folklearn.service.http import (
    Call,
    ElsewhereError,
    EndpointApp,
    describe_error,
    read_body,
    respond,
)
from folklearn.service.journal import ModelRow
from folklearn.service.limits import Limits
from folklearn.service.logs import configure_logs, name_requests
from folklearn.service.routes import ENDPOINTS, MODEL, explain_row, predict, predict_many
from folklearn.service.service import Gate, Service

_log = logging.getLogger("folklearn.service")

_LENGTH = struct.Struct("<I")
_SMALL_BYTES = 1_000_000  # of a model that is read between two requests
_OBSERVED_SECONDS = 1.0  # between two reports of what a worker answered
_GATHER_SECONDS = 1.0  # after which a worker that is silent is not waited for
_HERE = (None, predict, predict_many, explain_row)  # handlers of what a worker answers itself


class _Message(msgspec.Struct, array_like=True, frozen=True):
    """What a worker and its parent say to each other; `number` is that of a request."""


class ForwardedRequest(_Message, tag=0, frozen=True):
    """A request that the parent has to answer."""

    number: int
    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    content: bytes


class AnswerBegun(_Message, tag=1, frozen=True):
    """Status and headers of the answer to a request."""

    number: int
    status: int
    headers: list[tuple[bytes, bytes]]


class AnswerPart(_Message, tag=2, frozen=True):
    """A part of the answer; where more follow, the next is sent when this one was taken."""

    number: int
    content: bytes
    has_more: bool


class PartTaken(_Message, tag=3, frozen=True):
    """The client has taken the last part of an answer."""

    number: int


class ClientGone(_Message, tag=4, frozen=True):
    """The client waits for its answer no longer."""

    number: int


class ForwardedChange(_Message, tag=5, frozen=True):
    """A change of a model, see `Change`."""

    number: int
    tenant: str
    name: str
    model: int
    request: events.ChangeRequest
    key: str | None
    client: str
    n_bytes: int


class ChangeAnswered(_Message, tag=6, frozen=True):
    """The answer to a change."""

    number: int
    status: int
    body: Any


class Observed(_Message, tag=7, frozen=True):
    """What a worker has answered itself: method, path, status, seconds."""

    answers: list[tuple[str, str, int, float]]


class Gather(_Message, tag=8, frozen=True):
    """A question, and its answer: everything that was remembered before it has been sent."""

    number: int


class ModelPublished(_Message, tag=9, frozen=True):
    """A model as it is now, see `PublishedModel.content`."""

    number: int
    tenant: str
    name: str
    is_agent: bool
    version: int
    content: bytes


class ModelDeleted(_Message, tag=10, frozen=True):
    """A model that there is no more."""

    tenant: str
    name: str


class AllPublished(_Message, tag=11, frozen=True):
    """Every model was sent once."""


_encode = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder(reduce(or_, _Message.__subclasses__())).decode


class Connection(asyncio.Protocol):
    """One end of the socket between a worker and its parent."""

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

    def send(self, message: _Message) -> None:
        if not self._transport.is_closing():
            content = _encode(message)
            self._transport.write(_LENGTH.pack(len(content)) + content)

    def receive(self, message: Any) -> None:
        raise NotImplementedError

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True


# In the parent.


class WorkerConnection(Connection):
    """The parent's end: requests of one worker, and the models that it is sent."""

    def __init__(self, parent: "WorkerParent") -> None:
        super().__init__()
        self._parent, self._service = parent, parent.service
        self._waiting: dict[int, asyncio.Future[None]] = {}  # parts that are on their way
        self._gone: dict[int, asyncio.Event] = {}  # requests under way
        self._unsent: dict[int, ModelHost] = {}  # published while nothing could be written
        self._tasks: set[asyncio.Task[None]] = set()
        self.gathering: dict[int, asyncio.Future[None]] = {}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._parent.connections.add(self)
        for host in self._service.store.models():
            self.send_model(host)
        self.send(AllPublished())

    def connection_lost(self, error: Exception | None) -> None:
        self._parent.connections.discard(self)
        for gone in self._gone.values():
            gone.set()
        for future in [*self._waiting.values(), *self.gathering.values()]:
            future.cancel()

    def resume_writing(self) -> None:
        super().resume_writing()
        unsent, self._unsent = self._unsent, {}
        for host in unsent.values():
            self.send_model(host)

    def send_model(self, host: ModelHost) -> None:
        """Send a model as it was published last, later if the worker reads too slowly."""
        row, published = host.row, host.published
        if self._service.hosts.get((row.tenant, row.name)) is not host:
            self.send(ModelDeleted(row.tenant, row.name))
        elif self.can_write:
            which = host.number, row.tenant, row.name, host.is_agent
            self.send(ModelPublished(*which, published.version, published.content))
        else:
            self._unsent[host.number] = host

    def receive(self, message: Any) -> None:
        match message:
            case ForwardedRequest():
                self._begin(self._answer(message))
            case PartTaken(number) if number in self._waiting:
                self._waiting.pop(number).set_result(None)
            case ClientGone(number) if number in self._gone:
                self._gone[number].set()
            case ForwardedChange(request=request):
                if events.names_predictions(request):
                    self._begin(self._change_later(message))
                else:
                    self._change(message)
            case Observed(answers):
                for answer in answers:
                    self._service.observe(*answer)
            case Gather(number) if number in self.gathering:
                self.gathering.pop(number).set_result(None)

    async def _answer(self, request: ForwardedRequest) -> None:
        number, content, is_whole = request.number, [request.content], False
        gone = self._gone[number] = asyncio.Event()

        async def receive() -> Message:
            if content:
                return {"type": "http.request", "body": content.pop(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal is_whole
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                self.send(AnswerBegun(number, message["status"], headers))
                return
            has_more = message.get("more_body", False)
            is_whole, taken = not has_more, asyncio.get_running_loop().create_future()
            self._waiting[number] = taken
            self.send(AnswerPart(number, bytes(message.get("body", b"")), has_more))
            if has_more:
                await taken

        scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": request.method, "path": request.path, "raw_path": request.path.encode(),
            "query_string": request.query, "root_path": "", "headers": request.headers,
            "client": None, "server": None,
        }  # fmt: skip
        try:
            with suppress(asyncio.CancelledError):  # the worker is no more
                await self._parent.application(scope, receive, send)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
        finally:
            if not is_whole:  # the client was too slow: the worker hangs up
                self.send(AnswerPart(number, b"", False))
            self._gone.pop(number, None)
            self._waiting.pop(number, None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change_later(self, message: ForwardedChange) -> None:
        await self._parent.gather()
        self._change(message)

    def _change(self, message: ForwardedChange) -> None:
        host = self._service.hosts.get((message.tenant, message.name))
        is_prediction = isinstance(message.request, events.PredictionsRequest)
        try:
            if host is None or host.number != message.model:
                raise RefusedError(404, f"the model {message.name} was deleted")
            change = Change(host, message.request, message.key, message.client)
            # Workers bound what they remember themselves: it is not refused when labels are many.
            done = self._service.submit(change, message.n_bytes, is_bounded=not is_prediction)
            done.add_done_callback(partial(self._tell, message.number))
        except RefusedError as refusal:
            self.send(ChangeAnswered(message.number, *refusal.answer))

    def _tell(self, number: int, done: Any) -> None:
        error = done.exception()
        if error is None:
            self.send(ChangeAnswered(number, *done.result()))
        else:
            self.send(ChangeAnswered(number, *describe_error(error).answer))


class WorkerParent:
    """The parent of workers: a thread answers what they hand over and sends them models."""

    def __init__(self, service: Service, application: ASGIApp, path: Path) -> None:
        self.service, self.application, self._path = service, application, path
        self.connections: set[WorkerConnection] = set()
        self._n_gathered = 0
        self._gathering: asyncio.Task[None] | None = None
        self._next_gathering: asyncio.Task[None] | None = None
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.service.gather = self.gather
        self.service.store.memory.announce = self._announce

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        await self._loop.create_unix_server(lambda: WorkerConnection(self), str(self._path))

    def _announce(self, host: ModelHost) -> None:
        """Send a model to all workers; the caller is the thread that learns."""
        _ = host.published.content  # it is made here, where it takes no time from requests
        self._loop.call_soon_threadsafe(self._send_model, host)

    def _send_model(self, host: ModelHost) -> None:
        for connection in self.connections:
            connection.send_model(host)

    async def gather(self) -> None:
        """Wait until all workers have handed over the predictions that they have answered.

        One question to the workers serves all who came before it was asked.
        """
        if self._next_gathering is None:
            self._next_gathering = self._loop.create_task(self._ask(self._gathering))
        await asyncio.shield(self._next_gathering)

    async def _ask(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        self._gathering, self._next_gathering = self._next_gathering, None
        self._n_gathered += 1
        answers = []
        for connection in self.connections:
            answers.append(self._loop.create_future())
            connection.gathering[self._n_gathered] = answers[-1]
            connection.send(Gather(self._n_gathered))
        if answers:
            await asyncio.wait(answers, timeout=_GATHER_SECONDS)


# In a worker.


class WorkerHost:
    """A model that a worker predicts from, as it was published last."""

    def __init__(self, message: ModelPublished) -> None:
        self.row = ModelRow(message.number, message.tenant, message.name, 0)
        self.is_agent = message.is_agent
        self._newest = message
        self._published: PublishedModel | None = None
        self._reading: asyncio.Task[None] | None = None

    def renew(self, message: ModelPublished) -> None:
        self._newest = message
        is_large = len(message.content) > _SMALL_BYTES
        if is_large and self._published is not None and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Read a large model while requests are answered from the one before."""
        while self._published is None or self._published.version != self._newest.version:
            self._published = await asyncio.to_thread(_restore, self._newest)
        self._reading = None

    @property
    def published(self) -> PublishedModel:
        newest, published = self._newest, self._published
        if published is None or (published.version != newest.version and self._reading is None):
            self._published = published = _restore(newest)
        return published


def _restore(message: ModelPublished) -> PublishedModel:
    model = None
    if message.content:
        model = Model.from_record(serialization.of_bytes(message.content))
    return PublishedModel(message.version, model)


class Worker(Gate, Connection):
    """A worker's end, and what the routes that predict need of a service."""

    is_worker = True

    def __init__(self, folder: Path, limits: Limits) -> None:
        Connection.__init__(self)
        Gate.__init__(self, folder, limits, {})
        self._n_requests, self._n_bytes = 0, 0
        self.submit = self._submit
        self._answers: dict[int, asyncio.Queue[Any]] = {}  # of forwarded requests
        self._changes: dict[int, tuple[asyncio.Future[Answer], int]] = {}  # not answered yet
        self._observed: list[tuple[str, str, int, float]] = []
        self.is_ready = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        os._exit(1)  # without its parent a worker has nothing to say

    def receive(self, message: Any) -> None:
        match message:
            case AnswerBegun(number) | AnswerPart(number) if number in self._answers:
                self._answers[number].put_nowait(message)
            case ChangeAnswered(number, status, body):
                future, n_bytes = self._changes.pop(number)
                self._n_bytes -= n_bytes
                if not future.done():
                    future.set_result(Answer(status, body))
            case Gather():
                self.send(message)
            case ModelPublished(_, tenant, name):
                host = self.hosts.get((tenant, name))
                if host is not None and host.row.number == message.number:
                    host.renew(message)
                else:
                    self.hosts[tenant, name] = WorkerHost(message)
            case ModelDeleted(tenant, name):
                self.hosts.pop((tenant, name), None)
            case AllPublished():
                self.is_ready.set()

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        self._observed.append((method, path, status, seconds))

    async def report(self) -> None:
        """Tell what was answered, again and again."""
        while True:
            await asyncio.sleep(_OBSERVED_SECONDS)
            if self._observed:
                self.send(Observed(self._observed))
                self._observed = []

    async def publish(self, host: Any) -> None:
        raise ElsewhereError

    def _submit(self, change: Change, n_bytes: int) -> Any:
        is_full = len(self._changes) >= self.limits.queued_events
        if is_full or self._n_bytes + n_bytes > self.limits.queued_bytes:
            raise RefusedError(429, "too many requests wait: try again", retry_after=1)
        self._n_requests += 1
        self._n_bytes += n_bytes
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._changes[self._n_requests] = future, n_bytes
        host, number = change.host, self._n_requests
        row, asked = host.row, (change.request, change.key, change.client)
        self.send(ForwardedChange(number, row.tenant, row.name, row.number, *asked, n_bytes))
        return future

    async def forward(self, scope: Scope, content: bytes, receive: Receive, send: Send) -> None:
        """Let the parent answer a request."""
        self._n_requests += 1
        number = self._n_requests
        answer = self._answers[number] = asyncio.Queue()
        method, watching = scope["method"], None
        headers = [*scope["headers"]]
        self.send(
            ForwardedRequest(number, method, scope["path"], scope["query_string"], headers, content)
        )
        if method == "GET":  # whose answers may be long, or without an end
            watching = asyncio.get_running_loop().create_task(self._watch(number, receive))
        try:
            begun = await answer.get()
            if isinstance(begun, AnswerPart):
                raise RuntimeError("the request failed in the parent")
            await send(
                {"type": "http.response.start", "status": begun.status, "headers": begun.headers}
            )
            has_more = True
            while has_more:
                part = await answer.get()
                has_more = part.has_more
                message = {
                    "type": "http.response.body",
                    "body": part.content,
                    "more_body": has_more,
                }
                async with asyncio.timeout(self.limits.unread):
                    await send(message)
                if has_more:
                    self.send(PartTaken(number))
        except TimeoutError:
            self.send(ClientGone(number))  # the server hangs up on an answer that is not whole
        finally:
            del self._answers[number]
            if watching is not None:
                watching.cancel()

    async def _watch(self, number: int, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.send(ClientGone(number))


def _worker_application(folder: Path, limits: Limits, log: str, path: Path) -> ASGIApp:
    """Return the application of a worker, with its part of the limits."""
    configure_logs(log)
    threadpool_limits(1, user_api="blas")  # as where predictions are replayed
    worker = Worker(folder, limits)
    prefix, _, _ = MODEL.partition("{")
    apps = {
        (endpoint.method, endpoint.path.removeprefix(f"{MODEL}/")): name_requests(
            EndpointApp(worker, endpoint)
        )
        for endpoint in ENDPOINTS
        if endpoint.handler in _HERE
    }

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(scope, receive, send)
            return
        path: str = scope["path"]
        name, _, verb = path.removeprefix(prefix).partition("/")
        app = apps.get((scope["method"], verb)) if path.startswith(prefix) and name else None
        call = Call(worker, name, dict(scope["headers"]))
        try:
            content = bytes(await read_body(receive, call.headers, limits.body, call))
            if app is not None:
                with suppress(ElsewhereError):
                    scope["path_params"] = {"name": name}
                    await app(scope, partial(_repeat, content), send)
                    return
            await worker.forward(scope, content, receive, send)
        except RefusedError as refusal:
            answer: Any = partial(respond, call, refusal.answer)
            await name_requests(answer)(scope, receive, send)
        finally:
            worker.n_traffic_bytes -= call.n_traffic

    @asynccontextmanager
    async def connected() -> Any:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: worker, str(path))
        await worker.is_ready.wait()
        reporting = loop.create_task(worker.report())
        yield
        reporting.cancel()

    async def live(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with connected():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    return application


async def _repeat(content: bytes) -> Message:
    return {"type": "http.request", "body": content, "more_body": False}


def serve_with_workers(
    service: Service,
    application: ASGIApp,
    listening: socket.socket,
    n_workers: int,
    log: str,
    options: dict[str, Any],
) -> None:
    """Let workers answer what comes to a socket, until a signal comes."""
    with tempfile.TemporaryDirectory(prefix="folklearn-") as place:
        path = Path(place) / "writer"
        service.store.memory.n_readers = n_workers
        parent = WorkerParent(service, application, path)
        parent.start()
        shared = ("traffic", "queued_events", "queued_bytes")
        parts = {name: getattr(service.limits, name) // n_workers for name in shared}
        limits = dataclasses.replace(service.limits, **parts)
        make = partial(_worker_application, service.folder, limits, log, path)
        config = uvicorn.Config(make, factory=True, workers=n_workers, lifespan="on", **options)
        Multiprocess(config, [listening]).run()
        parent.stop()
