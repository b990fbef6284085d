"""The power goes: what was acknowledged before is on the disk.

The disk is an ext4 file system in a file, which lies on a file system that can copy a file in no
time (XFS with reflink): such a copy is the disk at the cut, without anything that the kernel had
still in memory. Controls that do not wait for the disk must lose.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from folklearn.errors import StateFileError
from tests.service import audit, lives
from tests.service.clients import Crowd


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """Mount a file as a disk, and unmount it whatever happens."""
    place.mkdir()
    _run("mount", "-o", "loop", image, place)
    try:
        yield place
    finally:
        if subprocess.run(["umount", place], capture_output=True).returncode:
            _run("umount", "--lazy", place)  # after a failure somebody may still hold a file
        place.rmdir()


@contextmanager
def disk_of_copies(place: Path, n_bytes: int) -> Iterator[Path]:
    """Mount an XFS on which copies take no time."""
    with tempfile.NamedTemporaryFile(dir=lives.memory() or place) as image:
        image.truncate(n_bytes)
        _run("mkfs.xfs", "-q", "-f", "-m", "reflink=1", image.name)
        with mounted(Path(image.name), place / "copies") as copies:
            yield copies


def unable() -> str | None:
    """Return why power cannot be cut here, None if it can."""
    if os.geteuid() != 0:
        return "only root can mount disks"
    missing = [tool for tool in ("mkfs.xfs", "mkfs.ext4", "mount") if shutil.which(tool) is None]
    if missing:
        return f"there is no {missing[0]}"
    try:
        with lives.scratch() as place, disk_of_copies(Path(place), 512 << 20):
            return None
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]}: {error.stderr.decode().strip()}"


class Cut(NamedTuple):
    """How many requests with a key were acknowledged before a cut, and how many it has lost."""

    acknowledged: int
    lost: int


def cut(place: Path, n_cuts: int, synchronous: str = "FULL", seed: int = 0) -> list[Cut]:
    """Cut the power so many times."""
    random, acknowledged, cuts = Random(seed), [], []
    with ExitStack() as stack:
        copies = stack.enter_context(disk_of_copies(place, 2 << 30))
        disk = copies / "disk"
        with open(disk, "wb") as file:
            file.truncate(128 << 20)
        _run("mkfs.ext4", "-q", "-F", disk)
        with mounted(disk, place / "disk") as running:
            folder, port = running / "folder", lives.free_port()
            crowd = Crowd(lives.first_key(folder), 3, seed)
            os.sync()  # the folder and its key are old when the service begins
            life = lives.begin(lives.serve, folder, port, "", synchronous)
            stack.callback(crowd.close)
            try:
                crowd.begin(port)
                for n in range(n_cuts):
                    crowd.wait_for(random.randint(1, 40), life)
                    time.sleep(random.uniform(0.0, 0.01))
                    acknowledged.append(len(crowd.done))
                    _run("cp", "--reflink=always", disk, copies / f"cut{n}")
                crowd.end()
            finally:
                lives.end(life)
        for n, n_done in enumerate(acknowledged):
            with mounted(copies / f"cut{n}", place / "cut") as found:
                cuts.append(_compared(found / "folder", crowd.done[:n_done]))
            (copies / f"cut{n}").unlink()
    return cuts


def _compared(folder: Path, done: audit.Done) -> Cut:
    acknowledged = {request.key for request, _ in done if request.key is not None}
    try:
        lost = acknowledged - audit.keys_of(folder).keys()
    except StateFileError:
        lost = acknowledged
    if not lost:
        audit.nothing_lost(folder, done)
        audit.same_bytes(folder)
    return Cut(len(acknowledged), len(lost))


@pytest.fixture(scope="module")
def _power() -> None:
    if why_not := unable():
        pytest.skip(f"no power to cut: {why_not}")


@pytest.mark.usefixtures("_power")
def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path, seed: int) -> None:
    cuts = cut(tmp_path, 5, seed=seed)
    assert cuts[-1].acknowledged > 0
    assert [one.lost for one in cuts] == [0] * 5


@pytest.mark.usefixtures("_power")
@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_who_does_not_wait_for_the_disk_loses(synchronous: str, tmp_path: Path, seed: int) -> None:
    assert any(one.lost for one in cut(tmp_path, 3, synchronous, seed))
