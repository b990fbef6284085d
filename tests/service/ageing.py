"""A folder that grows old: days pass on a clock that the test moves, and people are forgotten."""

import gzip
import json
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from folklearn.errors import FolklearnError
from folklearn.service import erasure, journal
from folklearn.service.archive import FOLDER, Archive
from folklearn.service.events import (
    Answer,
    Config,
    CreateEvent,
    DecisionEvent,
    EraseRequest,
    LabelEvent,
    LabelsRequest,
    PredictionEvent,
    PredictionsRequest,
    RemovedEvent,
    RewardEvent,
    Row,
    new_id,
)
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.journal import Entry, Journal
from folklearn.service.limits import Limits
from folklearn.service.retention import Retention, Work
from folklearn.service.states import restore_state
from folklearn.service.store import ModelStore, replay
from tests.service import lives

DAY = 86_400_000
BEGIN = 1_700_000_000_000
CONFIG = Config(windows=False, classes=["no", "yes"])
AGENT = Config(actions=["left", "right"], context={"x": "number"}, seed=3)
CUSTOMERS = 8


def customer(number: int) -> str:
    """Return what stands in rows of a person and nowhere else."""
    return f"customer-{number:03}"


class WorkHere(Work):
    """A task that this process does at once, where another one would cost more."""

    def __init__(self, do: Callable[..., Any], folder: Path, **task: Any) -> None:
        self._result = msgspec.to_builtins(do(folder, **task))

    is_done = True

    def result(self) -> Any:
        return self._result

    def stop(self) -> None:
        pass


class Ageing:
    """A store whose clock is moved, with requests that are repeated until they are answered.

    What is sent, and what was answered, is noted in a file beside the folder, so that another
    process can go on after this one was killed.
    """

    def __init__(self, folder: Path, seed: int = 0, **limits: Any) -> None:
        self.folder, self._record = folder, folder.with_suffix(".record")
        self.now = BEGIN
        self.limits = Limits(free_disk=0, **limits)
        self.sent: dict[str, Any] = {}
        self.done: dict[str, Answer] = {}
        self.erased: dict[int, int] = {}  # people, and how many requests were sent before
        self.erasing: set[int] = set()  # those of whom nobody knows
        self.asked: list[tuple[UUID, int]] = []
        self._read_record()
        self.random = Random(f"{seed} {len(self.sent)}")  # another one in every life
        self.open()
        self.store.create("main", "labels", CONFIG)
        self.store.create("main", "agent", AGENT)

    def _read_record(self) -> None:
        for line in self._record.read_text().splitlines() if self._record.exists() else ():
            try:
                kind, key, content = json.loads(line)
            except ValueError:
                continue  # the process died here
            if kind == "sent":
                self.sent[key] = content
            elif kind == "done":
                self.done[key] = Answer(*content)
            elif kind == "erased":
                self.erased[int(key)] = content
                self.erasing.discard(int(key))
            elif kind == "erasing":
                self.erasing.add(int(key))
            self.now = content if kind == "now" else self.now

    def _note(self, kind: str, key: Any, content: Any) -> None:
        with self._record.open("a") as file:
            print(json.dumps([kind, key, content]), file=file, flush=True)

    def open(self) -> None:
        """Open the folder."""
        self.store = ModelStore(self.folder, self.limits, clock=lambda: self.now)
        self.store.retention.launch = WorkHere

    def again(self, *, is_closed: bool = False) -> None:
        """End, and begin again."""
        self.store.close() if is_closed else self.store.abandon()
        self.open()

    @property
    def labels(self) -> ModelHost:
        """The classifier."""
        return self.store.hosts["main", "labels"]

    @property
    def agent(self) -> ModelHost:
        """The agent."""
        return self.store.hosts["main", "agent"]

    def digests(self) -> list[str]:
        """Return what the models are."""
        return [host.state.to_record().digest for host in self.store.models()]

    def row(self, who: int | None = None) -> tuple[Row, int]:
        """Return a row of somebody, and whose it is."""
        who = self.random.randrange(CUSTOMERS) if who is None else who
        row: Row = {"x": self.random.gauss(), "customer": customer(who), "age": 20 + who}
        return row | {"note": f"written by {customer(who)} himself"}, who

    def key(self) -> str:
        """Return a key as clients make them, by the clock."""
        return str(new_id(self.now))

    def send(self, items: list[tuple[str, Row]], key: str | None = None) -> Answer:
        """Send labels, noting that and what came of it."""
        key = key or self.key()
        self.sent[key] = items
        self._note("sent", key, items)
        (answer,) = self.store.write([Change(self.labels, _request(items), key)])
        self.done[key] = answer
        self._note("done", key, answer)
        return answer

    def repeat(self, key: str) -> Answer:
        """Send a request again."""
        (answer,) = self.store.write([Change(self.labels, _request(self.sent[key]), key)])
        return answer

    def ask(self, n: int) -> None:
        """Remember predictions, labels of which may come later."""
        some = [(new_id(self.now), *self.row()) for _ in range(n)]
        model, version = self.labels.published.model, self.labels.published.version
        asked = []
        for id, row, _ in some:
            p = list(model.predict_proba_one(row).values())
            asked.append((id, PredictionEvent(row, p, model.unseen_probability, version)))
        self.store.write([Change(self.labels, PredictionsRequest(asked))])
        self.asked += [(id, who) for id, _, who in some]

    def tell(self, index: int) -> Answer:
        """Tell the label of a prediction."""
        id, _ = self.asked.pop(index)
        return self.store.write([Change(self.labels, LabelEvent("yes", id=id))])[0]

    def day(self, n_batches: int = 3) -> None:
        """Let a day pass."""
        for key in self.sent.keys() - self.done.keys():  # of a life before
            self.send(self.sent[key], key)
        for _ in range(n_batches):
            self.now += DAY // n_batches
            self.send([(self.random.choice(("no", "yes")), self.row()[0]) for _ in range(4)])
            self.labels.publish()
            self.ask(2)
            while len(self.asked) > 9:
                self.tell(self.random.randrange(9))
            (made,) = self.store.write(
                [Change(self.agent, DecisionEvent({"x": self.random.gauss()}))]
            )
            if self.random.random() < 0.5:
                reward = RewardEvent(UUID(made.body["id"]), self.random.random())
                self.store.write([Change(self.agent, reward)])
            self.store.maintain()
        self.settle()
        self._note("now", "", self.now)

    def settle(self) -> None:
        """Let maintenance do everything that it has to do."""
        self.store.maintain()
        while not is_idle(self.store.retention):
            self.store.maintain()

    def erase(self, who: int, **options: Any) -> Answer:
        """Forget somebody, as the route does."""
        request = EraseRequest("customer", customer(who), **options)
        self._note("erasing", who, None)
        answer = erase(self.store, self.labels, request)
        self.erased[who] = len(self.sent)
        self._note("erased", who, len(self.sent))
        self.erasing.discard(who)
        return answer


def is_idle(retention: Retention) -> bool:
    """Tell whether nothing is to be done before the next round."""
    is_idle = retention._work is None and not retention._to_mark and not retention._is_begun
    is_idle = is_idle and retention._removed_upto is None and not retention._expired_upto
    return is_idle and not retention._is_due()


def erase(store: ModelStore, host: ModelHost, request: EraseRequest) -> Answer:
    """Erase, and wait until files are clean."""
    work = erasure.begin(store, host, request)
    answer = erasure.complete(store, host, request, work.result(), is_last=True)
    store.retention.is_erasing = False
    assert answer is not None
    while not store.retention.clean():
        pass
    return answer


def _request(items: list[tuple[str, Row]]) -> LabelsRequest:
    return LabelsRequest([LabelEvent(label, row) for label, row in items])


# What is checked.


def all_events(folder: Path) -> dict[int, Entry]:
    """Return the events of archives and journal by number; none may be in both."""
    found: dict[int, Entry] = {}
    for path in sorted((folder / FOLDER).glob("*")):
        archive = Archive(path)
        for one in archive:
            assert one.seq not in found, f"event {one.seq} is in two archives"
            number = archive.header["number"]
            found[one.seq] = Entry(one.seq, number, one.time, one.event, one.id, None, one.skipped)
    own = Journal(folder, read_only=True)
    for entry in own.entries():
        if not isinstance(entry.event, RemovedEvent):
            assert entry.seq not in found, f"event {entry.seq} is in archive and journal"
            found[entry.seq] = entry
    own.close()
    return dict(sorted(found.items()))


def fold(entries: dict[int, Entry], number: int) -> str:
    """Return the digest of a model from all its events, without any base."""
    by_id = {entry.id: entry for entry in entries.values() if entry.id is not None}
    state: Any = None
    for entry in entries.values():
        if entry.model == number and isinstance(entry.event, CreateEvent):
            state = restore_state(entry.event)
        elif entry.model == number and entry.skipped is None:
            with suppress(FolklearnError):  # refused again
                state.apply(entry, by_id.__getitem__)
    digest: str = state.to_record().digest
    return digest


def check(ageing: Ageing) -> None:
    """Check that nothing is lost, nothing is there twice, and that a replay gives the states."""
    store = ageing.store
    for host in store.models():
        replayed = replay(ageing.folder, host.number, host.version)
        assert replayed["digest"] == host.state.to_record().digest
        assert replayed["other_predictions"] == 0
    learned: Counter[float] = Counter()
    for entry in all_events(ageing.folder).values():
        for one in getattr(entry.event, "items", [entry.event]):
            if isinstance(one, LabelEvent) and one.row is not None:
                learned[one.row["x"]] += 1  # type: ignore[index]
    assert all(n == 1 for n in learned.values()), "learned twice"
    limits = ageing.limits
    if limits.archive or (limits.keep_days, limits.keep_bytes) == (None, None):
        for n, (key, items) in enumerate(ageing.sent.items()):
            for _, row in items if key in ageing.done else ():
                who = int(str(row["customer"])[-3:])
                if n >= ageing.erased.get(who, 0):
                    assert learned[row["x"]] == 1, f"{row} was acknowledged, and is lost"


def traces(folder: Path, needles: list[bytes]) -> dict[str, int]:
    """Count needles in every file of a folder, archives unpacked."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            for needle in needles:
                found[path.name] += content.count(needle)
    return {name: n for name, n in found.items() if n}


def needles_of(ageing: Ageing, who: int) -> list[bytes]:
    """Return what only rows of a person have, as text and as numbers in every order of bytes."""
    needles = [customer(who).encode()]
    for items in list(ageing.sent.values()):
        for _, row in items:
            if row["customer"] == customer(who):
                x = float(row["x"])  # type: ignore[arg-type]
                needles += [struct.pack("<d", x), struct.pack(">d", x), repr(x).encode()]
    return needles


def live(folder: Path, die_at: str, seed: int, n_days: int, limits: dict[str, Any]) -> None:
    """Let days pass, in a process that dies at a failpoint."""
    lives._quietly(folder)
    journal._MAX_WAL_BYTES = lives.EARLY_CHECKPOINT
    lives.die_at_failpoint(die_at)
    ageing = Ageing(folder, seed, **limits)
    for n in range(n_days):
        ageing.day()
        for host in ageing.store.models():
            ageing.store.snapshot(host).result()
        if n % 3 == 2:
            ageing.erase(ageing.random.randrange(CUSTOMERS))
