"""A service on a port of this machine, for tests that speak HTTP to it."""

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from folklearn.service.keys import Keys
from folklearn.service.limits import Limits
from folklearn.service.server import application
from folklearn.service.service import Service
from folklearn.service.workers import WorkerParent
from tests.service import lives

N_WORKERS = int(os.environ.get("FOLKLEARN_TEST_WORKERS", "0"))  # of every service that runs
_OPTIONS: dict[str, Any] = {"log_level": "critical", "ws": "none", "timeout_graceful_shutdown": 1}


class Reply(NamedTuple):
    """An answer as a client sees it."""

    status: int
    body: Any
    headers: dict[str, str]


class Running:
    """A service that runs, and one key of its tenant "main" that may do everything."""

    def __init__(
        self, service: Service, port: int, key: str, parent: WorkerParent | None = None
    ) -> None:
        self.service, self.port, self.key, self.parent = service, port, key, parent

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send one request; a body that is bytes goes as it is, key None sends none."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = f"Bearer {key or self.key}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, content, sent)
            answer = connection.getresponse()
            given, found = {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()
        is_json = "json" in given.get("content-type", "")
        return Reply(answer.status, json.loads(found) if is_json else found, given)

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """Send what must succeed; return the content of the answer."""
        reply = self.ask("POST", path, body, **options)
        assert reply.status == 200, reply
        return reply.body


@contextmanager
def running(
    folder: Path,
    limits: Limits | None = None,
    key: str | None = None,
    n_workers: int = N_WORKERS,
) -> Iterator[Running]:
    """Serve a folder within, with a new key unless one is given."""
    if key is None:
        key = Keys(folder).create(scopes=["admin"])
    service = Service(folder, limits or Limits(free_disk=0, deadline=120.0))
    if n_workers:
        with _beside_workers(service, n_workers) as (port, parent):
            yield Running(service, port, key, parent)
        return
    server = uvicorn.Server(uvicorn.Config(application(service), port=0, **_OPTIONS))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    try:
        yield Running(service, server.servers[0].sockets[0].getsockname()[1], key)
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _beside_workers(service: Service, n_workers: int) -> Iterator[tuple[int, WorkerParent]]:
    with lives.scratch() as place, socket.create_server(("127.0.0.1", 0)) as listening:
        path = Path(place) / "writer"
        parent = WorkerParent(service, application(service), path, n_workers)
        parent.start()
        arguments = service.folder, service.limits, n_workers, path, listening, _OPTIONS
        workers = [lives.begin(lives.work, *arguments) for _ in range(n_workers)]
        try:
            yield listening.getsockname()[1], parent
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()
            parent.stop()
