"""The service as an application of ASGI."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from folklearn.service.answers import RefusedError
from folklearn.service.http import EndpointApp, respond
from folklearn.service.openapi import document
from folklearn.service.pages import pages
from folklearn.service.pages.looks import Looks
from folklearn.service.routes import ENDPOINTS, MODEL
from folklearn.service.service import Service


def application(service: Service) -> ASGIApp:
    """Return the application of a service; when it ends, the service is closed."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()
        looks.close()

    looks = Looks(service)
    served = {one: EndpointApp(service, one) for one in ENDPOINTS}
    routes = [Route(one.path, app, methods=[one.method]) for one, app in served.items()]
    routes.append(Route("/v1/openapi.json", document(ENDPOINTS)))
    rest = Starlette(
        routes=[*routes, *pages(service, looks)],
        lifespan=lifespan,
        exception_handlers={405: _not_so},
    )
    rest.router.default = _nothing_there

    # What is asked for thousands of times a second is found by name, past all that Starlette does.
    head, _, _ = MODEL.partition("{")
    often = {
        (one.method, one.path.removeprefix(f"{MODEL}/")): app
        for one, app in served.items()
        if one.path.startswith(f"{MODEL}/")
    }

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(head):
            name, _, verb = path.removeprefix(head).partition("/")
            app = often.get((scope["method"], verb))
            if app is not None and name:
                scope["path_params"] = {"name": name}
                await app(scope, receive, send)
                return
        await rest(scope, receive, send)

    return dispatch


async def _not_so(request: Request, error: Exception) -> Response:
    detail = f"{request.method} is not for {request.url.path}: /v1/openapi.json lists what there is"
    problem = {"status": 405, "detail": detail}
    return JSONResponse(problem, 405, getattr(error, "headers", None), "application/problem+json")


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        refusal = RefusedError(404, "there is nothing here: /v1/openapi.json lists what there is")
        await respond(refusal, scope, receive, send)
