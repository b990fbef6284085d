"""From the kind that a state file names to the class that reads it."""

import importlib
import os
from typing import Any

from folklearn import persist
from folklearn.errors import StateFileError

_KINDS = {
    "Aioli": "folklearn.learners.aioli",
    "Folklore": "folklearn.learners.folklore",
    "Gaf": "folklearn.learners.gaf",
    "Laplace": "folklearn.learners.laplace",
    "StreamModel": "folklearn.streams.model",
}


def load(path: str | os.PathLike[str]) -> Any:
    """Load whatever `save` wrote: a learner, or a model saved by the command line."""
    record = persist.read(path)
    if record.kind not in _KINDS:
        raise StateFileError(f"{os.fspath(path)} holds an unknown kind of object: {record.kind}")
    kind = getattr(importlib.import_module(_KINDS[record.kind]), record.kind)
    return kind.from_record(record)
