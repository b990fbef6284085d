"""The service as an application of ASGI, and the server that runs it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from folklearn.service.answers import RefusedError
from folklearn.service.http import EndpointApp, respond
from folklearn.service.openapi import document
from folklearn.service.pages import pages
from folklearn.service.routes import ENDPOINTS
from folklearn.service.service import Service

log = logging.getLogger("folklearn.service")


def application(service: Service) -> Starlette:
    """Return the application of a service; when it ends, the service is closed."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    routes = [Route(one.path, EndpointApp(service, one), methods=[one.method]) for one in ENDPOINTS]
    routes.append(Route("/v1/openapi.json", document(ENDPOINTS)))
    app = Starlette(routes=[*routes, *pages(service)], lifespan=lifespan)
    app.router.default = _nothing_there
    return app


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        refusal = RefusedError(404, "there is nothing here: /v1/openapi.json lists what there is")
        await respond(refusal, scope, receive, send)
