"""Snapshots: the state of a model in a file, so that a restart replays little.

They are a cache. One that is damaged is passed over, and the journal replayed from further back.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from folklearn import serialization
from folklearn.errors import StateFileError
from folklearn.serialization import Record
from folklearn.service import failpoints
from folklearn.service.journal import SnapshotRow

FOLDER = "snapshots"
KEPT = 2


def write(folder: Path, model: int, seq: int, record: Record, build: str) -> SnapshotRow:
    """Write a state that holds all events up to seq; the file is durable when this returns."""
    place = folder / FOLDER
    place.mkdir(mode=0o700, exist_ok=True)
    name = f"{model}-{seq}.folk"
    temporary = place / f".{name}"
    serialization.write(temporary, record)
    failpoints.reach("in_snapshot")
    with open(temporary, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    failpoints.reach("before_rename")
    os.replace(temporary, place / name)
    failpoints.reach("after_rename")
    sync_folder(place)
    return SnapshotRow(model, seq, name, sha256, build)


def read(folder: Path, row: SnapshotRow) -> Record:
    """Return the state that a snapshot holds; OSError or StateFileError if it is not as written."""
    path = folder / FOLDER / row.file
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != row.sha256:
            raise StateFileError(f"{path} is damaged")
    return serialization.read(path)


def size(folder: Path, row: SnapshotRow) -> int:
    """Return how many bytes a snapshot has; 0 if it is not there."""
    try:
        return (folder / FOLDER / row.file).stat().st_size
    except OSError:
        return 0


def remove(folder: Path, files: Iterable[str]) -> None:
    """Remove snapshots that nothing refers to any more."""
    for file in files:
        (folder / FOLDER / file).unlink(missing_ok=True)


def remove_unknown(folder: Path, known: Iterable[str]) -> None:
    """Remove what a process that died has left half written."""
    kept = set(known)
    for path in (folder / FOLDER).glob("*"):
        if path.name not in kept:
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
