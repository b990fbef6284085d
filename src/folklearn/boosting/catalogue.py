"""The boosters and weak learners by name, for those who choose them by a word."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from folklearn import problem
from folklearn.boosting.booster import Booster
from folklearn.boosting.contract import WeakLearners
from folklearn.boosting.mbbm import OnlineMBBM
from folklearn.boosting.ol import AdaBoostOL
from folklearn.boosting.olm import AdaBoostOLM
from folklearn.boosting.olmpp import AdaBoostOLMpp
from folklearn.boosting.regression import KINDS as _REGRESSIONS
from folklearn.boosting.weak.naive_bayes import NaiveBayes
from folklearn.boosting.weak.probabilistic import Probabilistic
from folklearn.boosting.weak.river import hoeffding_trees
from folklearn.boosting.weak.subspace import random_subspaces
from folklearn.errors import FolklearnError
from folklearn.learners.folklore import Folklore

DEFAULT = "olm++"
DEFAULT_WEAK = "tree"
REGRESSIONS = tuple(_REGRESSIONS)


@dataclass(frozen=True)
class _Kind:
    make: Callable[..., Booster]
    option: str = ""  # what it takes that the others do not
    label: str = "the label that Hedge follows"


_KINDS = {
    "olm++": _Kind(AdaBoostOLMpp, option="regression"),
    "olm": _Kind(AdaBoostOLM),
    "mbbm": _Kind(OnlineMBBM, option="edge", label="the majority of votes"),
    "ol": _Kind(AdaBoostOL),
}
NAMES = tuple(_KINDS)


def _naive_bayes(n_features: int, n_classes: int) -> WeakLearners:
    return lambda index, rng: Probabilistic(NaiveBayes(n_features=n_features, n_classes=n_classes))


def _subspaces(n_features: int, n_classes: int) -> WeakLearners:
    return random_subspaces(
        lambda d: Folklore(n_features=d, n_classes=n_classes), n_features=n_features
    )


def _trees(n_features: int, n_classes: int) -> WeakLearners:
    return hoeffding_trees(n_classes=n_classes)


_WEAK: dict[str, Callable[[int, int], WeakLearners]] = {
    "tree": _trees,
    "naive-bayes": _naive_bayes,
    "folklore-subspace": _subspaces,
}
WEAK_NAMES = tuple(_WEAK)


@dataclass(frozen=True)
class Settings:
    """What was asked for; refused at once if it makes no sense, whatever the data are."""

    booster: str
    weak: str
    n_learners: int
    regression: str | None = None
    edge: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.booster not in _KINDS:
            raise FolklearnError(
                f"there is no booster {self.booster!r}; choose one of: {', '.join(NAMES)}"
            )
        if self.weak not in _WEAK:
            raise FolklearnError(
                f"there is no weak learner {self.weak!r}; choose one of: {', '.join(WEAK_NAMES)}"
            )
        problem.count("n_learners", self.n_learners, 1)
        problem.count("seed", self.seed, 0)
        for option in self.own:
            if option != _KINDS[self.booster].option:
                owner = next(name for name, kind in _KINDS.items() if kind.option == option)
                raise FolklearnError(f"{self.booster} takes no {option}; only {owner} does")
        if self.regression is not None and self.regression not in REGRESSIONS:
            raise FolklearnError(
                f"regression must be {', '.join(REGRESSIONS[:-1])} or {REGRESSIONS[-1]}, got "
                f"{self.regression!r}"
            )
        if self.edge is not None and not 0.0 < self.edge < 1.0:
            raise FolklearnError(
                f"edge must be a number between 0 and 1, got {self.edge!r}: how much better "
                "than guessing every weak learner is"
            )
        if self.weak == "tree" and importlib.util.find_spec("river") is None:
            raise FolklearnError(
                "trees need River, which comes with the extra: pip install "
                "'folklearn[river]'; or choose naive-bayes"
            )

    @property
    def own(self) -> dict[str, Any]:
        """The options that were given and that not every booster takes."""
        options = {"regression": self.regression, "edge": self.edge}
        return {option: value for option, value in options.items() if value is not None}

    @property
    def label(self) -> str:
        """What makes the label of the booster."""
        return _KINDS[self.booster].label


def make(settings: Settings, n_features: int, n_classes: int) -> Booster:
    """Return a booster that has learned nothing."""
    if settings.booster == "ol" and n_classes != 2:
        raise FolklearnError(
            f"ol is for two classes, and there are {n_classes}; choose {DEFAULT}, which "
            "is for any number"
        )
    return _KINDS[settings.booster].make(
        n_features=n_features,
        n_classes=n_classes,
        n_learners=settings.n_learners,
        weak_learner=_WEAK[settings.weak](n_features, n_classes),
        seed=settings.seed,
        **settings.own,
    )


def use_every_kernel(settings: Settings) -> None:
    """Let a booster of the kind learn a few rounds, to compile what it uses, and drop it."""
    X = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    small = Settings(settings.booster, settings.weak, 2, settings.regression, settings.edge)
    booster = make(small, 3, 2)
    booster.predict_label(X[0])
    booster.run(np.tile(X, (8, 1)), np.arange(16) % 2)


def described(booster: Any, settings: Settings) -> str:
    """Return a booster with its settings."""
    words = [settings.booster, f"{settings.n_learners} weak learners of kind {settings.weak}"]
    option = _KINDS[settings.booster].option
    if option:
        words.append(f"{option} {getattr(booster, option)}")
    return ", ".join([*words, f"seed {settings.seed}"])
