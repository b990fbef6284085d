"""The service as an application of ASGI, and its OpenAPI document."""

from collections.abc import AsyncIterator, Sequence
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
from folklearn.service.limits import NAME_PATTERN
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
        page_cache.close()

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    document = msgspec.json.encode(describe_api(ENDPOINTS))
    page_cache = ModelPageCache(service)
    apps = {endpoint: EndpointApp(service, endpoint) for endpoint in ENDPOINTS}
    routes = [
        Route(endpoint.path, app, methods=[endpoint.method]) for endpoint, app in apps.items()
    ]
    routes.append(Route("/v1/openapi.json", openapi))
    starlette = Starlette(
        routes=[*routes, *PageRouter(service, page_cache).routes()],
        lifespan=lifespan,
        exception_handlers={405: _answer_wrong_method},
    )
    starlette.router.default = _answer_unknown_path

    # Routes of one model are found by name: by way of Starlette's router a label takes 258 µs of
    # processor time instead of 190 (benchmarks/service.py, 64 clients).
    prefix, _, _ = MODEL.partition("{")
    by_verb = {
        (endpoint.method, endpoint.path.removeprefix(f"{MODEL}/")): app
        for endpoint, app in apps.items()
        if endpoint.path.startswith(f"{MODEL}/")
    }

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(prefix):
            name, _, verb = path.removeprefix(prefix).partition("/")
            app = by_verb.get((scope["method"], verb))
            if app is not None and name:
                scope["path_params"] = {"name": name}
                await app(scope, receive, send)
                return
        await starlette(scope, receive, send)

    return dispatch


async def _answer_wrong_method(request: Request, error: Exception) -> Response:
    detail = f"{request.method} is not for {request.url.path}: /v1/openapi.json lists what there is"
    problem = {"status": 405, "detail": detail}
    return JSONResponse(problem, 405, getattr(error, "headers", None), "application/problem+json")


async def _answer_unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        refusal = RefusedError(404, "there is nothing here: /v1/openapi.json lists what there is")
        await respond(refusal.answer, scope, receive, send)


# The OpenAPI document, made from the table that serves the routes.

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


def describe_api(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document as plain data."""
    types = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    for component in components.values():  # the kind of an event is for the journal
        if component["properties"].pop("type", None) is not None:
            component["required"].remove("type")
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        operation = _describe_operation(endpoint, by_type)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "folklearn", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answers: dict[str, Any] = {
        status: {"description": text, "content": problem} for status, text in _PROBLEMS.items()
    }
    for status in {200, endpoint.status}:
        answers[str(status)] = {"description": "Done"}
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "responses": answers,
        "parameters": [],
    }
    if endpoint.scope is not None:
        operation["security"] = [{"key": [endpoint.scope]}]
    if "{name}" in endpoint.path:
        operation["parameters"].append(
            {
                "name": "name",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": NAME_PATTERN},
            }
        )
    if endpoint.repeats:
        operation["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A request with the same key and content is done once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 64},
            }
        )
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation
