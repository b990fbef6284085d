"""What goes between workers and their parent comes in order, and nobody waits for who is gone."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from folklearn import Model
from folklearn.service import link, worker
from folklearn.service.hosts import PublishedModel
from folklearn.service.limits import Limits
from folklearn.service.routes import ENDPOINTS
from tests.service import lives
from tests.service.attacks import Command, serving
from tests.service.clients import MODEL
from tests.service.running import Running, running

FREE = Limits(free_disk=0, deadline=120.0)
FILES = ("api", "security", "limits", "pages", "from_outside")


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_a_client_sees_no_difference(name: str) -> None:
    """The tests of the service, against one with workers."""
    file = Path(__file__).with_name(f"test_{name}.py")
    environment = {**os.environ, "FOLKLEARN_TEST_WORKERS": "2"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


# Workers and their parent are stopped, so that what one of them has said lies on its way.


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def service() -> Iterator[Command]:
    with (
        lives.scratch() as place,
        serving(Path(place) / "folder", None, "--workers", "2") as command,
    ):
        while len(pids := lives.workers_of(command.process.pid)) < 2:
            time.sleep(0.01)
        for pid in pids:
            with stopped(pid):  # the other one answers
                assert command.ask("GET", "/v1/health/live", key=None).status == 200
        yield command


def predict_and_stop(service: Command, model: str) -> tuple[int, list[str]]:
    """Stop a worker that has predicted, and has told its parent a part of that; return ids."""
    first, second = lives.workers_of(service.process.pid)
    assert service.ask("PUT", model, {}).status == 201
    event = service.post(f"{model}/learn", {"row": {"x": 1.0}, "label": "a"})["event"]
    rows = [{"who": f"w{n % 7}", "x": n / 7.0, "text": 60 * "x"} for n in range(5_000)]
    asked = {"rows": rows, "remember": True, "at_least": event}
    with stopped(second):
        while service.ask("POST", f"{model}/predict", {"row": {}, "remember": False}).status != 200:
            pass
        with stopped(service.process.pid):
            answer = service.post(f"{model}/predict/batch", asked)
            os.kill(first, signal.SIGSTOP)
    return first, [one["id"] for one in answer["predictions"]]


def ask_meanwhile(service: Command, pid: int, *request: Any) -> Any:
    """Ask while a worker is stopped, which goes on only later."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(service.ask, *request)
        time.sleep(1.5)  # in which a service that does not wait would have answered
        os.kill(pid, signal.SIGCONT)
        return asked.result()


def test_a_label_waits_for_a_worker_that_has_not_told_its_predictions(service: Command) -> None:
    pid, ids = predict_and_stop(service, "/v1/models/late")
    label = {"id": ids[-1], "label": "a"}
    assert ask_meanwhile(service, pid, "POST", "/v1/models/late/learn", label).status == 200


def test_what_a_worker_has_not_told_yet_is_erased_too(service: Command) -> None:
    pid, ids = predict_and_stop(service, "/v1/models/person")
    who = {"column": "who", "value": "w1"}
    reply = ask_meanwhile(service, pid, "POST", "/v1/models/person/erase", who)
    assert reply.body["rows"] == sum(n % 7 == 1 for n in range(len(ids)))


def test_a_model_that_was_deleted_is_predicted_from_by_no_worker(service: Command) -> None:
    """The second worker reads that it is no more behind much that it did not read yet."""
    first, second = lives.workers_of(service.process.pid)
    words = [f"word{n}" for n in range(20_000)]
    assert service.ask("PUT", "/v1/models/words", {"roles": {"t": "words"}}).status == 201
    line = http.client.HTTPConnection("127.0.0.1", service.port)
    headers = {"Authorization": f"Bearer {service.key}"}

    def predict() -> int:
        row = json.dumps({"row": {"t": "word1"}})
        line.request("POST", "/v1/models/words/predict", row, headers)
        answer = line.getresponse()
        answer.read()
        return answer.status

    with contextlib.closing(line):
        with stopped(first):
            assert predict() == 200
        os.kill(second, signal.SIGSTOP)
        for n in range(3):
            text = " ".join(words[5_000 * n : 5_000 * (n + 1)])
            items = [{"row": {"t": text}, "label": label} for label in "ab"]
            service.post("/v1/models/words/learn/batch", {"items": items})
        assert ask_meanwhile(service, second, "DELETE", "/v1/models/words").status == 200
        assert predict() == 404


# The content of a request is read from whom it may be read.


@pytest.mark.parametrize("n_workers", [0, 1])
def test_nothing_is_read_from_a_stranger(tmp_path: Path, n_workers: int) -> None:
    with running(tmp_path / "folder", FREE, n_workers=n_workers) as service:
        service.ask("PUT", MODEL, {})
        for endpoint in ENDPOINTS:
            if endpoint.scope is None or endpoint.method == "GET":
                continue
            for length in (900_000, 9_000_000):
                path = endpoint.path.replace("{name}", "labels")
                with socket.create_connection(("127.0.0.1", service.port)) as line:
                    head = f"{endpoint.method} {path} HTTP/1.1\r\nHost: x\r\n"
                    line.sendall(f"{head}Content-Length: {length}\r\n\r\n{{".encode())
                    assert line.recv(12) == b"HTTP/1.1 401"


@pytest.mark.parametrize("n_workers", [0, 1])
def test_content_comes_in_pieces_and_may_be_too_long(tmp_path: Path, n_workers: int) -> None:
    limits = Limits(free_disk=0, body=100_000)
    with running(tmp_path / "folder", limits, n_workers=n_workers) as service:
        for path, status in ((MODEL, 201), ("/v1/models/other", 413)):
            n_pieces = 10 if status == 201 else 11
            pieces = [b"{}", *(n_pieces * [10_000 * b" "])]
            pieces[1] = 9_998 * b" "
            line = http.client.HTTPConnection("127.0.0.1", service.port)
            headers = {"Authorization": f"Bearer {service.key}"}
            line.request("PUT", path, iter(pieces), headers, encode_chunked=True)
            answer = line.getresponse()
            assert answer.status == status, answer.read()
            line.close()
        with socket.create_connection(("127.0.0.1", service.port)) as cut:  # and hangs up
            head = f"PUT {MODEL} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\n"
            cut.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        assert service.ask("GET", MODEL).status == 200
        finish(service)


def finish(service: Running) -> None:
    """Raise unless the parent, if there is one, comes to have nothing under way."""
    if service.parent is None:
        return
    for _ in range(2_000):
        if not service.parent._server.server_state.tasks:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("a request is under way for ever")
    assert service.service.n_traffic_bytes == 0


def test_strange_requests_are_answered_as_without_workers(tmp_path: Path) -> None:
    row, label = b'{"row": {"x": 1}, "remember": false}', b'{"row": {"x": 1}, "label": "a"}'
    said: list[list[bytes]] = []
    for n_workers in (0, 2):
        with running(tmp_path / str(n_workers), FREE, n_workers=n_workers) as service:
            service.ask("PUT", MODEL, {"windows": False})
            event = service.post(f"{MODEL}/learn", json.loads(label))["event"]
            service.post(f"{MODEL}/predict", {"row": {}, "at_least": event, "remember": False})
            key = f"Authorization: Bearer {service.key}\r\n".encode()

            def say(line: bytes, body: bytes = b"", more: bytes = b"", key: bytes = key) -> bytes:
                length = b"Content-Length: %d\r\n" % len(body) if body else b""
                return line + b" HTTP/1.1\r\nHost: h\r\n" + key + more + length + b"\r\n" + body

            path = MODEL.encode()
            post, close = b"POST " + path, b"Connection: close\r\n"
            many = say(post + b"/predict", b"{") + say(b"GET /v1/models/none")
            many += say(post + b"/predict", row) + say(b"DELETE /nothing", more=close)
            chunks = b"24\r\n" + row + b"\r\n0\r\n\r\n"
            chunked = close + b"Transfer-Encoding: chunked\r\n"
            said.append(
                [
                    ask_raw(service.port, request)
                    for request in (
                        many,
                        say(b"HEAD " + path + b"/verify", more=close),
                        say(b"OPTIONS " + path, more=close),
                        say(post + b"/predict", more=chunked) + chunks,
                        say(post + b"/predict", more=chunked) + b"zz\r\n",
                        say(post + b"/predict", row.ljust(1_000_000), close),
                        say(post + b"/predict", row.ljust(1_000_001), close),
                        say(b"PUT " + path, b"{}".ljust(1_000_001), close),
                        say(b"GET " + path + b"/verify", b"{}", close),
                        say(b"GET /v1/models/\xff\xfe", more=close),
                        say(b"GET /v1/models/%ff%fe", more=close),
                        say(b"PUT /v1/models/%ed%a0%80", b"{}", close),
                        say(b"POST /v1/models/l%61bels/predict", row, close),
                        say(
                            b"GET " + path + b"/verify", more=b"X: \xff\r\nCookie: \xff\r\n" + close
                        ),
                        say(b"GET /v1/models", key=b"Authorization: Bearer \xff\r\n", more=close),
                        say(b"GET /v1/models/", more=close),
                        b"GET /v1/models/ HTTP/1.0\r\n" + key + b"\r\n",
                        say(post + b"/learn", b'{"row": {}, "label": "\\ud800"}', close),
                        say(post + b"/learn", label, b"Idempotency-Key: \xff\r\n" + close),
                        say(b"POST /login", 20_000 * b"x", close, key=b""),
                    )
                ]
            )
    assert said[0] == said[1]


def ask_raw(port: int, request: bytes) -> bytes:
    """Return all that is answered, without what differs from answer to answer."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # not all of it was read
            while part := line.recv(1 << 16):
                answer += part
    assert answer.startswith(b"HTTP/1.1 ")
    return re.sub(rb"(x-request-id: |date: |127.0.0.1:)[^\r/]+", b"", answer)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_who_watches_and_hangs_up_is_forgotten(tmp_path: Path, method: str) -> None:
    with running(tmp_path / "folder", FREE, n_workers=1) as service:
        service.ask("PUT", MODEL, {})
        line = http.client.HTTPConnection("127.0.0.1", service.port)
        headers = {"Authorization": f"Bearer {service.key}"}
        line.request(method, f"{MODEL}/events", headers=headers)
        assert line.getresponse().status == 200
        line.close()
        finish(service)


def test_a_worker_that_dies_takes_no_traffic_with_it(tmp_path: Path) -> None:
    """It asks for a file, and is no more when the first part of that would be sent."""
    with running(tmp_path / "folder", FREE, n_workers=1) as service:
        assert service.parent is not None
        service.ask("PUT", MODEL, {"windows": False})
        items = [{"row": {f"c{m}": 1.0 for m in range(60)}, "label": n} for n in range(60)]
        service.post(f"{MODEL}/learn/batch", {"items": items})
        assert len(service.ask("GET", f"{MODEL}/file").body) > 100_000
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(link.http_path(service.parent._path))
            key = f"Authorization: Bearer {service.key}\r\n"
            line.sendall(f"GET {MODEL}/file HTTP/1.1\r\n{key}\r\n".encode())
        finish(service)


def test_what_is_no_message_ends_one_connection_only(tmp_path: Path) -> None:
    with running(tmp_path / "folder", FREE, n_workers=1) as service:
        assert service.parent is not None
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(service.parent._path))
            line.sendall(b"\x03\x00\x00\x00bad")
            while line.recv(1 << 16):
                pass
        assert service.ask("GET", "/v1/models").status == 200
        assert len(service.parent.connections) == 1


# Limits are those of the service, and of its models what was published.


def test_one_request_may_be_as_large_as_without_workers(tmp_path: Path) -> None:
    limits = Limits(free_disk=0, queued_bytes=5_000_000, traffic=3_000_000, answer=2_000_000)
    items = 1_500 * [{"row": {f"c{m}": 1 for m in range(9)}, "label": "a"}]
    for n_workers in (0, 2):
        folder = tmp_path / str(n_workers)
        with running(folder, limits, n_workers=n_workers) as service:
            service.ask("PUT", MODEL, {"windows": False})
            assert service.post(f"{MODEL}/learn/batch", {"items": items})["learned"] == 1_500
            rows = 9_000 * [{"x": 1}]
            reply = service.ask("POST", f"{MODEL}/predict/batch", {"rows": rows})
            assert reply.status == 200, reply.body


def test_a_model_that_cannot_be_read_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_SMALL_BYTES", 0)
    model = Model()
    contents = []
    for label in "abc":
        model.learn_one({"x": 1.0}, label)
        contents.append(PublishedModel(0, model).content)
    messages = [link.ModelPublished(1, "main", "m", False, n, c) for n, c in enumerate(contents)]

    async def read() -> None:
        host = worker.WorkerHost(messages[0])
        assert host.published.version == 0
        host.renew(msgspec.structs.replace(messages[1], content=b"damage"))
        reading = host._reading
        assert reading is not None
        await asyncio.wait([reading])
        assert reading.exception() is not None
        assert host._published is not None
        assert host._published.version == 0
        host.renew(messages[2])
        assert host._reading is not None
        await host._reading
        assert host.published.version == 2

    asyncio.run(read())


CONFIGS: dict[str, dict[str, Any]] = {
    "numbers": {},
    "many classes": {"coverage": (0.9, 0.5), "coverage_by": "class"},
    "words": {"roles": {"t": "words"}, "coverage": (0.8,)},
    "crosses": {"crosses": [("c", "t")], "terms": "all"},
    "weights": {"class_weight": {"a": 2.0, "b": 1.0}, "missing": ["none"]},
    "one learner": {"learner": "folklore"},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_workers_answer_what_the_parent_would(tmp_path: Path, kind: str, seed: int) -> None:
    """The answers of two services that were told the same, one with a worker."""
    random, answers = Random(seed), []
    rows = [
        {"x": random.gauss(), "c": random.choice(["r", "g", "none", None]), "t": "a b c"[n % 5 :]}
        for n in range(60)
    ]
    items = [{"row": row, "label": random.choice("abc")} for row in rows]
    for n_workers in (0, 1):
        with running(tmp_path / str(n_workers), FREE, n_workers=n_workers) as service:
            assert service.ask("PUT", MODEL, CONFIGS[kind]).status == 201
            version = service.post(f"{MODEL}/learn/batch", {"items": items})["event"]
            service.post(f"{MODEL}/predict", {"row": {}, "at_least": version, "remember": False})
            coverage = CONFIGS[kind].get("coverage", (0.9,))[0]
            asked = {"rows": rows, "coverage": coverage}
            answers.append(
                [
                    service.ask("POST", f"{MODEL}/{path}", body).body
                    for path, body in (
                        ("predict/batch", asked),
                        ("predict", {"row": rows[0], "remember": False}),
                        ("explain", {"row": rows[1]}),
                        ("explain", {"row": {"new": 1, "c": "new"}}),
                        ("predict", {"row": {"x": "text"}, "remember": False}),
                    )
                ]
            )
    assert answers[0] == answers[1]
