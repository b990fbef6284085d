"""Where every public name lives: the one table behind the package, its parts, and state files.

Names are found when needed: a static import of everything from here would turn the layers
upside down, and `import folklearn` would not be light.
"""

import importlib
from collections.abc import Callable
from typing import Any

_MODULES = {
    "adapters.sklearn": "FolkloreClassifier",
    "adapters.terms": "Terms Waves",
    "bandits.agent": "Agent Decision",
    "bandits.reduction": "BanditReduction",
    "bandits.rewards": "RegretCertificate RewardAgent",
    "baselines.aggregating": "Aggregating Obama",
    "baselines.bandits": "Banditron Gaptron LinearAgent Newtron Soba",
    "baselines.boosting": "AdaBoostOL AdaBoostOLM OnlineMBBM",
    "baselines.ons": "Ons",
    "baselines.second_order": "Aioli Gaf Laplace",
    "baselines.smp": "SMP",
    "batch.online_to_batch": "OnlineToBatch",
    "boosting.booster": "Booster WeakLearner",
    "boosting.olmpp": "AdaBoostOLMpp BoostingRegression",
    "boosting.weak_learners": ("NaiveBayes Probabilistic RiverClassifier hoeffding_trees"),
    "evidence.certificate": "Certificate",
    "errors": "DataWarning",
    "evaluate.auditing": "Certifier PredictionCertificate audit",
    "evaluate.best_linear": "BestLinearModel Pass best_in_class",
    "evaluate.interactions": "Interactions",
    "evaluate.monitor": "Alarm ColumnAlarm Monitor",
    "evaluate.off_policy": (
        "Estimate LearnedPolicy best_constant greedy interact logged_value off_policy reward_model "
        "uniform"
    ),
    "evaluate.prediction_sets": "CoverageRecord PredictionSets",
    "evaluate.regression": "Regression logistic_regression regress",
    "evidence.evidence": "Evidence",
    "learners.auto": "Auto auto",
    "learners.base": "Learner",
    "learners.class_gaussians": "ClassGaussians",
    "learners.folklore": "Folklore",
    "learners.leader": "FixedExperts Leader",
    "learners.mixture": "Mixture",
    "learners.sgd": "Ogd",
    "learners.shared_gaussian": "FixedGaussian SharedGaussian",
    "learners.sparse_sgd": "SparseSgd StackedSgd",
    "learners.term_mixture": "TermMixture",
    "model.decisions": "DecisionModel",
    "model.encoder": "TableEncoder",
    "model.pipeline": "OnlinePipeline",
    "model.explain": "Explanation",
    "model.row_explanation": "Contribution RowExplanation",
    "model.holdout": "HoldoutWeights",
    "metrics.accumulator": "ClassRecord ColumnRecord Metrics Segment Window",
    "metrics.columns": "ColumnCounts ColumnPlaces Shift",
    "metrics.predictions": "PredictionBatch",
    "metrics.scores": "CalibrationCurve Scores linear_losses progressive score",
    "model.model": "Model",
    "model.batch": "RowBuffer",
    "model.run": "Run Score",
    "model.table_classifier": "FixedPipeline",
    "model.stream_evidence": "StreamEvidence",
    "model.terms": "TermScaler TermSet",
    "serialization": "load",
    "service.client": "Client",
    "service.archive": "Archive",
    "readers.table": "Table TextColumn table_from_records",
    "readers.decision_logs": "read_log",
    "readers.open": "open_reader",
    "readers.reader": "BadRow Reader",
    "scale.parallel": (
        "AuditedFile Compared Comparison FilesAudit audit_files compare map_in_parallel"
    ),
    "scale.folding": "FoldEvent FoldOutput fold",
    "scaler": "MixedScaler OnlineScaler SparseScaler",
    "evidence.linear_evidence": "LinearEvidence",
}
HOMES = {name: f"folklearn.{home}" for home, names in _MODULES.items() for name in names.split()}

# The classes whose objects saved files may hold, which name them.
SAVED = (
    "AdaBoostOL", "AdaBoostOLM", "AdaBoostOLMpp", "Aggregating", "Aioli", "Auto",
    "BanditReduction", "Banditron", "BoostingRegression", "Certifier", "ClassGaussians",
    "ColumnCounts", "DecisionModel", "Evidence", "FixedExperts", "FixedGaussian", "FixedPipeline",
    "Folklore", "Gaf", "Gaptron", "HoldoutWeights", "Laplace", "Leader", "LinearEvidence",
    "Metrics", "MixedScaler", "Mixture", "Model", "Monitor", "NaiveBayes", "Newtron",
    "Obama", "Ogd", "OnlineMBBM", "OnlinePipeline", "OnlineScaler", "OnlineToBatch", "Ons",
    "PredictionSets", "Probabilistic", "RewardAgent", "RowBuffer", "SMP", "SharedGaussian", "Soba",
    "SparseScaler", "SparseSgd", "StackedSgd", "StreamEvidence", "TableEncoder", "TermMixture",
    "TermScaler", "TermSet",
)  # fmt: skip

# What `folklearn` itself offers: names, and modules and packages that are loaded with it.
PUBLIC = (
    "Aggregating", "Aioli", "Certificate", "Certifier", "ClassGaussians", "DataWarning",
    "DecisionModel", "Evidence", "Folklore", "FolkloreClassifier", "Gaf", "Interactions", "Laplace",
    "Leader", "Learner", "Mixture", "Ogd", "Model", "OnlineScaler", "Ons", "Run", "LinearEvidence",
    "SharedGaussian", "SparseSgd", "Terms", "Waves", "auto",
    "best_in_class", "interact", "load", "off_policy", "progressive", "score",
)  # fmt: skip
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
