"""folklearn: online multiclass logistic regression with a live regret certificate.

Public names are loaded on first use, so that ``import folklearn`` stays light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folklearn.learners.contract import Certificate, Learner
    from folklearn.learners.folklore import Folklore
    from folklearn.registry import load

__version__ = "0.1.0"

_HOMES = {
    "Certificate": "folklearn.learners.contract",
    "Folklore": "folklearn.learners.folklore",
    "Learner": "folklearn.learners.contract",
    "load": "folklearn.registry",
}

__all__ = ["Certificate", "Folklore", "Learner", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'folklearn' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
