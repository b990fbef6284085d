"""The folder of the service: recovered when it is opened, changed by one writer, read by all."""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
from threadpoolctl import threadpool_limits

from folklearn.errors import FolklearnError, StateFileError
from folklearn.service import commands, events, failpoints, snapshots
from folklearn.service.commands import Command, Repeat, not_learned, standard_answer
from folklearn.service.events import Answer, RefusedError, packed, unpacked
from folklearn.service.journal import BUILD, Entry, Journal, ModelRow, SnapshotRow, naming_damage
from folklearn.service.limits import Limits
from folklearn.service.model_host import TIMES_AT_START, Memory, ModelHost
from folklearn.service.states import begun

log = logging.getLogger("folklearn.service")

Clock = Callable[[], int]


def milliseconds() -> int:
    """Return the time of the system."""
    return time.time_ns() // 1_000_000


class ModelStore:
    """The models of a folder, and the only hand that changes them.

    Every method but `find` is for one thread, that of `Writer`. What happens to a batch of
    commands, in this order: repeated ones are recognised, the others become events, one commit
    makes them durable, they are applied in order, the new state is published, and only then
    are the answers given.

    Parameters
    ----------
    folder : made if it is not there.
    limits : see `Limits`.
    clock : returns milliseconds; what it says is written into the journal.
    """

    def __init__(
        self, folder: Path, limits: Limits | None = None, clock: Clock = milliseconds
    ) -> None:
        self.folder, self.limits, self.clock = folder, limits or Limits(), clock
        self.memory = Memory(self.limits.memory)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):
            snapshots.sync_folder(folder.absolute().parent)  # the folder's own name must last too
        # What came of events, which the journal does not hold yet.
        self._answers: dict[int, bytes] = {}
        self._refused: dict[int, int] = {}  # events whose label was not learned, by the asked one
        self._by_name: dict[tuple[str, str], ModelHost] = {}
        self._by_number: dict[int, ModelHost] = {}
        self.n_replayed = 0
        self._held = ExitStack()
        with self._held:
            self._held.callback(os.close, _locked(folder))
            # Sums over several threads could round otherwise, and replay give other bytes.
            self._held.enter_context(threadpool_limits(1, user_api="blas"))
            self.journal = Journal(folder)
            self._held.callback(self.journal.close)
            with naming_damage(folder):
                self._recover()
            self._held = self._held.pop_all()  # until it is abandoned

    def close(self) -> None:
        """Snapshot what has changed, and let go of the folder."""
        for host in list(self._by_number.values()):
            if host.n_since_snapshot and not host.is_held:
                with suppress(OSError):  # a cache: the journal has everything
                    self.snapshot(host)
        self.journal.checkpoint()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the folder as it is."""
        self._held.close()

    # Finding models.

    def find(self, tenant: str, name: str) -> ModelHost | None:
        """Return the model of a tenant."""
        return self._by_name.get((tenant, name))

    def models(self, tenant: str | None = None) -> list[ModelHost]:
        """Return the models of a tenant, or of all, by name."""
        own = list(self._by_name.items())
        return [host for (of, _), host in sorted(own) if tenant in (None, of)]

    # Recovering.

    def _recover(self) -> None:
        journal = self.journal
        self._skipped = journal.skipped()
        known = []
        for row in journal.models():
            known += [snapshot.file for snapshot in journal.snapshots(row.number)]
            self._host(*self._restored(row))
        snapshots.remove_unknown(self.folder, known)
        first = min((host.version for host in self._by_number.values()), default=0)
        for entry in journal.entries(after=first):
            host = self._by_number.get(entry.model)
            if host is None or host.is_held or entry.seq <= host.version:
                continue
            failpoints.reach("in_replay")
            if host.has_room_for(entry, journal.entry):
                self._apply(host, entry)
                self.n_replayed += 1
            else:  # or memory would end, at every start: what there is room for can be read
                host.hold()
                log.error("%s", host.why_held)
        self._begin()
        journal.add_opened(self.clock(), BUILD)
        self._commit()
        for host in self._by_number.values():
            host.publish(now=True)
            host.measure()
        if not self.memory.has_room(0):
            log.error("%s", self.memory.in_words(None))

    def _restored(self, row: ModelRow, below: int | None = None) -> tuple[Any, ...]:
        """Return a model as its newest good snapshot, before an event, has it."""
        created = self.journal.entry(row.first).event
        for snapshot in self.journal.snapshots(row.number):
            if below is not None and snapshot.seq >= below:
                continue
            n_bytes = round(1.5 * snapshots.size(self.folder, snapshot))  # with a view
            if not self.memory.has_room(n_bytes, TIMES_AT_START):
                log.warning("snapshot %s is too large for --memory", snapshot.file)
                continue
            with suppress(OSError, FolklearnError):
                record = snapshots.read(self.folder, snapshot)
                return row, created, begun(created, record), snapshot.seq
            log.warning("snapshot %s cannot be used: the journal is replayed", snapshot.file)
        return row, created, begun(created), row.first

    def _host(self, row: ModelRow, created: Any, state: Any, version: int) -> ModelHost:
        host = ModelHost(row, created, state, version, self.memory)
        self._by_number[row.number] = host
        self._by_name[row.tenant, row.name] = host
        return host

    # Changing.

    def write(self, wanted: Sequence[tuple[ModelHost, Command]]) -> list[Answer]:
        """Do commands in order; an answer is given only for what is durable and applied."""
        answers = self._write(wanted)
        while len(answers) < len(wanted):
            answers += self._write(wanted[len(answers) :])
        return answers

    def _write(self, wanted: Sequence[tuple[ModelHost, Command]]) -> list[Answer]:
        """Do together as many of the commands as do not depend on how earlier ones end."""
        now, journal = self.clock(), self.journal
        prepared: list[Any] = []
        self._begin()
        deleted = set()
        for host, command in wanted:
            number = host.number
            try:
                if number in deleted or self._by_number.get(number) is not host:
                    raise RefusedError(404, f"the model {host.row.name} was deleted")
                if not isinstance(command, commands.Delete):
                    self.memory.check(host)
                prepared.append(command.prepare(journal, host, now))
            except RefusedError as refusal:
                prepared.append(refusal.answer)
            except commands.TooEarlyError:
                break
            if isinstance(command, commands.Delete):
                deleted.add(number)
        if journal.last == journal.before and not (self._answers or self._refused):
            journal.rollback()
        else:
            self._commit()
        failpoints.reach("before_apply")
        answers = [self._done(host, done) for (host, _), done in zip(wanted, prepared)]  # noqa: B905
        for host in {id(host): host for host, _ in wanted}.values():
            host.applied()
            host.publish()
        failpoints.reach("before_answer")
        return answers

    def _begin(self) -> None:
        """Begin to add events, after what came of earlier ones."""
        self.journal.begin()
        self.journal.add_answers(self._answers)
        self.journal.wait_again(self._refused)

    def _commit(self) -> None:
        self.journal.commit()
        self._answers.clear()
        self._refused.clear()

    def _done(self, host: ModelHost, prepared: commands.Prepared) -> Answer:
        """Apply the events of a command; return its answer."""
        if isinstance(prepared, Answer):
            return prepared
        if isinstance(prepared, Repeat):
            return self._answer_of(prepared.seq)
        answer = Answer(200, {})
        for entry in prepared:
            answer = self._named(entry, self._apply(host, entry))
            if isinstance(entry.event, events.Deleted):
                self._forget(host)
        return answer

    def _apply(self, host: ModelHost, entry: Entry) -> Answer:
        """Take an event into the state of its model, or note that it cannot be."""
        began = time.perf_counter()
        if entry.seq in self._skipped:
            answer = _left_out(self._skipped[entry.seq])
        else:
            try:
                answer = host.state.apply(entry, self.journal.entry)
            except FolklearnError as error:
                answer = RefusedError(422, str(error)).answer
            except (apsw.Error, MemoryError):
                raise  # which is no fault of the event: a new start will take it in
            except Exception as error:
                # The state may be half changed: the event is left out for ever.
                answer = self._skip(host, entry, error)
        host.version = entry.seq
        host.replay_seconds += time.perf_counter() - began
        host.n_since_snapshot += 1
        if entry.has_key and answer != standard_answer(entry):
            self._answers[entry.seq] = packed(answer)
        for of in not_learned(entry, answer):
            self._refused[of] = entry.seq
        return answer

    def _skip(self, host: ModelHost, entry: Entry, error: Exception) -> Answer:
        """Leave out an event that fails, and bring the state back to where it was before."""
        log.exception("event %s of %s is left out", entry.seq, host.row.name, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        self._skipped[entry.seq] = reason
        self.journal.begin()
        self.journal.add_skipped(entry.seq, reason)
        self.journal.commit()
        _, _, host.state, version = self._restored(host.row, below=entry.seq)
        earlier = self.journal.entries(after=version, upto=entry.seq - 1, model=host.number)
        for one in earlier:
            self._apply(host, one)
        return _left_out(reason)

    def _named(self, entry: Entry, answer: Answer) -> Answer:
        """Return the answer to a decision with its id."""
        if answer.status == 200 and isinstance(entry.event, events.Decided):
            id = self.journal.id_of(entry.seq)
            assert id is not None
            return Answer(200, {"id": str(UUID(bytes=id)), **answer.body})
        return answer

    def _answer_of(self, seq: int) -> Answer:
        """Return the answer that was given to an event before."""
        kept, entry = self._answers.get(seq) or self.journal.answer(seq), self.journal.entry(seq)
        answer = standard_answer(entry) if kept is None else unpacked(kept)
        assert answer is not None
        return self._named(entry, answer)

    def _forget(self, host: ModelHost) -> None:
        del self._by_number[host.number]
        del self._by_name[host.row.tenant, host.row.name]
        del self.memory.models[host.number]

    # Creating, importing.

    def create(
        self, tenant: str, name: str, config: events.Config, file: bytes | None = None
    ) -> Answer:
        """Open a model; one of the same name and configuration is the same model."""
        there = self.find(tenant, name)
        if there is not None:
            if there.config == config and file is None:
                return Answer(200, {"name": name, "event": there.row.first})
            raise RefusedError(
                409, f"there is a model {name} already, of another configuration: delete it first"
            )
        if len(self.models(tenant)) >= self.limits.models:
            raise RefusedError(
                422, f"{tenant} has {self.limits.models} models, and may have no more"
            )
        commands.check_large(config, self.limits)
        n_bytes = commands.n_bytes_to_begin(config, file)
        if not self.memory.has_room(n_bytes):
            raise RefusedError(503, self.memory.in_words(tenant, n_bytes), retry_after=60)
        event = commands.created(config, self.limits, file)
        journal = self.journal
        journal.begin()
        number = journal.add_model(tenant, name)
        entry = journal.add(number, self.clock(), event)
        journal.commit()
        row, own = ModelRow(number, tenant, name, entry.seq), entry.event
        self._host(row, own, begun(own), entry.seq)
        return Answer(201, {"name": name, "event": entry.seq})

    # Looking after it.

    def expire(self) -> None:
        """Let go of what has waited too long for its label or reward."""
        late: dict[int, list[int]] = {}
        for seq, number in self.journal.due(self.clock(), 1_000):
            late.setdefault(number, []).append(seq)
        wanted = [
            (self._by_number[number], commands.Expire(of))
            for number, of in late.items()
            if number in self._by_number
        ]
        if wanted:
            self.write(wanted)

    def snapshot(self, host: ModelHost) -> None:
        """Write the state of a model into a file, and note it in the journal."""
        row = snapshots.write(self.folder, host.number, host.version, host.state.to_record(), BUILD)
        host.snapshotted()
        self.note_snapshot(row)

    def note_snapshot(self, row: SnapshotRow) -> None:
        """Let the journal know of a snapshot file that is durable."""
        self._begin()
        old = self.journal.add_snapshot(row, snapshots.KEPT)
        self._commit()
        snapshots.remove(self.folder, old)

    def check_not_full(self) -> None:
        """Refuse to write while the disk is nearly full."""
        if shutil.disk_usage(self.folder).free < self.limits.free_disk:
            raise RefusedError(
                503, "the disk is nearly full: nothing can be learned", retry_after=30
            )

    def check_if_large(self) -> None:
        """Refuse to write while models take more memory than they may."""
        if not self.memory.has_room(0):
            raise RefusedError(
                503, "the models take more memory than they may: nothing is learned", retry_after=60
            )


def _left_out(reason: str) -> Answer:
    return Answer(
        422, {"status": 422, "detail": f"it cannot be learned, and is left out: {reason}"}
    )


def _locked(folder: Path) -> int:
    """Return a handle of the folder that no other service can have."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StateFileError(f"{folder} is served by another process") from None
    return handle
