"""What clients of the service do, and how they insist on an answer.

A client is a generator: it yields requests, and is sent their answers. Whoever runs it decides how
a request travels, and what happens between two attempts.
"""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Generator
from multiprocessing.process import BaseProcess
from random import Random
from typing import Any, NamedTuple

MODEL, AGENT = "/v1/models/labels", "/v1/models/agent"
CONFIG: dict[str, Any] = {"windows": False}
ACTIONS = ["left", "right", "stay"]
AGENT_CONFIG: dict[str, Any] = {"actions": ACTIONS, "context": {"x": "number"}, "seed": 7}
KINDS = ("learn", "learn", "predict", "tell", "batch", "mixed", "act", "again")
MOST_ATTEMPTS = 20_000
LABELS = ("no", "yes", "perhaps")


class Request(NamedTuple):
    """A request, with the key that makes it one and the same however often it is sent."""

    path: str
    body: Any
    key: str | None = None
    method: str = "POST"


class Answer(NamedTuple):
    """What came back; status 0 if nothing did, and nobody knows whether it was done."""

    status: int
    body: Any = None

    @property
    def is_final(self) -> bool:
        """Whether it is of no use to ask again."""
        return 200 <= self.status < 500 and self.status != 429


Work = Generator[Request, Answer, None]

CREATE = (Request(MODEL, CONFIG, method="PUT"), Request(AGENT, AGENT_CONFIG, method="PUT"))


def work(name: str, random: Random) -> Work:
    """Do everything that clients do, for ever; the value of x tells rows apart."""
    predicted: list[str] = []
    decided: list[str] = []
    sent: list[Request] = []
    for n in range(1_000_000):
        key = f"{name}-{n:06}"
        what = random.choice(KINDS)
        if what == "learn":
            sent.append(Request(f"{MODEL}/learn", _with_row(random), key))
        elif what == "predict":
            answer = yield Request(f"{MODEL}/predict", {"row": _row(random), "durable": True})
            predicted.append(answer.body["id"])
            continue
        elif what == "tell" and predicted:
            sent.append(Request(f"{MODEL}/learn", _with_id(random, predicted), key))
        elif what == "batch":
            items = [_with_row(random) for _ in range(random.randint(1, 5))]
            sent.append(Request(f"{MODEL}/learn/batch", {"items": items}, key))
        elif what == "mixed" and predicted:
            items = [_with_row(random), _with_id(random, predicted), _with_row(random)]
            sent.append(Request(f"{MODEL}/learn/batch", {"items": items}, key))
        elif what == "act" and random.random() < 0.5:
            answer = yield Request(f"{AGENT}/decide", {"context": {"x": random.gauss()}}, key)
            decided.append(answer.body["id"])
            continue
        elif what == "act" and decided:
            body = {"id": decided.pop(), "reward": random.random()}
            sent.append(Request(f"{AGENT}/reward", body, key))
        elif what == "again" and sent:
            yield random.choice(sent)
            continue
        else:
            continue
        yield sent[-1]


def session(seed: int, n: int) -> Work:
    """Create the models, and do n requests."""
    for request in CREATE:
        yield request
    client = work(f"client{seed}", Random(seed))
    request = next(client)
    for _ in range(n):
        answer = yield request
        request = client.send(answer)


def _row(random: Random) -> dict[str, Any]:
    return {"x": random.gauss(), "colour": random.choice(("red", "green", "blue"))}


def _with_row(random: Random) -> dict[str, Any]:
    return {"label": random.choice(LABELS), "row": _row(random)}


def _with_id(random: Random, predicted: list[str]) -> dict[str, Any]:
    id = predicted.pop(random.randrange(len(predicted)))
    return {"label": random.choice(LABELS), "id": id}


class Line:
    """The way to a service that listens on this machine, on a port that may change."""

    def __init__(self, secret: str, port: int = 0) -> None:
        self._secret, self.port = secret, port
        self._connection: http.client.HTTPConnection | None = None

    def send(self, request: Request) -> Answer:
        """Send once."""
        headers = {"Authorization": f"Bearer {self._secret}"}
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        connection = self._connection
        if connection is None or connection.port != self.port:
            self.close()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            self._connection = connection
        try:
            connection.request(request.method, request.path, json.dumps(request.body), headers)
            response = connection.getresponse()
            return Answer(response.status, json.loads(response.read()))
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            return Answer(0)

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()


class Crowd:
    """Clients at work at the same time, each sending a request until it has a final answer.

    Attributes
    ----------
    done : requests with their final answers.
    """

    def __init__(self, secret: str, n: int, seed: int) -> None:
        self.done: list[tuple[Request, Answer]] = []
        self._lines = [Line(secret) for _ in range(n)]
        self._is_ending, self._n_working = False, n
        self._threads = [
            threading.Thread(target=self._work, args=(line, i, seed), daemon=True)
            for i, line in enumerate(self._lines)
        ]

    def begin(self, port: int) -> None:
        """Create the models, and go to work."""
        self.call(port)
        for request in CREATE:
            self._insist(self._lines[0], request)
        for thread in self._threads:
            thread.start()

    def call(self, port: int) -> None:
        """Ask on this port from now on."""
        for line in self._lines:
            line.port = port

    def wait_for(self, n: int, life: BaseProcess) -> None:
        """Wait for so many more answers of a process."""
        wanted = len(self.done) + n
        while len(self.done) < wanted and life.is_alive():
            assert all(thread.is_alive() for thread in self._threads)
            time.sleep(0.001)

    def end(self) -> None:
        """Wait until every request that was begun has its answer."""
        self._is_ending = True
        for thread in self._threads:
            thread.join()
        assert self._n_working == 0, "a client got no answer, or one that it did not expect"

    def repeat(self, n: int) -> None:
        """Send the last n requests that have a key again: the answers must be the same."""
        for request, answer in [one for one in self.done if one[0].key][-n:]:
            assert self._insist(self._lines[0], request) == answer

    def close(self) -> None:
        """Hang up."""
        for line in self._lines:
            line.close()

    def _work(self, line: Line, number: int, seed: int) -> None:
        client = work(f"client{number}", Random(1000 * seed + number))
        request = next(client)
        while not self._is_ending:
            answer = self._insist(line, request)
            self.done.append((request, answer))
            request = client.send(answer)
        self._n_working -= 1

    def _insist(self, line: Line, request: Request) -> Answer:
        for _ in range(MOST_ATTEMPTS):
            answer = line.send(request)
            if answer.is_final:
                return answer
            time.sleep(0.01)
        raise AssertionError(f"{request} has no answer")


class ShortLine:
    """The way to an application in the same process."""

    def __init__(self, app: Any, secret: str) -> None:
        self._app, self._secret = app, secret

    def send(self, request: Request) -> Answer:
        """Send once."""
        return asyncio.run(self._sent(request))

    async def _sent(self, request: Request) -> Answer:
        content = json.dumps(request.body).encode()
        headers = [(b"authorization", f"Bearer {self._secret}".encode())]
        if request.key is not None:
            headers.append((b"idempotency-key", request.key.encode()))
        scope = {
            "type": "http", "method": request.method, "path": request.path, "headers": headers,
            "query_string": b"", "root_path": "",
        }  # fmt: skip
        answered: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content}

        async def send(message: dict[str, Any]) -> None:
            answered.append(message)

        await self._app(scope, receive, send)
        start, body = answered
        return Answer(start["status"], json.loads(body["body"]))
