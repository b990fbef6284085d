"""Where visitors of the pages are met: who they are, what they may see, and how it is framed."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from folklearn.errors import FolklearnError
from folklearn.service.events import RefusedError
from folklearn.service.http import NOBODY, read_body
from folklearn.service.keys import Key
from folklearn.service.model_host import ModelHost
from folklearn.service.pages import words
from folklearn.service.pages.looks import Looks
from folklearn.service.service import Service

log = logging.getLogger("folklearn.service")

_LARGEST_FORM = 10_000  # bytes
# The referrer stays within the pages: without any, a browser hides the origin of a form too.
_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
# Of a document that brings its own style, and nothing else.
DRAWN = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'"
}


@dataclass(frozen=True)
class Visit:
    """A request for a page: by whom, and about which model, if one is named."""

    desk: "Desk"
    request: Request
    key: Key
    host: Any = None  # `ModelHost`, where the path names a model

    @property
    def service(self) -> Service:
        """The service whose pages these are."""
        return self.desk.service

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of the request."""
        return dict(self.request.scope["headers"])

    def models(self) -> list[ModelHost]:
        """Return the models that the visitor may see."""
        own = self.service.store.models(self.key.tenant)
        return [host for host in own if self.key.allows("read", host.row.name)]

    async def form(self) -> dict[str, str]:
        """Return the fields of a form that was sent."""
        content = await read_body(self.request.receive, self.headers, _LARGEST_FORM)
        fields = parse_qs(content.decode("latin-1"), max_num_fields=10)
        return {name: values[0] for name, values in fields.items()}

    def page(self, template: str, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        text = self.desk.templates.get_template(template).render(key=self.key, **context)
        return Response(text, status, media_type="text/html")


View = Callable[[Visit], Awaitable[Response]]
App = Callable[[Request], Awaitable[Response]]


class Desk:
    """What all pages share: the service, the templates, and what models look like."""

    def __init__(self, service: Service, looks: Looks) -> None:
        self.service, self.looks = service, looks
        self.templates = Environment(
            loader=PackageLoader(__package__),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters.update(words.FILTERS)

    def open_to_all(self, view: View) -> App:
        """Return a view that needs no session."""

        async def found(request: Request) -> Response:
            return await view(Visit(self, request, NOBODY))

        return self._framed(found)

    def for_sessions(self, view: View) -> App:
        """Return a view for who has logged in, and may see the model that the path names."""

        async def found(request: Request) -> Response:
            service = self.service
            key = service.sessions.find(dict(request.scope["headers"]), service.keys)
            if key is None:
                return RedirectResponse("/login", 303)
            name, host = request.path_params.get("name"), None
            if name is not None:
                host = service.store.find(key.tenant, name)
                if host is None or not key.allows("read", name):
                    raise RefusedError(404, f"There is no model {name!r}.")
            return await view(Visit(self, request, key, host))

        return self._framed(found)

    def _framed(self, found: App) -> App:
        """Give every answer its headers, and every failure a page of its own."""

        async def framed(request: Request) -> Response:
            try:
                if request.method == "POST":
                    _check_same_sites(request)
                response = await found(request)
            except FolklearnError as error:
                status = error.status if isinstance(error, RefusedError) else 422
                response = self._problem(request, status, str(error))
            except Exception:
                log.exception("the page %s failed", request.scope["path"])
                response = self._problem(request, 500, "The service failed; its log says why.")
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return framed

    def _problem(self, request: Request, status: int, sentence: str) -> Response:
        return Visit(self, request, NOBODY).page("problem.html", status, sentence=sentence)


def _check_same_sites(request: Request) -> None:
    """Refuse a form that another site has sent: browsers tell, one way or the other."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_own = site == "same-origin"
    else:
        is_own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not is_own:
        raise RefusedError(403, "This form was sent by another site; nothing was done.")
