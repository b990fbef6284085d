"""What a folder forgets, by its policy and on request, and that it forgets nothing else."""

from pathlib import Path

import pytest

from folklearn.service.archive import FOLDER
from tests.service import ageing as ages
from tests.service.ageing import Ageing


def test_old_events_go_and_no_state_changes(tmp_path: Path, seed: int) -> None:
    ageing = Ageing(tmp_path / "folder", seed, keep_days=3.0, archive=True)
    n_events = []
    for day in range(16):
        ageing.day()
        n_events.append(ageing.store.journal.row("SELECT count(*) FROM event")[0])
        if day % 4 == 3:
            before = ageing.digests()
            ageing.again(is_closed=day % 8 == 3)
            assert ageing.digests() == before
            ages.check(ageing)
    assert max(n_events[10:]) < 1.2 * max(n_events[4:8]), n_events
    entries = ages.all_events(ageing.folder)
    assert [*entries] == [*range(1, ageing.store.journal.last + 1)]
    for host in ageing.store.models():
        assert ages.fold(entries, host.number) == host.state.to_record().digest
    ageing.store.abandon()
    assert len([*(ageing.folder / FOLDER).glob("*")]) > 10
