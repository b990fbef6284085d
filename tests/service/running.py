"""A service on a port of this machine, for tests that speak HTTP to it."""

import http.client
import json
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


class Reply(NamedTuple):
    """An answer as a client sees it."""

    status: int
    body: Any
    headers: dict[str, str]


class Running:
    """A service that runs, and one key of its tenant "main" that may do everything."""

    def __init__(self, service: Service, port: int, key: str) -> None:
        self.service, self.port, self.key = service, port, key

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
    folder: Path, limits: Limits | None = None, key: str | None = None
) -> Iterator[Running]:
    """Serve a folder within, with a new key unless one is given."""
    if key is None:
        key = Keys(folder).create(scopes=["admin"])
    service = Service(folder, limits or Limits(free_disk=0, deadline=120.0))
    config = uvicorn.Config(
        application(service), port=0, log_level="critical", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(service, port, key)
    finally:
        server.should_exit = True
        thread.join()
