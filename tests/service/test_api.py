"""The routes: what they answer, once and again, in time and too late."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import folklearn
from folklearn.service import Client
from folklearn.service.client import ServiceError
from folklearn.service.events import Config, LabelEvent, RefusedError
from folklearn.service.hosts import Change
from folklearn.service.limits import Limits
from folklearn.service.routes import ENDPOINTS
from folklearn.service.service import Writer
from folklearn.service.store import ModelStore
from tests.service.running import Running, running

MODEL = "/v1/models/churn"
ROW = {"age": 31, "country": "PE", "member": True, "note": None}
OTHER = {"age": 58, "country": "DE", "member": False}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service")) as one:
        yield one


@pytest.fixture
def churn(service: Running) -> Iterator[Running]:
    """A model with two classes, made anew."""
    assert service.ask("PUT", MODEL, {}).status == 201
    service.post(f"{MODEL}/learn", {"row": ROW, "label": "go"})
    service.post(f"{MODEL}/learn", {"row": OTHER, "label": "stay"})
    yield service
    service.ask("DELETE", MODEL)


def test_health_needs_no_key(service: Running) -> None:
    assert service.ask("GET", "/v1/health/live", key=None).body == {"status": "live"}
    reply = service.ask("GET", "/v1/health/ready", key=None)
    assert reply[:2] == (200, {"status": "ready"})


def test_it_predicts_as_the_library_does(churn: Running) -> None:
    model = folklearn.Model(windows=True)
    model.learn_one(ROW, "go")
    model.learn_one(OTHER, "stay")
    found = churn.post(f"{MODEL}/predict", {"row": ROW, "at_least": _version(churn)})
    assert {one["label"]: one["probability"] for one in found["probabilities"]} == (
        model.predict_proba_one(ROW)
    )
    assert found["unseen"] == model.unseen_probability
    assert found["label"] == model.predict_one(ROW)


def test_a_label_is_told_by_the_id_of_its_prediction_once(churn: Running) -> None:
    asked = churn.post(f"{MODEL}/predict", {"row": ROW})
    told = churn.post(f"{MODEL}/learn", {"id": asked["id"], "label": "go"})
    assert told["learned"] == 1
    again = churn.post(f"{MODEL}/learn", {"id": asked["id"], "label": "go"})
    assert again == {"event": told["event"], "learned": 0, "already": 1}
    other = churn.ask("POST", f"{MODEL}/learn", {"id": asked["id"], "label": "stay"})
    assert other.status == 409
    assert churn.ask("GET", MODEL).body["rows"] == 3


def test_sets_are_answered_and_count_as_they_were_issued(churn: Running) -> None:
    model = folklearn.Model(windows=True)
    model.learn_one(ROW, "go")
    model.learn_one(OTHER, "stay")
    for n in range(30):
        asked = {"row": {"age": n}, "coverage": 0.9, "at_least": _version(churn)}
        late, there = churn.post(f"{MODEL}/predict", asked), model.ask({"age": n})
        assert late["set"] == [*model.predict_set({"age": n})]
        churn.post(f"{MODEL}/learn", {"row": {"age": n}, "label": ("go", "stay")[n % 2]})
        model.learn_one({"age": n}, ("go", "stay")[n % 2])
        churn.post(f"{MODEL}/learn", {"id": late["id"], "label": ("stay", "go")[n % 3 == 0]})
        model.tell(there[1], ("stay", "go")[n % 3 == 0])
    records = [record.plain() for record in model.sets.records()]
    assert churn.ask("GET", MODEL).body["sets"] == records
    many = churn.post(f"{MODEL}/predict/batch", {"rows": [ROW, OTHER], "coverage": 0.8})
    assert [set(one) >= {"set", "label"} for one in many["predictions"]] == [True, True]
    assert churn.post(f"{MODEL}/verify", None)["same"]
    reply = churn.ask("POST", f"{MODEL}/predict", {"row": ROW, "coverage": 0.5})
    assert (reply.status, "declared: 0.8, 0.9, 0.95" in reply.body["detail"]) == (422, True)


def test_what_was_not_remembered_cannot_be_told(churn: Running) -> None:
    found = churn.post(f"{MODEL}/predict", {"row": ROW, "remember": False})
    assert "id" not in found
    id = "01890000-0000-7000-8000-000000000000"
    reply = churn.ask("POST", f"{MODEL}/learn", {"id": id, "label": "go"})
    assert reply.status == 404
    assert id in reply.body["detail"]


@pytest.mark.parametrize("path", ["learn", "learn/batch"])
def test_a_repeated_request_is_done_once(churn: Running, path: str) -> None:
    item = {"row": ROW, "label": "go"}
    body: Any = item if path == "learn" else {"items": [item, item]}
    other: Any = {**item, "label": "stay"} if path == "learn" else {"items": [item]}
    n_before = churn.ask("GET", MODEL).body["rows"]
    replies = [
        churn.ask("POST", f"{MODEL}/{path}", body, headers={"Idempotency-Key": "k1"})
        for _ in range(3)
    ]
    assert {reply.status for reply in replies} == {200}
    assert len({json.dumps(reply.body) for reply in replies}) == 1
    assert churn.ask("GET", MODEL).body["rows"] == n_before + replies[0].body["learned"]
    reply = churn.ask("POST", f"{MODEL}/{path}", other, headers={"Idempotency-Key": "k1"})
    assert reply.status == 422
    assert "'k1'" in reply.body["detail"]


def test_a_refused_label_is_refused_again_and_changes_nothing(churn: Running) -> None:
    before = churn.ask("GET", MODEL).body
    bad = {"row": {"age": "old"}, "label": "go"}
    replies = [
        churn.ask("POST", f"{MODEL}/learn", bad, headers={"Idempotency-Key": "bad"})
        for _ in range(2)
    ]
    assert replies[0].status == replies[1].status == 422
    assert replies[0].body == replies[1].body
    assert "age" in replies[0].body["detail"]
    after = churn.ask("GET", MODEL).body
    assert (after["rows"], after["loss"]) == (before["rows"], before["loss"])


def test_a_batch_names_what_it_could_not_learn(churn: Running) -> None:
    asked = churn.post(f"{MODEL}/predict", {"row": ROW})
    churn.post(f"{MODEL}/learn", {"id": asked["id"], "label": "go"})
    items = [
        {"row": ROW, "label": "go"},
        {"id": asked["id"], "label": "go"},
        {"row": {"age": "old"}, "label": "go"},
        {"id": "01890000-0000-7000-8000-000000000000", "label": "go"},
        {"row": OTHER, "label": "stay"},
    ]
    found = churn.post(f"{MODEL}/learn/batch", {"items": items})
    assert found["learned"] == 2
    assert found["already"] == 1
    assert [(one["item"], one["status"]) for one in found["refused"]] == [(3, 404), (2, 422)]


def test_a_batch_is_learned_as_learn_many_does(churn: Running) -> None:
    rows = [{"age": age, "country": "DE"} for age in range(20)]
    items = [{"row": row, "label": "go" if row["age"] % 3 else "new"} for row in rows]
    churn.post(f"{MODEL}/learn/batch", {"items": items})
    model = folklearn.Model(windows=True)
    model.learn_one(ROW, "go")
    model.learn_one(OTHER, "stay")
    model.learn_many(rows, [item["label"] for item in items])
    assert churn.ask("GET", MODEL).body["loss"] == model.metrics.average_loss
    found = churn.post(f"{MODEL}/predict/batch", {"rows": rows, "at_least": _version(churn)})
    ages = [[one["probability"] for one in row["probabilities"]] for row in found["predictions"]]
    assert ages == model.predict_next(rows).tolist()


def test_a_prediction_names_the_version_that_it_used(churn: Running) -> None:
    version = _version(churn)
    event = churn.post(f"{MODEL}/learn", {"row": ROW, "label": "go"})["event"]
    found = churn.post(f"{MODEL}/predict", {"row": ROW, "at_least": event})
    assert found["version"] == event > version
    reply = churn.ask("POST", f"{MODEL}/predict", {"row": ROW, "at_least": event + 1000})
    assert reply.status == 409


def test_replay_gives_the_same_bytes_and_predictions(churn: Running) -> None:
    for _ in range(5):
        churn.post(f"{MODEL}/predict", {"row": ROW, "durable": True})
        churn.post(f"{MODEL}/learn", {"row": ROW, "label": "go"})
    assert churn.ask("GET", f"{MODEL}/verify").body == {"version": None}
    found = churn.post(f"{MODEL}/verify", None)
    assert found["same"]
    assert (found["predictions"], found["other_predictions"]) == (5, 0)
    assert churn.ask("GET", f"{MODEL}/verify").body == found


def test_what_can_be_looked_at(churn: Running, tmp_path: Path) -> None:
    for n in range(40):
        churn.post(f"{MODEL}/learn", {"row": ROW, "label": "go" if n % 4 else "stay"})
    assert churn.ask("GET", f"{MODEL}/windows").body["windows"][-1]["stop"] == 42
    assert churn.ask("GET", f"{MODEL}/certificate").body["valid"] is True
    assert {one["label"] for one in churn.ask("GET", f"{MODEL}/explain").body["weights"]} == {
        "go",
        "stay",
    }
    path = tmp_path / "model.folk"
    path.write_bytes(churn.ask("GET", f"{MODEL}/file").body)
    model = folklearn.load(path)
    assert isinstance(model, folklearn.Model)
    assert model.n_rounds == churn.ask("GET", MODEL).body["rows"]


def test_who_looks_at_once_sees_what_one_alone_does(service: Running) -> None:
    """Models compute with arrays that they keep: a copy is looked at by one at a time."""
    model, rng = "/v1/models/looked-at", np.random.default_rng(0)
    assert service.ask("PUT", model, {"terms": "auto"}).status == 201
    rows = [dict(zip("abc", row, strict=True)) for row in rng.normal(size=(600, 3)).tolist()]
    items = [{"row": row, "label": "go" if row["a"] > row["b"] else "stay"} for row in rows]
    service.post(f"{model}/learn/batch", {"items": items})
    alone = service.ask("GET", f"{model}/explain").body
    with ThreadPoolExecutor(8) as visitors:
        replies = visitors.map(lambda _: service.ask("GET", f"{model}/explain"), range(16))
        assert [reply.body for reply in replies] == [alone] * 16


def test_a_prediction_is_explained(churn: Running) -> None:
    for n in range(40):
        row = {"age": 20 + n, "country": "PE" if n % 3 else "DE"}
        churn.post(f"{MODEL}/learn", {"row": row, "label": "go" if n % 3 else "stay"})
    row, version = {"age": 30, "country": "PE", "member": None}, _version(churn)
    found = churn.post(f"{MODEL}/explain", {"row": row, "at_least": version})
    predicted = churn.post(f"{MODEL}/predict", {"row": row, "at_least": version})
    p = {one["label"]: one["probability"] for one in predicted["probabilities"]}
    assert {one["label"]: one["probability"] for one in found["classes"]} == pytest.approx(p)
    assert found["classes"][0]["label"] == predicted["label"] == "go"
    odds = np.log(np.divide(*(one["by_this_model"] for one in found["classes"])))
    assert found["log_odds"] == pytest.approx(odds, abs=1e-9)
    assert sum(one["nats"] for one in found["contributions"]) == pytest.approx(odds, abs=1e-9)
    values = {one["name"]: one["value"] for one in found["contributions"]}
    assert {name: values[name] for name in row} == row
    assert 0.0 < found["share"] <= 1.0
    remote = Client(churn.address, churn.key).model("churn")
    assert remote.explain(row)["contributions"] == found["contributions"]
    assert churn.ask("POST", f"{MODEL}/explain", {"row": {"age": "old"}}).status == 422


def test_a_rise_of_the_loss_is_an_alarm(churn: Running) -> None:
    ages = [age % 50 for age in range(3000)]
    right = [{"row": {"age": age}, "label": "go" if age > 25 else "stay"} for age in ages]
    wrong = [{**item, "label": "go" if item["label"] == "stay" else "stay"} for item in right]
    churn.post(f"{MODEL}/learn/batch", {"items": right})
    assert churn.ask("GET", f"{MODEL}/alarms").body["alarms"] == []
    churn.post(f"{MODEL}/learn/batch", {"items": wrong[:600]})
    (alarm,) = churn.ask("GET", f"{MODEL}/alarms").body["alarms"]
    assert 2900 < alarm["since"] < alarm["row"] <= 3602
    assert alarm["now"] > alarm["before"]
    assert churn.ask("GET", MODEL).body["alarms"] == 1


def test_models_are_listed_and_counted(churn: Running) -> None:
    # Others may be there: tests that ran before in this process left theirs.
    assert "churn" in [one["name"] for one in churn.ask("GET", "/v1/models").body["models"]]
    text = churn.ask("GET", "/metrics").body.decode()
    assert 'folklearn_model_rows{model="churn"} 2.0' in text
    assert 'folklearn_request_seconds_count{method="POST",path="/v1/models/{name}/learn"' in text


def test_a_model_is_created_once(churn: Running) -> None:
    assert churn.ask("PUT", MODEL, {}).status == 200
    reply = churn.ask("PUT", MODEL, {"learner": "folklore"})
    assert reply.status == 409
    assert churn.ask("GET", MODEL).body["rows"] == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"learner": "nonsense"}, "nonsense"),
        ({"settings": {"nonsense": 1}}, "nonsense"),
        ({"roles": {"age": "nonsense"}}, "nonsense"),
        ({"actions": ["a"], "context": {"x": "number"}}, "n_actions"),
        ({"actions": ["a", "b"]}, "context"),
        ({"actions": ["a", "b"], "context": {"x": "words"}}, "words"),
        ({"nonsense": 1}, "nonsense"),
        ({"actions": ["a", "b"], "context": {"x": [f"{n}" for n in range(9_000)]}}, "too many"),
        ({"wait": -1}, "wait"),
        ({"classes": [2**70]}, "classes"),
    ],
)
def test_a_model_that_cannot_be_is_refused(service: Running, config: Any, said: str) -> None:
    reply = service.ask("PUT", "/v1/models/other", config)
    assert reply.status == 422
    assert said in reply.body["detail"]
    assert service.ask("GET", "/v1/models/other").status == 404


def test_a_name_is_used_again_after_deletion(service: Running) -> None:
    for _ in range(2):
        assert service.ask("PUT", "/v1/models/again", {}).status == 201
        assert service.ask("GET", "/v1/models/again").body["rows"] == 0
        service.post("/v1/models/again/learn", {"row": ROW, "label": "go"})
        assert service.ask("DELETE", "/v1/models/again").status == 200


def test_an_agent_decides_and_learns_rewards(service: Running) -> None:
    path = "/v1/models/offer"
    config = {
        "actions": ["a", "b"],
        "context": {"age": "number", "country": ["DE", "PE"]},
        "wait": 3600.0,
        "default": 0,
    }
    assert service.ask("PUT", path, config).status == 201
    for _ in range(60):
        made = service.post(f"{path}/decide", {"context": {"age": 30, "country": "PE"}})
        assert 0.0 < made["propensity"] <= 1.0
        service.post(f"{path}/reward", {"id": made["id"], "reward": float(made["action"] == "b")})
    found = service.ask("GET", path).body
    assert (found["decisions"], found["rows"], found["waiting"]) == (60, 60, 0)
    assert found["reward"] > 0.5
    again = service.post(f"{path}/reward", {"id": made["id"], "reward": 1.0})
    assert again["already"] == 1
    assert service.ask("POST", f"{path}/reward", {"id": made["id"], "reward": 0.5}).status == 409
    assert service.ask("POST", f"{path}/reward", {"id": made["id"], "reward": 2}).status == 422
    version = service.ask("GET", path).body["version"]
    assert service.ask("POST", f"{path}/decide", {"context": {"age": "old"}}).status == 422
    assert service.ask("POST", f"{path}/decide", {"context": {"sky": 1}}).status == 422
    refused = service.ask("GET", path).body
    assert (refused["version"], refused["waiting"]) == (version, 0)  # it waits for no reward
    assert service.ask("POST", f"{path}/predict", {"row": ROW}).status == 422
    assert service.post(f"{path}/verify", None)["same"]


def test_actions_come_and_go_with_features_or_without(service: Running) -> None:
    names, offers = "/v1/models/names", "/v1/models/offers"
    service.ask("PUT", names, {"actions": [], "context": {"hour": "number"}})
    prices = {"hour": "number", "price": "number"}
    service.ask("PUT", offers, {"actions": {}, "context": prices})
    for t in range(60):
        chosen = service.post(
            f"{names}/decide", {"context": {"hour": t % 24}, "actions": ["a", f"n{t}"]}
        )
        service.post(
            f"{names}/reward", {"id": chosen["id"], "reward": float(chosen["action"] == "a")}
        )
        menu = {f"offer {2 * t + i}": {"price": (t + 5 * i) % 9} for i in range(2)}
        chosen = service.post(f"{offers}/decide", {"context": {"hour": t % 24}, "actions": menu})
        reward = float(menu[chosen["action"]]["price"] < 4)
        service.post(f"{offers}/reward", {"id": chosen["id"], "reward": reward})
    assert service.ask("GET", names).body["actions"] == 61
    cheap = {"cheap": {"price": 1}, "dear": {"price": 8}}
    answers = [
        service.post(f"{offers}/decide", {"context": {"hour": 3}, "actions": cheap})
        for _ in range(20)
    ]
    assert sum(one["action"] == "cheap" for one in answers) > 14
    for path, body in (
        (names, {"context": {"hour": 1}}),  # nothing to choose from
        (names, {"context": {"hour": 1}, "actions": cheap}),
        (offers, {"context": {"hour": 1}, "actions": ["a", "b"]}),
        (offers, {"context": {"hour": 1}, "actions": {"a": {"colour": 1}}}),
        (offers, {"context": {"hour": 1, "price": 2}, "actions": cheap}),
        (offers, {"context": {"hour": 1}, "actions": {"a": {"price": "much"}}}),
    ):
        waiting = service.ask("GET", path).body["waiting"]
        assert service.ask("POST", f"{path}/decide", body).status == 422
        assert service.ask("GET", path).body["waiting"] == waiting
    for path in (names, offers):
        assert service.post(f"{path}/verify", None)["same"]


def test_an_agent_forgets_actions_that_it_has_no_room_for(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(free_disk=0, learner=8 * 2**2 * 5)) as service:
        path = "/v1/models/names"
        service.ask("PUT", path, {"context": {"hour": "number"}})
        for t in range(12):
            body = {"context": {"hour": t}, "actions": ["a", f"n{t}"]}
            chosen = service.post(f"{path}/decide", body)
            service.post(f"{path}/reward", {"id": chosen["id"], "reward": 1.0})
        assert service.ask("GET", path).body["actions"] == 5
        too_many = {"context": {"hour": 1}, "actions": [f"m{n}" for n in range(6)]}
        assert service.ask("POST", f"{path}/decide", too_many).status == 422
        assert service.post(f"{path}/verify", None)["same"]


def test_a_repeated_decision_is_the_same_decision(service: Running) -> None:
    path = "/v1/models/twice"
    service.ask("PUT", path, {"actions": ["a", "b"], "context": {"age": "number"}})
    made = [
        service.post(f"{path}/decide", {"context": {"age": 1}}, headers={"Idempotency-Key": "one"})
        for _ in range(3)
    ]
    assert made[0] == made[1] == made[2]
    assert service.ask("GET", path).body["decisions"] == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 5000, 422),
        (b'{"row": ' + 5000 * b'{"x": ', 422),
        (b'{"row": {"x": NaN}, "label": "a"}', 400),
        (b'{"row": {"x": 1e999}, "label": "a"}', 422),
        (b'{"row": {"x": 99999999999999999999}, "label": "a"}', 422),
        (b'{"row": {"x": [1]}, "label": "a"}', 422),
        (b'{"row": {"x": 1}}', 422),
        (b'{"label": "a"}', 422),
        (b'{"row": {"x": 1}, "label": ""}', 422),
        (b'{"row": {"x": 1}, "id": "01890000-0000-7000-8000-000000000000", "label": "a"}', 422),
        (b'{"row": {"x": 1}, "label": "a", "more": 1}', 422),
        (b'{"row": {"x": 1}, "label": "a", "weight": -1}', 422),
        (b'{"id": "not an id", "label": "a"}', 422),
        (b'{"row": {"x": 1}, "label": {"a": 0.5}}', 422),
        (b'{"row": {"x": 1}, "label": "' + 1_000_001 * b"a" + b'"}', 413),
    ],
)
def test_nonsense_is_refused_with_a_sentence(churn: Running, body: bytes, status: int) -> None:
    before = churn.ask("GET", MODEL).body["loss"]
    reply = churn.ask("POST", f"{MODEL}/learn", body)
    assert reply.status == status
    assert reply.body["status"] == status
    assert len(reply.body["detail"]) > 10
    assert churn.ask("GET", MODEL).body["loss"] == before


@pytest.mark.parametrize("key", ["", "x" * 65, "tab\there"])
def test_an_idempotency_key_has_a_form(churn: Running, key: str) -> None:
    headers = {"Idempotency-Key": key}
    reply = churn.ask("POST", f"{MODEL}/learn", {"row": ROW, "label": "go"}, headers=headers)
    assert reply.status == 400


def test_a_method_that_is_not_there_is_a_sentence(service: Running) -> None:
    reply = service.ask("PATCH", MODEL)
    assert (reply.status, reply.body["status"]) == (405, 405)
    assert "PATCH" in reply.body["detail"]


def test_the_document_lists_every_route(service: Running) -> None:
    found = service.ask("GET", "/v1/openapi.json", key=None).body["paths"]
    assert {(path, method) for path in found for method in found[path]} == {
        (one.path, one.method.lower()) for one in ENDPOINTS
    }


def test_numbers_are_sent_to_who_watches(churn: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", churn.port, timeout=300)
    headers = {"Authorization": f"Bearer {churn.key}"}
    connection.request("GET", f"{MODEL}/events", headers=headers)
    with connection.getresponse() as answer:
        assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        first = json.loads(answer.readline().removeprefix(b"data: "))
    connection.close()
    assert first["rows"] == 2


def test_the_client_of_python(service: Running, tmp_path: Path) -> None:
    with Client(service.address, service.key) as client:
        model = client.create("python", wait=60.0)
        model.learn("go", ROW)
        model.learn_many([(OTHER, "stay"), (ROW, "go")])
        found = model.predict(ROW, at_least=model.describe()["version"])
        assert found.label == "go"
        assert model.learn_many([]) == {"learned": 0, "refused": []}
        assert sum(found.probabilities.values()) == pytest.approx(1.0)
        assert model.learn("go", id=found.id) == found.version + 2  # the prediction is an event
        assert [one.label for one in model.predict_many([ROW, OTHER])] == ["go", "stay"]
        assert model.describe()["rows"] == 4
        assert model.certificate()["valid"] is True
        assert model.windows()[-1]["stop"] == 4
        assert model.verify()["same"] is True
        model.save(tmp_path / "model.folk")
        assert folklearn.load(tmp_path / "model.folk").n_rounds == 4
        with pytest.raises(ServiceError, match="age") as refused:
            model.learn("go", {"age": "old"})
        assert refused.value.status == 422
        assert "python" in [one["name"] for one in client.models()]
        many = [({"age": np.int64(n), "note": 100 * "x"}, "go") for n in range(12_000)]
        many[9_000] = {"age": "old"}, "go"
        done = model.learn_many(many)
        assert (done["learned"], [one["item"] for one in done["refused"]]) == (11_999, [9_000])
        model.delete()
        with pytest.raises(ServiceError, match="no model"):
            model.describe()


def test_a_full_queue_is_answered_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(queued_events=0, free_disk=0)) as service:
        service.ask("PUT", MODEL, {})
        reply = service.ask("POST", f"{MODEL}/learn", {"row": ROW, "label": "go"})
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) > 0
        assert service.ask("GET", MODEL).body["rows"] == 0


def test_a_full_disk_is_answered_and_reading_goes_on(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(free_disk=2**62)) as service:
        service.ask("PUT", MODEL, {})
        reply = service.ask("POST", f"{MODEL}/learn", {"row": ROW, "label": "go"})
        assert reply.status == 503
        assert "disk" in reply.body["detail"]
        degraded = {"status": "degraded", "reasons": ["disk"]}
        assert service.ask("GET", "/v1/health/ready")[:2] == (200, degraded)
        assert service.ask("GET", MODEL).body["rows"] == 0
        found = service.ask("POST", f"{MODEL}/predict", {"row": ROW, "remember": False})
        assert found.status == 200


def test_models_stay_within_their_limits(tmp_path: Path) -> None:
    limits = Limits(classes=2, columns=3, models=1, batch=2, free_disk=0)
    with running(tmp_path / "folder", limits) as service:
        assert service.ask("PUT", MODEL, {"classes": ["a", "b", "c"]}).status == 422
        service.ask("PUT", MODEL, {})
        assert service.ask("PUT", "/v1/models/second", {}).status == 422
        wide = {"row": {"x": 1, "y": 1, "z": 1, "u": 1}, "label": "a"}
        assert service.ask("POST", f"{MODEL}/learn", wide).status == 422  # as the first row, too
        for label in ("a", "b"):
            service.post(f"{MODEL}/learn", {"row": {"x": 1}, "label": label})
        reply = service.ask("POST", f"{MODEL}/learn", {"row": {"x": 1}, "label": "c"})
        assert (reply.status, "2 classes" in reply.body["detail"]) == (422, True)
        assert service.ask("POST", f"{MODEL}/learn", wide).status == 422
        many = {"items": 3 * [{"row": {"x": 1}, "label": "a"}]}
        assert service.ask("POST", f"{MODEL}/learn/batch", many).status == 422
        for path, body in (("predict", wide), ("predict/batch", {"rows": [wide["row"]]})):
            body = {name: value for name, value in body.items() if name != "label"}
            assert service.ask("POST", f"{MODEL}/{path}", body).status == 422
        assert service.ask("GET", MODEL).body["rows"] == 2


def test_a_batch_grows_no_model_beyond_its_limits(tmp_path: Path) -> None:
    with running(tmp_path / "folder", Limits(classes=2, columns=3, free_disk=0)) as service:
        service.ask("PUT", MODEL, {})
        for items in (
            [{"row": {"x": 1}, "label": label} for label in "abcd"],
            [{"row": {"x": 1, name: 1}, "label": "a"} for name in "yzuv"],
        ):
            found = service.post(f"{MODEL}/learn/batch", {"items": items})
            assert [one["item"] for one in found["refused"]] == [2, 3]
        assert service.ask("GET", MODEL).body["classes"] == 2


def _version(service: Running) -> int:
    version: int = service.ask("GET", MODEL).body["version"]
    return version


def test_what_was_done_makes_room_in_the_queue(tmp_path: Path) -> None:
    limits = Limits(queued_bytes=3 * 500, free_disk=0)
    writer = Writer(ModelStore(tmp_path / "folder", limits))
    writer.submit(lambda: writer.store.create("main", "churn", Config())).result()
    host = writer.store.hosts["main", "churn"]
    begun, go_on = threading.Event(), threading.Event()
    writer.submit(lambda: (begun.set(), go_on.wait()))
    begun.wait()  # the writer is busy: three may wait, and no fourth
    learn = Change(host, LabelEvent("go", ROW))
    waiting = [writer.submit(learn, 500) for _ in range(3)]
    with pytest.raises(RefusedError, match="too many"):
        writer.submit(learn, 500)
    go_on.set()
    assert [future.result().status for future in waiting] == [200, 200, 200]
    assert [writer.submit(learn, 500).result().status for _ in range(9)] == 9 * [200]
    writer.close()


def test_a_request_that_fails_stops_nobody_else(service: Running) -> None:
    async def fail() -> None:
        await service.service.writer.submit(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())
    assert service.ask("GET", "/v1/models").status == 200


def test_rows_predicted_together_are_predicted_as_if_alone(service: Running) -> None:
    path = "/v1/models/together"
    service.ask("PUT", path, {"windows": False})
    random = Random(0)
    rows = [
        {"mixed": ("text", True, 2**53 + 1)[i % 3]} | {f"x{j}": random.gauss() for j in range(48)}
        for i in range(300)
    ]
    for i, row in enumerate(rows[:6]):
        service.post(f"{path}/learn", {"row": row, "label": i % 3})
    items = [{"row": row, "label": i % 3} for i, row in enumerate(rows[:40])]
    service.post(f"{path}/learn/batch", {"items": items})
    version = service.ask("GET", path).body["version"]
    service.post(f"{path}/predict/batch", {"rows": rows, "remember": True, "at_least": version})
    found = service.post(f"{path}/verify", {})
    assert (found["same"], found["predictions"], found["other_predictions"]) == (True, 300, 0)
    service.ask("DELETE", path)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("predict", {"row": {"note": 2000 * "x"}}),
        ("learn", {"row": {"note": 2000 * "x"}, "label": "a"}),
        ("learn", {"row": {}, "label": {f"{150 * 'x'}{n}": 0.1 for n in range(10)}}),
        ("learn/batch", {"items": [{"row": {"note": 2000 * "x"}, "label": "a"}]}),
        ("decide", {"context": {"age": 1, "note": 2000 * "x"}}),
    ],
)
def test_long_texts_count_in_the_queue(tmp_path: Path, path: str, body: Any) -> None:
    config = {"actions": ["a", "b"], "context": {"age": "number"}} if path == "decide" else {}
    with running(tmp_path / "folder", Limits(queued_bytes=1_500, free_disk=0)) as service:
        service.ask("PUT", MODEL, config)
        assert service.ask("POST", f"{MODEL}/{path}", body).status == 429


def test_what_waits_behind_large_requests_is_refused_in_time(tmp_path: Path) -> None:
    writer = Writer(ModelStore(tmp_path / "folder", Limits(free_disk=0)))
    writer.submit(lambda: writer.store.create("main", "churn", Config())).result()
    host = writer.store.hosts["main", "churn"]
    begun, go_on = threading.Event(), threading.Event()
    writer.submit(lambda: (begun.set(), go_on.wait()))
    begun.wait()
    large = Change(host, LabelEvent("go", ROW))
    waiting = [writer.submit(large, 10_000_000) for _ in range(3)]
    n_before = writer.n_batches
    go_on.set()
    assert [future.result().status for future in waiting] == [200, 200, 200]
    assert writer.n_batches == n_before + 3
    writer.close()


def test_a_durable_prediction_of_a_model_that_is_gone_has_no_id(service: Running) -> None:
    path, writer = "/v1/models/gone", service.service.writer
    service.ask("PUT", path, {})
    host = service.service.store.hosts["main", "gone"]
    begun, go_on = threading.Event(), threading.Event()
    writer.submit(lambda: (begun.set(), go_on.wait()))
    begun.wait()
    writer.submit(lambda: service.service.store.delete(host))
    with ThreadPoolExecutor() as beside:
        body = {"row": ROW, "durable": True}
        asking = beside.submit(service.ask, "POST", f"{path}/predict", body)
        while writer.n_queued < 2:
            assert not asking.done()
        go_on.set()
        reply = asking.result()
    assert (reply.status, "id" in reply.body) == (404, False)
