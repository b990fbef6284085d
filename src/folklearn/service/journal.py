"""The event journal of a service folder: one SQLite file.

Every event is durable before it counts. WAL and synchronous=FULL: a commit that returned is on the
disk. Every page carries a checksum (SQLite's cksumvfs), so damage is an error and never another
model. One connection in one thread writes; others may read.

`sys.audit("folklearn.after_commit")` and its like are where tests kill the process.
"""

import ctypes
import hashlib
import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import apsw
import apsw.sqlite_extra
import msgspec

from folklearn.errors import StateFileError
from folklearn.service import events

FORMAT = 1
NAME = "journal.db"
_MAX_WAL_BYTES = 16_000_000  # that it may grow by before a checkpoint
_BUSY_TIMEOUT_MS = 5_000  # while another process has the file
_HEAD = struct.Struct("<QI")
_READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

_TABLES = """
CREATE TABLE model (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER, kept_after INTEGER NOT NULL DEFAULT 0,
    kept_since INTEGER NOT NULL DEFAULT 0, released INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX model_name ON model (tenant, name) WHERE last IS NULL;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, model INTEGER NOT NULL, time INTEGER NOT NULL,
    id BLOB, key TEXT, digest BLOB, body BLOB NOT NULL, answer BLOB, skipped TEXT
);
CREATE UNIQUE INDEX event_id ON event (id) WHERE id IS NOT NULL;
CREATE UNIQUE INDEX event_key ON event (model, key) WHERE key IS NOT NULL;
CREATE TABLE asked (seq INTEGER PRIMARY KEY, model INTEGER NOT NULL, due INTEGER, told INTEGER);
CREATE INDEX asked_due ON asked (due) WHERE told IS NULL AND due IS NOT NULL;
CREATE INDEX asked_open ON asked (model) WHERE told IS NULL;
CREATE TABLE base (
    model INTEGER PRIMARY KEY, seq INTEGER NOT NULL, time INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE TABLE mark (
    model INTEGER, seq INTEGER, time INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (model, seq)
) WITHOUT ROWID;
CREATE TABLE build (name TEXT NOT NULL);
"""
# The last event may have been removed; its number is not used again.
_LAST = "SELECT max(coalesce((SELECT max(seq) FROM event), 0), "
_LAST += "coalesce((SELECT max(max(kept_after, coalesce(last, 0))) FROM model), 0))"


class Entry(NamedTuple):
    """An event with its number in the journal."""

    seq: int
    model: int
    time: int  # milliseconds since 1970
    event: Any
    id: UUID | None = None  # issued with the event, for a label or reward that comes later
    key: str | None = None  # Idempotency-Key
    skipped: str | None = None  # why it is left out of every replay


class Base(NamedTuple):
    """The state of a model after an event: recovery and replays begin here."""

    seq: int
    time: int
    record: bytes | None  # None: what the first event says


class ModelRow(NamedTuple):
    """A model: its number, its tenant and name until it is deleted, its first event."""

    number: int
    tenant: str
    name: str
    first: int


def open_database(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """Open a database; where its pages have checksums, they are checked."""
    if "cksmvfs" not in apsw.vfs_names():
        apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
    flags = apsw.SQLITE_OPEN_READONLY if read_only else _READ_WRITE
    db = apsw.Connection(os.fspath(path), flags=flags, vfs="cksmvfs")
    db.set_busy_timeout(_BUSY_TIMEOUT_MS)
    # A damaged WAL must stay as it is: something of it may be saved.
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


def reserve_checksums(db: apsw.Connection) -> None:
    reserved = ctypes.c_int(8)  # bytes of every page
    db.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(reserved))


class Journal:
    """The events of all models of a folder.

    `last` and `before` are the number of the last event, now and when the transaction began. The
    next transaction adds what became of events: `answers_to_add`, by event, that do not follow from
    it, and `refused_ids`, which wait again because the event did not teach their label. With
    `has_removed` there may be keys and ids of events that were removed.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder, self._wal = folder, folder / f"{NAME}-wal"
        self._max_wal_bytes, self.must_empty_wal = 0, True  # it may hold what was erased
        self.answers_to_add: dict[int, bytes] = {}
        self.refused_ids: dict[bytes, int] = {}
        self._head: int | None = None  # file descriptor of the writer
        committed = last_committed(folder)  # before the journal is read, which may grow meanwhile
        if committed and not file_size(folder / NAME):
            # SQLite would begin anew, and remove the WAL.
            raise StateFileError(f"{folder / NAME} is gone or empty: restore it from a backup")
        with self.name_damaged_file(), ExitStack() as opened:
            self.db = open_database(folder / NAME, read_only=read_only)
            opened.callback(self.db.close)
            self._open(read_only, committed)
            if not read_only:
                # After a sync that failed the WAL may be in memory alone, although it looks well:
                # what is read from it counts only once it is in the database.
                self.checkpoint()
            # SQLite fills a page that is cut off with zeros, and checks no checksum then. What was
            # read so far is read again, now that the checkpoint has made it whole.
            self.db.release_memory()
            n_cut_off = file_size(folder / NAME) % self.db.pragma("page_size")
            if n_cut_off and not file_size(self._wal):
                raise StateFileError(
                    f"{folder / NAME} is damaged, its end is cut off: restore it from a backup"
                )
            if not read_only:
                self._head = os.open(folder / "head", os.O_RDWR | os.O_CREAT, 0o600)
                opened.callback(os.close, self._head)
            self.close = opened.pop_all().close

    def _open(self, read_only: bool, committed: int) -> None:
        if not read_only and not self.find("SELECT count(*) FROM sqlite_schema"):
            reserve_checksums(self.db)
            os.chmod(self.folder / NAME, 0o600)
            self.db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first table
            self.db.execute("PRAGMA journal_mode=WAL").fetchall()
            with self.db:
                self.db.execute(_TABLES)
                self.db.execute(f"PRAGMA user_version={FORMAT}")
        version = self.find("PRAGMA user_version")
        if version != FORMAT:
            raise StateFileError(
                f"{self.folder / NAME} has format {version}; this folklearn reads format {FORMAT}: "
                "upgrade folklearn to serve this folder"
            )
        if not read_only:
            settings = "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"
            for setting in (*settings, "secure_delete=ON"):
                self.db.execute(f"PRAGMA {setting}").fetchall()
        self.read_last()
        # SQLite takes a damaged WAL for one that ends there. The head, written without a sync
        # after every commit, is never ahead of the journal unless the end of the journal was lost.
        if committed > self.last:
            raise StateFileError(
                f"{self.folder / NAME} ends with event {self.last}, but event {committed} was "
                "committed: the end of the journal is damaged. Restore it from a backup; to go on "
                f"without what was lost, remove {self.folder / 'head'}"
            )

    def read_last(self) -> None:
        self.last = self.find(_LAST)
        self.has_removed = bool(self.find("SELECT count(*) FROM base"))

    def find(self, statement: str, *values: Any) -> Any:
        """Return what a row has, a value or several, or None if there is no row."""
        return self.db.execute(statement, values).get

    @contextmanager
    def name_damaged_file(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise StateFileError(
                f"{self.folder / NAME} cannot be used: {error}. If the disk is well it is damaged: "
                "restore it from a backup"
            ) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything durable together that is added within, or after an exception nothing."""
        self.db.execute("BEGIN IMMEDIATE")
        self.before, n_changes = self.last, self.db.total_changes()
        keep_answer = "UPDATE event SET answer = ?2 WHERE seq = ?1 AND answer IS NULL"
        self.db.executemany(keep_answer, self.answers_to_add.items())
        wait_again = "UPDATE asked SET told = NULL WHERE told = ?2 AND seq = "
        wait_again += "(SELECT seq FROM event WHERE id = ?1)"
        self.db.executemany(wait_again, self.refused_ids.items())
        self.answers_to_add.clear()
        self.refused_ids.clear()
        yield
        if self.db.total_changes() == n_changes:
            self.db.execute("ROLLBACK")
            return
        sys.audit("folklearn.before_commit")
        self.db.execute("COMMIT")
        sys.audit("folklearn.after_commit")
        assert self._head is not None
        checksum = zlib.crc32(self.last.to_bytes(8, "little"))
        os.pwrite(self._head, _HEAD.pack(self.last, checksum), 0)

    def add(
        self,
        model: int,
        time: int,
        event: events.JournalEvent,
        *,
        id: UUID | None = None,
        due: int | None = None,
        key: str | None = None,
        digest: bytes | None = None,
        outcome_of: Iterable[int] = (),
    ) -> Entry:
        """Add an event; one with an id waits, and ends the waiting of those it is outcome_of."""
        self.last += 1
        id_bytes = None if id is None else id.bytes
        self.db.execute(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
            (self.last, model, time, id_bytes, key, digest, events.encode_event(event)),
        )
        if id is not None:
            self.db.execute("INSERT INTO asked VALUES (?, ?, ?, NULL)", (self.last, model, due))
        for asked in outcome_of:
            self.db.execute("UPDATE asked SET told = ? WHERE seq = ?", (self.last, asked))
        of_model = self.last, model
        if isinstance(event, events.ReleaseEvent):
            self.db.execute("UPDATE model SET released = ? WHERE number = ?", of_model)
        elif isinstance(event, events.DeleteEvent):
            self.db.execute("UPDATE model SET last = ? WHERE number = ?", of_model)
            self.db.execute("UPDATE asked SET told = ? WHERE model = ? AND told IS NULL", of_model)
        return Entry(self.last, model, time, event, id, key)

    def add_model(self, tenant: str, name: str) -> int:
        number: int = 1 + self.find("SELECT coalesce(max(number), 0) FROM model")
        row = number, tenant, name, self.last + 1
        columns = "number, tenant, name, first"
        self.db.execute(f"INSERT INTO model ({columns}) VALUES (?, ?, ?, ?)", row)
        return number

    def checkpoint(self, *, if_long: bool = False) -> None:
        """Move the WAL into the database, or do so if it has grown long."""
        if if_long and file_size(self._wal) <= self._max_wal_bytes:
            return
        sys.audit("folklearn.before_checkpoint")
        self.db.set_busy_timeout(0)  # a reader keeps the WAL, and must not stop the writer
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.db.set_busy_timeout(_BUSY_TIMEOUT_MS)
        sys.audit("folklearn.after_checkpoint")
        n_left = file_size(self._wal)
        self.must_empty_wal = self.must_empty_wal and n_left > 0
        self._max_wal_bytes = -1 if self.must_empty_wal else n_left + _MAX_WAL_BYTES

    def note_erasure(self) -> None:
        """Let the next `clean` write the whole file anew: events were removed.

        What SQLite deletes it overwrites, but where it moved a row before, in a page that was full,
        the unused part of that page may have a copy.
        """
        self.must_empty_wal = True
        self.db.execute("PRAGMA application_id=1")

    def clean(self) -> None:
        """Leave nothing in the files of what was erased, unless a reader still keeps the WAL."""
        if self.db.pragma("application_id"):
            sys.audit("folklearn.before_vacuum")
            self.db.execute("VACUUM")
            self.db.execute("PRAGMA application_id=0")
            self.must_empty_wal = True
        self.checkpoint()

    def models(self) -> list[ModelRow]:
        rows = self.db.execute(
            "SELECT number, tenant, name, first FROM model WHERE last IS NULL ORDER BY number"
        )
        return [ModelRow(*row) for row in rows]

    def entries(
        self, *, after: int = 0, upto: int | None = None, model: int | None = None
    ) -> Iterator[Entry]:
        where, values = "seq > ? AND seq <= ?", [after, self.last if upto is None else upto]
        if model is not None:
            where, values = f"{where} AND model = ?", [*values, model]
        return self._entries(f"{where} ORDER BY seq", values)

    def entry(self, which: int | UUID) -> Entry:
        """Return an event by its number, or by the id that was issued with it."""
        column, value = ("id", which.bytes) if isinstance(which, UUID) else ("seq", which)
        (entry,) = self._entries(f"{column} = ?", (value,))
        return entry

    def _entries(self, where: str, values: Any) -> Iterator[Entry]:
        columns = "seq, model, time, body, id, key, skipped"
        rows = self.db.execute(f"SELECT {columns} FROM event WHERE {where}", values)
        for seq, model, time, body, id, key, skipped in rows:
            issued = None if id is None else UUID(bytes=id)
            yield Entry(seq, model, time, events.decode_event(body), issued, key, skipped)

    def find_key(self, model: int, key: str) -> tuple[int, bytes] | None:
        keys = key, hash_key(key) if self.has_removed else key
        found = "SELECT seq, digest FROM event WHERE model = ? AND key IN (?, ?)"
        return self.db.execute(found, (model, *keys)).get

    def find_waiting(self, model: int, id: UUID) -> tuple[int, int | None] | None:
        """Return the event of an id, and the one that has its label or reward, if any."""
        found = "SELECT event.seq, told FROM event JOIN asked USING (seq) "
        found += "WHERE id IN (?, ?) AND event.model = ?"
        return self.find(found, id.bytes, hash_id(id), model)

    def begin(self, model: int) -> tuple[events.CreateEvent, Base]:
        """Return the first event of a model, and what its replays begin with."""
        first = self.entry(self.find("SELECT first FROM model WHERE number = ?", model))
        base = self.find("SELECT seq, time, record FROM base WHERE model = ?", model)
        return first.event, Base(*(base or (first.seq, first.time, None)))

    def put_base(self, model: int, base: Base) -> None:
        self.has_removed = True
        self.db.execute("INSERT OR REPLACE INTO base VALUES (?, ?, ?, ?)", (model, *base))
        self.db.execute("DELETE FROM mark WHERE model = ? AND seq <= ?", (model, base.seq))
        first = self.find("SELECT first FROM model WHERE number = ?", model)
        created = self.entry(first).event
        if created.file:  # the base stands for it
            self.rewrite(first, msgspec.structs.replace(created, file=b""))

    def rewrite(self, seq: int, event: events.JournalEvent) -> None:
        content = events.encode_event(event)
        self.db.execute("UPDATE event SET body = ? WHERE seq = ?", (content, seq))

    def bury(self, seq: int, key: str | None, id: bytes | None = None) -> None:
        """Leave of an event its number, and key and id, or hashes of them, to be recognised by."""
        columns = "key = ?, id = ?, body = ?, digest = NULL, answer = NULL, skipped = NULL"
        values = key, id, events.encode_event(events.RemovedEvent()), seq
        self.db.execute(f"UPDATE event SET {columns} WHERE seq = ?", values)

    def waiting_upto(
        self, column: Literal["due", "seq"], value: int, limit: int
    ) -> list[tuple[int, UUID]]:
        """Return model and id of what waits, in order of a column, up to a value of it."""
        rows = self.db.execute(
            "SELECT asked.model, id FROM asked JOIN event USING (seq) "
            f"WHERE told IS NULL AND {column} <= ? ORDER BY {column} LIMIT ?",
            (value, limit),
        )
        return [(model, UUID(bytes=id)) for model, id in rows]

    @property
    def n_bytes(self) -> int:
        """Bytes of the database that are in use."""
        n_pages = self.db.pragma("page_count") - self.db.pragma("freelist_count")
        return int(n_pages * self.db.pragma("page_size"))

    def answer(self, seq: int) -> bytes | None:
        content = self.answers_to_add.get(seq)
        return content or self.find("SELECT answer FROM event WHERE seq = ?", seq)

    def n_waiting(self, model: int) -> int:
        count = "SELECT count(*) FROM asked WHERE told IS NULL AND model = ?"
        return int(self.find(count, model))


def hash_key(key: str) -> str:
    """Return what stands for an Idempotency-Key whose event was removed."""
    return f"removed {hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"


def hash_id(id: UUID) -> bytes:
    return hashlib.blake2b(id.bytes, digest_size=16).digest()


def last_committed(folder: Path) -> int:
    """Return the last event that the head file knows to be committed, 0 if it knows of none."""
    try:
        seq, checksum = _HEAD.unpack((folder / "head").read_bytes())
    except (OSError, struct.error):
        return 0
    return int(seq) if checksum == zlib.crc32(seq.to_bytes(8, "little")) else 0


def file_size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return os.stat(path).st_size
    return 0


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, and is durable when this returns."""
    temporary = path.with_name(f".{path.name}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        sys.audit("folklearn.in_file")
        file.flush()
        os.fsync(file.fileno())
    sys.audit("folklearn.before_rename")
    os.replace(temporary, path)
    sys.audit("folklearn.after_rename")
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
