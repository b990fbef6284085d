"""Weak learners: probabilistic classifiers that predict by expected cost, learn by weight."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels.boosting import add_moments, class_probabilities
from folklearn.serialization import Serializable
from folklearn.utils import import_optional

_MAX_REPETITIONS = 1000


def _check_methods(kind: str, model: Any, *names: str) -> None:
    has_methods = all(callable(getattr(model, name, None)) for name in names)
    if isinstance(model, type) or not has_methods:
        raise InvalidInputError(f"{model!r} is no {kind}: it needs {' and '.join(names)}")


class Probabilistic(Serializable):
    r"""A weak learner made of a classifier with probabilities and weighted examples.

    Use it around any learner of this library, `NaiveBayes` or `RiverClassifier`.

    .. math:: \hat l = \arg\min_k \sum_y p(y \mid x)\, C(y, k), \qquad
        \text{weight} = K \|C(y, \cdot)\|_1

    Ties go to the lowest class. The weight is at most K for sample weights of at most 1; a
    `Mixture` inside needs ``max_weight=K``. Time O(K^2) a round plus that of the classifier.

    Parameters
    ----------
    model : the classifier, with predict(x) and update(x, y, weight=...); it is taken over.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.boosting import NaiveBayes, Probabilistic
    >>> learner = Probabilistic(NaiveBayes(n_features=1, n_classes=2))
    >>> learner.predict(np.zeros(1), np.array([[0.0, 0.1], [0.9, 0.0]]))  # to miss 1 costs most
    1
    """

    CHILDREN = ("model",)

    def __init__(self, model: Any) -> None:
        _check_methods("classifier", model, "predict", "update")
        self.model: Any = model

    def predict(self, x: Array, C: Array) -> int:
        """Return the label of the least expected cost."""
        p = np.asarray(self.model.predict(x))
        if p.shape != (len(C),) or not np.isfinite(p).all():
            raise InvalidInputError(
                f"the classifier gave {p!r}; expected the probabilities of {len(C)} classes"
            )
        return int((p @ C).argmin())

    def update(self, x: Array, C: Array, y: int) -> None:
        """Learn the example with a weight proportional to its cost."""
        weight = len(C) * float(np.abs(C[y]).sum())
        if weight > 0.0:
            self.model.update(x, y, weight=weight)


class NaiveBayes(Serializable):
    r"""Gaussian naive Bayes: a cheap weak learner without dependencies, which can be saved.

    Use it inside `Probabilistic`; on its own it is a poor forecaster, of extreme probabilities.

    .. math:: p(y \mid x) \propto (n_y + 1) \prod_j N(x_j; \mu_{yj}, v_{yj})

    with weighted running moments, which start from an example of mean 0 and variance 1: features
    should be of order 1. No variance of a class is below a tenth of the feature's own. Time O(K d)
    a round, memory 2 K d numbers.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.

    Examples
    --------
    >>> from folklearn.boosting import NaiveBayes
    >>> model = NaiveBayes(n_features=1, n_classes=2)
    >>> for x, y in [(-1.0, 0), (1.0, 1), (-1.2, 0), (0.9, 1)]:
    ...     model.update([x], y)
    >>> model.predict([1.0]).argmax()
    np.int64(1)
    """

    PARAMS = ("n_features", "n_classes")
    ARRAYS = ("mass", "mean", "spread")
    FEWEST_NUMBERS = staticmethod(lambda d, K: 2 * K * d)

    def __init__(self, *, n_features: int, n_classes: int) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self._shape = (self.n_features,)
        self._mass: Array = np.zeros(self.n_classes)
        self._mean: Array = np.zeros((self.n_classes, self.n_features))
        self._spread: Array = np.zeros((self.n_classes, self.n_features))

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities (K,) of a context (d,)."""
        if not validation.is_context(x, self._shape):
            x = validation.usable_context(x, self.n_features)
        p = np.empty(self.n_classes)
        class_probabilities(self._mass, self._mean, self._spread, x, p)
        return p

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> None:
        """Learn one example with a class 0..K-1; weight 0 changes nothing."""
        x = validation.usable_context(x, self.n_features)
        label, _ = validation.label(y, self.n_classes)
        if label < 0:
            raise InvalidInputError("NaiveBayes learns from hard labels 0..K-1 only")
        weight = validation.weight(weight)
        if weight > 0.0:
            add_moments(self._mass, self._mean, self._spread, x, label, weight)


class RiverClassifier:
    """A River classifier with the methods of this library, for use inside `Probabilistic`.

    A classifier that takes no weight ``w`` learns an example of weight w floor(w) times, and once
    more with probability w - floor(w). It cannot be saved: River has no state file but pickle.

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
        _check_methods("River classifier", model, "learn_one", "predict_proba_one")
        if n_classes > 2 and getattr(model, "_multiclass", True) is False:
            raise InvalidInputError(
                f"River's {type(model).__name__} is for two classes, not {n_classes}: put it "
                "inside river.multiclass.OneVsRestClassifier"
            )
        self.model: Any = model
        self.n_classes = validation.count("n_classes", n_classes, 2)
        # A pipeline hands keywords to its last step.
        last = list(model.steps.values())[-1] if hasattr(model, "steps") else model
        self._takes_weights = "w" in inspect.signature(last.learn_one).parameters
        self._rng = np.random.default_rng(0) if rng is None else rng

    def predict(self, x: Array) -> Array:
        """Return the class probabilities (K,) of a context (d,)."""
        probabilities = self.model.predict_proba_one(dict(enumerate(x.tolist())))
        p = np.array([probabilities.get(k, 0.0) for k in range(self.n_classes)])
        is_usable = 0.0 < p.sum() < math.inf  # and not empty
        return p / p.sum() if is_usable else np.full(self.n_classes, 1.0 / self.n_classes)

    def update(self, x: Array, y: int, *, weight: float = 1.0) -> None:
        """Learn one example that counts `weight` times."""
        features = dict(enumerate(x.tolist()))
        if self._takes_weights:
            self.model.learn_one(features, y, w=weight)
            return
        if weight > _MAX_REPETITIONS:
            raise InvalidInputError(
                f"River's {type(self.model).__name__} takes no weights and would learn an example "
                f"of weight {weight:g} that many times; at most {_MAX_REPETITIONS} are allowed"
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

    They split early, which suits a tree that only has to be better than guessing.
    """
    trees = import_optional("river.tree", "give weak_learner: its default needs", "river")

    def factory(index: int, rng: np.random.Generator) -> Probabilistic:
        tree = trees.HoeffdingTreeClassifier(grace_period=grace_period, delta=delta)
        return Probabilistic(RiverClassifier(tree, n_classes=n_classes, rng=rng))

    return factory
