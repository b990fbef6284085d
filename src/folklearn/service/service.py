"""A running service: store, writer, keys, sessions, metrics, and copies of models for reports."""

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
from folklearn.service.http import Traffic
from folklearn.service.keys import Key, Keys, Sessions, is_well_formed
from folklearn.service.limits import Limits
from folklearn.service.model_host import ModelHost
from folklearn.service.states import ModelState, restore_state
from folklearn.service.store import ModelStore
from folklearn.service.writer import Writer

_MAX_COPIES = 8  # of models, kept for the next report
_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class Service:
    """Everything that requests to a folder need.

    Parameters
    ----------
    folder : of journal, keys and snapshots; it is recovered before this returns.
    limits : see `Limits`.
    stop_process : see `Writer`.

    Attributes
    ----------
    verified : last results of `verify`, by model.
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
        self.keys, self.sessions = Keys(folder), Sessions()
        self.metrics, self.traffic = RequestMetrics(self), Traffic(self.limits)
        self._copies: dict[int, tuple[int, ModelState]] = {}
        # Bytes of copies that are still referred to.
        self._sizes: WeakKeyDictionary[ModelState, int] = WeakKeyDictionary()
        self._copying, self._verifying = asyncio.Lock(), asyncio.Lock()
        self.verified: dict[int, dict[str, Any]] = {}

    def close(self) -> None:
        """Do what is queued, write snapshots, and end."""
        self.writer.close()
        self.keys.close()

    def find_key(self, headers: dict[bytes, bytes], *, with_session: bool) -> Key:
        """Return the live key of a request, or of the session that its cookie names.

        A browser sends its cookie with requests of other sites too: where something could change,
        a session is not enough.
        """
        key, header = None, headers.get(b"authorization")
        if header is not None:
            kind, _, text = header.decode("latin-1").partition(" ")
            text = text.strip()
            key = self.keys.find(text) if kind.lower() == "bearer" else None
            if key is None and (kind.lower() != "bearer" or not is_well_formed(text)):
                raise RefusedError(
                    401, "the Authorization header must be 'Bearer flk_...', with a whole key"
                )
            if key is None:
                raise RefusedError(401, "this key is not known, or it has expired or was revoked")
        elif with_session:
            key = self.sessions.find(headers, self.keys)
        if key is None:
            raise RefusedError(401, "a key is needed: send 'Authorization: Bearer flk_...'")
        return key

    async def numbers(self, hosts: Sequence[ModelHost]) -> list[dict[str, Any]]:
        """Return loss, error rate, what waits, and the time of the last change of models."""
        numbers: list[dict[str, Any]] = await self.writer.call(
            lambda: [
                {
                    "name": host.row.name,
                    "version": host.version,
                    **host.state.numbers(),
                    "waiting": self.store.journal.n_waiting(host.number),
                    "changed": host.changed,
                }
                for host in hosts
            ]
        )
        return numbers

    async def copy_state(self, host: ModelHost) -> tuple[int, ModelState]:
        """Return the version of a model and a copy of its state, which no event changes."""
        async with self._copying:  # requests for the same version meanwhile get the same copy
            kept = self._copies.get(host.number)
            if kept is not None and kept[0] == host.version:
                return kept
            n_bytes = round(1.5 * host.n_bytes)  # a record and what is restored from it
            if sum(self._sizes.values()) + n_bytes > self.limits.copies:
                self._copies.clear()
            if sum(self._sizes.values()) + n_bytes > self.limits.copies:
                raise RefusedError(
                    503,
                    f"all copies of models may take {self.limits.copies / 1e6:,.0f} MB, and one of "
                    f"{host.row.name} needs {n_bytes / 1e6:,.0f} MB in addition to those there "
                    "are: try again",
                    retry_after=5,
                )
            version, record = await self.writer.call(lambda: (host.version, host.state.to_record()))
            state = await asyncio.to_thread(restore_state, host.created, record)
            if len(self._copies) >= _MAX_COPIES:
                self._copies.clear()
            self._copies[host.number] = version, state
            self._sizes[state] = host.n_bytes
            return version, state

    async def verify(self, host: ModelHost) -> dict[str, Any]:
        """Replay the journal of a model in another process, and compare the bytes."""
        if self._verifying.locked():
            raise RefusedError(503, "another replay is under way: try again", retry_after=10)
        async with self._verifying:
            version, digest = await self.writer.call(
                lambda: (host.version, host.state.to_record().digest)
            )
            arguments = os.fspath(self.folder), str(host.number), str(version)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "folklearn.service.verify",
                *arguments,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                output, errors = await process.communicate()
            finally:
                if process.returncode is None:  # the request was cancelled
                    process.kill()
            if process.returncode:
                raise RefusedError(503, f"the replay failed: {errors.decode().strip()[-300:]}")
            replayed = json.loads(output)
            is_same, now = replayed["digest"] == digest, self.store.clock()
            self.verified[host.number] = {
                "version": version,
                "same": is_same,
                "time": now,
                **replayed,
            }
            return self.verified[host.number]


class RequestMetrics:
    """Counters of requests for Prometheus; gauges of models and queue are read when asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "folklearn_request_seconds",
            "Time from a request to its answer",
            ["method", "path"],
            registry=self._registry,
            buckets=_BUCKETS_SECONDS,
        )
        self._requests = Counter(
            "folklearn_requests",
            "Answers by status",
            ["method", "path", "status"],
            registry=self._registry,
        )

    def counters(self, method: str, path: str) -> tuple[Histogram, "AnswerCounters"]:
        """Return the seconds and the counters of answers of a route."""
        labels = method, path
        return self._seconds.labels(*labels), AnswerCounters(self._requests, labels)

    def text(self, tenant: str) -> bytes:
        """Return everything about the service, and about the models of a tenant."""
        gauges = CollectorRegistry()
        gauges.register(_Gauges(self._service, tenant))
        return generate_latest(self._registry) + generate_latest(gauges)


class AnswerCounters(dict[int, Counter]):
    """Counters of the answers of a route by status."""

    def __init__(self, requests: Counter, labels: tuple[str, str]) -> None:
        self._requests, self._labels = requests, labels

    def __missing__(self, status: int) -> Counter:
        self[status] = self._requests.labels(*self._labels, str(status))
        return self[status]


class _Gauges:
    def __init__(self, service: Service, tenant: str) -> None:
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
        version, rows, loss, alarms = (
            GaugeMetricFamily(f"folklearn_model_{name}", text, labels=["model"])
            for name, text in (
                ("version", "Number of the last event of a model"),
                ("rows", "Rows learned"),
                ("loss", "Average log loss"),
                ("alarms", "How often the capped loss has risen"),
            )
        )
        for host in self._service.store.models(self._tenant):
            labels, numbers = [host.row.name], host.state.numbers()
            version.add_metric(labels, host.version)
            rows.add_metric(labels, numbers["rows"])
            alarms.add_metric(labels, numbers.get("alarms", 0))
            if numbers["loss"] is not None:
                loss.add_metric(labels, numbers["loss"])
        yield from (version, rows, loss, alarms)
