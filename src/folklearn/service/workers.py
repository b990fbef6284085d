"""Worker processes: they speak HTTP and predict, beside the process that learns and commits.

uvicorn starts them, replaces those that die, and all of them on SIGHUP. The process that learns is
their parent, and holds the one `Service`; each worker is connected to it by a socket. It sends the
models that it publishes; a worker (worker.py) predicts from these, and hands changes of models
over. Every other request passes through it, as HTTP, to another socket of the parent.
"""

import asyncio
import socket
import tempfile
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from folklearn.service import events, link
from folklearn.service.events import RefusedError
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.http import describe_error
from folklearn.service.service import Service
from folklearn.service.worker import make_application

UVICORN_OPTIONS: dict[str, Any] = {
    "log_config": None,  # its loggers say what they have to say to ours
    "log_level": "warning",
    "access_log": False,
    "proxy_headers": False,
    "ws": "none",
    "server_header": False,
    "timeout_graceful_shutdown": 5,
}
_STARTING_SECONDS = 0.01  # between two looks whether requests are answered
_START_SECONDS = 60  # of a worker, at most, before another one ends; or in which it is silent


class WorkerConnection(link.Connection):
    """The parent's end: requests of one worker, and the models that it is sent."""

    def __init__(self, parent: "WorkerParent") -> None:
        super().__init__()
        self._parent, self._service = parent, parent.service
        self._unsent: dict[int, ModelHost] = {}  # published while nothing could be written
        self._tasks: set[asyncio.Task[None]] = set()
        self.gathering: deque[asyncio.Future[None]] = deque()  # answered in this order

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._parent.connections.add(self)
        for host in self._service.store.models():
            self.send_model(host)
        self.send(link.AllPublished())

    def connection_lost(self, error: Exception | None) -> None:
        self._parent.connections.discard(self)
        for future in self.gathering:
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
            case link.ForwardedChange(request=request):
                if events.names_predictions(request):
                    task = asyncio.get_running_loop().create_task(self._parent.gather())
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    task.add_done_callback(partial(self._change, message))
                else:
                    self._change(message)
            case link.Observed(answers):
                for answer in answers:
                    self._service.observe(*answer)
            case link.Gather():
                self.gathering.popleft().set_result(None)

    def _change(
        self, message: link.ForwardedChange, gathered: "asyncio.Task[None] | None" = None
    ) -> None:
        host = self._service.hosts.get((message.tenant, message.name))
        is_prediction = isinstance(message.request, events.PredictionsRequest)
        try:
            if gathered is not None:
                gathered.result()  # raises where a worker does not answer
            if host is None or host.number != message.model:
                raise RefusedError(404, f"the model {message.name} was deleted")
            change = Change(host, message.request, message.key, message.client)
            # Workers bound what they remember themselves: it is not refused when labels are many.
            done = self._service.submit(change, message.n_bytes, is_bounded=not is_prediction)
            done.add_done_callback(partial(self._tell, message.number))
        except asyncio.CancelledError:
            pass  # the service ends
        except RefusedError as refusal:
            self.send(link.ChangeAnswered(message.number, *refusal.answer))

    def _tell(self, number: int, done: Any) -> None:
        error = done.exception()
        answer = done.result() if error is None else describe_error(error).answer
        self.send(link.ChangeAnswered(number, *answer))


class WorkerParent:
    """The parent of workers: a thread answers what they hand over and sends them models."""

    def __init__(self, service: Service, application: ASGIApp, path: Path, n_workers: int) -> None:
        self.service, self._path = service, path
        # The scheme of a request is in a header that workers write.
        options = UVICORN_OPTIONS | {"proxy_headers": True, "forwarded_allow_ips": "*"}
        options |= {"uds": link.http_path(path), "date_header": False}
        self._server = uvicorn.Server(uvicorn.Config(application, **options))
        service.store.memory.n_readers = n_workers
        self.connections: set[WorkerConnection] = set()
        self._gathering: asyncio.Task[None] | None = None
        self._next_gathering: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(_STARTING_SECONDS)
        self.service.gather, self.service.has_workers = self.gather, True
        self.service.store.memory.announce = self._announce

    def stop(self) -> None:
        """End with the service, when all workers have ended."""
        self._server.should_exit = True
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        make = partial(WorkerConnection, self)
        async with await self._loop.create_unix_server(make, str(self._path)):
            await self._server.serve()

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
        answers = []
        for connection in self.connections:
            answers.append(self._loop.create_future())
            connection.gathering.append(answers[-1])
            connection.send(link.Gather())
        deadline = self.service.limits.deadline
        if answers and (await asyncio.wait(answers, timeout=deadline))[1]:
            sentence = "a worker does not answer: try again"
            raise RefusedError(503, sentence, retry_after=1, limit=f"deadline={deadline}")


def serve_with_workers(
    service: Service, application: ASGIApp, listening: socket.socket, n_workers: int, log: str
) -> None:
    """Let workers answer what comes to a socket, until a signal comes."""
    with tempfile.TemporaryDirectory(prefix="folklearn-") as place:
        path = Path(place) / "writer"
        parent = WorkerParent(service, application, path, n_workers)
        parent.start()
        make = partial(make_application, service.folder, service.limits, n_workers, log, path)
        options = UVICORN_OPTIONS | {"timeout_worker_healthcheck": _START_SECONDS}
        config = uvicorn.Config(make, factory=True, lifespan="on", workers=n_workers, **options)
        Multiprocess(config, [listening]).run()
        parent.stop()
