"""The application of the service, and how it is run on an address, from an empty folder on."""

import ipaddress
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from folklearn import serialization
from folklearn.errors import InvalidInputError
from folklearn.model.model import Model
from folklearn.service.events import Config
from folklearn.service.http import EndpointApp, describe_api
from folklearn.service.keys import Keys
from folklearn.service.limits import Limits, check_name
from folklearn.service.logs import configure_logs, name_requests
from folklearn.service.pages.handlers import ModelPageCache, page_routes
from folklearn.service.routes import ENDPOINTS, route_by_name
from folklearn.service.service import Service
from folklearn.service.workers import UVICORN_OPTIONS, serve_with_workers

TENANT = "main"
_FIRST_INHERITED = 3  # file descriptor, by the protocol of systemd
_BALLAST_BYTES = 16_000_000  # of a file to remove when the disk is full, to have room for repairs


def application(service: Service) -> ASGIApp:
    """Return the application of a service; when it ends, the service is closed."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()
        service.looking.shutdown(cancel_futures=True)

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    document = msgspec.json.encode(describe_api(ENDPOINTS))
    apps = {endpoint: EndpointApp(service, endpoint) for endpoint in ENDPOINTS}
    routes = page_routes(ModelPageCache(service))
    routes += [Route(one.path, app, methods=[one.method]) for one, app in apps.items()]
    routes.append(Route("/v1/openapi.json", openapi))
    starlette = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _answer_without_route}
    )
    find_app = route_by_name(apps)

    @name_requests
    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        app = find_app(scope) or starlette
        await app(scope, receive, send)

    return dispatch


async def _answer_without_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    is_wrong, wrong = error.status_code == 405, f"{request.method} is not for {request.url.path}"
    what = wrong if is_wrong else "there is nothing here"
    detail = f"{what}: /v1/openapi.json lists what there is"
    problem = {"status": error.status_code, "detail": detail}
    return JSONResponse(problem, error.status_code, error.headers, "application/problem+json")


def lacks_key(folder: Path, host: str) -> bool:
    """Tell whether a folder has no key yet; raise if other machines would be served so."""
    is_without, is_loopback = not Keys(folder).live(), host == "localhost"
    with suppress(ValueError):
        is_loopback = ipaddress.ip_address(host).is_loopback
    if is_without and not is_loopback:
        raise InvalidInputError(
            f"to listen on {host} the folder needs a key that is there already: "
            f"folklearn key {folder} create --scope admin"
        )
    return is_without


def inherited_socket() -> socket.socket | None:
    """Return the socket that systemd, or its like, opened for this process; None if it did not.

    It outlives the process, so that requests wait while the service is started again.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    listening = socket.socket(fileno=_FIRST_INHERITED)
    if os.environ.get("LISTEN_FDS") != "1" or listening.family == socket.AF_UNIX:
        raise InvalidInputError("the service listens on one TCP socket: name one in its unit")
    return listening


def first_key(folder: Path) -> str:
    return Keys(folder).create(tenant=TENANT, scopes=["admin"], note="the first key")


def address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def import_model(service: Service, path: Path, name: str | None = None) -> str:
    """Begin a model as a file that `Model.save` wrote; return its name, that of the file."""
    name = name or path.stem.lower()
    check_name("model", name)
    if not isinstance(serialization.load(path), Model):
        raise InvalidInputError(f"{path} holds no folklearn.Model: save one with Model.save")
    content, store = path.read_bytes(), service.store
    if (TENANT, name) in store.hosts:
        raise InvalidInputError(
            f"there is a model {name} already: start without --import to go on with it, or give "
            "the new one another --name"
        )
    service.writer.submit(lambda: store.create(TENANT, name, Config(), content)).result()
    return name


def serve(
    folder: Path,
    host: str,
    port: int,
    limits: Limits | None = None,
    begun: Callable[[Service, int], None] = lambda service, port: None,
    *,
    n_workers: int = 0,
    log: str = "text",
    listening: socket.socket | None = None,
) -> None:
    """Serve a folder until a signal comes; `begun` is told the port before the first request."""
    configure_logs(log)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = listening or socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another port"
        ) from None
    with listening:
        service, ballast = Service(folder, limits), folder / "ballast"
        if not ballast.exists() and shutil.disk_usage(folder).free > 100 * _BALLAST_BYTES:
            with open(ballast, "xb") as file:
                os.posix_fallocate(file.fileno(), 0, _BALLAST_BYTES)
            ballast.chmod(0o600)
        begun(service, listening.getsockname()[1])
        app = application(service)
        if n_workers:
            serve_with_workers(service, app, listening, n_workers, log)
        else:
            uvicorn.Server(uvicorn.Config(app, **UVICORN_OPTIONS)).run(sockets=[listening])
