"""folklearn: online multiclass logistic regression with a live regret certificate.

Public names are loaded on first use, so that ``import folklearn`` stays light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folklearn.adapters.sklearn import FolkloreClassifier
    from folklearn.evaluate.certify import Certifier
    from folklearn.evaluate.hindsight import best_in_class
    from folklearn.evaluate.interaction import Interactions, interact
    from folklearn.evaluate.off_policy import off_policy
    from folklearn.evaluate.progressive import progressive, score
    from folklearn.evidence import Evidence
    from folklearn.learners.aggregating import Aggregating
    from folklearn.learners.aioli import Aioli
    from folklearn.learners.auto import auto
    from folklearn.learners.contract import Certificate, Learner
    from folklearn.learners.folklore import Folklore
    from folklearn.learners.gaf import Gaf
    from folklearn.learners.laplace import Laplace
    from folklearn.learners.mixture import Mixture
    from folklearn.learners.ogd import Ogd
    from folklearn.learners.ons import Ons
    from folklearn.registry import load

__version__ = "0.1.0"

_HOMES = {
    "Aggregating": "folklearn.learners.aggregating",
    "Aioli": "folklearn.learners.aioli",
    "Certificate": "folklearn.learners.contract",
    "Certifier": "folklearn.evaluate.certify",
    "Evidence": "folklearn.evidence",
    "Folklore": "folklearn.learners.folklore",
    "FolkloreClassifier": "folklearn.adapters.sklearn",
    "Gaf": "folklearn.learners.gaf",
    "Interactions": "folklearn.evaluate.interaction",
    "Laplace": "folklearn.learners.laplace",
    "Learner": "folklearn.learners.contract",
    "Mixture": "folklearn.learners.mixture",
    "Ogd": "folklearn.learners.ogd",
    "Ons": "folklearn.learners.ons",
    "auto": "folklearn.learners.auto",
    "best_in_class": "folklearn.evaluate.hindsight",
    "interact": "folklearn.evaluate.interaction",
    "load": "folklearn.registry",
    "off_policy": "folklearn.evaluate.off_policy",
    "progressive": "folklearn.evaluate.progressive",
    "score": "folklearn.evaluate.progressive",
}

__all__ = [
    "Aggregating",
    "Aioli",
    "Certificate",
    "Certifier",
    "Evidence",
    "Folklore",
    "FolkloreClassifier",
    "Gaf",
    "Interactions",
    "Laplace",
    "Learner",
    "Mixture",
    "Ogd",
    "Ons",
    "__version__",
    "auto",
    "best_in_class",
    "interact",
    "load",
    "off_policy",
    "progressive",
    "score",
]


def __getattr__(name: str) -> Any:
    if name in ("bounds", "errors"):
        return importlib.import_module(f"folklearn.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'folklearn' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
