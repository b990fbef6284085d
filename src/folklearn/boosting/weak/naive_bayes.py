"""Gaussian naive Bayes on a stream of weighted examples."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels.naive_bayes import add_moments, class_probabilities
from folklearn.serialization import Serializable


class NaiveBayes(Serializable):
    r"""Gaussian naive Bayes: a cheap weak learner that needs no extra and saves itself.

    Use it inside `Probabilistic`. Features are taken as independent within a class, so its
    probabilities are extreme; boosting corrects that, and on its own it is a poor forecaster.

    .. math:: p(y \mid x) \propto (n_y + 1) \prod_j N(x_j; \mu_{yj}, v_{yj})

    with weighted running moments. They start from imagined examples: one of mean 0 and
    variance 1 for all classes together, and for each class one with the moments of all
    classes. So the first prediction is uniform, and features should be of order 1. No
    variance of a class is below a tenth of the feature's own: a feature that does not vary
    then says nothing.

    Time O(K d) a round, memory 2 K d numbers.

    Parameters
    ----------
    n_features : number of features d.
    n_classes : number of classes K, at least 2.

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

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return 2 * K * d

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
