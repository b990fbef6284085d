"""The models of a folder: recovered from the journal, changed by one writer, read by all."""

import fcntl
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import UUID

import apsw
import msgspec
from threadpoolctl import threadpool_limits

from folklearn.errors import FolklearnError, StateFileError
from folklearn.service import journal as files
from folklearn.service.changes import (
    Change,
    Prepared,
    Repeat,
    TooEarlyError,
    begin_state,
    count_agent_numbers,
    new_create_event,
    prepare,
)
from folklearn.service.events import (
    Answer,
    Config,
    CreateEvent,
    DeleteEvent,
    DerivedAnswer,
    ExpiryEvent,
    LabelEvent,
    LabelsEvent,
    RefusedError,
)
from folklearn.service.journal import Entry, Journal, ModelRow, SnapshotRow
from folklearn.service.limits import Limits
from folklearn.service.model_host import START_FACTOR, Memory, ModelHost
from folklearn.service.states import ModelState, labels_answer, restore_state

log = logging.getLogger("folklearn.service")

_MAX_EXPIRED = 1_000  # events that expire at a time


class ModelStore:
    """The models of a folder, which only this class changes.

    `hosts` may be read by any thread; methods are for one thread, that of `Writer`. The order in
    which `write` handles a batch of changes: repeated ones are recognised, the others become
    events, one commit makes them durable, they are applied in order, the new state is published,
    and only then are the answers given.

    Parameters
    ----------
    folder : created if it does not exist.
    limits : see `Limits`.
    clock : returns milliseconds, which are written into the journal.

    Attributes
    ----------
    hosts : models by tenant and name.
    n_replayed : events replayed at the start.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.folder, self.limits, self.clock = folder, limits or Limits(), clock
        self.memory = Memory(self.limits.memory)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):
            files.sync_folder(folder.absolute().parent)  # the folder's own name must last too
        self.hosts: dict[tuple[str, str], ModelHost] = {}
        self.n_replayed = 0
        self._resources = ExitStack()
        with self._resources:
            self._resources.callback(os.close, _lock_folder(folder))
            # Sums over several threads could round otherwise, and replay give other bytes.
            self._resources.enter_context(threadpool_limits(1, user_api="blas"))
            self.journal = Journal(folder)
            self._resources.callback(self.journal.close)
            with files.name_damaged_file(folder):
                self._recover()
            self._resources = self._resources.pop_all()  # until it is abandoned

    def close(self) -> None:
        """Write snapshots of what has changed, and release the folder."""
        for host in list(self.hosts.values()):
            if host.n_since_snapshot and not host.why_held:
                with suppress(OSError):  # a cache: the journal has everything
                    self.snapshot(host)
        self.journal.checkpoint()
        self.abandon()

    def abandon(self) -> None:
        """Release the folder as it is."""
        self._resources.close()

    def models(self, tenant: str | None = None) -> list[ModelHost]:
        """Return the models of a tenant, or of all, by name."""
        hosts = sorted(self.hosts.items(), key=lambda item: item[0])
        return [host for (owner, _), host in hosts if tenant in (None, owner)]

    # Recovery.

    def _recover(self) -> None:
        journal = self.journal
        self._skipped = journal.skipped_events()
        kept_files = set()
        for row in journal.models():
            kept_files |= {snapshot.file for snapshot in journal.snapshots(row.number)}
            self._add_host(row, *self._restore(row))
        for path in (self.folder / files.SNAPSHOT_FOLDER).glob("*"):
            if path.name not in kept_files:  # half written by a process that died
                path.unlink()
        by_number = {host.number: host for host in self.hosts.values()}
        first = min((host.version for host in by_number.values()), default=0)
        for entry in journal.entries(after=first):
            host = by_number.get(entry.model)
            if host is None or host.why_held or entry.seq <= host.version:
                continue
            sys.audit("folklearn.in_replay")
            if host.has_room_for(entry, journal.entry_of):
                self._apply(host, entry)
                self.n_replayed += 1
            else:  # or memory would end, at every start: what there is room for can be read
                host.hold()
                log.error("%s", host.why_held)
        journal.begin()
        journal.add_opened(self.clock())
        journal.commit()
        for host in by_number.values():
            host.publish()
            host.measure()
        if not self.memory.has_room(0):
            log.error("%s", self.memory.in_words(None))

    def _restore(
        self, row: ModelRow, below: int | None = None
    ) -> tuple[CreateEvent, ModelState, Entry]:
        """Return first event, state and last event of a model from its newest good snapshot.

        With `below`, from the newest good one before that event.
        """
        first = self.journal.entry(row.first)
        for snapshot in self.journal.snapshots(row.number):
            if below is not None and snapshot.seq >= below:
                continue
            n_bytes = round(1.5 * files.snapshot_size(self.folder, snapshot))  # and published
            if not self.memory.has_room(n_bytes, START_FACTOR):
                log.warning("snapshot %s is too large for --memory", snapshot.file)
                continue
            with suppress(OSError, FolklearnError):
                record = files.read_snapshot(self.folder, snapshot)
                state = restore_state(first.event, record)
                return first.event, state, self.journal.entry(snapshot.seq)
            log.warning("snapshot %s cannot be used: the journal is replayed", snapshot.file)
        return first.event, restore_state(first.event), first

    def _add_host(
        self, row: ModelRow, created: CreateEvent, state: ModelState, last: Entry
    ) -> None:
        self.hosts[row.tenant, row.name] = ModelHost(row, created, state, last, self.memory)

    # Changes.

    def write(self, changes: Sequence[Change]) -> list[Answer]:
        """Do changes in order; an answer is given only for what is durable and applied.

        Those that depend on the outcome of earlier ones wait for a second commit.
        """
        journal, answers = self.journal, list[Answer]()
        while True:
            now, prepared = self.clock(), list[tuple[ModelHost, Prepared]]()
            deleted = set()
            journal.begin()
            for change in changes[len(answers) :]:
                host, is_deletion = change.host, isinstance(change.request, DeleteEvent)
                row = host.row
                try:
                    if host in deleted or self.hosts.get((row.tenant, row.name)) is not host:
                        raise RefusedError(404, f"the model {row.name} was deleted")
                    if not is_deletion:
                        self.memory.check(host)
                    prepared.append((host, prepare(change, journal, now)))
                except RefusedError as refusal:
                    prepared.append((host, refusal.answer))
                except TooEarlyError:
                    break
                if is_deletion:
                    deleted.add(host)
            journal.commit()
            sys.audit("folklearn.before_apply")
            for host, result in prepared:
                if isinstance(result, Entry):
                    answers.append(self._apply(host, result))
                else:
                    answers.append(
                        self._repeat_answer(result.seq) if isinstance(result, Repeat) else result
                    )
            for host in dict.fromkeys(host for host, _ in prepared):
                host.n_coming, host.n_pending = host.n_coming + host.n_pending, 0
                if time.monotonic() >= host.may_publish:
                    host.publish()
            sys.audit("folklearn.before_answer")
            if len(answers) == len(changes):
                return answers

    def _apply(self, host: ModelHost, entry: Entry) -> Answer:
        """Apply an event to the state of its model, or note that it cannot be."""
        began = time.perf_counter()
        if entry.seq in self._skipped:
            answer = _skipped_answer(self._skipped[entry.seq])
        else:
            try:
                answer = host.state.apply(entry, self.journal.entry_of)
            except FolklearnError as error:
                answer = RefusedError(422, str(error)).answer
            except (apsw.Error, MemoryError):
                raise  # not caused by the event: it is applied after a restart
            except Exception as error:
                # The state may be half changed: the event is left out of every replay.
                answer = self._skip(host, entry, error)
        host.version, host.changed = entry.seq, entry.time
        host.replay_seconds += time.perf_counter() - began
        host.n_since_snapshot += 1
        if not isinstance(answer, DerivedAnswer):
            self._note_outcome(host, entry, answer)
        return answer

    def _note_outcome(self, host: ModelHost, entry: Entry, answer: Answer) -> None:
        """Keep what does not follow from an event for the next commit; forget a deleted model."""
        if entry.has_key:
            self.journal.answers_to_add[entry.seq] = msgspec.json.encode(answer)
        match entry.event:
            case LabelEvent(id=UUID() as id) if answer.status != 200:
                self.journal.refused_ids[id] = entry.seq
            case LabelsEvent(items=items, indices=indices):
                refused = {item["item"] for item in answer.body.get("refused", ())}
                for index, item in zip(indices or range(len(items)), items, strict=True):
                    if item.id is not None and (answer.status != 200 or index in refused):
                        self.journal.refused_ids[item.id] = entry.seq
            case DeleteEvent():
                del self.hosts[host.row.tenant, host.row.name]
                self.memory.remove(host)

    def _skip(self, host: ModelHost, entry: Entry, error: Exception) -> Answer:
        """Leave out an event that fails, and restore the state before it."""
        log.exception("event %s of %s is left out", entry.seq, host.row.name, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        self._skipped[entry.seq] = reason
        self.journal.begin()
        self.journal.add_skipped(entry.seq, reason)
        self.journal.commit()
        _, host.state, last = self._restore(host.row, below=entry.seq)
        for earlier in self.journal.entries(after=last.seq, upto=entry.seq - 1, model=host.number):
            self._apply(host, earlier)
        return _skipped_answer(reason)

    def _repeat_answer(self, seq: int) -> Answer:
        """Return the answer that was given to an event before."""
        content = self.journal.answer(seq)
        if content is not None:
            return Answer(*msgspec.json.decode(content))
        event = self.journal.entry(seq).event
        if isinstance(event, LabelsEvent):
            return labels_answer(seq, event)
        return Answer(200, {"event": seq, "learned": 1})

    def create(self, tenant: str, name: str, config: Config, file: bytes | None = None) -> Answer:
        """Create a model; one of the same name and configuration is the same model."""
        existing = self.hosts.get((tenant, name))
        if existing is not None:
            if existing.config == config and file is None:
                return Answer(200, {"name": name, "event": existing.row.first})
            raise RefusedError(
                409, f"there is a model {name} already, of another configuration: delete it first"
            )
        if len(self.models(tenant)) >= self.limits.models:
            raise RefusedError(
                422, f"{tenant} has {self.limits.models} models, and may have no more"
            )
        event = new_create_event(config, self.limits, file)
        n_bytes = 8 * count_agent_numbers(config) + 2 * len(file or b"")
        if not self.memory.has_room(n_bytes):
            raise RefusedError(503, self.memory.in_words(tenant, n_bytes), retry_after=60)
        state = begin_state(event)
        journal = self.journal
        journal.begin()
        number = journal.add_model(tenant, name)
        entry = journal.add(number, self.clock(), event)
        journal.commit()
        row = ModelRow(number, tenant, name, entry.seq)
        self._add_host(row, event, state, entry)
        return Answer(201, {"name": name, "event": entry.seq})

    # Maintenance.

    def expire(self) -> None:
        """Stop waiting for labels and rewards that are too late."""
        late: dict[int, list[UUID]] = {}
        for number, id in self.journal.due(self.clock(), _MAX_EXPIRED):
            late.setdefault(number, []).append(id)
        changes = [
            Change(host, ExpiryEvent(late[host.number]))
            for host in self.models()
            if host.number in late
        ]
        if changes:
            self.write(changes)

    def snapshot(self, host: ModelHost) -> None:
        """Write the state of a model into a file, and note it in the journal."""
        record = host.state.to_record()
        row = files.write_snapshot(self.folder, host.number, host.version, record)
        host.reset_replay()
        self.note_snapshot(row)

    def note_snapshot(self, row: SnapshotRow) -> None:
        """Note in the journal a snapshot file that is durable."""
        self.journal.begin()
        old = self.journal.add_snapshot(row)
        self.journal.commit()
        files.remove_snapshots(self.folder, old)

    def check_disk(self) -> None:
        """Raise while the disk is nearly full."""
        if shutil.disk_usage(self.folder).free < self.limits.free_disk:
            raise RefusedError(
                503, "the disk is nearly full: nothing can be learned", retry_after=30
            )

    def check_memory(self) -> None:
        """Raise while models take more memory than they may."""
        if not self.memory.has_room(0):
            raise RefusedError(
                503, "the models take more memory than they may: nothing is learned", retry_after=60
            )


def _skipped_answer(reason: str) -> Answer:
    return RefusedError(422, f"it cannot be learned, and is left out: {reason}").answer


def _lock_folder(folder: Path) -> int:
    """Return a file descriptor that holds the lock of the folder."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StateFileError(f"{folder} is served by another process") from None
    return descriptor
