"""Who has logged in to the pages: a cookie that says nothing, and the key behind it."""

import secrets
import time
from http.cookies import CookieError, SimpleCookie

from folklearn.service.http import COOKIE
from folklearn.service.keys import Key, Keys

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
