"""Everything that a running service holds."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from folklearn.service.answers import RefusedError
from folklearn.service.engine import Engine
from folklearn.service.hosted import Hosted
from folklearn.service.http import bearer
from folklearn.service.keys import Key, Keys
from folklearn.service.limits import Limits
from folklearn.service.metrics import RequestMetrics
from folklearn.service.sessions import Sessions
from folklearn.service.states import State, begun
from folklearn.service.traffic import Traffic
from folklearn.service.writer import Writer

_MOST_COPIES = 8  # of models that somebody has looked at


class Service:
    """The models of a folder, the keys to them, and who watches.

    Parameters
    ----------
    folder : of journal, keys and snapshots; it is recovered before this returns.
    limits : see `Limits`.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        *,
        stop_process: Callable[[int], Any] = os._exit,
    ) -> None:
        self.folder, self.limits = folder, limits or Limits()
        self.engine = Engine(folder, self.limits)
        self.writer = Writer(self.engine, stop_process)
        self.keys = Keys(folder)
        self.sessions = Sessions()
        self.metrics = RequestMetrics(self)
        self.traffic = Traffic(self.limits)
        self._copies: dict[int, tuple[int, State]] = {}
        # Of copies that somebody still holds, in bytes.
        self._sizes: WeakKeyDictionary[State, int] = WeakKeyDictionary()
        self._copying = asyncio.Lock()
        self.verified: dict[int, dict[str, Any]] = {}  # last results, by model
        self._verifying = asyncio.Lock()

    def close(self) -> None:
        """Do what is queued, snapshot, and end."""
        self.writer.close()
        self.keys.close()

    def key_of(self, headers: dict[bytes, bytes], *, with_session: bool) -> Key:
        """Return the live key of a request, or of the session that its cookie names.

        A browser sends its cookie whoever makes it ask: where something could change, a session
        is not enough.
        """
        text = bearer(headers)
        if text is not None:
            key = self.keys.find(text)
            if key is None:
                raise RefusedError(401, "this key is not known, or it has expired or was revoked")
            return key
        own = self.sessions.find(headers, self.keys) if with_session else None
        if own is None:
            raise RefusedError(401, "a key is needed: send 'Authorization: Bearer flk_...'")
        return own

    async def numbers(self, models: Sequence[Hosted]) -> list[dict[str, Any]]:
        """Return models in numbers: how each does, what waits, and when it changed."""
        journal = self.engine.journal
        found: list[dict[str, Any]] = await self.writer.call(
            lambda: [
                {
                    "name": hosted.row.name,
                    "version": hosted.version,
                    **hosted.state.numbers(),
                    "waiting": journal.n_waiting(hosted.number),
                    "changed": journal.time_of(hosted.version),
                }
                for hosted in models
            ]
        )
        return found

    async def copy_of(self, hosted: Hosted) -> tuple[int, State]:
        """Return the version of a model and a copy of its state, to be looked at in peace."""
        async with self._copying:  # who asks for the same meanwhile gets the same
            kept = self._copies.get(hosted.number)
            if kept is not None and kept[0] == hosted.version:
                return kept
            return await self._copied(hosted)

    async def _copied(self, hosted: Hosted) -> tuple[int, State]:
        n_bytes = round(1.5 * hosted.n_bytes)  # a record, and what is made of it, without a view
        if sum(self._sizes.values()) + n_bytes > self.limits.copies:
            self._copies.clear()
        if sum(self._sizes.values()) + n_bytes > self.limits.copies:
            raise RefusedError(
                503,
                f"all copies of models may take {self.limits.copies / 1e6:,.0f} MB, and one of "
                f"{hosted.row.name} needs {n_bytes / 1e6:,.0f} MB beside those there are: try "
                "again",
                retry_after=5,
            )
        version, record = await self.writer.call(lambda: (hosted.version, hosted.state.to_record()))
        state = await asyncio.to_thread(begun, hosted.created, record)
        if len(self._copies) >= _MOST_COPIES:
            self._copies.clear()
        self._copies[hosted.number] = version, state
        self._sizes[state] = hosted.n_bytes
        return version, state

    async def verify(self, hosted: Hosted) -> dict[str, Any]:
        """Replay the journal of a model in another process, and compare the bytes."""
        if self._verifying.locked():
            raise RefusedError(503, "another replay is under way: try again", retry_after=10)
        async with self._verifying:
            return await self._verify(hosted)

    async def _verify(self, hosted: Hosted) -> dict[str, Any]:
        version, digest = await self.writer.call(
            lambda: (hosted.version, hosted.state.to_record().digest)
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "folklearn.service.verify",
            os.fspath(self.folder),
            str(hosted.number),
            str(version),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:  # nobody waits any more
                process.kill()
        if process.returncode:
            raise RefusedError(503, f"the replay failed: {errors.decode().strip()[-300:]}")
        found = json.loads(output)
        result = {
            "version": version,
            "same": found["digest"] == digest,
            "time": self.engine.clock(),
            **found,
        }
        self.verified[hosted.number] = result
        return result
