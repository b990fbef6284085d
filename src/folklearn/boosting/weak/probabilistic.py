"""From probabilities to a weak learner: choose by expected cost, learn by importance."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.serialization import Serializable


@runtime_checkable
class Classifier(Protocol):
    """What is wrapped: every learner of this library is one."""

    def predict(self, x: Array) -> Array:
        """Return the class probabilities (K,) of a context (d,)."""

    def update(self, x: Array, y: int, *, weight: float = 1.0) -> Any:
        """Learn one example that counts `weight` times."""


class Probabilistic(Serializable):
    r"""A weak learner made of a classifier with probabilities and weighted examples.

    Use it around any learner of this library, `NaiveBayes`, `Subspace` or `RiverClassifier`.

    .. math:: \hat l = \arg\min_k \sum_y p(y \mid x)\, C(y, k), \qquad
        \text{weight} = K \|C(y, \cdot)\|_1

    Ties go to the lowest class, and an example of weight 0 is not learned. The weight is at
    most K for sample weights of at most 1; a `Mixture` inside needs ``max_weight=K``.

    Time O(K^2) a round beside the classifier.

    Parameters
    ----------
    model : the classifier; the weak learner takes it over.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.boosting import NaiveBayes, Probabilistic
    >>> learner = Probabilistic(NaiveBayes(n_features=1, n_classes=2))
    >>> C = np.array([[0.0, 0.1], [0.9, 0.0]])  # to miss class 1 is what costs
    >>> learner.predict(np.zeros(1), C)
    1
    """

    CHILDREN = ("model",)

    def __init__(self, model: Any) -> None:
        if not isinstance(model, Classifier) or isinstance(model, type):
            raise InvalidInputError(
                f"{model!r} is no classifier: it needs predict(x) and update(x, y, weight=...)"
            )
        self.model: Classifier = model

    def predict(self, x: Array, C: Array) -> int:
        """Return the label of the least expected cost."""
        p = np.asarray(self.model.predict(x))
        if p.shape != (len(C),) or not np.isfinite(p).all():
            raise InvalidInputError(
                f"the classifier gave {p!r}; expected the probabilities of {len(C)} classes"
            )
        return int((p @ C).argmin())

    def update(self, x: Array, C: Array, y: int) -> None:
        """Learn the example as important as it is expensive."""
        weight = len(C) * float(np.abs(C[y]).sum())
        if weight > 0.0:
            self.model.update(x, y, weight=weight)
