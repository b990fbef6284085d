"""Features of any scale, made comparable: on line as they arrive, or once for all."""

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import TINY, Array, Labels
from folklearn.kernels import scaling
from folklearn.kernels.scaling import COUNT, HALF_MEAN, HALF_SQUARES, MEAN, N_MOMENTS, SQUARES
from folklearn.serialization import Serializable
from folklearn.sparse import SparseRows, StackedRows

# A hair below the limit: the constant that is appended must not lift a context above it.
_MAX_NORM = validation.MAX_NORM * (1.0 - 1e-12)
_FEW_VALUES = 64  # whose moments alone would tell what they were
_LEAST_VARIATION = 1e-13  # of the mean: less is rounding
_LEAST_DEVIATION = 1e-150
SPACE_BITS = 40
SPACE = 2**SPACE_BITS  # columns of the output for one column of the data, where rows stay sparse
_MOST_SLOTS = 2**22 - 1  # `SparseSgd` has 2^62 columns
_CONSTANT = 0.3  # next to rows of norm 1: larger ones slow the words down


class OnlineScaler(Serializable):
    """Standardise features on line, append a constant, and bring the norm to about 1.

    Each feature is centred by its mean and divided by its standard deviation over the t
    examples so far, this one included, clipped to ±min(5, sqrt(t - 1)), followed by a constant 1,
    and everything is divided by sqrt(d + 1). A feature that has not varied yet gives 0.

    Absurd values do little harm. One that is more than 8 standard deviations away from the
    mean of the earlier ones counts as if it were 8 away: as long as fewer than one value in
    64 is absurd, the deviation stays in bounds, and a scale that really grows is followed, by
    a factor e for every n/32 of n rows. And whenever n doubles, from 8 on, the last half of
    the rows replaces all of them if its deviation is less than an eighth of theirs, but not 0.

    Parameters
    ----------
    n_features : number of raw features d, at least 1.
    scale : False leaves the values as they are.
    intercept : append the constant; the output then has d + 1 columns.
    gaps : take NaN for a missing value: it becomes the mean so far, that is 0 after scaling
        (or 0 without), and does not move mean and deviation. Otherwise NaN is refused.

    Examples
    --------
    >>> scaler = OnlineScaler(n_features=1)
    >>> scaler.learn_transform([[10.0], [30.0], [20.0]]).round(2)
    array([[0.  , 0.71],
           [0.71, 0.71],
           [0.  , 0.71]])
    """

    PARAMS = ("n_features", "scale", "intercept", "gaps")
    COUNTERS = ("_first", "_count")
    ARRAYS = ("moments",)

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        return N_MOMENTS * validation.count("n_features", words["n_features"], 1)

    def __init__(
        self, *, n_features: int, scale: bool = True, intercept: bool = True, gaps: bool = False
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.scale, self.intercept, self.gaps = bool(scale), bool(intercept), bool(gaps)
        # A feature that appears later must move nothing: it gets a column behind the constant,
        # and the unit stays that of the first features.
        self._first = self.n_features
        self._count = 0
        # Of every feature: how many values there were, their mean and their squared deviations
        # from it, and both again for the values since their number last doubled. One array,
        # because handing over several costs as much as scaling ten features.
        self._moments: Array = np.zeros((N_MOMENTS, self.n_features))

    @property
    def n_columns(self) -> int:
        """The number of columns of the output."""
        return self.n_features + int(self.intercept)

    @property
    def n_terms(self) -> int:  # in front of the columns, see `folklearn.model.terms`
        return 0

    @property
    def place(self) -> int:
        """The column of the constant, if there is one; features that came late lie behind it."""
        return self._first

    @property
    def feature_columns(self) -> Labels:
        """The columns (d,) of the features, in their order."""
        features = np.arange(self.n_features)
        return features + (self.intercept & (features >= self.place))

    def transform(self, x: ArrayLike) -> Array:
        """Scale x (d,) or every row of (T, d) as if it came next; nothing is remembered."""
        x = validation.numbers("x", x)
        scaled = self.scale_rows(self._check_rows(x if x.ndim == 2 else x[None, ...]), learn=False)
        return scaled if x.ndim == 2 else scaled.ravel()

    def learn_transform(self, X: ArrayLike) -> Array:
        """Take in the rows of X (T, d) one after the other, and return them scaled."""
        return self.scale_rows(self._check_rows(X), learn=True)

    def _check_rows(self, X: ArrayLike) -> Array:
        return validation.contexts(X, self.n_features, gaps=self.gaps)

    def scale_rows(self, X: Array, *, learn: bool) -> Array:
        """Return checked rows X (T, d) scaled, each after taking it in if `learn`."""
        out = np.empty((len(X), self.n_features + self.intercept))
        scaling.scale_rows(X, self._moments, learn, self.scale, self.intercept, self._first, out)
        self._count += learn * len(X)
        return out

    def scale_row(self, x: Array, learn: bool) -> Array:
        """Return one row x (d,) as `scale_rows` does; x, which may have gaps, is checked here."""
        out = np.empty(self.n_features + self.intercept)
        if not scaling.scale_row(
            x, self._moments, learn, self.scale, self.intercept, self._first, _MAX_NORM, out
        ):
            validation.check_context(np.where(np.isnan(x), 0.0, x))
        self._count += learn
        return out

    @staticmethod
    def check_usable(x: Array) -> None:
        """Raise for a row whose norm, missing values being 0, leaves no room for a constant."""
        x = np.where(np.isnan(x), 0.0, x)
        if not math.hypot(*x) <= _MAX_NORM:
            validation.check_context(x)

    @property
    def unit(self) -> float:
        """What a value of one deviation becomes."""
        return 1.0 / math.sqrt(self._first + int(self.intercept)) if self.scale else 1.0

    constant = unit  # the value of the constant

    @property
    def n_seen(self) -> int:
        """The number of features up to the last one that was not absent from all rows so far."""
        counts, means, squares = self._moments[[COUNT, MEAN, SQUARES]]
        is_seen = (counts > 0.0) & ((counts < self._count) | (means != 0.0) | (squares > 0.0))
        return max(self._first, 1 + int(np.flatnonzero(is_seen).max(initial=-1)))

    def release_rows(self) -> None:
        """Replace the moments of the last half, where these are few values, by those of all."""
        counts, means, squares = self._moments[[COUNT, MEAN, SQUARES]]
        counts = np.maximum(counts, 1.0)
        since = counts - np.ldexp(1.0, np.frexp(counts)[1] - 1)
        few = since < _FEW_VALUES
        self._moments[HALF_MEAN, few] = means[few]
        self._moments[HALF_SQUARES, few] = (squares * (since / counts))[few]

    def line(self) -> tuple[Array, Array]:
        """Return a and b (d,): a value x becomes about a x + b, but for clipping."""
        if not self.scale:
            return np.ones(self.n_features), np.zeros(self.n_features)
        counts, means, squares = self._moments[[COUNT, MEAN, SQUARES]]
        varied = squares > 0.0
        a = np.zeros(self.n_features)
        a[varied] = self.unit / np.sqrt(squares[varied] / counts[varied])
        return a, -a * means

    def grow(self, n_features: int, missing: Sequence[bool] = ()) -> None:
        """Make room, behind the constant, for features that were 0, or `missing`, so far."""
        n_late = validation.count("n_features", n_features, self.n_features) - self.n_features
        self.n_features += n_late
        late = np.zeros((N_MOMENTS, n_late))
        late[COUNT] = self._count
        if len(missing) == n_late:
            late[COUNT, np.asarray(missing, bool)] = 0.0
        self._moments = np.hstack([self._moments, late])


class FixedScaler:
    """Standardise numbers by means and deviations that are set once; prepend a constant.

    Bounds on linear models are stated in these coordinates: a value x of a number becomes
    (x - mean) / deviation, never clipped; an indicator stays 0 or 1; a missing value is 0. A column
    is 0 until the first rows that have a value of it open it; one that does not vary in them has
    the deviation 1. With `intercept` column 0 is the constant, 1.
    """

    def __init__(self, *, scale: bool = True, intercept: bool = True) -> None:
        self.scale, self.intercept = bool(scale), bool(intercept)
        self.means: Array = np.zeros(0)
        self.deviations: Array = np.zeros(0)  # 0 for a column that is not open

    @property
    def n_columns(self) -> int:
        """The number of columns of the output."""
        return len(self.means) + self.intercept

    @property
    def n_open(self) -> int:
        """The number of columns that are not 0 in every row."""
        return int(np.count_nonzero(self.deviations))

    def opened(self, moments: "Moments", numeric: Sequence[bool]) -> "FixedScaler":
        """Return this scaler with the columns opened that rows of these `moments` have first.

        `numeric` (d,) tells numbers from indicators.
        """
        d, n = len(numeric), len(self.means)
        opened = FixedScaler(scale=self.scale, intercept=self.intercept)
        opened.means, opened.deviations = np.zeros(d), np.zeros(d)
        opened.means[:n], opened.deviations[:n] = self.means, self.deviations
        if not self.scale:
            opened.deviations[:] = 1.0
            return opened
        is_number = np.asarray(numeric, bool)
        counts, means, squares = moments
        deviations = np.sqrt(squares / np.maximum(counts, 1.0))
        varies = deviations > np.maximum(_LEAST_VARIATION * np.abs(means), _LEAST_DEVIATION)
        usual = np.where(counts > 0.0, np.where(varies, deviations, 1.0), 0.0)
        new = opened.deviations == 0.0
        opened.means[new] = np.where(is_number, means, 0.0)[new]
        opened.deviations[new] = np.where(is_number, usual, 1.0)[new]
        return opened

    def transform(self, X: Array) -> Array:
        """Return rows X (T, d) as (T, n_columns); columns beyond the known ones are left out."""
        Z = np.empty((len(X), self.n_columns))
        columns = Z[:, int(self.intercept) :]
        d = min(X.shape[1], columns.shape[1])
        open_ones = np.where(self.deviations > 0.0, self.deviations, np.inf)
        with np.errstate(over="ignore"):  # rows that are too long are left out by who adds them
            columns[:, :d] = (X[:, :d] - self.means[:d]) / open_ones[:d]
        columns[:, d:] = 0.0
        columns[np.isnan(columns)] = 0.0
        Z[:, : int(self.intercept)] = 1.0
        return Z

    def model(self, weights: Array, constants: Array) -> Array:
        """Return the model (K, n_columns) of a model of raw values: weights (K, d), constants (K,).

        Without `intercept` the constants are left out.
        """
        d = min(weights.shape[1], len(self.means))
        W = np.zeros((len(weights), self.n_columns))
        W[:, int(self.intercept) :][:, :d] = weights[:, :d] * self.deviations[:d]
        if self.intercept:
            W[:, 0] = constants + weights[:, :d] @ self.means[:d]
        return W


class Moments(NamedTuple):
    """Of columns: how many values there are, their mean and squared deviations from it, (d,)."""

    counts: Array
    means: Array
    squares: Array

    @classmethod
    def of(cls, X: Array) -> "Moments":
        """Return those of rows X (T, d), NaN left out."""
        is_present = ~np.isnan(X)
        counts = is_present.sum(axis=0).astype(np.float64)
        means = np.where(is_present, X, 0.0).sum(axis=0) / np.maximum(counts, 1.0)
        away = np.where(is_present, X - means, 0.0)
        return cls(counts, means, (away * away).sum(axis=0))

    def __add__(self, other: "Moments") -> "Moments":  # type: ignore[override]
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1.0)
        apart = other.means - self.means
        squares = self.squares + other.squares + apart * apart * self.counts * share
        return Moments(counts, self.means + apart * share, squares)


class SparseScaler(Serializable):
    r"""Give every column of the data the same length, and append a constant; what is 0 stays 0.

    Words, hashed categories and sparse features are divided by their norm in the row, numbers
    standardised as by `OnlineScaler`, at unit length. With c columns all of it is divided by
    :math:`\sqrt c`, so that a row has a norm of about 1. Slot s of the output begins at s 2^40, the
    constant is the first place. A missing value is 0.

    `n_features` counts the columns of the data, the `n_numbers` that hold numbers included. The
    constant is 0.3, or 1 without `scale`.
    """

    PARAMS = ("n_features", "n_numbers", "scale", "intercept")
    STATE: ClassVar = {"_numbers": OnlineScaler}

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        return validation.count("n_numbers", words["n_numbers"], 0)

    def __init__(
        self, *, n_features: int, n_numbers: int = 0, scale: bool = True, intercept: bool = True
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1, _MOST_SLOTS)
        self.n_numbers = validation.count("n_numbers", n_numbers, 0, self.n_features)
        self.scale, self.intercept = bool(scale), bool(intercept)
        self._numbers: OnlineScaler | None = None
        self.grow(self.n_features, self.n_numbers)

    n_terms = 0  # sparse rows have none
    place = 0  # of the constant

    @property
    def n_columns(self) -> int:
        """The number of columns of the output."""
        return (self.n_features + 1) * SPACE

    @property
    def constant(self) -> float:
        """The value of the constant."""
        return _CONSTANT if self.scale else 1.0

    @property
    def unit(self) -> float:
        """The length that every column of the data has."""
        return 1.0 / math.sqrt(self.n_features) if self.scale else 1.0

    def grow(self, n_features: int, n_numbers: int) -> None:
        """Make room for columns that were missing in every row so far."""
        self.n_features = validation.count("n_features", n_features, self.n_features)
        self.n_numbers = validation.count("n_numbers", n_numbers, self.n_numbers)
        if self._numbers is not None:
            self._numbers.grow(n_numbers)
        elif n_numbers:
            self._numbers = OnlineScaler(
                n_features=n_numbers, scale=self.scale, intercept=False, gaps=True
            )

    def release_rows(self) -> None:
        """Keep no moments of few rows, see `OnlineScaler`."""
        if self._numbers is not None:
            self._numbers.release_rows()

    def transform(self, X: Any) -> SparseRows:
        """Return rows, a `SparseInput`, scaled as if each came next; nothing is remembered."""
        return self.scale_rows(X, learn=False)

    def scale_rows(self, X: Any, *, learn: bool) -> SparseRows:
        """Return the rows scaled, each after taking in its numbers if `learn`."""
        numbers = np.zeros((len(X), len(X.slots)))
        if self._numbers is not None and X.slots:
            # The scaler divides by the root of the numbers it began with.
            factor = self.unit / self._numbers.unit
            numbers = self._numbers.scale_rows(X.numbers, learn=learn) * factor
        constant = self.constant if self.intercept else None
        length = self.unit if self.scale else None
        return X.scale_cells(numbers, length, constant, self.n_columns)


class MixedScaler(SparseScaler):
    """A `SparseScaler` of rows with words, with the model that learns their other columns.

    What this model, the `OnlinePipeline` `dense`, says goes with the rows, and the words among them
    at the length that they would have without the other columns: `StackedSgd` takes both.
    """

    CHILDREN = ("dense",)

    def __init__(self, *, dense: Any, **words: Any) -> None:
        super().__init__(**words)
        self.dense = dense

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # To predict alone, as the hold-out and readers do.
        copied = self._shallow()
        copied._numbers, copied.dense = copy.deepcopy(self._numbers), self.dense.copy_to_predict()
        return copied

    def transform(self, X: Any) -> StackedRows:
        """Return rows as the model of the other columns predicts what is ahead."""
        P = self.dense.predict(X.dense)
        return self.stack(self.scale_rows(X, learn=False), X, P)

    def stack(self, rows: SparseRows, X: Any, P: Array) -> StackedRows:
        """Return scaled rows of X with what the other columns say: probabilities (T, K)."""
        slots = rows.indices >> SPACE_BITS
        unit = 1.0 / math.sqrt(max(1, len(X.words))) if self.scale else 1.0
        lengths = np.where(np.isin(slots, X.words), unit / self.unit, 0.0)
        lengths[slots == 0] = 1.0
        return StackedRows(rows, rows.values * lengths, np.log(np.maximum(P, TINY)))
