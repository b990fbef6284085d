"""A restart is not noticed: the same request has the same answer, and the model the same bytes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from folklearn.service.events import (
    Config,
    DecisionEvent,
    LabelEvent,
    LabelsRequest,
    PredictionEvent,
    PredictionsRequest,
    RewardEvent,
    Row,
    new_id,
)
from folklearn.service.hosts import Change
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore

ROW: Row = {"age": 31, "colour": "red"}
LIMITS = Limits(classes=3, columns=4, free_disk=0)
NOWHERE = UUID(int=0)


class Lives:
    """A folder that is opened, and opened again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = ModelStore(folder, LIMITS)
        agent = Config(actions=["a", "b"], context={"z": "number", "b": ["u", "v"]})
        self.store.create("main", "labels", Config(windows=False))
        self.store.create("main", "agent", agent)

    def do(self, name: str, request: Any, key: str | None = None) -> Any:
        """Return the answer to a request."""
        (answer,) = self.store.write([Change(self.store.hosts["main", name], request, key)])
        return answer

    def digests(self) -> list[str]:
        """Return what the models are."""
        return [host.state.to_record().digest for host in self.store.models()]

    def again(self, end: Callable[[ModelStore], None]) -> None:
        """End, and begin again."""
        end(self.store)
        self.store = ModelStore(self._folder, LIMITS)


def _requests(lives: Lives) -> list[tuple[str, Any, str]]:
    """Return one request of every kind of answer."""
    asked = [(new_id(), PredictionEvent(ROW, [], 1.0, 1)) for _ in range(3)]
    lives.do("labels", PredictionsRequest(asked))
    first, second, third = (id for id, _ in asked)
    labels = [
        LabelEvent("a", ROW),
        LabelEvent("a", id=first),
        LabelEvent("b", id=second),
        LabelEvent("c", id=second),  # twice in one request
        LabelEvent("a", id=NOWHERE),
        LabelEvent("a", {"age": "old"}),
        LabelEvent("a", {f"x{i}": 1 for i in range(9)}),
    ]
    made = lives.do("agent", DecisionEvent({"z": 1, "b": "u"}))
    several: list[tuple[str, Any, str]] = [
        ("labels", LabelEvent("a", id=first), "by id"),
        ("labels", LabelsRequest(labels), "many"),
        ("labels", LabelsRequest(labels[1:3]), "nothing new"),
        ("labels", LabelEvent({"a": 0.25, "b": 0.75}, id=third, weight=0.0), "of no weight"),
        ("labels", LabelEvent("a", {"age": "old"}), "refused"),
        ("labels", LabelEvent("d", ROW), "c"),
        ("labels", LabelEvent("e", ROW), "one class too many"),
        ("agent", DecisionEvent({"z": -3.5, "b": "v"}), "decide"),
        ("agent", RewardEvent(UUID(made.body["id"]), 1.0), "reward"),
        ("agent", DecisionEvent({"z": "much"}), "no number"),
        ("agent", DecisionEvent({"z": 0.5, "b": "u"}), "decide again"),
    ]
    return several


@pytest.mark.parametrize("end", [ModelStore.close, ModelStore.abandon])
def test_answers_and_models_are_the_same_after_a_restart(
    tmp_path: Path, end: Callable[[ModelStore], None]
) -> None:
    lives = Lives(tmp_path / "folder")
    requests = _requests(lives)
    answers = [lives.do(*request) for request in requests]
    assert {answer.status for answer in answers} == {200, 422}
    before = lives.digests()
    for _ in range(2):
        lives.again(end)
        assert lives.digests() == before
        assert [lives.do(*request) for request in requests] == answers
        assert lives.digests() == before


def test_an_agent_goes_on_from_a_snapshot_as_if_there_were_none(tmp_path: Path) -> None:
    found = []
    for end in (ModelStore.close, ModelStore.abandon):
        lives = Lives(tmp_path / end.__name__)
        for n in range(20):
            made = lives.do("agent", DecisionEvent({"z": n / 7, "b": "uv"[n % 2]}))
            lives.do("agent", RewardEvent(UUID(made.body["id"]), float(n % 2)))
            lives.again(end)
        found.append(lives.digests())
    assert found[0] == found[1]


def test_a_snapshot_of_another_journal_is_not_taken(tmp_path: Path) -> None:
    found = []
    for name in ("own", "other"):
        lives = Lives(tmp_path / name)
        lives.do("labels", LabelEvent(name, ROW))
        found.append(lives.digests())
        lives.store.close()
    own = tmp_path / "own" / "snapshots"
    names = {path.name for path in own.iterdir()}
    for path in own.iterdir():
        path.unlink()
    shutil.copytree(tmp_path / "other" / "snapshots", own, dirs_exist_ok=True)
    assert {path.name for path in own.iterdir()}.isdisjoint(names)
    store = ModelStore(tmp_path / "own", LIMITS)
    assert [host.state.to_record().digest for host in store.models()] == found[0]
    assert not any(own.iterdir())
    store.abandon()
