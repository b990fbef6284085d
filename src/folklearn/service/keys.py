"""Keys to the service and sessions of browsers; the secrets of keys are not kept."""

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
from folklearn.service.limits import DEFAULT_SCOPES, SCOPES, Scope, check_name
from folklearn.utils import join_names

KeyState = Literal["live", "expired", "revoked"]

_ALPHABET = string.ascii_lowercase + string.digits
_N_ID, _N_SECRET = 12, 50  # letters, of which 50 are 258 bits
_FORM = re.compile(rf"(flk_[a-z0-9]{{{_N_ID}}}_[a-z0-9]{{{_N_SECRET}}})_([0-9a-f]{{8}})")
_ID_SLICE = slice(len("flk_"), len("flk_") + _N_ID)
_UNKNOWN_KEY = bytes(32), None  # compared with for an unknown id, so that time tells nothing

_VERSION = 1  # of the table
_TABLE = f"""
CREATE TABLE IF NOT EXISTS key (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL, tenant TEXT NOT NULL, model TEXT,
    scopes TEXT NOT NULL, note TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER,
    revoked INTEGER
) STRICT;
PRAGMA user_version = {_VERSION};
"""
# A random secret of 258 bits cannot be guessed: a slow hash would gain nothing.
_HASH = hashlib.sha256
_BUSY_TIMEOUT_MS = 5000  # while another process writes
_REFRESH_SECONDS = 0.5  # between two searches for changes by other processes
_MAX_KEYS_PER_PURPOSE = 2  # one in use, and one to change to
_MAX_NOTE = 200
_MAX_LIFETIME_SECONDS = 100 * 365 * 86400


@dataclass(frozen=True)
class Key:
    """A key without its secret; times are seconds since 1970.

    Parameters
    ----------
    scopes : operations that it allows.
    model : the only model that it allows them on, None for all of the tenant.
    expires, revoked : when it ends and when it was revoked, None for never.
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
        """Tell whether it allows a scope on a model of its tenant; None is the tenant itself."""
        return (scope in self.scopes or "admin" in self.scopes) and self.model in (None, model)

    def state(self, now: float) -> KeyState:
        """Return whether it can be used, and if not, why."""
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

    Several processes may use the same folder: a change by one is effective in the others within a
    second. Nothing is written before the first key is created, not even the folder.

    Parameters
    ----------
    clock : returns seconds since 1970.
    ticks : returns monotonic seconds, by which the file is read again now and then.
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
        self._keys: dict[str, tuple[bytes, Key]] = {}
        self._version: int | None = None  # data_version of what was read
        self._refreshed = float("-inf")

    def create(
        self,
        *,
        tenant: str = "main",
        model: str | None = None,
        scopes: Collection[str] = DEFAULT_SCOPES,
        note: str = "",
        lifetime: float | None = None,
    ) -> str:
        """Return a new key, whose text is not kept; lifetime is in seconds.

        There are two live keys for the same purpose at most: to replace one, create another,
        let all clients change to it, and revoke the first.
        """
        check_name("tenant", tenant)
        if model is not None:
            check_name("model", model)
        if len(note) > _MAX_NOTE or not note.isprintable():
            raise InvalidInputError(
                f"note must be one line of at most {_MAX_NOTE} characters that can be printed"
            )
        now = int(self._clock())
        expires = None if lifetime is None else now + _check_lifetime(lifetime)
        id, secret = _draw_letters(_N_ID), _draw_letters(_N_SECRET)
        body = f"flk_{id}_{secret}"
        text = f"{body}_{_checksum(body)}"
        key = Key(id, tenant, model, _check_scopes(scopes), note, now, expires, None)
        with self._writing() as database:
            alike = [other for other in self._live() if other.purpose == key.purpose]
            if len(alike) >= _MAX_KEYS_PER_PURPOSE:
                raise InvalidInputError(
                    f"there are {len(alike)} live keys for {key.purpose} already: "
                    f"{join_names([other.id for other in alike])}; revoke the one "
                    "that is not used any "
                    f"more, probably the oldest, {alike[0].id}"
                )
            can = " ".join(sorted(key.scopes))
            database.execute(
                "INSERT INTO key VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (id, _HASH(text.encode()).digest(), tenant, model, can, note, now, expires),
            )
        return text

    def find(self, text: str) -> Key | None:
        """Return the live key of this text, None if there is none."""
        ticks = self._ticks()
        if ticks - self._refreshed >= _REFRESH_SECONDS:
            self._refreshed = ticks
            self._refresh()
        digest, key = self._keys.get(text[_ID_SLICE], _UNKNOWN_KEY)
        is_same = hmac.compare_digest(_HASH(text.encode(errors="replace")).digest(), digest)
        return key if key and is_same and key.state(self._clock()) == "live" else None

    def all(self) -> list[Key]:
        """Return all keys, also expired and revoked ones, the oldest first."""
        self._refresh()
        return [key for _, key in self._keys.values()]

    def live(self) -> list[Key]:
        """Return the keys that can be used, the oldest first."""
        self._refresh()
        return self._live()

    def revoke(self, id: str) -> None:
        """Revoke a key; one that was revoked before stays as it is."""
        if id not in (ids := [key.id for key in self.all()]):
            # The id is not shown: it may be a whole key, which must not be logged.
            raise InvalidInputError(
                f"there is no key of this id in {self._path.parent}; "
                + (f"there are: {join_names(ids)}" if ids else "there is none at all")
            )
        with self._writing() as database:
            database.execute(
                "UPDATE key SET revoked = ? WHERE id = ? AND revoked IS NULL",
                (int(self._clock()), id),
            )

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def __repr__(self) -> str:
        return f"Keys({str(self._path.parent)!r})"

    def _live(self) -> list[Key]:
        now = self._clock()
        return [key for _, key in self._keys.values() if key.state(now) == "live"]

    def _refresh(self) -> None:
        """Read the keys again if another connection has changed them."""
        if self._database is None and not self._path.exists():
            return
        with self._name_file_in_errors():
            database = self._open()
            version = database.pragma("data_version")
            if version != self._version:
                self._read_keys(database)
                self._version = version

    def _read_keys(self, database: apsw.Connection) -> None:
        rows = database.execute("SELECT * FROM key ORDER BY created, rowid")
        self._keys = {
            id: (digest, Key(id, tenant, model, frozenset(scopes.split()), *rest))
            for id, digest, tenant, model, scopes, *rest in rows
        }

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._name_file_in_errors():
            database = self._open()
            with database:
                self._read_keys(database)
                yield database
            self._read_keys(database)

    def _open(self) -> apsw.Connection:
        if self._database is None:
            if not self._path.exists():
                self._path.touch(mode=0o600)  # SQLite gives its other files the same mode
            database = apsw.Connection(str(self._path))
            database.set_busy_timeout(_BUSY_TIMEOUT_MS)
            database.transaction_mode = "IMMEDIATE"
            with self._lock_folder():  # SQLite's timeout does not cover a change to WAL
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
    def _lock_folder(self) -> Iterator[None]:
        # The folder, because to close the file itself would undo the locks of SQLite.
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    @contextmanager
    def _name_file_in_errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise StateFileError(f"{self._path} cannot be used: {error}") from error


def is_well_formed(text: str) -> bool:
    """Tell whether a text has the form and the checksum of a key."""
    match = _FORM.fullmatch(text)
    return match is not None and match[2] == _checksum(match[1])


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _draw_letters(n: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(n))


def _check_scopes(names: Collection[str]) -> frozenset[Scope]:
    scopes = frozenset(scope for scope in SCOPES if scope in names)
    unknown = sorted(set(names) - scopes)
    if unknown or not scopes:
        what = f"there is no scope {unknown[0]!r}" if unknown else "a key needs a scope"
        raise InvalidInputError(f"{what}; choose from: {', '.join(SCOPES)}")
    return frozenset({"admin"}) if "admin" in scopes else scopes  # which implies the others


def _check_lifetime(seconds: float) -> int:
    if not 1 <= seconds <= _MAX_LIFETIME_SECONDS:
        raise InvalidInputError(
            "a key must last for a second at least and for 100 years at most; one without an end "
            "needs no time"
        )
    return int(seconds)


COOKIE = "folklearn_session"
_SESSION_SECONDS = 12 * 3600.0
_MAX_SESSIONS = 10_000


class Sessions:
    """Sessions of browsers, in memory: a restart ends them.

    A session holds the text of its key, so that a key that is revoked ends its sessions too.
    """

    def __init__(self) -> None:
        self._keys: dict[str, tuple[str, float]] = {}

    def begin(self, text: str) -> str:
        """Return the token of a new session for a key."""
        if len(self._keys) >= _MAX_SESSIONS:
            del self._keys[next(iter(self._keys))]  # the oldest, which ends first anyway
        token = secrets.token_urlsafe(32)
        self._keys[token] = text, time.monotonic() + _SESSION_SECONDS
        return token

    def end(self, headers: dict[bytes, bytes]) -> None:
        """Forget the session of a request."""
        self._keys.pop(_read_token(headers), None)

    def find(self, headers: dict[bytes, bytes], keys: Keys) -> Key | None:
        """Return the live key of the session that a request names, if any."""
        text, until = self._keys.get(_read_token(headers), ("", 0.0))
        return keys.find(text) if text and until > time.monotonic() else None


def _read_token(headers: dict[bytes, bytes]) -> str:
    try:
        cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value
