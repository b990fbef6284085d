"""Pages in the browser: sessions, headers, and one handler for each route."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from folklearn.errors import FolklearnError
from folklearn.report.rendering import new_environment
from folklearn.service.events import RefusedError
from folklearn.service.http import NO_KEY, read_body
from folklearn.service.keys import COOKIE, Key
from folklearn.service.model_host import ModelHost
from folklearn.service.named_agent import NamedAgent
from folklearn.service.pages.charts import CHARTS
from folklearn.service.pages.view_model import ModelPageCache, describe_replay
from folklearn.service.service import Service

log = logging.getLogger("folklearn.service")

_MAX_FORM_BYTES = 10_000
# The referrer stays within the pages: without any, a browser hides the origin of a form too.
_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
# Of a document with style and images inside, and nothing else.
_DOCUMENT_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'"
}
_STATIC = Path(__file__).parent / "static"
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: (path.read_bytes(), _MEDIA_TYPES[path.suffix]) for path in _STATIC.iterdir()}


@dataclass(frozen=True)
class PageRequest:
    """A request for a page: its key, and the model that the path names, if any."""

    router: "PageRouter"
    request: Request
    key: Key
    host: Any = None  # `ModelHost`, where the path names a model

    @property
    def service(self) -> Service:
        """The service of the pages."""
        return self.router.service

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of the request."""
        return dict(self.request.scope["headers"])

    @property
    def address(self) -> str:
        """The address of the service, without a slash at its end."""
        return str(self.request.base_url).rstrip("/")

    def models(self) -> list[ModelHost]:
        """Return the models that the key may read."""
        hosts = self.service.store.models(self.key.tenant)
        return [host for host in hosts if self.key.allows("read", host.row.name)]

    async def form(self) -> dict[str, str]:
        """Return the fields of a form that was sent."""
        content = await read_body(self.request.receive, self.headers, _MAX_FORM_BYTES)
        fields = parse_qs(content.decode("latin-1"), max_num_fields=10)
        return {name: values[0] for name, values in fields.items()}

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        text = self.router.templates.get_template(template).render(key=self.key, **context)
        return Response(text, status, media_type="text/html")


Handler = Callable[[PageRequest], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class PageRouter:
    """The routes of the pages, with the service, the templates and the cached pages of models."""

    def __init__(self, service: Service, pages: ModelPageCache) -> None:
        self.service, self.pages = service, pages
        self.templates = new_environment(__package__)
        self.templates.filters["replay"] = describe_replay

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/static/{file}", self._public(static)),
            Route("/login", self._public(login_form)),
            Route("/login", self._public(login), methods=["POST"]),
            Route("/logout", self._public(logout), methods=["POST"]),
            Route("/", self._with_session(models)),
            Route("/models/{name}", self._with_session(model)),
            Route("/models/{name}/pictures/{picture}.svg", self._with_session(chart)),
            Route("/models/{name}/report", self._with_session(report)),
            Route("/models/{name}/verify", self._with_session(verify), methods=["POST"]),
        ]

    def _public(self, handler: Handler) -> Endpoint:
        """Return the endpoint of a handler that needs no session."""

        async def answer(request: Request) -> Response:
            return await handler(PageRequest(self, request, NO_KEY))

        return self._protect(answer)

    def _with_session(self, handler: Handler) -> Endpoint:
        """Return the endpoint of a handler for keys that may read the model that the path names."""

        async def answer(request: Request) -> Response:
            service = self.service
            key = service.sessions.find(dict(request.scope["headers"]), service.keys)
            if key is None:
                return RedirectResponse("/login", 303)
            name, host = request.path_params.get("name"), None
            if name is not None:
                host = service.store.hosts.get((key.tenant, name))
                if host is None or not key.allows("read", name):
                    raise RefusedError(404, f"There is no model {name!r}.")
            return await handler(PageRequest(self, request, key, host))

        return self._protect(answer)

    def _protect(self, answer: Endpoint) -> Endpoint:
        """Give every response its headers, and every failure a page."""

        async def protected(request: Request) -> Response:
            try:
                if request.method == "POST":
                    _check_same_site(request)
                response = await answer(request)
            except FolklearnError as error:
                status = error.status if isinstance(error, RefusedError) else 422
                response = self._problem(request, status, str(error))
            except Exception:
                log.exception("the page %s failed", request.scope["path"])
                response = self._problem(request, 500, "The service failed; its log says why.")
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return protected

    def _problem(self, request: Request, status: int, sentence: str) -> Response:
        return PageRequest(self, request, NO_KEY).render("problem.html", status, sentence=sentence)


def _check_same_site(request: Request) -> None:
    """Refuse a form that another site has sent, by either of the headers of browsers."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_same = site == "same-origin"
    else:
        is_same = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not is_same:
        raise RefusedError(403, "This form was sent by another site; nothing was done.")


async def static(page: PageRequest) -> Response:
    """Send the style, the script or the icon of the pages."""
    file = page.request.path_params["file"]
    if file not in _FILES:
        raise RefusedError(404, "There is no such file.")
    content, media_type = _FILES[file]
    return Response(content, media_type=media_type)


async def login_form(page: PageRequest) -> Response:
    """Ask for a key."""
    return page.render("login.html", is_wrong=False)


async def login(page: PageRequest) -> Response:
    """Begin a session for a key that may read."""
    text = (await page.form()).get("key", "").strip()
    key = page.service.keys.find(text)
    if key is None or not key.allows("read", key.model):
        return page.render("login.html", 401, is_wrong=True)
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        page.service.sessions.begin(text),
        httponly=True,
        samesite="strict",
        secure=page.request.url.scheme == "https",
    )
    return response


async def logout(page: PageRequest) -> Response:
    """End the session."""
    page.service.sessions.end(page.headers)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


async def models(page: PageRequest) -> Response:
    """List the models, or show how to make the first one."""
    numbers = await page.service.numbers(page.models())
    now = page.service.store.clock()
    return page.render("models.html", models=numbers, now=now, address=page.address)


async def model(page: PageRequest) -> Response:
    """Show one model."""
    service, host = page.service, page.host
    (numbers,) = await service.numbers([host])
    shared: dict[str, Any] = {
        "numbers": numbers,
        "now": service.store.clock(),
        "verified": service.verified.get(host.number),
        "may_verify": page.key.allows("admin", host.row.name),
        "address": page.address,
    }
    if host.is_agent:
        _, state = await service.copy_state(host)
        assert isinstance(state, NamedAgent)
        return page.render("agent.html", actions=state.table(), **shared)
    pages = page.router.pages
    shown = await pages.find(host)
    importance = pages.importance(host, shown)
    return page.render("model.html", page=shown, importance=importance, **shared)


async def chart(page: PageRequest) -> Response:
    """Draw a chart of a model."""
    name, is_narrow = page.request.path_params["picture"], "narrow" in page.request.query_params
    if page.host.is_agent or name not in CHARTS:
        raise RefusedError(404, "There is no such picture.")
    image = await page.router.pages.draw(page.host, name, is_narrow=is_narrow)
    return Response(image, media_type="image/svg+xml", headers=_DOCUMENT_HEADERS)


async def report(page: PageRequest) -> Response:
    """Send the report on a classifier."""
    if page.host.is_agent:
        raise RefusedError(404, "There is no report on a model that decides.")
    text = await page.router.pages.report(page.host)
    return Response(text, media_type="text/html", headers=_DOCUMENT_HEADERS)


async def verify(page: PageRequest) -> Response:
    """Replay the journal of a model, then show the page with the result."""
    name = page.host.row.name
    if not page.key.allows("admin", name):
        raise RefusedError(403, "Only a key with the scope admin may do this.")
    await page.service.verify(page.host)
    return RedirectResponse(f"/models/{name}#journal", 303)
