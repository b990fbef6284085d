"""What a folder forgets, by its policy and on request, and that it forgets nothing else."""

import shutil
import sys
from pathlib import Path
from random import Random

import pytest

from folklearn.errors import StateFileError
from folklearn.service.archive import FOLDER, Archive
from folklearn.service.backup import backup
from folklearn.service.events import (
    Config,
    DecisionEvent,
    LabelEvent,
    PredictionEvent,
    PredictionsRequest,
    new_id,
)
from folklearn.service.hosts import Change
from folklearn.service.limits import Limits
from folklearn.service.store import ModelStore, replay
from tests.service import ageing as ages
from tests.service import lives
from tests.service.ageing import DAY, Ageing
from tests.service.running import running
from tests.service.years import live_through


def n_rows(store: ModelStore) -> int:
    """Return how many events the journal has."""
    return int(store.journal.find("SELECT count(*) FROM event"))


def test_old_events_go_and_no_state_changes(tmp_path: Path, seed: int) -> None:
    ageing = Ageing(tmp_path / "folder", seed, keep_days=3.0, archive=True)
    numbers = []
    for day in range(16):
        ageing.day()
        numbers.append(n_rows(ageing.store))
        if day % 4 == 3:
            before = ageing.digests()
            ageing.again(is_closed=day % 8 == 3)
            assert ageing.digests() == before
            ages.check(ageing)
    assert max(numbers[10:]) < 1.2 * max(numbers[4:8]), numbers
    entries = ages.all_events(ageing.folder)
    assert [*entries] == [*range(1, ageing.store.journal.last + 1)]
    for host in ageing.store.models():
        assert ages.fold(entries, host.number) == host.state.to_record().digest
    ageing.store.abandon()


def test_without_a_policy_nothing_goes(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder")
    for _ in range(5):
        ageing.day()
    assert n_rows(ageing.store) == ageing.store.journal.last
    assert ageing.store.journal.begin(1)[1].record is None
    ageing.store.abandon()


def test_a_journal_stays_below_its_bytes(tmp_path: Path, seed: int) -> None:
    limit = 600_000
    ageing = Ageing(tmp_path / "folder", seed, keep_bytes=limit)
    bytes_used = []
    for _ in range(14):
        ageing.day(n_batches=40)
        bytes_used.append(ageing.store.journal.n_bytes)
    assert n_rows(ageing.store) < ageing.store.journal.last / 2
    assert max(bytes_used[5:]) < 1.3 * limit, bytes_used
    ages.check(ageing)
    ageing.store.close()
    assert (ageing.folder / "journal.db").stat().st_size < 1.5 * limit


@pytest.mark.parametrize("again", [False, True])
def test_what_is_old_is_not_learned_again(tmp_path: Path, again: bool) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=2.0)
    id, row = new_id(ageing.now), ageing.row()[0]
    asked = PredictionEvent(row, [0.5, 0.5], 0.0, ageing.labels.version)
    ageing.store.write([Change(ageing.labels, PredictionsRequest([(id, asked)]))])
    ageing.store.write([Change(ageing.labels, LabelEvent("yes", id=id))])
    for _ in range(7):
        ageing.day()
    if again:
        ageing.again()
    old = [key for key in ageing.sent if ageing.repeat(key).status == 410]
    assert old == list(ageing.sent)[: len(old)]
    assert 0.5 < len(old) / len(ageing.sent) < 0.9
    before = ageing.digests()
    for key in ageing.sent:
        answer = ageing.repeat(key)
        assert key in old or answer == ageing.done[key]
    told = ageing.store.write(
        [Change(ageing.labels, LabelEvent(one, id=id)) for one in ("yes", "no")]
    )
    assert [answer.status for answer in told] == [410, 410]
    assert "too old" in told[0].body["detail"]
    assert ageing.digests() == before
    ageing.store.abandon()


@pytest.mark.parametrize(("hours", "is_known"), [(-1, True), (20, True), (1_000, False)])
def test_a_clock_that_is_ahead_makes_nothing_twice(
    tmp_path: Path, hours: int, is_known: bool
) -> None:
    """A key dated later than the events that were removed is still known for a day."""
    ageing = Ageing(tmp_path / "folder", keep_days=2.0)
    ageing.day()
    key = str(new_id(ageing.now + hours * 3_600_000))
    ageing.send([("yes", ageing.row()[0])], key)
    seq = ageing.store.journal.last
    while ageing.store.journal.find("SELECT kept_after FROM model WHERE number = 1") < seq:
        ageing.day(n_batches=1)
    for _ in range(2):
        ageing.day(n_batches=1)
    before = ageing.labels.version
    assert ageing.repeat(key).status == (410 if is_known else 200)
    assert (ageing.labels.version == before) == is_known
    ageing.store.abandon()


def test_what_waits_stays_until_it_is_too_old(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=4.0)
    id, decided = (
        new_id(ageing.now),
        ageing.store.write([Change(ageing.agent, DecisionEvent({"x": 1.0}))]),
    )
    asked = PredictionEvent(ageing.row()[0], [0.5, 0.5], 0.0, ageing.labels.version)
    ageing.store.write([Change(ageing.labels, PredictionsRequest([(id, asked)]))])
    n_waiting = []
    for _ in range(6):
        ageing.day()
        n_waiting.append(ageing.store.journal.find_waiting(1, id))
    assert [one is None or one[1] is not None for one in n_waiting] == [*3 * [False], *3 * [True]]
    assert ageing.store.write([Change(ageing.labels, LabelEvent("no", id=id))])[0].status == 410
    assert decided[0].body["event"] not in {one.id for one in ageing.agent.state.model.pending}  # type: ignore[union-attr]
    ages.check(ageing)
    ageing.store.abandon()


def test_models_let_go_of_rows(tmp_path: Path) -> None:
    """No row is in the folder twice as long as the policy says, and a day."""
    ageing = Ageing(tmp_path / "folder", keep_days=2.0)
    ageing.day()
    needles = [need for who in range(ages.CUSTOMERS) for need in ages.needles_of(ageing, who)[1:]]
    for host in ageing.store.models():
        ageing.store.snapshot(host).result()
    assert len(ages.traces(ageing.folder, needles)) > 1
    for _ in range(5):
        ageing.now += DAY  # in which nothing happens
        ageing.settle()
    ageing.store.close()
    assert not ages.traces(ageing.folder, needles)


def test_a_replay_that_differs_removes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=2.0)
    ageing.day()
    for _ in range(3):
        ageing.store.journal.db.execute("UPDATE mark SET digest = 'other' WHERE model = 1")
        ageing.day()
    found = ageing.store.journal.db.execute("SELECT model FROM base").fetchall()
    assert found == [(2,)]
    assert ageing.store.retention.different == {"labels"}
    assert "none of its events are removed" in caplog.text
    first = "SELECT count(*) FROM event WHERE model = 1 AND seq < 20"
    assert ageing.store.journal.find(first) > 10
    for _ in range(3):  # later marks are as they should be
        ageing.day()
    assert ageing.store.retention.different == set()
    assert ageing.store.journal.find(first) <= 1
    ages.check(ageing)
    ageing.store.abandon()


def test_a_deleted_model_goes_and_its_numbers_are_not_used_again(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=2.0, archive=True)
    ageing.day()
    ageing.settle()
    for name in ("labels", "agent"):
        host = ageing.store.hosts["main", name]
        ageing.store.snapshot(host).result()
        ageing.store.delete(host)
    last = ageing.store.journal.last
    ageing.now += 3 * DAY
    ageing.settle()
    assert n_rows(ageing.store) == 0
    assert not [*(ageing.folder / "snapshots").glob("*")]
    assert [*ages.all_events(ageing.folder)] == [*range(1, last + 1)]
    ageing.again()
    assert ageing.store.journal.last == last
    created = ageing.store.create("main", "labels", Config())
    assert created.body["event"] == last + 1
    assert ageing.labels.number == 3
    ageing.store.abandon()


def test_another_build_begins_replays_anew(tmp_path: Path) -> None:
    """Its sums may round otherwise: what was served before cannot be replayed to equal bytes."""
    ageing = Ageing(tmp_path / "folder", keep_days=2.0)
    ageing.day()
    before, version = ageing.digests(), ageing.labels.version
    ageing.store.journal.db.execute("UPDATE build SET name = 'another'")
    ageing.again()
    assert ageing.digests() == before
    assert replay(ageing.folder, 1, version)["after"] == version
    assert n_rows(ageing.store) == ageing.store.journal.last
    for _ in range(5):
        ageing.day()
    assert n_rows(ageing.store) < 0.7 * ageing.store.journal.last
    ages.check(ageing)
    ageing.store.abandon()


def test_a_damaged_archive_is_known(tmp_path: Path, seed: int) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=1.0, archive=True)
    for _ in range(4):
        ageing.day()
    ageing.store.abandon()
    path = max((ageing.folder / FOLDER).glob("*"), key=lambda one: one.stat().st_size)
    before, content, random = [*Archive(path)], path.read_bytes(), Random(seed)
    assert before
    assert Archive(path).header["model"] in ("labels", "agent")
    n_refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        damaged[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            assert [*Archive(path)] == before  # a bit of the header of gzip
        except StateFileError:
            n_refused += 1
    assert n_refused > 50
    for n in range(0, len(content), 100):
        path.write_bytes(content[:n])
        with pytest.raises(StateFileError):
            [*Archive(path)]
    with pytest.raises(StateFileError, match=f"{path} cannot be copied"):
        backup(ageing.folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_backup_has_archives_and_bases(tmp_path: Path) -> None:
    ageing = Ageing(tmp_path / "folder", keep_days=2.0, archive=True)
    for day in range(8):
        ageing.day()
        if day == 5:
            ageing.erase(3)
        if day % 2:
            copy = tmp_path / f"copy{day}"
            backup(ageing.folder, copy)
            assert [*ages.all_events(copy)] == [*ages.all_events(ageing.folder)]
            store = ModelStore(copy, ageing.limits, clock=lambda: ageing.now)
            assert [host.state.to_record().digest for host in store.models()] == ageing.digests()
            store.abandon()
            shutil.rmtree(copy)
    ageing.store.abandon()


def test_a_service_compacts_by_another_process(tmp_path: Path) -> None:
    limits = Limits(free_disk=0, deadline=120.0, keep_days=2.0, archive=True)
    with running(tmp_path / "folder", limits) as service:
        path, store = "/v1/models/labels", service.service.store
        service.ask("PUT", path, {"windows": False})
        began = store.clock()
        for day in range(1, 6):
            for n in range(5):
                row = {"x": n / 7 + day, "customer": f"customer-{n % 3}"}
                asked = service.post(f"{path}/predict", {"row": row, "durable": True})
                service.post(
                    f"{path}/learn", {"id": asked["id"], "label": "yes" if n % 2 else "no"}
                )
            now = began + day * DAY
            store.clock = lambda now=now: now
            while not service.service.writer.submit(lambda: ages.is_idle(store.retention)).result():
                service.service.writer.submit(store.maintain).result()
        assert n_rows(store) < 30
        verified = service.post(f"{path}/verify", {})
        assert (verified["same"], verified["other_predictions"]) == (True, 0)
        assert verified["after"] > 1
        service.post(f"{path}/erase", {"column": "customer", "value": "customer-1"})
        assert not ages.traces(tmp_path / "folder", [b"customer-1"])
        text = service.ask("GET", "/metrics").body.decode()
        assert "folklearn_other_replays 0.0" in text
    assert len(ages.all_events(tmp_path / "folder")) > 30


def test_a_folder_does_not_grow_from_month_to_month(tmp_path: Path, seed: int) -> None:
    _, second, third, last = live_through(tmp_path, 100, 50, seed)
    for name in ("journal_rows", "folder_bytes"):
        assert third[name] < 1.1 * second[name]
    assert last["erased"] > 0


@pytest.mark.parametrize("where", lives.FORGETTING)
def test_nothing_is_lost_when_it_dies_while_it_forgets(
    tmp_path: Path, where: str, seed: int
) -> None:
    assert forget_and_die(tmp_path / "folder", where, seed) >= 1


MOST = {"before_erase": 2, "after_erase": 2, "before_vacuum": 2, "in_compaction": 40}


def test_a_journal_of_which_nothing_was_removed_is_not_written_anew(tmp_path: Path) -> None:
    """Not at a start, and not when time passes; once when a round has removed something."""
    n_written = 0

    def hook(event: str, arguments: object) -> None:
        nonlocal n_written
        n_written += event == "folklearn.before_vacuum"

    sys.addaudithook(hook)
    for keep_days, n_wanted in ((None, 0), (30.0, 0), (1.0, 1)):
        n_written = 0
        ageing = Ageing(tmp_path / "folder", 0, keep_days=keep_days)
        ageing.day()
        ageing.store.close()
        assert n_written == n_wanted


def test_no_copy_of_a_row_is_left_in_an_unused_part_of_a_page(tmp_path: Path) -> None:
    """SQLite had moved a row that was erased later: without a vacuum its copy was still there."""
    forget_and_die(tmp_path / "folder", "after_erase", 0, n_deaths=5)


def forget_and_die(folder: Path, where: str, seed: int, n_deaths: int = 1) -> int:
    """Kill a process several times at a place; return how often it died there."""
    limits = {"keep_days": 2.0, "archive": True}
    deaths, random = 0, Random(seed)
    for _ in range(n_deaths):
        die_at = f"{where}:{random.randint(1, MOST.get(where, 6))}"
        life = lives.begin(ages.live, folder, die_at, seed, 8, limits)
        life.join(60.0)
        deaths += life.exitcode == -9
        lives.end(life)
        ageing = Ageing(folder, seed, **limits)  # type: ignore[arg-type]
        for key in ageing.sent.keys() - ageing.done.keys():
            ageing.send(ageing.sent[key], key)
        ageing.settle()
        for who in [*ageing.erasing]:
            ageing.erase(who)
        ages.check(ageing)
        for who, n_before in ageing.erased.items():
            old = [*ageing.sent.items()][:n_before]
            ageing.sent, kept = dict(old), ageing.sent
            assert not ages.traces(folder, ages.needles_of(ageing, who)[1:])
            ageing.sent = kept
        ageing.store.abandon()
    return deaths
