"""From the kind that a record names to the class that reads it.

Classes are found by name when needed: records nest (a mixture holds its experts), and a
static import of every kind from here would turn the layers upside down.
"""

import importlib
import os
from typing import Any

from folklearn import persist
from folklearn.errors import StateFileError
from folklearn.persist import Record

_KINDS = {
    "AdaBoostOL": "folklearn.boosting.ol",
    "AdaBoostOLM": "folklearn.boosting.olm",
    "AdaBoostOLMpp": "folklearn.boosting.olmpp",
    "Aggregating": "folklearn.learners.aggregating",
    "Aioli": "folklearn.learners.aioli",
    "BanditReduction": "folklearn.bandits.reduction",
    "Banditron": "folklearn.bandits.banditron",
    "BoostingRegression": "folklearn.boosting.regression",
    "Certifier": "folklearn.evaluate.certify",
    "Evidence": "folklearn.evidence",
    "Folklore": "folklearn.learners.folklore",
    "Gaf": "folklearn.learners.gaf",
    "Gaptron": "folklearn.bandits.gaptron",
    "Laplace": "folklearn.learners.laplace",
    "Mixture": "folklearn.learners.mixture",
    "NaiveBayes": "folklearn.boosting.weak.naive_bayes",
    "Newtron": "folklearn.bandits.newtron",
    "Obama": "folklearn.bandits.obama",
    "Ogd": "folklearn.learners.ogd",
    "OnlineMBBM": "folklearn.boosting.mbbm",
    "OnlineToBatch": "folklearn.batch.online_to_batch",
    "Ons": "folklearn.learners.ons",
    "OpenModel": "folklearn.streams.open",
    "Probabilistic": "folklearn.boosting.weak.probabilistic",
    "SMP": "folklearn.batch.smp",
    "Soba": "folklearn.bandits.soba",
    "StreamModel": "folklearn.streams.model",
    "Subspace": "folklearn.boosting.weak.subspace",
}


def revive(record: Record) -> Any:
    """Rebuild the object that a record describes."""
    if record.kind not in _KINDS:
        raise StateFileError(f"an unknown kind of object: {record.kind}")
    kind = getattr(importlib.import_module(_KINDS[record.kind]), record.kind)
    return kind.from_record(record)


def load(path: str | os.PathLike[str]) -> Any:
    """Load whatever `save` wrote: a learner, or a model saved by the command line."""
    try:
        return revive(persist.read(path))
    except StateFileError as error:
        name = os.fspath(path)
        if name in str(error):
            raise
        raise StateFileError(f"{name} cannot be loaded: {error}") from None
