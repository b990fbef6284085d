"""Worker processes: they speak HTTP and predict, beside the process that learns and commits.

uvicorn starts them, replaces those that die, and all of them on SIGHUP. The process that learns is
their parent, and holds the one `Service`; each worker is connected to it by a socket. It sends the
models that it publishes; a worker (worker.py) predicts from these, hands changes of models over,
and every other request as it came.
"""

import asyncio
import contextlib
import logging
import socket
import tempfile
import threading
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp, Message, Scope
from uvicorn.lifespan.on import LifespanOn
from uvicorn.supervisors import Multiprocess

from folklearn.service import events, link
from folklearn.service.events import RefusedError
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.http import describe_error
from folklearn.service.service import Service
from folklearn.service.worker import make_application

_log = logging.getLogger("folklearn.service")

_START_SECONDS = 60  # of a worker, at most, before another one ends; or in which it is silent


class WorkerConnection(link.Connection):
    """The parent's end: requests of one worker, and the models that it is sent."""

    def __init__(self, parent: "WorkerParent") -> None:
        super().__init__()
        self._parent, self._service = parent, parent.service
        self._under_way: dict[int, _ForwardedRequest] = {}
        self._unsent: dict[int, ModelHost] = {}  # published while nothing could be written
        self._tasks: set[asyncio.Task[None]] = set()
        self.gathering: dict[int, asyncio.Future[None]] = {}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._parent.connections.add(self)
        for host in self._service.store.models():
            self.send_model(host)
        self.send(link.AllPublished())

    def connection_lost(self, error: Exception | None) -> None:
        self._parent.connections.discard(self)
        for request in self._under_way.values():
            request.leave()
        for future in self.gathering.values():
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
            self.send(link.ModelDeleted(row.tenant, row.name))
        elif self.can_write:
            which = host.number, row.tenant, row.name, host.is_agent
            self.send(link.ModelPublished(*which, published.version, published.content))
        else:
            self._unsent[host.number] = host

    def receive(self, message: Any) -> None:
        match message:
            case link.ForwardedRequest():
                self._begin(self._answer(message))
            case link.Content(number, content) if number in self._under_way:
                self._under_way[number].content.put_nowait(content)
            case link.PartTaken(number) if number in self._under_way:
                self._under_way[number].taken.set()
            case link.ClientGone(number) if number in self._under_way:
                self._under_way[number].leave()
            case link.ForwardedChange(request=request):
                if events.names_predictions(request):
                    self._begin(self._change_later(message))
                else:
                    self._change(message)
            case link.Observed(answers):
                for answer in answers:
                    self._service.observe(*answer)
            case link.Gather(number) if number in self.gathering:
                self.gathering.pop(number).set_result(None)

    async def _answer(self, request: link.ForwardedRequest) -> None:
        number, is_wanted, is_whole = request.number, True, False
        under_way = self._under_way[number] = _ForwardedRequest(request.content)

        async def receive() -> Message:
            nonlocal is_wanted
            if is_wanted:
                is_wanted = False
                if request.content is None:
                    self.send(link.ContentWanted(number))
                if (content := await under_way.content.get()) is not None:
                    return {"type": "http.request", "body": content, "more_body": False}
            await under_way.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal is_whole
            if under_way.gone.is_set():  # nothing takes it any more
                return
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                self.send(link.AnswerBegun(number, message["status"], headers))
                return
            has_more = message.get("more_body", False)
            is_whole = not has_more
            under_way.taken.clear()
            self.send(link.AnswerPart(number, bytes(message.get("body", b"")), has_more))
            if has_more:
                await under_way.taken.wait()

        scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
            "scheme": request.scheme, "method": request.method, "path": request.path,
            "raw_path": request.path.encode(), "query_string": request.query, "root_path": "",
            "headers": request.headers, "client": None, "server": request.server,
        }  # fmt: skip
        try:
            await self._parent.application(scope, receive, send)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
        finally:
            if not is_whole:  # the client was too slow: the worker hangs up
                self.send(link.AnswerPart(number, b"", False))
            del self._under_way[number]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change_later(self, message: link.ForwardedChange) -> None:
        try:
            await self._parent.gather()
        except RefusedError as refusal:
            self.send(link.ChangeAnswered(message.number, *refusal.answer))
        else:
            self._change(message)

    def _change(self, message: link.ForwardedChange) -> None:
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
            self.send(link.ChangeAnswered(message.number, *refusal.answer))

    def _tell(self, number: int, done: Any) -> None:
        error = done.exception()
        if error is None:
            self.send(link.ChangeAnswered(number, *done.result()))
        else:
            self.send(link.ChangeAnswered(number, *describe_error(error).answer))


class _ForwardedRequest:
    """A request that the parent answers, as far as its worker has got with it."""

    def __init__(self, content: bytes | None) -> None:
        self.content: asyncio.Queue[bytes | None] = asyncio.Queue()
        if content is not None:
            self.content.put_nowait(content)
        self.taken, self.gone = asyncio.Event(), asyncio.Event()  # the last part; the client

    def leave(self) -> None:
        """Wait for nothing more from a client, or a worker, that is gone."""
        self.content.put_nowait(None)
        self.taken.set()
        self.gone.set()


class WorkerParent:
    """The parent of workers: a thread answers what they hand over and sends them models."""

    def __init__(self, service: Service, application: ASGIApp, path: Path, n_workers: int) -> None:
        self.service, self.application, self._path = service, application, path
        service.store.memory.n_readers = n_workers
        self.connections: set[WorkerConnection] = set()
        self._n_gathered = 0
        self._gathering: asyncio.Task[None] | None = None
        self._next_gathering: asyncio.Task[None] | None = None
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.service.gather, self.service.has_workers = self.gather, True
        self.service.store.memory.announce = self._announce

    def stop(self) -> None:
        """End with the service, when all workers have ended."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()

    async def _listen(self) -> None:
        make = partial(WorkerConnection, self)
        self._server = await self._loop.create_unix_server(make, str(self._path))
        self._lifespan = LifespanOn(uvicorn.Config(self.application, log_config=None))
        await self._lifespan.startup()

    async def _end(self) -> None:
        self._server.close()
        await self._server.wait_closed()
        await self._lifespan.shutdown()

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
            connection.send(link.Gather(self._n_gathered))
        deadline = self.service.limits.deadline
        if answers and (await asyncio.wait(answers, timeout=deadline))[1]:
            sentence = "a worker does not answer: try again"
            raise RefusedError(503, sentence, retry_after=1, limit=f"deadline={deadline}")


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
        parent = WorkerParent(service, application, path, n_workers)
        parent.start()
        make = partial(make_application, service.folder, service.limits, n_workers, log, path)
        options |= {"workers": n_workers, "timeout_worker_healthcheck": _START_SECONDS}
        config = uvicorn.Config(make, factory=True, lifespan="on", **options)
        Multiprocess(config, [listening]).run()
        parent.stop()
