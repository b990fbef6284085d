"""Who may do what: every route with every kind of key, and what must never leave or enter."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folklearn.cli.app import main
from folklearn.service.events import Config
from folklearn.service.http import Endpoint
from folklearn.service.keys import Keys
from folklearn.service.limits import SCOPES
from folklearn.service.routes import ENDPOINTS
from folklearn.service.server import address
from tests.service.fuzz import fuzz
from tests.service.running import Running, running

ROW = {"age": 31, "country": "PE"}
GUARDED = [one for one in ENDPOINTS if one.scope is not None]


class Keyring:
    """A service with a model, and keys of every kind."""

    def __init__(self, service: Running, keys: dict[str, str]) -> None:
        self.service, self.keys = service, keys

    def status(self, endpoint: Endpoint, key: str | None, model: str) -> int:
        """Send a request that is refused at the latest because its content is nonsense."""
        path = endpoint.path.replace("{name}", model)
        body = None if endpoint.body is None else {"nonsense": 1}
        return self.service.ask(endpoint.method, path, body, key=key).status


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyring]:
    folder = tmp_path_factory.mktemp("security")
    now = 1_000_000_000.0
    keys = Keys(folder, clock=lambda: now)
    made = {f"only {scope}": keys.create(scopes=[scope], note="x") for scope in SCOPES}
    made["other tenant"] = keys.create(tenant="other", scopes=["admin"])
    made["other model"] = keys.create(model="churned", scopes=["admin"])
    made["expired"] = keys.create(tenant="main", model="m1", scopes=["admin"], lifetime=60)
    made["revoked"] = keys.create(tenant="main", model="m2", scopes=["admin"])
    keys.revoke(made["revoked"].split("_")[1])
    made["unknown"] = Keys(tmp_path_factory.mktemp("elsewhere")).create(scopes=["admin"])
    with running(folder) as service:
        service.ask("PUT", "/v1/models/churn", {})
        service.post("/v1/models/churn/learn", {"row": ROW, "label": "go"})
        yield Keyring(service, made)


@pytest.mark.parametrize("endpoint", GUARDED, ids=lambda one: f"{one.method} {one.path}")
def test_every_route_wants_a_live_key(ring: Keyring, endpoint: Endpoint) -> None:
    for kind in ("expired", "revoked", "unknown"):
        assert ring.status(endpoint, ring.keys[kind], "churn") == 401, kind
    assert ring.status(endpoint, None, "churn") == 401
    assert ring.status(endpoint, ring.keys["only admin"][:-1] + "x", "churn") == 401
    assert ring.status(endpoint, "nonsense", "churn") == 401


@pytest.mark.parametrize("endpoint", GUARDED, ids=lambda one: f"{one.method} {one.path}")
def test_every_route_wants_its_scope(ring: Keyring, endpoint: Endpoint) -> None:
    for scope in SCOPES:
        status = ring.status(endpoint, ring.keys[f"only {scope}"], "ghost")
        assert (status != 403) == (scope in (endpoint.scope, "admin")), scope
        assert status != 401


@pytest.mark.parametrize("endpoint", GUARDED, ids=lambda one: f"{one.method} {one.path}")
def test_a_key_is_for_its_model(ring: Keyring, endpoint: Endpoint) -> None:
    assert ring.status(endpoint, ring.keys["other model"], "churn") == 403


@pytest.mark.parametrize(
    "endpoint",
    [one for one in GUARDED if "{name}" in one.path and one.body is not Config],
    ids=lambda one: f"{one.method} {one.path}",
)
def test_the_models_of_another_tenant_are_not_there(ring: Keyring, endpoint: Endpoint) -> None:
    assert ring.status(endpoint, ring.keys["other tenant"], "churn") == 404


def test_a_tenant_sees_its_own_models_only(ring: Keyring) -> None:
    service, key = ring.service, ring.keys["other tenant"]
    assert service.ask("GET", "/v1/models", key=key).body == {"models": []}
    assert b"churn" not in service.ask("GET", "/metrics", key=key).body
    assert service.ask("PUT", "/v1/models/churn", {}, key=key).status == 201
    assert service.ask("GET", "/v1/models/churn", key=key).body["rows"] == 0
    assert service.ask("DELETE", "/v1/models/churn", key=key).status == 200
    assert service.ask("GET", "/v1/models/churn").body["rows"] == 1


def test_a_prediction_of_another_tenant_cannot_be_told(ring: Keyring) -> None:
    service, key = ring.service, ring.keys["other tenant"]
    asked = service.post("/v1/models/churn/predict", {"row": ROW})
    service.ask("PUT", "/v1/models/mine", {}, key=key)
    reply = service.ask(
        "POST", "/v1/models/mine/learn", {"id": asked["id"], "label": "go"}, key=key
    )
    assert reply.status == 404


@pytest.mark.parametrize(
    "name",
    [
        "..", ".", "%2e%2e", "a/b", "a%2Fb", "A", "ä", "a b", "-a", "_a", "a" * 64, "a\n", "a%00",
        "%00", "con.", "<script>", "';DROP TABLE event;--", "{name}", "a?x=1", "a#b",
    ],
)  # fmt: skip
def test_names_are_names(ring: Keyring, name: str) -> None:
    from urllib.parse import quote

    before = sorted(path.name for path in ring.service.service.folder.rglob("*"))
    reply = ring.service.ask("PUT", f"/v1/models/{quote(name)}", {})
    assert reply.status in (404, 405, 422)
    assert sorted(path.name for path in ring.service.service.folder.rglob("*")) == before


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """The audit hook hears of every class that any pickle would look up."""
    for _ in range(2):  # kernels come from Numba's cache, which holds pickles
        _use_everything(tmp_path / "first")
    _heard.clear()
    _hear(True)
    try:
        _use_everything(tmp_path / "second")
        _use_everything(tmp_path / "second")  # recovers
    finally:
        _hear(False)
    assert _heard == []


_heard: list[Any] = []
_listening = False


def _hear(wanted: bool) -> None:
    global _listening
    if wanted and not hasattr(sys, "_folklearn_hook"):
        sys.addaudithook(_on_event)
        sys._folklearn_hook = True  # type: ignore[attr-defined]
    _listening = wanted


def _on_event(event: str, arguments: Any) -> None:
    if _listening and event in ("pickle.find_class", "exec", "compile", "os.system"):
        _heard.append((event, arguments))


def _use_everything(folder: Path) -> None:
    with running(folder) as service:
        service.ask("PUT", "/v1/models/churn", {})
        service.ask("PUT", "/v1/models/offer", {"actions": ["a", "b"], "context": {"x": "number"}})
        for label in ("go", "stay"):
            asked = service.post("/v1/models/churn/predict", {"row": ROW})
            service.post("/v1/models/churn/learn", {"id": asked["id"], "label": label})
        made = service.post("/v1/models/offer/decide", {"context": {"x": 1}})
        service.post("/v1/models/offer/reward", {"id": made["id"], "reward": 1})
        pickled = b"\x80\x04\x8c\x08builtins\x94\x8c\x04eval\x94\x93\x94."
        for path in ("predict", "learn", "learn/batch"):
            assert service.ask("POST", f"/v1/models/churn/{path}", pickled).status == 400
        for path in ("windows", "certificate", "file"):
            assert service.ask("GET", f"/v1/models/churn/{path}").status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_beyond_this_machine_a_key_must_be_there(
    tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "served"
    assert main(["serve", str(folder), "--host", host]) == 2
    said = capsys.readouterr()
    assert f"folklearn key {folder} create" in said.err
    assert "flk_" not in said.out + said.err
    assert not folder.exists()


def test_a_key_that_cannot_be_shown_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "served"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", str(folder), "--port", str(port)]) == 2
    assert f"port {port}" in capsys.readouterr().err
    assert Keys(folder).live() == []


def test_an_address_can_be_copied_into_a_browser() -> None:
    assert address("::1", 80) == "http://[::1]:80"
    assert address("localhost", 80) == "http://localhost:80"


def test_keys_are_shown_once_and_logged_never(tmp_path: Path) -> None:
    folder = tmp_path / "served"
    command = [sys.executable, "-m", "folklearn.cli.app", "serve", str(folder), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    printed = ""
    while "listening" not in printed:
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        printed += line
    (key,) = re.findall(r"flk_\w+", printed)
    port = int(re.findall(r"listening.*:(\d+)", printed)[0])
    service = Running(None, port, key)  # type: ignore[arg-type]
    assert service.ask("PUT", "/v1/models/churn", {}).status == 201
    service.ask("POST", "/v1/models/churn/learn", b"{")
    service.ask("GET", f"/v1/models/churn?key={key}")
    service.ask("GET", "/v1/models", key=key[:-1] + "x")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 0
    assert "flk_" not in out + err
    secret = key.split("_")[2].encode()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert not any(secret in path.read_bytes() for path in files)
    assert {oct(path.stat().st_mode & 0o077) for path in files} == {"0o0"}


@pytest.mark.long
def test_requests_drawn_from_the_document_break_nothing(tmp_path: Path) -> None:
    done = fuzz(tmp_path, seconds=10)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
