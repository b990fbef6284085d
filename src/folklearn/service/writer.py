"""The thread that owns the store: it takes all changes that are queued, does them, and answers."""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import apsw

from folklearn.serialization import Record
from folklearn.service.changes import Change
from folklearn.service.events import RefusedError
from folklearn.service.journal import SnapshotRow, write_snapshot
from folklearn.service.store import ModelStore

log = logging.getLogger("folklearn.service")

_EXPIRY_SECONDS = 0.5  # between two searches for what has expired
_SWEEP_SECONDS = 0.25  # between two searches for jobs that have waited too long
_DISK_SECONDS = 0.5  # between two measurements of the free disk
_PUBLISH_SECONDS = 0.005  # between two attempts to publish, while nothing else is to be done
_MAX_JOBS_PER_COMMIT = 2_000
_MAX_BYTES_PER_COMMIT = 8_000_000  # so that jobs behind large ones are refused in time
_DEFAULT_JOB_BYTES = 500
IO_ERROR = 74  # exit code


class Job:
    """A change, or a function to be called between changes, with the future of its result."""

    __slots__ = ("deadline", "future", "loop", "n_bytes", "work")

    def __init__(self, work: Change | Callable[[], Any], n_bytes: int, seconds: float) -> None:
        self.work, self.n_bytes, self.deadline = work, n_bytes, time.monotonic() + seconds
        try:
            self.loop: Any = asyncio.get_running_loop()
            self.future: Any = self.loop.create_future()
        except RuntimeError:
            self.loop, self.future = None, Future()
            if not isinstance(work, Change):  # of the process itself, not of a request
                self.deadline = float("inf")


class Writer:
    """A queue in front of a store, and the thread that empties it.

    Nothing waits for a timer: while a commit is under way the next batch gathers. The queue is
    bounded, and a job that has waited too long is refused before it is begun, so no answer means
    that it was done at most once.

    Parameters
    ----------
    store : owned by this thread from now on.
    stop_process : called if the disk fails. No answer can be given then; a new process recovers.
    """

    def __init__(self, store: ModelStore, stop_process: Callable[[int], Any] = os._exit) -> None:
        self.store, self._stop_process = store, stop_process
        self._jobs: deque[Job] = deque()
        self._n_bytes = 0  # of the jobs
        self._wake = threading.Condition()
        self._is_closing = False
        self._snapshot_pool = ThreadPoolExecutor(1, "folklearn-snapshot")
        self._is_snapshotting = False
        self._next_disk_check = 0.0
        self._disk_refusal: RefusedError | None = None
        self.n_batches = self.n_events = 0
        self._thread = threading.Thread(target=self._run, name="folklearn-writer", daemon=True)
        self._thread.start()
        self._has_ended = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="folklearn-sweeper", daemon=True)
        self._sweeper.start()

    @property
    def n_queued(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs)

    def submit(self, work: Change | Callable[[], Any], n_bytes: int = _DEFAULT_JOB_BYTES) -> Any:
        """Queue a change; return the future of its answer, of asyncio if a loop is running."""
        limits = self.store.limits
        job = Job(work, n_bytes, limits.deadline)
        with self._wake:
            if self._is_closing:
                raise RefusedError(503, "the service is stopping: try again", retry_after=5)
            is_full = len(self._jobs) >= limits.queued_events
            if isinstance(work, Change) and (
                is_full or self._n_bytes + n_bytes > limits.queued_bytes
            ):
                raise RefusedError(
                    429, "too many requests wait: try again in a second", retry_after=1
                )
            self._jobs.append(job)
            self._n_bytes += n_bytes
            if len(self._jobs) == 1:
                self._wake.notify()
        return job.future

    def call(self, function: Callable[[], Any]) -> Any:
        """Queue a function for the writer's thread; return the future of its result."""
        return self.submit(function, 0)

    def close(self) -> None:
        """Do what is queued, write snapshots, and end."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join()
        self._has_ended.set()
        self._sweeper.join()
        self._snapshot_pool.shutdown()

    def _sweep(self) -> None:
        """Refuse jobs that have waited too long, while the writer is busy with a long one."""
        while not self._has_ended.wait(_SWEEP_SECONDS):
            now = time.monotonic()
            with self._wake:
                late = [job for job in self._jobs if job.deadline < now]
                if late:
                    self._jobs = deque(job for job in self._jobs if job.deadline >= now)
                    self._n_bytes -= sum(job.n_bytes for job in late)
            _answer([(job, _too_late()) for job in late])

    def _run(self) -> None:
        try:
            next_expiry = time.monotonic() + _EXPIRY_SECONDS
            while True:
                jobs = self._take(next_expiry - time.monotonic())
                if jobs is None:
                    break
                if jobs:
                    self._do(jobs)
                if time.monotonic() >= next_expiry:
                    self.store.expire()
                    next_expiry = time.monotonic() + _EXPIRY_SECONDS
                self._maintain()
            self._snapshot_pool.shutdown()
            self.store.close()
        except BaseException:
            # Whether the last commit is on the disk is not known: only a new start can tell.
            log.critical("the service stops: the journal cannot be written", exc_info=True)
            self._is_closing = True
            self._stop_process(IO_ERROR)

    def _take(self, seconds: float) -> list[Job] | None:
        """Return the queued jobs, waiting for a first one; None if it is time to end."""
        with self._wake:
            if not self._jobs and not self._is_closing and seconds > 0.0:
                is_behind = any(not host.is_published for host in self.store.hosts.values())
                self._wake.wait(min(seconds, _PUBLISH_SECONDS) if is_behind else seconds)
            jobs: list[Job] = []
            n_bytes = 0
            while (
                self._jobs and len(jobs) < _MAX_JOBS_PER_COMMIT and n_bytes < _MAX_BYTES_PER_COMMIT
            ):
                jobs.append(self._jobs.popleft())
                n_bytes += jobs[-1].n_bytes
            self._n_bytes -= n_bytes
            return None if not jobs and self._is_closing else jobs

    def _do(self, jobs: list[Job]) -> None:
        """Do jobs in order, changes that follow each other together; then answer all."""
        now = time.monotonic()
        if now >= self._next_disk_check:
            self._check_disk(now)
        results: list[tuple[Job, Any]] = []
        together: list[Job] = []
        for job in [*jobs, None]:
            if together and (job is None or not isinstance(job.work, Change)):
                self.n_batches += 1
                self.n_events += len(together)
                answers = self.store.write([member.work for member in together])  # type: ignore[misc]
                results += zip(together, answers, strict=True)
                together = []
            if job is None:
                break
            if not isinstance(job.work, Change):
                results.append((job, self._call(job.work)))
            elif job.deadline < now:
                results.append((job, _too_late()))
            elif self._disk_refusal is not None:
                results.append((job, self._disk_refusal))
            else:
                together.append(job)
        _answer(results)

    def _call(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns or raises; what it has begun to write must be done."""
        try:
            return function()
        except (apsw.Error, OSError, MemoryError):
            raise
        except Exception as error:
            if self.store.journal.is_writing:
                raise
            return error

    def _check_disk(self, now: float) -> None:
        self._next_disk_check, self._disk_refusal = now + _DISK_SECONDS, None
        try:
            self.store.check_disk()
        except RefusedError as refusal:
            self._disk_refusal = refusal

    def _maintain(self) -> None:
        """Publish models, checkpoint the WAL, and snapshot what would take long to replay."""
        self.store.journal.checkpoint(if_long=True)
        for host in self.store.models():
            if time.monotonic() >= host.may_publish:
                host.publish()
            is_long = host.replay_seconds > self.store.limits.replay
            if is_long and not self._is_snapshotting:  # one at a time: each is a copy in memory
                self._is_snapshotting = True
                job = host.number, host.version, host.state.to_record()
                host.reset_replay()
                self._snapshot_pool.submit(self._snapshot, *job)

    def _snapshot(self, number: int, version: int, record: Record) -> None:
        """Write a snapshot file in a thread of its own; a failure does no harm to a cache."""
        try:
            row = write_snapshot(self.store.folder, number, version, record)
        except OSError as error:
            log.warning("a snapshot could not be written: %s", error)
            self._is_snapshotting = False
            return
        with suppress(RefusedError):  # closing, which writes snapshots too
            self.call(lambda: self._note_snapshot(row))

    def _note_snapshot(self, row: SnapshotRow) -> None:
        self._is_snapshotting = False
        self.store.note_snapshot(row)


def _too_late() -> RefusedError:
    return RefusedError(503, "the service is busy: try again", retry_after=1)


def _answer(results: list[tuple[Job, Any]]) -> None:
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
        if future.cancelled() or future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
