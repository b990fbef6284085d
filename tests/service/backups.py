"""Copies of a journal in use: what B1 of the attacks needed, and how a copy is tried."""

import shutil
from pathlib import Path
from random import Random

from folklearn.service import events, journal
from folklearn.service.backup import backup, read_pages, read_rows
from folklearn.service.journal import Journal


def grow(own: Journal, random: Random, n_events: int) -> None:
    """Commit events of random size, with keys and ids, so that indices change all over."""
    own.begin()
    for _ in range(n_events):
        row = {f"column{i}": random.random() for i in range(random.randint(1, 60))}
        if random.random() < 0.5:
            key = f"{random.random()}"
            own.add(1, 0, events.Learned("yes", row), key=key, digest=random.randbytes(16))
        else:
            entry = own.add(1, 0, events.Asked(row, [0.5], 0.1, 1), id=random.randbytes(16))
            own.wait_for(entry.seq, 1, None)
    own.commit()


def begin(folder: Path) -> Journal:
    """Return a new journal with one model."""
    folder.mkdir()
    own = Journal(folder)
    own.begin()
    own.add_model("main", "labels")
    own.add(1, 0, events.Created(events.Config(), 9, 9))
    own.commit()
    return own


def copy_and_read(folder: Path, target: Path) -> int:
    """Back up, read every page and row of the copy, remove it; return how many events it has."""
    n_events = backup(folder, target)
    read_pages(target / journal.NAME)
    for path in target.glob("*.db"):
        read_rows(path)
    shutil.rmtree(target)
    return n_events
