"""Replay the journal of one model from its first event, and say what comes out.

``python -m folklearn.service.verify FOLDER MODEL VERSION`` prints JSON. It only reads, and may run
beside the service.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from folklearn.errors import FolklearnError
from folklearn.service import events
from folklearn.service.journal import Entry, Journal
from folklearn.service.states import ClassifierState, State, begun


def replay(folder: Path, number: int, version: int) -> dict[str, Any]:
    """Return the digest of a model at a version, and how many predictions came out the same."""
    journal = Journal(folder, read_only=True)
    asked = _asked(journal, number, version)
    skipped, state = journal.skipped(), None
    n_events = n_predictions = n_other = 0
    with threadpool_limits(1, user_api="blas"):
        for entry in journal.entries(upto=version, model=number):
            n_events += 1
            if isinstance(entry.event, events.Created | events.Imported):
                state = begun(entry.event)
            elif state is not None and entry.seq not in skipped:
                apply(state, entry, journal)
            for own in asked.get(entry.seq, ()):
                assert isinstance(state, ClassifierState)
                n_predictions += 1
                n_other += list(state.model.predict_proba_one(own.row).values()) != own.p
    assert state is not None
    digest = state.to_record().digest
    journal.close()
    return {
        "digest": digest,
        "events": n_events,
        "predictions": n_predictions,
        "other_predictions": n_other,
    }


def apply(state: State, entry: Entry, journal: Journal) -> None:
    """Take in an event, as the service did; one that it refused changes nothing again."""
    with suppress(FolklearnError):
        state.apply(entry, journal.entry)


def _asked(journal: Journal, number: int, version: int) -> dict[int, list[events.Asked]]:
    """Return the predictions that were remembered, by the version that they used."""
    found: dict[int, list[events.Asked]] = {}
    for entry in journal.entries(upto=version, model=number):
        if isinstance(entry.event, events.Asked):
            found.setdefault(entry.event.version, []).append(entry.event)
    return found


if __name__ == "__main__":
    print(json.dumps(replay(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
