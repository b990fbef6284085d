"""Copies of a journal in use: what B1 of the attacks needed, and how a copy is tried."""

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from random import Random
from uuid import UUID

from folklearn.service import journal
from folklearn.service.backup import backup, read_pages, read_rows
from folklearn.service.events import Config, CreateEvent, LabelEvent, ModelSize, PredictionEvent
from folklearn.service.journal import Journal
from tests.service import audit, clients, lives


def grow(own: Journal, random: Random, n_events: int) -> None:
    """Commit events of random size, with keys and ids, so that indices change all over."""
    with own.transaction():
        for _ in range(n_events):
            row = {f"column{i}": random.random() for i in range(random.randint(1, 60))}
            if random.random() < 0.5:
                key = f"{random.random()}"
                own.add(1, 0, LabelEvent("yes", row), key=key, digest=random.randbytes(16))
            else:
                id = UUID(bytes=random.randbytes(16))
                own.add(1, 0, PredictionEvent(row, [0.5], 0.1, 1), id=id)


def begin(folder: Path) -> Journal:
    """Return a new journal with one model."""
    folder.mkdir()
    own = Journal(folder)
    with own.transaction():
        own.add_model("main", "labels")
        own.add(1, 0, CreateEvent(Config(), ModelSize(9, 9, 9, 9, 9)))
    return own


def copy_and_read(folder: Path, target: Path, keys: Collection[str] = ()) -> int:
    """Back up, read every page and row of the copy, remove it; return how many events it has.

    Every one of the keys must be in it: they were acknowledged before it was begun.
    """
    n_events = backup(folder, target)
    read_pages(target / journal.NAME)
    read_rows(target / journal.NAME)
    assert not set(keys) - audit.keys_of(target).keys(), "acknowledged, and not in the copy"
    shutil.rmtree(target)
    return n_events


def copies_of_a_live_folder(place: Path, n_copies: int, n_bytes: int) -> Iterator[dict[str, int]]:
    """Back up a folder of so many bytes, while three clients write, and read every copy."""
    folder, port = place / "folder", lives.free_port()
    secret = lives.first_key(folder)
    life = lives.begin(lives.serve, folder, port)
    crowd = clients.Crowd(secret, 3, seed=0)
    crowd.begin(port)
    line, path = clients.Line(secret, port), folder / journal.NAME
    random, n_filled = Random(0), 0
    while path.stat().st_size < n_bytes:  # with rows that the audit tells apart, as all others
        rows = [{"x": random.gauss(), "note": random.randbytes(400).hex()} for _ in range(500)]
        items = [{"label": "yes", "row": row} for row in rows]
        filled = clients.Request(
            clients.MODEL + "/learn/batch", {"items": items}, f"fill{n_filled}"
        )
        assert line.send(filled).status == 200
        n_filled += 1
    line.close()
    try:
        for n in range(n_copies):
            crowd.wait_for(3, life)
            done = [request.key for request, answer in crowd.done[-200:] if answer.status == 200]
            n_events = copy_and_read(folder, place / "copy", [key for key in done if key])
            yield {
                "copies": n + 1,
                "bytes": path.stat().st_size,
                "wal_bytes": path.with_name(f"{journal.NAME}-wal").stat().st_size,
                "events": n_events,
                "answers": len(crowd.done),
            }
        assert life.is_alive()
    finally:
        crowd.end()
        crowd.close()
        lives.end(life)
