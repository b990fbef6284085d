"""What operators and clients see: the log, ids of requests, health, rates, and turns."""

import asyncio
import io
import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from folklearn.service.client import Client
from folklearn.service.events import Config, LabelEvent, LabelsRequest, RefusedError
from folklearn.service.hosts import Change, GrowthBudget, PublishedModel
from folklearn.service.limits import Limits
from folklearn.service.logs import LogFormatter
from folklearn.service.store import ModelStore
from tests.service.attacks import WORDS, serving
from tests.service.running import N_WORKERS, running

MODEL = "/v1/models/churn"
SECRET = "a value that is nobody's business"


@contextmanager
def logged(*, as_json: bool) -> Iterator[io.StringIO]:
    """Log the service to a text within, as `folklearn serve --log` does."""
    stream, service_log = io.StringIO(), logging.getLogger("folklearn.service")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(as_json=as_json))
    requests_log = logging.getLogger("folklearn.service.requests")
    service_log.addHandler(handler)
    requests_log.setLevel(logging.INFO if as_json else logging.NOTSET)
    try:
        yield stream
    finally:
        requests_log.setLevel(logging.NOTSET)
        service_log.removeHandler(handler)


@pytest.mark.skipif(N_WORKERS > 0, reason="other processes have logs of their own")
def test_every_request_is_a_line_of_json(tmp_path: Path) -> None:
    with logged(as_json=True) as stream, running(tmp_path / "folder") as service:
        named = {"X-Request-Id": "order 4711"}
        service.ask("PUT", MODEL, {"classes": ["a", "b"]})
        learned = service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": "a"}, headers=named)
        found = service.post(f"{MODEL}/predict", {"row": {"x": 2}, "remember": False})
        service.ask("POST", f"{MODEL}/learn", {"row": {"x": SECRET}, "label": "a"})
        service.ask("POST", f"{MODEL}/learn", {"row": {"x": 1}, "label": {SECRET: SECRET}})
        service.ask("GET", f"{MODEL}?nobody", key=None)
        service.ask("GET", "/v1/health/live", key=None)
        service.ask("GET", "/models/churn", key=None)
        service.ask("GET", "/nobody", key=None)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    shown = [(one["method"], one.get("route"), one["status"], one["level"]) for one in lines]
    route = "/v1/models/{name}"
    assert shown == [
        ("PUT", route, 201, "info"),
        ("POST", f"{route}/learn", 200, "info"),
        ("POST", f"{route}/predict", 200, "info"),
        ("POST", f"{route}/learn", 422, "warning"),
        ("POST", f"{route}/learn", 422, "warning"),
        ("GET", route, 401, "warning"),
        ("GET", "/v1/health/live", 200, "info"),
        ("GET", "/models/{name}", 303, "info"),
        ("GET", None, 404, "warning"),
    ]
    id = service.key.split("_")[1]
    assert lines[1]["request"] == "order 4711"
    assert (lines[1]["event"], lines[2]["version"]) == (learned["event"], found["version"])
    known = [(one.get("tenant"), one.get("key"), one.get("model")) for one in lines]
    assert known == 5 * [("main", id, "churn")] + [
        (None, None, "churn"), (None, None, None), (None, None, "churn"), (None, None, None)
    ]  # fmt: skip
    assert all(one["ms"] >= 0 and one["time"].endswith("+00:00") for one in lines)
    assert "nobody" not in stream.getvalue()
    assert service.key.split("_")[2] not in stream.getvalue()


def test_a_failure_is_logged_under_the_id_that_its_answer_has(tmp_path: Path) -> None:
    for as_json in (False, True):
        folder = tmp_path / str(as_json)
        with logged(as_json=as_json) as stream, running(folder) as service:
            assert service.ask("GET", MODEL).status == 404
            assert (stream.getvalue() == "") != as_json, "only failures are logged as text"
            (folder / "keys.json").write_text("damaged")
            stream.truncate(0)
            stream.seek(0)
            while (reply := service.ask("GET", MODEL)).status != 500:  # until keys are read again
                stream.truncate(0)
                stream.seek(0)
        id = reply.headers["x-request-id"]
        if not as_json:
            assert f"ERROR folklearn.service, request {id}: GET /v1/models/" in stream.getvalue()
            assert "StateFileError" in stream.getvalue()
            continue
        failure, request = map(json.loads, stream.getvalue().splitlines()[-2:])
        assert failure["request"] == request["request"] == id
        assert (failure["level"], request["level"]) == ("error", "error")
        assert "StateFileError" in failure["exception"]
        assert request["detail"] == "the service failed; its log says why"


def test_every_answer_has_the_id_of_its_request(tmp_path: Path) -> None:
    with running(tmp_path / "folder") as service:
        for path in (MODEL, "/v1/health/live", "/v1/openapi.json", "/login", "/nothing", "/"):
            given = service.ask("GET", path, headers={"X-Request-Id": 64 * "~"})
            assert given.headers["x-request-id"] == 64 * "~"
            ids = {
                service.ask("GET", path, headers=headers).headers["x-request-id"]
                for headers in ({}, {"X-Request-Id": ""}, {"X-Request-Id": 65 * "a"},
                                {"X-Request-Id": "a\tb"}, {"X-Request-Id": "\xe9"})
            }  # fmt: skip
            assert len(ids) == 5
            assert all(re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]+", id) for id in ids)


def test_the_command_logs_json(tmp_path: Path) -> None:
    with serving(tmp_path / "folder", None, "--log", "json") as service:
        assert service.ask("GET", "/v1/models").status == 200
    lines = (tmp_path / "folder.log").read_text().splitlines()
    requests = [json.loads(line) for line in lines if line.startswith("{")]
    assert [one["route"] for one in requests] == ["/v1/models"]


# Health.


def health(service: object) -> tuple[int, list[str]]:
    reply = service.ask("GET", "/v1/health/ready", key=None)  # type: ignore[attr-defined]
    return reply.status, reply.body.get("reasons", [])


def test_snapshots_that_fail_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with running(folder, Limits(free_disk=0, replay=0.0)) as service:
        service.ask("PUT", MODEL, {})
        assert health(service) == (200, [])
        (folder / "snapshots").rmdir() if (folder / "snapshots").exists() else None
        (folder / "snapshots").write_text("in the way")
        service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": "a"})
        while health(service) != (200, ["snapshots"]):
            time.sleep(0.001)
        text = service.ask("GET", "/metrics").body.decode()
        assert 'folklearn_degraded{reason="snapshots"} 1.0' in text
        assert 'folklearn_degraded{reason="disk"} 0.0' in text
        (folder / "snapshots").unlink()
        service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": "a"})
        while health(service) != (200, []):
            time.sleep(0.001)


def test_a_queue_that_fills_is_told_before_it_is_full(tmp_path: Path) -> None:
    limits = Limits(free_disk=0, queued_events=5, deadline=120.0)
    with running(tmp_path / "folder", limits) as service:
        service.ask("PUT", MODEL, {})
        begun, go_on, writer = threading.Event(), threading.Event(), service.service.writer
        change = Change(service.service.store.hosts["main", "churn"], LabelEvent("a", {"x": 1}))
        writer.submit(lambda: (begun.set(), go_on.wait()))
        begun.wait()
        told = []
        for _ in range(5):
            told.append(health(service))
            writer.submit(change)
        with pytest.raises(RefusedError, match="too many"):
            writer.submit(change)
        go_on.set()
        assert told == [(200, []), (200, []), (200, []), (200, []), (200, ["queue"])]


def test_a_service_that_stops_is_not_ready(tmp_path: Path) -> None:
    with running(tmp_path / "folder") as service:
        service.service.writer.close()
        assert health(service)[0] == 503
        assert service.ask("GET", "/v1/health/live", key=None).status == 200


# Growth.


def test_a_budget_is_full_again_after_a_minute_and_may_be_overdrawn_once() -> None:
    budget = GrowthBudget(600)
    budget.take("a", 400, 0)
    with pytest.raises(RefusedError, match="too fast") as refused:
        budget.take("a", 300, 5_000)  # 200 and 50 are left
    assert (refused.value.retry_after, refused.value.limit) == (5, "growth=600")
    budget.take("b", 600, 5_000)  # another key has its own
    budget.take("a", 300, 10_000)
    budget.take("a", 7_000, 70_000)  # what is more than all of it takes a full one
    with pytest.raises(RefusedError, match="too fast") as refused:
        budget.take("a", 1, 700_000)
    assert refused.value.retry_after == 11
    budget.take("a", 1, 711_000)
    budget.take("a", 1, 0)  # a clock that is set back takes nothing away


def test_new_names_of_one_key_do_not_keep_the_writer_from_others(tmp_path: Path) -> None:
    """Every new class and new columns make a larger learner, into which the old one is copied."""
    row = {f"x{n}": n for n in range(5)}
    with running(tmp_path / "folder", Limits(free_disk=0, growth=10_000_000)) as service:
        service.ask("PUT", MODEL, {"windows": False})
        other = service.service.keys.create(scopes=["learn"])
        first = [{"row": row, "label": f"class {n}"} for n in range(30)]
        assert service.post(f"{MODEL}/learn/batch", {"items": first})["learned"] == 30
        store, n_taken = service.service.store, 0
        new = {"row": row, "label": "one more"}
        while service.ask("POST", f"{MODEL}/learn", new).status == 200:
            n_taken += 1
            new = {"row": row, "label": f"one more {n_taken}"}
        assert 2 < n_taken < 100
        version = store.journal.last
        named = {"Idempotency-Key": "k"}
        beyond = [
            service.ask("POST", f"{MODEL}/learn", new, headers=named),
            service.ask("POST", f"{MODEL}/learn", {"row": row | {"y": 1}, "label": "class 1"}),
            service.ask("POST", f"{MODEL}/learn/batch", {"items": [*first, new]}),
        ]
        assert [one.status for one in beyond] == [429, 429, 429]
        assert all(0 < int(one.headers["retry-after"]) <= 60 for one in beyond)
        assert store.journal.last == version, "nothing was written"
        assert service.post(f"{MODEL}/learn/batch", {"items": first})["learned"] == 30
        assert service.ask("POST", f"{MODEL}/learn", new, key=other).status == 200


def test_names_of_a_young_model_are_free(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "folder", Limits(free_disk=0, growth=1))
    store.create("main", "churn", Config())
    labels = [
        LabelEvent(f"class {n % 200}", {f"x{i}": float(n + i) for i in range(100)})
        for n in range(400)
    ]
    change = Change(store.hosts["main", "churn"], LabelsRequest(labels), None, "a key")
    (answer,) = store.write([change])
    store.abandon()
    assert answer.body["learned"] == 400


# Predictions.


def test_what_is_unseen_is_in_every_answer_with_probabilities(tmp_path: Path) -> None:
    with running(tmp_path / "folder") as service:
        client, rows = Client(service.address, service.key), [{"x": 1.0}, {"x": 2.0}]
        is_open, is_closed = client.create("open"), client.create("closed", classes=["a", "b"])
        for model in (is_open, is_closed):
            model.learn_many(zip(rows, ("a", "b"), strict=True))
        found = [is_open.predict(rows[0], remember=False), *is_open.predict_many(rows)]
        store = service.service.store
        unseen = store.hosts["main", "open"].published.model.unseen_probability
        assert 0.0 < unseen < 1.0
        assert [one.unseen for one in found] == 3 * [unseen]
        assert is_open.explain(rows[0])["unseen"] == unseen
        body = service.post("/v1/models/closed/predict/batch", {"rows": rows})
        assert all("unseen" not in one for one in body["predictions"])
        assert is_closed.predict(rows[0]).unseen == 0.0
        assert "unseen" not in is_closed.explain(rows[0])


def _published_words(folder: Path) -> PublishedModel:
    store = ModelStore(folder, Limits(free_disk=0))
    store.create("main", "words", Config(roles={"t": "words"}))
    labels = [LabelEvent("ab"[n % 2], {"t": f"text {n % 3}", "x": 1.0 * n}) for n in range(9)]
    store.write([Change(store.hosts["main", "words"], LabelsRequest(labels))])
    host = store.hosts["main", "words"]
    host.publish()
    store.abandon()
    return host.published


def test_predictions_of_words_leave_their_turn_to_others_one_at_a_time(tmp_path: Path) -> None:
    published, has_run, n_inside = _published_words(tmp_path / "folder"), threading.Event(), []

    def predict() -> bool:
        n_inside.append(1)
        alone = sum(n_inside) == 1
        time.sleep(0.01)
        n_inside.append(-1)
        return alone

    async def ask() -> list[bool]:
        waiting = asyncio.create_task(published.call(has_run.wait, 60.0))
        await asyncio.sleep(0)
        has_run.set()  # which it could not while the call held the loop
        return [await waiting, *await asyncio.gather(*(published.call(predict) for _ in range(5)))]

    assert published.has_words
    assert all(asyncio.run(ask()))


def test_words_are_predicted_to_the_same_bits_beside_each_other(tmp_path: Path) -> None:
    with running(tmp_path / "folder") as service:
        service.ask("PUT", MODEL, WORDS)
        items = [
            {"row": {"t": f"text {n % 7} of {n % 5}", "x": n % 11, "z": n}, "label": "ab"[n % 2]}
            for n in range(60)
        ]
        service.post(f"{MODEL}/learn/batch", {"items": items})

        def ask() -> None:
            for one in items:
                service.post(f"{MODEL}/predict", {"row": one["row"], "durable": True})
                service.post(f"{MODEL}/explain", {"row": one["row"]})

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        verified = service.post(f"{MODEL}/verify", None)
        assert (verified["predictions"], verified["other_predictions"]) == (180, 0)
