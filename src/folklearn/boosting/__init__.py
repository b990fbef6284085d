"""Online multiclass boosting: many weak learners, one strong one."""

from folklearn.boosting.booster import Booster
from folklearn.boosting.contract import WeakLearner, WeakLearnerError
from folklearn.boosting.costs import logistic_costs, pairwise_costs
from folklearn.boosting.mbbm import OnlineMBBM
from folklearn.boosting.ol import AdaBoostOL
from folklearn.boosting.olm import AdaBoostOLM
from folklearn.boosting.olmpp import AdaBoostOLMpp
from folklearn.boosting.regression import BoostingRegression
from folklearn.boosting.weak.naive_bayes import NaiveBayes
from folklearn.boosting.weak.probabilistic import Probabilistic
from folklearn.boosting.weak.river import RiverClassifier, hoeffding_trees
from folklearn.boosting.weak.subspace import Subspace, random_subspaces

__all__ = [
    "AdaBoostOL",
    "AdaBoostOLM",
    "AdaBoostOLMpp",
    "Booster",
    "BoostingRegression",
    "NaiveBayes",
    "OnlineMBBM",
    "Probabilistic",
    "RiverClassifier",
    "Subspace",
    "WeakLearner",
    "WeakLearnerError",
    "hoeffding_trees",
    "logistic_costs",
    "pairwise_costs",
    "random_subspaces",
]
