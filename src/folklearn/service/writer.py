"""The thread that owns the store: it takes what is queued, all at once, and answers."""

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

from folklearn.service import snapshots
from folklearn.service.commands import Command
from folklearn.service.events import RefusedError
from folklearn.service.journal import BUILD, SnapshotRow
from folklearn.service.model_host import ModelHost
from folklearn.service.store import ModelStore

log = logging.getLogger("folklearn.service")

_TICK = 0.5  # seconds between looks at what has expired
_SWEEP = 0.25  # seconds between looks at what has waited too long
_MOST_AT_ONCE = 2_000  # commands in one commit
_BYTES_AT_ONCE = 8_000_000  # of them, so that who waits behind large ones is refused in time
IO_ERROR = 74  # exit code


class Job:
    """A command, or something to be called between commands, with the future of its answer."""

    __slots__ = ("command", "future", "host", "late", "loop", "size")

    def __init__(self, host: ModelHost | None, command: Any, late: float, size: int = 0) -> None:
        self.host, self.command, self.late, self.size = host, command, late, size
        try:
            self.loop: Any = asyncio.get_running_loop()
            self.future: Any = self.loop.create_future()
        except RuntimeError:
            self.loop, self.future = None, Future()


class Writer:
    """A queue in front of an store, and the thread that empties it.

    Nothing waits for a timer: while a commit is under way the next batch gathers. What is queued is
    bounded, and what has waited too long is refused before it is begun, so no answer means that
    it was done at most once.

    Parameters
    ----------
    store : which from now on belongs to this thread.
    stop_process : called if the disk fails. No answer can be given then; a new process recovers.
    """

    def __init__(self, store: ModelStore, stop_process: Callable[[int], Any] = os._exit) -> None:
        self.store, self._stop_process = store, stop_process
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        self._wake = threading.Condition()
        self._is_closing = False
        self._snapshotting = ThreadPoolExecutor(1, "folklearn-snapshot")
        self._under_way: set[int] = set()  # models that are being snapshotted
        self._looks_at_disk = 0.0
        self._disk: RefusedError | None = None
        self.n_batches = self.n_events = 0
        self._thread = threading.Thread(target=self._run, name="folklearn-writer", daemon=True)
        self._thread.start()
        self._has_ended = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="folklearn-sweeper", daemon=True)
        self._sweeper.start()

    @property
    def n_queued(self) -> int:
        """How many commands wait."""
        return len(self._jobs)

    def submit(self, host: ModelHost, command: Command) -> Any:
        """Queue a command; return the future of its answer, of asyncio if a loop is running."""
        limits = self.store.limits
        n_bytes = self._bytes + command.size
        if len(self._jobs) >= limits.queued_events or n_bytes > limits.queued_bytes:
            raise RefusedError(429, "too many requests wait: try again in a second", retry_after=1)
        late = time.monotonic() + limits.deadline
        return self._put(Job(host, command, late, command.size))

    def call(self, function: Callable[[], Any]) -> Any:
        """Queue a function of the store's thread; return the future of its result."""
        job = Job(None, function, float("inf"))
        if job.loop is not None:  # a request: its client does not wait for ever
            job.late = time.monotonic() + self.store.limits.deadline
        return self._put(job)

    def _put(self, job: Job) -> Any:
        with self._wake:
            if self._is_closing:
                raise RefusedError(503, "the service is stopping: try again", retry_after=5)
            self._jobs.append(job)
            self._bytes += job.size
            if len(self._jobs) == 1:
                self._wake.notify()
        return job.future

    def close(self) -> None:
        """Do what is queued, snapshot, and end."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join()
        self._has_ended.set()
        self._sweeper.join()
        self._snapshotting.shutdown()

    def _sweep(self) -> None:
        """Refuse what has waited too long, while the writer is busy with something that is long."""
        while not self._has_ended.wait(_SWEEP):
            now = time.monotonic()
            with self._wake:
                late = [job for job in self._jobs if job.late < now]
                if late:
                    self._jobs = deque(job for job in self._jobs if job.late >= now)
                    self._bytes -= sum(job.size for job in late)
            self._answer([(job, _busy()) for job in late])

    def _run(self) -> None:
        try:
            next_tick = time.monotonic() + _TICK
            while True:
                jobs = self._taken(next_tick - time.monotonic())
                if jobs is None:
                    break
                if jobs:
                    self._do(jobs)
                if time.monotonic() >= next_tick:
                    self.store.expire()
                    next_tick = time.monotonic() + _TICK
                self._tidy()
            self._snapshotting.shutdown()
            self.store.close()
        except BaseException:
            # Whether the last commit is on the disk is not known: only a new start can tell.
            log.critical("the service stops: the journal cannot be written", exc_info=True)
            self._is_closing = True
            self._stop_process(IO_ERROR)

    def _taken(self, patience: float) -> list[Job] | None:
        """Return what is queued, waiting for a first one; None if it is time to end."""
        with self._wake:
            if not self._jobs and not self._is_closing and patience > 0.0:
                unpublished = any(not one.is_published for one in self.store.models())
                self._wake.wait(min(patience, 0.005) if unpublished else patience)
            jobs: list[Job] = []
            n_bytes = 0
            while self._jobs and len(jobs) < _MOST_AT_ONCE and n_bytes < _BYTES_AT_ONCE:
                jobs.append(self._jobs.popleft())
                n_bytes += jobs[-1].size
            self._bytes -= n_bytes
            return None if not jobs and self._is_closing else jobs

    def _do(self, jobs: list[Job]) -> None:
        """Do jobs in order, commands that follow each other together; then answer all."""
        now = time.monotonic()
        refused = self._disk_refusal(now)
        done: list[tuple[Job, Any]] = []
        together: list[Job] = []
        for job in jobs:
            if job.host is None:
                done += self._written(together)
                together = []
                done.append((job, self._result(job.command)))
            elif job.late < now:
                done.append((job, _busy()))
            elif refused is not None:
                done.append((job, refused))
            else:
                together.append(job)
        done += self._written(together)
        self._answer(done)

    def _written(self, jobs: list[Job]) -> list[tuple[Job, Any]]:
        if not jobs:
            return []
        self.n_batches += 1
        self.n_events += len(jobs)
        answers = self.store.write([(job.host, job.command) for job in jobs])  # type: ignore[misc]
        return list(zip(jobs, answers, strict=True))

    def _result(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns or raises; what it has begun to write must be done."""
        try:
            return function()
        except (apsw.Error, OSError, MemoryError):
            raise
        except Exception as error:
            if self.store.journal.is_writing:
                raise
            return error

    def _disk_refusal(self, now: float) -> RefusedError | None:
        if now >= self._looks_at_disk:
            self._looks_at_disk = now + 0.5
            try:
                self.store.check_not_full()
                self._disk = None
            except RefusedError as refusal:
                self._disk = refusal
        return self._disk

    def _answer(self, done: list[tuple[Job, Any]]) -> None:
        """Settle futures; those of a loop all at once, because waking it is what costs."""
        by_loop: dict[Any, list[tuple[Any, Any]]] = {}
        for job, result in done:
            by_loop.setdefault(job.loop, []).append((job.future, result))
        for loop, results in by_loop.items():
            if loop is None:
                _settle(results)
            else:
                with suppress(RuntimeError):  # a closed loop: nobody waits any more
                    loop.call_soon_threadsafe(_settle, results)

    def _tidy(self) -> None:
        """Publish what is not yet, move the WAL, and snapshot what would take long to replay."""
        store = self.store
        store.journal.checkpoint_if_long()
        for host in store.models():
            host.publish()
            is_long = host.replay_seconds > store.limits.replay
            if is_long and not self._under_way:  # one at a time: each is a copy in memory
                self._under_way.add(host.number)
                job = host.number, host.version, host.state.to_record()
                host.snapshotted()
                self._snapshotting.submit(self._snapshot, *job)

    def _snapshot(self, number: int, version: int, record: Any) -> None:
        """Write a snapshot file in a thread of its own; it is a cache, so a failure is no harm."""
        try:
            row = snapshots.write(self.store.folder, number, version, record, BUILD)
        except OSError as error:
            log.warning("a snapshot could not be written: %s", error)
            self._under_way.discard(number)
            return
        with suppress(RefusedError):  # closing, which snapshots too
            self.call(lambda: self._note(row))

    def _note(self, row: SnapshotRow) -> None:
        self._under_way.discard(row.model)
        self.store.note_snapshot(row)


def _busy() -> RefusedError:
    return RefusedError(503, "the service is busy: try again", retry_after=1)


def _settle(results: list[tuple[Any, Any]]) -> None:
    for future, result in results:
        if future.cancelled() or future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
