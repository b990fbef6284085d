"""The service as an application of ASGI."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from folklearn import __version__
from folklearn.service.events import RefusedError
from folklearn.service.http import Endpoint, EndpointApp, respond
from folklearn.service.limits import PATTERN
from folklearn.service.pages.handlers import PageRouter
from folklearn.service.pages.view_model import ModelPageCache
from folklearn.service.routes import ENDPOINTS, MODEL
from folklearn.service.service import Service


def application(service: Service) -> ASGIApp:
    """Return the application of a service; when it ends, the service is closed."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()
        pages.close()

    pages = ModelPageCache(service)
    served = {one: EndpointApp(service, one) for one in ENDPOINTS}
    routes = [Route(one.path, app, methods=[one.method]) for one, app in served.items()]
    routes.append(Route("/v1/openapi.json", document(ENDPOINTS)))
    rest = Starlette(
        routes=[*routes, *PageRouter(service, pages).routes()],
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


_PROBLEMS = {
    "400": "The request cannot be read",
    "401": "No key, or one that is not live",
    "403": "The key does not allow this",
    "404": "There is no such model, prediction or decision",
    "409": "It contradicts what was said before",
    "410": "It came too late",
    "413": "The request is too large",
    "422": "The request is refused; the detail says why",
    "429": "Too many requests wait: try again after Retry-After seconds",
    "503": "Nothing can be learned now: try again after Retry-After seconds",
}
_PROBLEM = {
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "retry_after": {"type": "integer", "description": "Seconds, as in Retry-After"},
    },
    "required": ["status", "detail"],
}


def document(endpoints: Sequence[Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    """Return the route of the document."""
    content = msgspec.json.encode(described(endpoints))

    async def openapi(request: Request) -> Response:
        return Response(content, media_type="application/json")

    return openapi


def described(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the document as plain data."""
    types = [one.body for one in endpoints if one.body is not None]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "folklearn", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answers: dict[str, Any] = {
        status: {"description": text, "content": problem} for status, text in _PROBLEMS.items()
    }
    for status in {200, endpoint.status}:
        answers[str(status)] = {"description": "Done"}
    found: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "responses": answers,
        "parameters": [],
    }
    if endpoint.scope is not None:
        found["security"] = [{"key": [endpoint.scope]}]
    if "{name}" in endpoint.path:
        found["parameters"].append(
            {
                "name": "name",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": PATTERN},
            }
        )
    if endpoint.repeats:
        found["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A request with the same key and content is done once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 64},
            }
        )
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas[endpoint.body]}}
        found["requestBody"] = {"required": True, "content": content}
    return found
