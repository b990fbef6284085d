"""Somebody is forgotten: nothing of the rows is left in any file, and nothing else is lost."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from folklearn.model.model import Model
from folklearn.service.events import (
    Config,
    DecisionEvent,
    EraseRequest,
    LabelEvent,
    LabelsRequest,
    PredictionEvent,
    PredictionsRequest,
    RefusedError,
    new_id,
)
from folklearn.service.hosts import Change
from tests.service import ageing as ages
from tests.service.ageing import Ageing
from tests.service.running import running


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("rebuild", [False, True])
def test_nothing_of_a_person_is_left(
    tmp_path: Path, seed: int, rebuild: bool, archive: bool
) -> None:
    keep_days = None if rebuild else 2.0
    ageing = Ageing(tmp_path / "folder", seed, keep_days=keep_days, archive=archive and not rebuild)
    for _ in range(5):
        ageing.day()
        for host in ageing.store.models():
            ageing.store.snapshot(host).result()
    needles = ages.needles_of(ageing, 3)
    names = ages.traces(ageing.folder, needles)
    assert len(names) >= 3, names
    answer = ageing.erase(3, rebuild=rebuild)
    assert answer.status == 200
    rows = [row for items in ageing.sent.values() for _, row in items]
    n_learned = sum(row["customer"] == ages.customer(3) for row in rows)
    assert answer.body["labels"] >= (1 if keep_days else n_learned)
    assert answer.body["rows"] > 0
    assert not ages.traces(ageing.folder, needles)
    assert ages.traces(ageing.folder, [ages.customer(2).encode()])
    ages.check(ageing)
    again = ageing.erase(3, rebuild=rebuild)
    assert (again.body["rows"], again.body["labels"]) == (0, 0)
    ageing.again()
    ageing.day()
    ages.check(ageing)
    ageing.store.abandon()


def test_a_rebuilt_model_is_as_if_the_rows_had_never_been(tmp_path: Path, seed: int) -> None:
    ageing = Ageing(tmp_path / "folder", seed)
    for _ in range(4):
        ageing.day()
    ageing.erase(5, rebuild=True)
    state: Any = ageing.labels.state
    assert state.model.find_category("customer", ages.customer(5)) is None
    entries = ages.all_events(ageing.folder)
    assert ages.fold(entries, 1) == ageing.labels.state.to_record().digest
    ageing.store.abandon()


@pytest.mark.parametrize("rebuild", [False, True])
def test_what_was_erased_is_not_learned_again(tmp_path: Path, rebuild: bool) -> None:
    ageing = Ageing(tmp_path / "folder")
    ageing.day()
    told = [("yes", ageing.row(7)[0])]
    ageing.send(told, "its own key")
    ageing.send([*told, ("no", ageing.row(1)[0])], "together with others")
    ids = [id for id, who in ageing.asked if who == 7]
    first = new_id(ageing.now)
    asked = PredictionEvent(ageing.row(7)[0], [0.5, 0.5], 0.0, ageing.labels.version)
    ageing.store.write([Change(ageing.labels, PredictionsRequest([(first, asked)]))])
    ageing.store.write([Change(ageing.labels, LabelEvent("no", id=first), "by id")])
    before = ageing.done["together with others"]
    ageing.erase(7, rebuild=rebuild)
    for _ in range(2):
        version = ageing.labels.version
        assert ageing.repeat("its own key").status == 410
        assert ageing.repeat("together with others") == before
        for id in (first, *ids):
            answers = ageing.store.write(
                [Change(ageing.labels, LabelEvent("no", id=id), key) for key in (None, "by id")]
            )
            assert [answer.status for answer in answers] == [410, 410]
        assert ageing.labels.version == version
        ageing.again()
    ageing.store.abandon()


def test_predictions_are_erased_by_id(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder")
    for _ in range(2):
        ageing.day()
    (id, _), (other, _) = ageing.asked[:2]
    ageing.store.write(
        [Change(ageing.labels, LabelsRequest([LabelEvent("no", id=one)])) for one in (id, other)]
    )
    made = ageing.store.write([Change(ageing.agent, DecisionEvent({"x": 0.123456789}), "decided")])[
        0
    ]
    ages.erase(ageing.store, ageing.labels, EraseRequest(ids=[id]))
    decided = UUID(made.body["id"])
    ages.erase(ageing.store, ageing.agent, EraseRequest(ids=[decided]))
    gone = [id.bytes, str(id).encode(), decided.bytes, str(decided).encode(), b"0.123456789"]
    assert not ages.traces(ageing.folder, gone)
    assert ages.traces(ageing.folder, [other.bytes])
    pending: Any = ageing.agent.state.model
    assert made.body["event"] not in {decision.id for decision in pending.pending}
    assert pending.pending, "others wait as before"
    ages.check(ageing)
    ageing.store.abandon()


def test_sentences_that_quote_a_person_are_erased(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder")
    ageing.day()
    value = (
        "Émile O'Brien of a street with a name that is long, and longer than any sentence quotes"
    )
    row = ageing.row()[0]
    bad = LabelEvent("yes", row | {"age": value, "customer": value})
    good = LabelEvent("yes", row)
    for n, request in enumerate([bad, LabelsRequest([bad, good]), LabelsRequest([bad])]):
        (answer,) = ageing.store.write([Change(ageing.labels, request, f"key{n}")])
        assert answer.status == 422 or answer.body["refused"]
    needles = [needle.encode() for needle in ("O'Brien", "mile O")]
    assert ages.traces(ageing.folder, needles)
    ages.erase(ageing.store, ageing.labels, EraseRequest("customer", value))
    assert not ages.traces(ageing.folder, needles)
    ages.check(ageing)
    ageing.store.abandon()


def test_what_cannot_be_rebuilt_is_said_before_anything_changes(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=1.0)
    for _ in range(3):
        ageing.day()
    model = Model()
    model.learn_one({"x": 1.0, "customer": "of the file"}, "yes")
    ageing.store.create("main", "imported", Config(), model.to_bytes())
    request = EraseRequest("customer", ages.customer(1), rebuild=True)
    before = ageing.store.journal.last
    for name, reason in (
        ("labels", "its first events were removed"),
        ("agent", "an agent would have made others"),
        ("imported", "it began as a file"),
    ):
        host = ageing.store.hosts["main", name]
        for n in range(2):
            with pytest.raises(RefusedError, match=reason) as refusal:
                ages.erase(ageing.store, host, request)
            assert refusal.value.status == 409
            if name == "imported" and n == 0:
                assert ages.traces(ageing.folder, [b"of the file"])
                ages.erase(ageing.store, host, EraseRequest("customer", "of the file"))
                before = ageing.store.journal.last
                assert not ages.traces(ageing.folder, [b"of the file"])
    assert ageing.store.journal.last == before
    ageing.store.abandon()


def test_a_model_is_erased_over_http(tmp_path: Path) -> None:
    """By another process, while the service answers."""
    with running(tmp_path / "folder") as service:
        path = "/v1/models/labels"
        service.ask("PUT", path, {"windows": False})
        for n in range(30):
            row = {"x": n / 7, "customer": f"customer-{n % 3}"}
            service.post(f"{path}/learn", {"row": row, "label": "yes" if n % 2 else "no"})
        rebuilt = service.post(
            f"{path}/erase", {"column": "customer", "value": "customer-1", "rebuild": True}
        )
        assert (rebuilt["rows"], rebuilt["labels"]) == (10, 10)
        assert not ages.traces(tmp_path / "folder", [b"customer-1"])
        assert service.ask("GET", path).body["rows"] == 20
        kept = service.post(f"{path}/erase", {"column": "customer", "value": "customer-2"})
        assert kept["rows"] == 10
        assert service.ask("GET", path).body["rows"] == 20
        assert service.post(f"{path}/verify", {})["same"]
        assert not ages.traces(tmp_path / "folder", [b"customer-2"])
        for body in ({}, {"column": "a"}, {"column": "a", "value": 1, "ids": [str(new_id())]}):
            assert service.ask("POST", f"{path}/erase", body).status == 422
