"""Processes that serve a folder and come to a bad end: forked, so that a life costs little.

The server that forks has loaded everything, kernels too. Each life is a process of its own, with
its own memory, files and threads, and kill -9 ends it like any other.
"""

import ctypes
import functools
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from folklearn.cli.app import BAD_INPUT
from folklearn.errors import FolklearnError
from folklearn.service import journal, server
from folklearn.service.keys import Keys
from folklearn.service.limits import Limits
from folklearn.service.server import application
from folklearn.service.service import Service
from folklearn.service.worker import make_application
from tests.service.audit import LIMITS
from tests.service.clients import ShortLine, session

ROOT = Path(__file__).parents[2]
EARLY_CHECKPOINT = 200_000  # bytes of WAL


FAILPOINTS = (
    "before_commit",
    "after_commit",
    "before_apply",
    "before_answer",
    "in_replay",
    "in_file",
    "before_rename",
    "after_rename",
    "before_checkpoint",
    "after_checkpoint",
)
FORGETTING = (  # places that only a folder with a policy, or an erasure, comes to
    "in_compaction",
    "after_archive",
    "before_base",
    "after_base",
    "in_removal",
    "before_erase",
    "after_erase",
    "before_vacuum",
)


def die_at_failpoint(where: str) -> None:
    """Kill this process, as kill -9 does, at a failpoint; an empty string is none.

    With ``after_commit:3`` it dies the third time that it comes to the failpoint ``after_commit``.
    """
    name, _, count = where.partition(":")
    n_left = int(count or 1)

    def hook(event: str, arguments: object) -> None:
        nonlocal n_left
        if event == f"folklearn.{name}":
            n_left -= 1
            if n_left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if where:
        sys.addaudithook(hook)


class Fault(NamedTuple):
    """The n-th call of a kind on a file below the folder fails; with error 0 the process dies."""

    call: str
    n: int
    error: int


def scratch() -> Any:
    """Return a folder that is removed after use, in memory where there is room: syncs are many."""
    return tempfile.TemporaryDirectory(prefix="folklearn-", dir=memory())


def memory() -> str | None:
    """Return a folder that is kept in memory, None if there is none of use."""
    place = "/dev/shm"
    has_room = os.path.isdir(place) and shutil.disk_usage(place).free > 4 << 30
    return place if has_room else None


@functools.cache
def _scratch() -> Any:
    return scratch()  # removed when the process ends


@functools.cache
def faults_library() -> str | None:
    """Return the compiled faults.c, None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    source = Path(__file__).with_name("faults.c")
    made = Path(_scratch().name) / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", made, "-ldl"], check=True)
    return str(made)


@functools.cache
def _context() -> Any:
    """Return the server that forks, started with a preloaded library where there is one."""
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.service.warm"])
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no threads that a fork would leave behind
    library = faults_library()
    if library is not None:
        os.environ["LD_PRELOAD"] = library
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def begin(live: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Begin a life."""
    process: BaseProcess = _context().Process(target=live, args=arguments)
    process.start()
    return process


def end(process: BaseProcess) -> None:
    """Kill -9."""
    process.kill()
    process.join()


def workers_of(pid: int) -> list[int]:
    """Return the worker processes of a service."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    pids = {int(child) for task in tasks for child in (task / "children").read_text().split()}
    return sorted(pid for pid in pids if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def first_key(folder: Path) -> str:
    """Return a key to everything."""
    return Keys(folder).create(scopes=["admin"])


# What processes do.


def serve(
    folder: Path, port: int, die_at: str = "", synchronous: str = "FULL", n_workers: int = 0
) -> None:
    """Serve over HTTP, with many snapshots and checkpoints, and die at a place."""
    _quietly(folder)
    journal._MAX_WAL_BYTES = EARLY_CHECKPOINT
    die_at_failpoint(die_at)

    def begun(service: Service, port: int) -> None:
        database = service.store.journal.db
        service.writer.submit(lambda: database.pragma("synchronous", synchronous)).result()

    sys.stdin = None  # type: ignore[assignment]  # which uvicorn hands to workers by its number
    server.serve(folder, "127.0.0.1", port, LIMITS, begun, n_workers=n_workers)


def work(
    folder: Path,
    limits: Limits,
    n_workers: int,
    path: Path,
    listening: socket.socket,
    options: dict[str, Any],
) -> None:
    """Answer as a worker of a service in another process."""
    _quietly(folder)
    make = functools.partial(make_application, folder, limits, n_workers, "text", path)
    config = uvicorn.Config(make, factory=True, lifespan="on", **options)
    uvicorn.Server(config).run([listening])


def do(folder: Path, secret: str, record: Path, seed: int, n: int, fault: Fault | None) -> None:
    """Let one client work without a network; note every final answer as it comes."""
    _quietly(folder)
    journal._MAX_WAL_BYTES = EARLY_CHECKPOINT
    if fault is not None:
        ctypes.CDLL(None).arm(
            fault.call.encode(), ctypes.c_long(fault.n), fault.error,
            os.fsencode(folder), os.fsencode(record.with_suffix(".mark")),
        )  # fmt: skip
    try:
        service = Service(folder, LIMITS)
    except (FolklearnError, OSError) as error:  # which the command line says in a sentence
        print(error, file=sys.stderr)
        os._exit(BAD_INPUT)
    line, client = ShortLine(application(service), secret), session(seed, n)
    with open(record, "w") as file, suppress(StopIteration):
        request = next(client)
        while (answer := line.send(request)).is_final:
            print(json.dumps(answer), file=file, flush=True)
            request = client.send(answer)
    service.close()


def _quietly(folder: Path) -> None:
    """Let what would go to the terminal go to a file beside the folder."""
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
