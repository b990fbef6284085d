"""Pages in the browser: sessions, headers, one handler for each route, and a cache of models."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from folklearn.model.model import Model
from folklearn.model.summary import ModelSummary
from folklearn.report import style
from folklearn.report.rendering import render
from folklearn.service.events import RefusedError
from folklearn.service.hosts import ModelHost
from folklearn.service.http import Call, describe_error, read_body
from folklearn.service.keys import COOKIE, NO_KEY
from folklearn.service.service import Service
from folklearn.service.states import AgentState, ClassifierState

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
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATIC = {path.name: path for path in (Path(__file__).parent / "static").iterdir()}
_MIN_SECONDS_KEPT = 5.0  # that a page is shown, at least,
_COST_RATIO_KEPT = 5.0  # and times what it took to compute
_MAX_PAGES_KEPT = 16
_MAX_TABLE_ROWS = 12
# Inches of each chart on a wide screen and on a telephone; None is what the plot itself takes.
CHART_SIZES: dict[str, tuple[tuple[float, float] | None, tuple[float, float]]] = {
    "losses": ((7.5, 3.2), (4.0, 4.0)),
    "errors": ((7.5, 2.4), (4.0, 3.2)),
    "drift": ((7.5, 2.8), (4.0, 3.6)),
    "calibration": ((6.8, 4.8), (4.0, 5.6)),
    "confusion": (None, (4.0, 3.8)),
    "weights": (None, (4.0, 4.4)),
}
_MAX_NAMES = {"confusion": (14, 8), "weights": (16, 10)}  # likewise


class ModelPage:
    """One version of a classifier on its page; made and drawn by `Service.look`."""

    def __init__(self, version: int, state: ClassifierState) -> None:
        self.version, self.state, self.model = version, state, (model := state.model)
        self.alarms = model.monitor().alarms
        self.facts = ModelSummary.of_model(model, importance=False)
        self.charts = list(self.facts.plot_data)
        self.uniform_loss = math.log(max(1, len(model.labels)))  # of equal probabilities
        self._images: dict[tuple[str, bool], str] = {}
        _ = self.facts.accuracy, self.facts.drift  # kept by the summary from now on

    def draw(self, name: str, is_narrow: bool) -> str:
        if (name, is_narrow) not in self._images:
            size = CHART_SIZES[name][is_narrow]
            options = {"most": _MAX_NAMES[name][is_narrow]} if name in _MAX_NAMES else {}
            with style.use_style():
                ax = None if size is None else style.new_figure(*size).subplots()
                figure = self.facts.draw(name, ax=ax, title="", **options)
                self._images[name, is_narrow] = style.svg(figure)
        return self._images[name, is_narrow]


class ModelPageCache:
    """Pages of models, each kept for a while, so that visitors do not delay the writer.

    With a page the copy of its model is kept, until there is no room for another copy.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._page_lock = asyncio.Lock()
        # By model number, with the time from which they are too old.
        self._pages: dict[int, tuple[ModelPage, float]] = {}
        service.drop_pages = self._pages.clear

    async def find(self, host: ModelHost) -> ModelPage:
        async with self._page_lock:
            kept, until = self._pages.get(host.number, (None, 0.0))
            began = time.monotonic()
            if kept is not None and (kept.version == host.version or began < until):
                return kept
            kept = None  # there may be no room for its copy and the next
            version, state = await self.service.copy_state(host)
            assert isinstance(state, ClassifierState)
            page: ModelPage = await self.service.look(ModelPage, version, state)
            ended = time.monotonic()
            until = ended + max(_MIN_SECONDS_KEPT, _COST_RATIO_KEPT * (ended - began))
            self._pages[host.number] = page, until
            if len(self._pages) > _MAX_PAGES_KEPT:
                del self._pages[next(iter(self._pages))]
            return page


@dataclass(kw_only=True)
class PageRequest(Call):
    """A request for a page."""

    pages: ModelPageCache
    request: Request

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        context |= {"key": self.key, "address": str(self.request.base_url).rstrip("/")}
        text = render(template, package=__package__, **context)
        return Response(text, status, media_type="text/html")


PageHandler = Callable[[PageRequest], Awaitable[Response]]


def page_routes(pages: ModelPageCache) -> list[BaseRoute]:
    """Return the routes of the pages: without a session there is the login, and what it shows."""
    table = [
        ("GET", "/static/{file}", static, True),
        ("GET", "/login", login_form, True),
        ("POST", "/login", login, True),
        ("POST", "/logout", logout, True),
        ("GET", "/", models, False),
        ("GET", "/models/{name}", model, False),
        ("GET", "/models/{name}/pictures/{picture}.svg", chart, False),
        ("GET", "/models/{name}/report", report, False),
        ("POST", "/models/{name}/verify", verify, False),
    ]
    return [
        Route(path, partial(_answer, pages, path, handler, is_public), methods=[method])
        for method, path, handler, is_public in table
    ]


async def _answer(
    pages: ModelPageCache, path: str, handler: PageHandler, is_public: bool, request: Request
) -> Response:
    service, name = pages.service, request.path_params.get("name", "")
    page = PageRequest(service, name, dict(request.scope["headers"]), pages=pages, request=request)
    request.scope.update(call=page, route=path)  # for the log
    try:
        if request.method == "POST":
            _check_same_site(request)
        if not is_public:
            page.key = service.sessions.find(page.headers, service.keys) or NO_KEY
        response: Response = RedirectResponse("/login", 303)
        if is_public or page.key is not NO_KEY:
            page.host = service.store.hosts.get((page.key.tenant, name))
            if name and (page.host is None or not page.key.allows("read", name)):
                raise RefusedError(404, f"There is no model {name!r}.")
            response = await handler(page)
    except Exception as error:
        refusal = describe_error(error, f"the page {path}")
        response = page.render("problem.html", refusal.status, sentence=str(refusal))
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _check_same_site(request: Request) -> None:
    """Refuse a form that another site has sent, by either of the headers of browsers."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_same = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not (is_same if site is None else site == "same-origin"):
        raise RefusedError(403, "This form was sent by another site; nothing was done.")


async def static(page: PageRequest) -> Response:
    path = _STATIC.get(page.request.path_params["file"])
    if path is None:
        raise RefusedError(404, "There is no such file.")
    return Response(path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix])


async def login_form(page: PageRequest) -> Response:
    return page.render("login.html", is_wrong=False)


async def login(page: PageRequest) -> Response:
    content = await read_body(page.request.receive, page, limit=10_000)
    fields = parse_qs(content.decode("latin-1"), max_num_fields=10)
    text = fields.get("key", [""])[0].strip()
    key = page.service.keys.find(text)
    if key is None or not key.allows("read", key.model):
        return page.render("login.html", 401, is_wrong=True)
    response, is_secure = RedirectResponse("/", 303), page.request.url.scheme == "https"
    token = page.service.sessions.begin(text)
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_secure)
    return response


async def logout(page: PageRequest) -> Response:
    page.service.sessions.end(page.headers)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


async def models(page: PageRequest) -> Response:
    hosts = page.service.store.models(page.key.tenant)
    readable = [host for host in hosts if page.key.allows("read", host.row.name)]
    numbers = await page.service.numbers(readable)
    return page.render("models.html", models=numbers, now=page.service.store.clock())


async def model(page: PageRequest) -> Response:
    service, host = page.service, page.host
    (numbers,) = await service.numbers([host])
    shared: dict[str, Any] = {
        "numbers": numbers,
        "now": service.store.clock(),
        "verified": service.verified.get(host.number),
        "may_verify": page.key.allows("admin", page.name),
    }
    if host.is_agent:
        _, state = await service.copy_state(host)
        assert isinstance(state, AgentState)
        return page.render("agent.html", rewards=state.model.rewards, **shared)
    shown = await page.pages.find(host)
    classes = shown.facts.classes[:_MAX_TABLE_ROWS]
    return page.render("model.html", page=shown, classes=classes, **shared)


async def chart(page: PageRequest) -> Response:
    name, is_narrow = page.request.path_params["picture"], "narrow" in page.request.query_params
    shown = None if page.host.is_agent else await page.pages.find(page.host)
    if shown is None or name not in shown.charts:
        raise RefusedError(404, "There is no such picture.")
    image = await page.service.look(shown.draw, name, is_narrow)
    return Response(image, media_type="image/svg+xml", headers=_DOCUMENT_HEADERS)


async def report(page: PageRequest) -> Response:
    if page.host.is_agent:
        raise RefusedError(404, "There is no report on a model that decides.")
    shown = await page.pages.find(page.host)
    record = await page.service.look(shown.model.to_record)
    title = f"Report on {page.name}"
    text = await asyncio.to_thread(lambda: Model.from_record(record).report(title=title))
    return Response(text, media_type="text/html", headers=_DOCUMENT_HEADERS)


async def verify(page: PageRequest) -> Response:
    if not page.key.allows("admin", page.name):
        raise RefusedError(403, "Only a key with the scope admin may do this.")
    await page.service.verify(page.host)
    return RedirectResponse(f"/models/{page.name}#journal", 303)
