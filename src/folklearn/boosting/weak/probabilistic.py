"""From probabilities to a weak learner: choose by expected cost, learn by importance."""

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from folklearn import persist, registry
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.persist import Record

Array = NDArray[np.float64]


class Classifier(Protocol):
    """What is wrapped: every learner of this library is one."""

    def predict(self, x: Array) -> Array:
        """Return the class probabilities (K,) of a context (d,)."""

    def update(self, x: Array, y: int, *, weight: float = 1.0) -> Any:
        """Learn one example that counts `weight` times."""


class Probabilistic:
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
    >>> learner = Probabilistic(NaiveBayes(1, 2))
    >>> C = np.array([[0.0, 0.1], [0.9, 0.0]])  # to miss class 1 is what costs
    >>> learner.predict(np.zeros(1), C)
    1
    """

    def __init__(self, model: Classifier) -> None:
        verbs = [callable(getattr(model, verb, None)) for verb in ("predict", "update")]
        if not all(verbs) or isinstance(model, type):
            raise InvalidInputError(
                f"{model!r} is no classifier: it needs predict(x) and update(x, y, weight=...)"
            )
        self.model = model

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

    def to_record(self) -> Record:
        """Return the full state as a record; the classifier must be able to save itself."""
        save = getattr(self.model, "to_record", None)
        if not callable(save):
            raise FolklearnError(
                f"{self!r} cannot be saved: a {type(self.model).__name__} has no state that this "
                "library can write; use a weak learner of this library instead"
            )
        entry, arrays = persist.nest("model", save())
        return Record("Probabilistic", {"model": entry}, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a weak learner from its record."""
        try:
            inner = persist.unnest("model", record.config["model"], record.arrays)
        except (KeyError, TypeError) as error:
            raise StateFileError(f"a Probabilistic state is incomplete: {error}") from None
        return cls(registry.revive(inner))

    def __repr__(self) -> str:
        return f"Probabilistic({self.model!r})"
