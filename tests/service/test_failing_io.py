"""The disk fails once, at any call: nothing that was acknowledged is lost, nothing learned twice.

The same harness kills the process at any call. libfiu cannot count calls, so a small library of
our own, faults.c, is preloaded.
"""

import errno
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from folklearn.cli.app import BAD_INPUT
from folklearn.service.server import application
from folklearn.service.service import IO_ERROR, Service
from tests.service import audit, lives
from tests.service.clients import Answer, ShortLine, Work, session

CALLS = ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "rename")
N_REQUESTS = 15


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if lives.faults_library() is None:
        pytest.skip("no C compiler: calls cannot be made to fail")


def trial(place: Path, fault: lives.Fault, seed: int = 0) -> bool:
    """Work until the fault, then go on without it, and compare; return whether it came at all."""
    folder, record = place / "folder", place / "record"
    secret = lives.first_key(folder)
    life = lives.begin(lives.do, folder, secret, record, seed, N_REQUESTS, fault)
    life.join()
    assert life.exitcode in (0, BAD_INPUT, IO_ERROR, -9), folder.with_suffix(".log").read_text()
    go_on(folder, secret, record, session(seed, N_REQUESTS))
    return record.with_suffix(".mark").exists()


def go_on(folder: Path, secret: str, record: Path, client: Work) -> None:
    """Repeat what was answered, which must be answered the same, do the rest, and compare."""
    lines = record.read_text().splitlines() if record.exists() else []
    known = [Answer(*json.loads(line)) for line in lines]
    service, done = Service(folder, audit.LIMITS), []
    line = ShortLine(application(service), secret)
    with suppress(StopIteration):
        request = next(client)
        while True:
            before = known[len(done)] if len(done) < len(known) else None
            answer = before
            if before is None or request.key is not None:
                answer = line.send(request)
                assert before in (None, answer), f"{request} had the answer {before}"
            done.append((request, answer))
            request = client.send(answer)
    service.close()
    audit.nothing_lost(folder, done)
    audit.same_bytes(folder, done)


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_lost_when_a_call_fails(call: str, tmp_path: Path) -> None:
    for n in range(1, 21):
        place = tmp_path / str(n)
        place.mkdir()
        if not trial(place, lives.Fault(call, n, (errno.EIO, errno.ENOSPC)[n % 2])):
            break


def test_nothing_is_lost_when_the_process_dies_at_any_call(tmp_path: Path) -> None:
    for n in range(1, 250, 12):
        place = tmp_path / str(n)
        place.mkdir()
        if not trial(place, lives.Fault("any", n, 0)):
            break


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_nothing_is_lost_when_the_disk_is_full(tmp_path: Path, seed: int) -> None:
    small, record, n_requests = tmp_path / "small", tmp_path / "record", 500
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "none", small])
    if mounted.returncode:
        pytest.skip("there is no mounting here")
    try:
        folder = small / "folder"
        secret = lives.first_key(folder)
        life = lives.begin(lives.do, folder, secret, record, seed, n_requests, None)
        life.join()
        assert life.exitcode == IO_ERROR
        assert record.read_text(), "it was full from the start"
        subprocess.run(["mount", "-o", "remount,size=50m", small], check=True)
        go_on(folder, secret, record, session(seed, n_requests))
    finally:
        subprocess.run(["umount", small], check=True)
