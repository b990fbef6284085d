"""Terms of columns as a scikit-learn transformer."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from folklearn import validation
from folklearn.arrays import Array
from folklearn.learners.term_mixture import affordable_terms
from folklearn.model.terms import TermSet, choose_terms
from folklearn.scaler import FixedScaler, Moments

_MAX_ROWS = 4096  # by which terms are chosen


class Terms(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Curves, products and waves of columns, as columns for any linear model.

    `transform` returns the terms (`folklearn.model.terms.TermSet`), then the columns. Columns are
    standardised by the rows of `fit`, and so are terms; then every kind of term (hinges, steps,
    products, waves) has the same length as the others, and all together that of the columns, so
    that one penalty is right for all. A missing value is 0, the mean. Rows have a norm of about
    :math:`\sqrt{2d}`.

    `folklearn.Model` does all of this by itself, on line.

    Parameters
    ----------
    n_terms : number of terms at most, or None for what `Model` takes by default.

    Attributes
    ----------
    terms_ : the `TermSet`, chosen by the F statistic of columns in the first 4,096 rows.
    n_features_in_, feature_names_in_ : number of columns, and their names if they are text.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Terms
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = (X**2).sum(axis=1) > 1.4
    >>> make_pipeline(Terms(), LogisticRegression()).fit(X, y).score(X, y) > 0.95
    True
    """

    terms_: TermSet

    def __init__(self, *, n_terms: int | None = None) -> None:
        self.n_terms = n_terms

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Choose terms of the columns of X (T, d) that tell the classes y (T,) apart."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", ensure_all_finite="allow-nan")
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        n_most = affordable_terms(X.shape[1] + 1, len(classes))
        if self.n_terms is not None:
            n_most = validation.count("n_terms", self.n_terms, 0)
        first = slice(_MAX_ROWS)
        self.terms_ = choose_terms(X[first], labels[first], n_most)
        whole = FixedScaler(intercept=False)
        self._columns = whole.opened(Moments.of(X), [True] * X.shape[1])
        values = self.terms_.expand(X, self._columns.transform(X))
        self._terms = whole.opened(Moments.of(values), [True] * values.shape[1])
        self._factors = math.sqrt(X.shape[1]) * self.terms_.factors
        return self

    def transform(self, X: Any) -> Array:
        """Return the terms of rows X (T, d), then the columns."""
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, dtype=np.float64, order="C", ensure_all_finite="allow-nan"
        )
        Z = self._columns.transform(X)
        return np.hstack([self._terms.transform(self.terms_.expand(X, Z)) * self._factors, Z])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the terms, then those of the columns."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.array([*self.terms_.names(list(names)), *names], dtype=object)
