"""What is played: the data sets, the boosters, one tree, and River's ensembles of the same tree."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from river.ensemble import AdaBoostClassifier, ADWINBoostingClassifier, BOLEClassifier
from river.tree import HoeffdingTreeClassifier

from folklearn.baselines import AdaBoostOLM
from folklearn.boosting import AdaBoostOLMpp, RiverClassifier, hoeffding_trees

SETS = ("balance_scale", "mice", "car", "mushroom", "nursery", "segment", "pendigits")
# All rows of the others. Trees take a millisecond or more a round where features are many.
MOST_ROWS = {"mushroom": 1_500, "nursery": 2_500, "pendigits": 5_000}
TIMED = ("balance_scale", "nursery", "pendigits")
TRAINED = 0.8  # this share of the rows is not scored
FLOOR = 1e-15  # a smaller probability of the label that came counts as this
TREE = {"grace_period": 20, "delta": 0.1}  # the default weak learner's
SIZES = (1, 2, 5, 10, 20)
N = SIZES[-1]


@dataclass(frozen=True)
class Method:
    """A way to predict: `make` takes d, K, N and a seed.

    `nested`: the prefixes of its run with N learners are its runs with fewer.
    """

    make: Callable[[int, int, int, int], Any]
    sizes: tuple[int, ...] = (N,)
    nested: bool = False
    booster: bool = False


def _ours(booster: type, **words: Any) -> Callable[[int, int, int, int], Any]:
    def make(d: int, K: int, n: int, seed: int) -> Any:
        trees = hoeffding_trees(n_classes=K, **TREE)
        return booster(
            n_features=d, n_classes=K, n_learners=n, weak_learner=trees, seed=seed, **words
        )

    return make


def _theirs(ensemble: type) -> Callable[[int, int, int, int], Any]:
    def make(d: int, K: int, n: int, seed: int) -> Any:
        tree = HoeffdingTreeClassifier(**TREE)
        return RiverClassifier(ensemble(tree, n_models=n, seed=seed), n_classes=K)

    return make


def _tree(d: int, K: int, n: int, seed: int) -> Any:
    return RiverClassifier(HoeffdingTreeClassifier(**TREE), n_classes=K)


def _nested(booster: type, **words: Any) -> Method:
    return Method(_ours(booster, **words), SIZES, nested=True, booster=True)


ONE, OLMPP, OLM = "one tree", "OLM++", "OLM"
OFFSET = "OLM++, offset"  # played if asked for
METHODS = {
    ONE: Method(_tree, sizes=(1,)),
    OLMPP: _nested(AdaBoostOLMpp),
    OFFSET: _nested(AdaBoostOLMpp, regression="offset"),
    OLM: _nested(AdaBoostOLM),
    "River AdaBoost": Method(_theirs(AdaBoostClassifier)),
    "River ADWIN boosting": Method(_theirs(ADWINBoostingClassifier)),
    "River BOLE": Method(_theirs(BOLEClassifier)),
}


def runs(name: str) -> tuple[int, ...]:
    """Return the numbers of learners of the runs that give a method's scores at all its sizes."""
    method = METHODS[name]
    return method.sizes[-1:] if method.nested else method.sizes
