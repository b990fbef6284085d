"""Worker processes answer as one process does, and nothing is lost whichever of them dies."""

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from folklearn import load
from folklearn.service import Client, worker
from tests.service import audit, lives
from tests.service.attacks import Command, serving
from tests.service.clients import AGENT, AGENT_CONFIG, MODEL

N_WORKERS = 2


def make_row(random: Random) -> dict[str, Any]:
    return {"x": random.gauss(), "z": random.gauss(), "colour": random.choice("rgb")}


@pytest.fixture(scope="module")
def service() -> Iterator[Command]:
    with lives.scratch() as place:
        folder = Path(place) / "folder"
        with serving(folder, None, "--workers", str(N_WORKERS)) as command:
            assert command.ask("PUT", MODEL, {}).status == 201
            yield command


def post(service: Command, path: str, body: Any) -> Any:
    reply = service.ask("POST", path, body)
    assert reply.status == 200, reply
    return reply.body


def test_predictions_are_those_of_the_model_to_the_last_bit(
    service: Command, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    name = "/v1/models/bits"
    service.ask("PUT", name, {"classes": ["no", "yes"], "coverage": [0.9]})
    for _ in range(40):
        rows = [make_row(random) for _ in range(9)]
        items = [{"row": row, "label": "yes" if row["x"] > 0 else "no"} for row in rows]
        event = post(service, f"{name}/learn/batch", {"items": items})["event"]
        asked = {"rows": rows, "remember": True, "coverage": 0.9}
        post(service, f"{name}/predict/batch", asked)  # from whatever version was published
    answer = post(service, f"{name}/predict/batch", {"rows": rows, "at_least": event})
    assert answer["version"] >= event
    (tmp_path / "model.folk").write_bytes(service.ask("GET", f"{name}/file").body)
    model = load(tmp_path / "model.folk")
    for row, one in zip(rows, answer["predictions"], strict=True):
        p = {pair["label"]: pair["probability"] for pair in one["probabilities"]}
        assert p == model.predict_proba_one(row)
    why = post(service, f"{name}/explain", {"row": rows[0]})
    assert why["classes"][0]["probability"] in p.values() or why["contributions"]
    verified = post(service, f"{name}/verify", None)
    assert verified["same"] is True
    assert verified["predictions"] >= 300
    assert verified["other_predictions"] == 0


def test_a_label_finds_its_prediction_in_whatever_process(service: Command) -> None:
    """The next request has a connection of its own, and so comes to a worker of its own."""

    def work(seed: int) -> None:
        random = Random(seed)
        for n in range(60):
            asked = post(service, f"{MODEL}/predict", {"row": make_row(random)})
            if n % 3:
                post(service, f"{MODEL}/learn", {"id": asked["id"], "label": "yes"})
            else:
                items = [{"id": asked["id"], "label": "no"}]
                answer = post(service, f"{MODEL}/learn/batch", {"items": items})
                assert answer["learned"] == 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_the_parent_answers_what_workers_do_not(service: Command) -> None:
    ask = service.ask
    for n in range(5):  # no worker may say that it is not there
        assert ask("PUT", f"/v1/models/new{n}", {}).status == 201
        assert ask("POST", f"/v1/models/new{n}/predict", {"row": {"x": 1.0}}).status == 200
        assert ask("DELETE", f"/v1/models/new{n}").status == 200
        assert ask("POST", f"/v1/models/new{n}/predict", {"row": {"x": 1.0}}).status == 404
    assert ask("GET", "/v1/health/ready", key=None).status == 200
    assert ask("GET", "/v1/models").body["models"]
    assert ask("GET", "/nothing").status == 404
    assert ask("PATCH", MODEL).status == 405
    assert ask("POST", f"{MODEL}/learn", {"row": {}, "label": "a"}, key=None).status == 401
    assert ask("POST", f"{MODEL}/predict", b"{").status == 400
    assert ask("POST", f"{MODEL}/learn", b" " * 1_000_001).status == 413
    unknown = {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "label": "yes"}
    assert ask("POST", f"{MODEL}/learn", unknown).status in (404, 410)
    assert ask("PUT", AGENT, AGENT_CONFIG).status == 201
    chosen = post(service, f"{AGENT}/decide", {"context": {"x": 0.5}})
    assert post(service, f"{AGENT}/reward", {"id": chosen["id"], "reward": 1.0})["learned"] == 1
    id = "one request"
    reply = ask("GET", "/v1/models", headers={"X-Request-Id": id})
    assert reply.headers["x-request-id"] == id


def test_a_session_and_a_stream_of_changes_pass(service: Command) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    connection.request("POST", "/login", f"key={service.key}", headers)
    answer = connection.getresponse()
    answer.read()
    cookie = answer.getheader("set-cookie")
    assert answer.status == 303
    assert cookie is not None
    connection.request("GET", "/", headers={"Cookie": cookie.split(";")[0]})
    page = connection.getresponse()
    assert page.status == 200
    assert b"labels" in page.read()
    connection.request("GET", f"{MODEL}/events", headers={"Cookie": cookie.split(";")[0]})
    stream = connection.getresponse()
    assert stream.readline().startswith(b"data: {")
    connection.close()
    assert service.ask("GET", "/v1/models").status == 200


def test_a_long_answer_comes_whole(service: Command, tmp_path: Path) -> None:
    random = Random(1)
    words = [f"word{n}" for n in range(4_000)]
    service.ask("PUT", "/v1/models/words", {"roles": {"t": "words"}})
    for _ in range(4):
        items = [
            {"row": {"t": " ".join(random.sample(words, 9))}, "label": random.choice("ab")}
            for _ in range(500)
        ]
        event = post(service, "/v1/models/words/learn/batch", {"items": items})["event"]
    with ThreadPoolExecutor(3) as pool:
        files = [
            one.body
            for one in pool.map(lambda _: service.ask("GET", "/v1/models/words/file"), range(3))
        ]
    assert len(files[0]) > 1_000_000
    assert len({hash(one) for one in files}) == 1
    (tmp_path / "words.folk").write_bytes(files[0])
    model = load(tmp_path / "words.folk")
    row = items[0]["row"]
    answer = post(service, "/v1/models/words/predict", {"row": row, "at_least": event})
    p = {pair["label"]: pair["probability"] for pair in answer["probabilities"]}
    assert p == model.predict_proba_one(row)


def test_what_workers_answer_is_counted(service: Command) -> None:
    def count() -> float:
        text = service.ask("GET", "/metrics").body.decode()
        name = 'folklearn_request_seconds_count{method="POST",path="/v1/models/{name}/predict"'
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return sum(float(line.split()[-1]) for line in lines if 'status="200"' in line)

    time.sleep(2.5)  # workers report once a second what was answered before
    before = count()
    for _ in range(20):
        post(service, f"{MODEL}/predict", {"row": {"x": 1.0}})
    while count() < before + 20:
        time.sleep(0.1)
    assert count() == before + 20


def test_few_changes_are_begun_between_two_looks_at_the_sockets() -> None:
    """So that predictions come through beside many labels; all get their turn, in order."""

    async def run() -> list[tuple[int, int]]:
        turns = asyncio.Semaphore(worker._CHANGES_AT_A_TIME)
        begun = list[tuple[int, int]]()
        n_looks = 0

        async def change(number: int) -> None:
            await worker.take_turn(turns)
            begun.append((n_looks, number))

        tasks = [asyncio.create_task(change(number)) for number in range(30)]
        while len(begun) < 30:
            n_looks += 1
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return begun

    begun = asyncio.run(run())
    assert [number for _, number in begun] == [*range(30)]
    per_look = Counter(look for look, _ in begun)
    assert max(per_look.values()) <= worker._CHANGES_AT_A_TIME
    assert len(per_look) >= 30 // worker._CHANGES_AT_A_TIME


def test_workers_are_replaced_without_a_lost_request(tmp_path: Path) -> None:
    """All on SIGHUP, and one that dies; the client repeats what got no answer."""
    folder = tmp_path / "folder"
    with serving(folder, None, "--workers", str(N_WORKERS)) as service:
        client, is_ending = Client(f"http://127.0.0.1:{service.port}", service.key), False
        model = client.create("labels")
        n_done: Counter[int] = Counter()

        def work(number: int) -> None:
            random = Random(number)
            while not is_ending:
                asked = model.predict(make_row(random), durable=True)
                model.learn("yes" if random.random() < 0.5 else "no", id=asked.id)
                n_done[number] += 1

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()

        def progress() -> None:
            before = n_done.copy()
            while any(n_done[n] < before[n] + 5 for n in range(3)):
                assert all(thread.is_alive() for thread in threads), "a request was lost"
                time.sleep(0.01)

        progress()
        first = lives.workers_of(service.process.pid)
        assert len(first) == N_WORKERS
        service.process.send_signal(signal.SIGHUP)
        while {*lives.workers_of(service.process.pid)} & {*first}:
            progress()
        os.kill(lives.workers_of(service.process.pid)[0], signal.SIGKILL)
        progress()
        is_ending = True
        for thread in threads:
            thread.join()
        rows = service.ask("GET", MODEL).body["rows"]
        assert rows == sum(n_done.values())
        assert post(service, f"{MODEL}/verify", None)["same"] is True
    assert audit.same_bytes(folder).keys() == {"labels"}


@pytest.mark.parametrize("n_workers", ["0", "1"])
def test_requests_wait_while_the_service_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, n_workers: str
) -> None:
    """The socket is that of a supervisor, as systemd's; no connection is refused meanwhile."""
    folder, n_done, is_ending = tmp_path / "folder", 0, False
    secret = lives.first_key(folder)
    command = [sys.executable, "-m", "folklearn.cli.app", "serve", folder, "--workers", n_workers]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}", secret)

        def start() -> subprocess.Popen[bytes]:
            environment = {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": ""}
            script = 'LISTEN_PID=$$ exec "$@"'
            return subprocess.Popen(
                ["sh", "-c", script, "sh", *command],
                env=environment,
                cwd=lives.ROOT,
                stdout=subprocess.DEVNULL,
                close_fds=False,
                preexec_fn=lambda: os.dup2(listening.fileno(), 3),
            )

        def work() -> None:
            nonlocal n_done
            while not is_ending:
                model.learn("ab"[n_done % 2], {"x": float(n_done)})
                n_done += 1

        process = start()
        model = client.create("labels", windows=False)
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(2):
            before = n_done
            while n_done < before + 20:
                assert thread.is_alive(), "a request was lost"
            process.terminate()
            assert process.wait() == 0
            process = start()
        is_ending = True
        thread.join()
        assert model.describe()["rows"] == n_done
        process.terminate()
        process.wait()
    assert "refused" not in caplog.text
