"""The pages as a browser gets them: who may see what, what is escaped, and what is said."""

import re
import runpy
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from folklearn.service.keys import COOKIE, Keys, Sessions
from folklearn.service.pages import handlers
from folklearn.service.pages.handlers import CHART_SIZES
from tests.service.running import Reply, Running, running

EVIL = '<script>alert("1")</script>'
N_ROWS = 300


class Browser:
    """A visitor with a cookie, or without one."""

    def __init__(self, service: Running, key: str | None = None) -> None:
        self.service, self.cookie = service, ""
        if key is not None:
            reply = self.post("/login", key=key)
            assert reply.status == 303, reply
            self.cookie = reply.headers["set-cookie"].partition(";")[0]

    def get(self, path: str, **headers: str) -> Reply:
        return self.service.ask("GET", path, key=None, headers={"Cookie": self.cookie, **headers})

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Reply:
        sent = {"Cookie": self.cookie, **(headers or {})}
        return self.service.ask("POST", path, urlencode(fields).encode(), key=None, headers=sent)

    def text(self, path: str) -> str:
        reply = self.get(path)
        assert reply.status == 200, reply
        return str(reply.body, "utf-8")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a model and an agent that have learned, names and labels full of tags."""
    with running(tmp_path_factory.mktemp("pages")) as one:
        one.ask("PUT", "/v1/models/churn", {})
        rows = [
            {"row": {EVIL: i % 7, "age": i % 50}, "label": EVIL if i % 7 < 3 else "stay"}
            for i in range(N_ROWS)
        ]
        one.post("/v1/models/churn/learn/batch", {"items": rows})
        agent = {"actions": [EVIL, "wait"], "context": {"hour": "number"}}
        one.ask("PUT", "/v1/models/agent", agent)
        for hour in range(20):
            chosen = one.post("/v1/models/agent/decide", {"context": {"hour": hour}})
            one.post("/v1/models/agent/reward", {"id": chosen["id"], "reward": 0.5})
        one.ask("PUT", "/v1/models/empty", {})
        yield one


@pytest.fixture
def keys(service: Running) -> Iterator[Any]:
    """A function that makes keys, which are revoked afterwards."""
    made = []

    def make(*scopes: str, tenant: str = "main", model: str | None = None) -> str:
        text: str = service.service.keys.create(tenant=tenant, model=model, scopes=scopes)
        made.append(text.split("_")[1])
        return text

    yield make
    for id in made:
        service.service.keys.revoke(id)


def test_a_service_that_ended_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with running(tmp_path) as service:
        service.ask("PUT", "/v1/models/churn", {})
        service.post("/v1/models/churn/learn", {"row": {"age": 1}, "label": "stay"})
        Browser(service, service.key).text("/models/churn")
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert any(name.startswith("folklearn-copies") for name in names)
    begun = set(threading.enumerate()) - before
    assert not [thread.name for thread in begun if thread.name.startswith("folklearn")]


def test_pages_hold_copies_within_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page keeps of its model is counted, and goes where another one needs the room."""
    monkeypatch.setattr(handlers, "_MIN_SECONDS_KEPT", 0.0)
    monkeypatch.setattr(handlers, "_COST_RATIO_KEPT", 0.0)
    with running(tmp_path) as service:
        gate, visitor = service.service, Browser(service, service.key)
        for name in ("first", "second"):
            service.ask("PUT", f"/v1/models/{name}", {})
            _learn(service, name)
        for name in ("first", "second"):
            for _ in range(2):
                host = gate.store.hosts["main", name]
                room = round(1.5 * host.n_bytes) + host.state.n_bytes // 2  # for one copy
                gate.limits = replace(gate.limits, copies=room)
                visitor.text(f"/models/{name}")
                assert [number for number, _ in gate._copies] == [host.number]
                visitor.text(f"/models/{name}/report")
                _learn(service, name)


def _learn(service: Running, name: str) -> None:
    for label in ("stay", "go"):
        service.post(f"/v1/models/{name}/learn", {"row": {"age": 1}, "label": label})


# Who may come in.


@pytest.mark.parametrize(
    "path", ["/", "/models/churn", "/models/churn/pictures/drift.svg", "/models/churn/report"]
)
def test_who_has_not_logged_in_is_sent_to_the_door(service: Running, path: str) -> None:
    reply = Browser(service).get(path)
    assert (reply.status, reply.headers["location"]) == (303, "/login")


def test_a_key_that_may_read_opens_the_pages(service: Running, keys: Any) -> None:
    visitor = Browser(service)
    reply = visitor.post("/login", key=f"  {keys('read')}\n")
    assert (reply.status, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie  # it could not come back over http
    visitor.cookie = cookie.partition(";")[0]
    assert "Models" in visitor.text("/")


def test_a_cookie_is_for_https_alone_where_there_is_https(service: Running, keys: Any) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    reply = Browser(service).post("/login", headers, key=keys("read"))
    assert "Secure" in reply.headers["set-cookie"].split("; ")


@pytest.mark.parametrize("scope", ["predict", "learn"])
def test_a_key_that_may_not_read_does_not(service: Running, keys: Any, scope: str) -> None:
    assert Browser(service).post("/login", key=keys(scope)).status == 401


def test_a_wrong_key_is_told_kindly_and_not_repeated(service: Running) -> None:
    for text in ("", "flk_nothing", EVIL, "é\0", service.key[:-1]):
        reply = Browser(service).post("/login", key=text)
        assert reply.status == 401
        page = str(reply.body, "utf-8")
        assert 'role="alert"' in page
        assert "set-cookie" not in reply.headers
        assert not text or text not in page
    assert Browser(service).post("/login", key="x" * 20_000).status == 413


def test_logging_out_ends_the_session(service: Running) -> None:
    visitor = Browser(service, service.key)
    assert visitor.post("/logout").headers["location"] == "/login"
    assert visitor.get("/").status == 303


def test_sessions_are_no_more_than_so_many(service: Running) -> None:
    sessions = Sessions()
    first, *_, last = [sessions.begin(service.key) for _ in range(10_001)]
    keys = Keys(service.service.folder)
    cookies = [{b"cookie": f"{COOKIE}={token}".encode()} for token in (first, last)]
    assert [sessions.find(one, keys) is None for one in cookies] == [True, False]


def test_a_session_ends_with_its_key(service: Running, keys: Any) -> None:
    text = keys("read")
    visitor = Browser(service, text)
    assert visitor.get("/").status == 200
    service.service.keys.revoke(text.split("_")[1])
    assert visitor.get("/").status == 303
    assert visitor.get("/v1/models").status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
    ],
)
def test_forms_of_other_sites_are_refused(service: Running, headers: dict[str, str]) -> None:
    visitor = Browser(service, service.key)
    for path in ("/login", "/logout", "/models/churn/verify"):
        assert visitor.post(path, headers).status == 403
    assert visitor.get("/").status == 200  # and not logged out


def test_forms_of_the_pages_are_not(service: Running) -> None:
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": service.address}):
        assert Browser(service).post("/login", headers, key=service.key).status == 303


def test_a_session_is_enough_to_look_and_to_nothing_else(service: Running) -> None:
    visitor = Browser(service, service.key)
    assert visitor.get("/v1/models/churn").status == 200
    assert visitor.post("/v1/models/churn/learn").status == 401
    cookie = {"Cookie": visitor.cookie}
    assert service.ask("DELETE", "/v1/models/churn", key=None, headers=cookie).status == 401


def test_models_of_others_are_not_there(service: Running, keys: Any) -> None:
    stranger = Browser(service, keys("admin", tenant="other"))
    assert "There is no model yet" in stranger.text("/")
    confined = Browser(service, keys("read", model="empty"))
    assert re.findall('href="/models/([^"]*)"', confined.text("/")) == ["empty"]
    for visitor in (stranger, confined):
        for path in ("/models/churn", "/models/churn/pictures/drift.svg", "/models/nothing"):
            reply = visitor.get(path)
            assert reply.status == 404
            assert b"There is no model" in reply.body


# What is sent.


class Tags(HTMLParser):
    """The tags of a page, in order, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_headers_keep_other_sites_out(service: Running) -> None:
    visitor = Browser(service, service.key)
    for path in ("/", "/login", "/models/churn", "/models/nothing", "/static/pages.js"):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/models/churn", "/models/agent", "/models/empty", "/login"])
def test_pages_are_whole_escaped_and_in_order(service: Running, path: str) -> None:
    page = Browser(service, service.key).text(path)
    assert "alert(" not in page or EVIL not in page
    tags = Tags(page).found
    names = [name for name, _ in tags]
    assert all(own.get("src") for name, own in tags if name == "script")  # none has code inside
    assert not any(name.startswith("on") or name == "style" for _, own in tags for name in own)
    assert names.count("main") == names.count("h1") == 1
    levels = [int(name[1]) for name in names if name in ("h1", "h2", "h3")]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [own["id"] for _, own in tags if "id" in own]
    assert len(ids) == len(set(ids))
    for name, own in tags:
        if name == "img":
            assert own["alt"]
        for kind in ("aria-labelledby", "aria-describedby", "for"):
            assert own.get(kind) is None or own[kind] in ids
        if "data-live" in own:
            assert own["id"]
        for kind in ("src", "href", "action"):
            assert (own.get(kind) or "/").startswith(("/", "#"))  # nothing from elsewhere


def test_labels_come_out_as_text(service: Running) -> None:
    assert "&lt;script&gt;" in Browser(service, service.key).text("/models/agent")


def test_the_list_tells_how_models_do(service: Running) -> None:
    page = Browser(service, service.key).text("/")
    assert re.findall('href="/models/([^"]*)"', page) == ["agent", "churn", "empty"]
    assert f">{N_ROWS}<" in page


def test_the_first_steps_are_given_as_lines_to_copy(service: Running, keys: Any) -> None:
    page = Browser(service, keys("admin", tenant="new")).text("/")
    assert f"curl -X PUT {service.address}/v1/models/churn" in page


def test_a_model_is_told_in_words(service: Running) -> None:
    page = Browser(service, service.key).text("/models/churn")
    assert re.search(r"About \d+ % of all rows were predicted right", page)
    assert "costs 0.693" in page  # of guessing between two
    assert re.search("No linear model of these columns|is proven", page)
    assert "too few rows" in Browser(service, service.key).text("/models/empty")


def test_every_picture_of_the_page_can_be_drawn(service: Running) -> None:
    visitor = Browser(service, service.key)
    sources = re.findall(
        r'src="(/models/churn/pictures/(\w+)[^"]*)"', visitor.text("/models/churn")
    )
    assert {name for _, name in sources} == set(CHART_SIZES)
    for source, _ in sources:
        for path in (source, f"{source}&narrow"):
            reply = visitor.get(path)
            assert reply.headers["content-type"] == "image/svg+xml"
            assert reply.headers["content-security-policy"].startswith("default-src 'none';")
            assert ElementTree.fromstring(reply.body).tag == "{http://www.w3.org/2000/svg}svg"
            assert b"<script" not in reply.body
    assert visitor.get("/models/churn/pictures/nothing.svg").status == 404
    assert visitor.get("/models/agent/pictures/drift.svg").status == 404


def test_the_report_is_a_document_of_its_own(service: Running) -> None:
    visitor = Browser(service, service.key)
    reply = visitor.get("/models/churn/report")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "style-src 'unsafe-inline'" in reply.headers["content-security-policy"]
    assert b"<h1>Report on churn</h1>" in reply.body
    assert EVIL.encode() not in reply.body
    assert visitor.get("/models/agent/report").status == 404


def test_an_agent_shows_what_each_action_brought(service: Running) -> None:
    page = Browser(service, service.key).text("/models/agent")
    assert "A decision brought a reward of 0.50 on average" in page
    assert page.count('<rect width="50.0"') >= 1


def test_verifying_is_for_who_may_do_everything(service: Running, keys: Any) -> None:
    reader, admin = Browser(service, keys("read")), Browser(service, service.key)
    assert "Verify now" not in reader.text("/models/agent")
    assert reader.post("/models/agent/verify").status == 403
    assert "not been verified" in admin.text("/models/agent")
    reply = admin.post("/models/agent/verify")
    assert (reply.status, reply.headers["location"]) == (303, "/models/agent#journal")
    said = "The same model came out of its 41 events, byte for byte."
    assert said in reader.text("/models/agent")


def test_files_of_the_pages_and_no_others(service: Running) -> None:
    visitor = Browser(service)
    assert visitor.get("/static/pages.css").headers["content-type"].startswith("text/css")
    for path in ("/static/nothing", "/static/../handlers.py", "/static/%2e%2e%2fhandlers.py"):
        assert visitor.get(path).status == 404


def test_the_demonstration_is_what_the_pages_show(tmp_path: Path) -> None:
    demo = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "demo.py"))
    with running(tmp_path) as own:
        demo["start"](own.address, own.key)
        shown = Browser(own, own.key)
        while not {"digits", "front-page"} <= set(re.findall("[a-z-]+", shown.text("/"))):
            pass
