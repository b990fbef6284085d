"""A restart is not noticed: the same request has the same answer, and the model the same bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from folklearn.service import commands, events
from folklearn.service.commands import Command, Label
from folklearn.service.events import new_id
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore

ROW: events.Row = {"age": 31, "colour": "red"}
LIMITS = Limits(classes=3, columns=4, free_disk=0)
NOWHERE = UUID(int=0)


class Lives:
    """A folder that is opened, and opened again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = ModelStore(folder, LIMITS)
        agent = events.Config(actions=["a", "b"], context={"z": "number", "b": ["u", "v"]})
        self.store.create("main", "labels", events.Config(windows=False))
        self.store.create("main", "agent", agent)

    def do(self, name: str, command: Command) -> Any:
        """Return the answer to a command."""
        host = self.store.find("main", name)
        assert host is not None
        (answer,) = self.store.write([(host, command)])
        return answer

    def digests(self) -> list[str]:
        """Return what the models are."""
        return [host.state.to_record().digest for host in self.store.models()]

    def again(self, end: Callable[[ModelStore], None]) -> None:
        """End, and begin again."""
        end(self.store)
        self.store = ModelStore(self._folder, LIMITS)


def _requests(lives: Lives) -> list[tuple[str, Command]]:
    """Return one request of every kind of answer."""
    asked = [(new_id(), events.Asked(ROW, [], 1.0, 1)) for _ in range(3)]
    lives.do("labels", commands.Ask(asked))
    first, second, third = (id for id, _ in asked)
    labels = [
        Label("a", ROW, None),
        Label("a", None, first),
        Label("b", None, second),
        Label("c", None, second),  # twice in one request
        Label("a", None, NOWHERE),
        Label("a", {"age": "old"}, None),
        Label("a", {f"x{i}": 1 for i in range(9)}, None),
    ]
    made = lives.do("agent", commands.Decide({"z": 1, "b": "u"}))
    several: list[Command] = [
        commands.Learn(Label("a", None, first), key="by id"),
        commands.LearnMany(labels, key="many"),
        commands.LearnMany(labels[1:3], key="nothing new"),
        commands.Learn(Label({"a": 0.25, "b": 0.75}, None, third, 0.0), key="of no weight"),
        commands.Learn(Label("a", {"age": "old"}, None), key="refused"),
        commands.Learn(Label("d", ROW, None), key="c"),
        commands.Learn(Label("e", ROW, None), key="one class too many"),
    ]
    decisions: list[Command] = [
        commands.Decide({"z": -3.5, "b": "v"}, key="decide"),
        commands.Reward(UUID(made.body["id"]), 1.0, key="reward"),
        commands.Decide({"z": None}, key="no number"),
        commands.Decide({"z": 0.5, "b": "u"}, key="decide again"),
    ]
    return [("labels", one) for one in several] + [("agent", one) for one in decisions]


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
            made = lives.do("agent", commands.Decide({"z": n / 7, "b": "uv"[n % 2]}))
            lives.do("agent", commands.Reward(UUID(made.body["id"]), float(n % 2)))
            lives.again(end)
        found.append(lives.digests())
    assert found[0] == found[1]
