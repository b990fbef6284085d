"""The disk fails once, at any call: nothing that was acknowledged is lost, nothing learned twice.

The same harness kills the process at any call. libfiu cannot count calls, so a small library of
our own, faults.c, is preloaded.
"""

import errno
import json
from pathlib import Path

import pytest

from folklearn.cli.app import BAD_INPUT
from folklearn.service.app import application
from folklearn.service.service import Service
from folklearn.service.writer import IO_ERROR
from tests.service import audit, lives
from tests.service.clients import Answer, Request, ShortLine, session

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
    lines = record.read_text().splitlines() if record.exists() else []
    done = finished(folder, secret, seed, [Answer(*json.loads(line)) for line in lines])
    audit.nothing_lost(folder, done)
    audit.same_bytes(folder, done)
    return record.with_suffix(".mark").exists()


def finished(
    folder: Path, secret: str, seed: int, known: list[Answer]
) -> list[tuple[Request, Answer]]:
    """Repeat what was answered, which must be answered the same, and do the rest."""
    service = Service(folder, audit.LIMITS)
    line, client, done = ShortLine(application(service), secret), session(seed, N_REQUESTS), []
    answer = None
    for n in range(N_REQUESTS + 2):
        request = client.send(answer) if answer else next(client)
        is_known = n < len(known)
        if not is_known or request.key is not None:
            answer = line.send(request)
            assert not is_known or answer == known[n], f"{request} had the answer {known[n]}"
        else:
            answer = known[n]
        done.append((request, answer))
    service.close()
    return done


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
