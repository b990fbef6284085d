"""Everything that a running service holds."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from folklearn.service.events import RefusedError
from folklearn.service.http import Traffic, bearer
from folklearn.service.keys import Key, Keys, Sessions
from folklearn.service.limits import Limits
from folklearn.service.model_host import ModelHost
from folklearn.service.states import State, begun
from folklearn.service.store import ModelStore
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
        self.store = ModelStore(folder, self.limits)
        self.writer = Writer(self.store, stop_process)
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

    async def numbers(self, models: Sequence[ModelHost]) -> list[dict[str, Any]]:
        """Return models in numbers: how each does, what waits, and when it changed."""
        journal = self.store.journal
        found: list[dict[str, Any]] = await self.writer.call(
            lambda: [
                {
                    "name": host.row.name,
                    "version": host.version,
                    **host.state.numbers(),
                    "waiting": journal.n_waiting(host.number),
                    "changed": journal.time_of(host.version),
                }
                for host in models
            ]
        )
        return found

    async def copy_of(self, host: ModelHost) -> tuple[int, State]:
        """Return the version of a model and a copy of its state, to be looked at in peace."""
        async with self._copying:  # who asks for the same meanwhile gets the same
            kept = self._copies.get(host.number)
            if kept is not None and kept[0] == host.version:
                return kept
            return await self._copied(host)

    async def _copied(self, host: ModelHost) -> tuple[int, State]:
        n_bytes = round(1.5 * host.n_bytes)  # a record, and what is made of it, without a view
        if sum(self._sizes.values()) + n_bytes > self.limits.copies:
            self._copies.clear()
        if sum(self._sizes.values()) + n_bytes > self.limits.copies:
            raise RefusedError(
                503,
                f"all copies of models may take {self.limits.copies / 1e6:,.0f} MB, and one of "
                f"{host.row.name} needs {n_bytes / 1e6:,.0f} MB beside those there are: try "
                "again",
                retry_after=5,
            )
        version, record = await self.writer.call(lambda: (host.version, host.state.to_record()))
        state = await asyncio.to_thread(begun, host.created, record)
        if len(self._copies) >= _MOST_COPIES:
            self._copies.clear()
        self._copies[host.number] = version, state
        self._sizes[state] = host.n_bytes
        return version, state

    async def verify(self, host: ModelHost) -> dict[str, Any]:
        """Replay the journal of a model in another process, and compare the bytes."""
        if self._verifying.locked():
            raise RefusedError(503, "another replay is under way: try again", retry_after=10)
        async with self._verifying:
            return await self._verify(host)

    async def _verify(self, host: ModelHost) -> dict[str, Any]:
        version, digest = await self.writer.call(
            lambda: (host.version, host.state.to_record().digest)
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "folklearn.service.verify",
            os.fspath(self.folder),
            str(host.number),
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
            "time": self.store.clock(),
            **found,
        }
        self.verified[host.number] = result
        return result


_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class RequestMetrics:
    """Counters of requests; what models and the queue are like is looked up when it is asked."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "folklearn_request_seconds",
            "Time from a request to its answer",
            ["method", "path"],
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._requests = Counter(
            "folklearn_requests",
            "Answers by status",
            ["method", "path", "status"],
            registry=self._registry,
        )
        self._known: dict[Any, Any] = {}

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        found = self._known.get((method, path, status))
        if found is None:
            found = (
                self._seconds.labels(method, path),
                self._requests.labels(method, path, str(status)),
            )
            self._known[method, path, status] = found
        found[0].observe(seconds)
        found[1].inc()

    def text(self, tenant: str) -> bytes:
        """Return everything about the service, and about the models of a tenant."""
        own = CollectorRegistry()
        own.register(_Models(self._service, tenant))
        return generate_latest(self._registry) + generate_latest(own)


class _Models:
    def __init__(self, service: "Service", tenant: str) -> None:
        self._service, self._tenant = service, tenant

    def collect(self) -> Iterator[Any]:
        writer, memory = self._service.writer, self._service.store.memory
        for name, text, value in (
            ("folklearn_queue_length", "Requests that wait for the writer", writer.n_queued),
            ("folklearn_commits", "Commits since the start", writer.n_batches),
            ("folklearn_events", "Requests written since the start", writer.n_events),
            ("folklearn_memory_bytes", "Bytes that all models take, about", memory.n_bytes),
            ("folklearn_memory_limit_bytes", "Bytes that all models may take", memory.limit),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        version = GaugeMetricFamily(
            "folklearn_model_version", "Number of the last event of a model", labels=["model"]
        )
        rows = GaugeMetricFamily("folklearn_model_rows", "Rows learned", labels=["model"])
        loss = GaugeMetricFamily("folklearn_model_loss", "Average log loss", labels=["model"])
        alarms = GaugeMetricFamily(
            "folklearn_model_alarms", "How often the capped loss has risen", labels=["model"]
        )
        for host in self._service.store.models(self._tenant):
            version.add_metric([host.row.name], host.version)
            numbers = host.state.numbers()
            rows.add_metric([host.row.name], numbers["rows"])
            alarms.add_metric([host.row.name], numbers.get("alarms", 0))
            if numbers["loss"] is not None:
                loss.add_metric([host.row.name], numbers["loss"])
        yield from (version, rows, loss, alarms)
