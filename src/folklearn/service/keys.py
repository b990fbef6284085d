"""Keys to the service: who may do what with which model. Their secrets are not kept."""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import string
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from os import PathLike
from pathlib import Path
from typing import Literal

import apsw

from folklearn.errors import InvalidInputError, StateFileError
from folklearn.service.limits import SCOPES, USUAL, Scope, check_name
from folklearn.utils import listed

State = Literal["live", "expired", "revoked"]

_ALPHABET = string.ascii_lowercase + string.digits
_ID, _SECRET = 12, 50  # letters, of which 50 are 258 bits
_FORM = re.compile(rf"(flk_[a-z0-9]{{{_ID}}}_[a-z0-9]{{{_SECRET}}})_([0-9a-f]{{8}})")
_PLACE_OF_ID = slice(len("flk_"), len("flk_") + _ID)
_NOBODY = bytes(32), None  # compared with where there is no such id, so that time tells nothing

_VERSION = 1  # of the table
_TABLE = f"""
CREATE TABLE IF NOT EXISTS key (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL, tenant TEXT NOT NULL, model TEXT,
    scopes TEXT NOT NULL, note TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER,
    revoked INTEGER
) STRICT;
PRAGMA user_version = {_VERSION};
"""
_PATIENCE = 5000  # milliseconds, while another process writes
_GLANCE = 0.5  # seconds between two looks at what other processes have changed
_MOST_ALIKE = 2  # one in use, and one to change to
_LONGEST_NOTE = 200
_LONGEST_LIFE = 100 * 365 * 86400  # seconds


@dataclass(frozen=True)
class Key:
    """What is known about a key; times are seconds since 1970.

    Parameters
    ----------
    scopes : what it is for.
    model : the only model that it is for, None for all of the tenant.
    expires, revoked : when it ends, None for never; when it was ended.
    """

    id: str
    tenant: str
    model: str | None
    scopes: frozenset[Scope]
    note: str
    created: int
    expires: int | None
    revoked: int | None

    def allows(self, scope: Scope, model: str | None) -> bool:
        """Tell whether it may do this with a model of its tenant; None is the tenant itself."""
        return (scope in self.scopes or "admin" in self.scopes) and self.model in (None, model)

    def state(self, now: float) -> State:
        """Return what has become of it."""
        if self.revoked is not None:
            return "revoked"
        return "live" if self.expires is None or now < self.expires else "expired"

    @property
    def can(self) -> str:
        """Its scopes, in words."""
        return ", ".join(scope for scope in SCOPES if scope in self.scopes)

    @property
    def purpose(self) -> str:
        """What it is for, in words."""
        models = "all models" if self.model is None else f"model {self.model!r}"
        return f"{self.can} on {models} of tenant {self.tenant!r}"


class Keys:
    """The keys of a folder, kept in `keys.db`; belongs to one thread.

    Several processes may use the same folder: what one changes, the others notice within a
    second. Nothing is written before the first key is created, not even the folder.

    Parameters
    ----------
    clock : tells the seconds since 1970.
    ticks : tells seconds that never go back, to look at the disk only now and then.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(folder) / "keys.db"
        self._clock, self._ticks = clock, ticks
        self._database: apsw.Connection | None = None
        self._known: dict[str, tuple[bytes, Key]] = {}
        self._version: int | None = None  # of the data that is known, to this connection
        self._looked = float("-inf")

    def create(
        self,
        *,
        tenant: str = "main",
        model: str | None = None,
        scopes: Collection[str] = USUAL,
        note: str = "",
        lifetime: float | None = None,
    ) -> str:
        """Return a new key, which nobody can find out again; lifetime is in seconds.

        There are two live keys for the same purpose at most: to replace one, create another,
        let everybody change to it, and revoke the first.
        """
        check_name("tenant", tenant)
        if model is not None:
            check_name("model", model)
        if len(note) > _LONGEST_NOTE or not note.isprintable():
            raise InvalidInputError(
                f"note must be one line of at most {_LONGEST_NOTE} characters that can be printed"
            )
        now = int(self._clock())
        expires = None if lifetime is None else now + _as_life(lifetime)
        id, secret = _drawn(_ID), _drawn(_SECRET)
        body = f"flk_{id}_{secret}"
        text = f"{body}_{_checksum(body)}"
        key = Key(id, tenant, model, _as_scopes(scopes), note, now, expires, None)
        with self._writing() as database:
            alike = [one for one in self._live() if one.purpose == key.purpose]
            if len(alike) >= _MOST_ALIKE:
                raise InvalidInputError(
                    f"there are {len(alike)} live keys for {key.purpose} already: "
                    f"{listed([one.id for one in alike])}; revoke the one that nobody uses any "
                    f"more, probably the oldest, {alike[0].id}"
                )
            can = " ".join(sorted(key.scopes))
            database.execute(
                "INSERT INTO key VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (id, _digest(text), tenant, model, can, note, now, expires),
            )
        return text

    def find(self, text: str) -> Key | None:
        """Return the live key of this text, None if there is none."""
        ticks = self._ticks()
        if ticks - self._looked >= _GLANCE:
            self._looked = ticks
            self._look()
        digest, key = self._known.get(text[_PLACE_OF_ID], _NOBODY)
        is_same = hmac.compare_digest(_digest(text), digest)
        return key if key and is_same and key.state(self._clock()) == "live" else None

    def all(self) -> list[Key]:
        """Return every key there ever was, the oldest first."""
        self._look()
        return [key for _, key in self._known.values()]

    def live(self) -> list[Key]:
        """Return the keys that can be used, the oldest first."""
        self._look()
        return self._live()

    def revoke(self, id: str) -> None:
        """End a key for ever; one that was revoked before stays as it is."""
        if id not in (known := [key.id for key in self.all()]):
            # What was given may be a whole key, and has no business in a log.
            raise InvalidInputError(
                f"there is no key of this id in {self._path.parent}; "
                + (f"there are: {listed(known)}" if known else "there is none at all")
            )
        with self._writing() as database:
            database.execute(
                "UPDATE key SET revoked = ? WHERE id = ? AND revoked IS NULL",
                (int(self._clock()), id),
            )

    def close(self) -> None:
        """Let go of the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def __repr__(self) -> str:
        return f"Keys({str(self._path.parent)!r})"

    def _live(self) -> list[Key]:
        now = self._clock()
        return [key for _, key in self._known.values() if key.state(now) == "live"]

    def _look(self) -> None:
        """See what has changed on the disk, if anything has."""
        if self._database is None and not self._path.exists():
            return
        with self._named_errors():
            database = self._opened()
            version = database.pragma("data_version")
            if version != self._version:
                self._read(database)
                self._version = version

    def _read(self, database: apsw.Connection) -> None:
        rows = database.execute("SELECT * FROM key ORDER BY created, rowid")
        self._known = {
            id: (digest, Key(id, tenant, model, frozenset(scopes.split()), *rest))
            for id, digest, tenant, model, scopes, *rest in rows
        }

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """Let what happens within become durable as a whole, or not at all."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._named_errors():
            database = self._opened()
            with database:
                self._read(database)
                yield database
            self._read(database)

    def _opened(self) -> apsw.Connection:
        if self._database is None:
            if not self._path.exists():
                self._path.touch(mode=0o600)  # SQLite gives the files beside it the same mode
            database = apsw.Connection(str(self._path))
            database.set_busy_timeout(_PATIENCE)
            database.transaction_mode = "IMMEDIATE"
            with self._alone():  # SQLite's patience does not cover a change to WAL
                database.pragma("journal_mode", "wal")
                database.pragma("synchronous", "full")
                if database.pragma("user_version") == 0:
                    with database:
                        database.execute(_TABLE)
            if database.pragma("user_version") != _VERSION:
                raise StateFileError(
                    f"{self._path} was written by a newer version of folklearn: use that one"
                )
            self._database, self._version = database, None
        return self._database

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process begin with the file within."""
        # The folder, because to close the file itself would undo the locks of SQLite.
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise StateFileError(f"{self._path} cannot be used: {error}") from error


def is_whole(text: str) -> bool:
    """Tell whether a text is a key at all: nothing is missing, and no letter is another one."""
    found = _FORM.fullmatch(text)
    return found is not None and found[2] == _checksum(found[1])


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _digest(text: str) -> bytes:
    """Return what is kept; nobody can guess a random secret, so a slow hash would gain nothing."""
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _drawn(n: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(n))


def _as_scopes(given: Collection[str]) -> frozenset[Scope]:
    scopes = frozenset(scope for scope in SCOPES if scope in given)
    unknown = sorted(set(given) - scopes)
    if unknown or not scopes:
        what = f"there is no scope {unknown[0]!r}" if unknown else "a key needs a scope"
        raise InvalidInputError(f"{what}; choose from: {', '.join(SCOPES)}")
    return frozenset({"admin"}) if "admin" in scopes else scopes  # which implies the others


def _as_life(seconds: float) -> int:
    if not 1 <= seconds <= _LONGEST_LIFE:
        raise InvalidInputError(
            "a key must last for a second at least and for 100 years at most; one without an end "
            "needs no time"
        )
    return int(seconds)


COOKIE = "folklearn_session"
_LIFE = 12 * 3600.0  # seconds
_MOST = 10_000


class Sessions:
    """Sessions of browsers, in memory: a restart logs everybody out.

    A session holds the text of its key, so that a key that is revoked ends its sessions too.
    """

    def __init__(self) -> None:
        self._keys: dict[str, tuple[str, float]] = {}

    def begin(self, text: str) -> str:
        """Return the token of a new session for a key."""
        if len(self._keys) >= _MOST:
            del self._keys[next(iter(self._keys))]  # the oldest, which ends first anyway
        token = secrets.token_urlsafe(32)
        self._keys[token] = text, time.monotonic() + _LIFE
        return token

    def end(self, headers: dict[bytes, bytes]) -> None:
        """Forget the session of a request."""
        self._keys.pop(_token(headers), None)

    def find(self, headers: dict[bytes, bytes], keys: Keys) -> Key | None:
        """Return the live key of the session that a request names, if any."""
        text, until = self._keys.get(_token(headers), ("", 0.0))
        return keys.find(text) if text and until > time.monotonic() else None


def _token(headers: dict[bytes, bytes]) -> str:
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
