"""River's classifiers as weak learners; the extra `river` brings them."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.boosting.weak.probabilistic import Probabilistic
from folklearn.errors import FolklearnError, InvalidInputError

_MOST_REPETITIONS = 1000


@runtime_checkable
class _OfRiver(Protocol):
    def learn_one(self, x: dict[Any, Any], y: Any) -> Any: ...

    def predict_proba_one(self, x: dict[Any, Any]) -> dict[Any, float]: ...


class RiverClassifier:
    """Any River classifier behind this library's verbs, for use inside `Probabilistic`.

    Features become a dictionary {column: value} and classes the integers 0..K-1. A class
    that River does not mention has probability 0, and before the first example all are equal.
    A classifier that takes no weight ``w`` learns an example of weight w floor(w) times, and
    once more with probability w - floor(w): right on average, and as reproducible as `rng`.
    It cannot be saved: River has no state file but pickle.

    Parameters
    ----------
    model : a River classifier, or a pipeline that ends in one.
    n_classes : number of classes K.
    rng : for a classifier without weights.

    Examples
    --------
    >>> import numpy as np
    >>> from river.linear_model import Perceptron
    >>> from folklearn.boosting import RiverClassifier
    >>> model = RiverClassifier(Perceptron(), n_classes=2)
    >>> model.update(np.array([1.0, -1.0]), 1, weight=0.5)
    >>> model.predict(np.array([1.0, -1.0])).argmax()
    np.int64(1)
    """

    def __init__(
        self, model: Any, *, n_classes: int, rng: np.random.Generator | None = None
    ) -> None:
        if not isinstance(model, _OfRiver) or isinstance(model, type):
            raise InvalidInputError(
                f"{model!r} is no River classifier: it needs learn_one and predict_proba_one"
            )
        if n_classes > 2 and getattr(model, "_multiclass", True) is False:
            raise InvalidInputError(
                f"River's {type(model).__name__} is for two classes, not {n_classes}: put it "
                "inside river.multiclass.OneVsRestClassifier"
            )
        self.model: Any = model
        self.n_classes = validation.count("n_classes", n_classes, 2)
        # A pipeline hands keywords to its last step.
        last = list(model.steps.values())[-1] if hasattr(model, "steps") else model
        self._weighs = "w" in inspect.signature(last.learn_one).parameters
        self._rng = np.random.default_rng(0) if rng is None else rng

    def predict(self, x: Array) -> Array:
        """Return the class probabilities (K,) of a context (d,)."""
        said = self.model.predict_proba_one(dict(enumerate(x.tolist())))
        p = np.array([said.get(k, 0.0) for k in range(self.n_classes)])
        total = p.sum()
        if not 0.0 < total < math.inf:  # nothing said, or nothing usable
            return np.full(self.n_classes, 1.0 / self.n_classes)
        p /= total
        return p

    def update(self, x: Array, y: int, *, weight: float = 1.0) -> None:
        """Learn one example that counts `weight` times."""
        features = dict(enumerate(x.tolist()))
        if self._weighs:
            self.model.learn_one(features, y, w=weight)
            return
        if weight > _MOST_REPETITIONS:
            raise InvalidInputError(
                f"River's {type(self.model).__name__} takes no weights and would learn an example "
                f"of weight {weight:g} that many times; at most {_MOST_REPETITIONS} are allowed"
            )
        whole = math.floor(weight)
        for _ in range(whole + int(self._rng.random() < weight - whole)):
            self.model.learn_one(features, y)

    def __repr__(self) -> str:
        return f"RiverClassifier({type(self.model).__name__}, n_classes={self.n_classes})"


def hoeffding_trees(
    *, n_classes: int, grace_period: int = 20, delta: float = 0.1
) -> Callable[[int, np.random.Generator], Probabilistic]:
    """Return a factory of River's Hoeffding trees, the default weak learners.

    They split early: a small `grace_period` and a large `delta` suit a tree that only has to
    be better than guessing. All start equal, and differ by what their costs make important.
    """
    try:
        from river.tree import HoeffdingTreeClassifier
    except ImportError:
        raise FolklearnError(
            "the default weak learners are River's Hoeffding trees, which come with the extra: "
            "pip install 'folklearn[river]', or give weak_learner"
        ) from None

    def factory(index: int, rng: np.random.Generator) -> Probabilistic:
        tree = HoeffdingTreeClassifier(grace_period=grace_period, delta=delta)
        return Probabilistic(RiverClassifier(tree, n_classes=n_classes, rng=rng))

    return factory
