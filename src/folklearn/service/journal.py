"""The journal: every event, durable before it counts, in one SQLite file.

WAL and synchronous=FULL: a commit that returned is on the disk. Every page carries a checksum
(SQLite's cksumvfs), so damage is an error and never another model. One connection in one thread
writes; others may read.
"""

import ctypes
import json
import os
import platform
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import apsw.sqlite_extra
import numba
import numpy
import scipy

import folklearn
from folklearn.errors import StateFileError
from folklearn.service import events, failpoints

FORMAT = 1
NAME = "journal.db"
_RESERVED = 8  # bytes of a page, for its checksum
_CHECKPOINT = 16_000_000  # bytes that the WAL may grow by
_PATIENCE = 5_000  # milliseconds, while another process has the file
_HEAD = struct.Struct("<QI")

_TABLES = """
CREATE TABLE model (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER
);
CREATE UNIQUE INDEX model_name ON model (tenant, name) WHERE last IS NULL;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, model INTEGER NOT NULL, time INTEGER NOT NULL,
    id BLOB, key TEXT, digest BLOB, body BLOB NOT NULL
);
CREATE UNIQUE INDEX event_id ON event (id) WHERE id IS NOT NULL;
CREATE UNIQUE INDEX event_key ON event (model, key) WHERE key IS NOT NULL;
CREATE TABLE asked (seq INTEGER PRIMARY KEY, model INTEGER NOT NULL, due INTEGER, told INTEGER);
CREATE INDEX asked_due ON asked (due) WHERE told IS NULL AND due IS NOT NULL;
CREATE INDEX asked_open ON asked (model) WHERE told IS NULL;
CREATE TABLE answer (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE skipped (seq INTEGER PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE snapshot (
    model INTEGER NOT NULL, seq INTEGER NOT NULL, file TEXT NOT NULL, sha256 TEXT NOT NULL,
    build TEXT NOT NULL, PRIMARY KEY (model, seq)
);
CREATE TABLE opened (time INTEGER NOT NULL, build TEXT NOT NULL);
"""


class Entry(NamedTuple):
    """An event with its place in the journal; `time` is in milliseconds of Unix."""

    seq: int
    model: int
    time: int
    event: Any
    has_key: bool = False


class ModelRow(NamedTuple):
    """A model: its number for ever, its tenant and name while it lives, its first event."""

    number: int
    tenant: str
    name: str
    first: int


class SnapshotRow(NamedTuple):
    """A snapshot file, and the last event that is in it."""

    model: int
    seq: int
    file: str
    sha256: str
    build: str


@contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Say of errors within which file cannot be read."""
    try:
        yield
    except apsw.Error as error:
        raise StateFileError(
            f"{folder / NAME} cannot be used: {error}. If the disk is well it is damaged: restore "
            "it from a backup"
        ) from None


def opened(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """Open a database; where its pages have checksums, they are checked."""
    if "cksmvfs" not in apsw.vfs_names():
        apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
    flags = apsw.SQLITE_OPEN_READONLY if read_only else _READ_WRITE
    db = apsw.Connection(os.fspath(path), flags=flags, vfs="cksmvfs")
    db.set_busy_timeout(_PATIENCE)
    # A damaged WAL must stay as it is for whoever wants to save something of it.
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


def has_checksums(path: Path) -> bool:
    """Tell whether the pages of a database carry checksums."""
    with open(path, "rb") as file:
        return file.read(21)[20:] == bytes([_RESERVED])


def reserve_checksums(db: apsw.Connection) -> None:
    """Let the pages of an empty database carry checksums."""
    reserved = ctypes.c_int(_RESERVED)
    db.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(reserved))


_READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class Journal:
    """The events of all models of a folder.

    Within `begin` ... `commit` everything that is added becomes durable together or not at all.

    Attributes
    ----------
    last, before : the number of the last event, now and at `begin`.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder, self._wal = folder, folder / f"{NAME}-wal"
        self._head: int | None = None  # a handle, of who writes
        committed = last_committed(folder)  # before the journal is read, which may grow meanwhile
        if committed and not _size(folder / NAME):
            # SQLite would begin anew, and remove the WAL.
            raise StateFileError(f"{folder / NAME} is gone or empty: restore it from a backup")
        with naming_damage(folder):
            self.db = opened(folder / NAME, read_only=read_only)
        try:
            with naming_damage(folder):
                self._open(read_only)
                self._check_tail(committed)
                if not read_only:
                    # After a sync that failed the WAL may be in memory alone, although it looks
                    # well: what is read from it counts only once it is in the database.
                    self.checkpoint()
        except BaseException:
            self.db.close()
            raise
        if not read_only:
            self._head = os.open(folder / "head", os.O_RDWR | os.O_CREAT, 0o600)

    def _open(self, read_only: bool) -> None:
        if not read_only and not self._value("SELECT count(*) FROM sqlite_schema"):
            self._begin()
        self._check_format()
        if not read_only:
            for setting in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
                self.db.execute(f"PRAGMA {setting}").fetchall()
        self.last = self._value("SELECT coalesce(max(seq), 0) FROM event")

    def _begin(self) -> None:
        reserve_checksums(self.db)
        os.chmod(self.folder / NAME, 0o600)
        self.db.execute("PRAGMA journal_mode=WAL").fetchall()
        with self.db:
            self.db.execute(_TABLES)
            self.db.execute(f"PRAGMA user_version={FORMAT}")

    def _check_format(self) -> None:
        found = self._value("PRAGMA user_version")
        if not 1 <= found <= FORMAT:
            raise StateFileError(
                f"{self.folder / NAME} has format {found}; this folklearn reads formats 1 to "
                f"{FORMAT}: upgrade folklearn to serve this folder"
            )

    def _check_tail(self, committed: int) -> None:
        """Refuse a journal that ends before what was committed: its newest pages were damaged.

        SQLite takes a damaged WAL for one that ends there. The head, written without a sync after
        every commit, is never ahead of the journal unless the end of the journal was lost.
        """
        if committed > self.last:
            raise StateFileError(
                f"{self.folder / NAME} ends with event {self.last}, but event {committed} was "
                "committed: the end of the journal is damaged. Restore it from a backup; to go on "
                f"without what was lost, remove {self.folder / 'head'}"
            )

    def _value(self, statement: str, *values: Any) -> Any:
        row = self.db.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the file; everything that was committed stays."""
        self.db.close()
        if self._head is not None:
            os.close(self._head)

    # Writing.

    def begin(self) -> None:
        """Begin to add events."""
        self.db.execute("BEGIN IMMEDIATE")
        self.before = self.last

    @property
    def is_writing(self) -> bool:
        """Whether what was begun is neither committed nor rolled back."""
        return self.db.in_transaction

    def commit(self) -> None:
        """Make everything durable that was added since `begin`."""
        failpoints.reach("before_commit")
        self.db.execute("COMMIT")
        failpoints.reach("after_commit")
        assert self._head is not None
        os.pwrite(self._head, _HEAD.pack(self.last, _check(self.last)), 0)

    def rollback(self) -> None:
        """Add nothing."""
        self.db.execute("ROLLBACK")
        self.last = self._value("SELECT coalesce(max(seq), 0) FROM event")

    def add(
        self,
        model: int,
        time: int,
        event: events.Event,
        *,
        id: bytes | None = None,
        key: str | None = None,
        digest: bytes | None = None,
    ) -> Entry:
        """Add an event; return it as it was written, with its number."""
        body = events.encode(event)
        own = events.decode(body)  # what is applied now is what a replay will find
        self.last += 1
        self.db.execute(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.last, model, time, id, key, digest, body),
        )
        return Entry(self.last, model, time, own, key is not None)

    def add_model(self, tenant: str, name: str) -> int:
        """Open a model whose first event comes next; return its number."""
        number: int = 1 + self._value("SELECT coalesce(max(number), 0) FROM model")
        self.db.execute(
            "INSERT INTO model VALUES (?, ?, ?, ?, NULL)", (number, tenant, name, self.last + 1)
        )
        return number

    def end_model(self, number: int, seq: int) -> None:
        """Close a model with its last event; its name is free again, and nothing waits."""
        self.db.execute("UPDATE model SET last = ? WHERE number = ?", (seq, number))
        self.db.execute("UPDATE asked SET told = ? WHERE model = ? AND told IS NULL", (seq, number))

    def wait_for(self, seq: int, model: int, due: int | None) -> None:
        """Wait for what came of an event, until a time if there is one."""
        self.db.execute("INSERT INTO asked VALUES (?, ?, ?, NULL)", (seq, model, due))

    def told(self, asked: int, seq: int) -> None:
        """Note by which event an asked one was answered."""
        self.db.execute("UPDATE asked SET told = ? WHERE seq = ?", (seq, asked))

    def wait_again(self, refused: dict[int, int]) -> None:
        """Wait again for what the events, by what was asked, could not tell after all."""
        self.db.executemany(
            "UPDATE asked SET told = NULL WHERE seq = ? AND told = ?", refused.items()
        )

    def add_answers(self, answers: dict[int, bytes]) -> None:
        """Keep answers that cannot be told from their events."""
        self.db.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers.items())

    def add_skipped(self, seq: int, reason: str) -> None:
        """Leave an event out for ever."""
        self.db.execute("INSERT OR IGNORE INTO skipped VALUES (?, ?)", (seq, reason))

    def add_snapshot(self, row: SnapshotRow, keep: int) -> list[str]:
        """Note a snapshot file; return the files of the older ones that are not kept."""
        self.db.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?, ?)", row)
        old = self.db.execute(
            "SELECT seq, file FROM snapshot WHERE model = ? ORDER BY seq DESC LIMIT -1 OFFSET ?",
            (row.model, keep),
        ).fetchall()
        for seq, _ in old:
            self.db.execute("DELETE FROM snapshot WHERE model = ? AND seq = ?", (row.model, seq))
        return [str(file) for _, file in old]

    def forget_snapshots(self) -> None:
        """Note that there are none, in a copy."""
        self.begin()
        self.db.execute("DELETE FROM snapshot")
        self.commit()
        self.checkpoint()

    def add_opened(self, time: int, build: str) -> None:
        """Note that a program of this build goes on with the journal."""
        self.db.execute("INSERT INTO opened VALUES (?, ?)", (time, build))

    def checkpoint(self) -> None:
        """Move the WAL into the database."""
        failpoints.reach("before_checkpoint")
        self.db.set_busy_timeout(0)  # who reads meanwhile keeps the WAL, and nobody waiting
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.db.set_busy_timeout(_PATIENCE)
        failpoints.reach("after_checkpoint")
        self._long = self._wal_size() + _CHECKPOINT

    def checkpoint_if_long(self) -> None:
        """Move the WAL into the database if it has grown long."""
        if self._wal_size() > self._long:
            self.checkpoint()

    def _wal_size(self) -> int:
        return _size(self._wal)

    # Reading.

    def models(self) -> list[ModelRow]:
        """Return the models that live."""
        rows = self.db.execute(
            "SELECT number, tenant, name, first FROM model WHERE last IS NULL ORDER BY number"
        )
        return [ModelRow(*row) for row in rows]

    def entry(self, seq: int) -> Entry:
        """Return one event."""
        row = self.db.execute(
            "SELECT seq, model, time, body FROM event WHERE seq = ?", (seq,)
        ).fetchone()
        assert row is not None
        number, model, time, body = row
        return Entry(number, model, time, events.decode(body))

    def entries(
        self, *, after: int = 0, upto: int | None = None, model: int | None = None
    ) -> Iterator[Entry]:
        """Return events in order, those of one model if it is named."""
        where, values = "seq > ? AND seq <= ?", [after, self.last if upto is None else upto]
        if model is not None:
            where, values = f"{where} AND model = ?", [*values, model]
        rows = self.db.execute(
            f"SELECT seq, model, time, body, key IS NOT NULL FROM event WHERE {where} ORDER BY seq",
            values,
        )
        for seq, number, time, body, has_key in rows:
            yield Entry(seq, number, time, events.decode(body), bool(has_key))

    def by_key(self, model: int, key: str) -> tuple[int, bytes] | None:
        """Return the event that came with a key, and the digest of its request."""
        return self.db.execute(
            "SELECT seq, digest FROM event WHERE model = ? AND key = ?", (model, key)
        ).fetchone()

    def by_id(self, model: int, id: bytes) -> tuple[int, int | None] | None:
        """Return the asked event of an id, and the one that has answered it, if any."""
        return self.db.execute(
            "SELECT event.seq, told FROM event JOIN asked USING (seq) "
            "WHERE id = ? AND event.model = ?",
            (id, model),
        ).fetchone()

    def id_of(self, seq: int) -> bytes | None:
        """Return the id that was issued with an event."""
        found: bytes | None = self._value("SELECT id FROM event WHERE seq = ?", seq)
        return found

    def time_of(self, seq: int) -> int:
        """Return when an event was written, in milliseconds."""
        time: int = self._value("SELECT time FROM event WHERE seq = ?", seq)
        return time

    def answer(self, seq: int) -> bytes | None:
        """Return an answer that was kept."""
        found: bytes | None = self._value("SELECT body FROM answer WHERE seq = ?", seq)
        return found

    def skipped(self) -> dict[int, str]:
        """Return the events that are left out, and why."""
        return dict(self.db.execute("SELECT seq, reason FROM skipped"))

    def snapshots(self, model: int) -> list[SnapshotRow]:
        """Return the snapshots of a model, the newest first."""
        rows = self.db.execute(
            "SELECT model, seq, file, sha256, build FROM snapshot WHERE model = ? "
            "ORDER BY seq DESC",
            (model,),
        )
        return [SnapshotRow(*row) for row in rows]

    def due(self, now: int, most: int) -> list[tuple[int, int]]:
        """Return (event, model) of what has waited too long."""
        rows: Any = self.db.execute(
            "SELECT seq, model FROM asked WHERE told IS NULL AND due <= ? ORDER BY due LIMIT ?",
            (now, most),
        )
        return [(seq, model) for seq, model in rows]

    def n_waiting(self, model: int) -> int:
        """Return how many predictions or decisions of a model wait."""
        count: int = self._value(
            "SELECT count(*) FROM asked WHERE told IS NULL AND model = ?", model
        )
        return count


def last_committed(folder: Path) -> int:
    """Return the number of the last event that the head knows to be committed, 0 if of none."""
    try:
        seq, check = _HEAD.unpack((folder / "head").read_bytes())
    except (OSError, struct.error):
        return 0
    return int(seq) if check == _check(seq) else 0


def _check(seq: int) -> int:
    return zlib.crc32(seq.to_bytes(8, "little"))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


BUILD = json.dumps(
    {
        "folklearn": folklearn.__version__,
        "numba": numba.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
)
