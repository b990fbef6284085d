"""Every limit of the service is reached: what is beyond is refused, and nothing is harmed."""

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import folklearn
from folklearn.errors import FolklearnError
from folklearn.service.events import (
    Config,
    LabelEvent,
    LabelsRequest,
    ModelSize,
    PredictionEvent,
    PredictionsRequest,
    new_id,
)
from folklearn.service.hosts import Change
from folklearn.service.limits import Limits
from folklearn.service.states import bound_size, measure_size
from folklearn.service.store import ModelStore, replay
from tests.service.attacks import (
    WORDS,
    ask_and_not_read,
    batch_of_words,
    new_words,
    outcome,
)
from tests.service.running import N_WORKERS, Reply, Running, running

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "serve.md"
MODEL = "/v1/models/churn"
UNLIMITED = 2**62
FIELDS = {one.name: one for one in dataclasses.fields(Limits) if one.default}  # those that are set


def as_markdown(limits: Limits) -> str:
    """Return the table of the guide."""
    lines = ["| limit | at most | of | beyond |", "|---|---|---|---|"]
    for row in limits.rows():
        amount = f"{row['limit']:,g}" if row["limit"] < 1e6 else f"{row['limit']:,}"
        lines.append(
            f"| `{row['name']}` | {amount} {row['unit']} | {row['what']} | {row['answer']} |"
        )
    return "\n".join(lines)


def test_the_guide_has_every_limit() -> None:
    assert as_markdown(Limits()) in GUIDE.read_text(encoding="utf-8")


def test_the_limits_can_be_asked_for(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(free_disk=0, batch=7)) as service:
        service.ask("PUT", MODEL, {})
        service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": "a"})
        found = service.ask("GET", "/v1/limits").body
        assert {one["name"]: one["limit"] for one in found["limits"]} == {
            **{name: getattr(Limits(), name) for name in FIELDS},
            "free_disk": 0,
            "batch": 7,
        }
        assert found["memory"]["models"].keys() == {"churn"}
        assert 0 < found["memory"]["models"]["churn"] <= found["memory"]["bytes"]


# One trial for every limit: what is set, and a request that goes beyond.

Trial = Callable[[Running], Reply]


def learn(row: dict[str, Any], label: Any = "a") -> Trial:
    return lambda service: service.ask("POST", f"{MODEL}/learn", {"row": row, "label": label})


def after(*first: Trial, then: Trial) -> Trial:
    def trial(service: Running) -> Reply:
        for one in first:
            assert one(service).status == 200
        return then(service)

    return trial


def put(name: str, config: dict[str, Any]) -> Trial:
    return lambda service: service.ask("PUT", f"/v1/models/{name}", config)


def predict_many(n_rows: int) -> Trial:
    body = {"rows": n_rows * [{"x": 1}]}
    return lambda service: service.ask("POST", f"{MODEL}/predict/batch", body)


def look(service: Running) -> Reply:
    return service.ask("GET", f"{MODEL}/windows")


def learn_while_busy(service: Running) -> Reply:
    """Send a label while the writer has other work, for as long as it takes to get an answer."""
    begun, go_on = threading.Event(), threading.Event()
    service.service.writer.submit(lambda: (begun.set(), go_on.wait()))
    begun.wait()
    try:
        return learn({"x": 1})(service)
    finally:
        go_on.set()


TEXT = {"t": new_words(Random(0), 40)}
WIDE = {f"column{n}": n for n in range(3_000)}
AGENT = {"actions": ["a", "b"], "context": {"x": "number"}}
TRIALS: dict[str, tuple[dict[str, Any], Trial]] = {
    "body": ({"body": 1_000}, learn({"x": 2_000 * "a"})),
    "batch": ({"batch": 2}, predict_many(3)),
    "label": ({}, learn({"x": 1}, 201 * "a")),
    "name": ({}, learn({201 * "a": 1})),
    "text": ({}, learn({"x": 100_001 * "a"})),
    "models": ({"models": 1}, put("other", {})),
    "classes": ({"classes": 1}, after(learn({"x": 1}), then=learn({"x": 1}, "b"))),
    "columns": ({"columns": 1}, learn({"x": 1, "y": 1})),
    "features": ({"features": 2}, after(learn({"x": "a"}), then=learn({"y": 1, "z": 1}))),
    "places": ({"places": 60}, after(learn({"t": "one more text"}), then=learn(TEXT))),
    "learner": ({"learner": 300_000}, after(learn({"x": 1}), then=learn(WIDE))),
    "growth": (
        {"growth": 1},
        after(learn({"x": 1}), learn({"x": 1}, "b"), then=learn({"x": 1}, "c")),
    ),
    "memory": ({"memory": 1_000_000}, after(learn({"x": 1}), then=learn(WIDE))),
    "copies": ({"copies": 1}, after(learn({"x": 1}), then=look)),
    "answer": ({"answer": 2_000}, after(learn({"x": 1}), then=predict_many(30))),
    "traffic": ({"traffic": 10}, learn({"x": 70_000 * "a"})),
    "queued_events": ({"queued_events": 0}, learn({"x": 1})),
    "queued_bytes": ({"queued_bytes": 10}, learn({"x": 1})),
    "deadline": ({"deadline": 0.5}, learn_while_busy),
    "free_disk": ({"free_disk": 2**62}, learn({"x": 1})),
}  # fmt: skip
ELSEWHERE = {"unread", "replay"}  # which answer nothing
BY_TYPE = {"label", "name", "text"}  # whose sentences say so


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - ELSEWHERE))
def test_a_limit_is_reached(name: str, tmp_path: Path) -> None:
    settings, trial = TRIALS[name]
    with running(tmp_path / "folder", Limits(**{"free_disk": 0, **settings})) as service:
        service.ask("PUT", MODEL, {"windows": False})
        reply = trial(service)
        assert reply.status == int(FIELDS[name].metadata["answer"]), reply
        assert (reply.status in (429, 503)) == ("retry-after" in reply.headers)
        limit = None if name in BY_TYPE else f"{name}={getattr(service.service.limits, name)}"
        assert reply.headers.get("folklearn-limit") == reply.body.get("limit") == limit
        assert service.ask("GET", MODEL).status == 200
        assert (
            service.ask("POST", f"{MODEL}/predict", {"row": {"x": 1}, "remember": False}).status
            == 200
        )
        _check_replay(service, "churn")


def _check_replay(service: Running, name: str) -> str:
    """Raise unless a replay gives the same bytes; return their digest."""
    store = service.service.store
    host = store.hosts["main", name]
    digest = host.state.to_record().digest
    assert replay(store.folder, host.number, host.version)["digest"] == digest
    return digest


@pytest.mark.skipif(N_WORKERS > 0, reason="looks into the process that answers")
def test_who_reads_nothing_is_cut_off(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(free_disk=0, unread=0.1)) as service:
        _many_labels(service)
        line = ask_and_not_read(service, f"{MODEL}/predict/batch", {"rows": 200 * [{"x": 1}]})
        while not service.service.n_traffic_bytes:  # until the answer is under way,
            time.sleep(0.001)
        while service.service.n_traffic_bytes:  # and then given up
            time.sleep(0.001)
        content = b""
        while part := line.recv(1 << 20):
            content += part
        (length,) = [
            int(one.split()[1]) for one in content.split(b"\r\n") if b"content-length" in one
        ]
        assert len(content) < length
        line.close()


def test_a_long_replay_is_snapshotted(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(free_disk=0, replay=0.0)) as service:
        service.ask("PUT", MODEL, {})
        service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": "a"})
        while not list((tmp_path / "folder").glob("snapshots/[0-9]*")):
            time.sleep(0.001)


def _many_labels(service: Running) -> None:
    """Make a model whose predictions are long."""
    classes = [f"{190 * 'x'}{n}" for n in range(300)]
    service.ask("PUT", MODEL, {"classes": classes, "windows": False, "learner": "ogd"})
    service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": classes[0]})


# The attacks, in small; at full length, in a process of their own: `make torture`.


def test_a_flood_of_words_ends_and_is_replayed_to_the_same_bytes(tmp_path: Path) -> None:
    folder, small = tmp_path / "folder", Limits(free_disk=0, places=5_000, deadline=120.0)
    random = Random(1)
    with running(folder, small) as service:
        service.ask("PUT", "/v1/models/words", WORDS)
        bodies = [batch_of_words(random, 30) for _ in range(4)]
        ends = [outcome(service.ask("POST", "/v1/models/words/learn/batch", one)) for one in bodies]
        assert ends[0] == "200, none refused"
        assert "200, some refused {422}" in ends
        assert ends[-1] == "200, all refused {422}"
        n_bytes = (folder / "journal.db-wal").stat().st_size
        again = service.ask("POST", "/v1/models/words/learn/batch", bodies[-1])
        assert {one["status"] for one in again.body["refused"]} == {422}
        assert "5,000 hashed places" in again.body["refused"][0]["detail"]
        assert (folder / "journal.db-wal").stat().st_size == n_bytes, "it was not journalled"
        asked = service.ask(
            "POST", "/v1/models/words/predict", {"row": {"t": new_words(random, 90)}}
        )
        assert asked.status == 200  # to ask for new words is no harm, to learn them is
        told = {"id": asked.body["id"], "label": "class 1"}
        assert service.ask("POST", "/v1/models/words/learn", told).status == 422
        known = bodies[0]["items"][9]  # words that came after the second class
        assert service.ask("POST", "/v1/models/words/learn", known).status == 200
        digest = _check_replay(service, "words")
        core = service.service.store.hosts["main", "words"].state.model.pipeline
        new = batch_of_words(random, 1)["items"][0]
        keyed = [
            service.ask("POST", "/v1/models/words/learn", one, headers={"Idempotency-Key": "k"})
            for one in (new, new, known)
        ]
        assert [one.status for one in keyed] == [422, 422, 422]
        assert keyed[0].body == keyed[1].body != keyed[2].body  # its key was used
        digest = _check_replay(service, "words")
        assert 4_900 < core.n_places() <= 5_000
    for snapshot in folder.glob("snapshots/*"):
        snapshot.unlink()
    with running(folder, Limits(free_disk=0, places=UNLIMITED)) as service:  # its own ones count
        assert _check_replay(service, "words") == digest
        assert service.ask("POST", "/v1/models/words/learn", bodies[-1]["items"][0]).status == 422


def test_categories_and_columns_of_any_kind_stay_within(tmp_path: Path) -> None:
    limits = Limits(free_disk=0, features=300, deadline=120.0)
    with running(tmp_path / "folder", limits) as service:
        service.ask("PUT", MODEL, {"windows": False})
        for n in range(12):
            items = [
                {"row": {f"column{n % 6}": f"{n} {i}", f"number{n}": i}, "label": "ab"[i % 2]}
                for i in range(60)
            ]
            assert service.ask("POST", f"{MODEL}/learn/batch", {"items": items}).status in (
                200,
                422,
            )
        wide = {f"date{n}": "2026-01-01" for n in range(26)}
        reply = service.ask("POST", f"{MODEL}/learn", {"row": wide, "label": "a"})
        assert (reply.status, "300 features" in reply.body["detail"]) == (422, True)
        assert len(service.service.store.hosts["main", "churn"].state.model.encoder) <= 300
        _check_replay(service, "churn")


def test_a_learner_of_many_classes_does_not_grow_by_the_square(tmp_path: Path) -> None:
    """It has a matrix for every class, and keeps them when columns come: 830 MB for these."""
    with running(tmp_path / "folder", Limits(free_disk=0, deadline=120.0)) as service:
        service.ask("PUT", MODEL, {"windows": False})
        row = {f"x{n}": n for n in range(40)}
        items = [{"row": row, "label": f"class {n}"} for n in range(30)]
        assert service.post(f"{MODEL}/learn/batch", {"items": items})["learned"] == 30
        reply = service.ask("POST", f"{MODEL}/learn", {"row": WIDE, "label": "class 1"})
        assert (reply.status, "bytes of weights" in reply.body["detail"]) == (422, True)
        assert service.service.store.memory.n_bytes < 50_000_000


def test_a_refusal_names_what_there_would_be(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(free_disk=0)) as service:
        service.ask("PUT", MODEL, {})
        service.post(f"{MODEL}/learn", {"row": {f"x{n}": 1 for n in range(5)}, "label": "a"})
        wide = {f"y{n}": 1 for n in range(10_001)}
        reply = service.ask("POST", f"{MODEL}/learn", {"row": wide, "label": "a"})
        assert reply.body["detail"] == (
            "the model may have 10,000 columns; with this it could come to 10,006, and it has 5 now"
        )
        reply = service.ask("POST", f"{MODEL}/predict", {"row": wide})
        assert reply.body["detail"] == "a row may have 10,000 columns, and one has 10,001"


@pytest.mark.skipif(N_WORKERS > 0, reason="looks into the process that answers")
def test_long_labels_are_refused_and_long_answers_bounded(tmp_path: Path) -> None:
    limits = Limits(free_disk=0, traffic=40_000_000, unread=60.0)
    with running(tmp_path / "folder", limits) as service:
        _many_labels(service)
        for label in (900_000 * "x", {900_000 * "x": 1.0}):
            reply = service.ask("POST", f"{MODEL}/learn", {"row": {"x": 1}, "label": label})
            assert (reply.status, "length <= 200" in reply.body["detail"]) == (422, True)
        assert service.ask("PUT", "/v1/models/other", {"classes": [201 * "x"]}).status == 422
        many = service.ask("POST", f"{MODEL}/predict/batch", {"rows": 1_000 * [{"x": 1}]})
        assert (many.status, "rows at a time" in many.body["detail"]) == (422, True)
        body = {"rows": 100 * [{"x": 1}]}
        lines = [ask_and_not_read(service, f"{MODEL}/predict/batch", body) for _ in range(30)]
        first = [line.recv(12).decode() for line in lines]
        assert set(first) == {"HTTP/1.1 200", "HTTP/1.1 503"}
        assert 0 < service.service.n_traffic_bytes <= limits.traffic
        small = service.ask("POST", f"{MODEL}/predict", {"row": {"x": 1}})
        assert small.status == 200, "while they lie unread"
        for line in lines:
            line.close()
        while service.service.n_traffic_bytes:
            time.sleep(0.001)
        assert service.ask("POST", f"{MODEL}/predict/batch", body).status == 200


# Memory of all models together.


def _filled(folder: Path, limits: Limits) -> tuple[str, int]:
    """Let a model of words grow as it likes; return its digest and version."""
    store = ModelStore(folder, limits)
    store.create("main", "small", Config(windows=False))
    store.create("main", "large", Config(roles={"t": "words"}))
    random = Random(2)
    for name, n_batches in (("large", 14), ("small", 1)):
        host = store.hosts["main", name]
        for _ in range(n_batches):
            items = batch_of_words(random, 20)["items"]
            rows = [one["row"] if name == "large" else {"x": 1.0} for one in items]
            labels = [LabelEvent(one["label"], row) for one, row in zip(items, rows, strict=True)]
            (answer,) = store.write([Change(host, LabelsRequest(labels))])
            assert answer.body["learned"] == 20
    large = store.hosts["main", "large"]
    found = large.state.to_record().digest, large.version
    store.abandon()
    return found


FREE = Limits(free_disk=0, places=UNLIMITED, learner=UNLIMITED, features=UNLIMITED, deadline=120.0)


def test_a_folder_that_is_too_large_opens_to_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    digest, version = _filled(folder, FREE)
    store = ModelStore(folder, FREE)
    n_bytes = store.memory.n_bytes
    store.abandon()

    less = dataclasses.replace(FREE, memory=int(0.99 * n_bytes))  # all of it, and nothing more
    with running(folder, less) as service:
        key = service.key
        assert service.ask("GET", "/v1/models/large").body["version"] == version
        for name in ("large", "small"):
            reply = service.ask(
                "POST", f"/v1/models/{name}/learn", {"row": {"t": "a"}, "label": "b"}
            )
            assert (reply.status, "the largest is large" in reply.body["detail"]) == (503, True)
            asked = {"row": {"t": "some words"}, "remember": False}
            assert service.ask("POST", f"/v1/models/{name}/predict", asked).status == 200
        degraded = {"status": "degraded", "reasons": ["memory"]}
        assert service.ask("GET", "/v1/health/ready", key=None)[:2] == (200, degraded)
        assert service.ask("PUT", "/v1/models/more", AGENT).status == 503
        assert _check_replay(service, "large") == digest

    little = dataclasses.replace(FREE, memory=int(0.3 * n_bytes))  # not even all events
    for snapshot in folder.glob("snapshots/*"):
        snapshot.unlink()
    with running(folder, little, key) as service:
        held = service.ask("GET", "/v1/models/large").body["version"]
        assert 2 < held < version
        reply = service.ask("POST", "/v1/models/large/learn", {"row": {"t": "a"}, "label": "b"})
        assert (reply.status, f"as of event {held}" in reply.body["detail"]) == (503, True)
        assert "held" in service.ask("GET", "/v1/health/ready", key=None).body["reasons"]
        asked = {"row": {"t": "some words"}}
        assert service.post("/v1/models/large/predict", asked)["version"] == held
        assert service.service.store.memory.n_bytes < 2 * little.memory

    with running(folder, FREE, key) as service:  # nothing was lost
        found = service.ask("GET", "/v1/models/large").body
        assert found["version"] == version
        assert _check_replay(service, "large") == digest

    with running(folder, little, key) as service:  # from a snapshot that is too large
        assert service.ask("GET", "/v1/models/large").body["version"] < version
        assert service.ask("DELETE", "/v1/models/large").status == 200
        row = {"row": {"x": 1.0}, "label": "class 1"}
        assert service.ask("POST", "/v1/models/small/learn", row).status == 200


@pytest.mark.skipif(N_WORKERS > 0, reason="what workers hold counts from its publication on")
def test_memory_is_refused_before_it_is_taken_and_given_back(tmp_path: Path) -> None:
    limits = dataclasses.replace(FREE, memory=30_000_000)
    with running(tmp_path / "folder", limits) as service:
        memory, random = service.service.store.memory, Random(3)
        names = [f"words{n}" for n in range(9)]
        ends = []
        for name in names:
            service.ask("PUT", f"/v1/models/{name}", WORDS)
            service.ask("POST", f"/v1/models/{name}/learn", batch_of_words(random, 1)["items"][0])
            body = batch_of_words(random, 40)
            ends.append(outcome(service.ask("POST", f"/v1/models/{name}/learn/batch", body)))
            assert memory.n_bytes <= limits.memory
        assert ends[0] == "200, none refused"
        assert ends[-1] == "503"
        n_journalled = service.service.store.journal.last
        service.ask("POST", "/v1/models/words8/learn/batch", batch_of_words(random, 40))
        assert service.service.store.journal.last == n_journalled
        for name in names[:4]:
            assert service.ask("DELETE", f"/v1/models/{name}").status == 200
        reply = service.ask("POST", "/v1/models/words8/learn/batch", batch_of_words(random, 40))
        assert reply.status == 200


def test_another_tenant_is_not_told_whose_model_is_large(tmp_path: Path) -> None:
    _filled(tmp_path / "folder", FREE)
    with running(tmp_path / "folder", dataclasses.replace(FREE, memory=9_000_000)) as service:
        keys = service.service.keys
        other = keys.create(tenant="other", scopes=["admin"])
        reply = service.ask("PUT", "/v1/models/mine", {}, key=other)
        assert (reply.status, "large " in reply.body["detail"]) == (503, False)
        assert "of another tenant" in reply.body["detail"]


def test_default_labels_wait_until_there_is_room(tmp_path: Path) -> None:
    now = [0]
    store = ModelStore(
        tmp_path / "folder", dataclasses.replace(FREE, memory=400_000), lambda: now[0]
    )
    store.create("main", "late", Config(roles={"t": "words"}, wait=1.0, default="none"))
    host = store.hosts["main", "late"]
    for label in ("a", "b"):
        store.write([Change(host, LabelEvent(label, {"t": "one text"}))])
    asked = PredictionEvent({"t": new_words(Random(0), 4_000)}, [0.5, 0.5], 0.1, host.version)
    store.write([Change(host, PredictionsRequest([(new_id(), asked)]))])
    now[0], version = 5_000, host.version
    store.expire()
    assert host.version == version
    store.memory.limit = 10**9
    store.expire()
    assert host.version == version + 1
    digest = host.state.to_record().digest
    assert replay(tmp_path / "folder", host.number, host.version)["digest"] == digest
    store.abandon()


@pytest.mark.filterwarnings("ignore::folklearn.DataWarning")
def test_a_bound_of_a_size_is_one(seed: int) -> None:
    """Or a model would grow beyond its limits, and all models beyond the memory."""
    random = Random(seed)
    cells: list[Callable[[], Any]] = [
        random.gauss,
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: f"category {random.randrange(300)}",
        lambda: new_words(random, random.randrange(1, 30)),
        lambda: f"2026-01-{random.randrange(1, 29):02}",
        lambda: random.choice(["a", "a b", "ab cd", "é ü", "12", "1.5"]),
    ]
    for config in (WORDS, {"crosses": [["c1", "c2"]]}, {}):
        model = folklearn.Model(**config)
        kinds = {f"c{n}": random.choice(cells) for n in range(12)} | {"t": cells[4]}
        for _ in range(10):
            names = random.sample(sorted(kinds), random.randrange(1, 6))
            rows = [{name: kinds[name]() for name in names} for _ in range(random.randrange(1, 4))]
            labels = [f"class {random.randrange(9)}" for _ in rows]
            items = list(zip(rows, labels, strict=True))
            bound = bound_size(model, items)
            try:
                exact = bound_size(model, items, exactly=True)
                model.learn_many(rows, labels)
            except FolklearnError:
                continue  # a cell of another kind than its column
            is_sparse = model.encoder is not None and model.encoder.sparse
            counted = ModelSize._fields[:4] if is_sparse else ModelSize._fields[:3]
            after = measure_size(model)
            for what in counted:
                assert getattr(bound, what) >= getattr(after, what), what
                assert getattr(exact, what) >= getattr(after, what), what
