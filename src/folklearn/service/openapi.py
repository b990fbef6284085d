"""The routes as an OpenAPI document, made from the same table that serves them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from folklearn import __version__
from folklearn.service.http import Endpoint
from folklearn.service.names import PATTERN

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
