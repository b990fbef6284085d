"""Replay the journal of one model from its first event, and print the result.

``python -m folklearn.service.verify FOLDER MODEL VERSION`` prints JSON. It only reads, and may run
while the service runs.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from folklearn.errors import FolklearnError
from folklearn.service.events import CreateEvent, PredictionEvent
from folklearn.service.journal import Journal
from folklearn.service.states import ClassifierState, restore_state


def replay(folder: Path, number: int, version: int) -> dict[str, Any]:
    """Return the digest of a model at a version, and how many predictions came out the same."""
    journal = Journal(folder, read_only=True)
    predictions: dict[int, list[PredictionEvent]] = {}  # by the version that they used
    for entry in journal.entries(upto=version, model=number):
        if isinstance(entry.event, PredictionEvent):
            predictions.setdefault(entry.event.version, []).append(entry.event)
    skipped, state = journal.skipped_events(), None
    n_events = n_predictions = n_different = 0
    with threadpool_limits(1, user_api="blas"):
        for entry in journal.entries(upto=version, model=number):
            n_events += 1
            if isinstance(entry.event, CreateEvent):
                state = restore_state(entry.event)
            elif state is not None and entry.seq not in skipped:
                with suppress(FolklearnError):  # refused again, which changes nothing
                    state.apply(entry, journal.entry_of)
            for event in predictions.get(entry.seq, ()):
                assert isinstance(state, ClassifierState)
                n_predictions += 1
                p = list(state.model.predict_proba_one(event.row).values())
                n_different += p != event.p
    assert state is not None
    digest = state.to_record().digest
    journal.close()
    return {
        "digest": digest,
        "events": n_events,
        "predictions": n_predictions,
        "other_predictions": n_different,
    }


if __name__ == "__main__":
    print(json.dumps(replay(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
