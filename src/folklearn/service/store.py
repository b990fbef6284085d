"""The models of a folder: recovered from the journal, changed by one writer, read by all."""

import fcntl
import itertools
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import msgspec
from threadpoolctl import threadpool_limits

from folklearn import serialization
from folklearn.errors import FolklearnError, StateFileError
from folklearn.serialization import Record
from folklearn.service import events
from folklearn.service.events import Answer, Config, RefusedError
from folklearn.service.hosts import Change, GrowthBudget, Memory, ModelHost, TooEarlyError, prepare
from folklearn.service.journal import Entry, Journal, ModelRow, replace_file, sync_folder
from folklearn.service.limits import Limits
from folklearn.service.retention import Replay, Retention, note_build
from folklearn.service.states import ClassifierState, ModelState, count_agent_bytes, restore_state

log = logging.getLogger("folklearn.service")

_MAX_EXPIRED = 1_000  # events that expire at a time
_N_KEPT_SNAPSHOTS = 2  # of a model
_MARK_PAUSE = 3_600_000  # milliseconds between two marks that come with snapshots
_SNAPSHOT_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.folk")  # model, event, time of the event


class ModelStore:
    """The models of a folder, which only this class changes.

    `hosts` may be read by any thread; methods are for one thread, that of `Writer`. The order in
    which `write` handles a batch of changes: repeated ones are recognised, the others become
    events, one commit makes them durable, they are applied in order, the new state is published,
    and only then are the answers given. The clock's milliseconds are written into the journal.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.folder, self.limits, self.clock = folder, limits or Limits(), clock
        self._snapshots, self.memory = folder / "snapshots", Memory(self.limits.memory)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):
            sync_folder(folder.absolute().parent)  # the folder's own name must last too
        self.hosts, self.n_replayed = self.memory.hosts, 0
        self._growth = GrowthBudget(self.limits.growth)
        self._snapshot_pool = ThreadPoolExecutor(1, "folklearn-snapshot")
        self._snapshot_work: Future[None] | None = None  # the last
        with ExitStack() as resources:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            resources.callback(os.close, lock)
            resources.enter_context(self._snapshot_pool)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StateFileError(f"{folder} is served by another process") from None
            # Sums over several threads could round otherwise, and replay give other bytes.
            resources.enter_context(threadpool_limits(1, user_api="blas"))
            self.journal = resources.enter_context(closing(Journal(folder)))
            with self.journal.name_damaged_file():
                self._recover()
            self.retention = Retention(self)
            resources.callback(self.retention.stop)
            self._resources = resources.pop_all()

    def close(self) -> None:
        """Write snapshots of what has changed, and release the folder."""
        for host in list(self.hosts.values()):
            if host.replay_seconds and not host.why_held:
                self.snapshot(host).result()
        self.journal.checkpoint()
        self.abandon()

    def abandon(self) -> None:
        self._resources.close()

    def models(self, tenant: str | None = None) -> list[ModelHost]:
        hosts = sorted(self.hosts.items(), key=lambda item: item[0])
        return [host for (owner, _), host in hosts if tenant in (None, owner)]

    def _recover(self) -> None:
        journal = self.journal
        known = "SELECT count(*) FROM event JOIN model ON model = number WHERE last IS NULL AND "
        known += "number = ? AND seq = ? AND time = ? AND "
        known += "seq > coalesce((SELECT seq FROM base WHERE base.model = number), 0)"
        for path in self._snapshots.glob("*"):
            parts = _SNAPSHOT_NAME.fullmatch(path.name)
            # Else half written by a process that died, of events that the journal has lost, or from
            # before a base: something may have been erased since.
            if parts is None or not journal.find(known, *map(int, parts.groups())):
                path.unlink()
        for path in self.folder.glob("*base-*.folk"):
            path.unlink()
        for row in journal.models():
            ModelHost(row, *self._restore(row), self.memory)
        by_number = {host.number: host for host in self.hosts.values()}
        first = min((host.version for host in by_number.values()), default=0)
        for entry in journal.entries(after=first):
            host = by_number.get(entry.model)
            if host is None or host.why_held or entry.seq <= host.version:
                continue
            sys.audit("folklearn.in_replay")
            if host.has_room_for(entry, journal.entry):
                self._apply(host, entry)
                self.n_replayed += 1
            else:  # or memory would end, at every start: what there is room for can be read
                host.hold()
                log.error("%s", host.why_held)
        note_build(journal, by_number.values())
        for host in by_number.values():
            host.publish()
            host.measure()
        if not self.memory.has_room(0):
            log.error("%s", self.memory.in_words(None))

    def _restore(
        self, row: ModelRow, below: int | None = None
    ) -> tuple[events.CreateEvent, ModelState, Entry]:
        """Return first event, state and last event from the newest good snapshot below an event."""
        created, base = self.journal.begin(row.number)
        for seq, path in _list_snapshots(self._snapshots, row.number):
            if below is not None and seq >= below:
                continue
            with suppress(OSError, FolklearnError):
                n_bytes = round(1.5 * path.stat().st_size)  # and published
                if not self.memory.has_room(n_bytes, self.memory.START_FACTOR):
                    log.warning("snapshot %s is too large for --memory", path.name)
                    continue
                state = restore_state(created, serialization.read(path))
                return created, state, self.journal.entry(seq)
            log.warning("snapshot %s cannot be used: the journal is replayed", path.name)
        state = restore_state(created, base.record)
        return created, state, Entry(base.seq, row.number, base.time, None)

    def write(self, changes: Sequence[Change]) -> list[Answer]:
        """Do changes in order; those that depend on earlier ones wait for a second commit."""
        journal, memory, answers = self.journal, self.memory, list[Answer]()
        while True:
            now, prepared = self.clock(), list[tuple[ModelHost, Entry | Answer]]()
            is_full = memory.n_bytes > memory.limit
            with journal.transaction():
                for change in changes[len(answers) :]:
                    host, row = change.host, change.host.row
                    try:
                        if self.hosts.get((row.tenant, row.name)) is not host:
                            raise RefusedError(404, f"the model {row.name} was deleted")
                        if host.why_held:
                            limit = f"memory={memory.limit}"
                            raise RefusedError(503, host.why_held, retry_after=60, limit=limit)
                        if is_full:
                            memory.check(row.tenant)
                        prepared.append((host, prepare(change, journal, now, self._growth)))
                    except RefusedError as refusal:
                        prepared.append((host, refusal.answer))
                    except TooEarlyError:
                        break
            sys.audit("folklearn.before_apply")
            for host, result in prepared:
                answers.append(self._apply(host, result) if isinstance(result, Entry) else result)
            for host in dict.fromkeys(host for host, _ in prepared):
                host.n_coming, host.n_pending = host.n_coming + host.n_pending, 0
                if time.monotonic() >= host.may_publish:
                    host.publish()
            sys.audit("folklearn.before_answer")
            if len(answers) == len(changes):
                return answers

    def _apply(self, host: ModelHost, entry: Entry) -> Answer:
        began = time.perf_counter()
        if entry.skipped is not None:
            answer = _skipped_answer(entry.skipped)
        else:
            try:
                answer = host.state.apply(entry, self.journal.entry)
            except FolklearnError as error:
                answer = RefusedError.of(error).answer
            except (apsw.Error, MemoryError):
                raise  # not caused by the event: it is applied after a restart
            except Exception as error:
                # The state may be half changed: the event is left out of every replay.
                answer = self._skip(host, entry, error)
        host.version, host.changed = entry.seq, entry.time
        host.replay_seconds += time.perf_counter() - began
        if not isinstance(answer, events.DerivedAnswer):
            self._note_outcome(host, entry, answer)
        return answer

    def _note_outcome(self, host: ModelHost, entry: Entry, answer: Answer) -> None:
        if entry.key is not None:
            self.journal.answers_to_add[entry.seq] = msgspec.json.encode(answer)
        if isinstance(host.state, ClassifierState):
            refused = {item["item"] for item in answer.body.get("refused", ())}
            for index, label in enumerate(host.state.labels_in(entry.event)):
                is_refused = answer.status != 200 or index in refused
                if is_refused and label is not None and label.id is not None:
                    self.journal.refused_ids[label.id.bytes] = entry.seq

    def _skip(self, host: ModelHost, entry: Entry, error: Exception) -> Answer:
        log.exception("event %s of %s is left out", entry.seq, host.row.name, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        with self.journal.transaction():
            skip = "UPDATE event SET skipped = ? WHERE seq = ?"
            self.journal.db.execute(skip, (reason, entry.seq))
        _, host.state, last = self._restore(host.row, below=entry.seq)
        for earlier in self.journal.entries(after=last.seq, upto=entry.seq - 1, model=host.number):
            self._apply(host, earlier)
        return _skipped_answer(reason)

    def create(self, tenant: str, name: str, config: Config, file: bytes | None = None) -> Answer:
        existing, limits = self.hosts.get((tenant, name)), self.limits
        if existing is not None:
            if existing.config == config and file is None:
                return Answer(200, {"name": name, "event": existing.row.first})
            raise RefusedError(
                409, f"there is a model {name} already, of another configuration: delete it first"
            )
        if len(self.models(tenant)) >= limits.models:
            sentence = f"{tenant} has {limits.models} models, and may have no more"
            raise RefusedError(422, sentence, limit=f"models={limits.models}")
        n_bytes = count_agent_bytes(config, len(config.actions))
        if n_bytes > limits.learner:
            raise RefusedError(
                422,
                f"{len(config.actions):,} actions with this context are too many: an agent may "
                f"have {limits.learner:,} bytes of weights, and this could come to {n_bytes:,}",
                limit=f"learner={limits.learner}",
            )
        self.memory.check(tenant, n_bytes + 2 * len(file or b""))
        size = events.ModelSize(*(getattr(limits, field) for field in events.ModelSize._fields))
        event = events.CreateEvent(config, size, file)
        try:
            state = restore_state(event)
        except (FolklearnError, TypeError) as error:
            raise RefusedError(422, str(error), limit=getattr(error, "limit", "")) from None
        with self.journal.transaction():
            number = self.journal.add_model(tenant, name)
            entry = self.journal.add(number, self.clock(), event)
        row = ModelRow(number, tenant, name, entry.seq)
        host = ModelHost(row, event, state, entry, self.memory)
        self.memory.announce(host)
        return Answer(201, {"name": name, "event": entry.seq})

    def delete(self, host: ModelHost) -> Answer:
        row = host.row
        if self.hosts.get((row.tenant, row.name)) is not host:
            raise RefusedError(404, f"the model {row.name} was deleted")
        with self.journal.transaction():
            entry = self.journal.add(row.number, self.clock(), events.DeleteEvent())
        del self.hosts[row.tenant, row.name]
        self.memory.announce(host)
        return Answer(200, {"event": entry.seq})

    def maintain(self) -> None:
        """Do a little of what time asks for."""
        self.expire()
        self.retention.maintain()

    def expire(self) -> None:
        self.expire_ids(self.journal.waiting_upto("due", self.clock(), _MAX_EXPIRED))

    def expire_ids(self, ids: Sequence[tuple[int, UUID]]) -> None:
        late: dict[int, list[UUID]] = {}
        for number, id in ids:
            late.setdefault(number, []).append(id)
        hosts = [host for host in self.models() if host.number in late]
        if hosts:
            self.write([Change(host, events.ExpiryEvent(late[host.number])) for host in hosts])

    def snapshot(self, host: ModelHost) -> "Future[None]":
        """Write the state of a model into a file, in another thread."""
        with self.journal.transaction():  # what became of its events must be durable before
            self.retention.mark(host, pause=_MARK_PAUSE)
        # By the time in its name it is not taken for one of another journal.
        path = self._snapshots / f"{host.number}-{host.version}-{host.changed}.folk"
        host.replay_seconds = 0.0
        record = host.state.to_record()
        self._snapshot_work = self._snapshot_pool.submit(_write_snapshot, path, host, record)
        return self._snapshot_work

    @property
    def is_writing_snapshot(self) -> bool:
        return self._snapshot_work is not None and not self._snapshot_work.done()

    def remove_snapshots(self, number: int, upto: int) -> None:
        for seq, path in _list_snapshots(self._snapshots, number):
            if seq <= upto:
                path.unlink(missing_ok=True)

    @property
    def disk_refusal(self) -> RefusedError | None:
        if shutil.disk_usage(self.folder).free >= self.limits.free_disk:
            return None
        sentence = "the disk is nearly full: nothing can be learned"
        limit = f"free_disk={self.limits.free_disk}"
        return RefusedError(503, sentence, retry_after=30, limit=limit)


def _write_snapshot(path: Path, host: ModelHost, record: Record) -> None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, serialization.as_bytes(record))
        for _, old in _list_snapshots(path.parent, host.number)[_N_KEPT_SNAPSHOTS:]:
            old.unlink(missing_ok=True)
        host.lacks_snapshot = False
    except Exception as error:  # no harm to a cache: the journal has everything
        host.lacks_snapshot = True
        log.warning("the snapshot %s could not be written: %s", path.name, error)


def _list_snapshots(folder: Path, number: int) -> list[tuple[int, Path]]:
    """Return the snapshots of a model by their last event, the newest first."""
    paths = folder.glob(f"{number}-*-*.folk")
    return sorted(((int(path.name.split("-")[1]), path) for path in paths), reverse=True)


def _skipped_answer(reason: str) -> Answer:
    return RefusedError(422, f"it cannot be learned, and is left out: {reason}").answer


def replay(folder: Path, number: int, version: int) -> dict[str, Any]:
    """Replay a model from its base; return its digest, and how many predictions came out the same.

    Those of versions before the base cannot be compared, and are counted.
    """
    predictions: dict[int, list[events.PredictionEvent]] = {}  # by the version that they used
    n_predictions = n_different = 0
    with closing(Journal(folder, read_only=True)) as journal, threadpool_limits(1, user_api="blas"):
        journal.db.execute("BEGIN")  # what is removed meanwhile is there until the end
        replay: Any = Replay(journal, number)
        begin, n_events = replay.version, int(not replay.has_base)
        if begin > version:
            raise StateFileError(f"event {version} cannot be replayed to, only those from {begin}")
        for entry in journal.entries(upto=version, model=number):
            if isinstance(entry.event, events.PredictionEvent):
                predictions.setdefault(entry.event.version, []).append(entry.event)
        n_earlier = sum(len(some) for used, some in predictions.items() if used < begin)
        for seq in itertools.chain([begin], (entry.seq for entry in replay.entries(version))):
            n_events += seq > begin
            for event in predictions.get(seq, ()):
                n_predictions += 1
                found = replay.state.model.predict_proba_one(event.row)
                n_different += list(found.values()) != event.p
        digest = replay.state.to_record().digest
    return {
        "digest": digest,
        "after": begin,
        "events": n_events,
        "predictions": n_predictions,
        "earlier_predictions": n_earlier,
        "other_predictions": n_different,
    }
