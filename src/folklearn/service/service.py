"""A running service: the thread that writes, keys, sessions, metrics, and copies of models."""

import asyncio
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import apsw
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from folklearn.errors import FolklearnError
from folklearn.service.events import RefusedError
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.keys import Key, Keys, Sessions, is_well_formed
from folklearn.service.limits import Limits
from folklearn.service.retention import Work
from folklearn.service.states import ModelState, restore_state
from folklearn.service.store import ModelStore, replay

log = logging.getLogger("folklearn.service")

_EXPIRY_SECONDS = 0.5  # between two searches for what has expired
_SWEEP_SECONDS = 0.25  # between two searches for jobs that have waited too long
_PUBLISH_SECONDS = 0.005  # between two attempts to publish, while nothing else is to be done
_NEARLY_FULL = 0.8  # of the queue: health says so
_MAX_JOBS_PER_COMMIT = 2_000
_MAX_BYTES_PER_COMMIT = 8_000_000  # so that jobs behind large ones are refused in time
IO_ERROR = 74  # exit code
_BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class Gate:
    """What every process that answers requests has: keys, limits, and models to look up."""

    submit: Callable[..., Any]  # see `Writer.submit`
    observe: Callable[[str, str, int, float], None]  # counts an answer
    is_worker = has_workers = False

    def __init__(
        self, folder: Path, limits: Limits, hosts: dict[tuple[str, str], Any], n_sharing: int = 1
    ) -> None:
        self.folder, self.limits, self.hosts = folder, limits, hosts
        self.n_sharing = n_sharing  # processes that share the limits of traffic and queue
        # Bytes that this one may hold: enough for one request at least.
        one = limits.body + limits.answer
        self.traffic_part = max(limits.traffic // n_sharing, min(limits.traffic, one))
        self.keys, self.sessions = Keys(folder), Sessions()
        self.n_traffic_bytes = 0  # of large requests and answers under way, over all clients
        # Where other processes predict: waits until all that they remember was handed over, and
        # they know what was announced.
        self.gather: Callable[[], Awaitable[Any]] = partial(asyncio.sleep, 0)

    def find_key(self, headers: dict[bytes, bytes], *, with_session: bool) -> Key:
        """Return the live key of a request, or of the session that its cookie names."""
        key, header = None, headers.get(b"authorization")
        if header is not None:
            kind, _, text = header.decode("latin-1").partition(" ")
            text = text.strip()
            key = self.keys.find(text) if kind.lower() == "bearer" else None
            if key is None and not (kind.lower() == "bearer" and is_well_formed(text)):
                raise RefusedError(401, "Authorization must be 'Bearer flk_...', with a whole key")
            if key is None:
                raise RefusedError(401, "this key is not known, or it has expired or was revoked")
        elif with_session:  # not where something could change: other sites send the cookie too
            key = self.sessions.find(headers, self.keys)
        if key is None:
            raise RefusedError(401, "a key is needed: send 'Authorization: Bearer flk_...'")
        return key


class Service(Gate):
    """Everything that requests to a folder need; the folder is recovered before this returns."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.store = ModelStore(folder, limits or Limits())
        super().__init__(folder, self.store.limits, self.store.hosts)
        self.writer, self.registry = Writer(self.store), CollectorRegistry()
        self.close, self.submit = self.writer.close, self.writer.submit
        request_seconds = Histogram(
            "folklearn_request_seconds",
            "Time from a request to its answer",
            ["method", "path", "status"],
            registry=self.registry,
            buckets=_BUCKETS_SECONDS,
        )
        self._timer = cache(request_seconds.labels)
        # By model and version, while a request refers to them.
        self._copies: WeakValueDictionary[tuple[int, int], ModelState] = WeakValueDictionary()
        self._copying, self._verifying = asyncio.Lock(), asyncio.Lock()
        self.drop_pages: Callable[[], None] = lambda: None  # which hold copies: `ModelPageCache`
        self.looking = ThreadPoolExecutor(1, "folklearn-copies")
        self.verified: dict[int, dict[str, Any]] = {}  # last results by model

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        self._timer(method, path, status).observe(seconds)

    async def numbers(self, hosts: Sequence[ModelHost]) -> Any:
        return await self.writer.submit(
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

    @property
    def _n_copied(self) -> int:
        return sum(copy.n_bytes for copy in self._copies.values())

    async def copy_state(self, host: ModelHost) -> tuple[int, ModelState]:
        """Return the version of a model and a copy of its state, which no event changes."""
        async with self._copying:  # requests for the same version meanwhile get the same copy
            version = host.version
            state = self._copies.get((host.number, version))
            if state is not None:
                return version, state
            n_bytes = round(1.5 * host.n_bytes)  # a record and what is restored from it
            if self._n_copied + n_bytes > self.limits.copies:
                self.drop_pages()
            if self._n_copied + n_bytes > self.limits.copies:
                raise RefusedError(
                    503,
                    f"all copies of models may take {self.limits.copies / 1e6:,.0f} MB, and one of "
                    f"{host.row.name} needs {n_bytes / 1e6:,.0f} MB in addition to those there "
                    "are: try again",
                    retry_after=5,
                    limit=f"copies={self.limits.copies}",
                )
            version, record = await self.writer.submit(
                lambda: (host.version, host.state.to_record())
            )
            state = await asyncio.to_thread(restore_state, host.created, record)
            self._copies[host.number, version] = state
            return version, state

    async def look(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do what reads a copy, in the one thread for it: a model is for one thread at a time."""
        return await asyncio.get_running_loop().run_in_executor(self.looking, work, *arguments)

    async def verify(self, host: ModelHost) -> dict[str, Any]:
        if self._verifying.locked():
            raise RefusedError(503, "another replay is under way: try again", retry_after=10)
        async with self._verifying:
            await self.gather()  # so that the replay has all predictions of this version
            version, digest = await self.writer.submit(
                lambda: (host.version, host.state.to_record().digest)
            )
            work = Work(replay, self.folder, number=host.number, version=version)
            try:
                replayed = await asyncio.to_thread(work.result)
            except FolklearnError as error:
                raise RefusedError(503, f"the replay failed: {error}") from None
            finally:
                work.stop()
            is_same, now = replayed["digest"] == digest, self.store.clock()
            result = {"version": version, "same": is_same, "time": now, **replayed}
            self.verified[host.number] = result
            return result

    def degradations(self) -> dict[str, bool]:
        """Return what may keep labels from being learned or kept well, and whether it does."""
        hosts, memory = self.store.models(), self.store.memory
        return {
            "disk": self.store.disk_refusal is not None,
            "memory": memory.n_bytes > memory.limit,
            "held": any(host.why_held for host in hosts),
            "snapshots": any(host.lacks_snapshot for host in hosts),
            "queue": self.writer.is_nearly_full,
        }

    def describe_metrics(self, tenant: str) -> bytes:
        writer, memory, gauges = self.writer, self.store.memory, CollectorRegistry()
        n_different = len(self.store.retention.different)
        for name, text, value in (
            ("folklearn_queue_length", "Requests that wait for the writer", writer.n_queued),
            ("folklearn_commits", "Commits since the start", writer.n_batches),
            ("folklearn_events", "Requests written since the start", writer.n_events),
            ("folklearn_memory_bytes", "Bytes that all models take, about", memory.n_bytes),
            ("folklearn_memory_limit_bytes", "Bytes that all models may take", memory.limit),
            ("folklearn_journal_bytes", "Bytes of the journal", self.store.journal.n_bytes),
            ("folklearn_other_replays", "Models whose replay was not what they were", n_different),
        ):
            Gauge(name, text, registry=gauges).set(value)
        text = "Whether learning suffers from something, as in /v1/health/ready"
        gauge = Gauge("folklearn_degraded", text, ["reason"], registry=gauges)
        for reason, holds in self.degradations().items():
            gauge.labels(reason).set(holds)
        hosts = self.store.models(tenant)
        for name, text in (
            ("version", "Number of the last event of a model"),
            ("rows", "Rows learned"),
            ("loss", "Average log loss"),
            ("alarms", "How often the capped loss has risen"),
        ):
            gauge = Gauge(f"folklearn_model_{name}", text, ["model"], registry=gauges)
            for host in hosts:
                value = {"version": host.version, "alarms": 0, **host.state.numbers()}[name]
                if value is not None:
                    gauge.labels(host.row.name).set(value)
        return generate_latest(self.registry) + generate_latest(gauges)


def make_queue_refusal(limits: Limits, n_queued: int) -> RefusedError:
    """Return what a change is told when so many wait, or so many bytes."""
    is_long = n_queued >= limits.queued_events
    limit = "queued_events" if is_long else "queued_bytes"
    limit += f"={getattr(limits, limit)}"
    return RefusedError(429, "too many requests wait: try again", retry_after=1, limit=limit)


class Job(NamedTuple):
    """A change, or a function to be called between changes, with the future of its result."""

    work: Any
    n_bytes: int
    deadline: float
    loop: Any
    future: Any


class Writer:
    """A queue in front of a store, and the thread that empties it, to which the store belongs.

    Nothing waits for a timer: while a commit is under way the next batch gathers. A job that has
    waited too long is refused before it is begun, so no answer means that it was done at most once.
    If the disk fails no answer can be given: the process ends, and a new one recovers.
    """

    def __init__(self, store: ModelStore) -> None:
        self.store = store
        self._jobs: deque[Job] = deque()
        self._n_bytes = 0  # of the jobs
        self._wake = threading.Condition()
        self.is_closing = False
        self._disk_refusal: RefusedError | None = None
        self._next_expiry = 0.0
        self.n_batches = self.n_events = 0
        self._writing = threading.Thread(target=self._run, daemon=True)
        self._sweeping = threading.Thread(target=self._sweep, daemon=True)
        self._writing.start()
        self._sweeping.start()

    @property
    def n_queued(self) -> int:
        return len(self._jobs)

    @property
    def is_nearly_full(self) -> bool:
        limits = self.store.limits
        is_long = len(self._jobs) >= _NEARLY_FULL * limits.queued_events
        return is_long or self._n_bytes >= _NEARLY_FULL * limits.queued_bytes

    def submit(
        self, work: Change | Callable[[], Any], n_bytes: int = 500, *, is_bounded: bool = True
    ) -> Any:
        """Queue a change, or a function; return the future of its result: asyncio's, in a loop.

        A change that is not `is_bounded` is not refused for the length of the queue.
        """
        limits, is_change = self.store.limits, isinstance(work, Change)
        deadline = time.monotonic() + limits.deadline
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # A function is called for the process itself then, not for a request.
            job = Job(work, n_bytes, deadline if is_change else math.inf, None, Future())
        else:
            job = Job(work, n_bytes, deadline, loop, loop.create_future())
        with self._wake:
            if self.is_closing:
                raise RefusedError(503, "the service is stopping: try again", retry_after=5)
            is_long = len(self._jobs) >= limits.queued_events
            is_full = is_long or self._n_bytes + n_bytes > limits.queued_bytes
            if is_full and is_change and is_bounded:
                raise make_queue_refusal(limits, len(self._jobs))
            self._jobs.append(job)
            self._n_bytes += n_bytes
            if len(self._jobs) == 1:
                self._wake.notify()
        return job.future

    def close(self) -> None:
        with self._wake:
            self.is_closing = True
            self._wake.notify()
        self._sweeping.join()  # which ends after the other

    def _drop_late(self) -> None:
        """Refuse jobs that have waited too long; the caller holds the lock."""
        now = time.monotonic()
        late = [job for job in self._jobs if job.deadline < now]
        if late:
            self._jobs = deque(job for job in self._jobs if job.deadline >= now)
            self._n_bytes -= sum(job.n_bytes for job in late)
            sentence, limit = "the service is busy: try again", self.store.limits.deadline
            refusal = RefusedError(503, sentence, retry_after=1, limit=f"deadline={limit}")
            _answer((job, refusal) for job in late)

    def _sweep(self) -> None:
        """Refuse late jobs while the writer is busy with a long one."""
        while self._writing.is_alive():
            self._writing.join(_SWEEP_SECONDS)
            with self._wake:
                self._drop_late()

    def _run(self) -> None:
        try:
            self._maintain()
            while (jobs := self._take()) is not None:
                self._do(jobs)
                self._maintain()
            self.store.close()
        except BaseException:
            # Whether the last commit is on the disk is not known: only a new start can tell.
            log.critical("the service stops: the journal cannot be written", exc_info=True)
            self.is_closing = True
            os._exit(IO_ERROR)

    def _take(self) -> list[Job] | None:
        """Return the queued jobs, waiting for a first one; None if it is time to end."""
        seconds = self._next_expiry - time.monotonic()
        with self._wake:
            if not self._jobs and not self.is_closing and seconds > 0.0:
                is_behind = any(not host.is_published for host in self.store.hosts.values())
                self._wake.wait(min(seconds, _PUBLISH_SECONDS) if is_behind else seconds)
            self._drop_late()
            jobs, n_bytes, n_most = list[Job](), 0, min(len(self._jobs), _MAX_JOBS_PER_COMMIT)
            while len(jobs) < n_most and n_bytes < _MAX_BYTES_PER_COMMIT:
                jobs.append(self._jobs.popleft())
                n_bytes += jobs[-1].n_bytes
            self._n_bytes -= n_bytes
            return None if not jobs and self.is_closing else jobs

    def _do(self, jobs: list[Job]) -> None:
        """Do jobs in order, changes that follow each other together; then answer all."""
        results: list[Any] = []
        for is_change, group in groupby(jobs, lambda job: isinstance(job.work, Change)):
            works: list[Any] = [job.work for job in group]
            if not is_change:
                results += [self._call(work) for work in works]
            elif self._disk_refusal is not None:
                results += len(works) * [self._disk_refusal]
            else:
                self.n_batches += 1
                self.n_events += len(works)
                results += self.store.write(works)
        _answer(zip(jobs, results, strict=True))

    def _call(self, function: Any) -> Any:
        try:
            return function()
        except Exception as error:
            is_fatal = isinstance(error, apsw.Error | OSError | MemoryError)
            if is_fatal or self.store.journal.db.in_transaction:
                raise
            return error

    def _maintain(self) -> None:
        """Do between jobs what keeps predictions new, the WAL short and a restart fast."""
        store = self.store
        if time.monotonic() >= self._next_expiry:
            store.maintain()
            self._next_expiry = time.monotonic() + _EXPIRY_SECONDS
        self._disk_refusal = store.disk_refusal
        store.journal.checkpoint(if_long=True)
        for host in store.models():
            if time.monotonic() >= host.may_publish:
                host.publish()
            # One at a time: each is a copy in memory.
            if host.replay_seconds > store.limits.replay and not store.is_writing_snapshot:
                store.snapshot(host)


def _answer(results: Iterable[tuple[Job, Any]]) -> None:
    """Settle futures; those of a loop all at once, because to wake it is what costs."""
    by_loop: dict[Any, list[tuple[Any, Any]]] = {}
    for job, result in results:
        by_loop.setdefault(job.loop, []).append((job.future, result))
    for loop, settled in by_loop.items():
        if loop is None:
            _settle(settled)
        else:
            with suppress(RuntimeError):  # a closed loop: no request waits
                loop.call_soon_threadsafe(_settle, settled)


def _settle(results: list[tuple[Any, Any]]) -> None:
    for future, result in results:
        if not future.done():  # else it was cancelled
            is_error = isinstance(result, Exception)
            (future.set_exception if is_error else future.set_result)(result)
