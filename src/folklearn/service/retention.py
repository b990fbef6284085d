"""What a folder forgets: events that a base stands for, by age or size.

A base is the state of a model after an event, in the journal: recovery and replays begin there.
It is made by a replay from the base before it, in another process, and taken only if it is what
the model was: the writer had noted a digest then, a mark. So every event is replayed once before
it goes. What needs events that are old keeps them: predictions that wait, or waited at the base.

``python -m folklearn.service.retention FUNCTION FOLDER`` does a task, see `Work`: it takes JSON of
standard input, and prints its result. It changes nothing of the journal.
"""

import fcntl
import logging
import os
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from llvmlite.binding import get_host_cpu_name
from threadpoolctl import threadpool_limits

from folklearn import __version__, serialization
from folklearn.errors import FolklearnError
from folklearn.service import events
from folklearn.service.archive import FOLDER, ArchivedEvent, list_archives, write_archive
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.journal import Base, Entry, Journal, replace_file
from folklearn.service.states import ModelState, restore_state

if TYPE_CHECKING:
    from folklearn.service.store import ModelStore

log = logging.getLogger("folklearn.service")

_DAY = 86_400_000  # milliseconds
_MIN_AGE = 600_000  # milliseconds; clients repeat a request for a minute
_MIN_PAUSE = 60_000  # milliseconds between two rounds, however large the journal is
_SLACK = 1.25  # times the size that the journal may have before a round begins
_N_MARKS = 8  # while the journal grows by its limit
_N_REMOVED = 2_000  # events that are looked at in one transaction
_N_EXPIRED = 1_000
_MAX_REWRITTEN_BYTES = 100_000_000  # of a journal that is written anew after a round, in a second
_N_VACUUMED = 2_000  # pages given back at a time
_NICE = 10


class Replay:
    """The state of a model as its events make it, from the base on, or from the first event."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal, self.number = journal, number
        created, base = journal.begin(number)
        self.state: ModelState = restore_state(created, base.record)
        self.version, self.has_base = base.seq, base.record is not None

    def entries(self, upto: int) -> Iterator[Entry]:
        """Apply all events up to one, and yield each after it was applied."""
        entries = self._journal.entries(after=self.version, upto=upto, model=self.number)
        for entry in entries:
            if entry.skipped is None:
                with suppress(FolklearnError):  # refused again, which changes nothing
                    self.state.apply(entry, self._journal.entry)
            self.version = entry.seq
            yield entry


class Work:
    """A task that a process of low priority does, so that requests do not wait for it."""

    def __init__(self, do: Callable[..., Any], folder: Path, **task: Any) -> None:
        function, pipe = f"{do.__module__}:{do.__name__}", subprocess.PIPE
        command = sys.executable, "-m", "folklearn.service.retention", function, os.fspath(folder)
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        reader = ThreadPoolExecutor(1)  # so that no pipe is ever full
        self._end = reader.submit(self._process.communicate, msgspec.json.encode(task))
        reader.shutdown(wait=False)

    @property
    def is_done(self) -> bool:
        return self._end.done()

    def result(self) -> Any:
        """Wait for the result, and return it."""
        output, errors = self._end.result()
        if code := self._process.returncode:
            reason = errors.decode("utf-8", "replace").strip()[-300:]
            raise FolklearnError(f"a process of the service ended with {code}: {reason}")
        return msgspec.json.decode(output)

    def stop(self) -> None:
        self._process.kill()
        self._end.result()


@contextmanager
def alone_in(folder: Path) -> Iterator[Journal]:
    """Read the journal while no other task is at work, not even one whose service has died."""
    with open(os.open(folder / "retention", os.O_RDWR | os.O_CREAT, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with closing(Journal(folder, read_only=True)) as journal:
            remove_unused(journal)
            yield journal


def remove_unused(journal: Journal) -> None:
    """Remove what a task has left whose result was not taken: states, and archives."""
    for path in journal.folder.glob("*base-*.folk"):
        path.unlink(missing_ok=True)
    for number, kept_after in journal.db.execute("SELECT number, kept_after FROM model"):
        for upto, path in list_archives(journal.folder, number):
            if upto > kept_after:
                path.unlink(missing_ok=True)


def note_build(journal: Journal, hosts: Iterable[ModelHost]) -> None:
    """Begin replays anew where another build, or machine, served the folder before.

    What it computed this one may compute with other last digits.
    """
    versions = map(version, ("numpy", "scipy", "numba", "llvmlite"))
    build = " ".join([__version__, platform.python_version(), *versions, get_host_cpu_name()])
    before = journal.find("SELECT name FROM build")
    if before is None:
        journal.db.execute("INSERT INTO build VALUES (?)", (build,))
    elif before != build:
        records = [(host, serialization.as_bytes(host.state.to_record())) for host in hosts]
        with journal.transaction():
            journal.db.execute("UPDATE build SET name = ?", (build,))
            journal.db.execute("DELETE FROM mark")
            for host, record in records:
                journal.put_base(host.number, Base(host.version, host.changed, record))


def base_path(folder: Path, number: int) -> Path:
    return folder / f"base-{number}.folk"


_REMOVABLE = (
    "FROM event CROSS JOIN model ON number = event.model LEFT JOIN asked USING (seq) WHERE "
    "event.seq > :after AND event.seq <= :upto AND event.seq <= {kept_after} "
    "AND (event.seq != first OR last IS NOT NULL) "
    "AND (asked.seq IS NULL OR told <= {kept_after})"
)


def compact(
    folder: Path, now: int, days: float | None, n_bytes: int | None, archives: bool
) -> dict[str, Any]:
    """Find what may go, replay to there, and seal what goes into archives.

    Returns the last event that is too old; by model the event up to which others may go, its time,
    and whether there is a new base; and which models replayed to something else.
    """
    bases, different = [], []
    with alone_in(folder) as journal:
        cutoff = _find_cutoff(journal, now, days, n_bytes)
        columns = "number, tenant, name, last, kept_after, coalesce(seq, 0)"
        found = f"SELECT {columns} FROM model LEFT JOIN base ON model = number"
        models: Any = journal.db.execute(found).fetchall()
        for number, tenant, name, last, kept_after, base in models:
            if last is not None:
                if not kept_after < last <= cutoff:
                    continue
                upto, time, is_new = last, 0, False
            elif base >= cutoff:  # it stands for later events than are too old
                if kept_after >= cutoff:
                    continue
                before = "SELECT time FROM event WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
                upto, time, is_new = cutoff, journal.find(before, cutoff) or 0, False
            else:
                marks = "SELECT seq, time, digest FROM mark WHERE model = ? AND seq > ? "
                marks += "AND seq <= ? ORDER BY seq DESC LIMIT 1"
                mark = journal.find(marks, number, base, cutoff)
                if mark is None:
                    continue
                upto, time, digest = mark
                is_new = True
                replay = Replay(journal, number)
                for _ in replay.entries(upto):
                    sys.audit("folklearn.in_compaction")
                record = replay.state.to_record()
                if record.digest != digest:
                    different.append(number)
                    continue
                replace_file(base_path(folder, number), serialization.as_bytes(record))
            bases.append((number, upto, time, is_new))
            if archives:
                header = {"tenant": tenant, "model": name, "number": number, "upto": upto}
                path = folder / FOLDER / f"{number}-{upto}.jsonl.gz"
                write_archive(path, header, _archived(journal, number, upto))
                sys.audit("folklearn.after_archive")
    return {"cutoff": cutoff, "bases": bases, "different": different}


def _archived(journal: Journal, number: int, upto: int) -> Iterator[ArchivedEvent]:
    where = _REMOVABLE.format(kept_after=upto) + " AND event.model = :model ORDER BY event.seq"
    values = {"after": 0, "upto": upto, "model": number}
    for (seq,) in journal.db.execute(f"SELECT event.seq {where}", values):
        _, _, time, event, id, key, skipped = journal.entry(seq)
        if not isinstance(event, events.RemovedEvent):
            yield ArchivedEvent(seq, time, event, id, key, skipped)


def _last_before(journal: Journal, time: int) -> int:
    """Return the last event up to a time, 0 if there is none; times of events ascend.

    It looks at every event up to then: at those that may be removed, for this is asked before.
    """
    later = journal.find("SELECT seq FROM event WHERE time > ? ORDER BY seq LIMIT 1", time)
    return journal.last if later is None else int(later) - 1


def _find_cutoff(journal: Journal, now: int, days: float | None, n_bytes: int | None) -> int:
    """Return the last event that is older than the days, or beyond the bytes, 0 if none is."""
    cutoff = 0
    if days is not None:
        cutoff = _last_before(journal, now - max(_MIN_AGE, round(days * _DAY)))
    if n_bytes is not None and journal.n_bytes > n_bytes:
        sums = "(SELECT coalesce(sum(length(record)), 0) FROM base)"
        sums += ", (SELECT sum(length(body)) FROM event)"
        base_bytes, body_bytes = journal.find(f"SELECT {sums}")
        share = max(0.0, n_bytes - base_bytes) / max(1.0, journal.n_bytes - base_bytes)
        newest_first = "SELECT seq, sum(length(body)) OVER (ORDER BY seq DESC) AS total FROM event"
        found = f"SELECT seq FROM ({newest_first}) WHERE total > ? LIMIT 1"
        beyond = journal.find(found, share * body_bytes)
        if beyond is not None:
            cutoff = max(cutoff, min(beyond, _last_before(journal, now - _MIN_AGE)))
    return cutoff


class Retention:
    """The policy of a folder, and what it has to do now; for the thread of the writer.

    `different` are the models whose replay was not what they had been: of these nothing is removed.
    """

    def __init__(self, store: "ModelStore") -> None:
        self._store, self.launch = store, Work
        self._work: Work | None = None
        self._next = self._last = 0  # rounds, in milliseconds of the store's clock
        self._to_mark: list[ModelHost] = []
        self._is_begun = False  # a round, that marks have to be made for first
        self._marked: dict[int, tuple[int, int]] = {}  # event and clock of the last mark, by model
        self._marked_bytes = 0  # of the journal, at the last marks
        self._expired_upto = 0
        self._removed_upto: int | None = 0  # None: all is removed that has to be
        self.is_erasing = False
        self.to_clean: dict[int, int] = {}  # up to which snapshots of a model have what was erased
        self.different: set[str] = set()

    def stop(self) -> None:
        """End the work of another process: it begins anew with the next round."""
        if self._work is not None:
            self._work.stop()
        self._work, self._is_begun, self._next = None, False, 0

    def maintain(self) -> None:
        """Do a short piece of what there is to do."""
        store, journal = self._store, self._store.journal
        if not self.is_erasing:
            if self._work is not None:
                if self._work.is_done:
                    self._finish_round()
            elif self._to_mark:
                with journal.transaction():
                    self.mark(self._to_mark.pop())
            elif self._is_begun:
                limits, self._is_begun = store.limits, False
                self._work = self.launch(
                    compact, store.folder, now=store.clock(),
                    days=limits.keep_days, n_bytes=limits.keep_bytes, archives=limits.archive,
                )  # fmt: skip
            elif self._is_due():
                self._last, self._is_begun, self._to_mark = store.clock(), True, store.models()
            elif self._removed_upto is not None:
                self._remove_some(self._removed_upto)
            elif self._has_grown():
                self._to_mark = store.models()
            if self._expired_upto:
                late = journal.waiting_upto("seq", self._expired_upto, _N_EXPIRED)
                self._expired_upto = self._expired_upto if late else 0
                store.expire_ids(late)
        if self.to_clean or (journal.must_empty_wal and self._removed_upto is None):
            self.clean()
        if journal.db.pragma("freelist_count"):
            journal.db.execute(f"PRAGMA incremental_vacuum({_N_VACUUMED})").fetchall()

    def clean(self) -> bool:
        """Remove snapshots and empty the WAL after an erasure; tell whether nothing is left of it.

        One that is being written, or a reader of the journal, must end first.
        """
        if self._store.is_writing_snapshot:
            return False
        for number, upto in self.to_clean.items():
            self._store.remove_snapshots(number, upto)
        self.to_clean.clear()
        self._store.journal.clean()
        return not self._store.journal.must_empty_wal

    def _is_due(self) -> bool:
        limits, now = self._store.limits, self._store.clock()
        most, has_paused = limits.keep_bytes, now >= self._last + _MIN_PAUSE
        if most is not None and has_paused and self._store.journal.n_bytes > _SLACK * most:
            return True
        return now >= self._next and (most is not None or limits.keep_days is not None)

    def _has_grown(self) -> bool:
        """Tell whether so much has come that the next base may have to be in between."""
        limit, n_bytes = self._store.limits.keep_bytes, self._store.journal.n_bytes
        if limit is None or abs(n_bytes - self._marked_bytes) < limit / _N_MARKS:
            return False
        self._marked_bytes = n_bytes
        return True

    def mark(self, host: ModelHost, *, pause: int = 0) -> None:
        """Note what a model is now, for a replay to be compared with; in a transaction.

        Nothing is done less than a pause after the last time.
        """
        version, time = self._marked.get(host.number, (0, -pause))
        now = self._store.clock()
        if version < host.version and now >= time + pause and not host.why_held:
            digest = host.state.to_record().digest
            row = host.number, host.version, host.changed, digest
            self._store.journal.db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)", row)
            self._marked[host.number] = host.version, now

    def _finish_round(self) -> None:
        store, journal = self._store, self._store.journal
        assert self._work is not None
        work, self._work = self._work, None
        self._next = store.clock() + round(min(1.0, (store.limits.keep_days or 1.0) / 4) * _DAY)
        try:
            result = work.result()
        except FolklearnError as error:
            log.error("the journal was not compacted: %s", error)
            return
        by_number = {host.number: host for host in store.models()}
        for number, seq, time, is_new in result["bases"]:
            path = base_path(store.folder, number)
            record = path.read_bytes() if is_new else b""
            sys.audit("folklearn.before_base")
            with journal.transaction():
                if number not in by_number:  # the model was deleted
                    journal.db.execute("DELETE FROM base WHERE model = ?", (number,))
                    journal.db.execute("DELETE FROM mark WHERE model = ?", (number,))
                elif is_new:
                    journal.put_base(number, Base(seq, time, record))
                kept = "UPDATE model SET kept_after = ?, kept_since = ? WHERE number = ?"
                journal.db.execute(kept, (seq, time, number))
            sys.audit("folklearn.after_base")
            store.remove_snapshots(number, seq)  # which may have rows that are older
            path.unlink(missing_ok=True)
        self.different = {by_number[n].row.name for n in result["different"] if n in by_number}
        for name in self.different:
            log.error("a replay of %s is not what it was: none of its events are removed", name)
        cutoff = result["cutoff"]
        released = dict(journal.db.execute("SELECT number, released FROM model"))
        late = [
            host
            for number, host in by_number.items()
            if max(host.row.first, released[number]) <= cutoff and host.version > released[number]
        ]
        if late:
            store.write([Change(host, events.ReleaseEvent()) for host in late])
        self._expired_upto, self._removed_upto = cutoff, 0

    def _remove_some(self, after: int) -> None:
        """Remove events that no base and no label needs, in one short transaction."""
        db, journal = self._store.journal.db, self._store.journal
        nth = "SELECT seq FROM event WHERE seq > ? LIMIT 1 OFFSET ?"
        stop = journal.find(nth, after, _N_REMOVED - 1) or journal.last
        columns = "event.seq, event.time, iif(last IS NULL, key, NULL), kept_since"
        where = _REMOVABLE.format(kept_after="kept_after")
        rows: Any = [*db.execute(f"SELECT {columns} {where}", {"after": after, "upto": stop})]
        if rows:
            with journal.transaction():
                for seq, time, key, since in rows:
                    if key is not None and is_remembered(key, time, since):
                        journal.bury(seq, key)
                    else:
                        db.execute("DELETE FROM event WHERE seq = ?", (seq,))
                db.executemany("DELETE FROM asked WHERE seq = ?", [row[:1] for row in rows])
                if journal.n_bytes <= _MAX_REWRITTEN_BYTES:
                    journal.note_erasure()
            sys.audit("folklearn.in_removal")
        most = journal.find("SELECT coalesce(max(kept_after), 0) FROM model")
        self._removed_upto = stop if stop < most else None


def is_remembered(key: str, time: int, since: int) -> bool:
    """Tell whether the key of an event that goes would be taken for one of a later request.

    Clocks of clients may be a day ahead. What begins with "removed" stands for a key of any time.
    """
    is_later = key.startswith("removed ") or events.time_of_id(key) >= since
    return is_later and time + _DAY >= since


if __name__ == "__main__":
    os.nice(_NICE)
    threadpool_limits(1, user_api="blas")  # as where the service learns
    do: Any = pkgutil.resolve_name(sys.argv[1])
    task = msgspec.json.decode(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgspec.json.encode(do(Path(sys.argv[2]), **task)))
