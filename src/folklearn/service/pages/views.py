"""The pages, one function each."""

from pathlib import Path
from typing import Any

from starlette.responses import RedirectResponse, Response

from folklearn.service.events import RefusedError
from folklearn.service.keys import COOKIE
from folklearn.service.pages.desk import DRAWN, Visit
from folklearn.service.pages.pictures import PICTURES
from folklearn.service.states import AgentState

_STATIC = Path(__file__).parent / "static"
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: (path.read_bytes(), _KINDS[path.suffix]) for path in _STATIC.iterdir()}


async def static(visit: Visit) -> Response:
    """Send the style, the script or the icon of the pages."""
    file = visit.request.path_params["file"]
    if file not in _FILES:
        raise RefusedError(404, "There is no such file.")
    content, kind = _FILES[file]
    return Response(content, media_type=kind)


async def login_form(visit: Visit) -> Response:
    """Ask for a key."""
    return visit.page("login.html", is_wrong=False)


async def login(visit: Visit) -> Response:
    """Begin a session for a key that may read."""
    text = (await visit.form()).get("key", "").strip()
    key = visit.service.keys.find(text)
    if key is None or not key.allows("read", key.model):
        return visit.page("login.html", 401, is_wrong=True)
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        visit.service.sessions.begin(text),
        httponly=True,
        samesite="strict",
        secure=visit.request.url.scheme == "https",
    )
    return response


async def logout(visit: Visit) -> Response:
    """End the session."""
    visit.service.sessions.end(visit.headers)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


async def models(visit: Visit) -> Response:
    """List the models, or say how to make the first one."""
    found = await visit.service.numbers(visit.models())
    now = visit.service.store.clock()
    return visit.page("models.html", models=found, now=now, address=_address(visit))


async def model(visit: Visit) -> Response:
    """Show one model."""
    service, host = visit.service, visit.host
    (numbers,) = await service.numbers([host])
    shared: dict[str, Any] = {
        "numbers": numbers,
        "now": service.store.clock(),
        "verified": service.verified.get(host.number),
        "may_verify": visit.key.allows("admin", host.row.name),
        "address": _address(visit),
    }
    if host.config.decides:
        _, state = await service.copy_of(host)
        assert isinstance(state, AgentState)
        return visit.page("agent.html", actions=state.named_agent.table(), **shared)
    looks = visit.desk.looks
    look = await looks.of(host)
    return visit.page("model.html", look=look, worth=looks.worth(host, look), **shared)


async def picture(visit: Visit) -> Response:
    """Draw something about a model."""
    name, is_narrow = visit.request.path_params["picture"], "narrow" in visit.request.query_params
    if visit.host.config.decides or name not in PICTURES:
        raise RefusedError(404, "There is no such picture.")
    drawn = await visit.desk.looks.picture(visit.host, name, is_narrow=is_narrow)
    return Response(drawn, media_type="image/svg+xml", headers=DRAWN)


async def report(visit: Visit) -> Response:
    """Show all about a classifier as one document, to be kept or sent."""
    if visit.host.config.decides:
        raise RefusedError(404, "There is no report on a model that decides.")
    text = await visit.desk.looks.report(visit.host)
    return Response(text, media_type="text/html", headers=DRAWN)


async def verify(visit: Visit) -> Response:
    """Replay the journal of a model, then show the page again, with the result."""
    name = visit.host.row.name
    if not visit.key.allows("admin", name):
        raise RefusedError(403, "Only a key with the scope admin may do this.")
    await visit.service.verify(visit.host)
    return RedirectResponse(f"/models/{name}#journal", 303)


def _address(visit: Visit) -> str:
    return str(visit.request.base_url).rstrip("/")
