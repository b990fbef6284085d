"""`folklearn.Model` as a River classifier; the extra `river` brings River."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.learners import catalogue
from folklearn.model.model import Model
from folklearn.readers.open import as_table

try:
    import narwhals.stable.v2 as nw
    from river import base
    from river.utils import dataframe
except ImportError as error:
    raise ImportError(
        f"{error}: River comes with the extra, pip install 'folklearn[river]'"
    ) from None


class FolkloreStreamClassifier(base.MiniBatchClassifier):
    r"""Online multiclass logistic regression with a live certificate, as a River classifier.

    Use it wherever River takes a multiclass classifier: there is no learning rate, features
    need no scaling, and features and classes may appear at any time. It translates to and from a
    `folklearn.Model`, its attribute `model`: a feature is a number, a category, words (text of
    three words or more) or a date, as its first value is. One that is absent, None or NaN is
    missing, and one that was never learned is ignored in a prediction. Prefer a first-order model
    of River for more than a few hundred numbers: the state has ((K-1) d)^2 numbers.

    Probabilities are those of the classes seen so far and sum to 1; with `unseen_probability` u,
    the probability of a class k is (1 - u) p_k. They are for examples whose labels come soon;
    `model.predict_proba` is for others. A label is anything hashable but None and NaN, of one type;
    a soft label is a dictionary of probabilities that sum to 1, such as `predict_proba_one`
    returns. `learn_many` is the loop over `learn_one`, at the speed of matrix products. An example
    is learned completely or, with an error, not at all. It can be pickled; without pickle
    `model.save` writes the full state, and what `folklearn.load` returns may be set as `model`.

    Guarantee: that of `certificate`, about linear models of the features, standardised once.

    Parameters
    ----------
    learner : "auto", which needs no setting, or "folklore", "gaf", "laplace" or "ogd".
    B, lam : largest norm of the weights of a class, of rows scaled to a norm of about 1, and ridge
        :math:`\lambda`, positive; the learner's own defaults if None. "auto" takes neither.
    scale : standardise numbers online; False where a scaler of River comes before.
    intercept : append a constant to the features.
    max_weight : largest weight w that will occur, which "auto" must know; the others take any.
    terms : "auto", "none" or "all": curves and products of the features, see `folklearn.Model`.
    memory : rounds after which an example counts 1/e of what it did, for streams that drift; None
        forgets nothing. Only "folklore" forgets.
    missing : texts and numbers that stand for a missing value, such as (-999,); None and NaN do.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from folklearn.adapters.river import FolkloreStreamClassifier
    >>> model = FolkloreStreamClassifier("folklore")
    >>> stream = datasets.ImageSegments().take(500)
    >>> evaluate.progressive_val_score(stream, model, metrics.Accuracy()).get() > 0.8
    True
    >>> model.certificate().valid
    True
    """

    def __init__(
        self,
        learner: str = "auto",
        B: float | None = None,
        lam: float | None = None,
        scale: bool = True,
        intercept: bool = True,
        max_weight: float = 1.0,
        memory: int | None = None,
        terms: str = "auto",
        missing: Iterable[str | float] | None = None,
    ) -> None:
        self.learner = learner
        self.terms = terms
        self.missing = missing
        self.B = B
        self.lam = lam
        self.scale = scale
        self.intercept = intercept
        self.max_weight = max_weight
        self.memory = memory
        catalogue.check_grows(learner)
        values: dict[str, Any] = {"B": B, "lam": lam, "memory": memory}
        settings = {name: value for name, value in values.items() if value is not None}
        heaviest = validation.positive("max_weight", max_weight)
        if "max_weight" in catalogue.settings_of(learner):
            settings["max_weight"] = heaviest
        self.model = Model(
            learner, scale=scale, intercept=intercept, terms=terms, missing=missing, **settings
        )

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen."""
        return self.model.unseen_probability

    def certificate(self) -> Certificate | None:
        """Return the certificate of `folklearn.Model`, or None before the second class."""
        return self.model.certificate()

    def predict_proba_one(
        self, x: Mapping[base.typing.FeatureName, Any], **kwargs: Any
    ) -> dict[base.typing.ClfTarget, float]:
        """Return the probability of every class seen so far; they sum to 1."""
        return self.model.predict_proba_one(x)

    def learn_one(
        self,
        x: Mapping[base.typing.FeatureName, Any],
        y: base.typing.ClfTarget | Mapping[base.typing.ClfTarget, float],
        w: float = 1.0,
    ) -> None:
        """Learn an example that counts `w` times, or refuse it and leave all as it was.

        y is a label, or the probability of each of several labels.
        """
        self.model.learn_one(x, y, weight=w)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a data frame, each as by `learn_one`, or none of them.

        y holds a label for each row, and some or all may be soft; w is one weight, or one for
        each row.
        """
        series = nw.from_native(y, series_only=True, pass_through=True)
        labels = series.to_list() if isinstance(series, nw.Series) else list(series)
        if len(X) or labels:
            self.model.learn_many(X, labels, weight=w)

    def predict_proba_many(self, X: Any) -> Any:
        """Return a data frame with a column for every class, in order of appearance.

        It is of the kind of X; other kinds than pandas name the columns by `str` of the label.
        """
        frame, labels, P = dataframe.into_frame(X), self.model.labels, self._probabilities(X)
        columns = {label: P[:, k] for k, label in enumerate(labels)}
        if not frame.implementation.is_pandas_like() and len({*map(str, columns)}) < len(columns):
            raise InvalidInputError(
                f"among {list(labels)} are two labels that would name the same column of this "
                "kind of data frame: use pandas, or labels of one type"
            )
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """Return the most probable class of every row as a series of the kind of X."""
        frame, labels, P = dataframe.into_frame(X), self.model.labels, self._probabilities(X)
        best = P.argmax(axis=1).tolist() if labels else []
        predicted = [labels[k] for k in best] or [None] * len(frame)
        return dataframe.to_native_series(predicted, name=None, like=frame)

    def _probabilities(self, X: Any) -> Array:
        if not self.model.labels or not len(X):
            return np.empty((len(X), len(self.model.labels)))
        return self.model.predict_next(as_table(X))
