"""Keys to the service and sessions of browsers; the secrets of keys are not kept."""

import fcntl
import hashlib
import hmac
import math
import os
import re
import secrets
import string
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec
from starlette.requests import cookie_parser

from folklearn.errors import InvalidInputError, StateFileError
from folklearn.service.journal import replace_file
from folklearn.service.limits import DEFAULT_SCOPES, SCOPES, Scope, check_name
from folklearn.utils import join_names

KEY_FILE = "keys.json"
_VERSION = 1  # of the file
_ALPHABET = string.ascii_lowercase + string.digits
_N_ID, _N_SECRET = 12, 50  # letters, of which 50 are 258 bits
_FORM = re.compile(rf"(flk_[a-z0-9]{{{_N_ID}}}_[a-z0-9]{{{_N_SECRET}}})_([0-9a-f]{{8}})")
_ID_SLICE = slice(len("flk_"), len("flk_") + _N_ID)
_REFRESH_SECONDS = 0.5  # between two looks at the file, which other processes may change
_MAX_NOTE = 200
_MAX_LIFETIME_SECONDS = 100 * 365 * 86400


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key without its secret; times are seconds since 1970, None is never."""

    id: str
    digest: bytes  # SHA-256: the secret has 258 random bits, a slow hash would gain nothing
    tenant: str
    model: str | None  # the only one that it allows something on, None for all of the tenant
    scopes: frozenset[Scope]
    note: str
    created: int
    expires: int | None = None
    revoked: int | None = None

    def allows(self, scope: Scope, model: str | None) -> bool:
        """Tell whether it allows a scope on a model of its tenant; None is the tenant itself."""
        return (scope in self.scopes or "admin" in self.scopes) and self.model in (None, model)

    def state(self, now: float) -> Literal["live", "expired", "revoked"]:
        if self.revoked is not None:
            return "revoked"
        return "live" if now < (self.expires or math.inf) else "expired"

    @property
    def can(self) -> str:
        return ", ".join(scope for scope in SCOPES if scope in self.scopes)


# Of a request without a key; compared with for an unknown id, so that time tells nothing.
NO_KEY = Key("", bytes(32), "", None, frozenset(), "", 0, revoked=0)


class _KeyFile(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    digest: str  # of the keys
    keys: msgspec.Raw


class Keys:
    """The keys of a folder, in a file with a digest, which several processes may change.

    Nothing is written before the first key is created, not even the folder.
    """

    def __init__(
        self, folder: str | PathLike[str], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._clock = Path(folder) / KEY_FILE, clock
        self._keys: dict[str, Key] = {}  # by id, the oldest first
        self._refreshed = -math.inf

    def create(
        self,
        *,
        tenant: str = "main",
        model: str | None = None,
        scopes: Collection[str] = DEFAULT_SCOPES,
        note: str = "",
        lifetime: float | None = None,
    ) -> str:
        """Return a new key, whose text is not kept; lifetime is in seconds."""
        check_name("tenant", tenant)
        if model is not None:
            check_name("model", model)
        allowed = frozenset(scope for scope in SCOPES if scope in scopes)
        unknown = sorted(set(scopes) - allowed)
        if unknown or not allowed:
            what = f"there is no scope {unknown[0]!r}" if unknown else "a key needs a scope"
            raise InvalidInputError(f"{what}; choose from: {', '.join(SCOPES)}")
        if "admin" in allowed:  # which implies the others
            allowed = frozenset({"admin"})
        if len(note) > _MAX_NOTE or not note.isprintable():
            raise InvalidInputError(
                f"note must be one line of at most {_MAX_NOTE} characters that can be printed"
            )
        if lifetime is not None and not 1 <= lifetime <= _MAX_LIFETIME_SECONDS:
            raise InvalidInputError(
                "a key must last for a second at least and for 100 years at most; one without an "
                "end needs no time"
            )
        now = int(self._clock())
        expires = None if lifetime is None else now + int(lifetime)
        random = "".join(secrets.choice(_ALPHABET) for _ in range(_N_ID + _N_SECRET))
        id, body = random[:_N_ID], f"flk_{random[:_N_ID]}_{random[_N_ID:]}"
        text = f"{body}_{_checksum(body)}"
        digest = hashlib.sha256(text.encode()).digest()
        key = Key(id, digest, tenant, model, allowed, note, now, expires)
        with self._writing():
            self._keys[id] = key
        return text

    def find(self, text: str) -> Key | None:
        now = self._clock()
        if abs(now - self._refreshed) >= _REFRESH_SECONDS:  # a clock may be set back
            self._refreshed = now
            self._refresh()
        key = self._keys.get(text[_ID_SLICE], NO_KEY)
        digest = hashlib.sha256(text.encode(errors="replace")).digest()
        is_same = hmac.compare_digest(digest, key.digest)
        return key if is_same and key.state(now) == "live" else None

    def all(self) -> list[Key]:
        self._refresh()
        return [*self._keys.values()]

    def live(self) -> list[Key]:
        now = self._clock()
        return [key for key in self.all() if key.state(now) == "live"]

    def revoke(self, id: str) -> None:
        if id not in (ids := [key.id for key in self.all()]):
            # The id is not shown: it may be a whole key, which must not be logged.
            listed = f"there are: {join_names(ids)}" if ids else "there is none at all"
            raise InvalidInputError(f"there is no key of this id in {self._path.parent}; {listed}")
        with self._writing():
            key = self._keys[id]
            if key.revoked is None:
                self._keys[id] = msgspec.structs.replace(key, revoked=int(self._clock()))

    def _refresh(self) -> None:
        try:
            file = msgspec.json.decode(self._path.read_bytes(), type=_KeyFile)
            if file.version > _VERSION:
                raise StateFileError(
                    f"{self._path} was written by a newer version of folklearn: use that one"
                )
            if hashlib.sha256(file.keys).hexdigest() != file.digest:
                raise StateFileError(f"{self._path} cannot be used: it is damaged")
            keys = msgspec.json.decode(file.keys, type=list[Key])
        except FileNotFoundError:
            keys = []
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StateFileError(f"{self._path} cannot be used: {error}") from error
        self._keys = {key.id: key for key in keys}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Let one process at a time change the keys; they are durable afterwards."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self._refresh()
            yield
            keys = msgspec.json.encode([*self._keys.values()])
            file = _KeyFile(_VERSION, hashlib.sha256(keys).hexdigest(), msgspec.Raw(keys))
            replace_file(self._path, msgspec.json.encode(file))
        except OSError as error:
            raise StateFileError(f"{self._path} cannot be written: {error}") from error
        finally:
            os.close(folder)


def is_well_formed(text: str) -> bool:
    match = _FORM.fullmatch(text)
    return match is not None and match[2] == _checksum(match[1])


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


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
        if len(self._keys) >= _MAX_SESSIONS:
            del self._keys[next(iter(self._keys))]  # the oldest, which ends first anyway
        token = secrets.token_urlsafe(32)
        self._keys[token] = text, time.monotonic() + _SESSION_SECONDS
        return token

    def end(self, headers: dict[bytes, bytes]) -> None:
        self._keys.pop(_read_token(headers), None)

    def find(self, headers: dict[bytes, bytes], keys: Keys) -> Key | None:
        text, until = self._keys.get(_read_token(headers), ("", 0.0))
        return keys.find(text) if text and until > time.monotonic() else None


def _read_token(headers: dict[bytes, bytes]) -> str:
    return cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE, "")
