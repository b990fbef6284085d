"""Everything that can be asked of a store, in any order, compared with the reference."""

from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from folklearn.service.events import (
    Answer,
    ChangeRequest,
    Config,
    EraseRequest,
    ExpiryEvent,
    LabelEvent,
    LabelsRequest,
    PredictionEvent,
    PredictionsRequest,
    RefusedError,
    ReleaseEvent,
    new_id,
)
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore
from tests.reference import service as reference
from tests.service import lives
from tests.service.ageing import DAY, WorkHere, erase, is_idle

LIMITS = Limits(free_disk=0, replay=1e9, classes=2, keep_days=1.0)
WAIT = 10.0
KEYS = ["a", "b", "c", "d"]
Both = tuple[ChangeRequest | None, str | None, reference.Outcome]
NO_MODEL = 404, 0, 0

labels = st.sampled_from(["no", "yes", "perhaps"])
rows = st.builds(
    lambda x, colour: {"x": x, "colour": colour},
    st.sampled_from([-1.0, 0.25, 3.0]),
    st.sampled_from(["red", "green"]),
)
keys = st.none() | st.sampled_from(KEYS)
asks = st.tuples(st.just("ask"), rows)
with_rows = st.tuples(st.just("row"), rows, labels)
with_ids = st.tuples(st.just("id"), st.integers(0, 9), labels)
items = with_rows | with_ids
ones = st.tuples(st.just("learn"), items, keys)
many = st.tuples(st.just("many"), st.lists(items, min_size=1, max_size=4), keys)
deletions = st.just(("delete",))


class Service(RuleBasedStateMachine):
    """One model, or none, that is asked and told, and a process that comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self._place = lives.scratch()
        self.now = 1_000_000_000_000
        self._open()
        self._stale: ModelHost | None = None
        self.model: reference.Classifier | None = None
        self.ids: list[UUID] = []
        self.due: dict[UUID, int] = {}
        self.colours: dict[Any, str] = {}

    def _open(self) -> None:
        self.store = ModelStore(Path(self._place.name), LIMITS, clock=lambda: self.now)
        self.store.retention.launch = WorkHere

    def teardown(self) -> None:
        self.store.abandon()
        self._place.cleanup()

    @property
    def host(self) -> ModelHost | None:
        return self.store.hosts.get(("main", "labels"))

    @rule(default=st.none() | labels)
    def create(self, default: str | None) -> None:
        config = Config(windows=False, wait=WAIT, default=default)
        if self.model is not None:
            config = self._config
        answer = self.store.create("main", "labels", config)
        assert answer.status == (201 if self.model is None else 200)
        if self.model is None:
            self.model = reference.Classifier(default, LIMITS.classes, windows=False)
            self._config = config
            # An id that nobody has issued, and that is never old.
            self.ids, self.due = [new_id(10 * self.now)], {}
            self._stale = self.host

    @precondition(lambda self: self._stale is not None)
    @rule(wanted=st.lists(asks | ones | many | deletions, min_size=1, max_size=5))
    def write(self, wanted: list[Any]) -> None:
        """Write several commands in one commit."""
        host = self._stale
        assert host is not None
        host.publish()
        pairs = [self._both(host, one) for one in wanted]
        answers = []
        for is_deletion, group in groupby(pairs, lambda pair: pair[0] is None):
            if is_deletion:
                answers += [self._delete(host) for _ in group]
            else:
                answers += self.store.write([Change(host, *change) for *change, _ in group])
        for (*_, expected), (status, body) in zip(pairs, answers, strict=True):
            assert (status, body.get("learned", 0), body.get("already", 0)) == expected

    def _delete(self, host: ModelHost) -> Answer:
        try:
            return self.store.delete(host)
        except RefusedError as refusal:
            return refusal.answer

    def _both(self, host: ModelHost, wanted: Any) -> Both:
        """Return a request, its key, and what the reference says to it."""
        match wanted:
            case "ask", row:
                return self._ask(host, row)
            case "learn", item, key:
                own, other = self._label(item)
                outcome = NO_MODEL if self.model is None else self.model.learn(key, other)
                return own, key, outcome
            case "many", several, key:
                both = [self._label(item) for item in several]
                others = [other for _, other in both]
                outcome = NO_MODEL if self.model is None else self.model.learn_many(key, others)
                return LabelsRequest([own for own, _ in both]), key, outcome
        outcome = NO_MODEL if self.model is None else (200, 0, 0)
        self.model = None
        return None, None, outcome

    def _ask(self, host: ModelHost, row: Any) -> Both:
        seen = host.published.model
        id, p = new_id(self.now), list(seen.predict_proba_one(row).values())
        asked = PredictionEvent(row, p, seen.unseen_probability, host.published.version)
        if self.model is not None:
            self.model.ask(id, row, p, seen.unseen_probability)
            self.ids.append(id)
            self.colours[id] = row["colour"]
            self.due[id] = self.now + round(1000 * WAIT)
        outcome = NO_MODEL if self.model is None else (200, 0, 0)
        return PredictionsRequest([(id, asked)]), None, outcome

    def _label(self, item: Any) -> tuple[LabelEvent, reference.Label]:
        kind, what, label = item
        if kind == "row":
            return LabelEvent(label, what), reference.Label(label, what)
        id = self.ids[what % len(self.ids)]
        return LabelEvent(label, id=id), reference.Label(label, None, id)

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += round(1000 * seconds)
        self.store.expire()
        if self.model is not None:
            for id, due in self.due.items():
                if due <= self.now and id not in self.model.told:
                    self.model.expire(id)

    @rule(days=st.sampled_from([0.4, 1.1]))
    def grow_old(self, days: float) -> None:
        """Let events become older than the policy allows."""
        self.now += round(days * DAY)
        self.wait(0.0)
        last = self.store.journal.last
        self.store.maintain()
        while not is_idle(self.store.retention):
            self.store.maintain()
        host = self.host
        if self.model is None or host is None:
            return
        for entry in self.store.journal.entries(after=last, model=host.number):
            if isinstance(entry.event, ReleaseEvent):
                self.model.model.release_rows()
            else:
                assert isinstance(entry.event, ExpiryEvent)
                for id in entry.event.ids:
                    assert self.due[id] <= self.now
                    self.model.expire(id)
        self._forget(host)

    @precondition(lambda self: self.host is not None)
    @rule(colour=st.sampled_from(["red", "green"]))
    def erase(self, colour: str) -> None:
        """Forget all rows of a colour; what the model learned of them stays."""
        host, model, journal = self.host, self.model, self.store.journal
        assert host is not None
        assert model is not None
        erase(self.store, host, EraseRequest("colour", colour))
        model.model.release_rows()
        for id in model.asked:
            if self.colours[id] == colour:
                model.gone.add(id)
                model.told.setdefault(id, None)
        for entry in journal.entries(model=host.number):
            rows = [
                getattr(one, "row", None) for one in getattr(entry.event, "items", [entry.event])
            ]
            assert not [row for row in rows if row and row["colour"] == colour]
        self._forget(host)
        if (place := model.model.find_category("colour", colour)) is not None:
            model.model.forget_categories([place])

    def _forget(self, host: ModelHost) -> None:
        """Tell the reference which keys and ids nobody knows any longer, or only as removed."""
        assert self.model is not None
        for key in [*self.model.keys]:
            found = self.store.journal.find_key(host.number, key)
            if found is None:
                del self.model.keys[key]
            elif found[1] is None:
                self.model.keys[key] = None, (410, 0, 0)
        for id in self.model.told:
            if self.store.journal.find_waiting(host.number, id) is None:
                self.model.gone.add(id)

    @rule(is_closed=st.booleans())
    def restart(self, is_closed: bool) -> None:
        self.store.close() if is_closed else self.store.abandon()
        self._open()
        if self._stale is not None:
            self._stale = self.host or self._stale

    @precondition(lambda self: self.model is not None)
    @rule()
    def snapshot(self) -> None:
        assert self.host is not None
        self.store.snapshot(self.host).result()

    @invariant()
    def is_the_reference(self) -> None:
        assert (self.host is None) == (self.model is None)
        if self.host is not None and self.model is not None:
            state: Any = self.host.state
            assert state.to_record().digest == self.model.model.to_record().digest
            self.store.write([])  # what waits again is noted with the next commit
            waiting = len(self.model.asked) - len(self.model.told)
            assert self.store.journal.n_waiting(self.host.number) == waiting


def run(n_runs: int, **options: Any) -> None:
    """Try so many sequences of requests."""
    with np.errstate(all="ignore"):
        run_state_machine_as_test(
            Service,
            settings=settings(max_examples=n_runs, stateful_step_count=20, **options),
        )


def test_the_store_is_the_reference_in_any_order() -> None:
    run(50)


def test_an_erased_prediction_is_gone_when_it_is_old_too() -> None:
    """Found at length: it had the time of the last event that was removed."""
    state = Service()
    state.create(default=None)
    state.write(wanted=[("ask", {"x": -1.0, "colour": "red"})])
    state.erase(colour="red")
    state.grow_old(days=1.1)
    state.write(wanted=[("learn", ("id", 1, "no"), None)])
    state.teardown()
