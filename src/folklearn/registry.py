"""Where every public name lives: the one table behind the package, its parts, and state files.

Names are found when needed: a static import of everything from here would turn the layers
upside down, and `import folklearn` would not be light.
"""

import importlib
from collections.abc import Callable
from typing import Any

# Names by module: * marks a class whose objects saved files may hold, + a name of `folklearn`.
_MODULES = {
    "adapters.sklearn": "FolkloreClassifier+",
    "adapters.terms": "Terms+",
    "bandits.agent": "Agent Decision",
    "bandits.reduction": "BanditReduction*",
    "bandits.rewards": "RegretCertificate RewardAgent*",
    "baselines.aggregating": "Aggregating*+ Obama*",
    "baselines.bandits": "Banditron* LinearAgent Newtron* Soba*",
    "baselines.boosting": "AdaBoostOLM*",
    "baselines.ons": "Ons*+",
    "baselines.second_order": "Aioli*+ Gaf*+ Laplace*+",
    "batch.online_to_batch": "OnlineToBatch*",
    "boosting.booster": "Booster WeakLearner",
    "boosting.olmpp": "AdaBoostOLMpp*",
    "boosting.weak_learners": "NaiveBayes* Probabilistic* RiverClassifier hoeffding_trees",
    "errors": "DataWarning+",
    "evaluate.auditing": "Certifier*+ PredictionCertificate audit",
    "evaluate.best_linear": "BestLinearModel Pass best_in_class+",
    "evaluate.interactions": "Interactions+",
    "evaluate.monitor": "Alarm ColumnAlarm Monitor*",
    "evaluate.off_policy": "Estimate LearnedPolicy greedy interact+ off_policy+ reward_model",
    "evaluate.prediction_sets": "CoverageRecord PredictionSets*",
    "evaluate.regression": "Regression logistic_regression regress",
    "evidence.certificate": "Certificate+",
    "evidence.evidence": "Evidence*+",
    "evidence.linear_evidence": "LinearEvidence*+",
    "learners.auto": "Auto* auto+",
    "learners.base": "Learner+",
    "learners.class_gaussians": "ClassGaussians*+",
    "learners.folklore": "Folklore*+",
    "learners.leader": "FixedExperts* Leader*+",
    "learners.mixture": "Mixture*+",
    "learners.sgd": "Ogd*+",
    "learners.shared_gaussian": "FixedGaussian* SharedGaussian*+",
    "learners.sparse_sgd": "SparseSgd*+ StackedSgd*",
    "learners.term_mixture": "TermMixture*",
    "metrics.accumulator": "ClassRecord ColumnRecord Metrics* Segment Window",
    "metrics.columns": "ColumnCounts* ColumnPlaces Shift",
    "metrics.predictions": "PredictionBatch",
    "metrics.scores": "CalibrationCurve Scores progressive+ score+",
    "model.batch": "RowBuffer*",
    "model.decisions": "DecisionModel*+",
    "model.encoder": "TableEncoder*",
    "model.explain": "Explanation",
    "model.holdout": "HoldoutWeights*",
    "model.model": "Model*+",
    "model.pipeline": "OnlinePipeline*",
    "model.row_explanation": "Contribution RowExplanation",
    "model.run": "Run+ Score",
    "model.stream_evidence": "StreamEvidence*",
    "model.table_classifier": "FixedPipeline*",
    "model.terms": "TermScaler* TermSet*",
    "readers.open": "open_reader",
    "readers.reader": "BadRow Reader",
    "readers.table": "Table TextColumn table_from_records",
    "scale.folding": "FoldEvent FoldOutput fold",
    "scaler": "MixedScaler* OnlineScaler*+ SparseScaler*",
    "serialization": "load+",
    "service.archive": "Archive",
    "service.client": "Client",
}
_MARKED = {name: f"folklearn.{home}" for home, names in _MODULES.items() for name in names.split()}
HOMES = {name.rstrip("*+"): home for name, home in _MARKED.items()}
SAVED = {name.rstrip("*+") for name in _MARKED if "*" in name}
PUBLIC = [name.rstrip("*+") for name in _MARKED if "+" in name]
# Modules and packages that `folklearn` loads by name.
PACKAGES = (
    "adapters", "bandits", "baselines", "batch", "boosting", "errors", "evaluate", "evidence",
    "learners", "metrics", "model", "plots", "readers", "scale", "synthetic",
)  # fmt: skip


def find(name: str) -> Any:
    return getattr(importlib.import_module(HOMES[name]), name)


def names_of(package: str) -> list[str]:
    """Return the public names of a package, such as "bandits", but for those of its modules."""
    within = f"folklearn.{package}."
    homes = HOMES.items()
    return [name for name, home in homes if home.startswith(within) != (home == within + name)]


def finder(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose public names are found on first use."""

    def find_in_package(name: str) -> Any:
        if name not in names_of(package):
            raise AttributeError(f"module 'folklearn.{package}' has no attribute {name!r}")
        return find(name)

    return find_in_package
