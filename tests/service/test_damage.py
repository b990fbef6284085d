"""Bits flip and files are cut off: damage is said in a sentence, or does no harm."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw
import msgspec
import pytest

from folklearn.cli.app import BAD_INPUT, main
from folklearn.errors import StateFileError
from folklearn.service.hosts import Change, ModelHost
from folklearn.service.journal import NAME
from folklearn.service.keys import Keys
from folklearn.service.routes import ENDPOINTS
from folklearn.service.server import application
from folklearn.service.service import Service
from folklearn.service.store import ModelStore, replay
from tests.service import audit, lives
from tests.service.clients import Answer, Request, ShortLine, session

STEP = 512
N_REQUESTS = 60

Damage = Callable[[Path, int], None]


class Served(NamedTuple):
    """A folder as a process has left it, and what it had answered."""

    folder: Path
    secret: str
    digests: dict[str, str]
    done: audit.Done

    @property
    def places(self) -> list[tuple[Path, int]]:
        """Every 512th byte of every file, whose path is relative."""
        return [
            (path.relative_to(self.folder), at)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name not in ("lock", f"{NAME}-shm")
            for at in range(0, path.stat().st_size, STEP)
        ]


def served(place: Path, how: str, seed: int = 0) -> Served:
    """Return a folder with database, WAL and snapshots, that was "killed" or "closed"."""
    folder = place / "running"
    secret = lives.first_key(folder)
    service, done = Service(folder, audit.LIMITS), []
    line, client = ShortLine(application(service), secret), session(seed, N_REQUESTS)
    request = next(client)
    for n in range(N_REQUESTS + 1):
        done.append((request, line.send(request)))
        request = client.send(done[-1][1])
        if n == N_REQUESTS // 2:
            service.writer.submit(service.store.journal.checkpoint).result()
    store = service.store
    digests = {one.row.name: one.state.to_record().digest for one in store.models()}
    if how == "closed":
        service.close()
    being_written = shutil.ignore_patterns(".*")  # which a rename may take away meanwhile
    shutil.copytree(folder, place / "left", ignore=being_written)
    if how == "killed":
        service.close()
    return Served(place / "left", secret, digests, done)


def flip(path: Path, at: int) -> None:
    """Flip a bit."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << at // STEP % 8
    path.write_bytes(content)


def truncate(path: Path, at: int) -> None:
    """Cut a file off."""
    with open(path, "r+b") as file:
        file.truncate(at)


def outcome(was: Served, place: Path, file: Path, at: int, damage: Damage) -> str:
    """Damage a copy and use it: return who noticed, or fail because it is another model."""
    folder = place / "copy"
    shutil.copytree(was.folder, folder)
    damage(folder / file, at)
    try:
        return _used(folder, was)
    finally:
        shutil.rmtree(folder)


def _used(folder: Path, was: Served) -> str:
    try:
        found = Keys(folder).find(was.secret)
        assert found in (None, Keys(was.folder).find(was.secret)), "a key to something else"
    except StateFileError:
        return "refused at the start"
    if found is None:
        return "the key is not known"
    try:
        store = ModelStore(folder, audit.LIMITS)
    except StateFileError:
        return "refused at the start"
    try:
        for host in store.models():
            digest = host.state.to_record().digest
            assert digest == was.digests[host.row.name], "another model"
        for request, answer in was.done:
            if request.key is not None:
                host = store.hosts["main", request.path.split("/")[3]]
                (said,) = store.write([_change(host, request)])
                assert Answer(*said) == answer, "another answer"
        for host in store.models():
            replayed = replay(folder, host.number, host.version)
            assert replayed["digest"] == host.state.to_record().digest, "another replay"
    except apsw.Error:
        return "stopped when it was read"
    except StateFileError:
        return "refused by verify"
    finally:
        store.abandon()
    return "harmless"


def _change(host: ModelHost, request: Request) -> Change:
    endpoint = next(one for one in ENDPOINTS if one.path.format(name=host.row.name) == request.path)
    return Change(host, msgspec.convert(request.body, endpoint.body), request.key)


def outcomes(was: Served, place: Path, places: list[tuple[Path, int]]) -> Counter[tuple[str, ...]]:
    """Return how often each kind of file and damage came to which end."""
    found: Counter[tuple[str, ...]] = Counter()
    for file, at in places:
        kind = "snapshot" if file.suffix == ".folk" else file.name
        for damage in (flip, truncate):
            found[kind, damage.__name__, outcome(was, place, file, at, damage)] += 1
    return found


@pytest.fixture(scope="module", params=["killed", "closed"])
def was(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return served(tmp_path_factory.mktemp("served"), request.param)


def test_damage_is_noticed_or_harmless(was: Served, tmp_path: Path, seed: int) -> None:
    by_file: dict[Path, list[int]] = {}
    for file, at in was.places:
        by_file.setdefault(file, []).append(at)
    places = [
        (file, at)
        for file, all in by_file.items()
        for at in {0, *Random(seed).sample(all, min(len(all), 3))}
    ]
    found = outcomes(was, tmp_path, places)
    assert {kind for kind, *_ in found} >= {"journal.db", "snapshot", "head"}
    assert {end for *_, end in found} >= {"harmless", "refused at the start"}


@pytest.mark.parametrize("damage", [flip, truncate])
def test_the_command_says_it_in_a_sentence(
    was: Served, damage: Damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(was.folder, folder)
    damage(folder / NAME, 2 * 4096)  # the second page tells where pages belong, and is seldom read
    assert main(["serve", str(folder), "--port", "0"]) == BAD_INPUT
    assert "estore it from a backup" in capsys.readouterr().err
