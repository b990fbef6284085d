"""Attacks on the memory of a service, against the real command under a limit of address space."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.service.running import Running

ADDRESS_SPACE = 6 << 30  # bytes
MOST_RESIDENT = 3_000_000_000
WORDS = {"roles": {"t": "words"}}
AGENT = {"actions": ["a", "b"], "context": {"x": "number"}}


class Command(Running):
    """`folklearn serve` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int, key: str) -> None:
        super().__init__(None, port, key)  # type: ignore[arg-type]
        self.process = process

    @property
    def resident(self) -> int:
        """Bytes in memory now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def most_resident(self) -> int:
        """Bytes in memory, the most there ever were."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return 1024 * int(kilobytes)


@contextmanager
def serving(folder: Path, key: str | None = None, *options: str) -> Iterator[Command]:
    """Serve a folder within, in 6 GB of address space; a new one tells its key."""
    command = [sys.executable, "-m", "folklearn.cli.app", "serve", str(folder), "--port", "0"]
    with open(folder.with_suffix(".log"), "a") as log:
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)
            ),
        )
        try:
            assert process.stdout is not None
            printed = ""
            while "listening" not in printed:
                line = process.stdout.readline()
                assert line, folder.with_suffix(".log").read_text()[-2000:]
                printed += line
            found = re.findall(r"flk_\w+", printed)
            port = int(re.findall(r"listening.*:(\d+)", printed)[0])
            yield Command(process, port, found[0] if key is None else key)
            assert process.poll() is None, folder.with_suffix(".log").read_text()[-2000:]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:  # somebody's look is not over
                process.kill()
                process.communicate()


def new_words(random: Random, n: int) -> str:
    """Return words that nobody has used."""
    return " ".join(f"{random.getrandbits(40):010x}" for _ in range(n))


def batch_of_words(random: Random, n_rows: int = 1_000, n_classes: int = 10) -> dict[str, Any]:
    """Return labels of rows of forty new words: B2 of the attacks."""
    return {
        "items": [
            {"row": {"t": new_words(random, 40)}, "label": f"class {random.randrange(n_classes)}"}
            for _ in range(n_rows)
        ]
    }


def outcome(reply: Any) -> str:
    """Return a status, and whether a batch was learned as a whole, in part, or not at all."""
    if reply.status != 200 or "learned" not in reply.body:
        return str(reply.status)
    refused = reply.body.get("refused", [])
    kinds = {one["status"] for one in refused}
    n_learned = "none" if not refused else "some" if reply.body["learned"] else "all"
    return f"200, {n_learned} refused{' ' + str(kinds) if kinds else ''}"


def ask_and_not_read(service: Running, path: str, body: Any) -> socket.socket:
    """Send a request, and let the answer lie; return the connection."""
    content = json.dumps(body).encode()
    line = socket.create_connection(("127.0.0.1", service.port))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    line.sendall(head.encode() + content)
    return line


def flood_with_words(service: Command, n_batches: int) -> dict[str, Any]:
    """Send batches of new words, far more than there is room for; predict in between."""
    random, ends, resident = Random(0), Counter[str](), []
    service.ask("PUT", "/v1/models/words", WORDS)
    for _ in range(n_batches):
        reply = service.ask("POST", "/v1/models/words/learn/batch", batch_of_words(random))
        ends[outcome(reply)] += 1
        row = {"t": new_words(random, 40)}
        assert service.ask("POST", "/v1/models/words/predict", {"row": row}).status == 200
        resident.append(service.resident)
    half = len(resident) // 2
    assert max(resident[half:]) <= 1.1 * max(resident[:half]), "memory goes on growing"
    return _found(service, ends, resident)


def flood_with_labels(service: Command, n_clients: int) -> dict[str, Any]:
    """Send labels of 0.9 MB, then long answers are asked for, of which nothing is read."""
    path, ends = "/v1/models/labels", Counter[str]()
    service.ask("PUT", path, {"windows": False})
    for n in range(60):
        body = {"row": {"x": 1}, "label": f"{n}{900_000 * 'x'}"}
        ends[outcome(service.ask("POST", f"{path}/learn", body))] += 1
    assert ends == {"422": 60}
    longest = [f"{n:04}{196 * 'x'}" for n in range(1_000)]  # all that a model may have
    for start in range(0, 1_000, 500):
        items = [{"row": {"x": 1}, "label": label} for label in longest[start : start + 500]]
        ends[outcome(service.ask("POST", f"{path}/learn/batch", {"items": items}))] += 1
    resident = [service.resident]
    body = {"rows": 90 * [{"x": 1}]}  # answers of some 25 MB
    lines = [ask_and_not_read(service, f"{path}/predict/batch", body) for _ in range(n_clients)]
    for line in lines:
        ends[f"unread {line.recv(12).decode()[-3:]}"] += 1
        resident.append(service.resident)
    assert service.ask("POST", f"{path}/predict", {"row": {"x": 1}}).status == 200
    resident.append(service.resident)
    for line in lines:
        line.close()
    return _found(service, ends, resident)


def grow_in_every_way(service: Command, n_rounds: int) -> dict[str, Any]:
    """Grow many models by words, columns, categories and classes, until memory is refused."""
    resident = []
    with Hostile(service, 0) as one, Hostile(service, 1) as other:
        for _ in range(n_rounds):
            time.sleep(1.0)
            resident.append(service.resident)
    statuses = one.statuses + other.statuses
    assert not one.errors + other.errors, one.errors + other.errors
    assert all(status < 500 or status == 503 for status in statuses), statuses
    return _found(service, Counter({str(k): n for k, n in statuses.items()}), resident)


def _found(service: Command, ends: Counter[str], resident: list[int]) -> dict[str, Any]:
    assert service.most_resident < MOST_RESIDENT, service.most_resident
    return {
        "answers": dict(sorted(ends.items())),
        "resident_at_end": resident[-1],
        "most_resident": service.most_resident,
    }


class Hostile:
    """A client that learns, predicts, looks, and sends what nobody should, at random.

    Attributes
    ----------
    statuses : of the answers; 0 counts what got none,
    errors : and this is why.
    """

    def __init__(self, service: Running, seed: int) -> None:
        self._service, self._random = service, Random(seed)
        self.statuses: Counter[int] = Counter()
        self.errors: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Hostile":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _work(self) -> None:
        kinds = [
            self._learn, self._learn_words, self._learn_wide, self._learn_categories,
            self._learn_classes, self._predict, self._leave_unread, self._send_garbage,
            self._look, self._make_model, self._decide,
        ]  # fmt: skip
        while not self._is_over.is_set():
            kind = self._random.choice(kinds)
            try:
                kind()
            except (OSError, http.client.HTTPException) as error:
                self.statuses[0] += 1
                self.errors.append(f"{kind.__name__}: {error!r}")

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        self.statuses[self._service.ask(method, f"/v1/models/{path}", body).status] += 1

    def _name(self) -> str:
        return f"hostile{self._random.randrange(4)}"

    def _learn_many(self, rows: list[dict[str, Any]], n_classes: int = 3) -> None:
        labels = [f"class {self._random.randrange(n_classes)}" for _ in rows]
        items = [{"row": row, "label": y} for row, y in zip(rows, labels, strict=True)]
        self._ask("POST", f"{self._name()}/learn/batch", {"items": items})

    def _learn(self) -> None:
        self._learn_many([{"x": self._random.random(), "c": "abc"[n % 3]} for n in range(200)])

    def _learn_words(self) -> None:
        body = batch_of_words(self._random, self._random.choice([1, 10, 300]))
        self._ask("POST", f"{self._name()}/learn/batch", body)

    def _learn_wide(self) -> None:
        first = self._random.randrange(20_000)
        self._learn_many([{f"column{first + n}": n for n in range(3_000)}])

    def _learn_categories(self) -> None:
        n = self._random.randrange(500)
        self._learn_many([{f"c{n + i % 9}": new_words(self._random, 1)} for i in range(60)])

    def _learn_classes(self) -> None:
        self._learn_many(20 * [{"x": 1}], n_classes=5_000)

    def _predict(self) -> None:
        rows = [{"x": 1, "t": new_words(self._random, 20)} for _ in range(100)]
        self._ask("POST", f"{self._name()}/predict", {"row": rows[0]})
        self._ask("POST", f"{self._name()}/predict/batch", {"rows": rows, "remember": True})

    def _leave_unread(self) -> None:
        body = {"rows": 2_000 * [{"x": 1}]}
        ask_and_not_read(self._service, f"/v1/models/{self._name()}/predict/batch", body).close()

    def _send_garbage(self) -> None:
        long = 900_000 * "x"
        body = self._random.choice(
            [
                b"{", b"[" * 100_000, b'{"x":' * 90_000, b"\xff\xfe", b"\x80\x04.", b"null", b"NaN",
                {"label": long, "row": {}}, {"label": "a", "row": {long: 1}},
                {"label": "a", "row": {"x": long}}, {"label": {long: 1.0}, "row": {}},
                {"label": "a", "row": {"x": 1e308}}, b'{"label": 1e999, "row": {}}',
                {"label": "a", "row": {"x": 2**62}}, {"items": 20_000 * [{}]}, 2_000_000 * b"x",
            ]
        )  # fmt: skip
        path = self._random.choice(["learn", "learn/batch", "predict", "predict/batch", "decide"])
        self._ask("POST", f"{self._name()}/{path}", body)

    def _look(self) -> None:
        path = self._random.choice(["", "/windows", "/certificate", "/file", "/alarms"])
        self._ask("GET", f"{self._name()}{path}")

    def _make_model(self) -> None:
        kind = self._random.randrange(4)
        config = [{}, WORDS, {"windows": False, "learner": "folklore"}, AGENT][kind]
        self._ask("PUT", f"hostile{kind}", config)
        if self._random.random() < 0.05:
            self._ask("DELETE", f"hostile{kind}")

    def _decide(self) -> None:
        self._ask("POST", "hostile3/decide", {"context": {"x": self._random.gauss()}})
