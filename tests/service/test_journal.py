"""The journal beside readers, and what a deleted model leaves behind."""

import threading
from pathlib import Path

import pytest

from folklearn.errors import StateFileError
from folklearn.service.events import (
    Config,
    LabelEvent,
    LabelsRequest,
    PredictionEvent,
    PredictionsRequest,
    new_id,
)
from folklearn.service.hosts import Change
from folklearn.service.journal import NAME, Journal
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore

LIMITS = Limits(free_disk=0)
LATER = 10**18


def store_with_model(folder: Path, **config: object) -> ModelStore:
    store = ModelStore(folder, LIMITS)
    store.create("main", "labels", Config(windows=False, **config))  # type: ignore[arg-type]
    return store


def learn(store: ModelStore, n: int) -> None:
    host = store.hosts["main", "labels"]
    for i in range(n):
        store.write([Change(host, LabelEvent("yes", {"x": float(i)}))])


def test_a_journal_that_grows_while_it_is_opened_is_not_taken_for_damaged(tmp_path: Path) -> None:
    store = store_with_model(tmp_path)
    refused: list[StateFileError] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            try:
                Journal(tmp_path, read_only=True).close()
            except StateFileError as error:
                refused.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    learn(store, 100)
    is_over.set()
    reader.join()
    store.abandon()
    assert not refused


def test_a_reader_does_not_hold_up_the_writer(tmp_path: Path) -> None:
    store = store_with_model(tmp_path)
    learn(store, 20)
    reader = Journal(tmp_path, read_only=True)
    entries = reader.entries()
    next(entries)  # from now on it sees the journal as it is
    learn(store, 1)
    store.journal.checkpoint()
    wal = tmp_path / f"{NAME}-wal"
    assert wal.stat().st_size > 0, "the reader still needs it"
    assert sum(1 for _ in entries) == 20
    reader.close()
    store.journal.checkpoint()
    assert wal.stat().st_size == 0
    store.abandon()


def test_a_deleted_model_waits_for_nothing(tmp_path: Path) -> None:
    """Or what it waited for would hold up what others wait for."""
    store = store_with_model(tmp_path, wait=1.0)
    host = store.hosts["main", "labels"]
    asked = PredictionEvent({"x": 1.0}, [], 0.0, host.version)
    store.write([Change(host, PredictionsRequest([(new_id(), asked)]))])
    assert len(store.journal.waiting_upto("due", LATER, 10)) == 1
    store.delete(host)
    assert store.journal.waiting_upto("due", LATER, 10) == []
    store.abandon()


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_journal_that_is_gone_is_not_begun_anew(is_empty: bool, tmp_path: Path) -> None:
    store = store_with_model(tmp_path)
    learn(store, 5)
    store.abandon()
    wal = (tmp_path / f"{NAME}-wal").read_bytes()
    (tmp_path / NAME).unlink()
    if is_empty:
        (tmp_path / NAME).touch()
    with pytest.raises(StateFileError, match="gone or empty: restore it from a backup"):
        ModelStore(tmp_path, LIMITS)
    assert (tmp_path / f"{NAME}-wal").read_bytes() == wal


def test_a_folder_that_was_refused_can_be_opened_after_it_was_mended(tmp_path: Path) -> None:
    store = store_with_model(tmp_path)
    learn(store, 5)
    store.abandon()
    content = (tmp_path / f"{NAME}-wal").read_bytes()
    (tmp_path / f"{NAME}-wal").write_bytes(content[: len(content) // 2])
    with pytest.raises(StateFileError, match="the end of the journal is damaged"):
        ModelStore(tmp_path, LIMITS)
    (tmp_path / f"{NAME}-wal").write_bytes(content)
    store = ModelStore(tmp_path, LIMITS)
    assert store.journal.last == 6
    store.abandon()


@pytest.mark.parametrize("n_lost", [1, 8, 100, 4_000])
def test_a_journal_whose_last_page_is_cut_off_is_refused(n_lost: int, tmp_path: Path) -> None:
    """SQLite reads zeros there, without a look at the checksum."""
    store = store_with_model(tmp_path)
    learn(store, 50)
    store.close()
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content[:-n_lost])
    with pytest.raises(StateFileError, match="restore it from a backup"):
        ModelStore(tmp_path, LIMITS)
    with pytest.raises(StateFileError, match="restore it from a backup"):
        Journal(tmp_path, read_only=True)


def test_a_label_that_was_refused_can_be_told_otherwise(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, Limits(free_disk=0, classes=1))
    store.create("main", "labels", Config(windows=False))
    learn(store, 1)
    host, id = store.hosts["main", "labels"], new_id()
    asked = PredictionEvent({"x": 1.0}, [1.0], 0.0, host.version)
    told = [LabelEvent(label, id=id) for label in ("no", "no", "yes", "yes")]
    requests = [PredictionsRequest([(id, asked)]), *told]
    answers = store.write([Change(host, request) for request in requests])
    assert [answer.status for answer in answers] == [200, 422, 422, 200, 200]
    assert answers[-1].body["already"] == 1
    store.abandon()


def test_a_batch_cannot_grow_a_model_beyond_its_limits(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, Limits(free_disk=0, classes=2, columns=3))
    store.create("main", "labels", Config(windows=False))
    host = store.hosts["main", "labels"]
    labels = [LabelEvent(str(i), {"x": 1.0, f"column{i}": 1.0}) for i in range(9)]
    (answer,) = store.write([Change(host, LabelsRequest(labels))])
    assert answer.body["learned"] == 2
    assert len(answer.body["refused"]) == 7
    store.abandon()
