"""Compare the folder of a service with what its clients were told."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from folklearn.service.events import LabelEvent, RewardEvent
from folklearn.service.journal import Journal
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore, replay
from tests.reference import service as reference
from tests.service.clients import ACTIONS, AGENT, AGENT_CONFIG, CONFIG, MODEL, Answer, Request

Done = Sequence[tuple[Request, Answer]]
LIMITS = Limits(free_disk=0, replay=0.004)  # seconds: a few dozen requests, on any machine


def nothing_lost(folder: Path, done: Done) -> None:
    """Check that what was acknowledged is in the journal, and nothing is there twice."""
    keys = keys_of(folder)
    assert not [key for key, n in keys.items() if n > 1], "a key is there twice"
    journal = Journal(folder, read_only=True)
    learned: Counter[Any] = Counter()
    for entry in journal.entries():
        for one in getattr(entry.event, "items", [entry.event]):
            if isinstance(one, LabelEvent | RewardEvent):
                learned[one.id if one.id is not None else one.row["x"]] += 1
    journal.close()
    assert not [what for what, n in learned.items() if n > 1], "learned twice"
    said: dict[str, Answer] = {}
    for request, answer in done:
        if request.key is not None and answer.status == 200:
            assert said.setdefault(request.key, answer) == answer, "another answer"
            assert request.key in keys, f"{request} was acknowledged, and is lost"
        for item in request.body.get("items", [request.body]):
            if "label" in item and "row" in item:
                assert learned[item["row"]["x"]] == 1, f"{item} was acknowledged, and is lost"


def keys_of(folder: Path) -> Counter[str]:
    """Return the keys in the journal."""
    journal = Journal(folder, read_only=True)
    keys = Counter(key for (key,) in journal.db.execute("SELECT key FROM event WHERE key NOTNULL"))
    journal.close()
    return keys


def same_bytes(folder: Path, done: Done | None = None) -> dict[str, str]:
    """Check that recovery gives what a replay from the first event gives; return the digests.

    With everything that was done, the models must be those of the reference too.
    """
    store = ModelStore(folder, LIMITS)
    try:
        found = {}
        for host in store.models():
            digest = host.state.to_record().digest
            replayed = replay(folder, host.number, host.version)
            assert replayed["digest"] == digest
            assert replayed["other_predictions"] == 0
            found[host.row.name] = digest
        if done is not None:
            states: list[Any] = [store.hosts["main", name].state for name in ("labels", "agent")]
            labels, agent = reference_of(done)
            assert states[0].model.to_record().digest == labels.model.to_record().digest
            assert states[1].model.to_record().digest == agent.model.to_record().digest
        return found
    finally:
        store.abandon()


def reference_of(done: Done) -> tuple[reference.Classifier, reference.Agent]:
    """Return the reference, told in order what was acknowledged; it must answer the same."""
    labels, agent = reference.Classifier(**CONFIG), reference.Agent(ACTIONS, AGENT_CONFIG["seed"])
    seen = set()
    for request, answer in sorted(_events(done), key=_place):
        assert answer.status == 200, (request, answer)
        body, said = request.body, answer.body
        if request.path == f"{MODEL}/predict":
            p = [one["probability"] for one in said["probabilities"]]
            thresholds = labels.model.sets.thresholds  # by the version that predicted
            labels.ask(said["id"], body["row"], p, said.get("unseen", 0.0), thresholds)
        elif request.key in seen:
            continue
        elif request.path == f"{MODEL}/learn":
            assert labels.learn(request.key, reference.Label(**body)) == _outcome(answer)
        elif request.path == f"{MODEL}/learn/batch":
            items = [reference.Label(**item) for item in body["items"]]
            assert labels.learn_many(request.key, items) == _outcome(answer)
        elif request.path == f"{AGENT}/decide":
            decision = agent.decide(said["id"], said["event"], body["context"]["x"])
            assert decision == (said["action"], said["propensity"])
        elif request.path == f"{AGENT}/reward":
            agent.reward(body["id"], body["reward"])
        seen.add(request.key)
    return labels, agent


def _events(done: Done) -> list[tuple[Request, Answer]]:
    return [one for one in done if one[0].method == "POST"]


def _place(one: tuple[Request, Answer]) -> tuple[int, bool]:
    """Predictions come after the version that made them: they change nothing."""
    said = one[1].body
    return int(said.get("event", said.get("version", 0))), "event" not in said


def _outcome(answer: Answer) -> reference.Outcome:
    return answer.status, answer.body["learned"], answer.body.get("already", 0)
