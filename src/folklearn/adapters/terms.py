"""Terms of columns as scikit-learn transformers: all kinds of them, or waves alone."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from folklearn import validation
from folklearn.arrays import Array
from folklearn.kernels.blas import device_named
from folklearn.kernels.on_torch import back, put
from folklearn.learners.term_mixture import affordable_terms
from folklearn.model.terms import TermSet, choose_terms, draw_waves
from folklearn.scaler import FixedScaler, Moments

_MAX_ROWS = 4096  # by which terms are chosen
_ROWS_AT_ONCE = 8192  # that waves are computed of


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
    crosses : whether products of two steps are among them.

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

    def __init__(self, *, n_terms: int | None = None, crosses: bool = False) -> None:
        self.n_terms = n_terms
        self.crosses = crosses

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Choose terms of the columns of X (T, d) that tell the classes y (T,) apart."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any, **options: Any) -> Array:
        """Choose terms by rows X (T, d) and classes y (T,), and return them, with the columns."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", ensure_all_finite="allow-nan")
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        n_most = affordable_terms(X.shape[1] + 1, len(classes))
        if self.n_terms is not None:
            n_most = validation.count("n_terms", self.n_terms, 0)
        first = slice(_MAX_ROWS)
        self.terms_ = choose_terms(X[first], labels[first], n_most, crosses=bool(self.crosses))
        whole = FixedScaler(intercept=False)
        self._columns = whole.opened(Moments.of(X), [True] * X.shape[1])
        Z = self._columns.transform(X)
        values = self.terms_.expand(X, Z)
        self._terms = whole.opened(Moments.of(values), [True] * values.shape[1])
        self._factors = math.sqrt(X.shape[1]) * self.terms_.factors
        return np.hstack([self._terms.transform(values) * self._factors, Z])

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


class Waves(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Random cosines of rows as they are: for pixels, and other columns of one scale.

    .. math:: \sqrt{2/m} \cos(\langle \omega_i, x \rangle + b_i), \quad i = 1 \dots m, \quad
        \omega_i \sim N(0, \sigma^2 I / d),

    b uniform. A model that is linear in many of them is one of the kernel
    :math:`\exp(-\sigma^2 |x - x'|^2 / 2d)`, at a price that does not grow with the rows
    (`SharedGaussian` learns a thousand of them in .2 ms a row, `Leader` on a GPU). Nothing is
    learned from rows, so nothing leaks if all are transformed before they are predicted one after
    the other. Transformed rows have a norm of about 1. Columns of different units, curves and
    products: `Terms`.

    Time 2 m d operations a row.

    Parameters
    ----------
    n_waves : their number m.
    sigma : how fast they turn, positive: such that :math:`\sigma |x - x'| / \sqrt d` is 2 or 3
        for rows that have little in common.
    seed : of frequencies and phases.
    device : where they are computed: "cpu", the default, or a device of PyTorch such as "cuda".

    Attributes
    ----------
    frequencies_, phases_ : (m, d), (m,).
    n_features_in_, feature_names_in_ : number of columns d, and their names if they are text.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from folklearn import SharedGaussian, Waves, score
    >>> X, y = load_digits(return_X_y=True)
    >>> Z = Waves(n_waves=300, sigma=4.0).fit_transform(X / 16.0)
    >>> P = SharedGaussian(n_features=300, n_classes=10).run(Z, y)
    >>> score(P, y).error_rate < 0.08
    True

    References
    ----------
    Rahimi and Recht (2007), "Random features for large-scale kernel machines".
    """

    frequencies_: Array
    phases_: Array

    def __init__(
        self, *, n_waves: int = 500, sigma: float = 1.0, seed: int = 0, device: str | None = None
    ) -> None:
        self.n_waves = n_waves
        self.sigma = sigma
        self.seed = seed
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw waves for rows of as many columns as X (T, d) has."""
        X = validate_data(self, X, dtype=np.float64)
        self._n_features_out = validation.count("n_waves", self.n_waves, 1)
        sigma = validation.positive("sigma", self.sigma)
        sigmas = np.full(self._n_features_out, sigma)
        self.frequencies_, self.phases_ = draw_waves(len(sigmas), X.shape[1], sigmas, self.seed)
        return self

    def transform(self, X: Any) -> Array:
        """Return the waves (T, m) of rows X (T, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        device = device_named(self.device)
        F, phases = put(device, self.frequencies_.T), put(device, self.phases_)
        cos = np.cos if device is None else device.torch.cos
        values = np.empty((len(X), len(phases)))
        for rows in gen_batches(len(X), _ROWS_AT_ONCE):
            values[rows] = back(cos(put(device, X[rows]) @ F + phases))
        values *= math.sqrt(2.0 / len(phases))
        return values
