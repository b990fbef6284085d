"""A service that lives for long: labels by batches, backups, and people who are forgotten."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from folklearn.service.backup import backup
from folklearn.service.events import (
    Config,
    EraseRequest,
    LabelEvent,
    LabelsRequest,
    PredictionEvent,
    PredictionsRequest,
    Row,
    new_id,
)
from folklearn.service.hosts import Change
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore, replay
from tests.service.ageing import BEGIN, DAY, WorkHere, erase, is_idle, traces

FEATURES, CLASSES, BATCHES = 20, 5, 3  # a day
KEEP_DAYS = 30.0
WEEK, MONTH = 7, 30
ASKED, TOLD = (
    6,
    4,
)  # predictions that are remembered with a batch, and labels that come by their ids


def live_through(
    place: Path, n_days: int, n_labels: int, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Learn so many labels a day; yield sizes after every month.

    The clock is moved. Every week the folder is backed up, every month a person is erased, and the
    service ends and begins again.
    """
    rng = np.random.default_rng(seed)
    W, folder, now = rng.normal(size=(CLASSES, FEATURES)), place / "folder", BEGIN
    limits = Limits(free_disk=0, keep_days=KEEP_DAYS)
    n_learned, n_erased, asked = 0, 0, list[UUID]()

    def opened() -> ModelStore:
        store = ModelStore(folder, limits, clock=lambda: now)
        store.retention.launch = WorkHere
        return store

    def rows(n: int) -> list[Row]:
        X, people = rng.normal(size=(n, FEATURES)).round(4), rng.integers(1000, size=n).tolist()
        return [
            {f"f{j}": value for j, value in enumerate(x)} | {"customer": f"customer-{who:03}"}
            for x, who in zip(X.tolist(), people, strict=True)
        ]

    def label(row: Row) -> str:
        x = np.array([row[f"f{j}"] for j in range(FEATURES)], float)
        return f"c{np.argmax(W @ x + rng.gumbel(size=CLASSES))}"

    store = opened()
    store.create("main", "stream", Config(windows=False, roles={"customer": "ignored"}))
    for day in range(1, n_days + 1):
        host = store.hosts["main", "stream"]
        for n in range(BATCHES):
            now += DAY // BATCHES
            n_rows = (n + 1) * n_labels // BATCHES - n * n_labels // BATCHES
            items = [LabelEvent(label(row), row) for row in rows(n_rows)]
            (answer,) = store.write([Change(host, LabelsRequest(items), str(new_id(now)))])
            assert answer.body["learned"] == n_rows
            host.publish()
            predictions = []
            for row in rows(ASKED):
                model, version = host.published.model, host.published.version
                p = list(model.predict_proba_one(row).values())
                one = PredictionEvent(row, p, model.unseen_probability, version)
                predictions.append((new_id(now), one))
            asked += [id for id, _ in predictions]
            told = [LabelEvent("c0", id=asked.pop(0)) for _ in range(TOLD)]
            changes = [PredictionsRequest(predictions), LabelsRequest(told)]
            store.write([Change(host, change) for change in changes])
            asked = asked[-100:]
            n_learned += n_rows + TOLD
            store.maintain()
            store.journal.checkpoint(if_long=True)
        while not is_idle(store.retention):
            store.maintain()
        assert not store.retention.different
        if day % WEEK == 0:
            store.snapshot(host).result()
            backup(folder, place / "copy")
            shutil.rmtree(place / "copy")
        if day % MONTH == 0:
            who = f"customer-{rng.integers(1000):03}"
            n_erased += erase(store, host, EraseRequest("customer", who)).body["rows"]
            assert not traces(folder, [who.encode()])
            digest = host.state.to_record().digest
            store.close()
            store = opened()
            assert store.hosts["main", "stream"].state.to_record().digest == digest
        if day % MONTH == 0 or day == n_days:
            yield {
                "days": day,
                "labels": n_learned,
                "erased": n_erased,
                "folder_bytes": sum(path.stat().st_size for path in folder.rglob("*")),
                "journal_rows": store.journal.find("SELECT count(*) FROM event"),
                "resident": _resident(),
            }
    host = store.hosts["main", "stream"]
    replayed = replay(folder, host.number, host.version)
    assert replayed["digest"] == host.state.to_record().digest
    assert replayed["predictions"] > 0 or n_days % MONTH == 0  # else the base is of today
    assert replayed["other_predictions"] == 0
    store.abandon()


def _resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096
