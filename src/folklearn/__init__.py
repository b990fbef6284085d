"""folklearn: online multiclass logistic regression with a live regret certificate.

Public names are loaded on first use, so that ``import folklearn`` stays light.
"""

import importlib
from typing import TYPE_CHECKING, Any

from folklearn import registry

if TYPE_CHECKING:  # what type checkers see; the table in `registry` is what counts
    from folklearn.adapters.sklearn import FolkloreClassifier as FolkloreClassifier
    from folklearn.adapters.terms import Terms as Terms
    from folklearn.baselines.aggregating import Aggregating as Aggregating
    from folklearn.baselines.ons import Ons as Ons
    from folklearn.baselines.second_order import Aioli as Aioli
    from folklearn.baselines.second_order import Gaf as Gaf
    from folklearn.baselines.second_order import Laplace as Laplace
    from folklearn.errors import DataWarning as DataWarning
    from folklearn.evaluate.auditing import Certifier as Certifier
    from folklearn.evaluate.best_linear import best_in_class as best_in_class
    from folklearn.evaluate.interactions import Interactions as Interactions
    from folklearn.evaluate.off_policy import interact as interact
    from folklearn.evaluate.off_policy import off_policy as off_policy
    from folklearn.evidence.certificate import Certificate as Certificate
    from folklearn.evidence.evidence import Evidence as Evidence
    from folklearn.evidence.linear_evidence import LinearEvidence as LinearEvidence
    from folklearn.learners.auto import auto as auto
    from folklearn.learners.base import Learner as Learner
    from folklearn.learners.class_gaussians import ClassGaussians as ClassGaussians
    from folklearn.learners.folklore import Folklore as Folklore
    from folklearn.learners.leader import Leader as Leader
    from folklearn.learners.mixture import Mixture as Mixture
    from folklearn.learners.sgd import Ogd as Ogd
    from folklearn.learners.shared_gaussian import SharedGaussian as SharedGaussian
    from folklearn.learners.sparse_sgd import SparseSgd as SparseSgd
    from folklearn.metrics.scores import progressive as progressive
    from folklearn.metrics.scores import score as score
    from folklearn.model.decisions import DecisionModel as DecisionModel
    from folklearn.model.model import Model as Model
    from folklearn.model.run import Run as Run
    from folklearn.scaler import OnlineScaler as OnlineScaler
    from folklearn.serialization import load as load

__version__ = "1.0.0"

__all__ = ["__version__", *registry.PUBLIC]


def __getattr__(name: str) -> Any:
    if name in registry.PACKAGES:
        return importlib.import_module(f"folklearn.{name}")
    if name not in registry.PUBLIC:
        raise AttributeError(f"module 'folklearn' has no attribute {name!r}")
    globals()[name] = value = registry.find(name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *registry.PACKAGES])
